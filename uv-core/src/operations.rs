//! Operations that the backend performs for handles, and who hears of each.
//!
//! A handle asks [`Performs`] whether an operation is there; if not, it waits for readiness
//! instead. What an operation borrows stays where it is until its last `Done`: buffers in
//! their requests, headers and lists of buffers here, sources in their slots, which a close
//! keeps until then.

#![allow(unsafe_code)]

use std::io;

use bitflags::bitflags;
use poll_core::{Backend, Event, Lent, Op, OpKind, Table, Token};

use crate::Loop;
use crate::arena::Arena;
use crate::handles::{Closing, Udp};
use crate::sys::{self, Gather};

bitflags! {
    /// Which operations the backend performs, of those that handles use.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Performs: u16 {
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

impl Performs {
    pub(crate) fn of(backend: &impl Backend) -> Performs {
        let performed = OpKind::ALL.iter().filter(|kind| backend.supports(**kind));
        performed.map(|kind| Performs::of_kind(*kind)).collect()
    }

    /// Operations of one kind.
    pub(crate) fn of_kind(kind: OpKind) -> Performs {
        match kind {
            OpKind::Accept => Performs::ACCEPT,
            OpKind::AcceptMulti => Performs::ACCEPT_MULTI,
            OpKind::Recv => Performs::RECV,
            OpKind::RecvMulti => Performs::RECV_MULTI,
            OpKind::Send => Performs::SEND,
            OpKind::SendMsg => Performs::SEND_MSG,
            OpKind::RecvMsgMulti => Performs::RECV_MSG_MULTI,
            OpKind::Connect => Performs::CONNECT,
            _ => Performs::empty(),
        }
    }
}

/// Who asked for an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    /// A request whose task it is.
    Task(Token),
    /// A stream that receives or accepts.
    StreamInput(Token),
    /// A stream that sends or connects.
    StreamOutput(Token),
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
pub(crate) struct Flight {
    pub(crate) token: Token,
    pub(crate) kind: OpKind,
    /// It was asked to end.
    pub(crate) cancelled: bool,
}

impl Flight {
    /// Asks the operation to end. Its last `Done` is still to come.
    pub(crate) fn cancel(&mut self, backend: &mut impl Backend) {
        if !std::mem::replace(&mut self.cancelled, true) {
            // One that the backend does not know any more has been reported.
            let _ = backend.cancel(self.token);
        }
    }
}

/// What an operation says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub(crate) result: Result<usize, i32>,
    pub(crate) more: bool,
    pub(crate) lent: Option<Lent>,
}

/// An operation in flight, as the loop sees it.
#[derive(Debug)]
struct Operation {
    asker: Asker,
    kind: OpKind,
    /// The list of buffers that it sends.
    gather: Option<Box<Gather>>,
}

/// The operations in flight, what the last wait has reported, and what waits for ends.
#[derive(Debug)]
pub(crate) struct Operations<B: Backend> {
    performs: Performs,
    flights: Arena<Operation>,
    /// How sends went whose memory the kernel still holds: few, if any.
    held: Table<Result<usize, i32>>,
    /// Lists of buffers for those to come. They go to operations as they are, in their boxes.
    #[allow(clippy::vec_box)] // Their addresses are what the kernel knows.
    spare: Vec<Box<Gather>>,
    /// What the last wait reported, and how much of it has been handled.
    pub(crate) events: Vec<Event>,
    pub(crate) handled: usize,
    /// How many of them, since the loop began to handle them, have told nobody anything.
    pub(crate) told_nobody: usize,
    /// Handles that are closed when their last operation has ended.
    lingering: Arena<Closing<B>>,
}

impl<B: Backend> Operations<B> {
    pub(crate) fn new(backend: &B) -> Self {
        Operations {
            performs: Performs::of(backend),
            flights: Arena::default(),
            held: Table::default(),
            spare: Vec::new(),
            events: Vec::new(),
            handled: 0,
            told_nobody: 0,
            lingering: Arena::default(),
        }
    }

    #[inline]
    pub(crate) fn performs(&self, operation: Performs) -> bool {
        self.performs.contains(operation)
    }

    /// From now on the loop does without an operation.
    pub(crate) fn give_up(&mut self, operation: Performs) {
        self.performs -= operation;
    }

    /// A handle that is closing has operations in flight: it is closed after them.
    pub(crate) fn linger(&mut self, closing: Closing<B>) -> Token {
        self.lingering.insert(closing)
    }

