//! The Linux calls behind the model.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::sys::timespec;

/// Brackets the system calls that a real kernel would make inside of one `kevent` call.
///
/// Both marks are calls of `getpriority` for users that do not exist. A test that counts system
/// calls takes the marks and all calls between them for one.
#[derive(Debug)]
pub(super) struct Kernel(());

const ENTER: u32 = 0x7a11_0003;
const LEAVE: u32 = 0x7a11_0004;

impl Kernel {
    pub(super) fn enter() -> Kernel {
        mark(ENTER);
        Kernel(())
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        mark(LEAVE);
    }
}

fn mark(mark: u32) {
    // SAFETY: the call has no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the C library keeps the pointer valid while this thread lives.
    let before = unsafe { *errno };
    // SAFETY: no memory is passed.
    unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_USER, mark) };
    // The call fails. Code that a signal interrupted must not see its error.
    // SAFETY: the C library keeps the pointer valid while this thread lives.
    unsafe { *errno = before };
}

/// The most events that one call takes from an epoll instance.
pub(super) const MAX_ACTIVITY: usize = 256;

/// An epoll instance.
#[derive(Debug)]
pub(super) struct Epoll(OwnedFd);

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        owned(fd).map(Epoll)
    }

    pub(super) fn add(&self, fd: RawFd, events: i32, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, data)
    }

    pub(super) fn replace(&self, fd: RawFd, events: i32, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, events, data)
    }

    /// Removes a descriptor, if it was added.
    pub(super) fn remove(&self, fd: RawFd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    /// True if the descriptor was added and was not closed since. Other descriptors of the same
    /// file, and a new file with the same number, do not count.
    pub(super) fn has(&self, fd: RawFd) -> bool {
        match self.add(fd, 0, 0) {
            Ok(()) => {
                self.remove(fd);
                false
            }
            Err(error) => error.raw_os_error() == Some(libc::EEXIST),
        }
    }

    /// Takes events without blocking. Returns their number.
    pub(super) fn take(&self, list: &mut [libc::epoll_event; MAX_ACTIVITY]) -> usize {
        // SAFETY: pointer and length describe `list`.
        let count = unsafe {
            libc::epoll_wait(self.0.as_raw_fd(), list.as_mut_ptr(), MAX_ACTIVITY as i32, 0)
        };
        usize::try_from(count).unwrap_or(0)
    }

    fn control(&self, op: i32, fd: RawFd, events: i32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events as u32, u64: data };
        // SAFETY: `event` outlives the call.
        match unsafe { libc::epoll_ctl(self.0.as_raw_fd(), op, fd, &mut event) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A flag whose descriptor is readable while it is set: an eventfd.
#[derive(Debug)]
pub(super) struct Flag(OwnedFd);

impl Flag {
    pub(super) fn new() -> io::Result<Flag> {
        // SAFETY: no memory is passed.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        owned(fd).map(Flag)
    }

    pub(super) fn set(&self) {
        let one = 1u64;
        // SAFETY: the kernel reads eight bytes from `one`.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    pub(super) fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: the kernel writes eight bytes to `count`.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsRawFd for Flag {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Blocks until `fd` is readable or the timeout has passed.
pub(super) fn wait_readable(fd: RawFd, timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.map(timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), |timeout| timeout as *const _);
    let mut polled = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which outlives the call as the timeout does; no signal mask.
    match unsafe { libc::ppoll(&mut polled, 1, timeout, std::ptr::null()) } {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn owned(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the caller has just got the descriptor from the kernel, and gives it up.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
