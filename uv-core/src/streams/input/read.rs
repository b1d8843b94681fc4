//! Reading: pushed into memory that the loop lends or a callback allocates, or pulled into memory
//! that the request owns.

use std::io;

use poll_core::{Backend, Token};

use super::recv_queue::RecvChunk;
use crate::event_loop::{Done, Piece, exchange};
use crate::storage::{Arena, Argument, InlineFnMutRef, IoBufMut};
use crate::streams::buffered_request::BufferedRequest;
use crate::streams::input::recv_queue;
use crate::streams::output::write::finish_request;
use crate::streams::request_queue::{self, IoRequest, State};
use crate::streams::{
    self, Flags, Kind, Passing, Stream, StreamSlot, Streams, arm, handover, output, uninterrupted,
};
use crate::sys::Transport;
use crate::{Loop, error, sys};

/// The number of bytes that one call reads, and the size that is suggested to allocation callbacks.
pub(crate) const READ_SIZE: usize = 64 * 1024;

/// The read buffer of the loop, shared by its streams.
pub(crate) type Scratch = [u8; READ_SIZE];

/// The maximal number of reads for one readiness event, so that a busy stream does not starve the
/// others.
pub(in crate::streams) const READS_PER_EVENT: usize = 32;

/// A read that has not called back: the key to [cancel](ReadRequest::cancel) it.
///
/// ```
/// use uv_core::{Handle, Loop, ReadRequest, RunMode, Stream, Tcp, is_cancelled};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (one, other) = Tcp::pair(&mut lp)?;
/// let read: ReadRequest = one.read(&mut lp, vec![0; 4096], move |lp, one, count, buffer| {
///     assert!(is_cancelled(&count.unwrap_err()));
///     println!("{} bytes of memory are back", buffer.len());
///     one.close(lp).unwrap();
///     other.close(lp).unwrap();
/// })?;
/// read.cancel(&mut lp)?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ReadRequest(Token);

impl ReadRequest {
    /// Cancels the read. Its callback still runs, later, with `ECANCELED` and the buffer, whose
    /// content is unspecified.
    ///
    /// No byte is lost: what an operation of the backend receives before it ends is for the next
    /// reader, in order. So is an error of the connection.
    ///
    /// # Errors
    ///
    /// `NotFound` if the callback has run or is pending, or the read is cancelled already.
    #[doc(alias = "uv_cancel")]
    pub fn cancel<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        output::write::cancel_request(lp, self.0, State::Reading).map(drop)
    }
}

/// The read callback of a stream.
pub(in crate::streams) type Reader<B> = InlineFnMutRef<B, Input>;

/// The argument of a reader: the result of a read; `None` for a reader that allocates memory and
/// reads into it itself.
pub(in crate::streams) struct Input;

impl Argument for Input {
    type For<'a> = Option<io::Result<&'a [u8]>>;
}

pub(in crate::streams) fn start<S: Stream, B: Backend>(
    stream: S,
    lp: &mut Loop<B>,
    mut callback: impl FnMut(&mut Loop<B>, S, io::Result<&[u8]>) + 'static,
) -> io::Result<()> {
    let reader = move |lp: &mut Loop<B>, read: Option<io::Result<&[u8]>>| {
        if let Some(result) = read {
            callback(lp, stream, result);
        }
    };
    start_reading(lp, stream.stream_key(), Flags::READING, Reader::new(reader))
}

pub(in crate::streams) fn start_with<S: Stream, B: Backend, T: IoBufMut>(
    stream: S,
    lp: &mut Loop<B>,
    mut alloc: impl FnMut(&mut Loop<B>, S, usize) -> T + 'static,
    mut callback: impl FnMut(&mut Loop<B>, S, io::Result<usize>, T) + 'static,
) -> io::Result<()> {
    let reader = move |lp: &mut Loop<B>, read: Option<io::Result<&[u8]>>| {
        if read.is_some() {
            return; // Unreachable, but it spares the code that would drop an error.
        }
        let key = stream.stream_key();
        for _ in 0..READS_PER_EVENT {
            let mut buf = alloc(lp, stream, READ_SIZE);
            // The buffer goes to exactly one callback, even if `alloc` has stopped reading.
            let (result, full) = receive_allocated(lp, key, buf.memory());
            callback(lp, stream, result, buf);
            if !full || !lp.streams.is_still_reading(key) {
                return;
            }
        }
    };
    start_reading(lp, stream.stream_key(), Flags::READING | Flags::ALLOC, Reader::new(reader))
}

