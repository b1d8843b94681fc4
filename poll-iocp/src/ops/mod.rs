//! Operations in flight: what each asks of Windows, and how it goes on and ends.
//!
//! An operation is one overlapped call, or several that follow one another. Whatever
//! happens, its flight ends with one last `Done`, told by a wait: what is over within
//! `submit` is kept for the next one.

mod accept;
mod receive;
mod transfer;

use std::io;
use std::mem;
use std::os::windows::io::RawSocket;
use std::ptr::NonNull;

use poll_core::{Event, Lent, Op, OpKind, RawSource, Table, Token};
use windows_sys::Win32::Foundation::{
    ERROR_BROKEN_PIPE, ERROR_HANDLE_EOF, ERROR_OPERATION_ABORTED, ERROR_PIPE_CONNECTED, NTSTATUS,
    STATUS_BUFFER_OVERFLOW, STATUS_CANCELLED,
};
use windows_sys::Win32::Networking::WinSock::{MSG_TRUNC, WSAEINVAL, WSAMSG};

use crate::afd::{Owner, Poll, Polls, code_of};
use crate::bindings::{Bindings, Refusal};
use crate::calls::{self, Issued};
use crate::groups::Groups;
use crate::port::Port;
use crate::slots::{Memory, Slot, Slots, State};
use crate::sockets::{Extensions, base_socket, has_messages};
use crate::{UNASKED, flags_of, seen};
use accept::Accepting;
use receive::Receiving;
use transfer::Transfer;

/// What a cancelled operation ends with.
const ABORTED: i32 = ERROR_OPERATION_ABORTED as i32;

/// How an operation ends: with a result, or with an error of Windows.
type End = Result<usize, i32>;

/// All operations in flight.
#[derive(Debug, Default)]
pub(crate) struct Ops {
    flights: Table<Flight>,
    slots: Slots,
    bindings: Bindings,
    pub(crate) groups: Groups,
    extensions: Extensions,
    /// Ended within `submit`, for the next wait to tell.
    over: Vec<(Token, End)>,
    /// Calls that are over and send no packet, as their sources skip those.
    skipped: Vec<Slot>,
    /// The backend is being dropped: nobody hears of results.
    abandoned: bool,
}

/// What operations need of the backend.
#[derive(Debug)]
pub(crate) struct Kernel<'a> {
    pub(crate) port: &'a Port,
    pub(crate) polls: &'a mut Polls,
}

/// An operation in flight.
#[derive(Debug)]
struct Flight {
    op: Op,
    course: Course,
    /// Its source is bound to the port for it.
    bound: bool,
    cancelled: bool,
}

// SAFETY: the operation's pointers are to memory that was lent to the backend, on any thread.
unsafe impl Send for Flight {}

/// Where an operation stands.
#[derive(Debug)]
enum Course {
    /// Its one call is under way.
    Call(Slot),
    /// Reading or writing, buffer by buffer.
    Transfer(Slot, Transfer),
    Accepting(Accepting),
    Receiving(Receiving),
    Polling(Poll),
    /// Its end is in `over`.
    Over,
}

