//! The waker: an `eventfd(2)` that the ring polls.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use poll_core::{Wake, WakeState};

/// Wakes a [`Uring`](crate::Uring).
///
/// A wake writes to an eventfd if the backend parked, and only sets a flag if not. It takes no lock
/// and allocates nothing, so a signal handler may call it.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The pending flag, and whether the backend parked.
    state: WakeState,
    /// The eventfd that the ring polls.
    eventfd: File,
    /// The eventfd that external pollers watch, if there are any; see [`Waker::external`].
    external: OnceLock<File>,
    /// The backend parked, or is about to: a wake must signal the ring as well as external pollers.
    parked: AtomicBool,
}

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker(Arc::new(Shared {
            state: WakeState::default(),
            eventfd: eventfd()?,
            external: OnceLock::new(),
            parked: AtomicBool::new(false),
        })))
    }

    /// Called before a wait blocks; see [`WakeState::prepare_park`]. False if a wake is pending.
    pub(crate) fn prepare_park(&self) -> bool {
        // Relaxed: the state that is set next orders both, so a wake that sees it sees this.
        self.0.parked.store(true, Ordering::Relaxed);
        self.0.state.prepare_park()
    }

    /// Called after the system call; see [`WakeState::unpark`]. True if a wake was pending.
    pub(crate) fn unpark(&self) -> bool {
        self.0.parked.store(false, Ordering::Relaxed);
        self.0.state.unpark()
    }

    /// Makes every wake signal external pollers; see [`WakeState::notify_always`]. True if a wake
    /// is pending.
    pub(crate) fn notify_always(&self) -> bool {
        self.0.state.notify_always()
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.eventfd.as_raw_fd()
    }

    /// The eventfd for external pollers, once [`open_external`](Waker::open_external) has created
    /// it. Wakes signal it, and so do the completions of the ring that it is registered with.
    pub(crate) fn external(&self) -> Option<&File> {
        self.0.external.get()
    }

    /// The eventfd for external pollers, which the first call creates.
    pub(crate) fn open_external(&self) -> io::Result<&File> {
        if self.0.external.get().is_none() {
            let new = eventfd()?;
            let _ = self.0.external.set(new);
        }
        Ok(self.0.external.get().expect("set above"))
    }

    /// Resets the eventfd: a new poll must not report old wakes.
    pub(crate) fn drain(&self) {
        drain(&self.0.eventfd);
    }

    /// Replaces the eventfds in a forked child, under the old numbers, which all clones have.
    pub(crate) fn after_fork(&self) -> io::Result<()> {
        replace(&self.0.eventfd)?;
        self.external().map_or(Ok(()), replace)?;
        if self.unpark() {
            // A wake was pending before the fork: it stays pending for the child's next wait. The
            // backend does not sleep, so there is nothing to signal.
            let _ = self.0.state.set_pending();
        }
        Ok(())
    }
}

impl Wake for Waker {
    fn wake(&self) -> io::Result<()> {
        self.0.state.wake(|| {
            let external = self.external();
            external.map_or(Ok(()), signal)?;
            if external.is_none() || self.0.parked.load(Ordering::Relaxed) {
                signal(&self.0.eventfd)?;
            }
            Ok(())
        })
    }
}

/// Makes an eventfd readable.
pub(crate) fn signal(mut eventfd: &File) -> io::Result<()> {
    match eventfd.write(&1u64.to_ne_bytes()) {
        // The counter is at its maximum, so the eventfd is readable.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
        _ => Ok(()),
    }
}

/// Makes an eventfd unreadable.
pub(crate) fn drain(mut eventfd: &File) {
    // `WouldBlock`: the eventfd was not signalled.
    let _ = eventfd.read(&mut [0; 8]);
}

/// Replaces the file behind an eventfd's number by a new eventfd.
fn replace(old: &File) -> io::Result<()> {
    let new = eventfd()?;
    // SAFETY: `new` and `old` own their descriptors. The call replaces the file of the old one,
    // whose number stays with its owner.
    if unsafe { libc::dup3(new.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `eventfd(2)`, non-blocking and close-on-exec.
fn eventfd() -> io::Result<File> {
    // SAFETY: the call takes no pointer.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has created the descriptor, so it has no other owner.
    Ok(unsafe { File::from_raw_fd(fd) })
}
