//! Streams: connections and listeners of TCP and pipes, and terminals.
//!
//! ```text
//!             connect                        shutdown          close
//!  new ───▶ (connecting) ───▶ connected ───▶ (drains) ───▶ … ───▶ closing ───▶ gone
//!      └──▶ bind ─▶ listen ─▶ listening ─▶ accept: a new stream, connected
//! ```
//!
//! A stream has an input side (accept, receive) and an output side (connect, send). `arm` decides
//! for each side how it waits: by an operation where the backend performs it, by readiness
//! elsewhere. Both ways end in the same callbacks.
//!
//! ```text
//!              readiness: ready                    operations: input::done, output::done
//!            ┌─ accept::ready ─▶ accept(2) ─┐    ┌─ accept::done ─ listener's queue ─┐
//!  input     │                              ├──▶─┤                                   ├─▶ accept
//!            └─ read::ready ──▶ recv(2) ────┤    └─ receive_done ─ recv_queue ───────┤
//!                                           └────────────────────────────────────────┴─▶ read
//!            ┌─ connect::ready ─▶ SO_ERROR ─┐    ┌─ connect::done ───────────────────┐
//!  output    │                              ├──▶─┤                                   ├─▶ connect
//!            └─ write::ready ──▶ send(2) ───┤    └─ write_batch, take_back_writes ───┤
//!                                           └────────────────────────────────────────┴─▶ write
//! ```
//!
//! [`run_pending`] reports results that are known immediately, in the pending phase.
//! `flush` submits the writes of an iteration together, before the wait. `handover` ends
//! operations before a descriptor goes to another process or handle.

mod api;
pub(crate) mod arm;
mod buffered_request;
pub(crate) mod handle_passing;
pub(crate) mod handover;
pub(crate) mod input;
mod listener;
#[cfg(windows)]
pub(crate) mod named_pipe;
pub(crate) mod output;
mod rare_state;
mod request_queue;
pub(crate) mod short_forms;
mod submit;

use std::fmt;
use std::io;

use bitflags::bitflags;
use poll_core::{Backend, Interest, Readiness, Token};

use crate::event_loop::InFlight;
use crate::handles::{AnyHandle, Base, Pipe, Tcp, Tty};
use crate::storage::{Arena, Seed};
use crate::sys::{Reserve, Transport};
use crate::{Loop, error};

pub use input::accept::AcceptRequest;
use input::accept::{ListenState, PendingAccept};
use input::recv_queue::RecvQueue;
use output::completed_writes::CompletedWrites;
pub(crate) use output::connect::Connecting;
use output::held_send::HeldSend;
use output::write_batch::{Spare, WriteBatch};
use rare_state::{RareState, SpareRareState};
use request_queue::{IoRequest, List};

pub use api::Stream;
pub(crate) use api::StreamKey;
pub(crate) use buffered_request::BufferedRequest;
pub(crate) use handle_passing::Passing;
pub use input::read::ReadRequest;
pub(crate) use input::read::Scratch;
use input::read::{FastPath, Reader};
use input::recv_policy::RecvPolicy;
pub use listener::Listener;
pub(crate) use listener::PrepareListen;
pub use output::write::WriteRequest;
pub(crate) use output::write::write_with_handles;
pub use short_forms::AnyStream;
#[cfg(unix)]
pub(crate) use short_forms::{accept_socket, release};
pub(crate) use short_forms::{send_with_handles, write_handles_with};

bitflags! {
    /// The capabilities and the state of a stream.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Flags: u16 {
        const READABLE = 1;
        const WRITABLE = 1 << 1;
        const READING = 1 << 2;
        const LISTENING = 1 << 3;
        const CONNECTING = 1 << 4;
        /// A shutdown was asked for and has not called back.
        const SHUTTING = 1 << 5;
        /// It is queued for the pending phase.
        const PENDING = 1 << 6;
        /// Its calls wait instead of returning `WouldBlock`.
        const BLOCKING = 1 << 7;
        /// It was received over a pipe, and the sender may have operations in flight.
        const SHARED = 1 << 8;
        /// Small writes are sent without delay (`TCP_NODELAY`).
        const NODELAY = 1 << 9;
        /// Another process may have the socket: a close does not shut it down.
        const GIVEN = 1 << 10;
        /// It has files to send, so that its output is sent by calls when it is ready.
        const SENDS_FILES = 1 << 11;
        /// The first write is a file of which the next bytes are being read.
        const READS_FILE = 1 << 12;
        /// It closes when it has been shut down, and ignores what is sent meanwhile.
        const FINISHING = 1 << 13;
        /// It is read into memory that an allocation callback provides.
        const ALLOC = 1 << 14;
        /// It is in the flush queue.
        const FLUSH_QUEUED = 1 << 15;
    }
}

