//! Reading: pushed with lent or late memory, or pulled into memory that the request owns.

use std::io;

use poll_core::{Backend, Token};

use super::stored::Stored;
use super::transfers::{State, Transfer};
use super::{Flags, Kind, Passing, Stream, StreamSlot, uninterrupted};
use crate::buffers::IoBufMut;
use crate::callback::{Argument, Lending};
use crate::operations::Done;
use crate::sys::Transport;
use crate::{Loop, error, sys};

/// How much is read at once, and what late memory is advised to have.
pub(crate) const READ_SIZE: usize = 64 * 1024;

/// The loop's own memory to read into.
pub(crate) type Scratch = [u8; READ_SIZE];

/// Reads for one readiness event, so that one busy stream does not starve the rest.
pub(super) const READS_PER_EVENT: usize = 32;

/// A read that has not called back: the key to [cancel](Read::cancel) it.
///
/// ```
/// use uv_core::{Handle, Loop, Read, RunMode, Stream, Tcp, is_cancelled};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (one, other) = Tcp::pair(&mut lp)?;
/// let read: Read = one.read(&mut lp, vec![0; 4096], move |lp, one, count, buffer| {
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
pub struct Read(Token);

impl Read {
    /// Gives the read up. Its callback comes all the same, in the pending phase, with
    /// `ECANCELED` and the buffer; or, if the backend was reading at that moment, with what it
    /// had read.
    ///
    /// # Errors
    ///
    /// `NotFound` if it has called back, or is about to.
    pub fn cancel<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        lp.cancel_transfer(self.0, State::Reading).map(drop)
    }
}

/// Who is called when there is something to read.
pub(super) type Reader<B> = Lending<B, Input>;

/// What a reader is given: what was read, or nothing if it reads by itself, into memory that it
/// allocates late.
pub(super) struct Input;

impl Argument for Input {
    type For<'a> = Option<io::Result<&'a [u8]>>;
}

pub(super) fn start<S: Stream, B: Backend>(
    stream: S,
    lp: &mut Loop<B>,
    mut callback: impl FnMut(&mut Loop<B>, S, io::Result<&[u8]>) + 'static,
) -> io::Result<()> {
    let reader = move |lp: &mut Loop<B>, read: Option<io::Result<&[u8]>>| {
        if let Some(result) = read {
            callback(lp, stream, result);
        }
    };
    lp.start_reading(stream.stream_key(), Flags::READING, Reader::new(reader))
}

pub(super) fn start_with<S: Stream, B: Backend, T: IoBufMut>(
    stream: S,
    lp: &mut Loop<B>,
    mut alloc: impl FnMut(&mut Loop<B>, S, usize) -> T + 'static,
    mut callback: impl FnMut(&mut Loop<B>, S, io::Result<usize>, T) + 'static,
) -> io::Result<()> {
    let reader = move |lp: &mut Loop<B>, _: Option<io::Result<&[u8]>>| {
        let key = stream.stream_key();
        for _ in 0..READS_PER_EVENT {
            let mut buf = alloc(lp, stream, READ_SIZE);
            // Whatever `alloc` did, its buffer goes to exactly one callback.
            let (result, full) = lp.receive_late(key, buf.memory());
            callback(lp, stream, result, buf);
            if !full || !lp.goes_on_reading(key) {
                return;
            }
        }
    };
    lp.start_reading(stream.stream_key(), Flags::READING | Flags::LATE, Reader::new(reader))
}

