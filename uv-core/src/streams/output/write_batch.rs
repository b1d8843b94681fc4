//! Write batches: small writes are copied, and sent together with those of other streams.
//!
//! Streams share the memory of batches: a stream without unsent bytes holds none. A batch is sent
//! before all queued writes, by an operation of its own.

use std::io::{self, IoSlice};

use poll_core::{Backend, Token};

use super::write::send;
use crate::event_loop::{Done, OpSet};
use crate::streams::output::{flush, shutdown, write};
use crate::streams::{self, Flags, Streams, arm, open, submit};
use crate::{Loop, error, sys};

/// The maximal size of the memory that is kept for later batches.
const KEPT: usize = 1024 * 1024;

/// Bytes of a stream that are sent before the next wait.
#[derive(Debug, Default)]
pub(in crate::streams) struct WriteBatch {
    bytes: Vec<u8>,
    sent: usize,
    /// An operation has the bytes: they stay in place until its last completion.
    lent: bool,
}

impl WriteBatch {
    /// Lends the unsent bytes to an operation. The batch does not change until
    /// [`take_back`](WriteBatch::take_back).
    pub(in crate::streams) fn lend(&mut self) -> &[u8] {
        self.lent = true;
        &self.bytes[self.sent..]
    }

    /// The number of unsent bytes.
    pub(in crate::streams) fn left(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Ends the loan: the operation has completed.
    pub(in crate::streams) fn take_back(&mut self) {
        self.lent = false;
    }
}

/// A free list of batches.
#[derive(Debug, Default)]
pub(in crate::streams) struct Spare {
    #[allow(clippy::vec_box, reason = "a slot without a batch has only a null pointer")]
    batches: Vec<Box<WriteBatch>>,
    /// The sum of their capacities.
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

impl<B: Backend> Streams<B> {
    /// Counts `sent` bytes as sent. True if those were the last.
    #[inline]
    fn batch_moved(&mut self, key: Token, sent: usize) -> bool {
        let Some(slot) = self.slots.get_mut(key) else { return false };
        let Some(batch) = &mut slot.batch else { return false };
        let sent = sent.min(batch.bytes.len() - batch.sent);
        batch.sent += sent;
        slot.write_queue_size -= sent;
        batch.sent == batch.bytes.len()
    }

    /// Removes the batch, sent or not, unless an operation has it.
    #[inline]
    pub(in crate::streams) fn end_batch(&mut self, requests: &mut usize, key: Token) {
        if let Some(slot) = self.slots.get_mut(key)
            && let Some(batch) = slot.batch.take_if(|batch| !batch.lent)
        {
            slot.write_queue_size -= batch.bytes.len() - batch.sent;
            *requests -= 1;
            self.spare.keep(batch);
        }
    }
}

#[inline]
pub(in crate::streams) fn write_coalesced<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    bytes: &[u8],
) -> io::Result<usize> {
    if lp.operations.performs(OpSet::SEND)
        && let Some(most) = sys::COALESCE_MAX
        && (1..=most).contains(&bytes.len())
        && lp.streams.slots.get(key).is_some_and(|slot| flush::sends_later(lp, slot))
    {
        return add_to_batch(lp, key, bytes, most);
    }
    write::try_write(lp, key, &[IoSlice::new(bytes)])
}

fn add_to_batch<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    bytes: &[u8],
    most: usize,
) -> io::Result<usize> {
    let Streams { slots, spare, .. } = &mut lp.streams;
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
        lp.active_requests += 1;
    }
    let batch = slot.batch.get_or_insert_with(|| spare.take());
    batch.bytes.extend_from_slice(bytes);
    slot.write_queue_size += bytes.len();
    lp.streams.queue_flush(key);
    Ok(bytes.len())
}

/// Submits the batch of a stream. False if it has none.
#[inline]
pub(in crate::streams) fn start<B: Backend>(lp: &mut Loop<B>, key: Token) -> bool {
    let Some(slot) = lp.streams.slots.get(key) else { return false };
    if slot.batch.is_none() || slot.socket.is_none() {
        return false;
    }
    if slot.output.is_some() || slot.base.is_closing() {
        return true;
    }
    match (submit::batch(lp, key), lp.streams.slots.get_mut(key)) {
        (Some(Ok(flight)), Some(slot)) => slot.output = Some(flight),
        _ => {
            // This loop waits for write readiness from now on.
            lp.operations.disable_op(OpSet::SEND);
            arm::update_or_fail(lp, key);
        }
    }
    true
}

/// A completion of the operation that sends a batch. True if a callback may have run.
#[inline]
pub(in crate::streams) fn done<B: Backend>(lp: &mut Loop<B>, key: Token, done: Done) -> bool {
    let whole = lp.streams.batch_moved(key, done.result.unwrap_or(0));
    let error = done.result.err().filter(|code| !sys::is_transient(*code));
    if whole || error.is_some() {
        lp.streams.end_batch(&mut lp.active_requests, key);
    }
    if let Some(code) = error {
        write::fail_writes(lp, key, || io::Error::from_raw_os_error(code));
    }
    let Some(slot) = lp.streams.slots.get(key) else { return false };
    if slot.base.is_closing() {
        lp.streams.end_batch(&mut lp.active_requests, key);
        arm::flight_ended(lp, key);
        return false;
    }
    let sent = slot.batch.is_none() && slot.writes.is_empty();
    let calls = !slot.done.is_empty() || (sent && slot.flags.contains(Flags::SHUTTING));
    // Usually the batch was all there was to send, and it has no callback.
    if calls || !sent {
        write::complete_requests(lp, key);
        shutdown::drain(lp, key);
        arm::update_or_fail(lp, key);
    }
    calls
}

/// Sends the batch of the only stream that has one by a call: an operation would complete
/// immediately, and its completion would end the wait that follows.
#[inline]
pub(in crate::streams) fn send_by_call<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let has_batch =
        lp.streams.slots.get(key).is_some_and(|slot| slot.batch.is_some() && slot.output.is_none());
    if has_batch && push(lp, key) {
        let Some(slot) = lp.streams.slots.get(key) else { return };
        if slot.flags.contains(Flags::SHUTTING) {
            streams::schedule_pending(lp, key);
        }
    }
}

/// Sends as much of a batch as the kernel takes. False if some of it is left.
#[inline]
pub(in crate::streams) fn push<B: Backend>(lp: &mut Loop<B>, key: Token) -> bool {
    while let Some(slot) = lp.streams.slots.get(key)
        && let (Some(batch), Some(socket)) = (&slot.batch, &slot.socket)
    {
        if batch.lent {
            return false;
        }
        match send(socket, &[IoSlice::new(&batch.bytes[batch.sent..])]) {
            Ok(sent) => {
                if lp.streams.batch_moved(key, sent) {
                    lp.streams.end_batch(&mut lp.active_requests, key);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
            Err(error) => {
                lp.streams.end_batch(&mut lp.active_requests, key);
                write::fail_writes(lp, key, || error::same(&error));
                return true;
            }
        }
    }
    true
}