pub(in crate::streams) fn pull<S: Stream, B: Backend, T: IoBufMut>(
    stream: S,
    lp: &mut Loop<B>,
    mut buf: T,
    callback: impl FnOnce(&mut Loop<B>, S, io::Result<usize>, T) + 'static,
) -> io::Result<ReadRequest> {
    check_pull(lp, stream.stream_key(), &mut buf)?;
    let complete = move |lp: &mut Loop<B>, key, result, buf| {
        let stream = S::from_stream_key(lp, key);
        callback(lp, stream, result, buf);
    };
    queue_read(lp, stream.stream_key(), BufferedRequest::reading(buf, complete)).map(ReadRequest)
}

/// Checks that a stream takes a read into this buffer.
pub(in crate::streams) fn check_pull<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    buf: &mut impl IoBufMut,
) -> io::Result<()> {
    if buf.memory().is_empty() {
        return Err(error::empty_buffer());
    }
    let slot = lp.streams.open(key)?;
    if slot.flags.contains(Flags::READING) {
        return Err(error::already());
    }
    if !slot.flags.contains(Flags::READABLE) {
        return Err(error::not_connected());
    }
    Ok(())
}

/// The bytes that an operation has received for a cancelled read: the next reader gets them. The end
/// of file needs no copy: the kernel reports it again.
fn unread(memory: &[u8], result: &io::Result<usize>) -> Option<RecvChunk> {
    match result {
        Ok(0) => None,
        Ok(count) => Some(RecvChunk::Kept(memory[..*count].to_vec(), 0)),
        Err(error) if error.raw_os_error().is_some_and(sys::is_transient) => None,
        Err(error) => Some(RecvChunk::Failed(error::same(error))),
    }
}

/// The outcome of a read.
struct Received {
    result: io::Result<usize>,
    /// All of the memory was filled: more bytes may be available.
    full: bool,
}

/// The outcome of a read whose bytes were lent to the reader.
enum Lent {
    /// The memory was filled: more bytes may be available.
    Full,
    /// The socket is drained.
    Rest,
    /// The end of file, or an error.
    End,
    /// A reader that allocates was called instead.
    ByReader,
    /// The stream was not read.
    Nothing,
}

impl<B: Backend> StreamSlot<B> {
    /// Reads once. The end of file and errors end pushed reading.
    #[inline(always)] // See `lend_read`.
    fn receive(&mut self, memory: &mut [u8], active_handles: &mut usize) -> Received {
        let Some(socket) = &self.socket else {
            return Received { result: Err(io::ErrorKind::WouldBlock.into()), full: false };
        };
        let result = match self.kind {
            // Other streams have nothing there, and it is in another cache line.
            Kind::Pipe => receive(socket, self.passing.as_deref_mut(), memory),
            // A signal that interrupts it is as rare as an error, and no condition of its own.
            Kind::Tcp | Kind::Tty => socket.receive(memory),
        };
        match result {
            Ok(count @ 1..) => {
                let full = count == memory.len() && !self.flags.contains(Flags::BLOCKING);
                Received { result: Ok(count), full }
            }
            result => self.received_no_bytes(result, memory, active_handles),
        }
    }