/// Which kind of handle a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp,
    Pipe,
    Tty,
}

impl Kind {
    pub(crate) fn handle(self, key: Token) -> AnyHandle {
        match self {
            Kind::Tcp => Tcp(key).into(),
            Kind::Pipe => Pipe(key).into(),
            Kind::Tty => Tty(key).into(),
        }
    }
}

/// The stream and the result of a connect or a shutdown.
pub(crate) type Ended = (Token, io::Result<()>);

/// The state of a stream. The fields that every event uses are first, in two cache lines: with
/// thousands of streams most of the state is in no cache.
#[repr(C)]
pub(crate) struct StreamSlot<B: Backend> {
    pub(crate) flags: Flags,
    pub(crate) kind: Kind,
    /// The interest that the backend has.
    armed: Interest,
    /// Whether bytes are received by readiness or by operations.
    recv_policy: RecvPolicy,
    /// How many [completed writes](output::completed_writes) of it have not called back.
    completed_writes: u32,
    /// Gone once the handle is closing; TCP has none before it needs one.
    pub(crate) socket: Option<Transport>,
    /// The read callback. `None` while it runs.
    reader: Option<Reader<B>>,
    /// Bytes of writes that were neither sent nor reported as failed.
    write_queue_size: usize,
    writes: List,
    /// The coalesced bytes that precede them.
    batch: Option<Box<WriteBatch>>,
    pub(crate) base: Base,
    /// The registration, from the first time it waits for something.
    source: Option<Token>,
    /// The operation that accepts or receives.
    input: Option<InFlight>,
    /// Bytes that operations have received and no callback has read.
    recv_queue: RecvQueue,
    listener: Option<Box<ListenState<B>>>,
    /// A pipe that passes handles.
    pub(crate) passing: Option<Box<Passing>>,
    /// The operation that sends, or connects.
    output: Option<InFlight>,
    reads: List,
    /// Reads and writes that are to call back.
    done: List,
    /// The close that waits for operations in flight, and owns their socket.
    deferred_close: Option<Token>,
    /// Rarely used state.
    pub(crate) rare: Option<Box<RareState<B>>>,
}

impl<B: Backend> fmt::Debug for StreamSlot<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSlot")
            .field("socket", &self.socket)
            .field("flags", &self.flags)
            .field("armed", &self.armed)
            .finish_non_exhaustive()
    }
}

impl<B: Backend> StreamSlot<B> {
    /// The number of bytes that are queued to be written.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.write_queue_size
    }

    fn notifies_of_peers(&self) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.has_callback())
    }

    fn wants_peers(&self) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.wants_peers())
    }

    /// A stream is active while it reads or listens; requests keep the loop alive by themselves.
    fn update_active(&mut self, active_handles: &mut usize) {
        if self.flags.intersects(Flags::READING | Flags::LISTENING) {
            self.base.start(active_handles);
        } else {
            self.base.stop(active_handles);
        }
    }
}

/// The streams of a loop.
#[derive(Debug)]
pub(crate) struct Streams<B: Backend> {
    pub(crate) slots: Arena<StreamSlot<B>>,
    requests: Arena<IoRequest<B>>,
    /// Requests to accept.
    accepts: Arena<PendingAccept<B>>,
    completed_writes: CompletedWrites<B>,
    /// The write whose callback runs, and how many bytes of it were written.
    reported_write: Option<(Token, usize)>,
    /// Streams with writes that no operation sends yet.
    flush_queue: Vec<Token>,
    /// Memory that small writes are copied to.
    spare: Spare,
    /// The buffer that streams read into; `None` before the first read, and while it is lent.
    scratch: Option<Box<Scratch>>,
    /// For listeners, when there are no more descriptors.
    reserve: Reserve,
    /// Boxes for the rarely used state of streams.
    spare_rare_state: SpareRareState<B>,
    /// Sends of closed streams whose memory the kernel holds.
    held_sends: Arena<HeldSend>,
    /// Operations of pipes that are in flight.
    #[cfg(windows)]
    pipe_ops: Arena<named_pipe::PipeOp>,
}

