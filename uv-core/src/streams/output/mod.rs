//! The output side of a stream: a connect, then bytes, then the shutdown.
//!
//! ```text
//!   nothing ──▶ ready ────────▶ connect_ready, write_ready: SO_ERROR, send(2) until it would block
//!      ▲  └───▶ operation ────▶ connect_done, batch_done, take_back_writes: what was sent
//!      └──────────── what is wanted has changed ◀────────────┘
//! ```
//!
//! [`StreamSlot::wanted_output`] decides what the side waits for. A write that the kernel takes
//! whole waits for nothing: see [`completed_writes`].

pub(super) mod completed_writes;
pub(super) mod connect;
pub(super) mod flush;
pub(super) mod held_send;
pub(super) mod send_file;
pub(super) mod shutdown;
pub(super) mod write;
pub(super) mod write_batch;

use std::io;

use poll_core::{Backend, OpKind, Token};

use super::{Flags, StreamSlot};
use crate::event_loop::{Done, OpSet};
use crate::{Loop, error, sys};

/// What the output side waits for.
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

    /// The same while it connects.
    pub(super) fn wanted_to_connect(&self) -> Output {
        match self.output {
            Some(_) => Output::Operation,
            None if self.knows_connected() => Output::Nothing,
            None => Output::Ready,
        }
    }
}

impl<B: Backend> Loop<B> {
    /// Sends the first writes that are queued, as many as one operation takes.
    pub(super) fn start_output(&mut self, key: Token) {
        if self.start_batch(key) {
            return;
        }
        while let Some((write, 0)) = self.first_write(key) {
            self.finish_transfer(key, write, None); // There is nothing to send.
        }
        let Some(slot) = self.streams.slots.get(key) else { return };
        let ready = slot.socket.is_some() && !slot.flags.contains(Flags::SENDS_FILES);
        if !ready || slot.output.is_some() || slot.base.is_closing() || slot.writes.is_empty() {
            return;
        }
        let Some(started) = self.submit_writes(key) else { return };
        let refused = started.is_err();
        if let Some(slot) = self.streams.slots.get_mut(key) {
            slot.output = started.ok();
        }
        if refused {
            // This loop waits for write readiness from now on.
            self.operations.disable_op(OpSet::SEND);
            self.take_back_writes(key, 0);
            self.rearm_stream(key);
        }
    }

    pub(super) fn cancel_output(&mut self, key: Token) {
        if let Some(slot) = self.streams.slots.get_mut(key)
            && let Some(flight) = &mut slot.output
        {
            flight.cancel(&mut self.backend);
        }
    }

    /// The side cannot wait: the connect or the writes fail.
    pub(super) fn fail_output(&mut self, key: Token, error: &io::Error) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        if slot.flags.contains(Flags::CONNECTING) {
            if let Some(rare) = &mut slot.rare {
                rare.connected.get_or_insert(Err(error::same(error)));
            }
            return self.schedule_pending(key);
        }
        let first = slot.writes.first().and_then(|write| self.streams.transfers.get(write));
        if slot.batch.is_some() || first.is_some_and(|write| write.moved > 0) {
            // Later writes would follow a part of these.
            slot.flags -= Flags::WRITABLE;
        }
        self.end_batch(key);
        self.fail_writes(key, || error::same(error));
    }

    /// The operation that sends is over. True if a callback may have run, or if a part of a write has
    /// left, which a program can see: with readiness it is an event.
    pub(crate) fn stream_output_done(&mut self, key: Token, done: Done) -> bool {
        let Some(slot) = self.streams.slots.get_mut(key) else { return false };
        let Some(flight) = slot.output.take() else { return false };
        if flight.kind == OpKind::Connect {
            self.connect_done(key, flight, done);
            return true;
        }
        if let Some(batch) = &mut slot.batch {
            batch.take_back();
            return self.batch_done(key, done);
        }
        self.take_back_writes(key, done.result.unwrap_or(0));
        if let Err(code) = done.result
            && !sys::is_transient(code)
        {
            self.fail_writes(key, || io::Error::from_raw_os_error(code));
        }
        let closing = self.streams.slots.get(key).is_some_and(|slot| slot.base.is_closing());
        if closing {
            self.flight_ended(key);
            return true;
        }
        self.complete_requests(key);
        self.drain_stream(key);
        self.rearm_stream(key);
        true
    }
}