    #[cold]
    fn received_no_bytes(
        &mut self,
        result: io::Result<usize>,
        memory: &mut [u8],
        active_handles: &mut usize,
    ) -> Received {
        let full = false;
        if let Err(error) = &result
            && error.kind() == io::ErrorKind::Interrupted
        {
            return self.receive(memory, active_handles);
        }
        match &result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Received { result, full };
            }
            Err(_) => self.flags -= Flags::READABLE | Flags::WRITABLE,
            Ok(_) => {}
        }
        self.stop_reading_at_end(active_handles);
        Received { result, full }
    }

    /// # Errors
    ///
    /// `EALREADY` if the stream is being read.
    pub(super) fn check_not_read(&self, requests: &Arena<IoRequest<B>>) -> io::Result<()> {
        // A cancelled read waits for its operation to end.
        let first = self.reads.first().and_then(|read| requests.get(read));
        let pending = first.is_some_and(|read| !read.cancelled || read.next().is_some());
        let is_read = self.flags.contains(Flags::READING) || pending;
        if is_read { Err(error::already()) } else { Ok(()) }
    }

    /// # Errors
    ///
    /// `EALREADY` if the stream is being read, `NotConnected` if it is not connected.
    fn check_readable(&self, requests: &Arena<IoRequest<B>>) -> io::Result<()> {
        self.check_not_read(requests)?;
        if !self.flags.contains(Flags::READABLE) {
            return Err(error::not_connected());
        }
        Ok(())
    }

    /// Ends pushed reading. The reader is running or about to run, so it is not in the slot and
    /// need not be dropped.
    fn stop_reading_at_end(&mut self, active_handles: &mut usize) {
        self.flags -= Flags::READING | Flags::ALLOC;
        self.update_active(active_handles);
    }

    /// Puts back the reader that was running, unless reading was stopped or restarted. Returns
    /// whether it was put back.
    #[inline]
    fn put_back(&mut self, reader: Option<Reader<B>>) -> bool {
        let continues = self.flags.contains(Flags::READING) && self.reader.is_none();
        if continues {
            self.reader = reader;
        }
        continues
    }
}

impl<B: Backend> Streams<B> {
    #[inline]
    pub(in crate::streams) fn put_back_reader(&mut self, key: Token, reader: Reader<B>) {
        match self.slots.get_mut(key) {
            Some(slot) => drop(slot.put_back(Some(reader))),
            None => exchange::note(),
        }
    }

    /// True if the running callback has neither stopped nor restarted reading.
    #[inline]
    pub(in crate::streams) fn is_still_reading(&self, key: Token) -> bool {
        self.slots
            .get(key)
            .is_some_and(|slot| slot.flags.contains(Flags::READING) && slot.reader.is_none())
    }

    /// Ends pushed reading at the end of file. The reader is running, so it need not be dropped.
    pub(in crate::streams) fn stop_reading_at_end(&mut self, active: &mut usize, key: Token) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.stop_reading_at_end(active);
        }
    }

    /// Ends pushed reading after an error.
    pub(in crate::streams) fn fail_reading(&mut self, active: &mut usize, key: Token) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.flags -= Flags::READABLE | Flags::WRITABLE;
        }
        self.stop_reading_at_end(active, key);
    }

    /// Removes the first read request, unless an operation has its buffer.
    fn take_read(&mut self, key: Token) -> Option<IoRequest<B>> {
        let slot = self.slots.get_mut(key)?;
        let read = slot.reads.first()?;
        if self.requests.get(read)?.is_lent() {
            return None;
        }
        slot.reads.unlink(&mut self.requests, read);
        request_queue::remove(&mut self.requests, read)
    }
}

fn start_reading<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    flags: Flags,
    reader: Reader<B>,
) -> io::Result<()> {
    let (slot, requests) = lp.streams.open_with_requests(key)?;
    slot.check_readable(requests)?;
    slot.flags |= flags;
    slot.reader = Some(reader);
    slot.update_active(&mut lp.active_handles);
    if !slot.recv_queue.is_empty() {
        streams::schedule_pending(lp, key);
    }
    arm::update(lp, key).inspect_err(|_| stop_reading(lp, key))
}

/// Stops pushed reading. Does nothing to a stream that is not reading.
pub(in crate::streams) fn stop_reading<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return };
    slot.flags -= Flags::READING | Flags::ALLOC;
    slot.update_active(&mut lp.active_handles);
    let reader = slot.reader.take();
    arm::update_or_fail(lp, key);
    // Last: destructors of captured values may run any code.
    drop(reader);
}

