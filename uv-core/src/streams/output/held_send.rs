//! Zero-copy sends of closed streams.
//!
//! A zero-copy send completes twice: with its result, and when the kernel has released the
//! memory, which is after the peer has received the bytes. A close does not wait for the second
//! completion, because a peer that stops reading would delay it without limit. The socket and the
//! buffers move here instead. The socket stays open: a backend that is dropped resets the
//! connections of such sends by their descriptors.

use std::net::Shutdown;
use std::time::Duration;

use poll_core::{Backend, OpKind, Token};

use super::write::advance;
use super::write_batch::WriteBatch;
use crate::event_loop::{InFlight, OpOwner, exchange};
use crate::streams::request_queue::{self, List};
use crate::streams::{Flags, StreamSlot};
use crate::sys::Transport;
use crate::{Loop, error, sys};

/// A send whose memory the kernel still holds, and whose stream is closed.
#[derive(Debug)]
pub(in crate::streams) struct HeldSend {
    /// The key that the stream had.
    stream: Token,
    /// Closed with the last completion.
    _socket: Option<Transport>,
    /// The writes that are sent, whose callbacks return the buffers.
    writes: List,
    batch: Option<Box<WriteBatch>>,
    /// The number of bytes sent, once the memory is free and the writes are to call back.
    released: Option<usize>,
}

impl<B: Backend> StreamSlot<B> {
    /// The operation that sends, if it is the only one in flight.
    fn only_send(&self) -> Option<InFlight> {
        let sends = |flight: &InFlight| matches!(flight.kind, OpKind::Send | OpKind::SendMsg);
        self.output.filter(sends).filter(|_| self.input.is_none())
    }
}

/// Moves a send that only waits for the kernel to release the memory from its stream, which
/// is closing. The connection ends after the bytes that the kernel has, or now if the close
/// is a reset.
#[inline]
pub(in crate::streams) fn detach<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return };
    let Some(flight) = slot.only_send() else { return };
    if !slot.base.is_closing() || !lp.operations.is_held(flight.token) {
        return;
    }
    slot.output = None;
    let mut writes = List::default();
    while let Some(write) = slot.writes.first()
        && let Some(request) = lp.streams.requests.get(write)
        && request.is_lent()
    {
        slot.write_queue_size -= request.left;
        slot.writes.unlink(&mut lp.streams.requests, write);
        writes.push(&mut lp.streams.requests, write);
    }
    let batch = slot.batch.take();
    if let Some(batch) = &batch {
        slot.write_queue_size -= batch.left();
        lp.active_requests -= 1; // It has no callback.
    }
    let shared = slot.flags.contains(Flags::GIVEN);
    let deferred = slot.deferred_close;
    let socket = deferred.and_then(|deferred| lp.operations.take_socket(deferred));
    if let Some(socket) = &socket
        && !shared
    {
        end_connection(socket);
    }
    let held = HeldSend { stream: key, _socket: socket, writes, batch, released: None };
    let held = lp.streams.held_sends.insert(held);
    lp.operations.set_owner(flight.token, OpOwner::HeldSend(held));
}

/// Has the pending phase call back for writes whose memory is free: a callback has panicked,
/// or has exchanged loops.
pub(in crate::streams) fn check_all<B: Backend>(lp: &mut Loop<B>) {
    let held = lp.streams.held_sends.iter();
    let released: Vec<_> = held.filter_map(|(key, it)| Some((key, it.released?))).collect();
    for (key, sent) in released {
        lp.defer(move |lp| _ = done(lp, key, Ok(sent)));
    }
}

/// The kernel has released the memory of a send whose stream is closed: `result` is what was
/// sent. The writes call back, with the key that the stream had. True if callbacks ran.
pub(crate) fn done<B: Backend>(lp: &mut Loop<B>, held: Token, result: Result<usize, i32>) -> bool {
    let Some(held) = lp.streams.held_sends.remove(held) else { return false };
    let ran = !held.writes.is_empty();
    let HeldSend { stream, mut writes, batch, .. } = held;
    if let Some(mut batch) = batch {
        batch.take_back();
        lp.streams.keep_batch(batch);
    }
    let mut sent = result.unwrap_or(0);
    while let Some(write) = writes.first() {
        let requests = &mut lp.streams.requests;
        writes.unlink(requests, write);
        let Some(request) = requests.get_mut(write) else { continue };
        request.take_back();
        let moved = sent.min(request.left);
        sent -= moved;
        advance(request, moved);
        let Some(request) = request_queue::remove(requests, write) else { continue };
        lp.active_requests -= 1;
        let whole = request.left == 0;
        lp.streams.reported_write = Some((write, request.moved));
        let result = if whole { Ok(request.moved) } else { Err(error::cancelled()) };
        let buffered = request.into_buffered();
        // The next callbacks run even if this one panics.
        let released = Some(sent);
        let rest = HeldSend { stream, _socket: None, writes, batch: None, released };
        let rest = lp.streams.held_sends.insert(rest);
        lp.guarded((), |lp, ()| check_all(lp), |lp| buffered.complete(lp, stream, result));
        lp.streams.reported_write = None;
        match lp.streams.held_sends.remove(rest) {
            Some(rest) => writes = rest.writes,
            None => {
                exchange::note();
                break;
            }
        }
    }
    ran
}

/// Ends a connection whose socket stays open, as a close would.
fn end_connection(socket: &Transport) {
    // A connection that has ended already cannot be ended again.
    let _ = match socket.linger() {
        Ok(Some(Duration::ZERO)) => sys::disconnect(socket),
        _ => socket.shutdown(Shutdown::Both),
    };
}
