//! Unix.

#![allow(unsafe_code)]

pub(crate) mod control;
pub(crate) mod fs;
pub(crate) mod interfaces;
pub(crate) mod names;
mod pages;
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
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use poll_core::RawSource;

pub(crate) use pages::fault_in;

pub(crate) use passing::{
    MOST_HANDLES, PASSED_OPERATE, Passed, PassedKind, Rights, kind_of, passed_pipe, passed_tcp,
    passed_udp, receive_rights, send_rights,
};

pub(crate) use pipes::{
    Adopted, BoundPath, Connecting, OwnedPipe, adopt, bind_pipe, can_listen, connect_pipe,
    let_everybody, local_name, peer_name, pipe_sockets, pipes_work_on, plain_pipe,
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
    let mut on: libc::c_int = 1;
    // SAFETY: the kernel reads one `int`, which lives across the call.
    match unsafe { libc::ioctl(source.fd(), libc::FIONBIO, &raw mut on) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Files and directories are always ready, so that to watch one is a mistake. Not every poller
/// says so: they are refused as epoll refuses them.
pub(crate) fn refuse_files(source: RawSource) -> io::Result<()> {
    match pipes::file_type(source.fd())? {
        libc::S_IFREG | libc::S_IFDIR => Err(io::Error::from_raw_os_error(libc::EPERM)),
        _ => Ok(()),
    }
}

/// What a poll is told when its descriptor has an error.
pub(crate) fn bad_source() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

/// `SIGPROF` is blocked in this thread until this is dropped.
#[derive(Debug)]
pub(crate) struct SigprofBlocked {
    before: libc::sigset_t,
}

impl SigprofBlocked {
    pub(crate) fn is_possible() -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn new() -> SigprofBlocked {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: initialises the set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: the set is initialised, the signal exists.
        unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGPROF) };
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: reads one set and writes the other; `how` is valid, so it does not fail.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: written by the call above.
        SigprofBlocked { before: unsafe { before.assume_init() } }
    }
}

impl Drop for SigprofBlocked {
    fn drop(&mut self) {
        // SAFETY: reads a set that is valid.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// How many forks lie between this process and the one that asked first.
pub(crate) fn forks() -> u32 {
    static FORKS: AtomicU32 = AtomicU32::new(0);
    static WATCHED: OnceLock<()> = OnceLock::new();
    unsafe extern "C" fn count() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    WATCHED.get_or_init(|| {
        // SAFETY: the handler touches an atomic only, which is safe in a forked child.
        unsafe { libc::pthread_atfork(None, None, Some(count)) };
    });
    FORKS.load(Ordering::Relaxed)
}
