//! What every stream can do.

use std::io::{self, IoSlice};

use poll_core::{Backend, Token};

use super::{Flags, Read, Write, accept, read, shutdown, write};
use crate::buffers::{IoBuf, IoBufMut};
use crate::handles::Handle;
use crate::{Loop, error};

/// Only this crate has streams.
pub trait StreamKey: Sized {
    #[doc(hidden)]
    fn stream_key(self) -> Token;
    #[doc(hidden)]
    fn from_stream_key(key: Token) -> Self;
    /// What has to be done or said before the socket listens.
    #[doc(hidden)]
    fn prepare_listen<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()>;
}

/// What every stream can do: [`Tcp`](crate::Tcp), [`Pipe`](crate::Pipe) and [`Tty`](crate::Tty).
///
/// A stream listens for connections, or is one. Reading is either *pushed*, from
/// [`read_start`](Stream::read_start) on, or *pulled* by [`read`](Stream::read), one request
/// at a time. Writes are queued in order and own their buffers. None of these calls runs a
/// callback: what is known at once is told in the pending phase.
///
/// ```
/// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (one, other) = Tcp::pair(&mut lp)?;
///
/// one.write(&mut lp, "hello", |lp, one, result, _| {
///     result.unwrap();
///     one.shutdown(lp, |_, _, _| {}).unwrap();
/// })?;
/// one.read_start(&mut lp, |_, _, _| {})?;
/// other.read_start(&mut lp, move |lp, other, bytes| match bytes.unwrap() {
///     [] => {
///         // End of file.
///         other.close(lp).unwrap();
///         one.close(lp).unwrap();
///     }
///     bytes => println!("{} bytes", bytes.len()),
/// })?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
pub trait Stream: Handle + StreamKey {
    /// Listens, and calls `callback` for each connection, which is then to take it with
    /// [`accept`](Stream::accept).
    ///
    /// While a connection waits to be taken no other is accepted: those wait in the kernel, up
    /// to `backlog` of them. Listening again changes the backlog and the callback.
    ///
    /// Errors of single connections are swallowed. If the process runs out of descriptors, the
    /// connections that wait are closed, so that their peers know and the loop does not spin.
    /// Any other error is told, and ends the accepting.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the stream is closing, an error of
    /// `bind` that was kept back, and the kernel's own.
    fn listen<B: Backend>(
        self,
        lp: &mut Loop<B>,
        backlog: u32,
        callback: impl FnMut(&mut Loop<B>, Self, io::Result<()>) + 'static,
    ) -> io::Result<()> {
        accept::listen(self, lp, backlog, Some(callback))
    }

    /// Listens, and leaves the connections in the kernel until they are asked for with
    /// [`accept`](Stream::accept) or [`accept_with`](Stream::accept_with).
    ///
    /// # Errors
    ///
    /// As [`listen`](Stream::listen).
    fn listen_quietly<B: Backend>(self, lp: &mut Loop<B>, backlog: u32) -> io::Result<()> {
        accept::listen(self, lp, backlog, None::<accept::Nobody<B, Self>>)
    }

    /// Takes the connection that waits, as a new handle.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none, `NotFound` for a stale key, `InvalidInput` if the stream
    /// is closing or does not listen.
    fn accept<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<Self> {
        accept::accept(self, lp)
    }

    /// Calls `callback` once, with the next connection as a new handle. Requests are served in
    /// order, and before the callback of [`listen`](Stream::listen).
    ///
    /// ```
    /// use uv_core::{BindFlags, Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let server = Tcp::new(&mut lp);
    /// server.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), BindFlags::empty())?;
    /// server.listen_quietly(&mut lp, 1)?;
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
    fn accept_with<B: Backend>(
        self,
        lp: &mut Loop<B>,
        callback: impl FnOnce(&mut Loop<B>, Self, io::Result<Self>) + 'static,
    ) -> io::Result<()> {
        accept::accept_with(self, lp, callback)
    }

