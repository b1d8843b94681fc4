//! What the callbacks of a loop do, in order.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use poll_core::Backend;
use uv_core::{Handle, Loop};

/// A list of names that callbacks write and the case reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace(Rc<RefCell<Vec<&'static str>>>);

impl Trace {
    /// Writes a name.
    pub(crate) fn note(&self, what: &'static str) {
        self.0.borrow_mut().push(what);
    }

    /// A callback of a handle that writes `what` and does nothing else.
    pub(crate) fn noting<T: Backend, H: Handle>(
        &self,
        what: &'static str,
    ) -> impl FnMut(&mut Loop<T>, H) + 'static {
        self.then(what, |_, _| {})
    }

    /// A callback of a handle that writes `what` and goes on with `then`.
    pub(crate) fn then<T: Backend, H: Handle>(
        &self,
        what: &'static str,
        mut then: impl FnMut(&mut Loop<T>, H) + 'static,
    ) -> impl FnMut(&mut Loop<T>, H) + 'static {
        let trace = self.clone();
        move |lp, handle| {
            trace.note(what);
            then(lp, handle);
        }
    }

    /// A deferred callback that writes `what` and does nothing else.
    pub(crate) fn once<T: Backend>(
        &self,
        what: &'static str,
    ) -> impl FnOnce(&mut Loop<T>) + 'static {
        let trace = self.clone();
        move |_| trace.note(what)
    }

    /// Asserts that exactly this was written since the last look, in this order.
    #[track_caller]
    pub(crate) fn expect(&self, expected: &[&str], why: &str) {
        let seen = self.0.take();
        assert!(seen == expected, "{why}: expected {expected:?}, but saw {seen:?}");
    }

    /// What was written since the last look.
    pub(crate) fn take(&self) -> Vec<&'static str> {
        self.0.take()
    }
}

/// A number that callbacks change and the case reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Rc<Cell<u64>>);

impl Count {
    /// Counts one more, and gives how many there are now.
    pub(crate) fn add(&self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }

    /// Counts one more.
    pub(crate) fn count(&self) {
        self.add();
    }

    /// How many there are.
    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

/// A list of values that callbacks write and the case reads.
#[derive(Debug)]
pub(crate) struct Log<R>(Rc<RefCell<Vec<R>>>);

impl<R> Clone for Log<R> {
    fn clone(&self) -> Self {
        Log(Rc::clone(&self.0))
    }
}

impl<R> Default for Log<R> {
    fn default() -> Self {
        Log(Rc::default())
    }
}

impl<R> Log<R> {
    /// Writes a value.
    pub(crate) fn push(&self, value: R) {
        self.0.borrow_mut().push(value);
    }

    /// Writes several values.
    pub(crate) fn extend(&self, values: impl IntoIterator<Item = R>) {
        self.0.borrow_mut().extend(values);
    }

    /// How many were written since the last look.
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// What was written since the last look.
    pub(crate) fn take(&self) -> Vec<R> {
        self.0.take()
    }
}