pub(super) fn pull<S: Stream, B: Backend, T: IoBufMut>(
    stream: S,
    lp: &mut Loop<B>,
    mut buf: T,
    callback: impl FnOnce(&mut Loop<B>, S, io::Result<usize>, T) + 'static,
) -> io::Result<Read> {
    if buf.memory().is_empty() {
        let why = "a read needs a buffer that is not empty";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let told = move |lp: &mut Loop<B>, key, result, buf| {
        callback(lp, S::from_stream_key(key), result, buf);
    };
    lp.queue_read(stream.stream_key(), Stored::reading(buf, told)).map(Read)
}

/// What a read gave.
struct Received {
    /// `None` if there was nothing.
    result: Option<io::Result<usize>>,
    /// The memory came back full: there may be more.
    full: bool,
}

/// What was lent.
enum Lent {
    /// As much as there is memory for: there may be more.
    Full,
    /// What was left, if anything was.
    Rest,
    /// The end of file, or an error.
    End,
    /// The stream is not to be read.
    Nothing,
}

impl Received {
    const NOTHING: Received = Received { result: None, full: false };
}

impl<B: Backend> StreamSlot<B> {
    /// Reads once. At the end of file and on errors, pushed reading is over.
    #[inline(always)] // A part of every event.
    fn receive(&mut self, memory: &mut [u8], active_handles: &mut usize) -> Received {
        let Some(socket) = &self.socket else { return Received::NOTHING };
        let passing = match self.kind {
            Kind::Pipe => self.passing.as_deref_mut(),
            Kind::Tcp | Kind::Tty => None,
        };
        match receive(socket, passing, memory) {
            Ok(count @ 1..) => {
                self.pace.came(count);
                let full = count == memory.len() && !self.flags.contains(Flags::BLOCKING);
                Received { result: Some(Ok(count)), full }
            }
            result => self.received_no_bytes(result, active_handles),
        }
    }

    #[cold]
    fn received_no_bytes(
        &mut self,
        result: io::Result<usize>,
        active_handles: &mut usize,
    ) -> Received {
        match &result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Received::NOTHING,
            Err(_) => self.flags -= Flags::READABLE | Flags::WRITABLE,
            Ok(_) => {}
        }
        self.stop_reading_at_end(active_handles);
        Received { result: Some(result), full: false }
    }

    /// No more is read. The reader is running, or about to, so that there is none to drop.
    fn stop_reading_at_end(&mut self, active_handles: &mut usize) {
        self.flags -= Flags::READING | Flags::LATE;
        self.update_active(active_handles);
    }

    /// Puts back the reader that was running, unless reading was stopped or started anew; true
    /// if it is back.
    #[inline]
    fn put_back(&mut self, reader: Option<Reader<B>>) -> bool {
        let goes_on = self.flags.contains(Flags::READING) && self.reader.is_none();
        if goes_on {
            self.reader = reader;
        }
        goes_on
    }
}

impl<B: Backend> Loop<B> {
    fn start_reading(&mut self, key: Token, flags: Flags, reader: Reader<B>) -> io::Result<()> {
        let slot = self.streams.open(key)?;
        if slot.flags.contains(Flags::READING) || !slot.reads.is_empty() {
            return Err(error::already("the stream is being read"));
        }
        if !slot.flags.contains(Flags::READABLE) {
            return Err(error::not_connected());
        }
        slot.flags |= flags;
        slot.reader = Some(reader);
        slot.update_active(&mut self.active_handles);
        if !slot.arrivals.is_empty() {
            self.feed_stream(key);
        }
        self.arm_stream(key).inspect_err(|_| self.stop_reading(key))
    }

    /// Stops reading; a stream that is not read stays so.
    pub(super) fn stop_reading(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        slot.flags -= Flags::READING | Flags::LATE;
        slot.update_active(&mut self.active_handles);
        let reader = slot.reader.take();
        self.rearm_stream(key);
        // Last: dropping what it captured may be anything.
        drop(reader);
    }

    fn queue_read(&mut self, key: Token, stored: Stored<B>) -> io::Result<Token> {
        let (slot, transfers) = self.streams.open_with_transfers(key)?;
        if slot.flags.contains(Flags::READING) {
            return Err(error::already("the stream is being read"));
        }
        if !slot.flags.contains(Flags::READABLE) {
            return Err(error::not_connected());
        }
        let read = transfers.insert(Transfer::new(stored, key, State::Reading, 0));
        slot.reads.push(transfers, read);
        self.active_requests += 1;
        if !slot.arrivals.is_empty() {
            self.feed_stream(key);
        }
        if let Err(error) = self.arm_stream(key) {
            if let Some(slot) = self.streams.slots.get_mut(key) {
                slot.reads.unlink(&mut self.streams.transfers, read);
            }
            self.active_requests -= 1;
            drop(self.streams.transfers.remove(read));
            return Err(error);
        }
        Ok(read)
    }

