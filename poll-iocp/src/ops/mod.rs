//! Operations in flight: the overlapped calls of each, from `submit` to the last `Done`.
//!
//! An operation is one overlapped call or a sequence of them. Each operation ends with exactly
//! one `Done { more: false }`, delivered by a wait. The result of an operation that completes
//! within `submit` is queued for the next wait.

mod accept;
mod receive;
mod vectored;

use std::io;
use std::mem;
use std::os::windows::io::RawSocket;
use std::ptr::NonNull;

use poll_core::{BufferLease, Event, Op, OpKind, RawSource, Table, Token};
use windows_sys::Win32::Foundation::{
    ERROR_BROKEN_PIPE, ERROR_HANDLE_EOF, ERROR_OPERATION_ABORTED, ERROR_PIPE_CONNECTED, NTSTATUS,
    STATUS_BUFFER_OVERFLOW, STATUS_CANCELLED,
};
use windows_sys::Win32::Networking::WinSock::{MSG_TRUNC, WSAEINVAL, WSAMSG};

use crate::afd::{Owner, Poll, Polls, win32_error};
use crate::association::{AssociateError, Associations};
use crate::buffers::BufferGroups;
use crate::overlapped::{self, CallStatus};
use crate::port::Port;
use crate::slots::{Memory, Slot, Slots, State};
use crate::sockets::{Extensions, base_socket, is_datagram};
use crate::{ALWAYS, to_afd, to_ready};
use accept::Accepting;
use receive::Receiving;
use vectored::VectoredIo;

/// The error of a cancelled operation.
pub(crate) const ABORTED: i32 = ERROR_OPERATION_ABORTED as i32;

/// The result of an operation: a count or a socket, or a Win32 error.
pub(crate) type OpResult = Result<usize, i32>;

/// All operations in flight.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    submitted: Table<Submitted>,
    slots: Slots,
    associations: Associations,
    pub(crate) groups: BufferGroups,
    extensions: Extensions,
    /// Results of operations that completed within `submit`, for the next wait to deliver.
    completed: Vec<(Token, OpResult)>,
    /// Calls that completed synchronously and queue no packet: their sources have
    /// `FILE_SKIP_COMPLETION_PORT_ON_SUCCESS`.
    completed_calls: Vec<Slot>,
    /// The backend is being dropped: no result is delivered any more.
    dropping: bool,
}

/// The parts of the backend that operations use.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) port: &'a Port,
    pub(crate) polls: &'a mut Polls,
}

/// An operation in flight.
#[derive(Debug)]
struct Submitted {
    op: Op,
    state: OpState,
    /// It is counted in the association of its source.
    is_associated: bool,
    cancelled: bool,
}

// SAFETY: the caller of `submit` keeps the memory that `op` points to valid until the last
// `Done`, independent of the thread.
unsafe impl Send for Submitted {}

/// The step that an operation is in.
#[derive(Debug)]
enum OpState {
    /// Its only call is in flight.
    Call(Slot),
    /// A read or write of one of its buffers is in flight.
    Vectored(Slot, VectoredIo),
    Accepting(Accepting),
    Receiving(Receiving),
    Polling(Poll),
    /// Its result is in `Ops::completed`.
    Completed,
}

/// True if Windows has overlapped calls for operations of this kind.
pub(crate) fn supports(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Accept
            | OpKind::AcceptMulti
            | OpKind::Connect
            | OpKind::Recv
            | OpKind::RecvMulti
            | OpKind::RecvMsg
            | OpKind::RecvMsgMulti
            | OpKind::Send
            | OpKind::SendMsg
            | OpKind::Poll
            | OpKind::Read
            | OpKind::Write
            | OpKind::ConnectNamedPipe
    )
}

