//! Loops that callbacks exchange.
//!
//! A callback gets `&mut Loop` and may put another loop there with `mem::swap`. The code behind the
//! callback then has a key that the other loop does not know, and returns. What it would have done
//! is still to be done for the first loop, which nothing here can reach any more. So it is noted
//! for the thread that loops were exchanged, and each loop of the thread checks all its handles
//! before its next iteration.

use std::cell::Cell;

use poll_core::Backend;

use super::Loop;
use crate::event_loop::Notification;
use crate::handles::{AnyHandle, fs_poll, lifecycle, udp};
use crate::streams;

thread_local! {
    /// How often a loop of this thread did not find its handle behind a callback.
    static EXCHANGES: Cell<u32> = const { Cell::new(0) };
}

/// How often loops of this thread were exchanged, as far as it was noticed.
#[inline]
pub(super) fn count() -> u32 {
    EXCHANGES.get()
}

/// The code behind a callback does not find its handle: the loop is another one. A handle that
/// was freed meanwhile counts as well, and costs a check of all loops.
#[cold]
#[inline(never)]
pub(crate) fn note() {
    EXCHANGES.set(EXCHANGES.get().wrapping_add(1));
}

/// Loops were exchanged since this loop last checked: what a callback of this loop has left
/// undone is done from here on.
#[cold]
#[inline(never)]
pub(super) fn check_all<B: Backend>(lp: &mut Loop<B>) {
    lp.exchanges = count();
    free_closed(lp);
    streams::check_all(lp);
    udp::check_all(lp);
    fs_poll::check_all(lp);
    lp.provided.release_late(&mut lp.backend);
    // If waking fails the notes are found when the loop next checks them.
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

/// It has run, in this loop or in one that was exchanged for it.
pub(super) fn end_closed<B: Backend>(lp: &mut Loop<B>, handle: AnyHandle) {
    match lp.closed.pop_if(|closed| *closed == handle) {
        Some(handle) => lifecycle::free(lp, handle),
        None => note(),
    }
}
