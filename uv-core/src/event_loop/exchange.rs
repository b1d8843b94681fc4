//! Loops that callbacks exchange.
//!
//! A callback gets `&mut Loop` and may replace the loop by another with `mem::swap`. The code after
//! the callback then has a key that is unknown to the other loop, and returns: its work for the
//! first loop remains undone, and the first loop is out of reach. So a thread-local counter records
//! the exchange, and each loop of the thread checks all its handles before its next iteration.

use std::cell::Cell;

use poll_core::Backend;

use super::Loop;
use crate::event_loop::Notification;
use crate::handles::{AnyHandle, fs_poll, lifecycle, udp};
use crate::streams;

thread_local! {
    /// How often a loop of this thread did not find its handle after a callback.
    static EXCHANGES: Cell<u32> = const { Cell::new(0) };
}

/// The number of exchanges of loops that this thread has noticed.
#[inline]
pub(super) fn count() -> u32 {
    EXCHANGES.get()
}

/// Records that the code after a callback did not find its handle, so that the loop may be another
/// one. A handle that was freed meanwhile counts as well, and costs a check of all loops.
#[cold]
pub(crate) fn note() {
    EXCHANGES.set(EXCHANGES.get().wrapping_add(1));
}

/// Loops were exchanged since this loop last checked: schedules the work that its callbacks have
/// left undone.
#[cold]
pub(super) fn check_all<B: Backend>(lp: &mut Loop<B>) {
    lp.exchanges = count();
    free_closed(lp);
    streams::check_all(lp);
    udp::check_all(lp);
    fs_poll::check_all(lp);
    lp.provided.release_late(&mut lp.backend);
    // If the wake fails, the loop finds the notifications in its next iteration.
    drop(lp.notifier.notify(Notification::ALL));
}

/// Frees the handles whose close callbacks have run.
fn free_closed<B: Backend>(lp: &mut Loop<B>) {
    while let Some(handle) = lp.closed.pop() {
        lifecycle::free(lp, handle);
    }
}

/// The close callback of `handle` is about to run.
pub(super) fn begin_closed<B: Backend>(lp: &mut Loop<B>, handle: AnyHandle) {
    lp.closed.push(handle);
}

/// The close callback has run, in this loop or in one that was exchanged for it.
pub(super) fn end_closed<B: Backend>(lp: &mut Loop<B>, handle: AnyHandle) {
    match lp.closed.pop_if(|closed| *closed == handle) {
        Some(handle) => lifecycle::free(lp, handle),
        None => note(),
    }
}
