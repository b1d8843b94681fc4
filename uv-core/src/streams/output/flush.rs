//! The flush queue of streams: writes that operations send before the next wait.
//!
//! The writes of callbacks are sent before the loop waits: one operation sends all that is queued
//! on a stream, and one system call submits the operations of all streams. Outside of
//! [`Loop::run`] no wait follows, and writes are tried immediately.

use poll_core::{Backend, Token};

use super::write::advance;
use crate::event_loop::OpSet;
use crate::streams::{Flags, StreamSlot};
use crate::{Loop, error};

impl<B: Backend> Loop<B> {
    /// True if what is written now is better sent by an operation, with what else is written.
    #[inline]
    pub(in crate::streams) fn sends_later(&self, slot: &StreamSlot<B>) -> bool {
        self.operations.performs(OpSet::SEND) && self.is_running() && slot.operates()
    }

    pub(in crate::streams) fn queue_flush(&mut self, key: Token) {
        if let Some(slot) = self.streams.slots.get_mut(key)
            && slot.output.is_none()
            && !slot.flags.contains(Flags::FLUSH_QUEUED)
        {
            slot.flags |= Flags::FLUSH_QUEUED;
            self.streams.flush_queue.push(key);
        }
    }

    /// True if something was written since the last wait.
    #[inline]
    pub(crate) fn has_unflushed_streams(&self) -> bool {
        !self.streams.flush_queue.is_empty()
    }

    /// Starts sending what was written since the last wait.
    pub(crate) fn flush_streams(&mut self) {
        let alone = self.streams.flush_queue.len() == 1;
        for index in 0..self.streams.flush_queue.len() {
            let key = self.streams.flush_queue[index];
            if let Some(slot) = self.streams.slots.get_mut(key) {
                slot.flags -= Flags::FLUSH_QUEUED;
            }
            if alone {
                self.send_batch_by_call(key);
            }
            self.start_output(key);
        }
        self.streams.flush_queue.clear();
    }

    /// Writes what can be written without waiting: the loop may not wait again.
    pub(crate) fn flush_streams_by_calls(&mut self) {
        for index in 0..self.streams.flush_queue.len() {
            let key = self.streams.flush_queue[index];
            self.push_writes(key);
            let slot = self.streams.slots.get(key);
            if slot.is_some_and(|slot| slot.flags.contains(Flags::SHUTTING)) {
                self.schedule_pending(key); // It may have waited for this.
            }
        }
    }

    pub(in crate::streams) fn first_write(&self, key: Token) -> Option<(Token, usize)> {
        let write = self.streams.slots.get(key)?.writes.first()?;
        Some((write, self.streams.transfers.get(write)?.left))
    }

    /// The operation that sends is over: `sent` bytes of what was lent have left. What was
    /// cancelled meanwhile is over as well.
    pub(in crate::streams) fn take_back_writes(&mut self, key: Token, mut sent: usize) {
        let mut next = self.streams.slots.get(key).and_then(|slot| slot.writes.first());
        while let Some(write) = next
            && let Some(transfer) = self.streams.transfers.get_mut(write)
            && transfer.take_back()
        {
            next = transfer.next();
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
}
