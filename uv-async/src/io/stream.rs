//! Streams: connections, pipes, terminals.

use std::cell::RefCell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use uv_core::poll_core::Backend;
use uv_core::{AnyHandle, DefaultBackend, IoBuf, IoBufMut, Loop, Stream};

use super::buf::{BufResult, Carried, Done};
use super::halves::{ReadHalf, WriteHalf};
use super::input::Chunk;
use super::lent::Lent;
use super::reading::{Lend, LendMore, Read};
use super::received::{Received, Unread};
use super::writing::{Write, WriteAll, WriteSlice};
use crate::Rt;
use crate::op::Op;

/// The number of reads in a row that do not let other tasks run.
const MAX_STREAK: u8 = 16;
/// The largest number of pieces that the first attempt of a write takes.
const MAX_SLICES: usize = 16;
/// The largest number of bytes that a write of the poll-based traits copies.
const MAX_COPY: usize = 64 * 1024;
/// The largest number of bytes of several pieces that they join before they write them.
const MAX_JOINED: usize = 2048;

/// A connected stream: [`TcpStream`](crate::TcpStream), [`PipeStream`](crate::PipeStream),
/// [`Tty`](crate::Tty).
///
/// It owns its handle and closes it on drop. Bytes that were written leave before. All methods take
/// `&self`, so that one task can read while another writes; [`split`](IoStream::split) gives two
/// halves with a type each. Several tasks may read, each byte goes to one of them, or write, where
/// pieces of large writes alternate. `S` is the kind of the handle.
///
/// The loop goes on reading between two reads, but a stream that nothing waits for does not keep
/// the loop alive: tasks do, and writes that are not complete.
///
/// There are three ways to read: [`read`](IoStream::read) fills a buffer of the program,
/// [`lend`](IoStream::lend) gives access to a buffer of the runtime, and the traits of other crates
/// (features `futures-io`, `tokio-io`, `hyper`) copy. They can be mixed: bytes come in order.
pub struct IoStream<S: Stream, B: Backend = DefaultBackend> {
    pub(super) rt: Rt<B>,
    key: Option<S>,
    received: Option<Rc<Received>>,
    /// Bytes that a `poll_fill_buf` of the traits has lent. The next read puts them back.
    front: RefCell<Option<Chunk>>,
    /// The writes of the poll-based traits that wait.
    draining: RefCell<Option<Op<B, Done<Vec<u8>>>>>,
    closing: RefCell<Option<Op<B, io::Result<()>>>>,
}

impl<S: Stream, B: Backend> IoStream<S, B> {
    /// The stream of an open and connected handle, which it owns from here on.
    ///
    /// ```
    /// use uv_async::{LoopExt, TcpStream};
    /// use uv_core::{Handle, Loop, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let (one, other) = rt.with(Tcp::pair).unwrap();
    ///     let stream = TcpStream::from_key(&rt, one);
    ///     let (key, unread) = stream.into_key(); // For callbacks.
    ///     assert!(unread.bytes.is_empty());
    ///     rt.with(|lp| key.close(lp).and(other.close(lp))).unwrap();
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn from_key(rt: &Rt<B>, key: S) -> IoStream<S, B> {
        IoStream {
            rt: rt.clone(),
            key: Some(key),
            received: Some(rt.received().take()),
            front: RefCell::default(),
            draining: RefCell::default(),
            closing: RefCell::default(),
        }
    }

    /// Gives the handle up, with what was received and not read: bytes, and the end of the stream or
    /// the error behind them. What comes later is for the next reader of the handle.
    ///
    /// Outside of tasks and of [`Rt::enter`], a loop that has been reading stops when it is lent next,
    /// in its next iteration at the latest. Until then the handle has a reader; what that gets is put
    /// [back](Stream::unread).
    pub fn into_key(mut self) -> (S, Unread) {
        let Some(key) = self.key.take() else { unreachable!("the key is there until a drop") };
        self.put_front_back(0);
        let received = Rc::clone(self.received());
        let bytes = received.input.borrow_mut().take_all();
        let unread = Unread { bytes, end: received.take_end() };
        self.rt.with_or_defer(move |lp| received.stop_and_unread(lp, key));
        (key, unread)
    }

    /// The handle, for options that this crate does not wrap: see [`Rt::with`]. The loop may be
    /// reading from it: [`into_key`](IoStream::into_key) ends that.
    pub fn key(&self) -> S {
        let Some(key) = self.key else { unreachable!("the key is there until a drop") };
        key
    }

    pub(crate) fn received(&self) -> &Rc<Received> {
        let Some(received) = &self.received else { unreachable!("it is there until a drop") };
        received
    }

