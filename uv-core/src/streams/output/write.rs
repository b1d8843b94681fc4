//! Writes: in order, tried immediately if nothing is queued; callbacks run later.

use std::io::{self, IoSlice};

use poll_core::{Backend, Token};

use crate::event_loop::exchange;
use crate::handles::AnyHandle;
use crate::storage::IoBuf;
use crate::streams::buffered_request::BufferedRequest;
use crate::streams::output::{completed_writes, flush, send_file, shutdown, write_batch};
use crate::streams::request_queue::{self, IoRequest, State};
use crate::streams::{
    self, Flags, Stream, StreamSlot, Streams, arm, handle_passing, uninterrupted,
};
use crate::sys::Transport;
use crate::{Loop, error, sys};

/// The maximal number of requests that one readiness event writes, so that a busy stream does not
/// starve the others.
const WRITES_PER_EVENT: usize = 32;

/// The maximal number of pieces that one system call writes: 1 KiB of stack.
const PIECES_PER_CALL: usize = 64;

/// The maximal number of pieces that kernels accept (`IOV_MAX`).
const MAX_PIECES: usize = 1024;

/// A write that has not called back: the key to [cancel](WriteRequest::cancel) it.
///
/// ```
/// use uv_core::{Handle, Loop, RunMode, Stream, Tcp, WriteRequest, is_cancelled};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (one, other) = Tcp::pair(&mut lp)?;
/// let large = vec![0; 64 << 20]; // More than the kernel takes while the peer does not read.
/// let write: WriteRequest = one.write(&mut lp, large, move |lp, one, result, _| {
///     assert!(is_cancelled(&result.unwrap_err()));
///     one.close(lp).unwrap();
///     other.close(lp).unwrap();
/// })?;
/// let written = write.cancel(&mut lp)?;
/// assert!(written < 64 << 20);
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "uv_write_t")]
pub struct WriteRequest(pub(super) Token);

impl WriteRequest {
    /// Cancels the bytes that are not written yet. Returns the number of bytes written. The
    /// callback still runs, in the pending phase, with `ECANCELED` and the buffer; it does not wait
    /// for the writes before it.
    ///
    /// If the write is in flight in the backend, the number does not include the bytes that are
    /// written until the operation is cancelled, and the callback gets `Ok` if all bytes are. The
    /// final number is that of [`bytes_written`](WriteRequest::bytes_written) in the callback.
    ///
    /// After a partial write is cancelled, the peer receives its first part followed by the next
    /// write.
    ///
    /// # Errors
    ///
    /// `NotFound` if the callback has run, or is pending because all bytes are written.
    #[doc(alias = "uv_cancel")]
    pub fn cancel<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<usize> {
        cancel_request(lp, self.0, State::Writing)
    }

    /// The number of bytes written so far. In the callback of the write, which is the last moment
    /// to ask, that is the final number, also if the write has failed or was cancelled.
    ///
    /// For a pipe of Windows, bytes that are in flight when the write is cancelled do not count.
    ///
    /// ```
    /// use std::{cell::Cell, rc::Rc};
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, other) = Tcp::pair(&mut lp)?;
    /// let request = Rc::new(Cell::new(None));
    /// let this = Rc::clone(&request);
    /// let write = one.write(&mut lp, vec![0; 64 << 20], move |lp, one, result, _| {
    ///     assert!(result.is_err());
    ///     let write: uv_core::WriteRequest = this.get().unwrap();
    ///     println!("{} bytes were written", write.bytes_written(lp).unwrap());
    ///     one.close(lp).unwrap();
    ///     other.close(lp).unwrap();
    /// })?;
    /// request.set(Some(write));
    /// write.cancel(&mut lp)?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` after the callback.
    #[doc(alias = "uv_write_nwritten")]
    pub fn bytes_written<B: Backend>(self, lp: &Loop<B>) -> io::Result<usize> {
        let pending = lp.streams.requests.get(self.0).filter(|it| it.state != State::Reading);
        let reported = lp.streams.reported_write.filter(|(write, _)| *write == self.0);
        let written = pending.map(|it| it.moved).or(reported.map(|(_, written)| written));
        let written = written.or_else(|| lp.streams.completed_writes.written(self.0));
        written.ok_or_else(error::stale_request)
    }
}

