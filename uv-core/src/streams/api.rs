//! The public API of streams.

use std::io::{self, IoSlice};
use std::ops::Range;

use poll_core::{Backend, Token};

use super::input::{read, recv_queue};
use super::output::{send_file, shutdown, write, write_batch};
use super::{Flags, ReadRequest, WriteRequest, short_forms};
use crate::fs::File;
use crate::handles::Handle;
use crate::storage::{IntoIoBuf, IoBufMut};
use crate::{Loop, error};

/// Seals [`Stream`]: only this crate implements it.
pub trait StreamKey: Sized {
    #[doc(hidden)]
    fn stream_key(self) -> Token;
    #[doc(hidden)]
    fn from_stream_key<B: Backend>(lp: &Loop<B>, key: Token) -> Self;
}

/// The operations of all streams: [`Tcp`](crate::Tcp), [`Pipe`](crate::Pipe), [`Tty`](crate::Tty).
///
/// A [`Listener`](crate::Listener) listens for connections; other streams are one. Reading is either
/// *pushed*, from [`read_start`](Stream::read_start) on, or *pulled* by [`read`](Stream::read), one
/// request at a time. Writes are queued in order and own their buffers. None of these calls runs a
/// callback inline: that of a request that completes immediately runs in the pending phase.
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
#[doc(alias = "uv_stream_t")]
pub trait Stream: Handle + StreamKey {
    /// Starts reading: calls `callback` with received bytes, lent for the call.
    ///
    /// An empty slice is the end of file. It stops reading; reading that is started again reports
    /// it again. An error stops reading as well, and the stream is neither readable nor writable
    /// any more.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the stream is closing, `EALREADY` if
    /// it is being read, `NotConnected` if it is not connected.
    #[doc(alias = "uv_read_start")]
    fn read_start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        callback: impl FnMut(&mut Loop<B>, Self, io::Result<&[u8]>) + 'static,
    ) -> io::Result<()> {
        read::start(self, lp, callback)
    }

    /// As [`read_start`](Stream::read_start), with one path for errors: an error of reading, and
    /// the error that the callback returns, close the stream and go to the handler of
    /// [`Loop::on_error`].
    ///
    /// ```
    /// use std::io::{Error, ErrorKind};
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.on_error(|_, _, error| assert_eq!(error.kind(), ErrorKind::InvalidData));
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// one.send(&mut lp, b"\xff");
    /// other.on_read(&mut lp, move |lp, _, bytes| {
    ///     one.close_if_open(lp);
    ///     let text = str::from_utf8(bytes).map_err(|_| Error::from(ErrorKind::InvalidData))?;
    ///     Ok(println!("{text}"))
    /// })?;
    /// lp.run(RunMode::Default)?; // The error has closed `other`.
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`read_start`](Stream::read_start).
    #[doc(alias = "uv_read_start")]
    fn on_read<B: Backend>(
        self,
        lp: &mut Loop<B>,
        callback: impl FnMut(&mut Loop<B>, Self, &[u8]) -> io::Result<()> + 'static,
    ) -> io::Result<()> {
        short_forms::on_read(self, lp, callback)
    }

    /// As [`read_start`](Stream::read_start), into memory that `alloc` provides when the stream is
    /// readable. The argument of `alloc` is the suggested size: 64 KiB.
    ///
    /// Each call of `alloc` is followed by exactly one call of `callback`, with the buffer and the
    /// number of bytes that were filled; 0 is the end of file. The result is `WouldBlock` after a
    /// spurious readiness event; `ENOBUFS` if the buffer is empty, and reading continues;
    /// `ECANCELED` if `alloc` has stopped reading or closed the stream.
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
    #[doc(alias = "uv_read_start")]
    fn read_start_with<B: Backend, T: IoBufMut>(
        self,
        lp: &mut Loop<B>,
        alloc: impl FnMut(&mut Loop<B>, Self, usize) -> T + 'static,
        callback: impl FnMut(&mut Loop<B>, Self, io::Result<usize>, T) + 'static,
    ) -> io::Result<()> {
        read::start_with(self, lp, alloc, callback)
    }

    /// Stops reading that [`read_start`](Stream::read_start) has started, immediately, and drops
    /// the callback. Does nothing to a stream that is not reading.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// one.try_write(&mut lp, b"hello")?;
    /// other.read_start(&mut lp, |lp, other, bytes| {
    ///     assert_eq!(bytes.unwrap(), b"hello");
    ///     other.read_stop(lp).unwrap(); // Later bytes are for the next reader.
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// assert!(!other.is_active(&lp));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    #[doc(alias = "uv_read_stop")]
    fn read_stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        lp.streams.slots.get(self.stream_key()).ok_or_else(error::stale)?;
        read::stop_reading(lp, self.stream_key());
        Ok(())
    }

    /// Puts bytes back that were read: the next reader gets them before all others. With `failed` it
    /// gets this error behind them: the kernel reports an error of the connection once.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// one.try_write(&mut lp, b"headbody")?;
    /// other.read_start(&mut lp, move |lp, other, bytes| {
    ///     let (head, rest) = bytes.unwrap().split_at(4);
    ///     assert_eq!(head, b"head");
    ///     // Another part of the program goes on.
    ///     other.read_stop(lp).unwrap();
    ///     other.unread(lp, rest.to_vec(), None).unwrap();
    ///     other.read_start(lp, move |lp, other, bytes| {
    ///         assert_eq!(bytes.unwrap(), b"body");
    ///         one.close(lp).and(other.close(lp)).unwrap();
    ///     }).unwrap();
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `EALREADY` if the stream is being read, `NotConnected` if it never was connected, `NotFound`
    /// for a stale key, `InvalidInput` if the stream is closing.
    fn unread<B: Backend>(
        self,
        lp: &mut Loop<B>,
        bytes: Vec<u8>,
        failed: Option<io::Error>,
    ) -> io::Result<()> {
        recv_queue::unread(lp, self.stream_key(), bytes, failed)
    }

    /// Reads once into `buf`. The callback gets the number of bytes, 0 at the end of file, and the
    /// buffer. Requests are served in order.
    ///
    /// This gives back-pressure: the next read starts when the last write is done.
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
    /// As [`read_start`](Stream::read_start), and `InvalidInput` for an empty buffer. An error
    /// drops the buffer and the callback: see [`read_with`](Stream::read_with).
    #[doc(alias = "uv_read_start")]
    fn read<B: Backend, T: IoBufMut>(
        self,
        lp: &mut Loop<B>,
        buf: T,
        callback: impl FnOnce(&mut Loop<B>, Self, io::Result<usize>, T) + 'static,
    ) -> io::Result<ReadRequest> {
        read::pull(self, lp, buf, callback)
    }

    /// As [`read`](Stream::read), but the callback gets every error, and always the buffer.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// /// Copies one direction of a connection: a single path for all that ends it.
    /// fn pump(lp: &mut Loop, from: Tcp, to: Tcp, buffer: Vec<u8>) {
    ///     from.read_with(lp, buffer, move |lp, from, count, mut buffer| match count {
    ///         Ok(0) | Err(_) => {
    ///             from.close_if_open(lp);
    ///             to.finish(lp);
    ///         }
    ///         Ok(count) => {
    ///             buffer.truncate(count);
    ///             to.write_with(lp, buffer, move |lp, to, result, mut buffer| {
    ///                 buffer.resize(4096, 0);
    ///                 match result {
    ///                     Ok(()) => pump(lp, from, to, buffer),
    ///                     Err(_) => from.close_if_open(lp),
    ///                 }
    ///             });
    ///         }
    ///     });
    /// }
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let tcp = Tcp::new(&mut lp);
    /// pump(&mut lp, tcp, tcp, vec![0; 4096]); // It is not connected.
    /// lp.run(RunMode::Default)?;
    /// assert!(lp.walk().is_empty());
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_read_start")]
    fn read_with<B: Backend, T: IoBufMut>(
        self,
        lp: &mut Loop<B>,
        buf: T,
        callback: impl FnOnce(&mut Loop<B>, Self, io::Result<usize>, T) + 'static,
    ) {
        short_forms::read_with(self, lp, buf, callback);
    }

    /// Reads without waiting: the bytes that the loop has received and that no reader has got,
    /// then those in the kernel. Returns their number, 0 at the end of file.
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use uv_core::{Loop, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// let mut buffer = [0; 64];
    /// assert_eq!(other.try_read(&mut lp, &mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
    /// one.try_write(&mut lp, b"hello")?;
    /// assert_eq!(other.try_read(&mut lp, &mut buffer)?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there are no bytes, the stream is connecting, or a cancelled
    /// [`read`](Stream::read) has not called back; `InvalidInput` for an empty buffer; otherwise
    /// as [`read_start`](Stream::read_start), and the errors of the system call, after which the
    /// stream is neither readable nor writable.
    fn try_read<B: Backend>(self, lp: &mut Loop<B>, buf: &mut [u8]) -> io::Result<usize> {
        read::try_read(lp, self.stream_key(), buf)
    }

    /// Writes all of `buf`, after the writes queued before it. The callback gets the buffer back.
    ///
    /// If no write is queued, the bytes are sent immediately; or, where the backend performs sends,
    /// before the loop next waits, together with the writes of other callbacks. `callback` runs
    /// later in either case, in the order of the writes. A write to a connecting stream waits for
    /// the connection, and gets `ECANCELED` if connecting fails. The error of a write is also
    /// reported to the writes queued behind it.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the stream is closing or `buf` is an
    /// empty list, `NotConnected` if there is no connection, `BrokenPipe` if it is not
    /// [writable](Stream::is_writable). An error drops the buffer and the callback: see
    /// [`write_with`](Stream::write_with).
    #[doc(alias = "uv_write")]
    fn write<B: Backend, T: IntoIoBuf>(
        self,
        lp: &mut Loop<B>,
        buf: T,
        callback: impl FnOnce(&mut Loop<B>, Self, io::Result<()>, T::Buf) + 'static,
    ) -> io::Result<WriteRequest> {
        write::write(self, lp, buf.into_io_buf(), callback)
    }

    /// Writes all of `buf`; an error closes the stream and goes to the handler of
    /// [`Loop::on_error`], as by [`fail`](Handle::fail). Does nothing if the stream is closing,
    /// closed, or [finished](Stream::finish).
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.on_error(|_, handle, error| eprintln!("{handle}: {error}"));
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// one.send(&mut lp, "hello");
    /// one.finish(&mut lp);
    /// other.on_read(&mut lp, |lp, other, bytes| match bytes {
    ///     [] => other.close(lp),
    ///     bytes => Ok(println!("{} bytes", bytes.len())),
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_write")]
    fn send<B: Backend>(self, lp: &mut Loop<B>, buf: impl IntoIoBuf) {
        short_forms::send(self, lp, buf.into_io_buf());
    }

    /// As [`write`](Stream::write), but the callback gets every error, and always the buffer.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let tcp = Tcp::new(&mut lp);
    /// tcp.write_with(&mut lp, "hello", |lp, tcp, result, buffer| {
    ///     assert!(result.is_err(), "it is not connected");
    ///     println!("{buffer:?} is back");
    ///     tcp.close_if_open(lp);
    /// });
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_write")]
    fn write_with<B: Backend, T: IntoIoBuf>(
        self,
        lp: &mut Loop<B>,
        buf: T,
        callback: impl FnOnce(&mut Loop<B>, Self, io::Result<()>, T::Buf) + 'static,
    ) {
        short_forms::write_with(self, lp, buf.into_io_buf(), callback);
    }

    /// Sends a range of an open file, after the writes queued before it and before those queued
    /// behind it. The callback gets the result and how many bytes were sent, also if the result is
    /// an error.
    ///
    /// It is a write in every other way: its bytes count as [queued](Stream::write_queue_size),
    /// [`shutdown`](Stream::shutdown) waits for it, [`cancel`](WriteRequest::cancel) and a close
    /// end it with `ECANCELED`. The position of the file is unchanged, and a clone of the file is
    /// kept until the callback.
    ///
    /// If the file ends before the range does, fewer bytes are sent, which is no error. What is
    /// written to the file meanwhile may be sent or not.
    ///
    /// The loop does not wait for the disk. On Linux, `sendfile(2)` sends from the page cache, or a
    /// small range is copied. What is not cached, and everything on other systems, is read in
    /// chunks of 64 KiB: by the backend where it performs reads, otherwise by the pool. Only where
    /// the kernel has dropped single pages in the middle of a cached range may `sendfile(2)` wait
    /// for them.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp, fs};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let file = fs::open("Cargo.toml", fs::OpenOptions::new().read(true)).perform()?;
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// one.send(&mut lp, "the first line: ");
    /// one.send_file(&mut lp, &file, 0..9, |lp, one, result, sent| {
    ///     result.unwrap();
    ///     assert_eq!(sent, 9);
    ///     one.close_if_open(lp);
    /// })?;
    /// let mut text = Vec::new();
    /// other.on_read(&mut lp, move |lp, other, bytes| match bytes {
    ///     [] => {
    ///         assert_eq!(text, b"the first line: [package]");
    ///         other.close(lp)
    ///     }
    ///     bytes => Ok(text.extend_from_slice(bytes)),
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`write`](Stream::write), and `InvalidInput` for a range that ends before it starts. The
    /// callback gets the errors of reading the file, such as `ESPIPE` for a file without offsets;
    /// they fail the writes behind it, too, which would otherwise follow a part of the file.
    #[doc(alias = "uv_fs_sendfile")]
    fn send_file<B: Backend>(
        self,
        lp: &mut Loop<B>,
        file: &File,
        range: Range<u64>,
        callback: impl FnOnce(&mut Loop<B>, Self, io::Result<()>, u64) + 'static,
    ) -> io::Result<WriteRequest> {
        send_file::send_file(self, lp, file, range, callback)
    }

    /// As [`send_file`](Stream::send_file), but the callback gets every error.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp, fs};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let file = fs::open("Cargo.toml", fs::OpenOptions::new().read(true)).perform()?;
    /// let tcp = Tcp::new(&mut lp);
    /// tcp.send_file_with(&mut lp, &file, 0..9, |lp, tcp, result, sent| {
    ///     assert!(result.is_err() && sent == 0, "it is not connected");
    ///     tcp.close_if_open(lp);
    /// });
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_fs_sendfile")]
    fn send_file_with<B: Backend>(
        self,
        lp: &mut Loop<B>,
        file: &File,
        range: Range<u64>,
        callback: impl FnOnce(&mut Loop<B>, Self, io::Result<()>, u64) + 'static,
    ) {
        short_forms::send_file_with(self, lp, file, range, callback);
    }

    /// Writes as many bytes as possible without waiting. Returns their number, 0 only for empty
    /// `bytes`.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the kernel takes no byte, writes are queued, or the stream is connecting;
    /// otherwise as [`write`](Stream::write), and the errors of the system call.
    #[doc(alias = "uv_try_write")]
    fn try_write<B: Backend>(self, lp: &mut Loop<B>, bytes: &[u8]) -> io::Result<usize> {
        write::try_write(lp, self.stream_key(), &[IoSlice::new(bytes)])
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
    #[doc(alias = "uv_try_write")]
    fn try_write_vectored<B: Backend>(
        self,
        lp: &mut Loop<B>,
        bufs: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        write::try_write(lp, self.stream_key(), bufs)
    }

    /// Writes a copy of `bytes`, or of as many as possible without waiting. Returns their number.
    ///
    /// This is [`try_write`](Stream::try_write) for replies from callbacks. Where the backend
    /// performs sends, a small write is copied and sent before the loop next waits, by one system
    /// call for all streams. Elsewhere, and for large writes, the bytes are written immediately.
    ///
    /// Copied bytes are like bytes in the kernel's send buffer: the next read or write reports if
    /// the connection has failed meanwhile. They count as [queued](Stream::write_queue_size) until
    /// they are sent, precede later writes, and [`shutdown`](Stream::shutdown) waits for them.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// other.read_start(&mut lp, |lp, other, bytes| {
    ///     let bytes = bytes.unwrap();
    ///     // A large reply may be taken in part: see `try_write`.
    ///     assert_eq!(other.write_coalesced(lp, bytes).unwrap(), bytes.len());
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
    fn write_coalesced<B: Backend>(self, lp: &mut Loop<B>, bytes: &[u8]) -> io::Result<usize> {
        write_batch::write_coalesced(lp, self.stream_key(), bytes)
    }

    /// Shuts down the writing side when all queued bytes are written: the peer reads the end of
    /// file. The stream is not writable after this call.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `NotConnected` if the stream is not writable, has been shut
    /// down, or is closing.
    #[doc(alias = "uv_shutdown")]
    fn shutdown<B: Backend>(
        self,
        lp: &mut Loop<B>,
        callback: impl FnOnce(&mut Loop<B>, Self, io::Result<()>) + 'static,
    ) -> io::Result<()> {
        shutdown::shutdown(self, lp, callback)
    }

    /// Ends the stream in an orderly way: sends what is queued and the end of the stream, waits for
    /// the peer to end as well, and closes.
    ///
    /// Bytes that the peer still sends are discarded, and a [`send`](Stream::send) after this call is
    /// ignored. An error goes to the handler of [`Loop::on_error`]; a peer that is gone
    /// already is none. A stream without a connection is closed immediately. Does nothing if the
    /// stream is closing or closed.
    ///
    /// [`close`](Handle::close) does not wait for what is queued: after a `send` it may end the
    /// connection before the peer has got the bytes.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// one.send(&mut lp, vec![7; 1 << 20]);
    /// one.finish(&mut lp);
    /// other.on_read(&mut lp, |lp, other, bytes| {
    ///     *lp.state::<usize>() += bytes.len();
    ///     if bytes.is_empty() { other.close(lp) } else { Ok(()) }
    /// })?;
    /// lp.run(RunMode::Default)?; // Both are closed.
    /// assert_eq!(*lp.state::<usize>(), 1 << 20);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// Only TCP waits for the peer: a connection that is closed with unread bytes is reset, which
    /// would discard what the peer has not read yet. A peer that never ends keeps the handle open: a
    /// [`Timer`](crate::Timer) that [closes](Handle::close_if_open) it is the limit.
    fn finish<B: Backend>(self, lp: &mut Loop<B>) {
        short_forms::finish(self, lp);
    }

    /// True if the stream is a connection without an error, also at the end of file.
    #[doc(alias = "uv_is_readable")]
    fn is_readable<B: Backend>(self, lp: &Loop<B>) -> bool {
        has(self, lp, Flags::READABLE)
    }

    /// Makes a stream readable that is open for writing only, such as the write end of a pipe, so
    /// that [`read_start`](Stream::read_start) can report when nothing reads from it any more: the
    /// callback gets an error then.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, Pipe, RunMode, Stream};
    ///
    /// # #[cfg(target_os = "linux")] {
    /// let mut lp = Loop::with_default_backend()?;
    /// let (reader, writer) = Pipe::one_way(&mut lp)?;
    /// writer.assume_readable(&mut lp)?;
    /// writer.read_start(&mut lp, |lp, writer, result| {
    ///     assert!(result.is_err(), "the reader is closed");
    ///     writer.close(lp).unwrap();
    /// })?;
    /// reader.close(&mut lp)?;
    /// lp.run(RunMode::Default)?;
    /// # }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the stream is closing, `NotConnected` if
    /// it has no descriptor yet.
    fn assume_readable<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.streams.open(self.stream_key())?;
        slot.socket.as_ref().ok_or_else(error::not_connected)?;
        slot.flags |= Flags::READABLE;
        Ok(())
    }

    /// True if the stream is a connection without an error that was not shut down.
    #[doc(alias = "uv_is_writable")]
    fn is_writable<B: Backend>(self, lp: &Loop<B>) -> bool {
        has(self, lp, Flags::WRITABLE)
    }

    /// The number of bytes that are queued by [`write`](Stream::write) and not sent yet. 0 for a
    /// stale key.
    ///
    /// ```
    /// use uv_core::{Loop, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, _other) = Tcp::pair(&mut lp)?;
    /// one.write(&mut lp, vec![0; 64 << 20], |_, _, _, _| println!("all bytes are sent"))?;
    /// assert!(one.write_queue_size(&lp) > 0, "the peer does not read");
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_stream_get_write_queue_size")]
    fn write_queue_size<B: Backend>(self, lp: &Loop<B>) -> usize {
        lp.streams.slots.get(self.stream_key()).map_or(0, |slot| slot.write_queue_size)
    }

    /// Makes reads and writes block the thread, or not. Callbacks still run later. Blocking stops
    /// the whole loop: it is meant for the last output of a program.
    ///
    /// ```
    /// use uv_core::{Loop, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, _other) = Tcp::pair(&mut lp)?;
    /// one.set_blocking(&mut lp, true)?;
    /// one.write(&mut lp, "good night", |_, _, _, _| {})?;
    /// assert_eq!(one.write_queue_size(&lp), 0);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the stream is closing, `NotConnected` if
    /// it has no socket yet.
    #[doc(alias = "uv_stream_set_blocking")]
    fn set_blocking<B: Backend>(self, lp: &mut Loop<B>, blocking: bool) -> io::Result<()> {
        let slot = lp.streams.open(self.stream_key())?;
        let socket = slot.socket.as_mut().ok_or_else(error::not_connected)?;
        socket.set_blocking(blocking)?;
        slot.flags.set(Flags::BLOCKING, blocking);
        Ok(())
    }
}

fn has<S: Stream, B: Backend>(stream: S, lp: &Loop<B>, flag: Flags) -> bool {
    lp.streams.slots.get(stream.stream_key()).is_some_and(|slot| slot.flags.contains(flag))
}
