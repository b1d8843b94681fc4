//! Reading: pushed with lent or late memory, or pulled into memory that the request owns.

use std::io;

use poll_core::{Backend, Token};

use super::stored::Stored;
use super::transfers::{State, Transfer};
use super::{Flags, Passing, Stream};
use crate::buffers::IoBufMut;
use crate::callback::Repeated;
use crate::sys::Transport;
use crate::{Loop, error};

/// How much is read at once, and what late memory is advised to have.
pub(crate) const READ_SIZE: usize = 64 * 1024;

/// Reads for one readiness event, so that one busy stream does not starve the rest.
const READS_PER_EVENT: usize = 32;

/// A read that has not called back: the key to [cancel](Read::cancel) it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Read(Token);

impl Read {
    /// Gives the read up. Its callback comes all the same, in the pending phase, with
    /// `ECANCELED` and the buffer.
    ///
    /// # Errors
    ///
    /// `NotFound` if it has called back, or is about to.
    pub fn cancel<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        lp.cancel_transfer(self.0, State::Reading).map(drop)
    }
}

pub(super) fn start<S: Stream, B: Backend>(
    stream: S,
    lp: &mut Loop<B>,
    mut callback: impl FnMut(&mut Loop<B>, S, io::Result<&[u8]>) + 'static,
) -> io::Result<()> {
    let reader = move |lp: &mut Loop<B>, key| {
        lp.lend_reads(key, |lp, result| callback(lp, stream, result));
    };
    lp.start_reading(stream.stream_key(), Repeated::new(reader))
}

pub(super) fn start_with<S: Stream, B: Backend, T: IoBufMut>(
    stream: S,
    lp: &mut Loop<B>,
    mut alloc: impl FnMut(&mut Loop<B>, S, usize) -> T + 'static,
    mut callback: impl FnMut(&mut Loop<B>, S, io::Result<usize>, T) + 'static,
) -> io::Result<()> {
    let reader = move |lp: &mut Loop<B>, key| {
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
    lp.start_reading(stream.stream_key(), Repeated::new(reader))
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

impl<B: Backend> Loop<B> {
    fn start_reading(&mut self, key: Token, reader: Repeated<B, Token>) -> io::Result<()> {
        let slot = self.streams.open(key)?;
        if slot.flags.contains(Flags::READING) || !slot.reads.is_empty() {
            return Err(error::already("the stream is being read"));
        }
        if !slot.flags.contains(Flags::READABLE) {
            return Err(error::not_connected());
        }
        slot.flags |= Flags::READING;
        slot.reader = Some(reader);
        slot.update_active(&mut self.active_handles);
        self.arm_stream(key).inspect_err(|_| self.stop_reading(key))
    }

    /// Stops reading; a stream that is not read stays so.
    pub(super) fn stop_reading(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        slot.flags -= Flags::READING;
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
        let Some(mut reader) = slot.reader.take() else { return };
        self.call(&mut reader, key, |lp, key| lp.stop_reading(key));
        if let Some(slot) = self.streams.slots.get_mut(key)
            && slot.flags.contains(Flags::READING)
        {
            slot.reader.get_or_insert(reader);
        }
    }

    /// Reads into the loop's own memory and lends what came.
    fn lend_reads(&mut self, key: Token, mut tell: impl FnMut(&mut Loop<B>, io::Result<&[u8]>)) {
        for _ in 0..READS_PER_EVENT {
            let mut scratch = self.take_scratch();
            let Received { result, full } = self.receive(key, &mut scratch);
            let nothing = result.is_none();
            if let Some(result) = result {
                tell(self, result.map(|count| &scratch[..count]));
            }
            self.scratch = scratch;
            if nothing || !full || !self.goes_on_reading(key) {
                return;
            }
        }
    }

    /// The callback under way has neither stopped reading nor started anew.
    fn goes_on_reading(&self, key: Token) -> bool {
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
        let Received { result, full } = self.receive(key, memory);
        (result.unwrap_or_else(|| Err(io::ErrorKind::WouldBlock.into())), full)
    }

    /// Reads once. At the end of file and on errors, pushed reading is over.
    fn receive(&mut self, key: Token, memory: &mut [u8]) -> Received {
        let Some(slot) = self.streams.slots.get_mut(key) else {
            return Received { result: None, full: false };
        };
        let Some(socket) = &slot.socket else {
            return Received { result: None, full: false };
        };
        let blocking = slot.flags.contains(Flags::BLOCKING);
        let result = receive(socket, slot.pipe.passing.as_deref_mut(), memory);
        let full = matches!(result, Ok(count) if count == memory.len()) && !blocking;
        match &result {
            Ok(1..) => {}
            Ok(_) => self.stop_reading_at_end(key),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Received { result: None, full: false };
            }
            Err(_) => {
                slot.flags -= Flags::READABLE | Flags::WRITABLE;
                self.stop_reading_at_end(key);
            }
        }
        Received { result: Some(result), full }
    }

    /// The reader is running, so that there is none to drop.
    fn stop_reading_at_end(&mut self, key: Token) {
        if let Some(slot) = self.streams.slots.get_mut(key) {
            slot.flags -= Flags::READING;
            slot.update_active(&mut self.active_handles);
        }
    }

    /// Fills the buffers of the reads that wait.
    fn serve_reads(&mut self, key: Token) {
        for _ in 0..READS_PER_EVENT {
            let Some(slot) = self.streams.slots.get_mut(key) else { return };
            let Some(read) = slot.reads.first() else { return };
            let Some(transfer) = self.streams.transfers.get_mut(read) else { return };
            let Some(socket) = &slot.socket else { return };
            let memory = transfer.stored.memory();
            let result = receive(socket, slot.pipe.passing.as_deref_mut(), memory);
            let short = matches!(result, Ok(count) if count > 0 && count < memory.len());
            let drained = short || slot.flags.contains(Flags::BLOCKING);
            if let Err(error) = &result {
                if error.kind() == io::ErrorKind::WouldBlock {
                    return;
                }
                slot.flags -= Flags::READABLE | Flags::WRITABLE;
            }
            slot.reads.unlink(&mut self.streams.transfers, read);
            let Some(transfer) = self.streams.transfers.remove(read) else { return };
            self.active_requests -= 1;
            transfer.stored.tell(self, key, result);
            if drained {
                return;
            }
        }
    }

    /// The loop's own memory to read into. Put back into `scratch` when the callback that it
    /// is lent to has returned; a panic loses it, and the next read makes another.
    pub(crate) fn take_scratch(&mut self) -> Vec<u8> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(READ_SIZE, 0);
        scratch
    }
}

fn receive(
    socket: &Transport,
    mut passing: Option<&mut Passing>,
    memory: &mut [u8],
) -> io::Result<usize> {
    loop {
        let received = match &mut passing {
            Some(passing) => passing.receive(socket, memory),
            None => socket.receive(memory),
        };
        match received {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}
