//! `RecvMulti` and `RecvMsgMulti`: repeated receives into buffers of a group.
//!
//! A buffer is taken only when data is pending, so that idle connections hold none. On a
//! stream, a zero-byte receive completes when data is pending. On a datagram socket, where it
//! would consume a datagram, an AFD poll is used instead. Then receives into buffers follow,
//! which complete synchronously, until no data is pending.

use std::io;
use std::os::windows::io::RawSocket;
use std::ptr::NonNull;

use poll_core::{Event, Interest, Op, RawBuf, Token};
use windows_sys::Win32::Networking::WinSock::{
    MSG_TRUNC, SOCKADDR, WSABUF, WSAEINVAL, WSAENOBUFS, WSAMSG,
};

use super::{ABORTED, Context, OpResult, OpState, Ops, os_code, report};
use crate::afd::{Poll, Polls};
use crate::overlapped;
use crate::slots::{Memory, Slot};
use crate::sockets::{base_socket, has_pending_data, is_datagram};

/// The number of buffers that one wait fills for one operation at most, so that a busy source
/// does not starve the others.
const MAX_BUFFERS_PER_WAIT: usize = 16;

/// The size of the header in front of a message: three lengths and the flags.
const HEADER: u32 = 4 * size_of::<u32>() as u32;

/// The state of a receive operation.
#[derive(Debug)]
pub(super) struct Receiving {
    /// The socket of the AFD driver; for datagram sockets only.
    base: Option<RawSocket>,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Idle,
    /// A zero-byte receive is in flight.
    ZeroByteReceive(Slot),
    Polling(Poll),
    /// A receive into this buffer is in flight: other code has received the pending data.
    Filling(Slot, u16),
}

impl Receiving {
    pub(super) fn new(socket: RawSocket) -> io::Result<Receiving> {
        let base = if is_datagram(socket)? { Some(base_socket(socket)?) } else { None };
        Ok(Receiving { base, step: Step::Idle })
    }

    pub(super) fn cancel(&self, polls: &Polls, cancel: impl Fn(Slot)) {
        match self.step {
            Step::Idle => {}
            Step::ZeroByteReceive(slot) | Step::Filling(slot, _) => cancel(slot),
            Step::Polling(poll) => polls.cancel(poll),
        }
    }
}

impl Ops {
    /// Starts the call or poll that completes when data is pending.
    pub(super) fn await_data(
        &mut self,
        context: &mut Context<'_>,
        token: Token,
        op: Op,
        mut receiving: Receiving,
    ) -> Result<OpState, i32> {
        let (Op::RecvMulti { source, .. } | Op::RecvMsgMulti { source, .. }) = op else {
            unreachable!("only receives into groups are in this state")
        };
        receiving.step = if let Some(base) = receiving.base {
            let flags = crate::to_afd(Interest::READ);
            Step::Polling(context.poll(token, base, flags).map_err(os_code)?)
        } else {
            let (slot, _) = self.call(token, source, |_, memory| {
                let empty = RawBuf { ptr: memory.cast(), len: 0 };
                // SAFETY: `call` has just taken the slot, and the buffer is empty.
                unsafe { overlapped::receive(source.socket(), empty, memory) }
            })?;
            Step::ZeroByteReceive(slot)
        };
        Ok(OpState::Receiving(receiving))
    }

    /// Handles the completion of a call: data is pending, or was received.
    #[expect(clippy::too_many_arguments, reason = "the whole state of a completed call")]
    pub(super) fn receive_completed(
        &mut self,
        context: &mut Context<'_>,
        token: Token,
        op: Op,
        receiving: Receiving,
        slot: Slot,
        result: OpResult,
        events: &mut Vec<Event>,
    ) -> Result<OpState, OpResult> {
        if let Step::Filling(_, buffer) = receiving.step {
            let delivered = self.deliver(token, op, &receiving, slot, buffer, result, events);
            self.slots.release(slot);
            delivered?;
        } else {
            self.slots.release(slot);
            result.map_err(Err)?;
        }
        if self.submitted.get(token).is_some_and(|submitted| submitted.cancelled) {
            return Err(Err(ABORTED));
        }
        self.receive_pending(context, token, op, receiving, events)
    }

    /// Receives the pending data, then waits for more.
    pub(super) fn receive_pending(
        &mut self,
        context: &mut Context<'_>,
        token: Token,
        op: Op,
        mut receiving: Receiving,
        events: &mut Vec<Event>,
    ) -> Result<OpState, OpResult> {
        let (Op::RecvMulti { source, group } | Op::RecvMsgMulti { source, group, .. }) = op else {
            unreachable!("only receives into groups are in this state")
        };
        for _ in 0..MAX_BUFFERS_PER_WAIT {
            let (buffer, start, size) = self.groups.take(group).ok_or(Err(WSAENOBUFS))?;
            let filled = self.call(token, source, |extensions, memory| {
                let buf = RawBuf { ptr: start, len: size };
                match message_into(op, buf, memory) {
                    // SAFETY: `call` has just taken the slot; `take` has handed the buffer out
                    // to this call only, and the caller of `register_buffers` keeps it valid.
                    None => unsafe { overlapped::receive(source.socket(), buf, memory) },
                    // SAFETY: as above; `message_into` has built the message in the slot.
                    Some(Ok(message)) => unsafe {
                        overlapped::receive_message(extensions, source.socket(), message, memory)
                    },
                    Some(Err(code)) => overlapped::CallStatus::Failed(code),
                }
            });
            let (slot, count) = match filled {
                Ok((slot, Some(count))) => (slot, count),
                Ok((slot, None)) => {
                    receiving.step = Step::Filling(slot, buffer);
                    return Ok(OpState::Receiving(receiving));
                }
                Err(code) => {
                    self.groups.put_back(group, buffer);
                    return Err(Err(code));
                }
            };
            let delivered = self.deliver(token, op, &receiving, slot, buffer, Ok(count), events);
            self.release_completed(slot);
            delivered?;
            // A stream that has not filled the buffer has no more data pending.
            let is_empty = receiving.base.is_none() && count < size as usize;
            if is_empty || !has_pending_data(source.socket()) {
                break;
            }
        }
        self.await_data(context, token, op, receiving).map_err(Err)
    }

