//! Descriptors that change hands: to a child, to another process, or to another handle.
//!
//! A multishot receive goes on after `read_stop`, so that starting again costs nothing. Its bytes
//! are in the loop's memory, where another reader of the descriptor does not find them. So the
//! loop ends the operation before it gives the descriptor away, and refuses that if bytes have
//! been received and not read.

use std::io;
use std::time::Duration;

use poll_core::{Backend, Event, RawSource, Token};

use super::{Flags, StreamSlot};
use crate::Loop;
use crate::event_loop::{Done, OpOwner};

/// Polls for the completions of operations that were cancelled. The kernel ends most of them in
/// the system call that submits the cancellation.
const POLLS: usize = 8;

impl<B: Backend> StreamSlot<B> {
    fn is_reading(&self) -> bool {
        self.flags.contains(Flags::READING) || !self.reads.is_empty()
    }

    /// True if bytes or connections are queued here.
    pub(super) fn has_queued_input(&self) -> bool {
        let accepted = self.listener.as_ref().is_some_and(|listener| listener.has_queued());
        accepted || !self.recv_queue.is_empty()
    }

    /// True if its handle waits for something.
    fn is_waiting(&self) -> bool {
        let waits = Flags::LISTENING | Flags::CONNECTING;
        self.is_reading() || self.flags.intersects(waits) || self.output.is_some()
    }

    fn is_on(&self, raw: RawSource) -> bool {
        self.socket.as_ref().is_some_and(|socket| RawSource::of(&**socket) == raw)
    }

    /// The registration of `raw`, if nothing is armed.
    fn take_idle_source(&mut self, raw: RawSource) -> Option<Token> {
        let idle = self.armed.is_empty() && self.source.is_some() && self.is_on(raw);
        if idle { self.source.take() } else { None }
    }
}

/// The descriptor of a stream goes to another process, which may read it.
///
/// # Errors
///
/// `ResourceBusy` if the loop has received bytes that were not read.
pub(crate) fn hand_over<B: Backend>(lp: &mut Loop<B>, key: Token) -> io::Result<()> {
    end_receive(lp, key)?;
    lp.streams.open(key)?.flags |= Flags::GIVEN;
    Ok(())
}

/// Ends the operation that receives for a stream that is not read.
fn end_receive<B: Backend>(lp: &mut Loop<B>, key: Token) -> io::Result<()> {
    let slot = lp.streams.open(key)?;
    if slot.is_reading() || slot.listener.is_some() {
        return Ok(()); // The stream's own callbacks get the bytes.
    }
    if slot.input.is_some() {
        lp.streams.cancel_input(&mut lp.backend, key);
        poll_operations(
            lp,
            key,
            |_, owner| matches!(owner, OpOwner::StreamInput(stream) if stream == key),
        );
    }
    let slot = lp.streams.open(key)?;
    if slot.input.is_some() || slot.recv_queue.has_bytes() {
        let why = "the loop has received bytes of this stream that were not read: read them \
                   with `read_start` first";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    Ok(())
}

/// Fetches what an operation has received or accepted for a stream without a reader, a callback
/// and requests. The operation goes on.
pub(super) fn collect_input<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let is_due =
        |_: &Loop<B>, owner| matches!(owner, OpOwner::StreamInput(stream) if stream == key);
    handle_done(lp, &is_due);
    let slot = lp.streams.slots.get(key);
    if slot.is_some_and(|slot| slot.input.is_some() && !slot.has_queued_input()) {
        fetch_events(lp);
        handle_done(lp, &is_due);
    }
}

/// Handles the completions of those operations for which no callback runs, until the stream
/// has none in flight. Other events wait for the loop's next iteration.
fn poll_operations<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    is_due: impl Fn(&Loop<B>, OpOwner) -> bool,
) {
    for _ in 0..POLLS {
        handle_done(lp, &is_due);
        if !lp.streams.has_flights(key) {
            return;
        }
        fetch_events(lp);
    }
    handle_done(lp, &is_due);
}

