//! Operations in flight, and the owners that get their completions.
//!
//! A handle waits for readiness instead of an operation that is not in the backend's [`OpSet`].
//! Memory that an operation borrows stays in place until its last `Done`: buffers in their
//! requests, headers and lists of buffers here, sources in their slots, which a close keeps until
//! then.

#![allow(unsafe_code)]

use std::io;

use bitflags::bitflags;
use poll_core::{Backend, BufferLease, Event, Op, OpKind, Table, Token};

use crate::handles::{Closing, Udp, udp};
use crate::requests::task;
use crate::storage::{Arena, Seed};
use crate::streams::{input, output};
use crate::sys::{self, SendMessage, Transport};
use crate::{Loop, streams};

bitflags! {
    /// Which operations the backend performs, of those that handles use.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct OpSet: u16 {
        const ACCEPT = 1;
        const ACCEPT_MULTI = 1 << 1;
        const RECV = 1 << 2;
        const RECV_MULTI = 1 << 3;
        const SEND = 1 << 4;
        const SEND_MSG = 1 << 5;
        const RECV_MSG_MULTI = 1 << 6;
        const CONNECT = 1 << 7;
    }
}

impl OpSet {
    pub(crate) fn of(backend: &impl Backend) -> OpSet {
        let performed = OpKind::ALL.iter().filter(|kind| backend.supports(**kind));
        performed.map(|kind| OpSet::of_kind(*kind)).collect()
    }

    /// Operations of one kind.
    pub(crate) fn of_kind(kind: OpKind) -> OpSet {
        match kind {
            OpKind::Accept => OpSet::ACCEPT,
            OpKind::AcceptMulti => OpSet::ACCEPT_MULTI,
            OpKind::Recv => OpSet::RECV,
            OpKind::RecvMulti => OpSet::RECV_MULTI,
            OpKind::Send => OpSet::SEND,
            OpKind::SendMsg => OpSet::SEND_MSG,
            OpKind::RecvMsgMulti => OpSet::RECV_MSG_MULTI,
            OpKind::Connect => OpSet::CONNECT,
            _ => OpSet::empty(),
        }
    }
}

/// The owner of an operation, which gets its completions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OpOwner {
    /// A request whose task it is.
    Task(Token),
    /// A stream that receives or accepts.
    StreamInput(Token),
    /// A stream that sends or connects.
    StreamOutput(Token),
    /// A send of a stream that is closed, whose memory the kernel holds.
    HeldSend(Token),
    /// A UDP socket that receives.
    UdpInput(Udp),
    /// A UDP socket that sends.
    UdpOutput(Udp),
    /// A pipe of Windows.
    #[cfg(windows)]
    Pipe(Token),
}

/// An operation in flight, as its handle sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) token: Token,
    pub(crate) kind: OpKind,
    pub(crate) cancelled: bool,
}

impl InFlight {
    /// Cancels the operation, once. Its last `Done` is still to come.
    pub(crate) fn cancel(&mut self, backend: &mut impl Backend) {
        if !std::mem::replace(&mut self.cancelled, true) {
            // An operation that the backend does not know any more has completed.
            let _ = backend.cancel(self.token);
        }
    }
}

/// A completion of an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) result: Result<usize, i32>,
    pub(crate) more: bool,
    pub(crate) lease: Option<BufferLease>,
}

/// An operation in flight, as the loop sees it.
#[derive(Debug)]
struct Operation {
    owner: OpOwner,
    kind: OpKind,
    /// The list of buffers that it sends.
    gather: Option<Box<SendMessage>>,
}

/// A close that waits for operations in flight.
#[derive(Debug)]
struct DeferredClose<B: Backend> {
    /// The descriptor that a stream's operations use.
    socket: Option<Transport>,
    /// The entry for the closing phase. `None` until the handle is stopped.
    closing: Option<Closing<B>>,
}

