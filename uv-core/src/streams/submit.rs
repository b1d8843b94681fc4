//! Submission of the operations of streams, and the owners of the memory that they borrow.
//!
//! An operation borrows the stream's socket. The slot owns the socket until the stream is closed;
//! then the record of the deferred close owns it while an operation is in flight. A listener's
//! socket is closed after its operation was cancelled.

#![allow(unsafe_code)]

use std::io;

use poll_core::{Backend, Op, OpKind, RawBuf, RawSource, Token};
use socket2::{SockAddr, Socket};

use crate::event_loop::{Group, InFlight, OpOwner, OpSet};
use crate::streams::output;
use crate::{Loop, sys};

/// Accepts or receives. `None` if there is no socket, or no memory to receive into.
#[inline]
pub(super) fn input<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    kind: OpKind,
) -> Option<io::Result<InFlight>> {
    let slot = lp.streams.slots.get(key)?;
    let source = RawSource::of(&**slot.socket.as_ref()?);
    let op = match kind {
        OpKind::AcceptMulti => Op::AcceptMulti { listener: source },
        OpKind::Accept => Op::Accept { listener: source },
        OpKind::RecvMulti => Op::RecvMulti { source, group: Group::Streams.number() },
        _ => {
            let read = lp.streams.requests.get_mut(slot.reads.first()?)?;
            let buf = RawBuf::filling(read.memory());
            read.lend();
            Op::Recv { source, buf }
        }
    };
    // SAFETY: a lent read request keeps its buffer until `take_back`, which `read::done` calls
    // at the operation's completion. The loop's `Groups` own the memory of buffer groups.
    Some(unsafe { lp.perform(OpOwner::StreamInput(key), op, None) })
}

/// Sends the batch of a stream. `None` if there is no batch or no socket.
#[inline]
pub(super) fn batch<B: Backend>(lp: &mut Loop<B>, key: Token) -> Option<io::Result<InFlight>> {
    let slot = lp.streams.slots.get_mut(key)?;
    let source = RawSource::of(&**slot.socket.as_ref()?);
    let buf = RawBuf::sending(slot.batch.as_mut()?.lend());
    let op = Op::Send { source, buf };
    // SAFETY: a lent batch is neither changed nor dropped until `take_back`, which
    // `output::done` calls at the operation's completion.
    let started = unsafe { lp.perform(OpOwner::StreamOutput(key), op, None) };
    if started.is_err()
        && let Some(batch) = lp.streams.slots.get_mut(key).and_then(|it| it.batch.as_mut())
    {
        batch.take_back();
    }
    Some(started)
}

/// Sends the first queued writes, as many as one operation takes. `None` if there is no byte to
/// send or no socket.
#[inline]
pub(super) fn writes<B: Backend>(lp: &mut Loop<B>, key: Token) -> Option<io::Result<InFlight>> {
    let slot = lp.streams.slots.get(key)?;
    let socket = slot.socket.as_ref()?;
    let source = RawSource::of(&**socket);
    let several = lp.operations.performs(OpSet::SEND_MSG);
    let mut gather = lp.operations.gather();
    gather.clear();
    let mut only = None;
    let mut next = slot.writes.first();
    while let Some(key) = next
        && let Some(request) = lp.streams.requests.get_mut(key)
    {
        let mut full = false;
        let mut skip = request.offset;
        for index in request.piece..request.buffered().pieces() {
            let bytes = &request.buffered().piece(index)[skip..];
            skip = 0;
            only.get_or_insert(RawBuf::sending(bytes));
            full = !bytes.is_empty() && (!several || !gather.push(bytes));
            if full {
                break;
            }
        }
        request.lend();
        next = if full { None } else { request.next() };
    }
    let op = match gather.len() {
        0 | 1 => only.map(|buf| Op::Send { source, buf }),
        _ => Some(Op::SendMsg { source, message: gather.message(), flags: sys::SEND_FLAGS }),
    };
    let Some(op) = op else {
        output::flush::take_back_writes(lp, key, 0);
        return None;
    };
    // SAFETY: lent writes keep their buffers until `take_back_writes`, which is called at the
    // operation's completion. The operation owns `gather`, the list of the buffers.
    Some(unsafe { lp.perform(OpOwner::StreamOutput(key), op, Some(gather)) })
}

/// Connects the stream's socket. `None` if there is no socket.
pub(super) fn connect<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    address: SockAddr,
) -> Option<io::Result<InFlight>> {
    let source = RawSource::of(&**lp.streams.slots.get(key)?.socket.as_ref()?);
    let mut gather = lp.operations.gather();
    gather.clear();
    let op = Op::Connect { source, address: gather.connect_to(address)? };
    // SAFETY: the address is in `gather`, which the operation owns.
    Some(unsafe { lp.perform(OpOwner::StreamOutput(key), op, Some(gather)) })
}

/// The connection that an operation has accepted. `None` if it cannot be set up, and is closed.
pub(super) fn accepted(flight: InFlight, raw: usize) -> Option<Socket> {
    if !matches!(flight.kind, OpKind::Accept | OpKind::AcceptMulti) {
        return None;
    }
    // SAFETY: `raw` is the result of an operation that accepts, which the backend reports once.
    unsafe { sys::accepted(raw) }.ok()
}
