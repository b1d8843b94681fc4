//! Inline storage: memory inside a handle, a request or a job for one value of an erased type.
//!
//! Callbacks ([`inline_fn`](super::inline_fn)), buffers with their callbacks and jobs of the pool
//! store their values here, beside a table of functions that are instantiated for the type. A
//! value that does not fit is boxed, and the box is stored.

#![allow(unsafe_code)]

use std::mem::{MaybeUninit, needs_drop};

/// Memory for a value that is no larger and no more aligned than an `S`, or for a box.
///
/// It does not drop its value: the owner does, which knows the type. The functions take pointers,
/// because the owner may share the memory with another thread or the kernel between two calls.
pub(crate) struct InlineStorage<S>(MaybeUninit<S>);

impl<S> InlineStorage<S> {
    #[inline]
    pub(crate) const fn empty() -> Self {
        InlineStorage(MaybeUninit::uninit())
    }

    #[inline]
    pub(crate) fn new<V>(value: V) -> Self {
        let mut storage = Self::empty();
        // SAFETY: `storage` is local.
        unsafe { Self::put(&mut storage, value) };
        storage
    }

    /// True if a `V` is stored in place; otherwise its box is.
    pub(crate) const fn fits<V>() -> bool {
        size_of::<V>() <= size_of::<S>() && align_of::<V>() <= align_of::<S>()
    }

    /// True if a stored `V` has a destructor or is boxed.
    pub(crate) const fn needs_drop<V>() -> bool {
        needs_drop::<V>() || !Self::fits::<V>()
    }

    /// Moves a value into empty storage.
    ///
    /// # Safety
    ///
    /// `storage` is valid for writes, and nothing else uses it during the call.
    #[inline]
    pub(crate) unsafe fn put<V>(storage: *mut Self, value: V) {
        const { assert!(Self::fits::<Box<V>>()) };
        if Self::fits::<V>() {
            // SAFETY: a `V` fits, and the caller guarantees exclusive access.
            unsafe { storage.cast::<V>().write(value) }
        } else {
            // SAFETY: a box fits, and the caller guarantees exclusive access.
            unsafe { storage.cast::<Box<V>>().write(Box::new(value)) }
        }
    }

    /// Moves the value out of the storage.
    ///
    /// # Safety
    ///
    /// `storage` holds a `V` that [`put`](Self::put) has stored, and nothing else uses it.
    #[inline]
    pub(crate) unsafe fn take<V>(storage: *mut Self) -> V {
        if Self::fits::<V>() {
            // SAFETY: `put` has stored a `V` in place, by the caller's guarantee.
            unsafe { storage.cast::<V>().read() }
        } else {
            // SAFETY: `put` has stored a box of a `V`, by the caller's guarantee.
            *unsafe { storage.cast::<Box<V>>().read() }
        }
    }

    /// The address of the stored value.
    ///
    /// # Safety
    ///
    /// `storage` holds a `V` that [`put`](Self::put) has stored.
    #[inline]
    pub(crate) unsafe fn locate<V>(storage: *mut Self) -> *mut V {
        if Self::fits::<V>() {
            return storage.cast();
        }
        // SAFETY: `put` has stored a box of a `V`, which is a pointer to it.
        unsafe { storage.cast::<*mut V>().read() }
    }

    /// Drops the stored value.
    ///
    /// # Safety
    ///
    /// `storage` holds a `V` that [`put`](Self::put) has stored. Nothing else uses it, now or later.
    pub(crate) unsafe fn drop_value<V>(storage: *mut Self) {
        if Self::fits::<V>() {
            // SAFETY: `put` has stored a `V` in place, by the caller's guarantee.
            unsafe { storage.cast::<V>().drop_in_place() }
        } else {
            // SAFETY: `put` has stored a box of a `V`, by the caller's guarantee.
            unsafe { storage.cast::<Box<V>>().drop_in_place() }
        }
    }
}
