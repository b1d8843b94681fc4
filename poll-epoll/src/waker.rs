//! The waker: an `eventfd(2)` in the interest list of the epoll instance.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::Arc;

use poll_core::{Wake, WakeState};

use crate::instance::{owned, replace};

/// Wakes an [`Epoll`](crate::Epoll), from any thread and from signal handlers.
///
/// A wake is one atomic operation while the backend is awake, and also one `write` to an
/// `eventfd(2)` while it is blocked.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

/// The state that the backend shares with all clones of its waker.
#[derive(Debug)]
struct Shared {
    /// Skips the `write` while the backend is awake or a wake is pending.
    state: WakeState,
    /// Watched with `EPOLLET`: each write is an event, and no read is needed.
    /// The counter overflows after 584 years of one write per nanosecond.
    eventfd: File,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker(Arc::new(Shared { state: WakeState::default(), eventfd: eventfd()? })))
    }

    #[inline]
    pub(crate) fn state(&self) -> &WakeState {
        &self.0.state
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.eventfd.as_raw_fd()
    }

    /// Writes to the eventfd.
    pub(crate) fn signal(&self) -> io::Result<()> {
        (&self.0.eventfd).write(&1_u64.to_ne_bytes()).map(drop)
    }

    /// In a forked child: replaces the eventfd by a new one with the same descriptor number,
    /// which all clones of this waker use. The parent's descriptor table is not affected.
    pub(crate) fn after_fork(&self) -> io::Result<()> {
        replace(self.fd(), eventfd()?.as_raw_fd())
    }
}

impl Wake for Waker {
    fn wake(&self) -> io::Result<()> {
        self.0.state.wake(|| self.signal())
    }
}

fn eventfd() -> io::Result<File> {
    // SAFETY: `eventfd` takes no pointer.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    // SAFETY: `owned` passes only a descriptor that `eventfd` has just returned, so it is open
    // and has no other owner.
    owned(fd, |fd| unsafe { File::from_raw_fd(fd) })
}
