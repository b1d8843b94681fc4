//! libkqueue on Linux, with `--cfg libkqueue`: one more kqueue to run the suite against.
//! `build.rs` links it.

use std::ffi::c_int;
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::{Kevent, RawKevent, timespec};

mod c {
    use super::*;

    unsafe extern "C" {
        pub(super) fn kqueue() -> c_int;
        pub(super) fn kevent(
            queue: c_int,
            changes: *const RawKevent,
            changes_len: c_int,
            events: *mut RawKevent,
            events_len: c_int,
            timeout: *const libc::timespec,
        ) -> c_int;
    }
}

/// A queue of libkqueue.
#[derive(Debug)]
pub(crate) struct Queue {
    fd: RawFd,
    /// The process that made the queue: the library's state does not survive a fork.
    pid: u32,
}

impl Queue {
    /// The library's descriptor does not become readable when events are pending.
    pub(crate) fn pollable(&self) -> Option<RawFd> {
        None
    }

    /// A new queue of the same kind.
    pub(crate) fn another(&self) -> io::Result<Queue> {
        kqueue()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // SAFETY: `kqueue` made the descriptor in this process, and only this closes it. The
            // library detects that.
            unsafe { libc::close(self.fd) };
        }
    }
}

pub(crate) fn kqueue() -> io::Result<Queue> {
    // SAFETY: the call has no preconditions.
    let fd = unsafe { c::kqueue() };
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(Queue { fd, pid: std::process::id() }) }
}

pub(crate) fn kevent(
    queue: &Queue,
    changes: &[Kevent],
    events: &mut [Kevent],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let timeout = timeout.map(timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), |timeout| timeout as *const _);
    // SAFETY: pointers and lengths describe slices that outlive the call, of a type
    // that is transparent over the library's. The timeout outlives the call too.
    let count = unsafe {
        c::kevent(
            queue.fd,
            changes.as_ptr().cast(),
            changes.len() as c_int,
            events.as_mut_ptr().cast(),
            events.len() as c_int,
            timeout,
        )
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}
