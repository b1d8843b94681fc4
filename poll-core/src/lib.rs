//! The contract between an event loop and the kernel facility that feeds it.
//!
//! A loop asks a [`Backend`] to watch sources and waits; the backend tells which
//! are [`Ready`]. The same five calls work over `select`, `poll`, `epoll`,
//! `kqueue`, I/O completion ports and `io_uring`, each a crate of its own, and
//! over whatever you write:
//!
//! ```
//! use std::{io, time::Duration};
//! use poll_core::{Backend, Event, Mode, RawSource, Ready, Token};
//!
//! /// Waits until `socket` has a datagram, on any backend.
//! fn readable<B: Backend>(mut backend: B, socket: &std::net::UdpSocket) -> io::Result<bool> {
//!     let token = Token::new(0, 0);
//!     // SAFETY: `socket` outlives the registration.
//!     unsafe { backend.register(token, RawSource::of(socket), Ready::READ, Mode::Level) }?;
//!     let mut events = Vec::new();
//!     backend.wait(Some(Duration::from_secs(1)), &mut events)?;
//!     backend.deregister(token)?;
//!     Ok(events == [Event::Ready { token, ready: Ready::READ }])
//! }
//! ```
//!
//! This crate has no operating-system code. It holds the trait, its vocabulary,
//! and the parts that backends would otherwise each write again: [`Registry`]
//! (who is registered), [`Doorbell`] (is a wake worth a system call?), [`Bell`] (a waker made
//! of `std` sockets) and [`Countdown`] (how much of a wait is left).
//!
//! # Two models, one trait
//!
//! *Readiness* is required: [`register`](Backend::register),
//! [`modify`](Backend::modify), [`deregister`](Backend::deregister),
//! [`wait`](Backend::wait) and [`waker`](Backend::waker). *Completion* is
//! additive: a backend that can perform an [`Op`] itself says so in
//! [`supports`](Backend::supports) and takes it in [`submit`](Backend::submit).
//! A loop uses operations where there are any and readiness elsewhere. No backend
//! emulates operations: "try, and wait if it would block" is one function, and it
//! lives above the trait.
//!
//! # The contract
//!
//! Each point is checked by the cases named with it, in the crate `conformance`,
//! against every backend.
//!
#![doc = include_str!("../docs/contract.md")]
//!
//! # How failures look
//!
//! What is reported to a source that asked for `READ` and `WRITE`:
//!
//! | what happened | everywhere | besides, where the kernel tells |
//! |---|---|---|
//! | the peer sent data | `READ` | |
//! | the peer shut down its writing side | `READ`: a read returns 0 | `DISCONNECT`, if asked for |
//! | the peer closed | `READ` | `DISCONNECT`, if asked for; `HANGUP` once both directions are closed |
//! | the peer reset the connection | `READ`, `WRITE` | `ERROR`, `HANGUP` |
//! | a connect succeeded | `WRITE` | |
//! | a connect failed | `WRITE`, `READ` | `ERROR`, `HANGUP` |
//! | the last writer of a pipe closed | `READ` | `HANGUP` |
//! | the last reader of a pipe closed | `WRITE` | `ERROR` |
//! | urgent data arrived | `PRIORITY`, if asked for | |
//! | the descriptor was closed | `ERROR` | |
//!
//! Each backend's documentation says which of its kernel's flags become which of
//! these. [`Ready::report`] is the last step of all those maps.
//!
//! # A complete backend
//!
//! This one passes the whole suite. Its `wait` is where the contract is kept:
//! it sleeps only if nobody has knocked, never returns early with nothing, and
//! silences what was spent.
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
//! # unsafe { backend.register(token, RawSource::of(&socket), Ready::READ, Mode::Level) }?;
//! # let mut events = Vec::new();
//! # backend.wait(None, &mut events)?;
//! # assert_eq!(events, [Event::Ready { token, ready: Ready::READ }]);
//! # std::io::Result::Ok(())
//! ```
//!
//! Run the suite on yours with one line in a test of your crate:
//!
//! ```text
//! conformance::suite!(minimal, || Minimal::new());
//! ```

mod backend;
mod bell;
mod countdown;
mod event;
mod limited;
mod op;
mod ready;
mod registry;
mod source;
mod table;
mod token;
mod wake;

pub use backend::Backend;
pub use bell::Bell;
pub use countdown::Countdown;
pub use event::{Event, Lent};
pub use limited::Limited;
pub use op::{At, Op, OpKind, RawAddr, RawBuf, RawBufs, RawMessage, RawPath, Shutdown};
pub use ready::{Mode, Ready};
pub use registry::Registry;
pub use source::RawSource;
pub use table::Table;
pub use token::Token;
pub use wake::{Doorbell, Wake};
