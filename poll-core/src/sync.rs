//! The atomics of the lock-free protocols: those of `std`, or in a build with `--cfg loom` those of
//! loom, which runs a model in every order that the memory model allows.

#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8};

#[cfg(loom)]
pub use modelled::{AtomicBool, AtomicPtr, AtomicU8, Waiter, model};

#[cfg(loom)]
mod modelled;
