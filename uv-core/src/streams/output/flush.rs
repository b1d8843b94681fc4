//! The flush queue of streams: writes that operations send before the next wait.
//!
//! The writes of callbacks are sent before the loop waits: one operation sends all that is queued
//! on a stream, and one system call submits the operations of all streams. Outside of
//! [`Loop::run`] no wait follows, and writes are tried immediately.

use poll_core::{Backend, Token};

use super::write::advance;
use crate::event_loop::OpSet;
use crate::streams::output::{write, write_batch};
use crate::streams::{self, Flags, StreamSlot, Streams, output};
use crate::{Loop, error};

impl<B: Backend> Streams<B> {
    #[inline]
    pub(in crate::streams) fn queue_flush(&mut self, key: Token) {
        if let Some(slot) = self.slots.get_mut(key)
            && slot.output.is_none()
            && !slot.flags.contains(Flags::FLUSH_QUEUED)
        {
            slot.flags |= Flags::FLUSH_QUEUED;
            self.flush_queue.push(key);
        }
    }

    /// True if writes were queued since the last wait.
    #[inline]
    pub(crate) fn has_unflushed(&self) -> bool {
        !self.flush_queue.is_empty()
    }

    #[inline]
    pub(in crate::streams) fn first_write(&self, key: Token) -> Option<(Token, usize)> {
        let write = self.slots.get(key)?.writes.first()?;
        Some((write, self.requests.get(write)?.left))
    }
}

/// True if a write should be sent by an operation, together with those of other streams.
#[inline]
pub(in crate::streams) fn sends_later<B: Backend>(lp: &Loop<B>, slot: &StreamSlot<B>) -> bool {
    lp.operations.performs(OpSet::SEND) && lp.is_running() && slot.operates()
}

/// Submits the writes that were queued since the last wait.
#[inline]
pub(crate) fn submit_queued<B: Backend>(lp: &mut Loop<B>) {
    let alone = lp.streams.flush_queue.len() == 1;
    for index in 0..lp.streams.flush_queue.len() {
        let key = lp.streams.flush_queue[index];
        if let Some(slot) = lp.streams.slots.get_mut(key) {
            slot.flags -= Flags::FLUSH_QUEUED;
        }
        if alone {
            write_batch::send_by_call(lp, key);
        }
        output::start(lp, key);
    }
    lp.streams.flush_queue.clear();
}

/// Sends queued writes as far as the kernel takes them: the loop may not wait again.
pub(crate) fn send_by_calls<B: Backend>(lp: &mut Loop<B>) {
    for index in 0..lp.streams.flush_queue.len() {
        let key = lp.streams.flush_queue[index];
        write::push_writes(lp, key);
        let slot = lp.streams.slots.get(key);
        if slot.is_some_and(|slot| slot.flags.contains(Flags::SHUTTING)) {
            streams::schedule_pending(lp, key); // The shutdown may have waited for these writes.
        }
    }
}

/// Ends an operation that has sent `sent` bytes of the lent writes. Writes that were cancelled
/// meanwhile complete as well.
#[inline]
pub(in crate::streams) fn take_back_writes<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    mut sent: usize,
) {
    let mut next = lp.streams.slots.get(key).and_then(|slot| slot.writes.first());
    while let Some(write) = next
        && let Some(request) = lp.streams.requests.get_mut(write)
        && request.take_back()
    {
        next = request.next();
        let moved = sent.min(request.left);
        sent -= moved;
        advance(request, moved);
        let (whole, cancelled) = (request.left == 0, request.cancelled);
        if let Some(slot) = lp.streams.slots.get_mut(key) {
            slot.write_queue_size -= moved;
        }
        if whole {
            write::finish_request(lp, key, write, None);
        } else if cancelled {
            write::finish_request(lp, key, write, Some(error::cancelled()));
        }
    }
}