pub(in crate::streams) fn write<S: Stream, B: Backend, T: IoBuf>(
    stream: S,
    lp: &mut Loop<B>,
    buf: T,
    callback: impl FnOnce(&mut Loop<B>, S, io::Result<()>, T) + 'static,
) -> io::Result<WriteRequest> {
    let complete = move |lp: &mut Loop<B>, key, result, buf| {
        let stream = S::from_stream_key(lp, key);
        callback(lp, stream, result, buf);
    };
    let key = stream.stream_key();
    let tried = write_whole(lp, key, &buf);
    let buffered = BufferedRequest::writing(buf, complete);
    let write = match tried {
        Some(Ok(Sent::Whole(written))) => {
            completed_writes::complete_later(lp, key, buffered, written)
        }
        tried => queue_write(lp, key, buffered, &[], tried)?,
    };
    Ok(WriteRequest(write))
}

/// As [`write`], and passes handles with the first byte.
pub(crate) fn write_with_handles<S: Stream, B: Backend, T: IoBuf>(
    stream: S,
    lp: &mut Loop<B>,
    buf: T,
    handles: &[AnyHandle],
    callback: impl FnOnce(&mut Loop<B>, S, io::Result<()>, T) + 'static,
) -> io::Result<WriteRequest> {
    let key = stream.stream_key();
    check_with_handles(lp, key, &buf, handles)?;
    let complete = move |lp: &mut Loop<B>, key, result, buf| {
        let stream = S::from_stream_key(lp, key);
        callback(lp, stream, result, buf);
    };
    queue_write(lp, key, BufferedRequest::writing(buf, complete), handles, None).map(WriteRequest)
}

/// Checks that a pipe takes a write with handles.
pub(in crate::streams) fn check_with_handles<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    buf: &impl IoBuf,
    handles: &[AnyHandle],
) -> io::Result<()> {
    let size = (0..buf.pieces()).map(|index| buf.piece(index).len()).sum();
    handle_passing::check_passing(lp, key, handles, size)?;
    lp.streams.check_write(key, buf.pieces())
}

/// The result of a call that sends a buffer.
enum Sent {
    /// All of it: the number of bytes.
    Whole(usize),
    /// A part of it: the number of bytes sent.
    Part(usize),
}

/// The progress of a write.
pub(in crate::streams) enum Progress {
    Complete,
    Blocked,
    /// The stream is broken.
    Failed(io::Error),
    /// This write cannot be sent, and no byte of it was: the writes behind it are not affected.
    Refused(io::Error),
}

impl<B: Backend> StreamSlot<B> {
    /// The socket, if the stream is writable and no writes are queued.
    #[inline]
    fn idle_writer(&self) -> Option<&Transport> {
        // A closing stream is not writable.
        let writable = self.flags & (Flags::WRITABLE | Flags::CONNECTING) == Flags::WRITABLE;
        let idle = writable && self.writes.is_empty() && self.write_queue_size == 0;
        self.socket.as_ref().filter(|_| idle)
    }

    /// The error of a write that cannot be tried now.
    #[cold]
    fn write_error(&self) -> io::Error {
        if self.base.is_closing() {
            error::closing()
        } else if self.flags.contains(Flags::CONNECTING) {
            io::ErrorKind::WouldBlock.into()
        } else if self.socket.is_none() {
            error::not_connected()
        } else if !self.flags.contains(Flags::WRITABLE) {
            io::ErrorKind::BrokenPipe.into()
        } else {
            io::ErrorKind::WouldBlock.into()
        }
    }
}

impl<B: Backend> Streams<B> {
    /// The socket of a writable stream with no queued writes.
    #[inline]
    pub(in crate::streams) fn idle_writer(&self, key: Token) -> io::Result<&Transport> {
        let slot = self.slots.get(key).ok_or_else(error::stale)?;
        slot.idle_writer().ok_or_else(|| slot.write_error())
    }
}

/// Sends a buffer of one piece by a call, if no write or callback is before it. `None` if the
/// write has to be queued.
#[inline]
fn write_whole<B: Backend>(lp: &Loop<B>, key: Token, buf: &impl IoBuf) -> Option<io::Result<Sent>> {
    let slot = lp.streams.slots.get(key)?;
    let socket = slot.idle_writer()?;
    let bytes = buf.piece(0);
    let queues = buf.pieces() != 1 || bytes.is_empty() || !slot.done.is_empty();
    if queues || flush::sends_later(lp, slot) {
        return None;
    }
    let sent = send(socket, &[IoSlice::new(bytes)]);
    Some(sent.map(|sent| match sent == bytes.len() {
        true => Sent::Whole(sent),
        false => Sent::Part(sent),
    }))
}

