//! Waking a wait: the trait, and the part of it that needs no system call.

#[cfg(all(test, loom))]
mod models;

use std::io;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicBool, AtomicU8};

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

/// The state that decides whether a wake needs a system call.
///
/// Waking through the kernel costs a system call. A loop that is not parked needs
/// only a flag, which it checks before it parks. A backend's waker calls
/// [`wake`](WakeState::wake), which runs the system call only if the wait is parked; the
/// backend's wait calls [`prepare_park`](WakeState::prepare_park) before the blocking call
/// and [`unpark`](WakeState::unpark) after it.
///
/// ```text
///            prepare_park()             wake(): signal
///    AWAKE ─────────────────▶ PARKED ──────────────────▶ PENDING ◀─┐
///    ▲ │ ▲                      │                        ▲    │ └──┘ wake(): no signal
///    │ │ └────── unpark() ──────┘                        │    │
///    │ └──────── wake(): no signal ──────────────────────┘    │
///    └────────── unpark() ────────────────────────────────────┘
/// ```
///
/// A signal may arrive late, after the wait that it was meant for has returned
/// for another reason. A backend that finds its wake source signalled while
/// [`unpark`](WakeState::unpark) returns false treats it as spurious and waits again
/// for the time left.
///
/// ```
/// use poll_core::WakeState;
///
/// let state = WakeState::default();
/// assert!(!state.set_pending(), "awake: the flag is enough");
/// assert!(!state.prepare_park(), "a wake is pending: do not block");
/// assert!(state.unpark());
///
/// assert!(state.prepare_park());
/// assert!(state.set_pending(), "parked: make the system call");
/// assert!(!state.set_pending(), "wakes coalesce");
/// assert!(state.unpark());
/// assert!(!state.unpark());
/// ```
#[derive(Debug, Default)]
pub struct WakeState {
    state: AtomicU8,
    /// Another poller may block on this backend's `raw_source`: a wake signals in AWAKE too.
    watched: AtomicBool,
    /// The system call of the last wake failed: the next wake repeats it.
    wake_failed: AtomicBool,
}

const AWAKE: u8 = 0;
const PARKED: u8 = 1;
const PENDING: u8 = 2;

impl WakeState {
    /// For the waker: marks a wake as pending. True if the wait must be signalled by a system call.
    #[inline]
    #[must_use = "true asks for a system call"]
    pub fn set_pending(&self) -> bool {
        match self.state.swap(PENDING, Ordering::SeqCst) {
            PARKED => true,
            AWAKE => self.watched.load(Ordering::SeqCst),
            _ => {
                self.wake_failed.load(Ordering::Relaxed)
                    && self.wake_failed.swap(false, Ordering::SeqCst)
            }
        }
    }

    /// For the waker: [marks a wake as pending](WakeState::set_pending), and calls `signal` if the
    /// wait must be signalled.
    ///
    /// # Errors
    ///
    /// That of `signal`. The next wake calls it again, although a wake is pending already.
    #[inline]
    pub fn wake(&self, signal: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        if !self.set_pending() {
            return Ok(());
        }
        signal().inspect_err(|_| self.wake_failed.store(true, Ordering::SeqCst))
    }

    /// For the wait, before it blocks. False if a wake is pending: then do not block.
    #[inline]
    #[must_use = "false forbids blocking"]
    pub fn prepare_park(&self) -> bool {
        self.state.compare_exchange(AWAKE, PARKED, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// For the wait, after the system call, whether it blocked or not. True if a wake was
    /// pending; this call consumes it.
    #[inline]
    pub fn unpark(&self) -> bool {
        // A wait that did not block usually finds AWAKE, and a load is cheaper than a swap. A wake
        // that arrives right after this load is found by the next wait.
        self.state.load(Ordering::Acquire) != AWAKE
            && self.state.swap(AWAKE, Ordering::SeqCst) == PENDING
    }

    /// For `raw_source`: from now on a wake signals even if this backend is awake, as
    /// another poller may block on its descriptor. True if a wake is pending already: then
    /// signal now.
    #[must_use = "true asks for a system call"]
    pub fn notify_always(&self) -> bool {
        self.watched.store(true, Ordering::SeqCst);
        self.state.load(Ordering::SeqCst) == PENDING
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn notify_always_signals_while_awake() {
        let state = WakeState::default();
        assert!(!state.notify_always());
        assert!(state.set_pending());
        assert!(!state.set_pending());
        assert!(state.unpark());
    }

    #[test]
    fn a_failed_signal_is_repeated_by_the_next_wake() {
        let (state, mut signals) = (WakeState::default(), 0);
        let mut wake = |result: io::Result<()>| {
            state
                .wake(|| {
                    signals += 1;
                    result
                })
                .is_ok()
        };
        assert!(state.prepare_park());
        assert!(!wake(Err(io::ErrorKind::OutOfMemory.into())));
        assert!(!wake(Err(io::ErrorKind::OutOfMemory.into())));
        assert!(wake(Ok(())));
        assert!(wake(Err(io::ErrorKind::OutOfMemory.into())), "no signal is needed");
        assert_eq!(signals, 3);
        assert!(state.unpark());
    }

    #[test]
    fn notify_always_reports_a_pending_wake() {
        let state = WakeState::default();
        assert!(!state.set_pending());
        assert!(state.notify_always());
    }

    #[test]
    fn no_wake_is_lost_between_threads() {
        use std::sync::atomic::AtomicU32;
        use std::time::{Duration, Instant};
        const WAKES: u32 = if cfg!(miri) { 50 } else { 20_000 };
        let (state, signals, sent) = (WakeState::default(), AtomicU32::new(0), AtomicU32::new(0));
        let deadline = Instant::now() + Duration::from_secs(60);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..WAKES {
                    sent.fetch_add(1, Ordering::SeqCst);
                    if state.set_pending() {
                        signals.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
            // While `sent` is below the total another wake follows; a parked wait that
            // misses it would block for ever.
            while sent.load(Ordering::SeqCst) < WAKES {
                let before = signals.load(Ordering::SeqCst);
                if state.prepare_park() {
                    while signals.load(Ordering::SeqCst) == before {
                        assert!(Instant::now() < deadline, "a wake was lost");
                        std::thread::yield_now();
                    }
                }
                state.unpark();
            }
        });
    }
}
