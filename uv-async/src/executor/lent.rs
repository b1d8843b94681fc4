//! The loop, lent to the task that is polled.
//!
//! Futures own no loop, and `poll` is not given one. While the executor polls a task, it stores a
//! pointer to the loop that it was called with; [`Lent::with`] takes the pointer out for the time
//! of one call. There is no other unsafe code about the loop in this crate.

#![allow(unsafe_code)]

use std::cell::Cell;
use std::ptr::NonNull;

use uv_core::Loop;
use uv_core::poll_core::Backend;

/// A loop, while it is lent.
#[derive(Debug)]
pub(crate) struct Lent<B: Backend>(Cell<Option<NonNull<Loop<B>>>>);

impl<B: Backend> Lent<B> {
    pub(crate) fn new() -> Lent<B> {
        Lent(Cell::new(None))
    }

    /// Lends a loop while `f` runs.
    #[inline]
    pub(crate) fn lend<R>(&self, lp: &mut Loop<B>, f: impl FnOnce() -> R) -> R {
        let before = self.0.replace(Some(NonNull::from(lp)));
        let _restored = Restore { cell: &self.0, before };
        f()
    }

    /// Calls `f` with the loop. `None` if no loop is lent, or if this is called by such an `f`.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Loop<B>) -> R) -> Option<R> {
        let mut lp = self.0.take()?;
        let _restored = Restore { cell: &self.0, before: Some(lp) };
        // SAFETY: the pointer comes from the `&mut` argument of a call of `lend` that has not
        // returned, because `lend` removes it before it returns or unwinds. That call uses its
        // argument no more. The pointer is taken out of the cell until `f` has returned, so this
        // is the only reference.
        let lp = unsafe { lp.as_mut() };
        Some(f(lp))
    }
}

/// Puts a value back into the cell, after a return and after a panic.
struct Restore<'a, B: Backend> {
    cell: &'a Cell<Option<NonNull<Loop<B>>>>,
    before: Option<NonNull<Loop<B>>>,
}

impl<B: Backend> Drop for Restore<'_, B> {
    fn drop(&mut self) {
        self.cell.set(self.before);
    }
}
