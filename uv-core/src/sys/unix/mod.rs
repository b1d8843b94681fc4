//! Unix: Linux, Android, the BSDs and Apple's systems.
//!
//! # Calls that take no pointer
//!
//! Many system calls take integers only: descriptors, flags, process numbers. Such a call reads and
//! writes no memory of this process, so it is sound with any argument; a wrong one is an error
//! (`EBADF`, `ESRCH`). Their `SAFETY` comments say "takes no pointer". A call that closes or
//! replaces a descriptor also states its owner.

#![allow(unsafe_code)]

pub(crate) mod cmsg;
mod errors;
pub(crate) mod fs;
pub(crate) mod interfaces;
mod pipes;
mod process;
pub(crate) mod random;
pub(crate) mod resolver;
mod scm_rights;
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
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use poll_core::RawSource;

pub(crate) use errors::{error_name, error_number};

pub(crate) use scm_rights::{
    MAX_HANDLES, PASSED_SUPPORT_OPS, Passed, PassedKind, Rights, kind_of, passed_pipe, passed_tcp,
    passed_udp, receive_rights, send_rights,
};

pub(crate) use pipes::{
    Adopted, BoundPath, Connecting, OwnedPipe, adopt, bind_pipe, can_listen, connect_pipe,
    local_name, peer_name, pipe_address, pipe_sockets, pipes_work_on, plain_pipe, set_permissions,
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
    let mut on: libc::c_int = 1;
    // SAFETY: `FIONBIO` reads one `int`, a local that outlives the call.
    if unsafe { libc::ioctl(source.fd(), libc::FIONBIO, &raw mut on) } != -1 {
        return Ok(());
    }
    match io::Error::last_os_error() {
        // A kqueue has no blocking mode: `FIONBIO` fails on FreeBSD 14. A loop whose backend is
        // kqueue must be able to run inside another loop.
        error if error.raw_os_error() == Some(libc::ENOTTY) && is_kqueue(source) => Ok(()),
        error => Err(error),
    }
}

/// True if the descriptor is a kqueue.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_kqueue(source: RawSource) -> bool {
    let (no_changes, no_events) = (std::ptr::null(), std::ptr::null_mut());
    let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both lists have length 0, and the timeout is a local that outlives the call. The
    // kernel refuses a descriptor of another kind.
    unsafe { libc::kevent(source.fd(), no_changes, 0, no_events, 0, &now) != -1 }
}

/// Linux has no kqueue, and its `FIONBIO` works on every descriptor.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_kqueue(_source: RawSource) -> bool {
    false
}

/// Refuses files and directories with `EPERM`, as epoll does. They are always ready, so polling
/// one is a mistake that not every backend reports.
pub(crate) fn refuse_files(source: RawSource) -> io::Result<()> {
    match pipes::file_type(source.fd())? {
        libc::S_IFREG | libc::S_IFDIR => Err(io::Error::from_raw_os_error(libc::EPERM)),
        _ => Ok(()),
    }
}

/// The error that a poll handle gets when its descriptor has failed.
pub(crate) fn bad_source() -> io::Error {
    io::Error::from_raw_os_error(libc::EBADF)
}

/// Blocks `SIGPROF` in this thread until it is dropped.
#[derive(Debug)]
pub(crate) struct SigprofBlocked {
    before: libc::sigset_t,
}

impl SigprofBlocked {
    pub(crate) fn is_supported() -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn new() -> SigprofBlocked {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: writes one set, to a local of that type.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: changes the set that `sigemptyset` has initialised.
        unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGPROF) };
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: reads the set that is initialised above, and writes one to a local.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), before.as_mut_ptr()) };
        // SAFETY: `pthread_sigmask` has written it: the call fails only if `how` is invalid.
        SigprofBlocked { before: unsafe { before.assume_init() } }
    }
}

impl Drop for SigprofBlocked {
    fn drop(&mut self) {
        // SAFETY: reads one initialised set and writes none (null).
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

/// The number of forks between the process of the first call and this one.
pub(crate) fn forks() -> u32 {
    static FORKS: AtomicU32 = AtomicU32::new(0);
    static WATCHED: OnceLock<()> = OnceLock::new();
    unsafe extern "C" fn count() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    WATCHED.get_or_init(|| {
        // SAFETY: the handler is a function, so it is never unloaded before the process ends, and
        // it only increments an atomic, which is async-signal-safe.
        unsafe { libc::pthread_atfork(None, None, Some(count)) };
    });
    FORKS.load(Ordering::Relaxed)
}
