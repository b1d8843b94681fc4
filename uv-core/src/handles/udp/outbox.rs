//! Sending by operations.
//!
//! What callbacks send leaves before the loop waits. If several sockets have a datagram each,
//! these go by operations, in the system call that waits. Several of one socket go by a call for
//! many, which costs less than an operation for each; and so does one that is alone. What the
//! kernel does not take at once waits in an operation, and the others behind it.

use std::io;

use poll_core::{Backend, Op, RawBuf, RawSource};

use super::send::BATCHES;
use super::{Udp, UdpSlot};
use crate::operations::{Asker, Done, Operations, Performs};
use crate::sys::datagrams::{self, Outgoing};
use crate::sys::{self, Gather};
use crate::{Loop, error};

impl<B: Backend> UdpSlot<B> {
    /// True if its datagrams go with the system call that waits.
    #[inline]
    pub(super) fn sends_by_wait(&self, operations: &Operations<B>) -> bool {
        datagrams::SENT_BY_WAIT && operations.performs(Performs::SEND_MSG) && !self.is_watched
    }
}

impl<B: Backend> Loop<B> {
    pub(super) fn put_in_udp_outbox(&mut self, udp: Udp) {
        if let Some(slot) = self.udps.get_mut(udp.0)
            && !std::mem::replace(&mut slot.sends.in_outbox, true)
        {
            self.udp_outbox.push(udp);
        }
    }

    /// Starts sending what was given to sockets since the last wait.
    #[inline]
    pub(crate) fn send_udp_outbox(&mut self) {
        let alone = self.udp_outbox.len() == 1;
        for index in 0..self.udp_outbox.len() {
            let udp = self.udp_outbox[index];
            let Some(slot) = self.udps.get_mut(udp.0) else { continue };
            slot.sends.in_outbox = false;
            if slot.sends.is_in_flight() {
                continue; // The rest follows when that has ended.
            }
            if alone || slot.sends.waiting() > 1 {
                self.send_unsent(udp, BATCHES);
                self.tell_sends_later(udp);
            }
            self.start_sending(udp);
        }
        self.udp_outbox.clear();
    }

    /// Sends what can be sent, as nobody knows when the loop will wait again.
    pub(crate) fn empty_udp_outbox(&mut self) {
        for index in 0..self.udp_outbox.len() {
            self.flush_sends(self.udp_outbox[index]);
        }
    }

    /// Sends the first datagram that waits by an operation.
    fn start_sending(&mut self, udp: Udp) {
        let Some(slot) = self.udps.get(udp.0) else { return };
        let (Some(socket), Some(send)) = (&slot.socket, slot.sends.first()) else { return };
        let source = RawSource::of(socket);
        let alone = send.to().is_none() && send.pieces() == 1;
        let (op, gather) = if alone && self.operations.performs(Performs::SEND) {
            (Op::Send { source, buf: RawBuf::sending(send.piece(0)) }, None)
        } else if send.pieces() > Gather::CAPACITY {
            // They are put together, which only a call can wait for.
            self.send_unsent(udp, 1);
            return self.tell_sends_later(udp);
        } else {
            let mut gather = self.operations.gather();
            gather.clear();
            gather.set_address(send.to().map(datagrams::reachable));
            let fits = (0..send.pieces()).all(|index| gather.push(send.piece(index)));
            debug_assert!(fits, "the pieces were counted");
            let (message, flags) = (gather.message(), sys::SEND_FLAGS);
            (Op::SendMsg { source, message, flags }, Some(gather))
        };
        let started = self.perform(Asker::UdpOutput(udp), op, gather);
        let Some(slot) = self.udps.get_mut(udp.0) else { return };
        slot.is_watched |= started.is_err();
        slot.sends.flight = started.ok();
        if slot.is_watched {
            // Refused: the socket waits for room from now on. If that fails, too, what waits goes
            // with the next that is sent.
            let _ = self.arm_udp(udp);
        }
    }

    /// The operation that sends is over.
    pub(crate) fn udp_output_done(&mut self, udp: Udp, done: Done) {
        let Some(slot) = self.udps.get_mut(udp.0) else { return };
        let Some(flight) = slot.sends.flight.take() else { return };
        match done.result {
            Ok(_) => slot.sends.end_sent(1),
            Err(sys::ABORTED) if flight.cancelled => slot.sends.end_first(Err(error::cancelled())),
            Err(code) if !sys::is_passing(code) => {
                slot.sends.end_first(Err(io::Error::from_raw_os_error(code)));
            }
            // It goes again. If nobody has asked it to end, this is a forked child.
            Err(_) => {}
        }
        if slot.base.is_closing() {
            self.operations.told_nobody += 1;
            slot.sends.cancel();
            return self.udp_flight_ended(udp);
        }
        // If it fails, what waits goes with the next that is sent.
        let _ = self.arm_udp(udp);
        self.tell_sends(udp);
    }
}