/// Queues a write. `tried` is the result of a call that has sent some of it.
fn queue_write<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    buffered: BufferedRequest<B>,
    handles: &[AnyHandle],
    tried: Option<io::Result<Sent>>,
) -> io::Result<Token> {
    let pieces = buffered.pieces();
    lp.streams.check_write(key, pieces)?;
    let later = lp.streams.slots.get(key).is_some_and(|slot| flush::sends_later(lp, slot));
    let (slot, requests) = lp.streams.open_with_requests(key)?;
    let size = (0..pieces).map(|index| buffered.piece(index).len()).sum();
    let mut request = IoRequest::new(buffered, key, State::Writing, size);

    let queued = !slot.writes.is_empty() || slot.write_queue_size > 0;
    let idle = !queued && !later && !slot.flags.contains(Flags::CONNECTING);
    let blocking = slot.flags.contains(Flags::BLOCKING);
    let mut progress = match (tried, &slot.socket) {
        (Some(Err(error)), _) if error.kind() != io::ErrorKind::WouldBlock => {
            Progress::Failed(error)
        }
        (Some(tried), socket) => {
            if let Ok(Sent::Whole(sent) | Sent::Part(sent)) = tried {
                advance(&mut request, sent);
            }
            match socket {
                Some(socket) if blocking => push(socket, &mut request, true),
                _ => Progress::Blocked,
            }
        }
        (None, Some(socket)) if idle && handles.is_empty() => push(socket, &mut request, blocking),
        _ => Progress::Blocked,
    };
    slot.write_queue_size += request.left;
    let write = requests.insert(request);
    slot.writes.push(requests, write);
    lp.active_requests += 1;
    if let Some(passing) = &mut slot.passing
        && !handles.is_empty()
    {
        passing.queue(write, handles.into());
        if idle {
            progress = push_first(lp, key, write);
        }
    }
    match progress {
        Progress::Complete => finish_request(lp, key, write, None),
        Progress::Failed(error) | Progress::Refused(error) => {
            finish_request(lp, key, write, Some(error));
        }
        Progress::Blocked => {
            if let Err(error) = arm::update(lp, key) {
                finish_request(lp, key, write, Some(error));
            }
        }
    }
    Ok(write)
}

/// Moves a request from its list to the list of requests that call back. If an operation has
/// its buffer, the request is marked and moved when the operation has completed.
#[inline]
pub(in crate::streams) fn finish_request<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    request: Token,
    error: Option<io::Error>,
) {
    let requests = &mut lp.streams.requests;
    let Some(slot) = lp.streams.slots.get_mut(key) else { return };
    let Some(found) = requests.get_mut(request) else { return };
    if found.is_lent() {
        found.cancelled = true;
        return;
    }
    match found.state {
        State::Writing => slot.writes.unlink(requests, request),
        State::Reading => slot.reads.unlink(requests, request),
        State::Done => return,
    }
    slot.done.push(requests, request);
    if let Some(request) = requests.get_mut(request) {
        request.state = State::Done;
        request.error = error;
    }
    if slot.forget_file(request) {
        lp.streams.release_rare_state(key);
    }
    streams::schedule_pending(lp, key);
}

/// Cancels a request. Returns the number of bytes that it has transferred.
pub(in crate::streams) fn cancel_request<B: Backend>(
    lp: &mut Loop<B>,
    request: Token,
    state: State,
) -> io::Result<usize> {
    let found = lp.streams.requests.get(request).filter(|it| it.state == state);
    let found = found.ok_or_else(error::stale_request)?;
    let (key, moved, lent) = (found.stream, found.moved, found.is_lent());
    if lent {
        cancel_lent(lp, key, request)?;
        return Ok(moved);
    }
    finish_request(lp, key, request, Some(error::cancelled()));
    arm::update_or_fail(lp, key);
    Ok(moved)
}

