//! A loop belongs to one thread.
//!
//! None of its parts is `Send`, which is enough to forbid a move; but the compiler would print an
//! error for each of them. The implementations below never apply. They replace those errors by one,
//! which gives the advice.

#![allow(unsafe_code)]

use poll_core::Backend;

use super::Loop;

/// Implemented for nothing, and cannot be named outside of this crate.
#[diagnostic::on_unimplemented(
    message = "a `Loop` stays in its thread: make it in the thread that runs it",
    label = "here a loop goes to another thread",
    note = "call `Loop::new` inside of the closure that the thread runs; `Channel` and `Async` reach \
            a loop from other threads, and `LoopGroup` makes a loop per core"
)]
pub trait StaysInItsThread {}

// SAFETY: no type implements the trait of the bound, so this is no implementation.
unsafe impl<B: Backend> Send for Loop<B> where Loop<B>: StaysInItsThread {}

// SAFETY: as above.
unsafe impl<B: Backend> Sync for Loop<B> where Loop<B>: StaysInItsThread {}
