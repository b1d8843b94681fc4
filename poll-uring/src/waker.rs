//! Waking a wait through an `eventfd(2)` that the ring polls.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

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
    /// What the ring polls.
    eventfd: File,
    /// What pollers outside watch, if there are any; see [`Waker::outside`].
    outside: OnceLock<File>,
    /// The backend sleeps, or is about to: pollers outside are not all that is to wake.
    sleeps: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker(Arc::new(Shared {
            door: Doorbell::default(),
            eventfd: eventfd()?,
            outside: OnceLock::new(),
            sleeps: AtomicBool::new(false),
        })))
    }

    /// Before a wait blocks; see [`Doorbell::sleep`].
    pub(crate) fn sleep(&self) -> bool {
        // Whoever finds the door asleep finds this, too: the door orders them.
        self.0.sleeps.store(true, Ordering::Relaxed);
        self.0.door.sleep()
    }

    /// After the system call; see [`Doorbell::wake_up`].
    pub(crate) fn wake_up(&self) -> bool {
        self.0.sleeps.store(false, Ordering::Relaxed);
        self.0.door.wake_up()
    }

    /// Has wakes ring pollers outside; see [`Doorbell::watch`].
    pub(crate) fn watch(&self) -> bool {
        self.0.door.watch()
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.eventfd.as_raw_fd()
    }

    /// The eventfd for pollers outside, once one was asked for. Wakes ring it, and so
    /// does the ring that it is registered with.
    pub(crate) fn outside(&self) -> Option<&File> {
        self.0.outside.get()
    }

    /// The eventfd for pollers outside.
    pub(crate) fn open_outside(&self) -> io::Result<&File> {
        if self.0.outside.get().is_none() {
            let new = eventfd()?;
            let _ = self.0.outside.set(new);
        }
        Ok(self.0.outside.get().expect("set just now"))
    }

    /// Makes the eventfd unreadable: a poll that starts anew must not see old rings.
    pub(crate) fn drain(&self) {
        drain(&self.0.eventfd);
    }

    /// In a forked child: puts new eventfds under the old numbers, which all clones have.
    pub(crate) fn after_fork(&self) -> io::Result<()> {
        replace(&self.0.eventfd)?;
        self.outside().map_or(Ok(()), replace)?;
        if self.wake_up() {
            // Someone has knocked before the fork: the child's next wait answers. It is
            // awake now, so that there is nobody to ring.
            let _ = self.0.door.knock();
        }
        Ok(())
    }
}

impl Wake for Waker {
    fn wake(&self) -> io::Result<()> {
        self.0.door.wake_with(|| {
            let outside = self.outside();
            outside.map_or(Ok(()), ring)?;
            if outside.is_none() || self.0.sleeps.load(Ordering::Relaxed) {
                ring(&self.0.eventfd)?;
            }
            Ok(())
        })
    }
}

pub(crate) fn ring(mut eventfd: &File) -> io::Result<()> {
    match eventfd.write(&1u64.to_ne_bytes()) {
        // The counter is full: it has been rung more than often enough.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn drain(mut eventfd: &File) {
    // It would block if nobody has rung, which is as good.
    let _ = eventfd.read(&mut [0; 8]);
}

fn replace(old: &File) -> io::Result<()> {
    let new = eventfd()?;
    // SAFETY: both descriptors are open and owned here; the old one's file is replaced,
    // its number stays with its owner.
    if unsafe { libc::dup3(new.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
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
