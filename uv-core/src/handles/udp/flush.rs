//! The flush queue: sends on backends that perform operations.
//!
//! Datagrams sent by callbacks leave before the loop polls. If several sockets have one datagram
//! each, each datagram is an operation, submitted by the system call that polls. Several
//! datagrams of one socket, or a single one on the whole loop, are sent by a direct (batch) call,
//! which is cheaper than operations. A datagram that the kernel does not accept immediately waits
//! in an operation, and the socket's other datagrams wait behind it.

use std::io;

use poll_core::Backend;

use super::send::BATCHES;
use super::{Udp, UdpSlot, Udps, arm, send, submit};
use crate::event_loop::{Done, OpSet, Operations};
use crate::sys::datagrams::{self, Outgoing};
use crate::sys::{self, SendMessage};
use crate::{Loop, error};

impl<B: Backend> UdpSlot<B> {
    /// True if its datagrams are sent by operations, which the polling system call submits.
    #[inline]
    pub(super) fn sends_by_operation(&self, operations: &Operations<B>) -> bool {
        datagrams::SENT_BY_WAIT && operations.performs(OpSet::SEND_MSG) && !self.readiness_only
    }
}

impl<B: Backend> Udps<B> {
    /// Adds a socket to the flush queue, once.
    #[inline]
    pub(super) fn queue_flush(&mut self, udp: Udp) {
        if let Some(slot) = self.slots.get_mut(udp.0)
            && !std::mem::replace(&mut slot.sends.in_flush_queue, true)
        {
            self.flush_queue.push(udp);
        }
    }
}

/// Starts the sends that were queued since the last poll, before the loop polls.
#[inline]
pub(crate) fn submit_queued<B: Backend>(lp: &mut Loop<B>) {
    let single = lp.udps.flush_queue.len() == 1;
    for index in 0..lp.udps.flush_queue.len() {
        let udp = lp.udps.flush_queue[index];
        let Some(slot) = lp.udps.slots.get_mut(udp.0) else { continue };
        slot.sends.in_flush_queue = false;
        if slot.sends.is_in_flight() {
            continue; // The completion of that operation sends the rest.
        }
        if single || slot.sends.unsent_count() > 1 {
            lp.udps.send_unsent(udp, BATCHES);
            send::schedule_callbacks(lp, udp);
        }
        start_send_operation(lp, udp);
    }
    lp.udps.flush_queue.clear();
}

/// Sends by direct calls what the kernel accepts: the loop may not poll again soon.
pub(crate) fn send_by_calls<B: Backend>(lp: &mut Loop<B>) {
    for index in 0..lp.udps.flush_queue.len() {
        send::flush(lp, lp.udps.flush_queue[index]);
    }
}

/// Sends the first unsent datagram by an operation.
fn start_send_operation<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    let Some(slot) = lp.udps.slots.get(udp.0) else { return };
    let Some(send) = slot.sends.first() else { return };
    let plain = send.to().is_peer() && send.pieces() == 1;
    if send.pieces() > SendMessage::CAPACITY && !plain {
        // The pieces must be copied together, into memory that only a direct call keeps.
        lp.udps.send_unsent(udp, 1);
        return send::schedule_callbacks(lp, udp);
    }
    let Some(started) = submit::send(lp, udp, plain) else { return };
    let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return };
    slot.readiness_only |= started.is_err();
    slot.sends.flight = started.ok();
    if slot.readiness_only {
        // The backend refused the operation: from now on the socket waits for writability.
        // If arming fails as well, the next send retries the queue.
        let _ = arm::update(lp, udp);
    }
}

/// Handles the completion of the send operation. True if a callback ran.
#[inline]
pub(crate) fn output_done<B: Backend>(lp: &mut Loop<B>, udp: Udp, done: Done) -> bool {
    let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return false };
    let Some(flight) = slot.sends.flight.take() else { return false };
    match done.result {
        Ok(_) => slot.sends.complete_sent(1),
        Err(sys::ABORTED) if flight.cancelled => slot.sends.complete_first(Err(error::cancelled())),
        Err(code) if !sys::is_transient(code) => {
            slot.sends.complete_first(Err(io::Error::from_raw_os_error(code)));
        }
        // It is sent again: a transient error, or, without a cancel, a forked child.
        Err(_) => {}
    }
    if slot.base.is_closing() {
        slot.sends.cancel();
        arm::flight_ended(lp, udp);
        return false;
    }
    // If arming fails, the next send retries the queue.
    let _ = arm::update(lp, udp);
    send::run_callbacks(lp, udp);
    true
}
