//! Arms a stream for the events that it needs: interests and operations of the backend.
//!
//! A stream waits for at most two: input (connections, or bytes) and output. Each is an operation
//! where the backend performs it, and readiness elsewhere.

use std::io;

use poll_core::{Backend, Interest, Mode, RawSource, Token};

use super::input::Input;
use super::output::Output;
use super::{Flags, StreamSlot, Streams, handover, input, output};
use crate::Loop;
use crate::event_loop::{OpSet, SourceOwner, exchange};
use crate::handles::Closing;
#[cfg(windows)]
use crate::streams::named_pipe;

/// The events that a stream needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    input: Input,
    output: Output,
}

impl Wanted {
    /// True if either is to be an operation.
    fn operates(self) -> bool {
        matches!(self.input, Input::Operation(_)) || self.output == Output::Operation
    }

    /// The part that readiness reports.
    fn interest(self) -> Interest {
        let mut interest = Interest::NONE;
        interest.set(Interest::READ, self.input == Input::Ready);
        interest.set(Interest::WRITE, self.output == Output::Ready);
        interest
    }
}

impl<B: Backend> StreamSlot<B> {
    /// True if the backend may perform operations on it.
    pub(super) fn operates(&self) -> bool {
        let socket = self.socket.as_ref().is_some_and(|socket| socket.is_socket());
        // Handles are passed by calls of their own.
        socket && self.passing.is_none() && !self.flags.intersects(Flags::BLOCKING | Flags::SHARED)
    }

    #[inline]
    fn wanted(&self, performs: impl Fn(OpSet) -> bool) -> Wanted {
        if self.flags.contains(Flags::CONNECTING) {
            return Wanted { input: Input::Nothing, output: self.wanted_to_connect() };
        }
        // Checked first, because it is false for most backends.
        let performs = |operation| performs(operation) && self.operates();
        Wanted { input: self.wanted_input(performs), output: self.wanted_output(performs) }
    }

    /// True if the stream waits for that already, by operations alone.
    fn waits_for(&self, wanted: Wanted) -> bool {
        let input = self.input.map_or(Input::Nothing, |flight| Input::Operation(flight.kind));
        let output = if self.output.is_some() { Output::Operation } else { Output::Nothing };
        self.armed == Interest::NONE && wanted == Wanted { input, output }
    }
}

impl<B: Backend> Streams<B> {
    /// True if the stream has operations in flight.
    #[inline]
    pub(crate) fn has_flights(&self, key: Token) -> bool {
        let slot = self.slots.get(key);
        slot.is_some_and(|slot| slot.input.is_some() || slot.output.is_some())
    }
}

/// Updates the backend with what the stream now waits for, if that has changed. Registers the
/// socket the first time it waits for it to be ready.
#[inline]
pub(super) fn update<B: Backend>(lp: &mut Loop<B>, key: Token) -> io::Result<()> {
    let Some(slot) = lp.streams.slots.get(key) else {
        exchange::note();
        return Ok(());
    };
    if slot.socket.is_none() || slot.base.is_closing() {
        return Ok(());
    }
    let wanted = slot.wanted(|operation| lp.operations.performs(operation));
    if slot.input.is_none() && !wanted.operates() {
        return watch(lp, key, wanted.interest());
    }
    if slot.waits_for(wanted) {
        return Ok(());
    }
    if lp.has_unowned_polls && matches!(wanted.input, Input::Operation(_)) {
        handover::check_polls_of(lp, key)?;
    }
    if !input::arm(lp, key, wanted.input) {
        return update(lp, key); // By readiness: the loop has disabled the operation.
    }
    if wanted.output == Output::Operation {
        lp.streams.queue_flush(key);
    }
    let Some(slot) = lp.streams.slots.get(key) else { return Ok(()) };
    let mut interest = wanted.interest();
    // An operation that is being cancelled may still receive bytes, which come first.
    interest.set(Interest::READ, interest.contains(Interest::READ) && slot.input.is_none());
    watch(lp, key, interest)
}

#[inline]
fn watch<B: Backend>(lp: &mut Loop<B>, key: Token, wanted: Interest) -> io::Result<()> {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return Ok(()) };
    #[cfg(windows)]
    if slot.socket.as_ref().is_some_and(|socket| socket.pipe().is_some()) {
        return named_pipe::arm(lp, key, wanted);
    }
    if wanted == slot.armed {
        return Ok(());
    }
    let Some(socket) = &slot.socket else { return Ok(()) };
    socket.wait_to_read(wanted.contains(Interest::READ));
    match slot.source {
        Some(source) => lp.backend.modify(source, wanted, Mode::Level)?,
        None => {
            let raw = RawSource::of(&**socket);
            let source = lp.watch_for(SourceOwner::Stream(key), raw, wanted)?;
            if let Some(slot) = lp.streams.slots.get_mut(key) {
                slot.source = Some(source);
            }
        }
    }
    if let Some(slot) = lp.streams.slots.get_mut(key) {
        slot.armed = wanted;
    }
    Ok(())
}

/// As [`update`], for callers that return no error: the callbacks that wait get it, in the pending
/// phase.
#[inline]
pub(super) fn update_or_fail<B: Backend>(lp: &mut Loop<B>, key: Token) {
    if let Err(error) = update(lp, key) {
        arming_failed(lp, key, error);
    }
}

/// The stream cannot wait for readiness: an operation was refused, and then the registration.
#[cold]
fn arming_failed<B: Backend>(lp: &mut Loop<B>, key: Token, error: io::Error) {
    let Some(slot) = lp.streams.slots.get(key) else { return };
    let wanted = slot.wanted(|operation| lp.operations.performs(operation));
    if wanted.output == Output::Ready {
        output::fail(lp, key, &error);
    }
    if wanted.input == Input::Ready {
        input::fail(lp, key, error);
    }
}

/// If the stream is closing and this was its last operation, finishes the close.
#[inline]
pub(super) fn flight_ended<B: Backend>(lp: &mut Loop<B>, key: Token) {
    output::held_send::detach(lp, key);
    let Some(slot) = lp.streams.slots.get_mut(key) else { return };
    let held = slot.input.is_some() || slot.output.is_some();
    if held || !slot.base.is_closing() {
        return;
    }
    let deferred = slot.deferred_close.take();
    lp.operations.finish_deferred_close(&mut lp.closing, deferred);
}

/// A send has its result, and the kernel still holds its memory.
#[inline]
pub(crate) fn send_held<B: Backend>(lp: &mut Loop<B>, key: Token) {
    if lp.streams.slots.get(key).is_some_and(|slot| slot.base.is_closing()) {
        flight_ended(lp, key);
    }
}

/// The stream is closing: true if its close has to wait for operations.
pub(crate) fn close_waits<B: Backend>(lp: &mut Loop<B>, key: Token) -> bool {
    lp.streams.has_flights(key) && {
        flight_ended(lp, key);
        lp.streams.has_flights(key)
    }
}

/// The stream is closed when its operations have ended.
pub(crate) fn defer_close<B: Backend>(lp: &mut Loop<B>, key: Token, closing: Closing<B>) {
    if let Some(slot) = lp.streams.slots.get_mut(key) {
        let deferred = lp.operations.defer_close(slot.deferred_close, closing);
        slot.deferred_close = Some(deferred);
    }
}
