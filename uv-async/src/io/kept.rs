//! Results of requests whose futures are gone, for other futures.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::Context;

use uv_core::poll_core::Backend;

use crate::Rt;
use crate::op::Waiting;

/// What the futures of one handle share if it does not matter which of them gets a result: receives
/// of a socket, accepts of a listener.
///
/// A future that is dropped when its request is complete, or before the request could be cancelled,
/// leaves the result here. Each future has a request of its own, so those that wait are woken to look.
pub(super) struct Kept<T> {
    results: RefCell<VecDeque<T>>,
    /// The number of requests, with those whose future is gone and which were not cancelled yet.
    requests: Cell<u32>,
    last_number: Cell<u32>,
    /// The futures to wake, by the numbers of their requests.
    waiting: RefCell<Vec<(u32, Waiting)>>,
}

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept {
            results: RefCell::default(),
            requests: Cell::new(0),
            last_number: Cell::new(0),
            waiting: RefCell::default(),
        }
    }
}

impl<T> Kept<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.results.borrow().is_empty()
    }

    pub(super) fn take(&self) -> Option<T> {
        self.results.borrow_mut().pop_front()
    }

    pub(super) fn take_all(&self) -> VecDeque<T> {
        self.results.take()
    }

    /// Keeps a result, and wakes the futures that wait.
    pub(super) fn put<B: Backend>(&self, rt: &Rt<B>, result: T) {
        self.results.borrow_mut().push_back(result);
        loop {
            // Not borrowed while it is woken: a waker may run any code.
            let next = self.waiting.borrow_mut().pop();
            let Some((_, waiting)) = next else { return };
            rt.with_or_wake_later(waiting);
        }
    }

    /// A request was made: returns its number.
    pub(super) fn begin(&self) -> u32 {
        self.requests.set(self.requests.get() + 1);
        self.last_number.set(self.last_number.get().wrapping_add(1));
        self.last_number.get()
    }

    /// The future of a request waits. The loop serves requests in order, so that only those before
    /// it can leave a result that it has to take.
    pub(super) fn wait<B: Backend>(&self, number: u32, rt: &Rt<B>, cx: &Context<'_>) {
        if self.requests.get() > 1 {
            self.wait_behind(number, Waiting::for_context(rt, cx));
        }
    }

    #[cold]
    fn wait_behind(&self, number: u32, new: Waiting) {
        let mut waiting = self.waiting.borrow_mut();
        match waiting.iter_mut().find(|(other, _)| *other == number) {
            Some((_, old)) => *old = new,
            None => waiting.push((number, new)),
        }
    }

    /// A request is complete or cancelled, and its future gone.
    pub(super) fn end(&self, number: u32) {
        self.requests.set(self.requests.get() - 1);
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.is_empty() {
            waiting.retain(|(other, _)| *other != number);
        }
    }
}
