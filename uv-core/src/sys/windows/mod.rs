//! Windows.

#![allow(unsafe_code)]

pub(crate) mod fs;
pub(crate) mod interfaces;
pub(crate) mod names;
mod passing;
mod pipes;
mod process;
pub(crate) mod random;
mod signals;
mod sockets;
pub(crate) mod system;
pub(crate) mod threads;
pub(crate) mod title;
mod transport;
mod tty;
mod udp;
pub(crate) mod users;
pub(crate) mod watching;

use std::io;
use std::mem::MaybeUninit;

use poll_core::RawSource;
use windows_sys::Win32::Networking::WinSock::{FIONBIO, WSAENOTSOCK, ioctlsocket};

pub use passing::Passed;
pub(crate) use passing::{
    MOST_HANDLES, PASSED_OPERATE, PassedKind, Rights, kind_of, passed_pipe, passed_tcp, passed_udp,
    receive_rights, send_rights,
};

pub(crate) use pipes::{
    Adopted, BoundPath, Channel, Chunk, Connecting, INSTANCES, NamedPipe, OwnedPipe, Server,
    Waited, adopt, bind_pipe, can_listen, connect_pipe, let_everybody, local_name, peer_name,
    pipe_sockets, pipes_work_on, plain_pipe,
};

pub(crate) use process::{
    Child, ChildEnd, ExitWatch, Reaper, disable_stdio_inheritance, kill, no_such_process,
    not_our_child, pipe_for_child,
};

pub(crate) use signals::{subscribe, unsubscribe};

pub(crate) use sockets::{
    ABORTED, CANCELLED, LITTLE, MUCH_AT_ONCE, NO_BUFFER, OwnedSocket, Reserve, SEND_FLAGS, accept,
    accepted, is_connecting, is_ones_own, is_passing, is_wrong_family, out_of_descriptors,
    reuse_port, socket_pair, stream_socket,
};

pub(crate) use transport::Transport;

pub(crate) use tty::{AsDescriptor, Terminal, guess, reset_mode};

pub(crate) use udp::{code, disconnect, join_source_v4, leave_source_v4, share_address};

/// Makes reads and writes return `WouldBlock` instead of waiting.
pub(crate) fn set_nonblocking(source: RawSource) -> io::Result<()> {
    let mut on = 1;
    // SAFETY: Winsock reads one `u32`, which lives across the call.
    match unsafe { ioctlsocket(source.socket() as usize, FIONBIO, &raw mut on) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Windows gives each page when it is written first.
pub(crate) fn fault_in<T>(_: &mut [MaybeUninit<T>]) {}

/// Only sockets can be given to a poll.
pub(crate) fn refuse_files(_: RawSource) -> io::Result<()> {
    Ok(())
}

/// What a poll is told when its socket has an error.
pub(crate) fn bad_source() -> io::Error {
    io::Error::from_raw_os_error(WSAENOTSOCK)
}

/// Windows has no `SIGPROF`.
#[derive(Debug)]
pub(crate) struct SigprofBlocked;

impl SigprofBlocked {
    pub(crate) fn is_possible() -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "Windows has no SIGPROF"))
    }

    pub(crate) fn new() -> SigprofBlocked {
        SigprofBlocked
    }
}

/// Windows has no `fork`.
pub(crate) fn forks() -> u32 {
    0
}

/// A text of the system's, up to its NUL.
pub(crate) fn text(units: &[u16]) -> String {
    let end = units.iter().position(|&unit| unit == 0).unwrap_or(units.len());
    String::from_utf16_lossy(&units[..end])
}

/// A text of the system's that ends with NUL.
///
/// # Safety
///
/// `from` points to such a text.
unsafe fn text_at(from: *const u16) -> String {
    let (mut units, mut at) = (Vec::new(), from);
    loop {
        // SAFETY: within the text, by the caller's promise.
        match unsafe { at.read() } {
            0 => return String::from_utf16_lossy(&units),
            unit => units.push(unit),
        }
        // SAFETY: not at the NUL yet.
        at = unsafe { at.add(1) };
    }
}

/// A text as the system takes it: with a NUL at its end.
fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}
