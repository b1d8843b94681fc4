//! The trait between an event loop and the kernel facility that reports its events.
//!
//! A loop registers sources with a [`Backend`] and waits; the backend reports the
//! [`Readiness`] of each. The same five calls work over `select`, `poll`, `epoll`,
//! `kqueue`, I/O completion ports and `io_uring`, each a crate of its own, and
//! over a backend of your own:
//!
//! ```
//! use std::{io, time::Duration};
//! use poll_core::{Backend, Event, Mode, RawSource, Interest, Readiness, Token};
//!
//! /// Waits until `socket` has a datagram, on any backend.
//! fn readable<B: Backend>(mut backend: B, socket: &std::net::UdpSocket) -> io::Result<bool> {
//!     let token = Token::new(0, 0);
//!     // SAFETY: `socket` outlives the registration.
//!     unsafe { backend.register(token, RawSource::of(socket), Interest::READ, Mode::Level) }?;
//!     let mut events = Vec::new();
//!     backend.wait(Some(Duration::from_secs(1)), &mut events)?;
//!     backend.deregister(token)?;
//!     Ok(events == [Event::Ready { token, ready: Readiness::READ }])
//! }
//! ```
//!
//! Apart from the clock, this crate has no operating-system code. It holds the trait, its vocabulary,
//! and the parts that backends would otherwise each write again: [`Registry`]
//! (sources by token), [`WakeState`] (does a wake need a system call?), [`SocketWaker`] (a waker made
//! of `std` sockets) and [`Deadline`] (the time left of a wait).
//!
//! # Two models, one trait
//!
//! *Readiness* is required: [`register`](Backend::register),
//! [`modify`](Backend::modify), [`deregister`](Backend::deregister),
//! [`wait`](Backend::wait) and [`waker`](Backend::waker). *Completion* is
//! additive: a backend that can perform an [`Op`] itself returns true from
//! [`supports`](Backend::supports) and accepts it in [`submit`](Backend::submit).
//! A loop uses operations where they are supported and readiness elsewhere. No backend
//! emulates operations: "try, and wait if it would block" is one function above the trait.
//!
//! # The contract
//!
//! The module [`contract`] lists what a backend guarantees, in numbered points, and how failures
//! are reported. The crate `poll-conformance` checks each point against every backend. The part
//! that memory safety depends on is repeated in [`Backend`'s safety section](Backend#safety):
//! implementing the trait is `unsafe`.
//!
//! # A complete backend
//!
//! This backend passes the whole suite. Most of the contract is about `wait`: it blocks only if
//! no wake is pending, never returns early without an event, and disarms a one-shot
//! registration that has fired.
//!
#![cfg_attr(unix, doc = "```")]
#![cfg_attr(not(unix), doc = "```ignore")]
#![doc = include_str!("../docs/minimal.rs")]
//!
//! # let mut backend = Minimal::new()?;
//! # let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! # socket.send_to(b"hello", socket.local_addr()?)?;
//! # let token = Token::new(0, 0);
//! # // SAFETY: `socket` outlives the registration.
//! # unsafe { backend.register(token, RawSource::of(&socket), Interest::READ, Mode::Level) }?;
//! # let mut events = Vec::new();
//! # backend.wait(None, &mut events)?;
//! # assert_eq!(events, [Event::Ready { token, ready: Readiness::READ }]);
//! # std::io::Result::Ok(())
//! ```
//!
//! One line in a test of your crate runs the suite on your backend:
//!
//! ```text
//! conformance::suite!(backend, Minimal::new);
//! ```

mod backend;
mod backoff;
mod boxed;
mod clock;
pub mod contract;
mod deadline;
mod delegate;
mod event;
mod mask_ops;
mod op;
mod open;
mod readiness;
mod registry;
mod socket_waker;
mod source;
#[cfg(not(loom))]
mod sync;
#[cfg(loom)]
#[doc(hidden)]
pub mod sync;
mod table;
mod token;
mod wake;

pub use backend::Backend;
pub use backoff::Backoff;
pub use boxed::{BoxedBackend, BoxedWaker};
pub use deadline::Deadline;
pub use event::{BufferLease, Event};
pub use mask_ops::MaskOps;
pub use op::{At, Op, OpKind, RawAddr, RawBuf, RawBufs, RawMessage, RawPath, Shutdown};
pub use open::Open;
pub use readiness::{Interest, Mode, Readiness};
pub use registry::Registry;
pub use socket_waker::SocketWaker;
pub use source::RawSource;
pub use table::Table;
pub use token::Token;
pub use wake::{Wake, WakeState};

/// Backends move between threads and share their wakers with them, so their parts must be
/// `Send` and `Sync`.
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<Backoff>();
    is_send_and_sync::<SocketWaker>();
    is_send_and_sync::<Deadline>();
    is_send_and_sync::<WakeState>();
    is_send_and_sync::<Event>();
    is_send_and_sync::<Interest>();
    is_send_and_sync::<BufferLease>();
    is_send_and_sync::<Mode>();
    is_send_and_sync::<OpKind>();
    is_send_and_sync::<RawSource>();
    is_send_and_sync::<Readiness>();
    is_send_and_sync::<Registry<()>>();
    is_send_and_sync::<Table<()>>();
    is_send_and_sync::<Token>();
};