    /// The runtime.
    pub fn rt(&self) -> &Rt<B> {
        &self.rt
    }

    /// Reads into a buffer: its result is the number of bytes, 0 at the end of the stream.
    ///
    /// The buffer is the operation's while it runs, so that a backend can lend it to the kernel:
    /// nothing is copied, unless bytes arrive in small pieces or were received before.
    ///
    /// ```
    /// use uv_async::{LoopExt, TcpStream};
    /// use uv_core::{Loop, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let (one, other) = TcpStream::pair(&rt).unwrap();
    ///     one.write_all("hello").await.0.unwrap();
    ///     let (count, buffer) = other.read(vec![0; 64]).await;
    ///     assert_eq!(&buffer[..count.unwrap()], b"hello");
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` for an empty buffer, and the errors of the connection.
    ///
    /// # Cancel safety
    ///
    /// No byte is lost: bytes that arrive for a dropped read are for the next one, in order. The
    /// buffer is dropped as soon as no operation uses it.
    pub fn read<T: IoBufMut>(&self, buf: T) -> impl Future<Output = BufResult<usize, T>> {
        Read::new(self, buf)
    }

    /// True if a read should take what the loop pushes: bytes come in small pieces, or other tasks
    /// wait for bytes already. One request at a time: the bytes of two that are dropped would come
    /// back in the order of the drops.
    pub(super) fn prefers_pushed(&self) -> bool {
        let received = self.received();
        !received.input.borrow().large || received.requests.get() > 0 || received.has_waiting()
    }

    /// Reads without waiting if the last read has filled its buffer: then there may be more.
    pub(super) fn try_more(&self, memory: &mut [u8]) -> Option<io::Result<usize>> {
        let mut input = self.received().input.borrow_mut();
        if !input.full
            || self.received().is_pushing()
            || input.streak >= MAX_STREAK
            || memory.is_empty()
        {
            input.streak = 0;
            return None;
        }
        input.streak += 1;
        let key = self.key();
        match self.rt.with(|lp| key.try_read(lp, memory)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                (input.full, input.streak) = (false, 0);
                None
            }
            result => {
                input.full = result.as_ref().is_ok_and(|count| *count == memory.len());
                Some(result)
            }
        }
    }

    /// Reads until the buffer is full.
    ///
    /// ```
    /// use uv_async::{LoopExt, TcpStream};
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let (one, other) = TcpStream::pair(&rt)?;
    ///     one.write_slice(b"headbody").await?;
    ///     let (result, head) = other.read_exact(vec![0; 4]).await;
    ///     result?;
    ///     assert_eq!(head, b"head");
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`read`](IoStream::read), and `UnexpectedEof` if the stream ends before.
    ///
    /// # Cancel safety
    ///
    /// Bytes that were read into the buffer are lost with it if this is dropped. To be safe, call
    /// [`read`](IoStream::read) in a loop of your own.
    pub async fn read_exact(&self, mut buf: Vec<u8>) -> BufResult<(), Vec<u8>> {
        let (size, mut filled) = (buf.len(), 0);
        while filled < size {
            // The first bytes go directly into the buffer, further ones through a second one.
            let result = if filled == 0 {
                let (result, back) = self.read(buf).await;
                buf = back;
                result
            } else {
                let lent = self.lend().await;
                lent.map(|lent| {
                    let count = lent.len().min(size - filled);
                    buf[filled..filled + count].copy_from_slice(&lent[..count]);
                    lent.keep_from(count);
                    count
                })
            };
            match result {
                Ok(0) => return (Err(io::ErrorKind::UnexpectedEof.into()), buf),
                Ok(count) => filled += count,
                Err(error) => return (Err(error), buf),
            }
        }
        (Ok(()), buf)
    }

    /// Waits for bytes, and lends the runtime's buffer that they are in: empty at the end of the
    /// stream. If bytes were [kept](Lent::keep_from), it lends these without waiting: to wait for the
    /// rest of a message, use [`lend_more_than`](IoStream::lend_more_than).
    ///
    /// The loop goes on reading afterwards, also if no further read is made. It stops when bytes
    /// arrive before the earlier ones are consumed: then the rest waits in the kernel until a read
    /// needs it. A stream that only the loop reads does not keep the loop alive;
    /// [`into_key`](IoStream::into_key) ends the reading.
    ///
    /// ```
    /// use uv_async::{LoopExt, TcpStream};
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let (one, other) = TcpStream::pair(&rt).unwrap();
    ///     one.write_all("line\nrest").await.0.unwrap();
    ///     let lent = other.lend().await.unwrap();
    ///     let end = lent.iter().position(|byte| *byte == b'\n').unwrap();
    ///     assert_eq!(&lent[..end], b"line");
    ///     lent.keep_from(end + 1); // The next read begins there.
    ///     assert_eq!(&*other.lend().await.unwrap(), b"rest");
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the connection.
    ///
    /// # Cancel safety
    ///
    /// No byte is lost.
    pub fn lend(&self) -> impl Future<Output = io::Result<Lent<'_>>> {
        Lend(self)
    }

    /// Waits until more than `count` bytes have arrived that nothing has consumed, and lends them all:
    /// for a parser that has found a part of a message. ([`lend`](IoStream::lend) lends what is
    /// [kept](Lent::keep_from) again, without waiting.) At the end of the stream it lends what there
    /// is: `count` bytes or fewer.
    ///
    /// The bytes are in memory of this process. How long a message may be is the caller's to check.
    ///
    /// ```
    /// use uv_async::{LoopExt, TcpStream};
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let (one, other) = TcpStream::pair(&rt)?;
    ///     rt.spawn_local(async move {
    ///         one.write_slice(b"first\nsec").await?;
    ///         uv_async::yield_now().await;
    ///         one.write_slice(b"ond\n").await
    ///     });
    ///     let (mut lines, mut searched) = (Vec::new(), 0);
    ///     loop {
    ///         let bytes = other.lend_more_than(searched).await?;
    ///         match bytes[searched..].iter().position(|byte| *byte == b'\n') {
    ///             Some(end) => {
    ///                 let end = searched + end;
    ///                 lines.push(String::from_utf8_lossy(&bytes[..end]).into_owned());
    ///                 bytes.keep_from(end + 1);
    ///                 searched = 0;
    ///             }
    ///             None if bytes.len() == searched => break, // The end.
    ///             None if bytes.len() > 1024 => break, // Too long a line.
    ///             None => {
    ///                 searched = bytes.len();
    ///                 bytes.keep_from(0);
    ///             }
    ///         }
    ///     }
    ///     assert_eq!(lines, ["first", "second"]);
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the connection. The bytes before it stay for the next read.
    ///
    /// # Cancel safety
    ///
    /// No byte is lost.
    pub fn lend_more_than(&self, count: usize) -> impl Future<Output = io::Result<Lent<'_>>> {
        LendMore { stream: self, count }
    }

    /// Waits until there are more than `count` bytes in `input`, or the stream has ended.
    pub(super) fn poll_more_than(
        &self,
        count: usize,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.put_front_back(0);
        let received = self.received();
        if received.input.borrow_mut().join() > count {
            return Poll::Ready(Ok(()));
        }
        received.poll_more(&self.rt, self.key(), cx)
    }

    /// Waits until there are bytes in `input`, or the stream has ended.
    #[inline(always)] // On the path of every read.
    pub(crate) fn poll_fill(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let received = self.received();
        let mut input = received.input.borrow_mut();
        if !input.lent && !input.is_empty() {
            return Poll::Ready(Ok(()));
        }
        if !input.lent && received.is_pushing() {
            input.release_memory(self.rt.memory());
            received.wait(&self.rt, cx);
            return Poll::Pending;
        }
        drop(input);
        self.poll_fill_unusual(cx)
    }

    #[inline(never)]
    fn poll_fill_unusual(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.put_front_back(0);
        if !self.received().input.borrow().is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.received().poll_more(&self.rt, self.key(), cx)
    }

    /// Takes the next bytes out until [`put_front_back`](IoStream::put_front_back), so that they can
    /// be borrowed.
    #[cfg(any(feature = "futures-io", feature = "tokio-io"))]
    pub(crate) fn take_front(&mut self) -> &[u8] {
        let chunk = {
            let mut input = self.received().input.borrow_mut();
            input.lent = true;
            input.take_chunk()
        };
        let Chunk { memory, at } = self.front.get_mut().insert(chunk);
        &memory[*at..]
    }

    /// Puts these bytes back, without the first `consumed`.
    pub(crate) fn put_front_back(&self, consumed: usize) {
        if let Some(mut chunk) = self.front.take() {
            chunk.at = chunk.memory.len().min(chunk.at.saturating_add(consumed));
            let mut input = self.received().input.borrow_mut();
            input.lent = false;
            input.put_back(chunk);
        }
    }

    /// Writes some bytes of a buffer, at least one unless it is empty; returns their number.
    ///
    /// # Errors
    ///
    /// `BrokenPipe` after a shutdown, and the errors of the connection.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, bytes that the kernel has not taken are not sent; how many were is not
    /// known. Drop the stream too, or write in a task of its own.
    pub fn write<T: IoBuf>(&self, buf: T) -> impl Future<Output = BufResult<usize, T>> {
        Write::new(self, buf)
    }

    /// Writes a whole buffer: bytes, or a list of such buffers as if they were one.
    ///
    /// Small writes are copied and leave with those of other streams before the loop waits, as if
    /// the kernel had them: an error is reported by the next read or write.
    ///
    /// ```
    /// use uv_async::{LoopExt, TcpStream};
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let (one, other) = TcpStream::pair(&rt).unwrap();
    ///     let (result, _buffers) = one.write_all(vec!["hello", ", ", "world"]).await;
    ///     result.unwrap();
    ///     let (result, bytes) = other.read_exact(vec![0; 12]).await;
    ///     result.unwrap();
    ///     assert_eq!(bytes, b"hello, world");
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`write`](IoStream::write).
    ///
    /// # Cancel safety
    ///
    /// As [`write`](IoStream::write).
    pub fn write_all<T: IoBuf>(&self, buf: T) -> impl Future<Output = BufResult<(), T>> {
        WriteAll(Write::new(self, buf))
    }

    /// Writes all of a slice. Bytes that the kernel does not take immediately are copied.
    ///
    /// This is the way to send what was [lent](IoStream::lend), and small messages from memory
    /// that the program goes on using.
    ///
    /// ```
    /// use uv_async::{LoopExt, TcpStream};
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let (one, other) = TcpStream::pair(&rt)?;
    ///     one.write_slice(b"echo").await?;
    ///     let lent = other.lend().await?;
    ///     other.write_slice(&lent).await?;
    ///     assert_eq!(&*one.lend().await?, b"echo");
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`write`](IoStream::write). Bytes that were copied are reported like those of
    /// [`write_all`](IoStream::write_all): by the next write, or by a shutdown.
    ///
    /// # Cancel safety
    ///
    /// If this is dropped, bytes that it has copied are sent and the rest is not; how many were is
    /// not known.
    pub fn write_slice(&self, bytes: &[u8]) -> impl Future<Output = io::Result<()>> {
        WriteSlice { stream: self, bytes }
    }

    /// Writes what can be written without waiting.
    #[inline]
    pub(super) fn try_write<T: IoBuf>(&self, buf: &T, total: usize) -> io::Result<usize> {
        let (key, pieces) = (self.key(), buf.pieces());
        match pieces {
            _ if total == 0 => Ok(0),
            1 => self.rt.with(|lp| key.write_coalesced(lp, buf.piece(0))),
            _ => self.try_write_pieces(buf, pieces),
        }
    }

    #[inline(never)]
    fn try_write_pieces<T: IoBuf>(&self, buf: &T, pieces: usize) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); MAX_SLICES];
        let (key, count) = (self.key(), pieces.min(MAX_SLICES));
        for (index, slice) in slices[..count].iter_mut().enumerate() {
            *slice = IoSlice::new(buf.piece(index));
        }
        if slices.iter().all(|slice| slice.is_empty()) {
            return Ok(0);
        }
        self.rt.with(|lp| key.try_write_vectored(lp, &slices[..count]))
    }

    /// Writes a copy of bytes, or of as many as possible. Bytes that the kernel does not take are
    /// kept, and the next call waits for them.
    pub(crate) fn poll_write_copy(
        &self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_drain(cx))?;
        let key = self.key();
        let mut pieces = slices.iter().filter(|slice| !slice.is_empty());
        let written = match (pieces.next(), pieces.next()) {
            (None, _) => return Poll::Ready(Ok(0)),
            (Some(only), None) => return self.poll_write_piece(cx, only),
            // The head and the body of a small message: together they leave with the wait.
            _ if slices.iter().map(|slice| slice.len()).sum::<usize>() <= MAX_JOINED => {
                let (mut joined, mut end) = ([0; MAX_JOINED], 0);
                for slice in slices {
                    joined[end..end + slice.len()].copy_from_slice(slice);
                    end += slice.len();
                }
                self.rt.with(|lp| key.write_coalesced(lp, &joined[..end]))
            }
            _ => self.rt.with(|lp| key.try_write_vectored(lp, slices)),
        };
        Poll::Ready(written.or_else(|error| self.keep_unwritten(error, slices)))
    }

    /// The same for one piece, which is not empty.
    #[inline]
    pub(super) fn poll_write_piece(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.draining.borrow().is_some() {
            ready!(self.poll_drain(cx))?;
        }
        let key = self.key();
        match self.rt.with(|lp| key.write_coalesced(lp, bytes)) {
            Ok(written) => Poll::Ready(Ok(written)),
            Err(error) => Poll::Ready(self.keep_unwritten(error, &[IoSlice::new(bytes)])),
        }
    }

    /// Keeps a copy of bytes that the kernel has not taken. Other errors are returned.
    #[cold]
    fn keep_unwritten(&self, error: io::Error, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if error.kind() != io::ErrorKind::WouldBlock {
            return Err(error);
        }
        let mut copy = Vec::new();
        for slice in slices {
            copy.extend_from_slice(&slice[..slice.len().min(MAX_COPY - copy.len())]);
        }
        let (key, count, (completer, op)) = (self.key(), copy.len(), self.rt.op());
        let carried = Carried::new(copy, 0, completer);
        self.rt.with(|lp| {
            key.write(lp, carried, |lp, key, result, carried| {
                finish(lp, key, result.map(|()| 0), carried);
            })
        })?;
        *self.draining.borrow_mut() = Some(op);
        Ok(count)
    }

    /// Waits for the bytes that [`poll_write_copy`](IoStream::poll_write_copy) has kept.
    pub(crate) fn poll_drain(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut draining = self.draining.borrow_mut();
        let Some(op) = &mut *draining else { return Poll::Ready(Ok(())) };
        let (result, _) = ready!(op.poll_shared(cx)).into_result();
        *draining = None;
        Poll::Ready(result.map(drop))
    }

    /// Shuts the sending side down, after the kept bytes.
    pub(crate) fn poll_end(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        let mut closing = self.closing.borrow_mut();
        if closing.is_none() {
            let ((completer, op), key) = (self.rt.op(), self.key());
            self.rt.with(|lp| {
                key.shutdown(lp, move |lp, _, result| drop(completer.complete(lp, result)))
            })?;
            *closing = Some(op);
        }
        let Some(op) = &mut *closing else { return Poll::Pending };
        let result = ready!(op.poll_shared(cx));
        *closing = None;
        Poll::Ready(result)
    }

    /// Shuts the sending side down, after what was written: the peer reads the end of the stream.
    ///
    /// # Errors
    ///
    /// `NotConnected` if the connection is gone or this was called before, and the kernel's.
    ///
    /// # Cancel safety
    ///
    /// The shutdown happens also if this is dropped after its first poll.
    pub async fn shutdown(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_end(cx)).await
    }

    /// A half to read and a half to write, for code that wants two values. The stream itself can be
    /// used by several tasks as well: put it into an [`Rc`](std::rc::Rc).
    ///
    /// ```
    /// use uv_async::{LoopExt, TcpStream};
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let (one, other) = TcpStream::pair(&rt)?;
    ///     let (mut reader, mut writer) = one.split();
    ///     writer.write_slice(b"ping").await?;
    ///     other.write_slice(b"pong").await?;
    ///     assert_eq!(&*reader.lend().await?, b"pong");
    ///     assert_eq!(&*other.lend().await?, b"ping");
    ///     std::io::Result::Ok(())
    /// })??;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn split(&self) -> (ReadHalf<'_, S, B>, WriteHalf<'_, S, B>) {
        (ReadHalf(self), WriteHalf(self))
    }
}

/// The callback of reads and writes.
pub(super) fn finish<S, B: Backend, T: 'static>(
    lp: &mut Loop<B>,
    _: S,
    result: io::Result<usize>,
    carried: Carried<B, T>,
) {
    drop(carried.finish(lp, result));
}

impl<S: Stream, B: Backend> Drop for IoStream<S, B> {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            let (rt, received) = (self.rt.clone(), self.received.take());
            self.rt.with_or_defer(move |lp| {
                if let Some(received) = received {
                    received.stop(lp, key);
                    rt.received().put(received);
                }
                close(lp, key);
            });
        }
    }
}

/// Closes a stream, after the bytes that were reported as written.
fn close<S: Stream, B: Backend>(lp: &mut Loop<B>, key: S) {
    let queued = key.write_queue_size(lp) > 0;
    if queued && key.shutdown(lp, |lp, key, _| drop(key.close(lp))).is_ok() {
        return;
    }
    // Fails only if the program has closed the handle.
    let _ = key.close(lp);
}

impl<S: Stream, B: Backend> fmt::Debug for IoStream<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key: Option<AnyHandle> = self.key.map(Into::into);
        f.debug_struct("IoStream").field("key", &key).finish_non_exhaustive()
    }
}