/// Cancels a request whose buffer an operation has, by cancelling the operation.
fn cancel_lent<B: Backend>(lp: &mut Loop<B>, key: Token, request: Token) -> io::Result<()> {
    let Some(request) = lp.streams.requests.get_mut(request) else { return Ok(()) };
    if std::mem::replace(&mut request.cancelled, true) {
        return Err(error::stale_request());
    }
    match request.state {
        State::Reading => lp.streams.cancel_input(&mut lp.backend, key),
        _ => lp.streams.cancel_output(&mut lp.backend, key),
    }
    Ok(())
}

/// Cancels all queued requests of a stream that is closing, writes before reads.
pub(in crate::streams) fn cancel_requests<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let Some(slot) = lp.streams.slots.get(key) else { return };
    let (writes, reads) = (slot.writes.first(), slot.reads.first());
    finish_all(lp, key, writes, error::cancelled);
    finish_all(lp, key, reads, error::cancelled);
}

/// Finishes a request and all requests behind it in its list.
fn finish_all<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    first: Option<Token>,
    error: impl Fn() -> io::Error,
) {
    let mut next = first;
    while let Some(request) = next
        && let Some(found) = lp.streams.requests.get(request)
    {
        next = found.next();
        finish_request(lp, key, request, Some(error()));
    }
}

/// Finishes all queued writes with an error.
pub(in crate::streams) fn fail_writes<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    error: impl Fn() -> io::Error,
) {
    let first = lp.streams.slots.get(key).and_then(|slot| slot.writes.first());
    finish_all(lp, key, first, error);
}

/// Handles a writable event.
#[inline]
pub(in crate::streams) fn ready<B: Backend>(lp: &mut Loop<B>, key: Token) {
    push_writes(lp, key);
    complete_requests(lp, key);
    shutdown::drain(lp, key);
}

/// Writes as many bytes as the kernel takes, unless an operation is writing.
#[inline]
pub(in crate::streams) fn push_writes<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let busy = lp.streams.slots.get(key).is_none_or(|slot| slot.output.is_some());
    if busy || !write_batch::push(lp, key) {
        return;
    }
    for _ in 0..WRITES_PER_EVENT {
        let Some(slot) = lp.streams.slots.get(key) else { return };
        if slot.flags.contains(Flags::CONNECTING) {
            return;
        }
        let Some(write) = slot.writes.first() else { break };
        let progress = push_first(lp, key, write);
        match progress {
            Progress::Complete => finish_request(lp, key, write, None),
            Progress::Blocked => break,
            Progress::Refused(error) => finish_request(lp, key, write, Some(error)),
            Progress::Failed(error) => {
                writing_failed(lp, key, write, error);
                break;
            }
        }
    }
}

/// Fails a write and all writes behind it, which would otherwise follow a partial write.
pub(in crate::streams) fn writing_failed<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    write: Token,
    error: io::Error,
) {
    let behind = error::same(&error);
    finish_request(lp, key, write, Some(error));
    fail_writes(lp, key, || error::same(&behind));
}

/// Writes as many bytes of the first write as the kernel takes.
fn push_first<B: Backend>(lp: &mut Loop<B>, key: Token, write: Token) -> Progress {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return Progress::Blocked };
    if slot.is_file(write) {
        return send_file::push_file(lp, key, write);
    }
    let Some(request) = lp.streams.requests.get_mut(write) else {
        return Progress::Blocked;
    };
    let Some(socket) = &slot.socket else { return Progress::Blocked };
    let before = request.left;
    if slot.passing.is_none() {
        let progress = push(socket, request, slot.flags.contains(Flags::BLOCKING));
        slot.write_queue_size -= before - request.left;
        return progress;
    }
    let progress = handle_passing::push_with_handles(lp, key, write);
    if let Some(slot) = lp.streams.slots.get_mut(key)
        && let Some(request) = lp.streams.requests.get(write)
    {
        slot.write_queue_size -= before - request.left;
    }
    progress
}

