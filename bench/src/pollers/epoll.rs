//! Hand-written epoll: the lower limit for the cost of everything built on it.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use poll_core::RawSource;

use super::{Interest, Poller, check, milliseconds, uninterrupted};

/// The maximum number of events of one wait, as in `poll-epoll`.
const BATCH: usize = 1024;

/// An epoll instance.
#[derive(Debug)]
pub(crate) struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        // SAFETY: no memory is passed.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the call created the descriptor, and no other code owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Epoll { fd, events: vec![libc::epoll_event { events: 0, u64: 0 }; BATCH] })
    }

    /// Adds, changes or deletes a descriptor.
    pub(crate) fn control(
        &self,
        what: c_int,
        fd: RawFd,
        flags: c_int,
        data: u64,
    ) -> io::Result<()> {
        let mut event = libc::epoll_event { events: flags as u32, u64: data };
        // SAFETY: `event` is valid for the call.
        check(unsafe { libc::epoll_ctl(self.fd.as_raw_fd(), what, fd, &mut event) })?;
        Ok(())
    }

    /// Waits; returns the number of events. Repeats the call after a signal.
    pub(crate) fn wait_ms(&mut self, timeout_ms: c_int) -> io::Result<usize> {
        let (events, fd) = (self.events.as_mut_ptr(), self.fd.as_raw_fd());
        // SAFETY: pointer and length describe the event buffer.
        uninterrupted(|| unsafe { libc::epoll_wait(fd, events, BATCH as c_int, timeout_ms) })
    }

    /// The data and flags of one event of the last wait.
    pub(crate) fn event(&self, index: usize) -> (u64, c_int) {
        (self.events[index].u64, self.events[index].events as c_int)
    }

    /// The data and flags of the events of the last wait.
    pub(crate) fn found(&self, count: usize) -> impl Iterator<Item = (u64, c_int)> {
        self.events[..count].iter().map(|event| (event.u64, event.events as c_int))
    }
}

impl Poller for Epoll {
    fn add(&mut self, number: usize, source: RawSource) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, source.fd(), libc::EPOLLIN, number as u64)
    }

    fn change(&mut self, number: usize, source: RawSource, interest: Interest) -> io::Result<()> {
        let flags = match interest {
            Interest::Read => libc::EPOLLIN,
            Interest::Write => libc::EPOLLOUT,
            Interest::ReadOnce => libc::EPOLLIN | libc::EPOLLONESHOT,
        };
        self.control(libc::EPOLL_CTL_MOD, source.fd(), flags, number as u64)
    }

    fn remove(&mut self, _: usize, source: RawSource) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, source.fd(), 0, 0)
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<usize>) -> io::Result<()> {
        let count = self.wait_ms(milliseconds(timeout))?;
        ready.extend(self.found(count).map(|(data, _)| data as usize));
        Ok(())
    }
}

/// An eventfd, which wakes a loop.
#[derive(Debug)]
pub(crate) struct EventFd(OwnedFd);

impl EventFd {
    pub(crate) fn new() -> io::Result<EventFd> {
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        // SAFETY: no memory is passed.
        let fd = check(unsafe { libc::eventfd(0, flags) })?;
        // SAFETY: the call created the descriptor, and no other code owns it.
        Ok(EventFd(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the descriptor readable.
    pub(crate) fn signal(&self) -> io::Result<()> {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: `one` is valid for reads of its length.
        let written = unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
        if written == one.len() as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Drains the descriptor.
    pub(crate) fn clear(&self) -> io::Result<()> {
        let mut count = [0; 8];
        let (room, length) = (count.as_mut_ptr(), count.len());
        // SAFETY: `count` is valid for writes of its length.
        let read = unsafe { libc::read(self.0.as_raw_fd(), room.cast(), length) };
        if read == length as isize { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
