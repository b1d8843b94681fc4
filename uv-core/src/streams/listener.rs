//! The public API of streams that listen.

use std::io;

use poll_core::Backend;

use super::input::accept;
use super::{AcceptRequest, Stream, StreamKey};
use crate::Loop;

/// Seals [`Listener`]: only this crate implements it.
pub trait PrepareListen: StreamKey {
    /// Prepares the socket before it listens.
    #[doc(hidden)]
    fn prepare_listen<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()>;
}

/// The operations of streams that listen for connections: [`Tcp`](crate::Tcp) and
/// [`Pipe`](crate::Pipe).
///
/// Connections are reported to the callback of [`listen`](Listener::listen), or accepted one at a
/// time by [`accept_with`](Listener::accept_with).
///
/// ```
/// use uv_core::{Handle, Listener, Loop, RunMode, Tcp, TcpBindFlags};
///
/// let mut lp = Loop::with_default_backend()?;
/// let server = Tcp::new(&mut lp);
/// server.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), TcpBindFlags::empty())?;
/// server.listen(&mut lp, 128, |lp, server, result| {
///     result.unwrap();
///     server.accept(lp).unwrap().close(lp).unwrap();
///     server.close(lp).unwrap();
/// })?;
/// let _client = std::net::TcpStream::connect(server.local_addr(&lp)?)?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
///
/// A [`Tty`](crate::Tty) is a [`Stream`] that never listens:
///
/// ```compile_fail,E0599
/// use uv_core::{Listener, Loop, Tty};
///
/// let mut lp = Loop::with_default_backend()?;
/// let tty = Tty::new(&mut lp, &std::io::stdin())?;
/// tty.listen(&mut lp, 128, |_, _, _| {})?;
/// # std::io::Result::Ok(())
/// ```
#[doc(alias = "uv_stream_t")]
pub trait Listener: Stream + PrepareListen {
    /// Listens, and calls `callback` for each connection, which the callback takes with
    /// [`accept`](Listener::accept).
    ///
    /// Until a connection is taken, no further connection is accepted: up to `backlog` of them are
    /// queued in the kernel. Listening again changes the backlog and the callback.
    ///
    /// Errors of single connections are ignored. If the process runs out of descriptors, the
    /// waiting connections are closed: their peers are notified, and the loop does not spin. Any
    /// other error is reported and ends accepting.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the stream is closing, a deferred error of
    /// `bind`, and the errors of the system call.
    #[doc(alias = "uv_listen")]
    fn listen<B: Backend>(
        self,
        lp: &mut Loop<B>,
        backlog: u32,
        callback: impl FnMut(&mut Loop<B>, Self, io::Result<()>) + 'static,
    ) -> io::Result<()> {
        accept::listen(self, lp, backlog, Some(callback))
    }

    /// Listens, and leaves the connections in the kernel's queue until they are accepted by
    /// [`accept`](Listener::accept) or [`accept_with`](Listener::accept_with).
    ///
    /// # Errors
    ///
    /// As [`listen`](Listener::listen).
    #[doc(alias = "uv_listen")]
    fn listen_without_callback<B: Backend>(self, lp: &mut Loop<B>, backlog: u32) -> io::Result<()> {
        accept::listen(self, lp, backlog, None::<accept::NoCallback<B, Self>>)
    }

    /// Accepts the waiting connection as a new handle.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if no connection waits, `NotFound` for a stale key, `InvalidInput` if the
    /// stream is closing or does not listen.
    #[doc(alias = "uv_accept")]
    #[cfg_attr(feature = "origins", track_caller)]
    fn accept<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<Self> {
        accept::accept(self, lp)
    }

    /// Accepts the waiting connection into `client`, a handle that has no socket yet. Options that
    /// were set on `client` apply to the connection.
    ///
    /// ```
    /// use uv_core::{Handle, Listener, Loop, RunMode, Stream, Tcp, TcpBindFlags};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let server = Tcp::new(&mut lp);
    /// server.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), TcpBindFlags::empty())?;
    /// let client = Tcp::new(&mut lp);
    /// client.set_nodelay(&mut lp, true)?;
    /// server.listen(&mut lp, 1, move |lp, server, result| {
    ///     result.unwrap();
    ///     server.accept_into(lp, client).unwrap();
    ///     assert!(client.is_readable(lp));
    ///     client.close(lp).unwrap();
    ///     server.close(lp).unwrap();
    /// })?;
    /// let _peer = std::net::TcpStream::connect(server.local_addr(&lp)?)?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`accept`](Listener::accept), of either handle; `EBUSY` if `client` has a socket or is
    /// connecting; and the kernel's errors of the options of `client`, which close the connection.
    #[doc(alias = "uv_accept")]
    fn accept_into<B: Backend>(self, lp: &mut Loop<B>, client: Self) -> io::Result<()> {
        accept::accept_into(self, lp, client)
    }

    /// Accepts the next connection as a new handle and calls `callback` with it, once. Requests are
    /// served in order, and before the callback of [`listen`](Listener::listen).
    ///
    /// ```
    /// use uv_core::{Handle, Listener, Loop, RunMode, Tcp, TcpBindFlags};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let server = Tcp::new(&mut lp);
    /// server.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), TcpBindFlags::empty())?;
    /// server.listen_without_callback(&mut lp, 1)?;
    /// server.accept_with(&mut lp, |lp, server, client| {
    ///     client.unwrap().close(lp).unwrap();
    ///     server.close(lp).unwrap();
    /// })?;
    /// let client = std::net::TcpStream::connect(server.local_addr(&lp)?)?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the stream is closing or does not listen.
    #[doc(alias = "uv_accept")]
    fn accept_with<B: Backend>(
        self,
        lp: &mut Loop<B>,
        callback: impl FnOnce(&mut Loop<B>, Self, io::Result<Self>) + 'static,
    ) -> io::Result<AcceptRequest> {
        accept::accept_with(self, lp, callback)
    }
}
