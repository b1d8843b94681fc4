//! The atomics of the lock-free protocols: those of `std`, or those of a model (`--cfg loom`).

#[cfg(loom)]
pub(crate) use poll_core::sync::{AtomicBool, AtomicPtr, AtomicU8};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8};
