//! Futures for the tasks to await, without any runtime: a yield, and a place where two tasks
//! take turns.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};

/// Lets the task be polled once more.
pub(super) async fn yield_once() {
    let mut yielded = false;
    poll_fn(|cx| {
        if yielded {
            return Poll::Ready(());
        }
        yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Two sides that take turns. The lock is the same for every runtime.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The number of turns that were taken: even ones are the first side's.
    taken: u64,
    waiting: Option<Waker>,
}

impl Turns {
    /// Takes `count` turns of a side (0 or 1); returns their number.
    pub(super) async fn take(self, side: u64, count: u64) -> u64 {
        for number in 0..count {
            poll_fn(|cx| {
                let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                if state.taken != 2 * number + side {
                    state.waiting = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                state.taken += 1;
                let other = state.waiting.take();
                drop(state);
                if let Some(other) = other {
                    other.wake();
                }
                Poll::Ready(())
            })
            .await;
        }
        count
    }
}