fn queue_read<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    buffered: BufferedRequest<B>,
) -> io::Result<Token> {
    let (slot, requests) = lp.streams.open_with_requests(key)?;
    let read = requests.insert(IoRequest::new(buffered, key, State::Reading, 0));
    slot.reads.push(requests, read);
    lp.active_requests += 1;
    if !slot.recv_queue.is_empty() {
        streams::schedule_pending(lp, key);
    }
    let armed = arm::update(lp, key);
    let lent = lp.streams.requests.get(read).is_some_and(IoRequest::is_lent);
    if let Err(error) = armed
        && !lent
    {
        finish_request(lp, key, read, Some(error));
    }
    Ok(read)
}

/// Reads from a stream that is readable or has data received.
#[inline]
pub(in crate::streams) fn ready<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return };
    if !slot.flags.contains(Flags::READING) {
        return serve_reads(lp, key);
    }
    let allocates = slot.flags.contains(Flags::ALLOC);
    if !allocates && !lp.streams.has_received(key) {
        for _ in 0..READS_PER_EVENT {
            // The bytes that an operation is receiving precede those that a read would return.
            let lent = lend_read::<B, false>(lp, key);
            if !matches!(lent, Lent::Full) {
                break;
            }
        }
        return;
    }
    let Some(mut reader) = lp.streams.slots.get_mut(key).and_then(|it| it.reader.take()) else {
        return stop_reading(lp, key); // An exchange of loops has lost it.
    };
    if allocates {
        call_reader(lp, &mut reader, key, None);
    } else {
        recv_queue::deliver_chunks(lp, key, &mut |lp: &mut Loop<B>, result| {
            call_reader(lp, &mut reader, key, Some(result));
        });
    }
    lp.streams.put_back_reader(key, reader);
}

/// Lends bytes in a buffer of the backend to a reader that was taken out of its stream.
#[inline]
pub(in crate::streams) fn lend_piece<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    mut reader: Reader<B>,
    piece: Piece,
) {
    lp.lend(piece, |lp, bytes| call_reader(lp, &mut reader, key, Some(Ok(bytes))));
    lp.streams.put_back_reader(key, reader);
}

/// How the fast path of a read event has ended.
pub(in crate::streams) enum FastPath {
    /// The stream waits for something else than bytes.
    NotTaken,
    /// Bytes were lent.
    Lent,
    /// A reader that allocates was called.
    Allocated,
}

/// The fast path of a read event: reads and lends the available bytes, without rearming.
#[inline]
pub(in crate::streams) fn fast_path<B: Backend>(lp: &mut Loop<B>, key: Token) -> FastPath {
    for number in 0..READS_PER_EVENT {
        match lend_read::<B, true>(lp, key) {
            Lent::Full => {}
            Lent::Rest => break,
            Lent::End => {
                arm::update_or_fail(lp, key);
                break;
            }
            Lent::ByReader => return FastPath::Allocated,
            // A callback that changed the stream has armed it.
            Lent::Nothing if number > 0 => break,
            Lent::Nothing => return FastPath::NotTaken,
        }
    }
    FastPath::Lent
}

/// Calls a reader that allocates and was taken out of its stream: it reads as often as it wants.
#[inline]
fn read_allocated<B: Backend>(lp: &mut Loop<B>, key: Token, mut taken: Option<Reader<B>>) -> Lent {
    let Some(reader) = &mut taken else { return Lent::Nothing };
    call_reader(lp, reader, key, None);
    let Some(slot) = lp.streams.slots.get_mut(key) else {
        exchange::note();
        return Lent::ByReader;
    };
    // Whatever else the callback has changed, it has armed the stream.
    let reads = slot.flags.contains(Flags::READING);
    if reads && slot.reader.is_none() {
        slot.reader = taken;
    } else if !reads {
        arm::update_or_fail(lp, key);
    }
    Lent::ByReader
}

