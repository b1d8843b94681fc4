//! What a stream waits for, and telling the backend.
//!
//! Two things at the most: input (connections, or bytes) and output. Each is an operation where
//! the backend performs it, and readiness where not.

use std::io;

use poll_core::{Backend, Mode, Op, OpKind, RawBuf, RawSource, Ready, Token};

use super::{Flags, Kind, StreamSlot};
use crate::Loop;
use crate::operations::{Asker, Done, Performs};
use crate::provided::Group;
use crate::sources::Owner;

/// What a stream should be waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    input: Input,
    output: Output,
}

impl Wanted {
    /// True if any of it is to be an operation.
    fn operates(self) -> bool {
        matches!(self.input, Input::Operation(_)) || self.output == Output::Operation
    }

    /// What of it is to be readiness.
    fn readiness(self) -> Ready {
        let mut ready = Ready::NONE;
        ready.set(Ready::READ, self.input == Input::Ready);
        ready.set(Ready::WRITE, self.output == Output::Ready);
        ready
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Input {
    Nothing,
    Ready,
    Operation(OpKind),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Nothing,
    Ready,
    Operation,
}

impl<B: Backend> StreamSlot<B> {
    /// True if the backend may perform operations on it.
    pub(super) fn operates(&self) -> bool {
        let socket = self.socket.as_ref().is_some_and(|socket| socket.is_socket());
        // Handles come and go with calls of their own.
        socket && self.passing.is_none() && !self.flags.intersects(Flags::BLOCKING | Flags::SHARED)
    }

    #[inline]
    fn wanted(&self, performs: impl Fn(Performs) -> bool) -> Wanted {
        if self.flags.contains(Flags::CONNECTING) {
            let output = match self.output {
                Some(_) => Output::Operation,
                None if self.knows_connected() => Output::Nothing,
                None => Output::Ready,
            };
            return Wanted { input: Input::Nothing, output };
        }
        // Asked first, as on many backends the answer is no.
        let performs = |operation| performs(operation) && self.operates();
        let output = match self.writes.is_empty() && self.batch.is_none() {
            true => Output::Nothing,
            false if performs(Performs::SEND) => Output::Operation,
            false => Output::Ready,
        };
        let input = self.wanted_input(performs);
        Wanted { input, output }
    }

    /// True if the stream waits for bytes to lend, by readiness, and for nothing else. Whatever
    /// changes that has it [armed](Loop::arm_stream) anew, so that little has to be looked at.
    #[inline]
    pub(super) fn waits_for_bytes_only(&self) -> bool {
        let others = Flags::LATE | Flags::CONNECTING | Flags::LISTENING;
        // A pipe of Windows is armed anew for each piece.
        let once = cfg!(windows) && self.kind == Kind::Pipe;
        self.armed == Ready::READ
            && self.flags & (Flags::READING | others) == Flags::READING
            && !once
    }

    /// True if that is what the stream waits for already, by operations alone.
    fn waits_for(&self, wanted: Wanted) -> bool {
        let input = self.input.map_or(Input::Nothing, |flight| Input::Operation(flight.kind));
        let output = if self.output.is_some() { Output::Operation } else { Output::Nothing };
        self.armed == Ready::NONE && wanted == Wanted { input, output }
    }

    #[inline]
    fn wanted_input(&self, performs: impl Fn(Performs) -> bool) -> Input {
        let either = |operation, kind| match performs(operation) {
            true => Input::Operation(kind),
            false => Input::Ready,
        };
        if self.wants_peers() {
            let listener = self.listener.as_ref();
            if !listener.is_some_and(|listener| listener.may_operate()) {
                return Input::Ready;
            }
            if self.tells_of_peers() && performs(Performs::ACCEPT_MULTI) {
                return Input::Operation(OpKind::AcceptMulti);
            }
            return either(Performs::ACCEPT, OpKind::Accept);
        }
        if !self.arrivals.is_empty() {
            return Input::Nothing; // There is something to read already.
        }
        if !self.reads.is_empty() {
            return either(Performs::RECV, OpKind::Recv);
        }
        match self.flags & (Flags::READING | Flags::LATE) {
            Flags::READING if !self.pace.is_much() => {
                either(Performs::RECV_MULTI, OpKind::RecvMulti)
            }
            flags if flags.contains(Flags::READING) => Input::Ready,
            _ => Input::Nothing,
        }
    }
}

impl<B: Backend> Loop<B> {
    /// Tells the backend what the stream now waits for, if that has changed. Registers the
    /// socket the first time it waits for it to be ready.
    pub(super) fn arm_stream(&mut self, key: Token) -> io::Result<()> {
        let Some(slot) = self.streams.slots.get(key) else { return Ok(()) };
        if slot.socket.is_none() || slot.base.is_closing() {
            return Ok(());
        }
        let wanted = slot.wanted(|operation| self.operations.performs(operation));
        if slot.input.is_none() && !wanted.operates() {
            return self.watch_stream(key, wanted.readiness());
        }
        if slot.waits_for(wanted) {
            return Ok(());
        }
        self.arm_input(key, wanted.input)?;
        if wanted.output == Output::Operation {
            self.put_in_outbox(key);
        }
        let Some(slot) = self.streams.slots.get(key) else { return Ok(()) };
        // An operation may have been refused.
        let again = slot.wanted(|operation| self.operations.performs(operation));
        let mut ready = again.readiness();
        // What an operation that is about to end still receives comes first.
        ready.set(Ready::READ, ready.contains(Ready::READ) && slot.input.is_none());
        self.watch_stream(key, ready)
    }

    #[inline]
    fn watch_stream(&mut self, key: Token, wanted: Ready) -> io::Result<()> {
        let Some(slot) = self.streams.slots.get_mut(key) else { return Ok(()) };
        #[cfg(windows)]
        if slot.socket.as_ref().is_some_and(|socket| socket.pipe().is_some()) {
            return self.arm_pipe(key, wanted);
        }
        if wanted == slot.armed {
            return Ok(());
        }
        let Some(socket) = &slot.socket else { return Ok(()) };
        socket.wait_to_read(wanted.contains(Ready::READ));
        match slot.source {
            Some(source) => self.backend.modify(source, wanted, Mode::Level)?,
            None => {
                let raw = RawSource::of(&**socket);
                let source = self.watch_for(Owner::Stream(key), raw, wanted)?;
                if let Some(slot) = self.streams.slots.get_mut(key) {
                    slot.source = Some(source);
                }
            }
        }
        if let Some(slot) = self.streams.slots.get_mut(key) {
            slot.armed = wanted;
        }
        Ok(())
    }

    /// A stream that waits for bytes was read by calls. That goes on, unless little comes now and
    /// the backend receives it.
    #[inline]
    pub(super) fn keep_pace(&mut self, key: Token) {
        if self.operations.performs(Performs::RECV_MULTI)
            && !self.streams.slots.get(key).is_some_and(|slot| slot.pace.is_much())
        {
            self.rearm_stream(key);
        }
    }

    /// As [`Loop::arm_stream`], for a stream whose registration cannot fail any more.
    #[inline]
    pub(super) fn rearm_stream(&mut self, key: Token) {
        let armed = self.arm_stream(key);
        debug_assert!(armed.is_ok(), "a registered source can be modified: {armed:?}");
    }

    /// Starts the operation that the stream wants, and ends another.
    fn arm_input(&mut self, key: Token, wanted: Input) -> io::Result<()> {
        let Some(slot) = self.streams.slots.get(key) else { return Ok(()) };
        let accepts = |kind| matches!(kind, OpKind::Accept | OpKind::AcceptMulti);
        match (slot.input, wanted) {
            (None, Input::Operation(kind)) => self.start_input(key, kind),
            (None, _) => Ok(()),
            (Some(flight), Input::Operation(kind))
                if flight.kind == kind || (accepts(flight.kind) && accepts(kind)) =>
            {
                Ok(()) // If it was cancelled, its end is waited for.
            }
            // Reading was stopped. It costs nothing if it starts again before something comes;
            // what comes is kept.
            (Some(flight), Input::Nothing) if flight.kind == OpKind::RecvMulti => Ok(()),
            (Some(_), _) => {
                self.cancel_input(key);
                Ok(())
            }
        }
    }

    fn start_input(&mut self, key: Token, kind: OpKind) -> io::Result<()> {
        if kind == OpKind::RecvMulti && !self.provides(Group::Streams) {
            self.operations.give_up(Performs::RECV_MULTI);
            return Ok(());
        }
        let Some(slot) = self.streams.slots.get_mut(key) else { return Ok(()) };
        let Some(socket) = &slot.socket else { return Ok(()) };
        let source = RawSource::of(&**socket);
        let op = match kind {
            OpKind::AcceptMulti => Op::AcceptMulti { listener: source },
            OpKind::Accept => Op::Accept { listener: source },
            OpKind::RecvMulti => Op::RecvMulti { source, group: Group::Streams.number() },
            _ => {
                let first = slot.reads.first();
                let read = first.and_then(|read| self.streams.transfers.get_mut(read));
                let Some(read) = read else { return Ok(()) };
                Op::Recv { source, buf: RawBuf::filling(read.stored.memory()) }
            }
        };
        let started = self.perform(Asker::StreamInput(key), op, None);
        if let Some(slot) = self.streams.slots.get_mut(key) {
            slot.input = started.ok();
            if slot.input.is_none() {
                // Refused: this loop waits for readiness from now on.
                self.operations.give_up(Performs::of_kind(kind));
            }
        }
        Ok(())
    }

    pub(super) fn cancel_input(&mut self, key: Token) {
        if let Some(slot) = self.streams.slots.get_mut(key)
            && let Some(flight) = &mut slot.input
        {
            flight.cancel(&mut self.backend);
        }
    }

    pub(super) fn cancel_output(&mut self, key: Token) {
        if let Some(slot) = self.streams.slots.get_mut(key)
            && let Some(flight) = &mut slot.output
        {
            flight.cancel(&mut self.backend);
        }
    }

    /// The operation that accepts or receives says something.
    pub(crate) fn stream_input_done(&mut self, key: Token, done: Done) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        let Some(flight) = slot.input else { return };
        if !done.more {
            slot.input = None;
        }
        // Before anybody is called: a panic must not keep the handle open.
        self.flight_ended(key);
        match flight.kind {
            OpKind::Accept | OpKind::AcceptMulti => self.accept_done(key, done),
            OpKind::Recv => self.read_done(key, done),
            _ => self.receive_done(key, done),
        }
        self.rearm_stream(key);
    }

    /// If the stream is closing and this was its last operation, nothing holds it any more.
    pub(super) fn flight_ended(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        let held = slot.input.is_some() || slot.output.is_some();
        if held || !slot.base.is_closing() {
            return;
        }
        let leaving = slot.leaving.take().and_then(|leaving| self.streams.leaving.remove(leaving));
        self.settle(leaving.and_then(|leaving| leaving.lingering));
    }

    /// True if operations have memory of the stream.
    pub(crate) fn stream_has_flights(&self, key: Token) -> bool {
        let slot = self.streams.slots.get(key);
        slot.is_some_and(|slot| slot.input.is_some() || slot.output.is_some())
    }

    /// Notes that the stream is closed when its operations have ended.
    pub(crate) fn stream_lingers(&mut self, key: Token, lingering: Token) {
        if let Some(leaving) = self.streams.leaving(key) {
            leaving.lingering = Some(lingering);
        }
    }
}
