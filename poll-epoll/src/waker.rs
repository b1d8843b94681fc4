//! Waking a wait through an `eventfd(2)`.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::Arc;

use poll_core::{Doorbell, Wake};

use crate::instance::{owned, replace};

/// Wakes an [`Epoll`](crate::Epoll), from any thread and from signal handlers.
///
/// While the backend is awake this is one atomic operation; while it sleeps,
/// also one `write` to an `eventfd(2)`.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Door>);

#[derive(Debug)]
struct Door {
    bell: Doorbell,
    /// Watched with `EPOLLET`, so that each write is news and nobody ever reads.
    /// The counter would take 584 years of a write each nanosecond to fill up.
    eventfd: File,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker(Arc::new(Door { bell: Doorbell::default(), eventfd: eventfd()? })))
    }

    pub(crate) fn bell(&self) -> &Doorbell {
        &self.0.bell
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.eventfd.as_raw_fd()
    }

    /// The system call behind a wake.
    pub(crate) fn ring(&self) -> io::Result<()> {
        (&self.0.eventfd).write(&1_u64.to_ne_bytes()).map(drop)
    }

    /// In a forked child: a new eventfd under the old number, which is the one
    /// that all clones know. The parent's table of descriptors is another.
    pub(crate) fn after_fork(&self) -> io::Result<()> {
        replace(self.fd(), eventfd()?.as_raw_fd())
    }
}

impl Wake for Waker {
    fn wake(&self) -> io::Result<()> {
        self.0.bell.wake_with(|| self.ring())
    }
}

fn eventfd() -> io::Result<File> {
    // SAFETY: it takes no pointer.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    // SAFETY: a descriptor that was just made has no other owner.
    owned(fd, |fd| unsafe { File::from_raw_fd(fd) })
}
