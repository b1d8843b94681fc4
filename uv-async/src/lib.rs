//! `async`/`await` on [uv-core](uv_core)'s event loop, over any backend, beside callbacks.
//!
//! An echo server:
//!
//! ```no_run
//! use uv_async::{LoopExt, TcpListener};
//! use uv_core::Loop;
//!
//! fn main() -> std::io::Result<()> {
//!     let mut lp = Loop::with_default_backend()?;
//!     lp.block_on(async |rt| {
//!         let listener = TcpListener::bind_to(&rt, "127.0.0.1:7000")?;
//!         loop {
//!             let client = listener.accept().await?;
//!             rt.spawn_local(async move {
//!                 loop {
//!                     let bytes = client.lend().await?;
//!                     if bytes.is_empty() {
//!                         return client.shutdown().await;
//!                     }
//!                     client.write_slice(&bytes).await?;
//!                 }
//!             });
//!         }
//!     })?
//! }
//! ```
//!
//! The [`guide`] explains which way to read, what dropping a future means, how tasks and
//! callbacks mix, and what to write instead of tokio's functions.
//!
//! # Contents
//!
//! | for | use |
//! |---|---|
//! | running futures | [`LoopExt::block_on`], [`Rt::attach`], [`Rt::spawn_local`], [`Spawner`] |
//! | the loop's own methods | [`Rt::with`] |
//! | time | [`Rt::sleep`], [`Rt::interval`], [`Rt::timeout`], [`yield_now`] |
//! | network | [`TcpListener`], [`TcpStream`] with the methods of [`IoListener`], [`IoStream`]; [`UdpSocket`] |
//! | local sockets, pipes, terminals | [`PipeListener`], [`PipeStream`], [`Tty`] |
//! | files | values of [`uv_core::fs`]: `.await` as they are, by the process's pool; [`OperationExt::on`] or [`Rt::fs`] by the loop and its backend |
//! | work, names, random bytes | [`Rt::queue_work`], [`Rt::getaddrinfo`], [`Rt::random`] |
//! | children, signals, file changes | [`Child`], [`Signal`], [`FsEvents`] |
//! | messages of other threads | [`channel`] |
//! | descriptors of other libraries | [`AsyncPoll`] |
//! | a loop inside another runtime | [`drive`], `drive_in_tokio`, `drive_in_smol` |
//!
//! # Features
//!
//! | feature | implements |
//! |---|---|
//! | `futures-io` | `AsyncRead`, `AsyncBufRead`, `AsyncWrite` of `futures-io` for streams |
//! | `tokio-io` | the same traits of tokio, without its runtime |
//! | `hyper` | `hyper::rt`: `Read`, `Write` for streams, `Executor` for [`Rt`], a `Timer` |
//! | `stream` | `futures_core::Stream` for connections, signals, file changes, messages, ticks |
//! | `bytes` | buffers of requests: `Bytes` to write, `BytesMut` to read and write |
//! | `drive-tokio`, `drive-smol` | `drive_in_tokio`, `drive_in_smol`: a loop inside these runtimes |
//!
//! # Cancellation
//!
//! Dropping a future cancels its request. What arrives nevertheless is not lost: bytes go back to
//! their stream in order, a connection to the next accept, a file that opens is closed, and a buffer
//! is freed when no operation uses it any more. The section "Cancel safety" of each item states
//! what a drop means.
#![deny(unsafe_code)]

mod drive;
mod events;
mod executor;
pub mod guide;
mod io;
mod op;
mod requests;
mod time;
#[cfg(any(feature = "futures-io", feature = "tokio-io", feature = "hyper", feature = "stream"))]
mod traits;

pub use drive::drive;
#[cfg(all(unix, feature = "drive-smol"))]
pub use drive::drive_in_smol;
#[cfg(all(unix, feature = "drive-tokio"))]
pub use drive::drive_in_tokio;
pub use events::{AsyncPoll, Child, FsChange, FsEvents, Receiver, Signal, channel};
pub use executor::{JoinError, JoinHandle, LoopExt, POLL_BUDGET, Rt, Spawned, Spawner};
pub use io::{
    BufResult, Incoming, IoListener, IoStream, Lent, OwnedDatagram, PipeListener, PipeStream,
    ReadHalf, TcpListener, TcpStream, Tty, UdpSocket, Unread, WriteHalf, copy_bidirectional,
};
#[cfg(unix)]
pub use io::{UnixListener, UnixStream};
pub use requests::{FsFuture, OperationExt};
pub use time::{Elapsed, Interval, Sleep, yield_now};
#[cfg(feature = "hyper")]
pub use traits::HyperTimer;
