//! Waking a wait through an `eventfd(2)` that the ring polls.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::Arc;

use poll_core::{Doorbell, Wake};

/// Wakes a [`Uring`](crate::Uring).
///
/// It writes to an eventfd if the backend sleeps and only leaves a note if not.
/// A wake takes no lock and allocates nothing: it may come from a signal handler.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    door: Doorbell,
    eventfd: File,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker(Arc::new(Shared { door: Doorbell::default(), eventfd: eventfd()? })))
    }

    pub(crate) fn door(&self) -> &Doorbell {
        &self.0.door
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.eventfd.as_raw_fd()
    }

    /// Makes the eventfd readable, or wakes its poll again if it is.
    pub(crate) fn ring(&self) -> io::Result<()> {
        match (&self.0.eventfd).write(&1u64.to_ne_bytes()) {
            // The counter is full: it has been rung more than often enough.
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Makes the eventfd unreadable: a poll that starts anew must not see old rings.
    pub(crate) fn drain(&self) {
        // It would block if nobody has rung, which is as good.
        let _ = (&self.0.eventfd).read(&mut [0; 8]);
    }

    /// In a forked child: puts a new eventfd under the old number, which all clones have.
    pub(crate) fn after_fork(&self) -> io::Result<()> {
        let new = eventfd()?;
        // SAFETY: both descriptors are open and owned here; the old one's file is
        // replaced, its number stays with its owner.
        if unsafe { libc::dup3(new.as_raw_fd(), self.fd(), libc::O_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        if self.door().wake_up() {
            // Someone has knocked before the fork: the child's next wait answers. It is
            // awake now, so that there is nobody to ring.
            let _ = self.door().knock();
        }
        Ok(())
    }
}

impl Wake for Waker {
    fn wake(&self) -> io::Result<()> {
        if self.door().knock() { self.ring() } else { Ok(()) }
    }
}

fn eventfd() -> io::Result<File> {
    // SAFETY: a call without pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor was just made and has no other owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}