/// Calls back for the requests that are done.
#[inline]
pub(in crate::streams) fn complete_requests<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let Some(slot) = lp.streams.slots.get(key) else { return };
    // Requests that the callbacks below finish wait for the next pending phase.
    let Some(last) = slot.done.last() else { return };
    if slot.completed_writes > 0 {
        // These are before it. The pending phase calls back for them first.
        return streams::schedule_pending(lp, key);
    }
    loop {
        let Some(slot) = lp.streams.slots.get_mut(key) else { return exchange::note() };
        let Some(first) = slot.done.first() else { return };
        slot.done.unlink(&mut lp.streams.requests, first);
        let request = request_queue::remove(&mut lp.streams.requests, first);
        let Some(mut request) = request else { return };
        slot.write_queue_size -= request.left;
        lp.active_requests -= 1;
        let result = request.error.take().map_or(Ok(request.moved), Err);
        lp.streams.reported_write = Some((first, request.moved));
        let buffered = request.into_buffered();
        // If the callback panics, the rest calls back in the next pending phase.
        lp.guarded(key, streams::schedule_pending, |lp| buffered.complete(lp, key, result));
        lp.streams.reported_write = None;
        if first == last {
            return;
        }
    }
}

/// Writes without queueing. Returns the number of bytes written.
#[inline]
pub(in crate::streams) fn try_write<B: Backend>(
    lp: &Loop<B>,
    key: Token,
    bufs: &[IoSlice<'_>],
) -> io::Result<usize> {
    send(lp.streams.idle_writer(key)?, &bufs[..bufs.len().min(MAX_PIECES)])
}

/// Writes as many bytes as the kernel takes.
pub(in crate::streams) fn push<B: Backend>(
    socket: &Transport,
    request: &mut IoRequest<B>,
    blocking: bool,
) -> Progress {
    while request.left > 0 {
        let (result, offered) = with_slices(request, |bufs| send(socket, bufs));
        match result {
            Ok(sent) => {
                advance(request, sent);
                if sent < offered && !blocking {
                    return Progress::Blocked;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Progress::Blocked,
            Err(error) => return Progress::Failed(error),
        }
    }
    Progress::Complete
}

/// Calls `send` with the next pieces; returns its result, and the number of bytes offered.
pub(in crate::streams) fn with_slices<B: Backend>(
    request: &IoRequest<B>,
    send: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
) -> (io::Result<usize>, usize) {
    let pieces = request.buffered().pieces();
    if pieces - request.piece == 1 {
        let bytes = &request.buffered().piece(request.piece)[request.offset..];
        return (send(&[IoSlice::new(bytes)]), bytes.len());
    }
    let mut slices = [IoSlice::new(&[]); PIECES_PER_CALL];
    let (mut count, mut offered, mut skip) = (0, 0, request.offset);
    for (slice, index) in slices.iter_mut().zip(request.piece..pieces) {
        *slice = IoSlice::new(&request.buffered().piece(index)[skip..]);
        skip = 0;
        offered += slice.len();
        count += 1;
    }
    (send(&slices[..count]), offered)
}

/// Counts `sent` bytes as written, and moves to the next byte.
pub(in crate::streams) fn advance<B: Backend>(request: &mut IoRequest<B>, sent: usize) {
    request.moved += sent;
    request.left -= sent;
    if request.left == 0 {
        return;
    }
    request.offset += sent;
    loop {
        let len = request.buffered().piece(request.piece).len();
        if request.offset < len {
            return;
        }
        request.offset -= len;
        request.piece += 1;
    }
}

/// Sends by one system call, repeated if a signal interrupts it. A temporary lack of kernel memory
/// is reported as `WouldBlock`.
#[inline]
pub(in crate::streams) fn send(socket: &Transport, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    match socket.send(bufs) {
        Ok(sent) => Ok(sent),
        Err(error) => send_failed(socket, bufs, error),
    }
}

#[cold]
fn send_failed(socket: &Transport, bufs: &[IoSlice<'_>], error: io::Error) -> io::Result<usize> {
    if error.kind() == io::ErrorKind::Interrupted {
        return uninterrupted(|| socket.send(bufs)).map_err(map_send_error);
    }
    Err(map_send_error(error))
}

fn map_send_error(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(sys::NO_BUFFER) => io::ErrorKind::WouldBlock.into(),
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_kernel_memory_is_a_socket_that_would_block() {
        let lack = map_send_error(io::Error::from_raw_os_error(sys::NO_BUFFER));
        assert_eq!(lack.kind(), io::ErrorKind::WouldBlock);
        let other = map_send_error(io::Error::from_raw_os_error(sys::code::ENOTCONN));
        assert_eq!(other.raw_os_error(), Some(sys::code::ENOTCONN));
    }
}
