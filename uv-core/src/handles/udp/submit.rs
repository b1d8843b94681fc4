//! Submission of UDP operations: the memory that each one borrows, and its owner.
//!
//! An operation refers to the socket. The slot owns it until the handle is closed. After that,
//! `closing_socket` owns the socket of a send in flight; the socket of a receive is closed once
//! the cancellation of the receive was submitted.

#![allow(unsafe_code)]

use std::io;

use poll_core::{Backend, Op, RawBuf, RawSource};

use super::Udp;
use crate::Loop;
use crate::event_loop::{Group, InFlight, OpOwner, OpSet};
use crate::sys;
use crate::sys::datagrams::{Outgoing, recvmsg_layout};

/// Starts a multishot receive. `None` if there is no socket.
#[inline]
pub(super) fn receive<B: Backend>(lp: &mut Loop<B>, udp: Udp) -> Option<io::Result<InFlight>> {
    let op = Op::RecvMsgMulti {
        source: RawSource::of(lp.udps.slots.get(udp.0)?.socket.as_ref()?),
        group: Group::Datagrams.number(),
        address_len: recvmsg_layout::ADDRESS as u32,
        control_len: recvmsg_layout::CONTROL as u32,
    };
    // SAFETY: the buffers belong to the loop's `Groups`, which is dropped after the backend.
    Some(unsafe { lp.perform(OpOwner::UdpInput(udp), op, None) })
}

/// Sends the first unsent datagram: by a plain send if it is `plain` (one piece, no address),
/// else by a message. `None` if there is no datagram or no socket.
#[inline]
pub(super) fn send<B: Backend>(
    lp: &mut Loop<B>,
    udp: Udp,
    plain: bool,
) -> Option<io::Result<InFlight>> {
    let slot = lp.udps.slots.get(udp.0)?;
    let (source, send) = (RawSource::of(slot.socket.as_ref()?), slot.sends.first()?);
    let (op, gather) = if plain && lp.operations.performs(OpSet::SEND) {
        (Op::Send { source, buf: RawBuf::sending(send.piece(0)) }, None)
    } else {
        let mut gather = lp.operations.gather();
        gather.clear();
        gather.set_address(send.to().to_sockaddr());
        let fits = (0..send.pieces()).all(|index| gather.push(send.piece(index)));
        debug_assert!(fits, "the pieces were counted");
        let (message, flags) = (gather.message(), sys::SEND_FLAGS);
        (Op::SendMsg { source, message, flags }, Some(gather))
    };
    // SAFETY: the datagram stays first in `Sends::unsent` while its operation is in flight:
    // only `complete_first` and `complete_sent` remove it, and both check `flight`, which
    // `flush::output_done` clears at the completion. The operation owns the list of pieces.
    Some(unsafe { lp.perform(OpOwner::UdpOutput(udp), op, gather) })
}