impl<B: Backend> Streams<B> {
    pub(crate) fn new(seed: Seed) -> Streams<B> {
        Streams {
            slots: Arena::new(seed),
            requests: Arena::new(seed),
            accepts: Arena::new(seed),
            completed_writes: CompletedWrites::new(seed),
            reported_write: None,
            flush_queue: Vec::new(),
            spare: Spare::default(),
            scratch: None,
            reserve: Reserve::default(),
            spare_rare_state: SpareRareState::default(),
            held_sends: Arena::new(seed),
            #[cfg(windows)]
            pipe_ops: Arena::new(seed),
        }
    }

    /// A stream that is neither closed nor closing.
    #[inline]
    pub(crate) fn open(&mut self, key: Token) -> io::Result<&mut StreamSlot<B>> {
        open(&mut self.slots, key)
    }

    /// [`open`](Streams::open), and the arena of requests.
    fn open_with_requests(
        &mut self,
        key: Token,
    ) -> io::Result<(&mut StreamSlot<B>, &mut Arena<IoRequest<B>>)> {
        Ok((open(&mut self.slots, key)?, &mut self.requests))
    }
}

#[inline]
fn open<B: Backend>(
    slots: &mut Arena<StreamSlot<B>>,
    key: Token,
) -> io::Result<&mut StreamSlot<B>> {
    let slot = slots.get_mut(key).ok_or_else(error::stale)?;
    if slot.base.is_closing() { Err(error::closing()) } else { Ok(slot) }
}

/// Repeats a call that a signal has interrupted.
#[inline(always)] // As `read::lend_read`.
fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    match call() {
        Ok(value) => Ok(value),
        Err(error) => after_error(error, call),
    }
}

#[cold]
fn after_error<T>(mut error: io::Error, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    while error.kind() == io::ErrorKind::Interrupted {
        match call() {
            Ok(value) => return Ok(value),
            Err(again) => error = again,
        }
    }
    Err(error)
}

impl<B: Backend> Streams<B> {
    /// In a forked child: the parent has all sockets as well.
    pub(crate) fn share_all(&mut self) {
        self.slots.iter_mut().for_each(|(_, slot)| slot.flags |= Flags::GIVEN);
    }
}

#[cfg_attr(feature = "origins", track_caller)]
pub(crate) fn new_stream<B: Backend>(
    lp: &mut Loop<B>,
    kind: Kind,
    socket: Option<Transport>,
) -> Token {
    let base = lp.new_base();
    let connected =
        if socket.is_some() { Flags::READABLE | Flags::WRITABLE } else { Flags::empty() };
    lp.streams.slots.insert(StreamSlot {
        base,
        kind,
        flags: connected,
        socket,
        source: None,
        armed: Interest::NONE,
        input: None,
        output: None,
        recv_queue: RecvQueue::default(),
        recv_policy: RecvPolicy::default(),
        completed_writes: 0,
        deferred_close: None,
        reader: None,
        reads: List::default(),
        writes: List::default(),
        batch: None,
        done: List::default(),
        write_queue_size: 0,
        listener: None,
        passing: None,
        rare: None,
    })
}

/// Handles a readiness event. Each step looks the stream up again: a callback of the previous
/// step may have changed or closed it.
#[inline]
pub(crate) fn ready<B: Backend>(lp: &mut Loop<B>, key: Token, ready: Readiness) {
    if ready == Readiness::READ {
        // `bench count`: read/epoll takes 22 % fewer instructions by it, echo-try-write-16 35 %.
        match input::read::fast_path(lp, key) {
            FastPath::Lent => return input::update_recv_mode(lp, key),
            FastPath::Allocated => return,
            FastPath::NotTaken => {}
        }
    }
    let Some(slot) = lp.streams.slots.get(key) else { return };
    if slot.flags.contains(Flags::CONNECTING) {
        output::connect::ready(lp, key);
    } else {
        // A callback of the same batch may have changed the interest.
        let ready = ready & slot.armed.to_readiness();
        if ready.contains(Readiness::READ) {
            if slot.listener.is_some() {
                input::accept::ready(lp, key);
            } else {
                input::read::ready(lp, key);
            }
        }
        if ready.contains(Readiness::WRITE) {
            output::write::ready(lp, key);
        }
    }
    arm::update_or_fail(lp, key);
}

