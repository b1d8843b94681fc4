//! libuv's loop in Rust, over any poller.
//!
//! ```
//! use std::time::Duration;
//! use uv_core::{Channel, Handle, Loop, RunMode, Timer};
//!
//! fn main() -> std::io::Result<()> {
//!     let mut lp = Loop::with_default_backend()?;
//!
//!     // Tick until the channel below says that it is enough.
//!     let (timer, tick) = (Timer::new(&mut lp), Duration::from_millis(1));
//!     timer.start(&mut lp, tick, tick, |_, _| println!("tick"))?;
//!
//!     let (_, sender) = Channel::new(&mut lp, move |lp, channel, message: String| {
//!         println!("a thread says: {message}");
//!         timer.close(lp).unwrap();
//!         channel.handle().close(lp).unwrap();
//!     });
//!     std::thread::spawn(move || sender.send("enough".into()));
//!
//!     lp.run(RunMode::Default)?; // Returns when nothing is left to do.
//!     Ok(())
//! }
//! ```
//!
//! Handles ([`Timer`], [`Poll`], …) are small keys; their state lives in the [`Loop`], and
//! every verb takes it. Callbacks get it too, so no handle needs a reference count or a
//! cell. The loop is generic over its [backend](backends): pick one by Cargo feature, name
//! one, let [`Auto`](backends::Auto) choose, or bring your own.
//!
//! | for | there is |
//! |---|---|
//! | time | [`Timer`], [`Loop::now`] |
//! | a turn of the loop | [`Idle`], [`Prepare`], [`Check`], [`Loop::defer`] |
//! | other threads | [`Async`], [`Channel`] |
//! | the network | [`Tcp`] with the verbs of [`Stream`], [`Udp`] |
//! | other processes | [`Pipe`] with the verbs of [`Stream`] |
//! | terminals | [`Tty`] with the verbs of [`Stream`], [`guess_handle`] |
//! | descriptors of others | [`Poll`] |
//! | changes to files | [`FsEvent`], [`FsPoll`] |
//! | signals | [`Signal`] |
//! | names of hosts | [`Loop::getaddrinfo`], [`Loop::getnameinfo`], [`dns`] |
//! | secrets | [`Loop::random`], [`random`] |
//! | files | [`fs`] |
//! | children | [`Process`], [`Command`], [`Stdio`] |
//! | what would block | [`Loop::queue_work`], [`Pool`] |
//! | the machine | [`system`] |
//! | looking on | [`Metrics`], [`Loop::walk`], [`Loop::list_handles`] |
//!
//! The module [`libuv`] has a table of all of libuv's functions and what to call here.
//!
//! Sockets, of streams and of datagrams, use the operations of backends that perform them, and
//! readiness elsewhere; files use a thread [pool](Pool) there. What a program sees is the same.
//!
//! # Behaviour
//!
//! It is libuv's, without its defects. The points go on from those of
//! [poll-core's contract](poll_core#the-contract), and the cases named with each run in the
//! crate `conformance` on every backend.
//!
#![doc = include_str!("../docs/behaviour.md")]
#![deny(unsafe_code)]

mod arena;
mod auto;
pub mod backends;
mod buffers;
mod callback;
mod crowd;
pub mod dns;
mod error;
mod event_loop;
pub mod fs;
mod handles;
pub mod libuv;
mod mailbox;
mod metrics;
mod notify;
mod operations;
mod pool;
mod provided;
mod queue;
pub mod random;
mod requests;
pub mod signum;
mod sources;
mod streams;
mod sys;
pub mod system;
mod wheel;

pub use backends::DefaultBackend;
pub use buffers::{IoBuf, IoBufMut};
pub use error::is_cancelled;
pub use event_loop::{Busy, Loop, RunMode};
pub use handles::{
    AnyHandle, AsSource, Async, AsyncSender, BindFlags, Channel, Check, Closed, Command, Datagram,
    Ecn, Exit, FsEvent, FsEventFlags, FsNews, FsPoll, Guess, Handle, HandleList, Idle, Keepalive,
    PendingKind, Pipe, PipeAccess, PipeEnd, PipeFlags, Poll, PollEvents, Prepare, Process, Sender,
    Signal, Stdio, Tcp, Timer, Tty, TtyMode, Udp, UdpBind, UdpError, WindowSize,
    disable_stdio_inheritance, guess_handle, kill, pipe_pair, socket_pair,
};
pub use metrics::Metrics;
/// The trait that backends implement, for those who bring their own.
pub use poll_core;
pub use pool::{Lane, Pool};
pub use requests::{Work, WorkError};
pub use streams::{Read, Stream, Write};
#[cfg(windows)]
pub use sys::Passed;
