//! The output side of a stream: a connect, then bytes, then the shutdown.
//!
//! ```text
//!   nothing ──▶ ready ────────▶ connect::ready, write::ready: SO_ERROR, send(2) until it would block
//!      ▲  └───▶ operation ────▶ connect::done, write_batch::done, take_back_writes: what was sent
//!      └──────────── what is wanted has changed ◀────────────┘
//! ```
//!
//! [`StreamSlot::wanted_output`] decides what the side waits for. A write that the kernel takes
//! whole waits for nothing: see [`completed_writes`].

pub(crate) mod completed_writes;
pub(crate) mod connect;
pub(crate) mod flush;
pub(crate) mod held_send;
pub(crate) mod send_file;
pub(crate) mod shutdown;
pub(crate) mod write;
pub(crate) mod write_batch;

use std::io;

use poll_core::{Backend, OpKind, Token};

use super::{Flags, StreamSlot, Streams, arm, submit};
use crate::event_loop::{Done, OpSet};
use crate::{Loop, error, streams, sys};

/// The event that the output side waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    Nothing,
    Ready,
    Operation,
}

impl<B: Backend> StreamSlot<B> {
    #[inline]
    pub(super) fn wanted_output(&self, performs: impl Fn(OpSet) -> bool) -> Output {
        match self.writes.is_empty() && self.batch.is_none() {
            true => Output::Nothing,
            false if self.flags.contains(Flags::SENDS_FILES) => self.wanted_to_send_files(),
            false if performs(OpSet::SEND) => Output::Operation,
            false => Output::Ready,
        }
    }

    /// As [`wanted_output`](StreamSlot::wanted_output), while the stream connects.
    pub(super) fn wanted_to_connect(&self) -> Output {
        match self.output {
            Some(_) => Output::Operation,
            None if self.knows_connected() => Output::Nothing,
            None => Output::Ready,
        }
    }
}

impl<B: Backend> Streams<B> {
    pub(super) fn cancel_output(&mut self, backend: &mut B, key: Token) {
        if let Some(slot) = self.slots.get_mut(key)
            && let Some(flight) = &mut slot.output
        {
            flight.cancel(backend);
        }
    }
}

/// Submits the batch, or the first queued writes, as many as one operation takes.
#[inline]
pub(super) fn start<B: Backend>(lp: &mut Loop<B>, key: Token) {
    if write_batch::start(lp, key) {
        return;
    }
    while let Some((write, 0)) = lp.streams.first_write(key) {
        write::finish_request(lp, key, write, None); // There is nothing to send.
    }
    let Some(slot) = lp.streams.slots.get(key) else { return };
    let ready = slot.socket.is_some() && !slot.flags.contains(Flags::SENDS_FILES);
    if !ready || slot.output.is_some() || slot.base.is_closing() || slot.writes.is_empty() {
        return;
    }
    let Some(started) = submit::writes(lp, key) else { return };
    let refused = started.is_err();
    if let Some(slot) = lp.streams.slots.get_mut(key) {
        slot.output = started.ok();
    }
    if refused {
        // This loop waits for write readiness from now on.
        lp.operations.disable_op(OpSet::SEND);
        flush::take_back_writes(lp, key, 0);
        arm::update_or_fail(lp, key);
    }
}

/// The side could not be armed: the connect or the writes fail.
pub(super) fn fail<B: Backend>(lp: &mut Loop<B>, key: Token, error: &io::Error) {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return };
    if slot.flags.contains(Flags::CONNECTING) {
        if let Some(rare) = &mut slot.rare {
            rare.connected.get_or_insert(Err(error::same(error)));
        }
        return streams::schedule_pending(lp, key);
    }
    let first = slot.writes.first().and_then(|write| lp.streams.requests.get(write));
    if slot.batch.is_some() || first.is_some_and(|write| write.moved > 0) {
        // Later writes would follow a part of these.
        slot.flags -= Flags::WRITABLE;
    }
    lp.streams.end_batch(&mut lp.active_requests, key);
    write::fail_writes(lp, key, || error::same(error));
}

/// A completion of the operation that sends or connects. True if a callback may have run, or if a
/// part of a write was sent: with readiness that is an event as well.
#[inline]
pub(crate) fn done<B: Backend>(lp: &mut Loop<B>, key: Token, done: Done) -> bool {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return false };
    let Some(flight) = slot.output.take() else { return false };
    if flight.kind == OpKind::Connect {
        connect::done(lp, key, flight, done);
        return true;
    }
    if let Some(batch) = &mut slot.batch {
        batch.take_back();
        return write_batch::done(lp, key, done);
    }
    flush::take_back_writes(lp, key, done.result.unwrap_or(0));
    if let Err(code) = done.result
        && !sys::is_transient(code)
    {
        write::fail_writes(lp, key, || io::Error::from_raw_os_error(code));
    }
    let closing = lp.streams.slots.get(key).is_some_and(|slot| slot.base.is_closing());
    if closing {
        arm::flight_ended(lp, key);
        return true;
    }
    write::complete_requests(lp, key);
    shutdown::drain(lp, key);
    arm::update_or_fail(lp, key);
    true
}
