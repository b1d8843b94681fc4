//! An example of a custom backend: it wraps any other and counts the calls.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use counting_backend::Counting;
//! use poll_core::Backend;
//! use poll_poll::Poll;
//!
//! let mut backend = Counting::new(Poll::new()?);
//! let calls = Arc::clone(backend.calls()); // Stays here if a loop takes the backend.
//!
//! backend.wait(Some(Duration::ZERO), &mut Vec::new())?;
//! assert_eq!(calls.wait.get(), 1);
//! assert_eq!(calls.register.get(), 0);
//! # std::io::Result::Ok(())
//! ```
//!
//! To write yours, start from here: to change what a backend does (record, delay,
//! inject failures), wrap it as [`Counting`] does; to reach another kernel facility,
//! see the complete backend in [`poll_core`]'s documentation. Either way
//!
//! - write `unsafe impl Backend`, and keep what the [trait's safety
//!   section](Backend#safety) lists;
//! - depend on `poll-core` alone, and on `poll-conformance` for your tests;
//! - run the whole suite with one line, as `tests/suite.rs` does.
//!
//! A wrapper forwards every method, the provided ones too. One that it leaves out
//! takes the trait's default, and the backend inside loses what it can do. This one adds
//! to every method; where only some differ, [`poll_core::delegate_backend!`] writes the rest.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use poll_core::{Backend, BufferLease, Event, Interest, Mode, Op, OpKind, RawSource, Token};

/// The README of the repository, whose program is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Forwards to `B` and counts calls; see the [crate documentation](crate).
#[derive(Debug)]
pub struct Counting<B> {
    backend: B,
    /// Shared, so that it can be read while a loop owns the backend.
    calls: Arc<Calls>,
}

/// The number of calls of each method of a [`Counting`], including failed ones.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "each is named after the method that it counts")]
pub struct Calls {
    pub waker: Count,
    pub register: Count,
    pub modify: Count,
    pub deregister: Count,
    pub wait: Count,
    pub supports: Count,
    pub submit: Count,
    pub cancel: Count,
    pub provide: Count,
    pub recycle: Count,
    pub withdraw: Count,
    pub now: Count,
    pub raw_source: Count,
    pub has_unflushed_changes: Count,
    pub after_fork: Count,
}

/// A counter that only increases.
#[derive(Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl<B> Counting<B> {
    /// Wraps `backend`.
    pub fn new(backend: B) -> Counting<B> {
        Counting { backend, calls: Arc::default() }
    }

    /// The counters, which keep counting.
    pub fn calls(&self) -> &Arc<Calls> {
        &self.calls
    }
}

// SAFETY: all calls and events are those of `backend`, which upholds the contract of `Backend`.
unsafe impl<B: Backend> Backend for Counting<B> {
    type Waker = B::Waker;

    fn waker(&self) -> B::Waker {
        self.calls.waker.add_one();
        self.backend.waker()
    }

    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        self.calls.register.add_one();
        // SAFETY: the caller upholds the contract of `register`, which is the inner backend's.
        unsafe { self.backend.register(token, source, interest, mode) }
    }

    fn modify(&mut self, token: Token, interest: Interest, mode: Mode) -> io::Result<()> {
        self.calls.modify.add_one();
        self.backend.modify(token, interest, mode)
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        self.calls.deregister.add_one();
        self.backend.deregister(token)
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.calls.wait.add_one();
        self.backend.wait(timeout, events)
    }

    fn supports(&self, kind: OpKind) -> bool {
        self.calls.supports.add_one();
        self.backend.supports(kind)
    }

    unsafe fn submit(&mut self, token: Token, op: Op) -> io::Result<()> {
        self.calls.submit.add_one();
        // SAFETY: the caller upholds the contract of `submit`, which is the inner backend's.
        unsafe { self.backend.submit(token, op) }
    }

    fn cancel(&mut self, token: Token) -> io::Result<()> {
        self.calls.cancel.add_one();
        self.backend.cancel(token)
    }

    unsafe fn register_buffers(
        &mut self,
        group: u16,
        memory: NonNull<u8>,
        size: u32,
        count: u16,
    ) -> io::Result<()> {
        self.calls.provide.add_one();
        // SAFETY: the caller upholds the contract of `register_buffers`, which is the inner
        // backend's.
        unsafe { self.backend.register_buffers(group, memory, size, count) }
    }

    fn release_buffer(&mut self, lease: BufferLease) {
        self.calls.recycle.add_one();
        self.backend.release_buffer(lease);
    }

    fn unregister_buffers(&mut self, group: u16) -> io::Result<()> {
        self.calls.withdraw.add_one();
        self.backend.unregister_buffers(group)
    }

    fn now(&self) -> Duration {
        self.calls.now.add_one();
        self.backend.now()
    }

    fn raw_source(&self) -> Option<RawSource> {
        self.calls.raw_source.add_one();
        self.backend.raw_source()
    }

    fn has_unflushed_changes(&self) -> bool {
        self.calls.has_unflushed_changes.add_one();
        self.backend.has_unflushed_changes()
    }

    fn after_fork(&mut self) -> io::Result<()> {
        self.calls.after_fork.add_one();
        self.backend.after_fork()
    }
}
