//! Inline storage: memory inside a handle, a request or a job for a value of an erased type.

use std::mem::MaybeUninit;

/// Memory for one value that is no larger and no more aligned than an `S`.
pub(crate) type InlineStorage<S> = MaybeUninit<S>;

/// True if a `V` can be stored in place of an `S`. If not, its box is stored.
pub(crate) const fn fits<V, S>() -> bool {
    size_of::<V>() <= size_of::<S>() && align_of::<V>() <= align_of::<S>()
}
