//! Callbacks in inline storage: type-erased closures that need no allocation.
//!
//! A closure that captures up to three words is stored inside its handle or request. A larger
//! one is boxed, and the box is stored there.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use poll_core::Backend;

use super::inline;
use crate::Loop;

/// The inline storage of a closure: three words.
type InlineStorage = inline::InlineStorage<[usize; 3]>;

/// Runs destructors of the program's values, such as captures of a callback, buffers and results
/// of work, and catches their panics.
///
/// The panic hook still reports a panic. The loop drops such values while it changes its own
/// state, and a worker drops them between two jobs: neither may unwind there. A destructor that
/// runs during a call of a callback is part of that call, and so is its panic.
pub(crate) fn contain(destructors: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(destructors)) {
        // Leaked, because its destructor may panic as well.
        std::mem::forget(payload);
    }
}

/// The argument of a callback besides the loop: a type for each lifetime, so that it can borrow.
pub(crate) trait Argument: 'static {
    type For<'a>;
}

/// An argument that borrows nothing.
pub(crate) struct Owned<T>(PhantomData<T>);

impl<T: 'static> Argument for Owned<T> {
    type For<'a> = T;
}

/// The operations on a stored closure whose type is erased.
struct VTable<B: Backend, A: Argument> {
    call: unsafe fn(*mut InlineStorage, &mut Loop<B>, A::For<'_>),
    /// `None` if the closure needs no drop, as one that captures only keys.
    drop: Option<unsafe fn(*mut InlineStorage)>,
}

/// The destructor of a stored `F`, if it needs one.
const fn drop_of<F>() -> Option<unsafe fn(*mut InlineStorage)> {
    if InlineStorage::needs_drop::<F>() { Some(InlineStorage::drop_value::<F>) } else { None }
}

/// Calls the stored closure and leaves it in place.
///
/// # Safety
///
/// `storage` holds an `F`, which nothing else uses during the call.
unsafe fn call_by_ref<B: Backend, A: Argument, F: FnMut(&mut Loop<B>, A::For<'_>)>(
    storage: *mut InlineStorage,
    lp: &mut Loop<B>,
    argument: A::For<'_>,
) {
    // SAFETY: the caller guarantees that an `F` is stored.
    let closure = unsafe { InlineStorage::locate::<F>(storage) };
    // SAFETY: the caller guarantees that nothing else uses the closure during the call.
    let closure = unsafe { &mut *closure };
    closure(lp, argument);
}

/// Moves the stored closure out and calls it.
///
/// # Safety
///
/// `storage` holds an `F`, which is neither used nor dropped afterwards.
unsafe fn call_by_value<B: Backend, A: 'static, F: FnOnce(&mut Loop<B>, A)>(
    storage: *mut InlineStorage,
    lp: &mut Loop<B>,
    argument: A,
) {
    // SAFETY: the caller guarantees that an `F` is stored and not used afterwards.
    let closure = unsafe { InlineStorage::take::<F>(storage) };
    closure(lp, argument);
}

/// A callback that may run many times, as that of a timer, a watcher or a poll.
pub(crate) type InlineFnMut<B, T> = InlineFnMutRef<B, Owned<T>>;

/// A callback that may run many times and borrows its argument.
pub(crate) struct InlineFnMutRef<B: Backend, A: Argument> {
    storage: InlineStorage,
    vtable: &'static VTable<B, A>,
    /// The closure need not be `Send`, so neither is this.
    not_send: PhantomData<*mut ()>,
}

