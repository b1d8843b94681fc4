//! Sending by operations.
//!
//! What callbacks write is sent together, before the loop waits: all that is queued on a
//! stream by one operation, and the operations of all streams by one system call. Outside of
//! [`Loop::run`] there is nothing to wait for, and writes are tried at once.

use std::io;

use poll_core::{Backend, Op, OpKind, RawBuf, RawSource, Token};

use super::Flags;
use super::write::advance;
use crate::operations::{Asker, Done, Performs};
use crate::{Loop, error, sys};

impl<B: Backend> Loop<B> {
    /// True if what is written now is better sent by an operation, with what else is written.
    pub(super) fn sends_later(&self, key: Token) -> bool {
        self.is_running()
            && self.operations.performs(Performs::SEND)
            && self.streams.slots.get(key).is_some_and(|slot| slot.operates())
    }

    pub(super) fn put_in_outbox(&mut self, key: Token) {
        if let Some(slot) = self.streams.slots.get_mut(key)
            && slot.output.is_none()
            && !slot.flags.contains(Flags::OUTBOX)
        {
            slot.flags |= Flags::OUTBOX;
            self.streams.outbox.push(key);
        }
    }

    /// True if something was written since the last wait.
    #[inline]
    pub(crate) fn has_outbox(&self) -> bool {
        !self.streams.outbox.is_empty()
    }

    /// Starts sending what was written since the last wait.
    pub(crate) fn send_outbox(&mut self) {
        let alone = self.streams.outbox.len() == 1;
        for index in 0..self.streams.outbox.len() {
            let key = self.streams.outbox[index];
            if let Some(slot) = self.streams.slots.get_mut(key) {
                slot.flags -= Flags::OUTBOX;
            }
            if alone {
                self.send_batch_at_once(key);
            }
            self.start_output(key);
        }
        self.streams.outbox.clear();
    }

    /// Writes what can be written, as nobody knows when the loop will wait again.
    pub(crate) fn empty_outbox(&mut self) {
        for index in 0..self.streams.outbox.len() {
            let key = self.streams.outbox[index];
            self.push_writes(key);
            let slot = self.streams.slots.get(key);
            if slot.is_some_and(|slot| slot.flags.contains(Flags::SHUTTING)) {
                self.feed_stream(key); // It may have waited for this.
            }
        }
    }

    /// Sends the first writes that are queued, as many as one operation takes.
    fn start_output(&mut self, key: Token) {
        if self.start_batch(key) {
            return;
        }
        while let Some((write, 0)) = self.first_write(key) {
            self.finish_transfer(key, write, None); // There is nothing to send.
        }
        let Some(slot) = self.streams.slots.get(key) else { return };
        let Some(socket) = &slot.socket else { return };
        if slot.output.is_some() || slot.base.is_closing() || slot.writes.is_empty() {
            return;
        }
        let source = RawSource::of(&**socket);
        let several = self.operations.performs(Performs::SEND_MSG);
        let mut gather = self.operations.gather();
        gather.clear();
        let mut only = None;
        let mut next = slot.writes.first();
        while let Some(key) = next
            && let Some(transfer) = self.streams.transfers.get_mut(key)
        {
            let mut full = false;
            let mut skip = transfer.offset;
            for index in transfer.piece..transfer.stored.pieces() {
                let bytes = &transfer.stored.piece(index)[skip..];
                skip = 0;
                only.get_or_insert(RawBuf::sending(bytes));
                full = !bytes.is_empty() && (!several || !gather.push(bytes));
                if full {
                    break;
                }
            }
            transfer.lent = true;
            next = if full { None } else { transfer.next() };
        }
        let op = match gather.len() {
            0 | 1 => only.map(|buf| Op::Send { source, buf }),
            _ => Some(Op::SendMsg { source, message: gather.message(), flags: sys::SEND_FLAGS }),
        };
        let Some(op) = op else { return };
        let started = self.perform(Asker::StreamOutput(key), op, Some(gather));
        let refused = started.is_err();
        if let Some(slot) = self.streams.slots.get_mut(key) {
            slot.output = started.ok();
        }
        if refused {
            // This loop waits for room from now on.
            self.operations.give_up(Performs::SEND);
            self.take_back_writes(key, 0);
            self.rearm_stream(key);
        }
    }

    pub(super) fn first_write(&self, key: Token) -> Option<(Token, usize)> {
        let write = self.streams.slots.get(key)?.writes.first()?;
        Some((write, self.streams.transfers.get(write)?.left))
    }

    /// The operation that sends is over: `sent` bytes of what was lent have left. What was
    /// cancelled meanwhile is over as well.
    fn take_back_writes(&mut self, key: Token, mut sent: usize) {
        let mut next = self.streams.slots.get(key).and_then(|slot| slot.writes.first());
        while let Some(write) = next
            && let Some(transfer) = self.streams.transfers.get_mut(write)
            && transfer.lent
        {
            next = transfer.next();
            transfer.lent = false;
            let moved = sent.min(transfer.left);
            sent -= moved;
            advance(transfer, moved);
            let (whole, cancelled) = (transfer.left == 0, transfer.cancelled);
            if let Some(slot) = self.streams.slots.get_mut(key) {
                slot.write_queue_size -= moved;
            }
            if whole {
                self.finish_transfer(key, write, None);
            } else if cancelled {
                self.finish_transfer(key, write, Some(error::cancelled()));
            }
        }
    }

    /// The operation that sends is over.
    pub(crate) fn stream_output_done(&mut self, key: Token, done: Done) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        let Some(flight) = slot.output.take() else { return };
        if flight.kind == OpKind::Connect {
            return self.connect_done(key, flight, done);
        }
        if slot.batch.is_some() {
            return self.batch_done(key, done);
        }
        self.take_back_writes(key, done.result.unwrap_or(0));
        if let Err(code) = done.result
            && !sys::is_passing(code)
        {
            self.fail_writes(key, || io::Error::from_raw_os_error(code));
        }
        let closing = self.streams.slots.get(key).is_some_and(|slot| slot.base.is_closing());
        if closing {
            return self.flight_ended(key);
        }
        self.tell_done(key);
        self.drain_stream(key);
        self.rearm_stream(key);
    }
}