    /// True while handles wait for their operations to be closed.
    pub(crate) fn any_lingers(&self) -> bool {
        self.lingering.len() > 0
    }

    /// In a forked child: forgets what was ready. What was done stays so.
    pub(crate) fn forget_readiness(&mut self) {
        self.events.drain(..self.handled);
        self.handled = 0;
        self.events.retain(|event| matches!(event, Event::Done { .. }));
    }

    /// A list of buffers, empty.
    pub(crate) fn gather(&mut self) -> Box<Gather> {
        self.spare.pop().unwrap_or_default()
    }
}

impl<B: Backend> Drop for Operations<B> {
    fn drop(&mut self) {
        // Connections that were accepted and that nobody has heard of.
        for event in self.events.drain(..).skip(self.handled) {
            if let Event::Done { token, result: Ok(raw), .. } = event
                && let Some(operation) = self.flights.get(token)
                && matches!(operation.kind, OpKind::Accept | OpKind::AcceptMulti)
            {
                drop(sys::accepted(raw));
            }
        }
    }
}

impl<B: Backend> Loop<B> {
    /// Submits an operation, whose ends go to `asker`.
    ///
    /// # Safety
    ///
    /// As for [`Backend::submit`]: what `op` names stays valid until its last end, or until
    /// the backend is dropped, which is the first that goes of a loop.
    pub(crate) unsafe fn submit(&mut self, asker: Asker, op: Op) -> io::Result<Token> {
        // SAFETY: the caller's promise.
        unsafe { self.submit_with(asker, op, None) }
    }

    /// # Safety
    ///
    /// As above. The list of buffers is kept here.
    #[inline]
    unsafe fn submit_with(
        &mut self,
        asker: Asker,
        op: Op,
        gather: Option<Box<Gather>>,
    ) -> io::Result<Token> {
        let operation = Operation { asker, kind: op.kind(), gather };
        let token = self.operations.flights.insert(operation);
        // SAFETY: the caller's promise.
        let submitted = unsafe { self.backend.submit(token, op) };
        if submitted.is_err() {
            self.end_operation(token);
        }
        submitted.map(|()| token)
    }

    /// Starts an operation of a handle, which keeps what it lends until the last `Done`, even
    /// if it is closed.
    pub(crate) fn perform(
        &mut self,
        asker: Asker,
        op: Op,
        gather: Option<Box<Gather>>,
    ) -> io::Result<Flight> {
        let kind = op.kind();
        // SAFETY: as the line above says; nobody else uses the memory meanwhile.
        let token = unsafe { self.submit_with(asker, op, gather) }?;
        Ok(Flight { token, kind, cancelled: false })
    }

    /// An operation says something.
    #[inline(never)]
    pub(crate) fn operation_done(&mut self, token: Token, mut done: Done) {
        let Some(operation) = self.operations.flights.get_mut(token) else {
            debug_assert!(false, "an operation that nobody has started");
            return;
        };
        let asker = operation.asker;
        if matches!(operation.kind, OpKind::Send | OpKind::SendMsg) {
            // The first says how it went; the last, that the memory is free.
            if done.more {
                // One that is noted already stays so.
                let _ = self.operations.held.insert(token, done.result);
                self.operations.told_nobody += 1;
                return;
            }
            if !self.operations.held.is_empty() {
                done.result = self.operations.held.remove(token).unwrap_or(done.result);
            }
        }
        if !done.more {
            self.end_operation(token);
        }
        match asker {
            Asker::Task(request) => self.task_done(request, done.result),
            Asker::StreamInput(key) => self.stream_input_done(key, done),
            Asker::StreamOutput(key) => self.stream_output_done(key, done),
            Asker::UdpInput(udp) => self.udp_input_done(udp, done),
            Asker::UdpOutput(udp) => self.udp_output_done(udp, done),
            #[cfg(windows)]
            Asker::Pipe(flight) => self.pipe_done(flight, done.result),
        }
    }

    /// The last operation of a handle that is closing has ended: nothing holds it any more.
    pub(crate) fn settle(&mut self, lingering: Option<Token>) {
        let closing = lingering.and_then(|lingering| self.operations.lingering.remove(lingering));
        self.closing.extend(closing);
    }

    fn end_operation(&mut self, token: Token) {
        if let Some(Operation { gather: Some(gather), .. }) = self.operations.flights.remove(token)
        {
            self.operations.spare.push(gather);
        }
    }
}