/// True if operations of this kind are performed.
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
        kernel: &mut Kernel<'_>,
        token: Token,
        op: Op,
    ) -> io::Result<()> {
        let Some(source) = source_of(&op).filter(|_| supports(op.kind())) else {
            let why = format!("Windows does not perform {:?}: use another way", op.kind());
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        };
        if self.flights.is_taken(token) {
            let why = "an operation with this token is in flight";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        transfer::check_position(&op)?;
        // A poll is a request to another handle.
        let bound = match op.kind() {
            OpKind::Poll => Ok(false),
            _ => match self.bindings.hold(kernel.port, source) {
                Ok(()) => Ok(true),
                Err(Refusal::Unfit(error)) => return Err(error),
                Err(Refusal::Failed(code)) => Err(code),
            },
        };
        let begun = match bound {
            // SAFETY: the caller keeps what the operation names.
            Ok(_) => unsafe { self.begin(kernel, token, op) },
            Err(code) => Err(Err(code)),
        };
        let course = begun.unwrap_or_else(|end| {
            self.over.push((token, end));
            Course::Over
        });
        let flight = Flight { op, course, bound: bound == Ok(true), cancelled: false };
        let _free = self.flights.insert(token, flight);
        Ok(())
    }

    /// Makes the first call of an operation.
    ///
    /// # Safety
    ///
    /// As for [`Ops::submit`].
    unsafe fn begin(
        &mut self,
        kernel: &mut Kernel<'_>,
        token: Token,
        op: Op,
    ) -> Result<Course, End> {
        let called = match op {
            Op::Accept { listener } | Op::AcceptMulti { listener } => {
                return self.begin_accept(token, listener).map_err(Err);
            }
            Op::RecvMulti { source, .. } | Op::RecvMsgMulti { source, .. } => {
                let receiving = Receiving::new(source.socket()).map_err(fail)?;
                return self.watch(kernel, token, op, receiving).map_err(Err);
            }
            Op::Read { .. } | Op::Write { .. } => {
                // SAFETY: the caller keeps the buffers.
                return unsafe { self.transfer(token, op, Transfer::default()) };
            }
            Op::Poll { source, interest } => {
                let base = base_socket(source.socket()).map_err(fail)?;
                let poll = kernel.poll(token, base, flags_of(interest) | UNASKED);
                return poll.map(Course::Polling).map_err(fail);
            }
            Op::Connect { source, address } => {
                let socket = source.socket();
                if has_messages(socket).map_err(fail)? {
                    // SAFETY: the caller keeps the address.
                    return Err(unsafe { calls::connect_datagrams(socket, address) });
                }
                self.call(token, source, |extensions, memory| {
                    // SAFETY: the slot was just taken; the caller keeps the address.
                    unsafe { calls::connect_stream(extensions, socket, address, memory) }
                })
            }
            Op::Recv { source, buf } => self.call(token, source, |_, memory| {
                // SAFETY: the slot was just taken; the caller keeps the buffer.
                unsafe { calls::receive(source.socket(), buf, memory) }
            }),
            Op::Send { source, buf } => self.call(token, source, |_, memory| {
                // SAFETY: the slot was just taken; the caller keeps the buffer.
                unsafe { calls::send(source.socket(), buf, memory) }
            }),
            Op::RecvMsg { source, message, flags } => {
                let message: NonNull<WSAMSG> = message.0.cast();
                // SAFETY: the message was lent to be filled.
                unsafe { (*message.as_ptr()).dwFlags = flags as u32 };
                self.call(token, source, |extensions, memory| {
                    // SAFETY: the slot was just taken; the caller keeps the message.
                    unsafe { calls::receive_message(extensions, source.socket(), message, memory) }
                })
            }
            Op::SendMsg { source, message, flags } => self.call(token, source, |_, memory| {
                let (message, flags) = (message.0.cast(), flags as u32);
                // SAFETY: the slot was just taken; the caller keeps the message.
                unsafe { calls::send_message(source.socket(), message, flags, memory) }
            }),
            Op::ConnectNamedPipe { pipe } => self.call(token, pipe, |_, memory| {
                // SAFETY: the slot was just taken.
                unsafe { calls::connect_pipe(pipe.handle(), memory) }
            }),
            _ => Err(WSAEINVAL),
        };
        called.map(|(slot, _)| Course::Call(slot)).map_err(|code| failure(&op, code))
    }

    /// Takes a slot and makes a call with it. Gives the slot, and the count if the call is
    /// over already; its packet has yet to come.
    fn call(
        &mut self,
        token: Token,
        source: RawSource,
        call: impl FnOnce(&mut Extensions, NonNull<Memory>) -> Issued,
    ) -> Result<(Slot, Option<usize>), i32> {
        let slot = self.slots.take(token);
        let memory = self.slots.memory(slot);
        match call(&mut self.extensions, memory) {
            Issued::Pending => Ok((slot, None)),
            Issued::Now(count) => {
                if self.bindings.skips(source) {
                    self.skipped.push(slot);
                }
                Ok((slot, Some(count)))
            }
            Issued::Truncated(count) => Ok((slot, Some(count))),
            Issued::Failed(code) => {
                self.slots.release(slot);
                Err(code)
            }
        }
    }

    /// Has an operation end soon.
    pub(crate) fn cancel(&mut self, polls: &Polls, token: Token) -> io::Result<()> {
        let Some(flight) = self.flights.get_mut(token) else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no such operation in flight"));
        };
        flight.cancelled = true;
        let (slots, file) = (&self.slots, source_of(&flight.op).map(RawSource::handle));
        let cancel =
            |slot| file.into_iter().for_each(|file| calls::cancel(file, slots.memory(slot)));
        match &flight.course {
            Course::Call(slot) | Course::Transfer(slot, _) => cancel(*slot),
            Course::Accepting(accepting) => accepting.slots().for_each(cancel),
            Course::Receiving(receiving) => receiving.cancel(polls, cancel),
            Course::Polling(poll) => polls.cancel(*poll),
            Course::Over => {}
        }
        Ok(())
    }

    /// Tells what is over without a packet.
    pub(crate) fn tell_over(&mut self, kernel: &mut Kernel<'_>, events: &mut Vec<Event>) {
        let mut over = mem::take(&mut self.over);
        for (token, end) in over.drain(..) {
            self.end(token, end, events);
        }
        self.over = over;
        // What is added meanwhile is for the next time.
        for slot in mem::take(&mut self.skipped) {
            self.ended(kernel, slot, events);
        }
    }

    /// True if there is something to tell without a packet.
    pub(crate) fn has_news(&self) -> bool {
        !self.over.is_empty() || !self.skipped.is_empty()
    }

    /// A packet has come.
    pub(crate) fn complete(
        &mut self,
        kernel: &mut Kernel<'_>,
        address: usize,
        events: &mut Vec<Event>,
    ) {
        if let Some(slot) = self.slots.find(address) {
            self.ended(kernel, slot, events);
        }
    }

    /// A call has ended.
    fn ended(&mut self, kernel: &mut Kernel<'_>, slot: Slot, events: &mut Vec<Event>) {
        let State::Busy(token) = self.slots.state(slot) else {
            return self.slots.release(slot);
        };
        let (status, count) = self.slots.status(slot);
        let flight = self.flights.get_mut(token).expect("a flight outlives its calls");
        let (op, cancelled) = (flight.op, flight.cancelled);
        let memory = self.slots.memory(slot);
        let result = match status {
            _ if status >= 0 || status == STATUS_BUFFER_OVERFLOW => Ok(count),
            STATUS_CANCELLED => Err(ABORTED),
            _ => Err(error_of(&op, status, memory)),
        };
        let truncated = status == STATUS_BUFFER_OVERFLOW;
        let end = match mem::replace(&mut flight.course, Course::Over) {
            Course::Call(_) => {
                self.slots.release(slot);
                // SAFETY: the call has ended, and the caller keeps what it names until told.
                Err(unsafe { finish(&op, result, truncated) })
            }
            Course::Transfer(_, transfer) => {
                self.slots.release(slot);
                // SAFETY: the caller keeps the buffers until it is told.
                unsafe { self.transferred(token, op, transfer, result, cancelled) }
            }
            Course::Accepting(accepting) => {
                self.slots.release(slot);
                self.accepted(token, op, accepting, slot, result, events)
            }
            Course::Receiving(receiving) => {
                self.received(kernel, token, op, receiving, slot, result, events)
            }
            Course::Polling(_) | Course::Over => unreachable!("no call is under way"),
        };
        self.go_on(token, end, events);
    }

    /// A poll has ended. No conditions: it was cancelled.
    pub(crate) fn polled(
        &mut self,
        kernel: &mut Kernel<'_>,
        token: Token,
        flags: u32,
        events: &mut Vec<Event>,
    ) {
        let Some(flight) = self.flights.get_mut(token) else { return };
        let (op, cancelled) = (flight.op, flight.cancelled);
        let aborted = flags == 0 || cancelled && matches!(flight.course, Course::Receiving(_));
        let end = match (mem::replace(&mut flight.course, Course::Over), op) {
            _ if aborted => Err(Err(ABORTED)),
            (Course::Polling(_), Op::Poll { interest, .. }) => {
                Err(Ok(interest.report(seen(flags)).bits().into()))
            }
            (Course::Receiving(receiving), _) => {
                self.receive_all(kernel, token, op, receiving, events)
            }
            _ => unreachable!("no poll is under way"),
        };
        self.go_on(token, end, events);
    }

    /// An operation continues, or has ended.
    fn go_on(&mut self, token: Token, course: Result<Course, End>, events: &mut Vec<Event>) {
        match course {
            Ok(course) => {
                if let Some(flight) = self.flights.get_mut(token) {
                    flight.course = course;
                }
            }
            Err(end) => self.end(token, end, events),
        }
    }

    fn end(&mut self, token: Token, result: End, events: &mut Vec<Event>) {
        if let Some(flight) = self.flights.remove(token) {
            if let Some(source) = source_of(&flight.op).filter(|_| flight.bound) {
                self.bindings.release(source);
            }
            events.push(Event::Done { token, result, more: false, lent: None });
        }
    }

    /// Forgets a group that no operation takes buffers of.
    pub(crate) fn withdraw(&mut self, number: u16) -> io::Result<()> {
        let takes = |op: &Op| match *op {
            Op::RecvMulti { group, .. } | Op::RecvMsgMulti { group, .. } => group == number,
            _ => false,
        };
        if self.flights.iter().any(|(_, flight)| takes(&flight.op)) {
            let why = "operations in flight take buffers of it: cancel them, wait for their ends";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        if !self.groups.withdraw(number) {
            let why = "no such buffer group is provided";
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        }
        Ok(())
    }

    /// Cancels everything. Nobody will be told.
    pub(crate) fn abandon_all(&mut self, polls: &Polls) {
        self.abandoned = true;
        let tokens: Vec<Token> = self.flights.iter().map(|(token, _)| token).collect();
        for token in tokens {
            let _ = self.cancel(polls, token);
        }
    }

    /// How many calls the kernel still performs.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.busy()
    }

    /// Lets go of calls that have ended, without their packets: some have none, and others'
    /// may have gone to another port. For a backend that is being dropped, which starts
    /// nothing new.
    pub(crate) fn rescue(&mut self, kernel: &mut Kernel<'_>, events: &mut Vec<Event>) {
        for slot in self.slots.all() {
            if self.slots.has_ended(slot) {
                self.ended(kernel, slot, events);
            }
        }
    }
}