    /// There is something to read, or the end of file, or an error.
    pub(super) fn read_ready(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        if !slot.flags.contains(Flags::READING) {
            return self.serve_reads(key);
        }
        let late = slot.flags.contains(Flags::LATE);
        if !late && !self.has_arrivals(key) {
            for _ in 0..READS_PER_EVENT {
                // What an operation is receiving comes first.
                let lent = self.lend_read(key, |slot| slot.input.is_none());
                if !matches!(lent, Lent::Full) {
                    break;
                }
            }
            return;
        }
        let Some(mut reader) = self.streams.slots.get_mut(key).and_then(|it| it.reader.take())
        else {
            return;
        };
        if late {
            self.call_reader(&mut reader, key, None);
        } else {
            self.lend_arrivals(key, &mut |lp: &mut Loop<B>, result| {
                lp.call_reader(&mut reader, key, Some(result));
            });
        }
        if let Some(slot) = self.streams.slots.get_mut(key) {
            slot.put_back(Some(reader));
        }
    }

    /// The usual event: what can be read is lent, and the stream waits for more. False if this
    /// stream waits for something else.
    #[inline]
    pub(super) fn lend_only(&mut self, key: Token) -> bool {
        for number in 0..READS_PER_EVENT {
            match self.lend_read(key, StreamSlot::waits_for_bytes_only) {
                Lent::Full => {}
                Lent::Rest => break,
                Lent::End => {
                    self.rearm_stream(key);
                    break;
                }
                // What the callback has changed, it has armed.
                Lent::Nothing => return number > 0,
            }
        }
        true
    }

    /// Reads once into the loop's own memory and lends what came, if the stream is as it must be
    /// for that.
    #[inline(always)] // So that the usual event is one function.
    fn lend_read(&mut self, key: Token, may: impl FnOnce(&StreamSlot<B>) -> bool) -> Lent {
        let Some(slot) = self.streams.slots.get_mut(key) else { return Lent::Nothing };
        if !may(slot) {
            return Lent::Nothing;
        }
        // Both are put back when the callback has returned.
        let mut taken = slot.reader.take();
        let Some(reader) = &mut taken else { return Lent::Nothing };
        let mut scratch = self.scratch.take().unwrap_or_else(new_scratch);
        let Received { result, full } = slot.receive(&mut scratch[..], &mut self.active_handles);
        let ended = !matches!(result, None | Some(Ok(1..)));
        if let Some(result) = result {
            let result = result.map(|count| &scratch[..count]);
            self.call_reader(reader, key, Some(result));
        }
        self.scratch = Some(scratch);
        let Some(slot) = self.streams.slots.get_mut(key) else { return Lent::End };
        match slot.put_back(taken) {
            true if full => Lent::Full,
            _ if ended => Lent::End,
            _ => Lent::Rest,
        }
    }

    /// Calls a reader that was taken out of its stream. One that panics is not called again.
    #[inline]
    fn call_reader(&mut self, reader: &mut Reader<B>, key: Token, read: Option<io::Result<&[u8]>>) {
        self.call_with(reader, read, key, |lp, key| lp.stop_reading(key));
    }

    /// The callback under way has neither stopped reading nor started anew.
    #[inline]
    pub(super) fn goes_on_reading(&self, key: Token) -> bool {
        self.streams
            .slots
            .get(key)
            .is_some_and(|slot| slot.flags.contains(Flags::READING) && slot.reader.is_none())
    }

