//! Waking a wait: the trait, and the part of it that needs no system call.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Makes a [`Backend::wait`](crate::Backend::wait) return, from any thread.
///
/// Backends wake without locks and without allocation, so that a wake may come
/// from a signal handler too.
pub trait Wake: Clone + Send + Sync + 'static {
    /// Makes the current wait, or else the next one, return. Wakes coalesce:
    /// any number of them before a wait returns make one wait return.
    ///
    /// Harmless once the backend is gone.
    ///
    /// # Errors
    ///
    /// Whatever the system call that interrupts the wait reports.
    fn wake(&self) -> io::Result<()>;
}

/// Whether somebody sleeps, and whether somebody has knocked.
///
/// Waking through the kernel costs a system call; a loop that is awake anyway
/// needs only a flag, which it looks at before it sleeps. This is that flag.
/// A backend's waker calls [`wake_with`](Doorbell::wake_with), which makes its
/// system call only if it is needed; the backend's wait calls [`sleep`](Doorbell::sleep) before
/// and [`wake_up`](Doorbell::wake_up) after.
///
/// ```text
///              sleep()                 knock(): ring!
///    AWAKE ───────────────▶ ASLEEP ───────────────────▶ KNOCKED
///      ▲ │                    │                          │  ▲ │
///      │ └── knock(): no ring ──────────────────────────────┘ │ knock(): no ring
///      └──────── wake_up() ───┴──────────────────────────┘  ▲ │
///                                                           └─┘
/// ```
///
/// A ring may arrive late, after the wait that it was meant for has returned
/// for another reason. A backend that finds its bell rung but
/// [`wake_up`](Doorbell::wake_up) false goes back to sleep for the time left.
///
/// ```
/// use poll_core::Doorbell;
///
/// let door = Doorbell::default();
/// assert!(!door.knock(), "awake: the flag is enough");
/// assert!(!door.sleep(), "someone has knocked: do not block");
/// assert!(door.wake_up());
///
/// assert!(door.sleep());
/// assert!(door.knock(), "asleep: make the system call");
/// assert!(!door.knock(), "once is enough");
/// assert!(door.wake_up());
/// assert!(!door.wake_up());
/// ```
#[derive(Debug, Default)]
pub struct Doorbell {
    state: AtomicU8,
    /// Someone else sleeps on this backend's `raw_fd`, so being awake is not enough.
    watched: AtomicBool,
    /// The system call of the last knock has failed: the next one makes it again.
    unheard: AtomicBool,
}

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const KNOCKED: u8 = 2;

impl Doorbell {
    /// For the waker: leaves a note. True if the sleeper must be rung by a system call.
    #[inline]
    #[must_use = "true asks for a system call"]
    pub fn knock(&self) -> bool {
        match self.state.swap(KNOCKED, Ordering::SeqCst) {
            ASLEEP => true,
            AWAKE => self.watched.load(Ordering::SeqCst),
            _ => self.unheard.load(Ordering::Relaxed) && self.unheard.swap(false, Ordering::SeqCst),
        }
    }

    /// For the waker: [knocks](Doorbell::knock), and calls `ring` if the sleeper must be rung.
    ///
    /// # Errors
    ///
    /// That of `ring`. The next wake calls it again, though somebody has knocked already.
    #[inline]
    pub fn wake_with(&self, ring: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if !self.knock() {
            return Ok(());
        }
        ring().inspect_err(|_| self.unheard.store(true, Ordering::SeqCst))
    }

    /// For the wait, before it blocks. False if someone has knocked: then do not block.
    #[inline]
    #[must_use = "false forbids blocking"]
    pub fn sleep(&self) -> bool {
        self.state.compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// For the wait, after the system call, whether it blocked or not. True if
    /// someone has knocked since the last time; the knock is answered by this.
    #[inline]
    pub fn wake_up(&self) -> bool {
        // A wait that did not block finds the state as it left it, most of the time. A
        // knock that comes right after this look is found by the next wait.
        self.state.load(Ordering::Acquire) != AWAKE
            && self.state.swap(AWAKE, Ordering::SeqCst) == KNOCKED
    }

    /// For `raw_fd`: from now on a knock rings even if this backend is awake, as
    /// another poller may sleep on its descriptor. True if someone has knocked
    /// already: then ring now.
    #[must_use = "true asks for a system call"]
    pub fn watch(&self) -> bool {
        self.watched.store(true, Ordering::SeqCst);
        self.state.load(Ordering::SeqCst) == KNOCKED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watched_bell_rings_while_awake() {
        let door = Doorbell::default();
        assert!(!door.watch());
        assert!(door.knock());
        assert!(!door.knock());
        assert!(door.wake_up());
    }

    #[test]
    fn a_ring_that_failed_is_rung_again() {
        let (door, mut rings) = (Doorbell::default(), 0);
        let mut wake = |result: io::Result<()>| {
            door.wake_with(|| {
                rings += 1;
                result
            })
            .is_ok()
        };
        assert!(door.sleep());
        assert!(!wake(Err(io::ErrorKind::OutOfMemory.into())));
        assert!(!wake(Err(io::ErrorKind::OutOfMemory.into())));
        assert!(wake(Ok(())));
        assert!(wake(Err(io::ErrorKind::OutOfMemory.into())), "nobody needs to ring");
        assert_eq!(rings, 3);
        assert!(door.wake_up());
    }

    #[test]
    fn watching_after_a_silent_knock_rings() {
        let door = Doorbell::default();
        assert!(!door.knock());
        assert!(door.watch());
    }

    #[test]
    fn no_knock_is_lost_between_threads() {
        use std::sync::atomic::AtomicU32;
        use std::time::{Duration, Instant};
        const KNOCKS: u32 = if cfg!(miri) { 50 } else { 20_000 };
        let (door, rings, sent) = (Doorbell::default(), AtomicU32::new(0), AtomicU32::new(0));
        let deadline = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..KNOCKS {
                    sent.fetch_add(1, Ordering::SeqCst);
                    if door.knock() {
                        rings.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
            // Every `sent` below the total has a knock to come: to sleep through it
            // is to sleep for ever.
            while sent.load(Ordering::SeqCst) < KNOCKS {
                let before = rings.load(Ordering::SeqCst);
                if door.sleep() {
                    while rings.load(Ordering::SeqCst) == before {
                        assert!(Instant::now() < deadline, "a knock was lost");
                        std::thread::yield_now();
                    }
                }
                door.wake_up();
            }
        });
    }
}