/// Reads once into the loop's buffer and lends the bytes to the reader, if no operation receives. On
/// the fast path, only if the stream waits for nothing but bytes; a reader that allocates is called.
#[inline(always)] // The fast path is one function: 10 % of read/epoll (`bench count`).
fn lend_read<B: Backend, const FAST: bool>(lp: &mut Loop<B>, key: Token) -> Lent {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return Lent::Nothing };
    let lends = if FAST { slot.waits_for_bytes_only() } else { slot.input.is_none() };
    if !lends {
        if FAST && slot.waits_for_allocated_bytes_only() {
            let taken = slot.reader.take();
            return read_allocated(lp, key, taken);
        }
        return Lent::Nothing;
    }
    // The reader and the buffer are put back when the callback has returned.
    let mut taken = slot.reader.take();
    let Some(reader) = &mut taken else {
        stop_reading(lp, key); // An exchange of loops has lost it.
        return Lent::Nothing;
    };
    let mut scratch = lp.streams.scratch.take().unwrap_or_else(new_scratch);
    let Received { result, full } = slot.receive(&mut scratch[..], &mut lp.active_handles);
    let ended = match &result {
        Ok(0) => true,
        Ok(count) => {
            slot.recv_policy.record(*count);
            false
        }
        Err(error) => !would_block(error),
    };
    if result.is_ok() || ended {
        let result = result.map(|count| &scratch[..count]);
        call_reader(lp, reader, key, Some(result));
    }
    lp.streams.scratch = Some(scratch);
    let Some(slot) = lp.streams.slots.get_mut(key) else {
        exchange::note();
        return Lent::End;
    };
    match slot.put_back(taken) {
        true if full => Lent::Full,
        _ if ended => Lent::End,
        _ => Lent::Rest,
    }
}

/// Calls a reader that was taken out of its stream. A panic stops reading.
#[inline]
pub(in crate::streams) fn call_reader<B: Backend>(
    lp: &mut Loop<B>,
    reader: &mut Reader<B>,
    key: Token,
    read: Option<io::Result<&[u8]>>,
) {
    lp.call_with(reader, read, key, |lp, key| stop_reading(lp, key));
}

/// Reads once into memory that the program has allocated. The flag is true if more bytes may be
/// available.
#[inline(always)] // See `lend_read`.
fn receive_allocated<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    memory: &mut [u8],
) -> (io::Result<usize>, bool) {
    let Some(slot) = lp.streams.slots.get_mut(key) else {
        return (Err(error::cancelled()), false);
    };
    if !slot.flags.contains(Flags::READING) || slot.reader.is_some() {
        return (Err(error::cancelled()), false);
    }
    if memory.is_empty() {
        return (Err(error::no_buffer()), false);
    }
    if !slot.recv_queue.is_empty() {
        return receive_kept(lp, key, memory);
    }
    // The bytes that an operation is receiving precede those that a read would return.
    if slot.input.is_some() {
        return (Err(io::ErrorKind::WouldBlock.into()), false);
    }
    let Received { result, full } = slot.receive(memory, &mut lp.active_handles);
    (result, full)
}

#[cold]
fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Takes bytes that were received before.
#[cold]
fn receive_kept<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    memory: &mut [u8],
) -> (io::Result<usize>, bool) {
    let result = lp.streams.copy_received(key, memory).unwrap_or(Err(error::cancelled()));
    match &result {
        Ok(1..) => {}
        Ok(_) => lp.streams.stop_reading_at_end(&mut lp.active_handles, key),
        Err(_) => lp.streams.fail_reading(&mut lp.active_handles, key),
    }
    (result, lp.streams.has_received(key))
}

/// Serves the queued read requests.
fn serve_reads<B: Backend>(lp: &mut Loop<B>, key: Token) {
    for _ in 0..READS_PER_EVENT {
        if lp.streams.has_received(key) {
            let Some(mut request) = lp.streams.take_read(key) else { return };
            let arrived = lp.streams.copy_received(key, request.memory());
            complete_read(lp, key, request, arrived.unwrap_or(Ok(0)));
            continue;
        }
        let Some(slot) = lp.streams.slots.get_mut(key) else { return };
        let Some(read) = slot.reads.first() else { return };
        let Some(request) = lp.streams.requests.get_mut(read) else { return };
        let Some(socket) = slot.socket.as_ref().filter(|_| slot.input.is_none()) else {
            return;
        };
        let memory = request.memory();
        let result = receive(socket, slot.passing.as_deref_mut(), memory);
        let short = matches!(result, Ok(count) if count > 0 && count < memory.len());
        let drained = short || slot.flags.contains(Flags::BLOCKING);
        if let Err(error) = &result
            && error.kind() == io::ErrorKind::WouldBlock
        {
            return;
        }
        let Some(request) = lp.streams.take_read(key) else { return };
        complete_read(lp, key, request, result);
        if drained {
            return;
        }
    }
}