/// The operations in flight, the events of the last wait, and the closes that operations delay.
#[derive(Debug)]
pub(crate) struct Operations<B: Backend> {
    performs: OpSet,
    flights: Arena<Operation>,
    /// The results of sends whose memory the kernel still holds: few, if any.
    held: Table<Result<usize, i32>>,
    /// A free list of lists of buffers.
    #[allow(clippy::vec_box)] // The kernel has their addresses.
    spare: Vec<Box<SendMessage>>,
    /// The events of the last wait, and the number of those that were dispatched.
    pub(crate) events: Vec<Event>,
    pub(crate) handled: usize,
    /// Handles that are closed when their last operation has ended.
    deferred_closes: Arena<DeferredClose<B>>,
}

impl<B: Backend> Operations<B> {
    pub(crate) fn new(seed: Seed, backend: &B) -> Self {
        Operations {
            performs: OpSet::of(backend),
            flights: Arena::new(seed),
            held: Table::default(),
            spare: Vec::new(),
            events: Vec::new(),
            handled: 0,
            deferred_closes: Arena::new(seed),
        }
    }

    #[inline]
    pub(crate) fn performs(&self, operation: OpSet) -> bool {
        self.performs.contains(operation)
    }

    /// From now on the loop uses readiness instead of an operation.
    pub(crate) fn disable_op(&mut self, operation: OpSet) {
        self.performs -= operation;
    }

    /// Keeps the socket of a closing stream open until its operations have ended.
    pub(crate) fn defer_socket_close(&mut self, socket: Option<Transport>) -> Token {
        self.deferred_closes.insert(DeferredClose { socket, closing: None })
    }

    /// Defers the close of a handle until its operations have ended. `deferred` is the record of its
    /// socket, if it has one.
    pub(crate) fn defer_close(&mut self, deferred: Option<Token>, closing: Closing<B>) -> Token {
        if let Some(key) = deferred
            && let Some(record) = self.deferred_closes.get_mut(key)
        {
            record.closing = Some(closing);
            return key;
        }
        self.deferred_closes.insert(DeferredClose { socket: None, closing: Some(closing) })
    }

    /// Takes the socket of a deferred close.
    pub(crate) fn take_socket(&mut self, deferred: Token) -> Option<Transport> {
        self.deferred_closes.get_mut(deferred)?.socket.take()
    }

    /// True while handles wait for their operations to be closed.
    pub(crate) fn has_deferred_closes(&self) -> bool {
        self.deferred_closes.len() > 0
    }

    /// In a forked child: drops the readiness events, and keeps the completions.
    pub(crate) fn forget_readiness(&mut self) {
        self.events.drain(..self.handled);
        self.handled = 0;
        self.events.retain(|event| matches!(event, Event::Done { .. }));
    }

    /// The owner of an operation in flight.
    pub(crate) fn owner(&self, token: Token) -> Option<OpOwner> {
        self.flights.get(token).map(|operation| operation.owner)
    }

    /// From now on, the completions of an operation go to another owner.
    pub(crate) fn set_owner(&mut self, token: Token, owner: OpOwner) {
        if let Some(operation) = self.flights.get_mut(token) {
            operation.owner = owner;
        }
    }

    /// True if a send has its result, and the kernel still holds its memory.
    pub(crate) fn is_held(&self, token: Token) -> bool {
        self.held.get(token).is_some()
    }

    /// A list of buffers, empty.
    pub(crate) fn gather(&mut self) -> Box<SendMessage> {
        self.spare.pop().unwrap_or_default()
    }
}

impl<B: Backend> Drop for Operations<B> {
    fn drop(&mut self) {
        // Closes connections that were accepted and not reported.
        for event in self.events.drain(..).skip(self.handled) {
            if let Event::Done { token, result: Ok(raw), .. } = event
                && let Some(operation) = self.flights.get(token)
                && matches!(operation.kind, OpKind::Accept | OpKind::AcceptMulti)
            {
                // SAFETY: the backend has accepted it for an operation of this loop, and the event
                // that gave it was not handled: nothing else has it.
                drop(unsafe { sys::accepted(raw) });
            }
        }
    }
}

