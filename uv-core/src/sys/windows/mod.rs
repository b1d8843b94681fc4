//! The system calls of Windows.

#![allow(unsafe_code)]

mod errors;
pub(crate) mod fs;
mod handle_transfer;
pub(crate) mod interfaces;
mod pipes;
mod process;
pub(crate) mod random;
pub(crate) mod resolver;
mod signals;
mod sockets;
pub(crate) mod system;
pub(crate) mod threads;
pub(crate) mod title;
mod transport;
mod tty;
mod udp;
pub(crate) mod users;
pub(crate) mod watch;

use std::io;

use poll_core::RawSource;
use windows_sys::Win32::Networking::WinSock::{FIONBIO, WSAENOTSOCK, ioctlsocket};

pub(crate) use errors::{error_name, error_number};
pub use handle_transfer::Passed;
pub(crate) use handle_transfer::{
    MAX_HANDLES, PASSED_SUPPORT_OPS, PassedKind, Rights, kind_of, passed_pipe, passed_tcp,
    passed_udp, receive_rights, send_rights,
};

pub(crate) use pipes::{
    Adopted, BoundPath, Channel, Chunk, Connecting, INSTANCES, NamedPipe, OwnedPipe, Server,
    Waited, adopt, bind_pipe, can_listen, connect_pipe, local_name, peer_name, pipe_sockets,
    pipes_work_on, plain_pipe, set_permissions,
};

pub(crate) use process::{
    Child, ChildEnd, ExitWatch, Reaper, disable_stdio_inheritance, kill, no_such_process,
    not_our_child, pipe_for_child,
};

pub(crate) use signals::{subscribe, unsubscribe};

pub(crate) use sockets::{
    ABORTED, CANCELLED, COALESCE_MAX, LARGE_READ, NO_BUFFER, OwnedSocket, Reserve, SEND_FLAGS,
    accept, accepted, is_connecting, is_per_connection, is_transient, is_writable, is_wrong_family,
    out_of_descriptors, reuse_port, socket_pair, stream_socket,
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

/// Nothing to check: on Windows only sockets can be polled.
pub(crate) fn refuse_files(_: RawSource) -> io::Result<()> {
    Ok(())
}

/// The error of a poll handle whose socket has failed.
pub(crate) fn bad_source() -> io::Error {
    io::Error::from_raw_os_error(WSAENOTSOCK)
}

/// Windows has no `SIGPROF`.
#[derive(Debug)]
pub(crate) struct SigprofBlocked;

impl SigprofBlocked {
    pub(crate) fn is_supported() -> io::Result<()> {
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

/// Converts UTF-16 of the system, up to its NUL.
pub(crate) fn text(units: &[u16]) -> String {
    let end = units.iter().position(|&unit| unit == 0).unwrap_or(units.len());
    String::from_utf16_lossy(&units[..end])
}

/// Converts NUL-terminated UTF-16 of the system.
///
/// # Safety
///
/// `from` points to a NUL-terminated string.
unsafe fn text_at(from: *const u16) -> String {
    let (mut units, mut at) = (Vec::new(), from);
    loop {
        // SAFETY: within the string, which the caller guarantees to end with NUL.
        match unsafe { at.read() } {
            0 => return String::from_utf16_lossy(&units),
            unit => units.push(unit),
        }
        // SAFETY: the loop has found `length` units before the NUL.
        at = unsafe { at.add(1) };
    }
}

/// Converts to NUL-terminated UTF-16, as system calls take it.
fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}
