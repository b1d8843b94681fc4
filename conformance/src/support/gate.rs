//! A gate that threads wait at, so that a case knows where they are.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use super::observe::SOON;

/// Threads stop at it until it is opened. Clones are one gate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<Ways>);

#[derive(Debug, Default)]
struct Ways {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    open: bool,
}

impl Gate {
    /// Waits until the gate is open.
    pub(crate) fn pass(&self) {
        let mut state = self.lock();
        state.waiting += 1;
        self.0.changed.notify_all();
        while !state.open {
            state = self.0.changed.wait(state).expect("nobody panics at a gate");
        }
        state.waiting -= 1;
    }

    /// Opens the gate for good.
    pub(crate) fn open(&self) {
        self.lock().open = true;
        self.0.changed.notify_all();
    }

    /// How many wait now.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Returns once `count` threads wait.
    pub(crate) fn await_waiting(&self, count: usize) {
        let started = Instant::now();
        let mut state = self.lock();
        while state.waiting < count {
            let left = SOON.saturating_sub(started.elapsed());
            assert!(!left.is_zero(), "{} of {count} threads have come", state.waiting);
            state = self.0.changed.wait_timeout(state, left).expect("nobody panics at a gate").0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("nobody panics at a gate")
    }
}
