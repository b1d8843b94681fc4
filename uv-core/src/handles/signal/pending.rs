//! Pending signals of a loop, written by the process's signal handler.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::event_loop::{Notification, Notifier};

/// One more than the largest signal number of the supported systems.
pub(crate) const SIGNALS: usize = 129;

/// The signals that were caught for one loop.
#[derive(Debug)]
pub(crate) struct PendingSignals {
    /// Per signal, the count since the last [`take`](PendingSignals::take) and the arrival of the
    /// first.
    caught: [AtomicU64; SIGNALS],
    /// The number of signals caught so far, which orders arrivals.
    arrivals: AtomicU64,
    any: AtomicBool,
    notifier: Arc<Notifier>,
    /// The notification that is sent to the loop.
    note: Notification,
}

/// The layout of an entry of [`PendingSignals::caught`]: the low bits are the count, the others
/// the arrival of the first. One word, so that a concurrent handler updates both or neither.
/// Zero if the signal was not caught.
const COUNT_BITS: u32 = 24;
const MAX_COUNT: u64 = (1 << COUNT_BITS) - 1;

impl PendingSignals {
    pub(crate) fn new(notifier: Arc<Notifier>, note: Notification) -> Arc<PendingSignals> {
        let caught = [const { AtomicU64::new(0) }; SIGNALS];
        let (arrivals, any) = (AtomicU64::new(0), AtomicBool::new(false));
        Arc::new(PendingSignals { caught, arrivals, any, notifier, note })
    }

    /// Adds a signal and wakes the loop. Async-signal-safe: no lock, no allocation.
    pub(crate) fn post(&self, signum: usize) {
        let arrival = self.arrivals.fetch_add(1, Ordering::Relaxed);
        // The closure never returns `None`, so the update never fails.
        let _ = self.caught[signum].fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| {
            Some(match before & MAX_COUNT {
                0 => arrival << COUNT_BITS | 1,
                MAX_COUNT => before,
                _ => before + 1,
            })
        });
        self.any.store(true, Ordering::Release);
        // If the wake-up fails, the loop finds the signal at its next iteration.
        let _ = self.notifier.notify(self.note);
    }

    /// Takes the pending signals: calls `each` with the number and the count of each signal, in
    /// the order of first arrival.
    pub(crate) fn take(&self, mut each: impl FnMut(i32, u32)) {
        if !self.any.swap(false, Ordering::Acquire) {
            return;
        }
        let (mut taken, mut len) = ([(0, 0, 0); SIGNALS], 0);
        for (signum, caught) in self.caught.iter().enumerate() {
            let caught = caught.swap(0, Ordering::Relaxed);
            if caught != 0 {
                taken[len] = (caught >> COUNT_BITS, signum as i32, (caught & MAX_COUNT) as u32);
                len += 1;
            }
        }
        taken[..len].sort_unstable();
        taken[..len].iter().for_each(|&(_, signum, times)| each(signum, times));
    }
}

/// The kind of a signal watcher, in the order of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Regular,
    Oneshot,
}

/// Checks a signal number, and returns it as an index.
pub(crate) fn check_number(signum: i32) -> io::Result<usize> {
    let index = usize::try_from(signum).ok().filter(|index| (1..SIGNALS).contains(index));
    index.ok_or_else(|| {
        let why = format!("{signum} is not a signal number");
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })
}