    /// Lends a filled buffer to the caller, or puts it back. `Err` is the result that ends the
    /// operation: an error or the end of a stream.
    #[expect(clippy::too_many_arguments, reason = "the whole state of a completed call")]
    fn deliver(
        &mut self,
        token: Token,
        op: Op,
        receiving: &Receiving,
        slot: Slot,
        buffer: u16,
        result: OpResult,
        events: &mut Vec<Event>,
    ) -> Result<(), OpResult> {
        let (Op::RecvMulti { group, .. } | Op::RecvMsgMulti { group, .. }) = op else {
            unreachable!("only receives into groups are in this state")
        };
        let is_end = result == Ok(0) && receiving.base.is_none();
        let count = match result {
            Ok(count) if !is_end => count,
            end => {
                self.groups.put_back(group, buffer);
                return Err(end);
            }
        };
        let mut total = count;
        if let Op::RecvMsgMulti { address_len, control_len, .. } = op
            && let Some(start) = self.groups.address(group, buffer)
        {
            total += (HEADER + address_len + control_len) as usize;
            let truncated = self.slots.status(slot).0 != 0;
            write_header(start, self.slots.memory(slot), count, truncated);
        }
        let lease = self.groups.lend(group, buffer);
        events.push(report(token, total, lease));
        Ok(())
    }

    /// Releases the slot of a call that completed synchronously, once its packet is dequeued if
    /// it queues one.
    fn release_completed(&mut self, slot: Slot) {
        match self.completed_calls.iter().position(|skipped| *skipped == slot) {
            Some(index) => {
                self.completed_calls.remove(index);
                self.slots.release(slot);
            }
            None => self.slots.detach(slot),
        }
    }
}

/// Builds a `WSAMSG` in the slot that receives into `buf` in the layout of
/// [`Op::RecvMsgMulti`]. `None` for other operations.
fn message_into(
    op: Op,
    buf: RawBuf,
    memory: NonNull<Memory>,
) -> Option<Result<NonNull<WSAMSG>, i32>> {
    let Op::RecvMsgMulti { address_len, control_len, .. } = op else { return None };
    let front =
        [HEADER, address_len, control_len].iter().try_fold(0u32, |sum, len| sum.checked_add(*len));
    let Some(front) = front.filter(|front| *front < buf.len) else {
        return Some(Err(WSAEINVAL)); // The buffer has no bytes left for a payload.
    };
    let at = |offset: u32| buf.ptr.as_ptr().wrapping_add(offset as usize);
    let payload = WSABUF { len: buf.len - front, buf: at(front) };
    // SAFETY: `memory` is that of a slot, so the field is in bounds.
    let list = unsafe { &raw mut (*memory.as_ptr()).buffer };
    // SAFETY: the slot was just taken, and the kernel does not use it before the call.
    unsafe { list.write(payload) };
    let header = WSAMSG {
        name: at(HEADER).cast::<SOCKADDR>(),
        namelen: address_len as i32,
        lpBuffers: list,
        dwBufferCount: 1,
        Control: WSABUF { len: control_len, buf: at(HEADER + address_len) },
        dwFlags: 0,
    };
    // SAFETY: `memory` is that of a slot, so the field is in bounds.
    let message = unsafe { &raw mut (*memory.as_ptr()).message };
    // SAFETY: the slot was just taken, and the kernel does not use it before the call.
    unsafe { message.write(header) };
    Some(NonNull::new(message).ok_or(WSAEINVAL))
}

/// Writes the header of a message: the length of its address, control data and payload, and
/// the flags.
fn write_header(start: NonNull<u8>, memory: NonNull<Memory>, count: usize, truncated: bool) {
    // SAFETY: `memory` is that of a slot, so the field is in bounds.
    let message = unsafe { &raw const (*memory.as_ptr()).message };
    // SAFETY: `message_into` has initialized the message, and the call has ended.
    let WSAMSG { name, namelen, Control, dwFlags, .. } = unsafe { message.read() };
    let address_len = if name.is_null() { 0 } else { namelen as u32 };
    let flags = dwFlags | if truncated { MSG_TRUNC } else { 0 };
    let header = [address_len, Control.len, count as u32, flags];
    // SAFETY: the buffer is taken and not yet lent, and `message_into` has checked that it is
    // larger than the header.
    unsafe { start.cast::<[u32; 4]>().write_unaligned(header) };
}
