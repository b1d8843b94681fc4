//! An event loop with libuv's model and semantics, over interchangeable pollers.
//!
//! A TCP echo server:
//!
//! ```no_run
//! use uv_core::{Loop, RunMode, Stream, Tcp};
//!
//! fn main() -> std::io::Result<()> {
//!     let mut lp = Loop::with_default_backend()?;
//!     lp.on_error(|_, handle, error| eprintln!("{handle}: {error}"));
//!     Tcp::listen_on(&mut lp, "127.0.0.1:7000", |lp, peer| {
//!         peer.on_read(lp, |lp, peer, bytes| {
//!             match bytes {
//!                 [] => peer.finish(lp), // The end of the stream.
//!                 bytes => peer.send(lp, bytes.to_vec()),
//!             }
//!             Ok(())
//!         })
//!     })?;
//!     lp.run(RunMode::Default)?;
//!     Ok(())
//! }
//! ```
//!
//! The [`guide`] leads from here to complete programs, one page at a time.
//!
//! # Handles and callbacks
//!
//! A handle ([`Timer`], [`Tcp`], …) is a small `Copy` key. Its state lives in the [`Loop`], so
//! every method takes the loop, and every callback receives it: no handle needs a reference
//! count or a cell. The methods common to all handles are in the trait [`Handle`], those of
//! [`Tcp`], [`Pipe`] and [`Tty`] in the trait [`Stream`], and those of the two that listen in
//! [`Listener`].
//!
//! [`Loop::run`] returns when no handle is active and no request is pending. A handle exists
//! until it is [closed](Handle::close); the key of a closed handle is an error (`NotFound`)
//! wherever it is used.
//!
//! ```
//! use std::time::Duration;
//! use uv_core::{Channel, Handle, Loop, RunMode, Timer};
//!
//! let mut lp = Loop::with_default_backend()?;
//! let (timer, tick) = (Timer::new(&mut lp), Duration::from_millis(1));
//! timer.start(&mut lp, tick, tick, |_, _| println!("tick"))?;
//!
//! let (_, sender) = Channel::new(&mut lp, move |lp, channel, message: String| {
//!     println!("message of a thread: {message}");
//!     timer.close(lp).unwrap();
//!     channel.close(lp).unwrap();
//! });
//! std::thread::spawn(move || sender.send("stop".into()));
//!
//! lp.run(RunMode::Default)?; // Returns when both handles are closed.
//! # std::io::Result::Ok(())
//! ```
//!
//! # Contents
//!
//! | for | use |
//! |---|---|
//! | time | [`Timer`], [`Loop::now`] |
//! | phases of an iteration | [`Idle`], [`Prepare`], [`Check`], [`Loop::defer`] |
//! | wake-ups and messages from other threads | [`Async`], [`Channel`] |
//! | network | [`Tcp`] with the methods of [`Stream`] and [`Listener`], [`Udp`] |
//! | the state of the program, errors | [`Loop::state`], [`Loop::on_error`] |
//! | local sockets, named pipes, handle passing | [`Pipe`] with the methods of [`Stream`] and [`Listener`] |
//! | terminals | [`Tty`] with the methods of [`Stream`], [`guess_handle`] |
//! | readiness of other libraries' descriptors | [`Poll`] |
//! | file change notification | [`FsEvent`], [`FsPoll`] |
//! | signals | [`Signal`], [`signum`] |
//! | name resolution | [`Loop::getaddrinfo`], [`Loop::getnameinfo`], [`dns`] |
//! | random bytes | [`Loop::random`], [`random`] |
//! | files | [`fs`] |
//! | child processes | [`Process`], [`Command`], [`Stdio`] |
//! | blocking work | [`Loop::queue_work`], [`Pool`] |
//! | system information | [`system`] |
//! | metrics and debugging | [`Metrics`], [`Loop::walk`], [`Loop::debug_handles`], [`Loop::debug_alive`] |
//!
//! The module [`libuv`] maps every function of libuv to its counterpart here. The module
//! [`behaviour`] specifies the loop in numbered points; the crate `poll-conformance` checks each of
//! them on every backend.
//!
//! # Errors
//!
//! Errors are [`std::io::Error`]. Those of the system have its number. A mistake of the caller gives
//! the same error on every handle:
//!
//! | mistake | kind | number (Windows) |
//! |---|---|---|
//! | stale or foreign key | `NotFound` | |
//! | the handle is closing | `InvalidInput` | |
//! | `run` called by a callback | `Other` | |
//! | started, read, received or connecting already | | `EALREADY` (`WSAEALREADY`) |
//! | opened twice | `ResourceBusy` | `EBUSY` (`ERROR_BUSY`) |
//! | the handle has no socket or descriptor | | `EBADF` (`WSAEBADF`) |
//! | the stream or socket has no peer | `NotConnected` | `ENOTCONN` (`WSAENOTCONN`) |
//! | connected already | | `EISCONN` (`WSAEISCONN`) |
//! | accept on a stream that does not listen | `InvalidInput` | |
//! | an empty buffer to read into | `InvalidInput` | |
//! | an allocation callback that gives no memory | | `ENOBUFS` (`WSAENOBUFS`) |
//! | cancelled, or the handle was closed | | `ECANCELED` (`WSAECANCELLED`), see [`is_cancelled`] |
//!
//! [`error_name`] and [`error_number`] give libuv's view of any error.
//!
//! # Backends
//!
//! The loop is generic over its [backend](backends): select one by Cargo feature, name one, let
//! [`Auto`](backends::Auto) choose, or implement [`poll_core::Backend`]. Where the backend
//! performs operations (io_uring, I/O completion ports), sockets use these; elsewhere they use
//! readiness, and files use the thread [pool](Pool). The behaviour is the same.
//!
//! # Threads
//!
//! A loop and its callbacks stay on one thread: [`Loop`] is not `Send`. Make it in the thread that
//! runs it. [`AsyncSender`],
//! [`Sender`], [`Pool`] and [`Metrics`] are `Send` and `Sync`.
#![deny(unsafe_code)]

