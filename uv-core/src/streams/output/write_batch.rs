//! Write batches: small writes are copied, and sent together with those of other streams.
//!
//! The copy is in memory that goes from one stream to the next: a stream holds none while
//! nothing of it is on its way. It goes before all that is queued, by an operation of its own.

use std::io::{self, IoSlice};

use poll_core::{Backend, Token};

use super::write::send;
use crate::event_loop::{Done, OpSet};
use crate::streams::{Flags, Streams, open};
use crate::{Loop, error, sys};

/// The maximum of memory that is kept for later batches.
const KEPT: usize = 1024 * 1024;

/// Bytes of a stream that are sent before the next wait.
#[derive(Debug, Default)]
pub(in crate::streams) struct WriteBatch {
    bytes: Vec<u8>,
    sent: usize,
    /// An operation sends it: the bytes stay where they are until its last completion.
    lease: bool,
}

impl WriteBatch {
    /// An operation gets what is left to send, and the batch stays as it is until
    /// [`take_back`](WriteBatch::take_back).
    pub(in crate::streams) fn lend(&mut self) -> &[u8] {
        self.lease = true;
        &self.bytes[self.sent..]
    }

    /// How many bytes are left to send.
    pub(in crate::streams) fn left(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// The operation that sent it has completed.
    pub(in crate::streams) fn take_back(&mut self) {
        self.lease = false;
    }
}

/// Memory for batches to come.
#[derive(Debug, Default)]
pub(in crate::streams) struct Spare {
    // Boxes, because a slot that has none needs a pointer only.
    #[allow(clippy::vec_box)]
    batches: Vec<Box<WriteBatch>>,
    /// Their capacity together.
    held: usize,
}

impl Spare {
    fn take(&mut self) -> Box<WriteBatch> {
        let batch = self.batches.pop().unwrap_or_default();
        self.held -= batch.bytes.capacity();
        batch
    }

    fn keep(&mut self, mut batch: Box<WriteBatch>) {
        let held = self.held + batch.bytes.capacity();
        if held <= KEPT {
            self.held = held;
            batch.bytes.clear();
            batch.sent = 0;
            self.batches.push(batch);
        }
    }
}

impl<B: Backend> Streams<B> {
    /// Keeps the memory of a batch that no operation has.
    pub(in crate::streams) fn keep_batch(&mut self, batch: Box<WriteBatch>) {
        self.spare.keep(batch);
    }
}

impl<B: Backend> Loop<B> {
    #[inline]
    pub(in crate::streams) fn write_coalesced(
        &mut self,
        key: Token,
        bytes: &[u8],
    ) -> io::Result<usize> {
        if self.operations.performs(OpSet::SEND)
            && let Some(most) = sys::COALESCE_MAX
            && (1..=most).contains(&bytes.len())
            && self.streams.slots.get(key).is_some_and(|slot| self.sends_later(slot))
        {
            return self.add_to_batch(key, bytes, most);
        }
        self.try_write(key, &[IoSlice::new(bytes)])
    }

    fn add_to_batch(&mut self, key: Token, bytes: &[u8], most: usize) -> io::Result<usize> {
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
        self.queue_flush(key);
        Ok(bytes.len())
    }

    /// Sends the batch of a stream, if it has one: false if it has none.
    pub(in crate::streams) fn start_batch(&mut self, key: Token) -> bool {
        let Some(slot) = self.streams.slots.get(key) else { return false };
        if slot.batch.is_none() || slot.socket.is_none() {
            return false;
        }
        if slot.output.is_some() || slot.base.is_closing() {
            return true;
        }
        match (self.submit_batch(key), self.streams.slots.get_mut(key)) {
            (Some(Ok(flight)), Some(slot)) => slot.output = Some(flight),
            _ => {
                // This loop waits for write readiness from now on.
                self.operations.disable_op(OpSet::SEND);
                self.rearm_stream(key);
            }
        }
        true
    }

    /// The operation that sends a batch is over. True if a callback may have run.
    pub(in crate::streams) fn batch_done(&mut self, key: Token, done: Done) -> bool {
        let whole = self.batch_moved(key, done.result.unwrap_or(0));
        let error = done.result.err().filter(|code| !sys::is_transient(*code));
        if whole || error.is_some() {
            self.end_batch(key);
        }
        if let Some(code) = error {
            self.fail_writes(key, || io::Error::from_raw_os_error(code));
        }
        let Some(slot) = self.streams.slots.get(key) else { return false };
        if slot.base.is_closing() {
            self.end_batch(key);
            self.flight_ended(key);
            return false;
        }
        let sent = slot.batch.is_none() && slot.writes.is_empty();
        let calls = !slot.done.is_empty() || (sent && slot.flags.contains(Flags::SHUTTING));
        // Mostly the batch was all. A part of it calls nothing back.
        if calls || !sent {
            self.complete_requests(key);
            self.drain_stream(key);
            self.rearm_stream(key);
        }
        calls
    }

    /// Sends a batch by a call of its own, as far as it goes: the operation would complete
    /// immediately, and the loop would have to wait once more.
    pub(in crate::streams) fn send_batch_by_call(&mut self, key: Token) {
        let has_batch = self
            .streams
            .slots
            .get(key)
            .is_some_and(|slot| slot.batch.is_some() && slot.output.is_none());
        if has_batch && self.push_batch(key) {
            let Some(slot) = self.streams.slots.get(key) else { return };
            if slot.flags.contains(Flags::SHUTTING) {
                self.schedule_pending(key);
            }
        }
    }

    /// Writes what can be written of a batch now; false if some of it is left.
    pub(in crate::streams) fn push_batch(&mut self, key: Token) -> bool {
        while let Some(slot) = self.streams.slots.get(key)
            && let (Some(batch), Some(socket)) = (&slot.batch, &slot.socket)
        {
            if batch.lease {
                return false;
            }
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
                    return true;
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

    /// A batch is over, whether it has left or not. One that an operation has stays.
    pub(in crate::streams) fn end_batch(&mut self, key: Token) {
        if let Some(slot) = self.streams.slots.get_mut(key)
            && let Some(batch) = slot.batch.take_if(|batch| !batch.lease)
        {
            slot.write_queue_size -= batch.bytes.len() - batch.sent;
            self.active_requests -= 1;
            self.streams.spare.keep(batch);
        }
    }
}