/// Queues the stream for the pending phase, once.
#[inline]
fn schedule_pending<B: Backend>(lp: &mut Loop<B>, key: Token) {
    if let Some(slot) = lp.streams.slots.get_mut(key)
        && !slot.flags.contains(Flags::PENDING)
    {
        slot.flags |= Flags::PENDING;
        lp.defer(move |lp| run_pending(lp, key));
    }
}

/// The pending phase: reports results that were known immediately.
fn run_pending<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return };
    slot.flags -= Flags::PENDING;
    output::connect::complete(lp, key);
    output::write::complete_requests(lp, key);
    output::shutdown::drain(lp, key);
    input::recv_queue::deliver_received(lp, key);
    input::accept::report_accepts(lp, key);
    input::accept::accept_queued(lp, key);
    arm::update_or_fail(lp, key);
}

/// Has the pending phase check all streams: an exchange of loops may have left work undone.
#[cold]
pub(crate) fn check_all<B: Backend>(lp: &mut Loop<B>) {
    output::held_send::check_all(lp);
    lp.streams.reported_write = None;
    lp.streams.completed_writes.reschedule();
    output::completed_writes::schedule(lp);
    let keys: Vec<_> = lp.streams.slots.iter().map(|(key, _)| key).collect();
    keys.into_iter().for_each(|key| schedule_pending(lp, key));
}

/// The first half of closing: no callback runs yet, and the socket is closed, or will be with
/// the last operation.
pub(crate) fn stop<B: Backend>(lp: &mut Loop<B>, key: Token) {
    // Writes before the close are sent as far as the kernel takes them.
    output::write::push_writes(lp, key);
    let Some(slot) = lp.streams.slots.get_mut(key) else { return };
    slot.flags &= Flags::SHUTTING | Flags::CONNECTING | Flags::GIVEN;
    slot.armed = Interest::NONE;
    let (source, reader) = (slot.source.take(), slot.reader.take());
    let recv_queue = std::mem::take(&mut slot.recv_queue);
    let peers = slot.listener.as_mut().map(|listener| listener.stop());
    let passing = slot.passing.take();
    let path = slot.rare.as_mut().and_then(|rare| rare.stop());
    slot.update_active(&mut lp.active_handles);
    if let Some(source) = source {
        lp.unwatch(source);
    }
    // The name goes before the socket: a client that connects meanwhile finds no name.
    drop((path, passing));
    lp.streams.release_rare_state(key);
    lp.streams.cancel_input(&mut lp.backend, key);
    lp.streams.cancel_output(&mut lp.backend, key);
    if let Some(slot) = lp.streams.slots.get_mut(key) {
        let socket = slot.socket.take();
        // A listener releases its address immediately, for another to bind.
        let held = slot.listener.is_none() && (slot.input.is_some() || slot.output.is_some());
        #[cfg(windows)]
        let socket = named_pipe::abandon(lp, socket);
        if held {
            let deferred = lp.operations.defer_socket_close(socket);
            if let Some(slot) = lp.streams.slots.get_mut(key) {
                slot.deferred_close = Some(deferred);
            }
        }
    }
    // Last: destructors of captured values may run any code.
    drop((reader, peers, recv_queue));
}

/// Before the close callback: requests that have not called back do so now.
///
/// A panic leaves the others, and the next call goes on with them.
pub(crate) fn fail_requests<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let Some(slot) = lp.streams.slots.get_mut(key) else { return };
    if let Some(rare) = &mut slot.rare
        && rare.connect.is_some()
    {
        rare.connected.get_or_insert_with(|| Err(error::cancelled()));
    }
    output::connect::complete(lp, key);
    output::completed_writes::report_stream(lp, key);
    lp.streams.end_batch(&mut lp.active_requests, key);
    output::write::cancel_requests(lp, key);
    output::write::complete_requests(lp, key);
    output::shutdown::cancel(lp, key);
    input::accept::cancel_all(lp, key);
}