/// Submits queued operations and fetches the pending events, which are dispatched later.
fn fetch_events<B: Backend>(lp: &mut Loop<B>) {
    let mut fetched = Vec::new();
    // After an error the next iteration tries again, or reports it.
    let _ = lp.backend.wait(Some(Duration::ZERO), &mut fetched);
    lp.keep_events(fetched);
    lp.notifier.renew_wake();
}

fn handle_done<B: Backend>(lp: &mut Loop<B>, is_due: &impl Fn(&Loop<B>, OpOwner) -> bool) {
    let mut index = lp.operations.handled;
    while let Some(event) = lp.operations.events.get(index) {
        match *event {
            Event::Done { token, result, more, lease }
                if lp.operations.owner(token).is_some_and(|owner| is_due(lp, owner)) =>
            {
                lp.operations.events.remove(index);
                lp.operation_done(token, Done { result, more, lease });
            }
            _ => index += 1,
        }
    }
}

/// A stream was closed outside of [`Loop::run`]: the peer sees that before the loop runs
/// again.
#[cold]
pub(crate) fn flush_close<B: Backend>(lp: &mut Loop<B>, key: Token) {
    poll_operations(lp, key, is_closing_stream);
}

/// The loop returns from [`Loop::run`], and streams that were closed have operations in
/// flight.
#[cold]
pub(crate) fn flush_closes<B: Backend>(lp: &mut Loop<B>) {
    fetch_events(lp);
    handle_done(lp, &is_closing_stream);
}

fn is_closing_stream<B: Backend>(lp: &Loop<B>, owner: OpOwner) -> bool {
    match owner {
        OpOwner::StreamInput(key) | OpOwner::StreamOutput(key) => {
            lp.streams.slots.get(key).is_some_and(|slot| slot.base.is_closing())
        }
        _ => false,
    }
}

/// Removes the registration of `raw` if its handle is idle: another handle registers the
/// descriptor. True if there was one.
#[cold]
pub(crate) fn release_idle_source<B: Backend>(lp: &mut Loop<B>, raw: RawSource) -> bool {
    let streams = &mut lp.streams.slots;
    let source = streams.iter_mut().find_map(|(_, slot)| slot.take_idle_source(raw));
    let source =
        source.or_else(|| lp.polls.iter_mut().find_map(|(_, slot)| slot.take_idle_source(raw)));
    let source = source
        .or_else(|| lp.udps.slots.iter_mut().find_map(|(_, slot)| slot.take_idle_source(raw)));
    if let Some(source) = source {
        lp.unwatch(source);
    }
    source.is_some()
}

/// A poll is made for a descriptor that a stream may use by operations, of which the backend's
/// registrations know nothing.
///
/// # Errors
///
/// `AlreadyExists` if the stream waits for something, `ResourceBusy` as for
/// [`hand_over`].
pub(crate) fn check_operations_on<B: Backend>(lp: &mut Loop<B>, raw: RawSource) -> io::Result<()> {
    let uses = |slot: &StreamSlot<B>| slot.input.is_some() || slot.output.is_some();
    let stream = lp.streams.slots.iter().find(|(_, slot)| uses(slot) && slot.is_on(raw));
    let Some((key, waits)) = stream.map(|(key, slot)| (key, slot.is_waiting())) else {
        return Ok(());
    };
    if waits {
        let why = "a stream of this loop uses the descriptor: stop or close it first";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    end_receive(lp, key)
}

/// Refuses an operation on a descriptor that a poll watches, as the backend refuses a second
/// registration.
///
/// # Errors
///
/// `AlreadyExists`.
pub(super) fn check_polls_of<B: Backend>(lp: &Loop<B>, key: Token) -> io::Result<()> {
    let Some(slot) = lp.streams.slots.get(key) else { return Ok(()) };
    let mut watched = lp.polls.iter().filter_map(|(_, poll)| poll.unowned_source());
    if slot.input.is_none() && watched.any(|raw| slot.is_on(raw)) {
        let why = "a poll of this loop watches the descriptor: stop or close it first";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    Ok(())
}
