//! The input side of a stream: connections of a listener, or bytes.
//!
//! ```text
//!   nothing ──▶ ready ────────▶ accept::ready, read::ready: accept(2), recv(2) until it would block
//!      ▲  └───▶ operation ────▶ accept::done, read::done, receive_done: what the backend has done
//!      └──────────── what is wanted has changed ◀────────────┘
//! ```
//!
//! [`StreamSlot::wanted_input`] decides what the side waits for. Both ways end in the same
//! callbacks; bytes that arrive while no callback wants them are queued.

pub(crate) mod accept;
pub(crate) mod read;
pub(super) mod recv_policy;
pub(crate) mod recv_queue;

use std::io;

use poll_core::{Backend, Interest, OpKind, Token};

use super::{Flags, Kind, StreamSlot, Streams, arm, submit};
use crate::event_loop::{Done, Group, OpSet};
use crate::{Loop, streams};
use recv_queue::RecvChunk;

/// The event that the input side waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    Nothing,
    Ready,
    Operation(OpKind),
}

impl<B: Backend> StreamSlot<B> {
    #[inline]
    pub(super) fn wanted_input(&self, performs: impl Fn(OpSet) -> bool) -> Input {
        let either = |operation, kind| match performs(operation) {
            true => Input::Operation(kind),
            false => Input::Ready,
        };
        if self.wants_peers() {
            let listener = self.listener.as_ref();
            if !listener.is_some_and(|listener| listener.may_operate()) {
                return Input::Ready;
            }
            if self.notifies_of_peers() && performs(OpSet::ACCEPT_MULTI) {
                return Input::Operation(OpKind::AcceptMulti);
            }
            return either(OpSet::ACCEPT, OpKind::Accept);
        }
        if !self.recv_queue.is_empty() {
            return Input::Nothing; // The queue is read first.
        }
        if !self.reads.is_empty() {
            return either(OpSet::RECV, OpKind::Recv);
        }
        match self.flags & (Flags::READING | Flags::ALLOC) {
            Flags::READING if !self.recv_policy.prefers_readiness() => {
                either(OpSet::RECV_MULTI, OpKind::RecvMulti)
            }
            flags if flags.contains(Flags::READING) => Input::Ready,
            _ => Input::Nothing,
        }
    }

    /// True if the stream waits for bytes to lend, by readiness, and for nothing else. Every change
    /// of that [arms](crate::streams::arm::update) the stream again, so few fields need a check.
    #[inline]
    pub(super) fn waits_for_bytes_only(&self) -> bool {
        self.only_reads(Flags::READING)
    }

    /// The same for a reader that allocates, if nothing precedes the bytes of a call.
    #[inline]
    pub(super) fn waits_for_allocated_bytes_only(&self) -> bool {
        let kept = !self.recv_queue.is_empty() || self.input.is_some();
        self.only_reads(Flags::READING | Flags::ALLOC) && !kept
    }

    /// True if the stream is armed to read by `reading`, and for nothing else.
    #[inline]
    fn only_reads(&self, reading: Flags) -> bool {
        let others = Flags::CONNECTING | Flags::LISTENING;
        // A pipe of Windows is armed again for each piece.
        let once = cfg!(windows) && self.kind == Kind::Pipe;
        self.armed == Interest::READ
            && self.flags & (Flags::READING | Flags::ALLOC | others) == reading
            && !once
    }
}

impl<B: Backend> Streams<B> {
    pub(super) fn cancel_input(&mut self, backend: &mut B, key: Token) {
        if let Some(slot) = self.slots.get_mut(key)
            && let Some(flight) = &mut slot.input
        {
            flight.cancel(backend);
        }
    }
}

/// Starts the operation that the stream wants, and cancels any other. False if it is refused.
#[inline]
pub(super) fn arm<B: Backend>(lp: &mut Loop<B>, key: Token, wanted: Input) -> bool {
    let Some(slot) = lp.streams.slots.get(key) else { return true };
    let accepts = |kind| matches!(kind, OpKind::Accept | OpKind::AcceptMulti);
    match (slot.input, wanted) {
        (None, Input::Operation(kind)) => start(lp, key, kind),
        (None, _) => true,
        (Some(flight), Input::Operation(kind))
            if flight.kind == kind || (accepts(flight.kind) && accepts(kind)) =>
        {
            true // If it was cancelled, its completion comes first.
        }
        // Reading was stopped. Starting again before bytes arrive costs nothing; bytes that
        // arrive are queued.
        (Some(flight), Input::Nothing) if flight.kind == OpKind::RecvMulti => true,
        (Some(_), _) => {
            lp.streams.cancel_input(&mut lp.backend, key);
            true
        }
    }
}

/// Starts an operation. False if the backend refuses it: from now on this loop uses readiness.
fn start<B: Backend>(lp: &mut Loop<B>, key: Token, kind: OpKind) -> bool {
    if kind == OpKind::RecvMulti && !lp.provided.ensure(&mut lp.backend, Group::Streams) {
        lp.operations.disable_op(OpSet::RECV_MULTI);
        return false;
    }
    let Some(started) = submit::input(lp, key, kind) else { return true };
    let Some(slot) = lp.streams.slots.get_mut(key) else { return true };
    slot.input = started.ok();
    if slot.input.is_some() {
        return true;
    }
    let read = slot.reads.first().filter(|_| kind == OpKind::Recv);
    if let Some(read) = read.and_then(|read| lp.streams.requests.get_mut(read)) {
        read.take_back();
    }
    lp.operations.disable_op(OpSet::of_kind(kind));
    false
}

/// The side could not be armed: the listener, the reader or the reads get the error, later.
pub(super) fn fail<B: Backend>(lp: &mut Loop<B>, key: Token, error: io::Error) {
    let Some(slot) = lp.streams.slots.get(key) else { return };
    if slot.listener.is_some() {
        return accept::fail_later(lp, key, error);
    }
    lp.streams.queue_received(&mut lp.backend, key, RecvChunk::Failed(error));
    streams::schedule_pending(lp, key);
}

/// Updates how a stream that was read by calls waits: after small reads by an operation, see
/// [`recv_policy`].
#[inline]
pub(super) fn update_recv_mode<B: Backend>(lp: &mut Loop<B>, key: Token) {
    if lp.operations.performs(OpSet::RECV_MULTI)
        && !lp.streams.slots.get(key).is_some_and(|slot| slot.recv_policy.prefers_readiness())
    {
        arm::update_or_fail(lp, key);
    }
}

/// A completion of the operation that accepts or receives. True if a callback ran.
#[inline]
pub(crate) fn done<B: Backend>(lp: &mut Loop<B>, key: Token, done: Done) -> bool {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return false };
    let Some(flight) = slot.input else { return false };
    if !done.more {
        slot.input = None;
        // Before a callback runs: a panic must not keep the handle open.
        arm::flight_ended(lp, key);
    }
    let ran = match flight.kind {
        OpKind::Accept | OpKind::AcceptMulti => accept::done(lp, key, flight, done),
        OpKind::Recv => read::done(lp, key, done),
        // The operation continues, and a callback that has changed the stream has armed it.
        _ if done.more => return recv_queue::receive_done(lp, key, done),
        _ => recv_queue::receive_done(lp, key, done),
    };
    arm::update_or_fail(lp, key);
    ran
}