    /// Calls `callback` with whatever arrives, lent for the call.
    ///
    /// Empty bytes are the end of file: reading has stopped, and may be started again to be
    /// told so again. An error ends reading as well, and the stream is neither readable nor
    /// writable any more.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the stream is closing, `AlreadyExists` if
    /// it is being read, `NotConnected` if it is no connection.
    fn read_start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        callback: impl FnMut(&mut Loop<B>, Self, io::Result<&[u8]>) + 'static,
    ) -> io::Result<()> {
        read::start(self, lp, callback)
    }

    /// As [`read_start`](Stream::read_start), into memory that `alloc` provides when there is
    /// something to read. It is advised how much would be good: 64 KiB.
    ///
    /// Each call of `alloc` is followed by exactly one of `callback`, with the buffer and how
    /// many of its bytes were filled, 0 being the end of file. `WouldBlock` if nothing was
    /// there after all; `ENOBUFS` if the buffer is empty, and reading goes on; `ECANCELED` if
    /// `alloc` has stopped the reading or closed the stream.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// one.write(&mut lp, "hello", |_, _, _, _| {})?;
    /// let alloc = |_: &mut Loop, _, advised| vec![0; advised];
    /// other.read_start_with(&mut lp, alloc, move |lp, other, count, buffer| {
    ///     println!("{:?}", &buffer[..count.unwrap()]);
    ///     other.close(lp).unwrap();
    ///     one.close(lp).unwrap();
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`read_start`](Stream::read_start).
    fn read_start_with<B: Backend, T: IoBufMut>(
        self,
        lp: &mut Loop<B>,
        alloc: impl FnMut(&mut Loop<B>, Self, usize) -> T + 'static,
        callback: impl FnMut(&mut Loop<B>, Self, io::Result<usize>, T) + 'static,
    ) -> io::Result<()> {
        read::start_with(self, lp, alloc, callback)
    }

    /// Stops what [`read_start`](Stream::read_start) began, at once, and drops the callback. A
    /// stopped stream stays so.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// one.try_write(&mut lp, b"hello")?;
    /// other.read_start(&mut lp, |lp, other, bytes| {
    ///     assert_eq!(bytes.unwrap(), b"hello");
    ///     other.read_stop(lp).unwrap(); // What else comes is for who reads next.
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// assert!(!other.is_active(&lp));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    fn read_stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        lp.streams.slots.get(self.stream_key()).ok_or_else(error::stale)?;
        lp.stop_reading(self.stream_key());
        Ok(())
    }

    /// Reads once: fills the first bytes of `buf`, all of which may be filled, and hands it
    /// back with their number, 0 being the end of file. Requests are served in order.
    ///
    /// This is how to read no faster than one can write:
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// fn pump(lp: &mut Loop, from: Tcp, to: Tcp, buffer: Vec<u8>) {
    ///     let read = from.read(lp, buffer, move |lp, from, count, mut buffer| {
    ///         match count.unwrap() {
    ///             0 => return from.close(lp).and(to.close(lp)).unwrap(),
    ///             count => buffer.truncate(count),
    ///         }
    ///         let write = to.write(lp, buffer, move |lp, to, result, mut buffer| {
    ///             result.unwrap();
    ///             buffer.resize(4096, 0);
    ///             pump(lp, from, to, buffer);
    ///         });
    ///         write.unwrap();
    ///     });
    ///     read.unwrap();
    /// }
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// pump(&mut lp, other, other, vec![0; 4096]);
    /// # let _ = pump; one.close(&mut lp)?; other.close(&mut lp)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`read_start`](Stream::read_start), and `InvalidInput` for an empty buffer. The
    /// buffer is dropped then.
    fn read<B: Backend, T: IoBufMut>(
        self,
        lp: &mut Loop<B>,
        buf: T,
        callback: impl FnOnce(&mut Loop<B>, Self, io::Result<usize>, T) + 'static,
    ) -> io::Result<Read> {
        read::pull(self, lp, buf, callback)
    }

    /// Writes all of `buf`, after what was queued before, and hands it back.
    ///
    /// It is tried at once if nothing is queued, or, where the backend sends by itself, before the
    /// loop next waits, with all else that callbacks have written by then; `callback` comes later
    /// all the same, in the order of the writes. What is written while connecting waits for the connection, and
    /// gets `ECANCELED` if there is none. After an error, the writes that are queued behind
    /// get the same.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the stream is closing or `buf` is a list
    /// of nothing, `NotConnected` if there is no connection, `BrokenPipe` if it is not
    /// [writable](Stream::is_writable). The buffer is dropped then.
    fn write<B: Backend, T: IoBuf>(
        self,
        lp: &mut Loop<B>,
        buf: T,
        callback: impl FnOnce(&mut Loop<B>, Self, io::Result<()>, T) + 'static,
    ) -> io::Result<Write> {
        write::write(self, lp, buf, callback)
    }

    /// Writes what can be written at once, and returns how much that was: 0 of no bytes.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if nothing can, because of writes that are queued or because the stream
    /// is connecting; otherwise as [`write`](Stream::write), and the kernel's own.
    fn try_write<B: Backend>(self, lp: &mut Loop<B>, bytes: &[u8]) -> io::Result<usize> {
        lp.try_write(self.stream_key(), &[IoSlice::new(bytes)])
    }

    /// As [`try_write`](Stream::try_write), from several buffers.
    ///
    /// ```
    /// use std::io::IoSlice;
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// let (head, body) = (IoSlice::new(b"length: 5, "), IoSlice::new(b"hello"));
    /// assert_eq!(one.try_write_vectored(&mut lp, &[head, body])?, 16);
    /// other.read(&mut lp, vec![0; 64], |lp, other, count, bytes| {
    ///     assert_eq!(&bytes[..count.unwrap()], b"length: 5, hello");
    ///     other.close(lp).unwrap();
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_write`](Stream::try_write).
    fn try_write_vectored<B: Backend>(
        self,
        lp: &mut Loop<B>,
        bufs: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        lp.try_write(self.stream_key(), bufs)
    }

    /// Writes a copy of `bytes`, or as many as can be taken now, and returns how many those are.
    ///
    /// This is [`try_write`](Stream::try_write) for answers from callbacks. Where the backend
    /// sends by itself, little is copied, and sent before the loop next waits by the one system
    /// call that all streams share; elsewhere, and for much, it is written at once.
    ///
    /// What was taken is on its way, as what lies in the kernel's buffer is: the next read or
    /// write tells if the connection failed meanwhile. It counts as
    /// [queued](Stream::write_queue_size) until it leaves, goes before what is written after it,
    /// and a [`shutdown`](Stream::shutdown) waits for it.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// other.read_start(&mut lp, |lp, other, bytes| {
    ///     let bytes = bytes.unwrap();
    ///     // Much more than that would have to wait: see `try_write`.
    ///     assert_eq!(other.write_batched(lp, bytes).unwrap(), bytes.len());
    /// })?;
    /// one.try_write(&mut lp, b"echo")?;
    /// one.read_start(&mut lp, move |lp, one, bytes| {
    ///     assert_eq!(bytes.unwrap(), b"echo");
    ///     one.close(lp).unwrap();
    ///     other.close(lp).unwrap();
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`try_write`](Stream::try_write).
    fn write_batched<B: Backend>(self, lp: &mut Loop<B>, bytes: &[u8]) -> io::Result<usize> {
        lp.write_batched(self.stream_key(), bytes)
    }

    /// Ends the writing side when all that is queued is written: the peer reads the end of
    /// file. The stream is not writable from now on.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `NotConnected` if the stream is not writable, has been shut
    /// down, or is closing.
    fn shutdown<B: Backend>(
        self,
        lp: &mut Loop<B>,
        callback: impl FnOnce(&mut Loop<B>, Self, io::Result<()>) + 'static,
    ) -> io::Result<()> {
        shutdown::shutdown(self, lp, callback)
    }

    /// True if the stream can be read: a connection that has had no error, even at its end.
    fn is_readable<B: Backend>(self, lp: &Loop<B>) -> bool {
        has(self, lp, Flags::READABLE)
    }

    /// True if the stream can be written: a connection that has had no error and was not shut
    /// down.
    fn is_writable<B: Backend>(self, lp: &Loop<B>) -> bool {
        has(self, lp, Flags::WRITABLE)
    }

    /// How many bytes are queued: they were given to [`write`](Stream::write) and have not
    /// left. 0 for a stale key.
    ///
    /// ```
    /// use uv_core::{Loop, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, _other) = Tcp::pair(&mut lp)?;
    /// one.write(&mut lp, vec![0; 64 << 20], |_, _, _, _| println!("all of it has left"))?;
    /// assert!(one.write_queue_size(&lp) > 0, "nobody reads");
    /// # std::io::Result::Ok(())
    /// ```
    fn write_queue_size<B: Backend>(self, lp: &Loop<B>) -> usize {
        lp.streams.slots.get(self.stream_key()).map_or(0, |slot| slot.write_queue_size)
    }

    /// Makes reads and writes wait instead of coming back later, or not to. Callbacks come
    /// later all the same. Rarely a good idea.
    ///
    /// ```
    /// use uv_core::{Loop, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, _other) = Tcp::pair(&mut lp)?;
    /// one.set_blocking(&mut lp, true)?; // The last words before the program ends.
    /// one.write(&mut lp, "good night", |_, _, _, _| {})?;
    /// assert_eq!(one.write_queue_size(&lp), 0);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the stream is closing, `NotConnected` if
    /// it has no socket yet.
    fn set_blocking<B: Backend>(self, lp: &mut Loop<B>, blocking: bool) -> io::Result<()> {
        let slot = lp.streams.open(self.stream_key())?;
        let socket = slot.socket.as_ref().ok_or_else(error::not_connected)?;
        socket.set_nonblocking(!blocking)?;
        slot.flags.set(Flags::BLOCKING, blocking);
        Ok(())
    }
}

fn has<S: Stream, B: Backend>(stream: S, lp: &Loop<B>, flag: Flags) -> bool {
    lp.streams.slots.get(stream.stream_key()).is_some_and(|slot| slot.flags.contains(flag))
}