impl Ops {
    /// Starts an operation.
    ///
    /// # Safety
    ///
    /// As for [`Backend::submit`](poll_core::Backend::submit).
    pub(crate) unsafe fn submit(
        &mut self,
        context: &mut Context<'_>,
        token: Token,
        op: Op,
    ) -> io::Result<()> {
        let Some(source) = source_of(&op).filter(|_| supports(op.kind())) else {
            let why = format!(
                "Windows has no overlapped call for {:?}: use a thread or readiness",
                op.kind()
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        };
        if self.submitted.is_taken(token) {
            let why = "an operation with this token is in flight: use another token";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        vectored::check_position(&op)?;
        // An AFD poll completes to a handle of its own.
        let associated = match op.kind() {
            OpKind::Poll => Ok(false),
            _ => match self.associations.acquire(context.port, source) {
                Ok(()) => Ok(true),
                Err(AssociateError::NotOverlapped(error)) => return Err(error),
                Err(AssociateError::Os(code)) => Err(code),
            },
        };
        let begun = match associated {
            // SAFETY: the caller of `submit` keeps all memory of the operation valid.
            Ok(_) => unsafe { self.begin(context, token, op) },
            Err(code) => Err(Err(code)),
        };
        let state = begun.unwrap_or_else(|end| {
            self.completed.push((token, end));
            OpState::Completed
        });
        let submitted =
            Submitted { op, state, is_associated: associated == Ok(true), cancelled: false };
        let _free = self.submitted.insert(token, submitted);
        Ok(())
    }

    /// Makes the first call of an operation. `Err` is the result of one that needs no more.
    ///
    /// # Safety
    ///
    /// As for [`Ops::submit`].
    unsafe fn begin(
        &mut self,
        context: &mut Context<'_>,
        token: Token,
        op: Op,
    ) -> Result<OpState, OpResult> {
        let called = match op {
            Op::Accept { listener } | Op::AcceptMulti { listener } => {
                return self.begin_accept(token, listener).map_err(Err);
            }
            Op::RecvMulti { source, .. } | Op::RecvMsgMulti { source, .. } => {
                let receiving = Receiving::new(source.socket()).map_err(fail)?;
                return self.await_data(context, token, op, receiving).map_err(Err);
            }
            Op::Read { .. } | Op::Write { .. } => {
                // SAFETY: the caller of `submit` keeps the buffers valid.
                return unsafe { self.start_buffer(token, op, VectoredIo::default()) };
            }
            Op::Poll { source, interest } => {
                let base = base_socket(source.socket()).map_err(fail)?;
                let poll = context.poll(token, base, to_afd(interest) | ALWAYS);
                return poll.map(OpState::Polling).map_err(fail);
            }
            Op::Connect { source, address } => {
                let socket = source.socket();
                if is_datagram(socket).map_err(fail)? {
                    // SAFETY: the caller of `submit` keeps the address valid.
                    return Err(unsafe { overlapped::connect_datagrams(socket, address) });
                }
                self.call(token, source, |extensions, memory| {
                    // SAFETY: `call` has just taken the slot; the caller of `submit` keeps the
                    // address valid.
                    unsafe { overlapped::connect_stream(extensions, socket, address, memory) }
                })
            }
            Op::Recv { source, buf } => self.call(token, source, |_, memory| {
                // SAFETY: `call` has just taken the slot; the caller of `submit` keeps the buffer
                // valid.
                unsafe { overlapped::receive(source.socket(), buf, memory) }
            }),
            Op::Send { source, buf } => self.call(token, source, |_, memory| {
                // SAFETY: `call` has just taken the slot; the caller of `submit` keeps the buffer
                // valid.
                unsafe { overlapped::send(source.socket(), buf, memory) }
            }),
            Op::RecvMsg { source, message, flags } => {
                let message: NonNull<WSAMSG> = message.0.cast();
                // SAFETY: the caller of `submit` lends the message to be written to.
                unsafe { (*message.as_ptr()).dwFlags = flags as u32 };
                self.call(token, source, |extensions, memory| {
                    // SAFETY: `call` has just taken the slot; the caller of `submit` keeps the
                    // message valid.
                    unsafe {
                        overlapped::receive_message(extensions, source.socket(), message, memory)
                    }
                })
            }
            Op::SendMsg { source, message, flags } => self.call(token, source, |_, memory| {
                let (message, flags) = (message.0.cast(), flags as u32);
                // SAFETY: `call` has just taken the slot; the caller of `submit` keeps the message
                // valid.
                unsafe { overlapped::send_message(source.socket(), message, flags, memory) }
            }),
            Op::ConnectNamedPipe { pipe } => self.call(token, pipe, |_, memory| {
                // SAFETY: `call` has just taken the slot.
                unsafe { overlapped::connect_pipe(pipe.handle(), memory) }
            }),
            _ => Err(WSAEINVAL),
        };
        called.map(|(slot, _)| OpState::Call(slot)).map_err(|code| normalize(&op, code))
    }

    /// Takes a slot and makes a call with it. Returns the slot, and the count if the call has
    /// completed synchronously; its packet is still to be dequeued.
    fn call(
        &mut self,
        token: Token,
        source: RawSource,
        call: impl FnOnce(&mut Extensions, NonNull<Memory>) -> CallStatus,
    ) -> Result<(Slot, Option<usize>), i32> {
        let slot = self.slots.take(token);
        let memory = self.slots.memory(slot);
        match call(&mut self.extensions, memory) {
            CallStatus::Pending => Ok((slot, None)),
            CallStatus::Completed(count) => {
                if self.associations.skips_packets(source) {
                    self.completed_calls.push(slot);
                }
                Ok((slot, Some(count)))
            }
            CallStatus::Truncated(count) => Ok((slot, Some(count))),
            CallStatus::Failed(code) => {
                self.slots.release(slot);
                Err(code)
            }
        }
    }

    /// Cancels the calls of an operation.
    pub(crate) fn cancel(&mut self, polls: &Polls, token: Token) -> io::Result<()> {
        let Some(submitted) = self.submitted.get_mut(token) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no such operation in flight"));
        };
        submitted.cancelled = true;
        let (slots, file) = (&self.slots, source_of(&submitted.op).map(RawSource::handle));
        let cancel =
            |slot| file.into_iter().for_each(|file| overlapped::cancel(file, slots.memory(slot)));
        match &submitted.state {
            OpState::Call(slot) | OpState::Vectored(slot, _) => cancel(*slot),
            OpState::Accepting(accepting) => accepting.slots().for_each(cancel),
            OpState::Receiving(receiving) => receiving.cancel(polls, cancel),
            OpState::Polling(poll) => polls.cancel(*poll),
            OpState::Completed => {}
        }
        Ok(())
    }

    /// Delivers the results that have no packet.
    pub(crate) fn deliver_completed(&mut self, context: &mut Context<'_>, events: &mut Vec<Event>) {
        let mut completed = mem::take(&mut self.completed);
        for (token, end) in completed.drain(..) {
            self.finish_op(token, end, events);
        }
        self.completed = completed;
        // Calls that complete meanwhile are left for the next iteration of the wait.
        for slot in mem::take(&mut self.completed_calls) {
            self.call_completed(context, slot, events);
        }
    }

    /// True if there are results that have no packet.
    pub(crate) fn has_undelivered(&self) -> bool {
        !self.completed.is_empty() || !self.completed_calls.is_empty()
    }

    /// Handles a packet. Packets of other origin are ignored.
    pub(crate) fn packet_arrived(
        &mut self,
        context: &mut Context<'_>,
        address: usize,
        events: &mut Vec<Event>,
    ) {
        if let Some(slot) = self.slots.find(address) {
            self.call_completed(context, slot, events);
        }
    }

    /// Handles the completion of a call: continues its operation, or ends it.
    fn call_completed(&mut self, context: &mut Context<'_>, slot: Slot, events: &mut Vec<Event>) {
        let State::Busy(token) = self.slots.state(slot) else {
            return self.slots.release(slot);
        };
        let (status, count) = self.slots.status(slot);
        let submitted = self.submitted.get_mut(token).expect("an operation outlives its calls");
        let (op, cancelled) = (submitted.op, submitted.cancelled);
        let memory = self.slots.memory(slot);
        let result = match status {
            _ if status >= 0 || status == STATUS_BUFFER_OVERFLOW => Ok(count),
            STATUS_CANCELLED => Err(ABORTED),
            _ => Err(call_error(&op, status, memory)),
        };
        let truncated = status == STATUS_BUFFER_OVERFLOW;
        let end = match mem::replace(&mut submitted.state, OpState::Completed) {
            OpState::Call(_) => {
                self.slots.release(slot);
                // SAFETY: the call has ended, and the caller of `submit` keeps all memory of the
                // operation valid until the last `Done`, which is not delivered yet.
                Err(unsafe { finish_call(&op, result, truncated) })
            }
            OpState::Vectored(_, progress) => {
                self.slots.release(slot);
                // SAFETY: the caller of `submit` keeps the buffers valid until the last `Done`,
                // which is not delivered yet.
                unsafe { self.buffer_completed(token, op, progress, result, cancelled) }
            }
            OpState::Accepting(accepting) => {
                self.slots.release(slot);
                self.accept_completed(token, op, accepting, slot, result, events)
            }
            OpState::Receiving(receiving) => {
                self.receive_completed(context, token, op, receiving, slot, result, events)
            }
            OpState::Polling(_) | OpState::Completed => {
                unreachable!("no call is in flight in these states")
            }
        };
        self.advance(token, end, events);
    }

    /// Handles the end of an AFD poll. No `flags` mean that it was cancelled.
    pub(crate) fn poll_completed(
        &mut self,
        context: &mut Context<'_>,
        token: Token,
        flags: u32,
        events: &mut Vec<Event>,
    ) {
        let Some(submitted) = self.submitted.get_mut(token) else { return };
        let (op, cancelled) = (submitted.op, submitted.cancelled);
        let aborted = flags == 0 || cancelled && matches!(submitted.state, OpState::Receiving(_));
        let end = match (mem::replace(&mut submitted.state, OpState::Completed), op) {
            _ if aborted => Err(Err(ABORTED)),
            (OpState::Polling(_), Op::Poll { interest, .. }) => {
                Err(Ok(interest.report(to_ready(flags)).bits().into()))
            }
            (OpState::Receiving(receiving), _) => {
                self.receive_pending(context, token, op, receiving, events)
            }
            _ => unreachable!("no poll is in flight in these states"),
        };
        self.advance(token, end, events);
    }

    /// Stores the next state of an operation, or ends it.
    fn advance(&mut self, token: Token, state: Result<OpState, OpResult>, events: &mut Vec<Event>) {
        match state {
            Ok(state) => {
                if let Some(submitted) = self.submitted.get_mut(token) {
                    submitted.state = state;
                }
            }
            Err(end) => self.finish_op(token, end, events),
        }
    }

    fn finish_op(&mut self, token: Token, result: OpResult, events: &mut Vec<Event>) {
        if let Some(submitted) = self.submitted.remove(token) {
            if let Some(source) = source_of(&submitted.op).filter(|_| submitted.is_associated) {
                self.associations.release(source);
            }
            events.push(Event::Done { token, result, more: false, lease: None });
        }
    }

    /// Removes a buffer group that no operation in flight uses.
    pub(crate) fn unregister_buffers(&mut self, number: u16) -> io::Result<()> {
        let takes = |op: &Op| match *op {
            Op::RecvMulti { group, .. } | Op::RecvMsgMulti { group, .. } => group == number,
            _ => false,
        };
        if self.submitted.iter().any(|(_, submitted)| takes(&submitted.op)) {
            let why = "operations in flight use this buffer group: cancel them and wait for their last Done";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        if !self.groups.unregister_buffers(number) {
            let why = "no such buffer group is registered";
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        Ok(())
    }

    /// Cancels all operations, and stops the delivery of results.
    pub(crate) fn cancel_all(&mut self, polls: &Polls) {
        self.dropping = true;
        let tokens: Vec<Token> = self.submitted.iter().map(|(token, _)| token).collect();
        for token in tokens {
            let _ = self.cancel(polls, token);
        }
    }

    /// Returns the number of calls in flight.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.busy()
    }

    /// Completes calls that have ended, without their packets: some queue none, and others may
    /// have gone to another port. Only for a backend that is being dropped: a packet that
    /// arrives later finds its slot free.
    pub(crate) fn reap_without_packets(
        &mut self,
        context: &mut Context<'_>,
        events: &mut Vec<Event>,
    ) {
        for slot in self.slots.all() {
            if self.slots.has_ended(slot) {
                self.call_completed(context, slot, events);
            }
        }
    }
}

impl Context<'_> {
    fn poll(&mut self, token: Token, base: RawSocket, flags: u32) -> io::Result<Poll> {
        self.polls.reserve(self.port, 0)?;
        self.polls.start(Owner::Operation(token), base, flags)
    }
}

/// Returns the source of a supported operation.
fn source_of(op: &Op) -> Option<RawSource> {
    match *op {
        Op::Accept { listener } | Op::AcceptMulti { listener } => Some(listener),
        Op::ConnectNamedPipe { pipe } => Some(pipe),
        Op::Connect { source, .. }
        | Op::Recv { source, .. }
        | Op::RecvMulti { source, .. }
        | Op::RecvMsg { source, .. }
        | Op::RecvMsgMulti { source, .. }
        | Op::Send { source, .. }
        | Op::SendMsg { source, .. }
        | Op::Poll { source, .. }
        | Op::Read { source, .. }
        | Op::Write { source, .. } => Some(source),
        _ => None,
    }
}

/// Returns the Win32 error of a call that has ended with `status`.
fn call_error(op: &Op, status: NTSTATUS, memory: NonNull<Memory>) -> i32 {
    match *op {
        Op::Read { .. } | Op::Write { .. } | Op::ConnectNamedPipe { .. } => win32_error(status),
        _ => source_of(op).map_or(0, |source| overlapped::socket_error(source.socket(), memory)),
    }
}

/// Returns the result of an operation whose only call has ended.
///
/// # Safety
///
/// The memory of `op` is valid, and no call in flight uses it.
unsafe fn finish_call(op: &Op, result: OpResult, truncated: bool) -> OpResult {
    let count = result.or_else(|code| normalize(op, code))?;
    match *op {
        Op::Connect { source, .. } => {
            overlapped::finish_connect(source.socket()).map_err(os_code)?;
        }
        Op::RecvMsg { message, .. } => {
            let message: NonNull<WSAMSG> = message.0.cast();
            // SAFETY: the caller keeps the message valid, and no call uses it.
            let message = unsafe { &mut *message.as_ptr() };
            // Only WSARecvMsg, the call for control data, writes the flags itself.
            if message.Control.len == 0 {
                message.dwFlags = 0;
            }
            message.dwFlags |= if truncated { MSG_TRUNC } else { 0 };
        }
        _ => {}
    }
    Ok(count)
}

/// Maps errors that are a regular end to a result.
fn normalize(op: &Op, code: i32) -> OpResult {
    match (op, code as u32) {
        // The end of a file, or a pipe whose other side has closed.
        (Op::Read { .. }, ERROR_HANDLE_EOF | ERROR_BROKEN_PIPE) => Ok(0),
        // The client has connected before the call.
        (Op::ConnectNamedPipe { .. }, ERROR_PIPE_CONNECTED) => Ok(0),
        _ => Err(code),
    }
}

/// Returns the Win32 error of `error`, or of its source if `with_remedy` has made it.
fn os_code(error: io::Error) -> i32 {
    let of_source = || error.get_ref()?.source()?.downcast_ref::<io::Error>()?.raw_os_error();
    error.raw_os_error().or_else(of_source).unwrap_or(WSAEINVAL)
}

fn fail(error: io::Error) -> OpResult {
    Err(os_code(error))
}

fn report(token: Token, result: usize, lease: Option<BufferLease>) -> Event {
    Event::Done { token, result: Ok(result), more: true, lease }
}
