//! Little that is written is copied, and sent together with what other streams write.
//!
//! The copy is in memory that goes from one stream to the next: a stream holds none while
//! nothing of it is on its way. It goes before all that is queued, by an operation of its own.

use std::io::{self, IoSlice};

use poll_core::{Backend, Op, RawBuf, RawSource, Token};

use super::write::send;
use super::{Flags, Streams, open};
use crate::operations::{Asker, Done, Performs};
use crate::{Loop, error, sys};

/// How much memory is kept for batches to come.
const KEPT: usize = 1024 * 1024;

/// What a stream was given to send soon.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    sent: usize,
}

/// Memory for batches to come.
#[derive(Debug, Default)]
pub(super) struct Spare {
    // Boxes, because a slot that has none should have room for no more than a pointer.
    #[allow(clippy::vec_box)]
    batches: Vec<Box<Batch>>,
    /// How much they hold together.
    held: usize,
}

impl Spare {
    fn take(&mut self) -> Box<Batch> {
        let batch = self.batches.pop().unwrap_or_default();
        self.held -= batch.bytes.capacity();
        batch
    }

    fn keep(&mut self, mut batch: Box<Batch>) {
        let held = self.held + batch.bytes.capacity();
        if held <= KEPT {
            self.held = held;
            batch.bytes.clear();
            batch.sent = 0;
            self.batches.push(batch);
        }
    }
}

impl<B: Backend> Loop<B> {
    #[inline]
    pub(super) fn write_batched(&mut self, key: Token, bytes: &[u8]) -> io::Result<usize> {
        if self.operations.performs(Performs::SEND)
            && let Some(most) = sys::LITTLE
            && (1..=most).contains(&bytes.len())
            && self.sends_later(key)
        {
            return self.put_in_batch(key, bytes, most);
        }
        self.try_write(key, &[IoSlice::new(bytes)])
    }

    fn put_in_batch(&mut self, key: Token, bytes: &[u8], most: usize) -> io::Result<usize> {
        let Streams { slots, spare, .. } = &mut self.streams;
        let slot = open(slots, key)?;
        if !slot.flags.contains(Flags::WRITABLE) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let waits = slot.flags.contains(Flags::CONNECTING)
            || slot.output.is_some()
            || !slot.writes.is_empty()
            || slot.write_queue_size + bytes.len() > most;
        if waits {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if slot.batch.is_none() {
            self.active_requests += 1;
        }
        let batch = slot.batch.get_or_insert_with(|| spare.take());
        batch.bytes.extend_from_slice(bytes);
        slot.write_queue_size += bytes.len();
        self.put_in_outbox(key);
        Ok(bytes.len())
    }

    /// Sends the batch of a stream, if it has one: false if it has none.
    pub(super) fn start_batch(&mut self, key: Token) -> bool {
        let Some(slot) = self.streams.slots.get(key) else { return false };
        let (Some(batch), Some(socket)) = (&slot.batch, &slot.socket) else { return false };
        if slot.output.is_some() || slot.base.is_closing() {
            return true;
        }
        let (source, buf) = (RawSource::of(&**socket), RawBuf::sending(&batch.bytes[batch.sent..]));
        let started = self.perform(Asker::StreamOutput(key), Op::Send { source, buf }, None);
        match (started, self.streams.slots.get_mut(key)) {
            (Ok(flight), Some(slot)) => slot.output = Some(flight),
            _ => {
                // This loop waits for room from now on.
                self.operations.give_up(Performs::SEND);
                self.rearm_stream(key);
            }
        }
        true
    }

    /// The operation that sends a batch is over.
    pub(super) fn batch_done(&mut self, key: Token, done: Done) {
        let whole = self.batch_moved(key, done.result.unwrap_or(0));
        let error = done.result.err().filter(|code| !sys::is_passing(*code));
        if whole || error.is_some() {
            self.end_batch(key);
        }
        if let Some(code) = error {
            self.fail_writes(key, || io::Error::from_raw_os_error(code));
        }
        let Some(slot) = self.streams.slots.get(key) else { return };
        if slot.base.is_closing() {
            self.operations.told_nobody += 1;
            self.end_batch(key);
            return self.flight_ended(key);
        }
        let more = slot.batch.is_some() || !slot.writes.is_empty() || !slot.done.is_empty();
        if more || slot.flags.contains(Flags::SHUTTING) {
            self.tell_done(key);
            self.drain_stream(key);
            self.rearm_stream(key);
        } else {
            self.operations.told_nobody += 1; // Mostly that was all.
        }
    }

    /// Sends a batch by a call of its own, as far as it goes: the operation would end at once, and
    /// the loop would have to wait once more.
    pub(super) fn send_batch_at_once(&mut self, key: Token) {
        let has_batch = self
            .streams
            .slots
            .get(key)
            .is_some_and(|slot| slot.batch.is_some() && slot.output.is_none());
        if has_batch && self.push_batch(key) {
            let Some(slot) = self.streams.slots.get(key) else { return };
            if slot.flags.contains(Flags::SHUTTING) {
                self.feed_stream(key);
            }
        }
    }

    /// Writes what can be written of a batch now; false if some of it is left.
    pub(super) fn push_batch(&mut self, key: Token) -> bool {
        while let Some(slot) = self.streams.slots.get(key)
            && let (Some(batch), Some(socket)) = (&slot.batch, &slot.socket)
        {
            match send(socket, &[IoSlice::new(&batch.bytes[batch.sent..])]) {
                Ok(sent) => {
                    if self.batch_moved(key, sent) {
                        self.end_batch(key);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => {
                    self.end_batch(key);
                    self.fail_writes(key, || error::same(&error));
                }
            }
        }
        true
    }

    /// So many bytes have left. True if those were the last.
    fn batch_moved(&mut self, key: Token, sent: usize) -> bool {
        let Some(slot) = self.streams.slots.get_mut(key) else { return false };
        let Some(batch) = &mut slot.batch else { return false };
        let sent = sent.min(batch.bytes.len() - batch.sent);
        batch.sent += sent;
        slot.write_queue_size -= sent;
        batch.sent == batch.bytes.len()
    }

    /// A batch is over, whether it has left or not; no operation has it any more.
    pub(super) fn end_batch(&mut self, key: Token) {
        if let Some(slot) = self.streams.slots.get_mut(key)
            && let Some(batch) = slot.batch.take()
        {
            slot.write_queue_size -= batch.bytes.len() - batch.sent;
            self.active_requests -= 1;
            self.streams.spare.keep(batch);
        }
    }
}