impl Kernel<'_> {
    fn poll(&mut self, token: Token, base: RawSocket, flags: u32) -> io::Result<Poll> {
        self.polls.reserve(self.port, 0)?;
        self.polls.start(Owner::Operation(token), base, flags)
    }
}

/// The source that an operation is about, of those that are performed.
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

/// The error of a call that has ended.
fn error_of(op: &Op, status: NTSTATUS, memory: NonNull<Memory>) -> i32 {
    match *op {
        Op::Read { .. } | Op::Write { .. } | Op::ConnectNamedPipe { .. } => code_of(status),
        _ => source_of(op).map_or(0, |source| calls::socket_error(source.socket(), memory)),
    }
}

/// What the one call of an operation has come to.
///
/// # Safety
///
/// What the operation names is valid.
unsafe fn finish(op: &Op, result: End, truncated: bool) -> End {
    let count = result.or_else(|code| failure(op, code))?;
    match *op {
        Op::Connect { source, .. } => {
            calls::finish_connect(source.socket()).map_err(code)?;
        }
        Op::RecvMsg { message, .. } => {
            let message: NonNull<WSAMSG> = message.0.cast();
            // SAFETY: our caller vouches for the message.
            let message = unsafe { &mut *message.as_ptr() };
            // Only the call that takes control data says so itself.
            if message.Control.len == 0 {
                message.dwFlags = 0;
            }
            message.dwFlags |= if truncated { MSG_TRUNC } else { 0 };
        }
        _ => {}
    }
    Ok(count)
}

/// Failures that are none.
fn failure(op: &Op, code: i32) -> End {
    match (op, code as u32) {
        // The end of a file, or of what a pipe's writers have to say.
        (Op::Read { .. }, ERROR_HANDLE_EOF | ERROR_BROKEN_PIPE) => Ok(0),
        // There was a client already.
        (Op::ConnectNamedPipe { .. }, ERROR_PIPE_CONNECTED) => Ok(0),
        _ => Err(code),
    }
}

/// The system's own error, of one that comes with advice, too.
fn code(error: io::Error) -> i32 {
    let beneath = || error.get_ref()?.source()?.downcast_ref::<io::Error>()?.raw_os_error();
    error.raw_os_error().or_else(beneath).unwrap_or(WSAEINVAL)
}

fn fail(error: io::Error) -> End {
    Err(code(error))
}

fn report(token: Token, result: usize, lent: Option<Lent>) -> Event {
    Event::Done { token, result: Ok(result), more: true, lent }
}

#[cfg(test)]
mod tests;
