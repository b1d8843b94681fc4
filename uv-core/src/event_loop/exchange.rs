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
use crate::handles::AnyHandle;

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

impl<B: Backend> Loop<B> {
    /// Loops were exchanged since this loop last checked: what a callback of this loop has left
    /// undone is done from here on.
    #[cold]
    #[inline(never)]
    pub(super) fn check_all(&mut self) {
        self.exchanges = count();
        self.free_closed();
        self.check_streams();
        self.check_udps();
        self.check_fs_polls();
        self.release_late_buffers();
        // If waking fails the notes are found when the loop next checks them.
        drop(self.notifier.notify(Notification::ALL));
    }

    /// Frees the handles whose close callbacks have run.
    fn free_closed(&mut self) {
        while let Some(handle) = self.closed.pop() {
            self.free_handle(handle);
        }
    }

    /// The close callback of `handle` is about to run.
    pub(super) fn begin_closed(&mut self, handle: AnyHandle) {
        self.closed.push(handle);
    }

    /// It has run, in this loop or in one that was exchanged for it.
    pub(super) fn end_closed(&mut self, handle: AnyHandle) {
        match self.closed.pop_if(|closed| *closed == handle) {
            Some(handle) => self.free_handle(handle),
            None => note(),
        }
    }
}
