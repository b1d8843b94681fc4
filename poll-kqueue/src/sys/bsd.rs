//! The kernels of FreeBSD, NetBSD, OpenBSD, DragonFly and Apple, through `libc`.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use super::{Kevent, timespec};

pub(crate) use libc::kevent as RawKevent;
pub(crate) use libc::{EV_ADD, EV_CLEAR, EV_DELETE, EV_EOF, EV_ERROR, EV_ONESHOT, EV_RECEIPT};
pub(crate) use libc::{EVFILT_READ, EVFILT_USER, EVFILT_WRITE, NOTE_LOWAT, NOTE_TRIGGER};

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "openbsd", target_os = "dragonfly", target_vendor = "apple"))] {
        pub(crate) use libc::{EVFILT_EXCEPT, NOTE_OOB};
        pub(crate) const HAS_EXCEPT: bool = true;
    } else {
        pub(crate) const HAS_EXCEPT: bool = false;
        /// The kernel has no such filter. No change uses this number.
        pub(crate) const EVFILT_EXCEPT: RawFilter = RawFilter::MAX;
        pub(crate) const NOTE_OOB: u32 = 2;
    }
}

cfg_if::cfg_if! {
    if #[cfg(target_os = "netbsd")] {
        pub(crate) type RawFilter = u32;
        pub(crate) type RawFlags = u32;
        /// The type of the lengths in `kevent`.
        type Count = libc::size_t;
    } else {
        pub(crate) type RawFilter = i16;
        pub(crate) type RawFlags = u16;
        /// The type of the lengths in `kevent`.
        type Count = libc::c_int;
    }
}

// The kernel defines the layout. With a wrong one every event would be misread.
#[cfg(target_pointer_width = "64")]
const _: () = {
    use std::mem::{offset_of, size_of};

    let netbsd = cfg!(target_os = "netbsd");
    assert!(offset_of!(RawKevent, ident) == 0);
    assert!(offset_of!(RawKevent, filter) == 8);
    assert!(offset_of!(RawKevent, flags) == if netbsd { 12 } else { 10 });
    assert!(offset_of!(RawKevent, fflags) == if netbsd { 16 } else { 12 });
    assert!(offset_of!(RawKevent, data) == if netbsd { 24 } else { 16 });
    assert!(offset_of!(RawKevent, udata) == if netbsd { 32 } else { 24 });
    match size_of::<RawKevent>() {
        40 => assert!(netbsd),
        64 => assert!(cfg!(target_os = "freebsd")),
        // On FreeBSD this is the layout of version 11. A `libc` that uses it binds the matching
        // symbol version of `kevent`.
        32 => assert!(!netbsd),
        _ => panic!("this system's struct kevent has an unknown size"),
    }
};

/// A kernel queue of this process.
#[derive(Debug)]
pub(crate) struct Queue {
    fd: RawFd,
    /// The process that made the queue. A forked child does not inherit it: there the number is
    /// unused or names another file, and must not be closed.
    pid: u32,
}

impl Queue {
    /// The descriptor, for other pollers.
    pub(crate) fn pollable(&self) -> Option<RawFd> {
        Some(self.fd)
    }

    /// A new queue of the same kind.
    pub(crate) fn another(&self) -> io::Result<Queue> {
        kqueue()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            // SAFETY: `kqueue` made the descriptor in this process, and only this closes it.
            unsafe { libc::close(self.fd) };
        }
    }
}

/// `kqueue(2)`, close-on-exec.
pub(crate) fn kqueue() -> io::Result<Queue> {
    // SAFETY: the call has no preconditions.
    let fd = unsafe { libc::kqueue() };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let queue = Queue { fd, pid: std::process::id() };
    // SAFETY: no memory is passed.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(queue)
}

/// `kevent(2)`: makes `changes` and waits for events. Returns the number of `events` written.
pub(crate) fn kevent(
    queue: &Queue,
    changes: &[Kevent],
    events: &mut [Kevent],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let timeout = timeout.map(timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), |timeout| timeout as *const _);
    // SAFETY: pointers and lengths describe slices that outlive the call, of a type
    // that is transparent over the kernel's. The timeout outlives the call too.
    let count = unsafe {
        libc::kevent(
            queue.fd,
            changes.as_ptr().cast(),
            changes.len() as Count,
            events.as_mut_ptr().cast(),
            events.len() as Count,
            timeout,
        )
    };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}
