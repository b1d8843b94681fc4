//! What a socket waits for, and operations that receive.
//!
//! Where the backend performs it, one operation receives whatever comes, into memory that is lent
//! to the callback and goes back after it. It goes on while the handle is stopped, as most start
//! again before something comes; what does come then is kept, and the operation ends, so that the
//! rest waits in the kernel. A socket that is told of what the network says about its datagrams
//! waits for readiness: that is in a queue of its own, of which no operation tells.

use std::io;

use poll_core::{Backend, Mode, Op, RawSource, Ready, Token};

use super::recv::{Datagram, Held};
use super::{Udp, UdpSlot};
use crate::operations::{Asker, Done, Performs};
use crate::provided::{Group, Piece};
use crate::sources::Owner;
use crate::sys::datagrams::lent;
use crate::{Loop, sys};

impl<B: Backend> UdpSlot<B> {
    /// True if an operation may receive.
    fn receives_by_operation(&self) -> bool {
        !self.is_watched && !self.reports_errors
    }

    /// True if operations have memory of the socket.
    fn has_flights(&self) -> bool {
        self.input.is_some() || self.sends.is_in_flight()
    }
}

impl Udp {
    /// Has the socket wait for readiness, whatever the backend performs: it is not this loop's
    /// alone.
    pub(crate) fn watch_only<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        self.open_slot(lp)?.is_watched = true;
        Ok(())
    }
}

impl<B: Backend> Loop<B> {
    /// Has the socket wait for what it should, if that has changed.
    pub(super) fn arm_udp(&mut self, udp: Udp) -> io::Result<()> {
        let Some(slot) = self.udps.get_mut(udp.0) else { return Ok(()) };
        if slot.receiving {
            let operates = slot.receives_by_operation();
            match &mut slot.input {
                None if operates && self.operations.performs(Performs::RECV_MSG_MULTI) => {
                    self.start_receiving(udp);
                }
                Some(flight) if !operates => flight.cancel(&mut self.backend),
                _ => {}
            }
        }
        let Some(slot) = self.udps.get(udp.0) else { return Ok(()) };
        let by_wait = slot.sends.wait_for_kernel() && slot.sends_by_wait(&self.operations);
        if by_wait {
            self.put_in_udp_outbox(udp);
        }
        let Some(slot) = self.udps.get_mut(udp.0) else { return Ok(()) };
        let mut wanted = Ready::NONE;
        wanted.set(Ready::READ, slot.receiving && slot.input.is_none());
        wanted.set(Ready::WRITE, !by_wait && slot.sends.wait_for_kernel());
        if wanted == slot.armed {
            return Ok(());
        }
        let source = match (slot.source, &slot.socket) {
            (Some(source), _) => {
                self.backend.modify(source, wanted, Mode::Level)?;
                source
            }
            (None, Some(socket)) => {
                let raw = RawSource::of(socket);
                self.watch_for(Owner::Udp(udp), raw, wanted)?
            }
            (None, None) => return Ok(()),
        };
        if let Some(slot) = self.udps.get_mut(udp.0) {
            slot.armed = wanted;
            slot.source = Some(source);
        }
        Ok(())
    }

    /// Starts the operation that receives. If it is refused, there is readiness.
    fn start_receiving(&mut self, udp: Udp) {
        if !self.provides(Group::Datagrams) {
            return self.operations.give_up(Performs::RECV_MSG_MULTI);
        }
        let Some(slot) = self.udps.get(udp.0) else { return };
        let Some(socket) = &slot.socket else { return };
        let op = Op::RecvMsgMulti {
            source: RawSource::of(socket),
            group: Group::Datagrams.number(),
            address_len: lent::ADDRESS as u32,
            control_len: lent::CONTROL as u32,
        };
        let started = self.perform(Asker::UdpInput(udp), op, None);
        if let Some(slot) = self.udps.get_mut(udp.0) {
            slot.is_watched |= started.is_err();
            slot.input = started.ok();
        }
    }

    /// The operation that receives says something.
    pub(crate) fn udp_input_done(&mut self, udp: Udp, done: Done) {
        let Some(slot) = self.udps.get_mut(udp.0) else { return };
        if !done.more {
            slot.input = None;
        }
        let piece = done.lent.zip(done.result.ok());
        match (piece.and_then(|(lent, count)| self.provided.piece(lent, count)), done.result) {
            (Some(piece), _) => self.datagram_came(udp, piece),
            // Cancelled, or all memory is lent at the moment: it is started again if it is wanted.
            (None, Err(code)) if !sys::is_passing(code) => {
                self.receiving_failed(udp, io::Error::from_raw_os_error(code));
            }
            (None, _) => self.operations.told_nobody += 1,
        }
        if !done.more {
            self.udp_flight_ended(udp);
            // If it fails, nothing will come until it is started again: there is nobody to tell.
            let _ = self.arm_udp(udp);
        }
    }

    /// Tells of a datagram, or keeps it if nobody wants it now.
    #[inline]
    fn datagram_came(&mut self, udp: Udp, piece: Piece) {
        self.lend(piece, |lp, bytes| {
            let Some(slot) = lp.udps.get_mut(udp.0) else { return };
            let Some(incoming) = lent::parse(bytes, slot.largest) else { return };
            if slot.receiving && slot.held.is_empty() {
                lp.tell_received(udp, Ok(Datagram::new(incoming)));
            } else if !slot.base.is_closing() {
                lp.operations.told_nobody += usize::from(!slot.receiving);
                slot.held.push_back(Held::new(incoming));
                lp.tell_after_held(udp);
            }
        });
    }

    /// Tells of what is held, the latest with it; or ends the operation, if nobody receives.
    #[cold]
    fn tell_after_held(&mut self, udp: Udp) {
        self.tell_held(udp);
        if let Some(slot) = self.udps.get_mut(udp.0)
            && !slot.held.is_empty()
            && let Some(flight) = &mut slot.input
        {
            flight.cancel(&mut self.backend);
        }
    }

    /// If the socket is closing and this was its last operation, nothing holds it any more.
    pub(super) fn udp_flight_ended(&mut self, udp: Udp) {
        let Some(slot) = self.udps.get_mut(udp.0) else { return };
        if slot.base.is_closing() && !slot.has_flights() {
            drop(slot.leaving.take());
            let lingering = slot.lingering.take();
            self.settle(lingering);
        }
    }

    /// True if operations have memory of the socket.
    pub(crate) fn udp_has_flights(&self, udp: Udp) -> bool {
        self.udps.get(udp.0).is_some_and(|slot| slot.has_flights())
    }

    /// Notes that the socket is closed when its operations have ended.
    pub(crate) fn udp_lingers(&mut self, udp: Udp, lingering: Token) {
        if let Some(slot) = self.udps.get_mut(udp.0) {
            slot.lingering = Some(lingering);
        }
    }
}
