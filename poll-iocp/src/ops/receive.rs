//! Receiving into buffers of a group, again and again.
//!
//! A buffer is taken only when there is something to receive, so that connections that
//! are idle hold none. On a stream a receive of no bytes waits for that; on a socket with
//! messages, where it would swallow one, an AFD poll does. Then receives into buffers
//! follow, which end at once, until nothing is left.

use std::io;
use std::os::windows::io::RawSocket;
use std::ptr::NonNull;

use poll_core::{Event, Op, RawBuf, Ready, Token};
use windows_sys::Win32::Networking::WinSock::{
    MSG_TRUNC, SOCKADDR, WSABUF, WSAEINVAL, WSAENOBUFS, WSAMSG,
};

use super::{ABORTED, Course, End, Kernel, Ops, code, report};
use crate::afd::{Poll, Polls};
use crate::calls;
use crate::slots::{Memory, Slot};
use crate::sockets::{base_socket, has_messages, has_more};

/// How many buffers one wait fills for one operation, so that others have their turn.
const TURN: usize = 16;

/// The lengths and the flags in front of a message.
const HEADER: u32 = 4 * size_of::<u32>() as u32;

/// Where an operation stands that receives.
#[derive(Debug)]
pub(super) struct Receiving {
    /// The driver's own socket, of one that has messages.
    base: Option<RawSocket>,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Idle,
    /// A receive of no bytes is under way.
    Watching(Slot),
    Polling(Poll),
    /// A receive into this buffer is under way: somebody else had taken what there was.
    Filling(Slot, u16),
}

impl Receiving {
    pub(super) fn new(socket: RawSocket) -> io::Result<Receiving> {
        let base = if has_messages(socket)? { Some(base_socket(socket)?) } else { None };
        Ok(Receiving { base, step: Step::Idle })
    }

    pub(super) fn cancel(&self, polls: &Polls, cancel: impl Fn(Slot)) {
        match self.step {
            Step::Idle => {}
            Step::Watching(slot) | Step::Filling(slot, _) => cancel(slot),
            Step::Polling(poll) => polls.cancel(poll),
        }
    }
}

impl Ops {
    /// Waits for something to receive.
    pub(super) fn watch(
        &mut self,
        kernel: &mut Kernel<'_>,
        token: Token,
        op: Op,
        mut receiving: Receiving,
    ) -> Result<Course, i32> {
        let (Op::RecvMulti { source, .. } | Op::RecvMsgMulti { source, .. }) = op else {
            unreachable!("only these receive into groups")
        };
        receiving.step = if let Some(base) = receiving.base {
            let flags = crate::flags_of(Ready::READ);
            Step::Polling(kernel.poll(token, base, flags).map_err(code)?)
        } else {
            let (slot, _) = self.call(token, source, |_, memory| {
                let nothing = RawBuf { ptr: memory.cast(), len: 0 };
                // SAFETY: the slot was just taken, and there is no buffer to keep.
                unsafe { calls::receive(source.socket(), nothing, memory) }
            })?;
            Step::Watching(slot)
        };
        Ok(Course::Receiving(receiving))
    }

    /// A call has ended: there is something to receive, or it was received.
    #[expect(clippy::too_many_arguments, reason = "what a call has come to, in full")]
    pub(super) fn received(
        &mut self,
        kernel: &mut Kernel<'_>,
        token: Token,
        op: Op,
        receiving: Receiving,
        slot: Slot,
        result: End,
        events: &mut Vec<Event>,
    ) -> Result<Course, End> {
        if let Step::Filling(_, buffer) = receiving.step {
            let told = self.tell(token, op, &receiving, slot, buffer, result, events);
            self.slots.release(slot);
            told?;
        } else {
            self.slots.release(slot);
            result.map_err(Err)?;
        }
        if self.flights.get(token).is_some_and(|flight| flight.cancelled) {
            return Err(Err(ABORTED));
        }
        self.receive_all(kernel, token, op, receiving, events)
    }