/// Handles the completion of the operation that reads for the first request. True if a callback
/// ran.
#[inline]
pub(in crate::streams) fn done<B: Backend>(lp: &mut Loop<B>, key: Token, done: Done) -> bool {
    let Some(slot) = lp.streams.slots.get(key) else { return false };
    let closing = slot.base.is_closing();
    let mut first = slot.reads.first().and_then(|read| lp.streams.requests.get_mut(read));
    if let Some(read) = &mut first {
        read.take_back();
    }
    let cancelled = first.as_ref().is_some_and(|read| read.cancelled);
    let result = match done.result {
        // The request is served by another call or operation.
        Err(code) if sys::is_transient(code) && !cancelled => None,
        Err(code) => Some(Err(io::Error::from_raw_os_error(code))),
        Ok(count) => Some(Ok(count)),
    };
    let Some(result) = result.filter(|_| !closing) else { return false };
    let unread = first.filter(|_| cancelled).and_then(|read| unread(read.memory(), &result));
    if let Some(chunk) = unread {
        lp.streams.queue_received(&mut lp.backend, key, chunk);
        streams::schedule_pending(lp, key);
    }
    if let Some(request) = lp.streams.take_read(key) {
        let result = if cancelled { Err(error::cancelled()) } else { result };
        complete_read(lp, key, request, result);
    }
    true
}

/// Reads without waiting.
pub(in crate::streams) fn try_read<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    memory: &mut [u8],
) -> io::Result<usize> {
    let (slot, requests) = lp.streams.open_with_requests(key)?;
    slot.check_readable(requests)?;
    if memory.is_empty() {
        return Err(error::empty_buffer());
    }
    if slot.flags.contains(Flags::CONNECTING) || !slot.reads.is_empty() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    // Bytes that an operation has received precede those that a call would return.
    if slot.input.is_some() && !slot.has_queued_input() {
        handover::collect_input(lp, key);
    }
    if let Some(result) = lp.streams.copy_received(key, memory) {
        if result.is_err() {
            lp.streams.fail_reading(&mut lp.active_handles, key);
        }
        return result;
    }
    let slot = lp.streams.open(key)?;
    if slot.input.is_some() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let result = slot.receive(memory, &mut lp.active_handles).result;
    if let Ok(count @ 1..) = result {
        slot.recv_policy.record(count);
    }
    result
}

/// Calls back for a read request that was removed.
fn complete_read<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    request: IoRequest<B>,
    result: io::Result<usize>,
) {
    let lost = result.as_ref().is_err_and(|error| error.raw_os_error() != Some(sys::CANCELLED));
    if lost && let Some(slot) = lp.streams.slots.get_mut(key) {
        slot.flags -= Flags::READABLE | Flags::WRITABLE;
    }
    lp.active_requests -= 1;
    // If the callback panics, the requests behind it are served in the next pending phase.
    let buffered = request.into_buffered();
    lp.guarded(key, streams::schedule_pending, |lp| buffered.complete(lp, key, result));
}

/// A new read buffer, for the first read and after a panic, which loses the buffer.
#[cold]
fn new_scratch() -> Box<Scratch> {
    // Allocated on the heap: a boxed array literal would pass through the stack.
    let memory = vec![0; READ_SIZE].into_boxed_slice();
    memory.try_into().unwrap_or_else(|_| unreachable!("its length is READ_SIZE"))
}

/// Receives by one system call, repeated if a signal interrupts it.
#[inline(always)] // See `lend_read`.
fn receive(
    socket: &Transport,
    passing: Option<&mut Passing>,
    memory: &mut [u8],
) -> io::Result<usize> {
    match passing {
        Some(passing) => receive_passed(socket, passing, memory),
        None => uninterrupted(|| socket.receive(memory)),
    }
}

fn receive_passed(
    socket: &Transport,
    passing: &mut Passing,
    memory: &mut [u8],
) -> io::Result<usize> {
    uninterrupted(|| passing.receive(socket, memory))
}
