//! The Linux calls that the model is made of.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use super::super::timespec;

/// Marks what a real kernel would do by itself: whoever counts system calls can take
/// all between the two marks for one. They ask for the priority of users that do not exist.
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
    // SAFETY: it has no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the pointer is valid for as long as this thread is.
    let before = unsafe { *errno };
    // SAFETY: it takes no pointer.
    unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_USER, mark) };
    // Asking about nobody fails, which must not show in what a signal interrupted.
    // SAFETY: as above.
    unsafe { *errno = before };
}

/// How many notices are taken at once.
pub(super) const NOTICES: usize = 256;

/// An epoll instance.
#[derive(Debug)]
pub(super) struct Epoll(OwnedFd);

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        // SAFETY: it takes no pointer.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        owned(fd).map(Epoll)
    }

    pub(super) fn add(&self, fd: RawFd, events: i32, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, events, data)
    }

    pub(super) fn replace(&self, fd: RawFd, events: i32, data: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, events, data)
    }

    /// Harmless if the descriptor is not there.
    pub(super) fn remove(&self, fd: RawFd) {
        let _ = self.control(libc::EPOLL_CTL_DEL, fd, 0, 0);
    }

    /// True if this very descriptor was added and not closed since, whatever other
    /// descriptors its file has, and whatever else has got its number.
    pub(super) fn has(&self, fd: RawFd) -> bool {
        match self.add(fd, 0, 0) {
            Ok(()) => {
                self.remove(fd);
                false
            }
            Err(error) => error.raw_os_error() == Some(libc::EEXIST),
        }
    }

    /// The data of what has happened, without waiting.
    pub(super) fn take(&self, list: &mut [libc::epoll_event; NOTICES]) -> usize {
        // SAFETY: pointer and length describe `list`.
        let n =
            unsafe { libc::epoll_wait(self.0.as_raw_fd(), list.as_mut_ptr(), NOTICES as i32, 0) };
        usize::try_from(n).unwrap_or(0)
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

/// A flag that a poller can see: an eventfd.
#[derive(Debug)]
pub(super) struct Flag(OwnedFd);

impl Flag {
    pub(super) fn new() -> io::Result<Flag> {
        // SAFETY: it takes no pointer.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        owned(fd).map(Flag)
    }

    pub(super) fn raise(&self) {
        let one = 1u64;
        // SAFETY: eight bytes are read from `one`.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    pub(super) fn lower(&self) {
        let mut count = 0u64;
        // SAFETY: eight bytes are written to `count`.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) };
    }
}

impl AsRawFd for Flag {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Waits until `fd` is readable or the time is over.
pub(super) fn sleep(fd: RawFd, timeout: Option<Duration>) -> io::Result<()> {
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
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
