//! Arming of a UDP socket: readiness interest, and the multishot receive.
//!
//! Where the backend performs it, one multishot operation receives all datagrams, into buffers
//! that are lent to the callback. It continues while the handle is stopped, because most handles
//! start again before the next datagram; a datagram that arrives meanwhile is held, and the
//! operation is cancelled so that later ones stay in the kernel. A socket with
//! `REPORT_ERRORS` uses readiness: no operation reads the kernel's error queue.

use std::io;

use poll_core::{Backend, Interest, Mode, RawSource, Token};

use super::datagram::{Datagram, Held};
use super::{Udp, UdpSlot, Udps, recv, submit};
use crate::event_loop::{Done, Group, OpSet, Piece, SourceOwner};
use crate::sys::datagrams::recvmsg_layout;
use crate::{Loop, sys};

impl<B: Backend> UdpSlot<B> {
    /// True if an operation may receive.
    fn receives_by_operation(&self) -> bool {
        !self.readiness_only && !self.reports_errors && !self.allocates
    }

    /// True if operations in flight use the socket or memory of the slot.
    fn has_flights(&self) -> bool {
        self.input.is_some() || self.sends.is_in_flight()
    }
}

impl Udp {
    /// Makes the socket use readiness even if the backend performs operations, because another
    /// process may share it.
    pub(crate) fn use_readiness_only<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        self.open_slot(lp)?.readiness_only = true;
        Ok(())
    }
}

impl<B: Backend> Udps<B> {
    /// True if operations in flight use the socket or memory of its slot.
    pub(crate) fn has_flights(&self, udp: Udp) -> bool {
        self.slots.get(udp.0).is_some_and(|slot| slot.has_flights())
    }

    /// Records the deferred close, which the completion of the last operation finishes.
    pub(crate) fn defer_close(&mut self, udp: Udp, deferred_close: Token) {
        if let Some(slot) = self.slots.get_mut(udp.0) {
            slot.deferred_close = Some(deferred_close);
        }
    }
}

/// Starts or cancels the receive operation, and updates the registered interest.
#[inline]
pub(super) fn update<B: Backend>(lp: &mut Loop<B>, udp: Udp) -> io::Result<()> {
    let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return Ok(()) };
    if slot.wants_input() {
        let operates = slot.receives_by_operation();
        match &mut slot.input {
            None if operates && lp.operations.performs(OpSet::RECV_MSG_MULTI) => {
                start_receiving(lp, udp);
            }
            Some(flight) if !operates => flight.cancel(&mut lp.backend),
            _ => {}
        }
    }
    let Some(slot) = lp.udps.slots.get(udp.0) else { return Ok(()) };
    let by_operation = slot.sends.wait_for_kernel() && slot.sends_by_operation(&lp.operations);
    if by_operation {
        lp.udps.queue_flush(udp);
    }
    let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return Ok(()) };
    let mut wanted = Interest::NONE;
    wanted.set(Interest::READ, slot.wants_input() && slot.input.is_none());
    wanted.set(Interest::WRITE, !by_operation && slot.sends.wait_for_kernel());
    if wanted == slot.armed {
        return Ok(());
    }
    let source = match (slot.source, &slot.socket) {
        (Some(source), _) => {
            lp.backend.modify(source, wanted, Mode::Level)?;
            source
        }
        (None, Some(socket)) => {
            let raw = RawSource::of(socket);
            lp.watch_for(SourceOwner::Udp(udp), raw, wanted)?
        }
        (None, None) => return Ok(()),
    };
    if let Some(slot) = lp.udps.slots.get_mut(udp.0) {
        slot.armed = wanted;
        slot.source = Some(source);
    }
    Ok(())
}

/// Starts the receive operation. If the backend refuses it, the socket uses readiness.
fn start_receiving<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    if !lp.provided.ensure(&mut lp.backend, Group::Datagrams) {
        return lp.operations.disable_op(OpSet::RECV_MSG_MULTI);
    }
    let Some(started) = submit::receive(lp, udp) else { return };
    if let Some(slot) = lp.udps.slots.get_mut(udp.0) {
        slot.readiness_only |= started.is_err();
        slot.input = started.ok();
    }
}

/// Handles a completion of the receive operation. True if a callback ran.
#[inline]
pub(crate) fn input_done<B: Backend>(lp: &mut Loop<B>, udp: Udp, done: Done) -> bool {
    let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return false };
    if !done.more {
        slot.input = None;
    }
    let piece = done.lease.zip(done.result.ok());
    let piece = piece.and_then(|(lease, count)| lp.provided.piece(lease, count));
    let ran = match (piece, done.result) {
        (Some(piece), _) => deliver_or_hold(lp, udp, piece),
        // Cancelled, or all buffers are lent: `update` below starts it again if it is wanted.
        (None, Err(code)) if !sys::is_transient(code) => {
            recv::receiving_failed(lp, udp, io::Error::from_raw_os_error(code));
            true
        }
        (None, _) => false,
    };
    if !done.more {
        flight_ended(lp, udp);
        // If this fails, nothing is received until the handle is started again: no callback
        // could get the error.
        let _ = update(lp, udp);
    }
    ran
}

/// Delivers a datagram, or holds it if the handle is stopped. True if a callback ran.
#[inline]
fn deliver_or_hold<B: Backend>(lp: &mut Loop<B>, udp: Udp, piece: Piece) -> bool {
    let mut ran = true;
    lp.lend(piece, |lp, bytes| {
        let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return };
        let Some(incoming) = recvmsg_layout::parse(bytes, slot.largest) else { return };
        if slot.wants_input() && slot.held.is_empty() {
            recv::deliver(lp, udp, Ok(Datagram::new(incoming)));
        } else if !slot.base.is_closing() {
            ran = slot.wants_input();
            slot.held.push_back(Held::new(incoming));
            deliver_held_or_cancel(lp, udp);
        }
    });
    ran
}

/// Delivers the held datagrams. If the handle is stopped, cancels the receive operation.
#[cold]
fn deliver_held_or_cancel<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    recv::deliver_held(lp, udp);
    if let Some(slot) = lp.udps.slots.get_mut(udp.0)
        && !slot.held.is_empty()
        && let Some(flight) = &mut slot.input
    {
        flight.cancel(&mut lp.backend);
    }
}

/// Finishes a deferred close after the last operation in flight has completed.
#[inline]
pub(super) fn flight_ended<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return };
    if slot.base.is_closing() && !slot.has_flights() {
        drop(slot.closing_socket.take());
        let deferred_close = slot.deferred_close.take();
        lp.operations.finish_deferred_close(&mut lp.closing, deferred_close);
    }
}
