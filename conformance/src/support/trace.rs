//! Records of callbacks, in order.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::Loop;
use uv_core::Handle;

/// A list of names that callbacks record and the case checks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace(Rc<RefCell<Vec<&'static str>>>);

impl Trace {
    /// Records a name.
    pub(crate) fn note(&self, what: &'static str) {
        self.0.borrow_mut().push(what);
    }

    /// A handle callback that records `what`.
    pub(crate) fn noting<H: Handle>(
        &self,
        what: &'static str,
    ) -> impl FnMut(&mut Loop, H) + 'static {
        self.then(what, |_, _| {})
    }

    /// A handle callback that records `what` and then calls `then`.
    pub(crate) fn then<H: Handle>(
        &self,
        what: &'static str,
        mut then: impl FnMut(&mut Loop, H) + 'static,
    ) -> impl FnMut(&mut Loop, H) + 'static {
        let trace = self.clone();
        move |lp, handle| {
            trace.note(what);
            then(lp, handle);
        }
    }

    /// A deferred callback that records `what`.
    pub(crate) fn once(&self, what: &'static str) -> impl FnOnce(&mut Loop) + 'static {
        let trace = self.clone();
        move |_| trace.note(what)
    }

    /// Asserts that exactly these names were recorded since the last check, in this order.
    #[track_caller]
    pub(crate) fn expect(&self, expected: &[&str], why: &str) {
        let seen = self.0.take();
        assert!(seen == expected, "{why}: expected {expected:?}, but saw {seen:?}");
    }

    /// The names recorded since the last call.
    pub(crate) fn take(&self) -> Vec<&'static str> {
        self.0.take()
    }
}

/// A counter that callbacks increment and the case reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count(Rc<Cell<u64>>);

impl Count {
    /// Increments the counter and returns the new value.
    pub(crate) fn add(&self) -> u64 {
        self.0.set(self.0.get() + 1);
        self.0.get()
    }

    /// Increments the counter.
    pub(crate) fn count(&self) {
        self.add();
    }

    /// The current value.
    pub(crate) fn get(&self) -> u64 {
        self.0.get()
    }
}

/// A list of values that callbacks record and the case checks.
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
    /// Records a value.
    pub(crate) fn push(&self, value: R) {
        self.0.borrow_mut().push(value);
    }

    /// Records several values.
    pub(crate) fn extend(&self, values: impl IntoIterator<Item = R>) {
        self.0.borrow_mut().extend(values);
    }

    /// The number of values recorded since the last [`Log::take`].
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// The values recorded since the last call.
    pub(crate) fn take(&self) -> Vec<R> {
        self.0.take()
    }

    /// The value at `index`.
    pub(crate) fn at(&self, index: usize) -> R
    where
        R: Copy,
    {
        self.0.borrow()[index]
    }
}