    /// Receives what there is, then waits for more.
    pub(super) fn receive_all(
        &mut self,
        kernel: &mut Kernel<'_>,
        token: Token,
        op: Op,
        mut receiving: Receiving,
        events: &mut Vec<Event>,
    ) -> Result<Course, End> {
        let (Op::RecvMulti { source, group } | Op::RecvMsgMulti { source, group, .. }) = op else {
            unreachable!("only these receive into groups")
        };
        for _ in 0..TURN {
            let (buffer, start, size) = self.groups.take(group).ok_or(Err(WSAENOBUFS))?;
            let filled = self.call(token, source, |extensions, memory| {
                let buf = RawBuf { ptr: start, len: size };
                match message_into(op, buf, memory) {
                    // SAFETY: the slot was just taken, and nobody else has the buffer.
                    None => unsafe { calls::receive(source.socket(), buf, memory) },
                    // SAFETY: as above; the message is in the slot.
                    Some(Ok(message)) => unsafe {
                        calls::receive_message(extensions, source.socket(), message, memory)
                    },
                    Some(Err(code)) => calls::Issued::Failed(code),
                }
            });
            let (slot, count) = match filled {
                Ok((slot, Some(count))) => (slot, count),
                Ok((slot, None)) => {
                    receiving.step = Step::Filling(slot, buffer);
                    return Ok(Course::Receiving(receiving));
                }
                Err(code) => {
                    self.groups.put_back(group, buffer);
                    return Err(Err(code));
                }
            };
            let told = self.tell(token, op, &receiving, slot, buffer, Ok(count), events);
            self.let_go(slot);
            told?;
            // A stream that has not filled the buffer is empty.
            let is_empty = receiving.base.is_none() && count < size as usize;
            if is_empty || !has_more(source.socket()) {
                break;
            }
        }
        self.watch(kernel, token, op, receiving).map_err(Err)
    }

    /// Tells of a buffer that was filled, or gives it back. The end of a stream and errors
    /// end the operation.
    #[expect(clippy::too_many_arguments, reason = "what a call has come to, in full")]
    fn tell(
        &mut self,
        token: Token,
        op: Op,
        receiving: &Receiving,
        slot: Slot,
        buffer: u16,
        result: End,
        events: &mut Vec<Event>,
    ) -> Result<(), End> {
        let (Op::RecvMulti { group, .. } | Op::RecvMsgMulti { group, .. }) = op else {
            unreachable!("only these receive into groups")
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
        let lent = self.groups.lend(group, buffer);
        events.push(report(token, total, lent));
        Ok(())
    }

    /// A call was over at once, and its result is known before its packet comes.
    fn let_go(&mut self, slot: Slot) {
        match self.skipped.iter().position(|skipped| *skipped == slot) {
            Some(index) => {
                self.skipped.remove(index);
                self.slots.release(slot);
            }
            None => self.slots.spend(slot),
        }
    }
}

/// Has a message go to `buf` in the layout of [`Op::RecvMsgMulti`]: the header of the call
/// is in the slot, room for the other in the buffer. `None` for other operations.
fn message_into(
    op: Op,
    buf: RawBuf,
    memory: NonNull<Memory>,
) -> Option<Result<NonNull<WSAMSG>, i32>> {
    let Op::RecvMsgMulti { address_len, control_len, .. } = op else { return None };
    let front =
        [HEADER, address_len, control_len].iter().try_fold(0u32, |sum, len| sum.checked_add(*len));
    let Some(front) = front.filter(|front| *front < buf.len) else {
        return Some(Err(WSAEINVAL)); // No room for a payload.
    };
    let at = |offset: u32| buf.ptr.as_ptr().wrapping_add(offset as usize);
    let payload = WSABUF { len: buf.len - front, buf: at(front) };
    // SAFETY: the field lies within the memory.
    let list = unsafe { &raw mut (*memory.as_ptr()).buffer };
    // SAFETY: the slot is ours until the call.
    unsafe { list.write(payload) };
    let header = WSAMSG {
        name: at(HEADER).cast::<SOCKADDR>(),
        namelen: address_len as i32,
        lpBuffers: list,
        dwBufferCount: 1,
        Control: WSABUF { len: control_len, buf: at(HEADER + address_len) },
        dwFlags: 0,
    };
    // SAFETY: the field lies within the memory.
    let message = unsafe { &raw mut (*memory.as_ptr()).message };
    // SAFETY: the slot is ours until the call.
    unsafe { message.write(header) };
    Some(NonNull::new(message).ok_or(WSAEINVAL))
}

/// Writes the four numbers that a lent message starts with.
fn write_header(start: NonNull<u8>, memory: NonNull<Memory>, count: usize, truncated: bool) {
    // SAFETY: the field lies within the memory.
    let message = unsafe { &raw const (*memory.as_ptr()).message };
    // SAFETY: written before the call, which is over.
    let WSAMSG { name, namelen, Control, dwFlags, .. } = unsafe { message.read() };
    let address_len = if name.is_null() { 0 } else { namelen as u32 };
    let flags = dwFlags | if truncated { MSG_TRUNC } else { 0 };
    let header = [address_len, Control.len, count as u32, flags];
    // SAFETY: the buffer is ours until it is lent, and was seen to have room.
    unsafe { start.cast::<[u32; 4]>().write_unaligned(header) };
}