pub mod backends;
pub mod behaviour;
pub mod dns;
mod error;
mod event_loop;
pub mod fs;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
pub mod guide;
mod handles;
pub mod libuv;
#[cfg(unix)]
mod loop_group;
mod metrics;
mod pool;
pub mod random;
mod requests;
pub mod signum;
mod storage;
mod streams;
mod sync;
mod sys;
pub mod system;

pub use backends::DefaultBackend;
pub use error::{error_name, error_number, is_cancelled};
pub use event_loop::{CloseError, Loop, RunMode};
pub use handles::{
    Addresses, AnyHandle, Async, AsyncSender, Channel, Check, Command, Datagram, DebugHandles,
    Destination, Disconnect, Ecn, Exit, FsEvent, FsEventFlags, FsEventKind, FsPoll, Handle,
    HandleKind, Idle, Keepalive, PendingKind, Pipe, PipeAccess, PipeEnd, PipeFlags, Poll,
    PollEvents, Prepare, Process, Received, RecvRequest, SendError, Sender, Signal, Stdio, Tcp,
    TcpBindFlags, Timer, Tty, TtyMode, Udp, UdpBindFlags, UdpError, UdpReady, WindowSize,
    disable_stdio_inheritance, guess_handle, kill, pipe_pair, socket_pair,
};
#[cfg(unix)]
pub use loop_group::{Distribution, LoopGroup};
pub use metrics::Metrics;
/// The crate of the `Backend` trait, for programs with a backend of their own.
pub use poll_core;
pub use pool::{Pool, WorkKind};
pub use requests::{WorkError, WorkRequest};
pub use storage::{IntoIoBuf, IoBuf, IoBufMut};
pub use streams::{AcceptRequest, AnyStream, Listener, ReadRequest, Stream, WriteRequest};
#[cfg(windows)]
pub use sys::Passed;

/// The traits whose methods handles have, and what most programs use beside them.
///
/// ```
/// use uv_core::prelude::*;
/// use uv_core::{Tcp, Timer};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (one, other) = Tcp::pair(&mut lp)?;
/// one.finish(&mut lp); // `Stream`
/// other.finish(&mut lp);
/// Timer::new(&mut lp).close(&mut lp)?; // `Handle`
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
///
/// The traits without their names, for modules with types of the same name:
///
/// ```
/// use uv_core::{Handle as _, Listener as _, Stream as _};
/// ```
pub mod prelude {
    pub use crate::{Handle, Listener, Loop, RunMode, Stream};
}

/// Compile-time checks of which types may cross threads.
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<AsyncSender>();
    is_send_and_sync::<Sender<Vec<u8>>>();
    is_send_and_sync::<Pool>();
    is_send_and_sync::<Metrics>();
    // Keys and results are plain data.
    is_send_and_sync::<AnyHandle>();
    is_send_and_sync::<WriteRequest>();
    is_send_and_sync::<WorkRequest>();
    is_send_and_sync::<Exit>();
    is_send_and_sync::<fs::Stat>();
    is_send_and_sync::<fs::Dirent>();
    is_send_and_sync::<dns::AddrInfo>();
    is_send_and_sync::<dns::LookupError>();
    is_send_and_sync::<system::ResourceUsage>();
    const fn is_send<T: Send>() {}
    is_send::<WorkError>(); // It may hold the value of a panic, which need not be `Sync`.
};

/// A loop must stay on its thread. If `Loop` were `Send`, `_` would be ambiguous below.
const _: fn() = || {
    trait NotSend<A> {
        fn check() {}
    }
    impl<T: ?Sized> NotSend<()> for T {}
    struct IsSend;
    impl<T: ?Sized + Send> NotSend<IsSend> for T {}
    <Loop<DefaultBackend> as NotSend<_>>::check();
};

/// The README, whose program is compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
