//! Pipes, local sockets and terminals.

use std::io;
use std::path::Path;

use uv_core::poll_core::Backend;
use uv_core::{DefaultBackend, Listener as _, Pipe};

use super::listener::IoListener;
use super::stream::IoStream;
use crate::Rt;

/// A local socket, a named pipe or an end of a pipe: its methods are those of [`IoStream`].
pub type PipeStream<B = DefaultBackend> = IoStream<Pipe, B>;

/// A listener at a local name: its methods are those of [`IoListener`].
pub type PipeListener<B = DefaultBackend> = IoListener<Pipe, B>;

/// A Unix domain socket: another name of [`PipeStream`].
#[cfg(unix)]
pub type UnixStream<B = DefaultBackend> = PipeStream<B>;

/// A listener of a Unix domain socket: another name of [`PipeListener`].
#[cfg(unix)]
pub type UnixListener<B = DefaultBackend> = PipeListener<B>;

/// A terminal: its methods are those of [`IoStream`]. Make one by
/// [`IoStream::from_key`](IoStream::from_key) of a [`uv_core::Tty`].
///
/// ```no_run
/// use uv_async::{LoopExt, Tty};
/// use uv_core::{Loop, TtyMode};
///
/// let mut lp = Loop::with_default_backend()?;
/// lp.block_on(async |rt| {
///     let key = rt.with(|lp| uv_core::Tty::new(lp, &std::io::stdin()))?;
///     let terminal = Tty::from_key(&rt, key);
///     rt.with(|lp| key.set_mode(lp, TtyMode::Raw))?;
///     let pressed = terminal.lend().await?;
///     println!("{pressed:?}");
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
pub type Tty<B = DefaultBackend> = IoStream<uv_core::Tty, B>;

/// The length of the queue of connections that were not accepted.
const BACKLOG: u32 = 1024;

impl<B: Backend> IoListener<Pipe, B> {
    /// Listens at a path, or at a pipe name on Windows. [`connect`](PipeStream::connect) has an
    /// example.
    ///
    /// # Errors
    ///
    /// The kernel's: `AddrInUse`, for example.
    ///
    /// # Panics
    ///
    /// Outside of tasks, as [`Rt::with`].
    pub fn bind(rt: &Rt<B>, name: impl AsRef<Path>) -> io::Result<PipeListener<B>> {
        let listener = IoListener::from_key(rt, rt.with(Pipe::new));
        let key = listener.key();
        rt.with(|lp| {
            key.bind(lp, name)?;
            key.listen_without_callback(lp, BACKLOG)
        })?;
        Ok(listener)
    }
}

impl<B: Backend> IoStream<Pipe, B> {
    /// Two streams that are connected with each other.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn pair(rt: &Rt<B>) -> io::Result<(PipeStream<B>, PipeStream<B>)> {
        let (one, other) = rt.with(Pipe::pair)?;
        Ok((IoStream::from_key(rt, one), IoStream::from_key(rt, other)))
    }

    /// Connects to a path, or to a pipe name on Windows.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use uv_async::{LoopExt, UnixListener, UnixStream};
    /// use uv_core::Loop;
    ///
    /// # let path = std::env::temp_dir().join(format!("uv-async-doc-{}", std::process::id()));
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let listener = UnixListener::bind(&rt, &path)?;
    ///     let client = UnixStream::connect(&rt, &path).await?;
    ///     let server = listener.accept().await?;
    ///     client.write_all("hello").await.0?;
    ///     assert_eq!(&*server.lend().await?, b"hello");
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The kernel's: `NotFound`, for example.
    ///
    /// # Cancel safety
    ///
    /// Dropping it closes the socket.
    pub async fn connect(rt: &Rt<B>, name: impl AsRef<Path>) -> io::Result<PipeStream<B>> {
        let stream = IoStream::from_key(rt, rt.with(Pipe::new));
        let ((completer, op), key) = (rt.op(), stream.key());
        rt.with(|lp| {
            key.connect(lp, name, move |lp, _, result| drop(completer.complete(lp, result)))
        })?;
        op.await?;
        Ok(stream)
    }
}