    fn receive_late(&mut self, key: Token, memory: &mut [u8]) -> (io::Result<usize>, bool) {
        if !self.goes_on_reading(key) {
            return (Err(error::cancelled()), false);
        }
        if memory.is_empty() {
            return (Err(error::no_buffer()), false);
        }
        if let Some(result) = self.copy_arrival(key, memory) {
            match &result {
                Ok(1..) => {}
                Ok(_) => self.stop_reading_at_end(key),
                Err(_) => self.fail_reading(key),
            }
            return (result, self.has_arrivals(key));
        }
        let Some(slot) = self.streams.slots.get_mut(key) else {
            return (Err(error::cancelled()), false);
        };
        // What an operation is receiving comes first.
        if slot.input.is_some() {
            return (Err(io::ErrorKind::WouldBlock.into()), false);
        }
        let Received { result, full } = slot.receive(memory, &mut self.active_handles);
        (result.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into())), full)
    }

    /// The reader is running, so that there is none to drop.
    pub(super) fn stop_reading_at_end(&mut self, key: Token) {
        if let Some(slot) = self.streams.slots.get_mut(key) {
            slot.stop_reading_at_end(&mut self.active_handles);
        }
    }

    /// As above, after an error.
    pub(super) fn fail_reading(&mut self, key: Token) {
        if let Some(slot) = self.streams.slots.get_mut(key) {
            slot.flags -= Flags::READABLE | Flags::WRITABLE;
        }
        self.stop_reading_at_end(key);
    }

    /// Fills the buffers of the reads that wait.
    fn serve_reads(&mut self, key: Token) {
        for _ in 0..READS_PER_EVENT {
            if self.has_arrivals(key) {
                let Some(mut transfer) = self.take_read(key) else { return };
                let arrived = self.copy_arrival(key, transfer.stored.memory());
                self.tell_read(key, transfer, arrived.unwrap_or(Ok(0)));
                continue;
            }
            let Some(slot) = self.streams.slots.get_mut(key) else { return };
            let Some(read) = slot.reads.first() else { return };
            let Some(transfer) = self.streams.transfers.get_mut(read) else { return };
            let Some(socket) = slot.socket.as_ref().filter(|_| slot.input.is_none()) else {
                return;
            };
            let memory = transfer.stored.memory();
            let result = receive(socket, slot.passing.as_deref_mut(), memory);
            let short = matches!(result, Ok(count) if count > 0 && count < memory.len());
            let drained = short || slot.flags.contains(Flags::BLOCKING);
            if let Err(error) = &result
                && error.kind() == io::ErrorKind::WouldBlock
            {
                return;
            }
            let Some(transfer) = self.take_read(key) else { return };
            self.tell_read(key, transfer, result);
            if drained {
                return;
            }
        }
    }

    /// The operation that reads for the first request is over.
    pub(super) fn read_done(&mut self, key: Token, done: Done) {
        let Some(slot) = self.streams.slots.get(key) else { return };
        let first = slot.reads.first().and_then(|read| self.streams.transfers.get(read));
        let result = match done.result {
            Err(code) if sys::is_passing(code) => match first {
                Some(read) if read.cancelled => Err(error::cancelled()),
                _ => {
                    // It is read in another way now, or started again.
                    self.operations.told_nobody += 1;
                    return;
                }
            },
            Err(code) => Err(io::Error::from_raw_os_error(code)),
            Ok(count) => Ok(count),
        };
        if slot.base.is_closing() {
            self.operations.told_nobody += 1;
            return;
        }
        if let Some(transfer) = self.take_read(key) {
            self.tell_read(key, transfer, result);
        }
    }

    fn take_read(&mut self, key: Token) -> Option<Transfer<B>> {
        let slot = self.streams.slots.get_mut(key)?;
        let read = slot.reads.first()?;
        slot.reads.unlink(&mut self.streams.transfers, read);
        self.streams.transfers.remove(read)
    }

    fn tell_read(&mut self, key: Token, transfer: Transfer<B>, result: io::Result<usize>) {
        let lost = result.as_ref().is_err_and(|error| error.raw_os_error() != Some(sys::CANCELLED));
        if lost && let Some(slot) = self.streams.slots.get_mut(key) {
            slot.flags -= Flags::READABLE | Flags::WRITABLE;
        }
        self.active_requests -= 1;
        // Those behind it must not wait for more to come.
        let stored = transfer.stored;
        self.guarded(key, Loop::feed_stream, |lp| stored.tell(lp, key, result));
    }
}

/// A new one, as there was none yet, or a panic has lost it.
#[cold]
fn new_scratch() -> Box<Scratch> {
    // On the heap from the beginning.
    let memory = vec![0; READ_SIZE].into_boxed_slice();
    memory.try_into().unwrap_or_else(|_| unreachable!("it is of that size"))
}

/// One system call, unless a signal interrupts it.
#[inline]
fn receive(
    socket: &Transport,
    passing: Option<&mut Passing>,
    memory: &mut [u8],
) -> io::Result<usize> {
    match passing {
        Some(passing) => uninterrupted(|| passing.receive(socket, memory)),
        None => uninterrupted(|| socket.receive(memory)),
    }
}