impl<B: Backend, A: Argument> InlineFnMutRef<B, A> {
    pub(crate) fn new<F: FnMut(&mut Loop<B>, A::For<'_>) + 'static>(closure: F) -> Self {
        InlineFnMutRef {
            storage: InlineStorage::new(closure),
            vtable: Self::vtable_of::<F>(),
            not_send: PhantomData,
        }
    }

    #[inline]
    const fn vtable_of<F: FnMut(&mut Loop<B>, A::For<'_>) + 'static>() -> &'static VTable<B, A> {
        const { &VTable { call: call_by_ref::<B, A, F>, drop: drop_of::<F>() } }
    }

    #[inline]
    pub(crate) fn call(&mut self, lp: &mut Loop<B>, argument: A::For<'_>) {
        // SAFETY: `storage` holds the closure that `vtable` was made for, by construction, and
        // `self` is borrowed mutably for the whole call.
        unsafe { (self.vtable.call)(&mut self.storage, lp, argument) }
    }
}

impl<B: Backend, A: Argument> Drop for InlineFnMutRef<B, A> {
    fn drop(&mut self) {
        if let Some(drop) = self.vtable.drop {
            // SAFETY: `storage` still holds its closure: only this destructor drops it.
            contain(|| unsafe { drop(&mut self.storage) });
        }
    }
}

/// A callback that captures nothing and needs no drop, and so is `Copy`.
pub(crate) struct StatelessFn<B: Backend, T: 'static> {
    vtable: &'static VTable<B, Owned<T>>,
    /// The closure need not be `Send`, so neither is this.
    not_send: PhantomData<*mut ()>,
}

impl<B: Backend, T: 'static> StatelessFn<B, T> {
    /// Erases the type of `closure`; returns the closure if it captures something.
    #[inline]
    pub(crate) fn new<F: FnMut(&mut Loop<B>, T) + 'static>(closure: F) -> Result<Self, F> {
        if size_of::<F>() > 0 || InlineStorage::needs_drop::<F>() {
            return Err(closure);
        }
        Ok(StatelessFn { vtable: InlineFnMut::vtable_of::<F>(), not_send: PhantomData })
    }

    #[inline]
    pub(crate) fn call(self, lp: &mut Loop<B>, argument: T) {
        // SAFETY: the closure has size 0 and an alignment that fits, so any storage holds it; this
        // storage is local.
        unsafe { (self.vtable.call)(&mut InlineStorage::empty(), lp, argument) }
    }
}

impl<B: Backend, T: 'static> Clone for StatelessFn<B, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend, T: 'static> Copy for StatelessFn<B, T> {}

/// True only for callbacks with the same closure. Two equal closures may differ.
impl<B: Backend, T: 'static> PartialEq for StatelessFn<B, T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.vtable, other.vtable)
    }
}

impl<B: Backend, T: 'static> From<StatelessFn<B, T>> for InlineFnMut<B, T> {
    /// Uninitialized storage holds the closure, as its size is 0.
    #[inline]
    fn from(stateless: StatelessFn<B, T>) -> Self {
        InlineFnMutRef {
            storage: InlineStorage::empty(),
            vtable: stateless.vtable,
            not_send: PhantomData,
        }
    }
}

/// A callback that runs once, as that of a request or a close.
pub(crate) struct InlineFnOnce<B: Backend, A: 'static> {
    storage: InlineStorage,
    vtable: &'static VTable<B, Owned<A>>,
    /// The closure need not be `Send`, so neither is this.
    not_send: PhantomData<*mut ()>,
}

impl<B: Backend, A: 'static> InlineFnOnce<B, A> {
    pub(crate) fn new<F: FnOnce(&mut Loop<B>, A) + 'static>(closure: F) -> Self {
        InlineFnOnce {
            storage: InlineStorage::new(closure),
            vtable: const { &VTable { call: call_by_value::<B, A, F>, drop: drop_of::<F>() } },
            not_send: PhantomData,
        }
    }

    pub(crate) fn call(self, lp: &mut Loop<B>, argument: A) {
        let mut this = ManuallyDrop::new(self);
        let call = this.vtable.call;
        // SAFETY: `storage` holds the closure that `vtable` was made for, by construction; `this`
        // is neither used again nor dropped.
        unsafe { call(&mut this.storage, lp, argument) }
    }
}

impl<B: Backend, A: 'static> Drop for InlineFnOnce<B, A> {
    fn drop(&mut self) {
        if let Some(drop) = self.vtable.drop {
            // SAFETY: `storage` still holds its closure: `call` never drops `self`.
            contain(|| unsafe { drop(&mut self.storage) });
        }
    }
}

impl<B: Backend, A: Argument> fmt::Debug for InlineFnMutRef<B, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InlineFnMutRef")
    }
}

impl<B: Backend, T: 'static> fmt::Debug for StatelessFn<B, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StatelessFn")
    }
}

impl<B: Backend, A: 'static> fmt::Debug for InlineFnOnce<B, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InlineFnOnce")
    }
}