impl<B: Backend> Loop<B> {
    /// Submits an operation, whose completions go to `owner`.
    ///
    /// # Safety
    ///
    /// As for [`Backend::submit`]: the memory and the source that `op` names stay valid until its
    /// last completion, or until the backend is dropped, which is the first field of a loop to be
    /// dropped.
    pub(crate) unsafe fn submit(&mut self, owner: OpOwner, op: Op) -> io::Result<Token> {
        // SAFETY: the caller's promise.
        unsafe { self.submit_with(owner, op, None) }
    }

    /// # Safety
    ///
    /// As above. The list of buffers is kept here.
    #[inline]
    unsafe fn submit_with(
        &mut self,
        owner: OpOwner,
        op: Op,
        gather: Option<Box<SendMessage>>,
    ) -> io::Result<Token> {
        let operation = Operation { owner, kind: op.kind(), gather };
        let token = self.operations.flights.insert(operation);
        // SAFETY: the caller's promise.
        let submitted = unsafe { self.backend.submit(token, op) };
        if submitted.is_err() {
            self.operations.end(token);
        }
        submitted.map(|()| token)
    }

    /// Starts an operation of a handle.
    ///
    /// # Safety
    ///
    /// As for [`Backend::submit`]. The buffers and the source that `op` names belong to the handle
    /// of `owner`, which keeps them until the last `Done`, even if it is closed; no other part of
    /// the loop uses the memory meanwhile. A message or an address is in `gather`, which is kept
    /// here.
    pub(crate) unsafe fn perform(
        &mut self,
        owner: OpOwner,
        op: Op,
        gather: Option<Box<SendMessage>>,
    ) -> io::Result<InFlight> {
        let kind = op.kind();
        // SAFETY: the caller's promise; `gather` is dropped by `Operations::end`, after the last
        // `Done`.
        let token = unsafe { self.submit_with(owner, op, gather) }?;
        Ok(InFlight { token, kind, cancelled: false })
    }

    /// Dispatches a completion. True if a callback ran.
    #[inline(never)] // Readiness events would pay for its frame.
    pub(crate) fn operation_done(&mut self, token: Token, mut done: Done) -> bool {
        let Some(operation) = self.operations.flights.get_mut(token) else {
            debug_assert!(false, "a completion of an unknown operation");
            return false;
        };
        let owner = operation.owner;
        if matches!(operation.kind, OpKind::Send | OpKind::SendMsg) {
            // The first completion has the result; the last one releases the memory.
            if done.more {
                // An earlier result stays.
                let _ = self.operations.held.insert(token, done.result);
                if let OpOwner::StreamOutput(key) = owner {
                    streams::arm::send_held(self, key);
                }
                return false;
            }
            if !self.operations.held.is_empty() {
                done.result = self.operations.held.remove(token).unwrap_or(done.result);
            }
        }
        if !done.more {
            self.operations.end(token);
        }
        match owner {
            OpOwner::Task(request) => task::done(self, request, done.result),
            OpOwner::StreamInput(key) => input::done(self, key, done),
            OpOwner::StreamOutput(key) => output::done(self, key, done),
            OpOwner::HeldSend(held) => output::held_send::done(self, held, done.result),
            OpOwner::UdpInput(udp) => udp::arm::input_done(self, udp, done),
            OpOwner::UdpOutput(udp) => udp::flush::output_done(self, udp, done),
            #[cfg(windows)]
            OpOwner::Pipe(flight) => streams::named_pipe::done(self, flight, done.result),
        }
    }
}

impl<B: Backend> Operations<B> {
    /// Queues the close of a handle whose last operation has ended.
    #[inline]
    pub(crate) fn finish_deferred_close(
        &mut self,
        closing: &mut Vec<Closing<B>>,
        deferred: Option<Token>,
    ) {
        let deferred = deferred.and_then(|key| self.deferred_closes.remove(key));
        closing.extend(deferred.and_then(|deferred| deferred.closing));
    }

    #[inline]
    fn end(&mut self, token: Token) {
        if let Some(Operation { gather: Some(gather), .. }) = self.flights.remove(token) {
            self.spare.push(gather);
        }
    }
}
