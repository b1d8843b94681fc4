//! A gate that blocks threads at a known point.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use super::observe::SOON;

/// Blocks threads until it is opened. Clones share one gate.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
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
            state = self.0.changed.wait(state).expect("no thread panics with the lock held");
        }
        state.waiting -= 1;
    }

    /// Opens the gate permanently.
    pub(crate) fn open(&self) {
        self.lock().open = true;
        self.0.changed.notify_all();
    }

    /// The number of threads blocked now.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Returns once `count` threads are blocked.
    pub(crate) fn await_waiting(&self, count: usize) {
        let started = Instant::now();
        let mut state = self.lock();
        while state.waiting < count {
            let left = SOON.saturating_sub(started.elapsed());
            assert!(!left.is_zero(), "{} of {count} threads have arrived", state.waiting);
            state = self
                .0
                .changed
                .wait_timeout(state, left)
                .expect("no thread panics with the lock held")
                .0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("no thread panics with the lock held")
    }
}
