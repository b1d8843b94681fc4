//! Streams: what connections and listeners have in common, of TCP and of
//! pipes, and terminals with them.
//!
//! ```text
//!             connect                        shutdown          close
//!  new ───▶ (connecting) ───▶ connected ───▶ (drains) ───▶ … ───▶ closing ───▶ gone
//!      └──▶ bind ─▶ listen ─▶ listening ─▶ accept: a new one, connected
//! ```
//!
//! [`Loop::arm_stream`] works out what a stream waits for: operations where the backend
//! performs them, readiness elsewhere. [`Loop::stream_ready`], [`Loop::stream_input_done`] and
//! [`Loop::stream_output_done`] are the only places that react, and they meet in the same
//! callbacks. What is known at once is told in the pending phase, by [`Loop::stream_pending`].

mod accept;
mod arm;
mod arrivals;
mod batch;
mod connect;
mod errands;
mod outbox;
#[cfg(windows)]
mod overlapped;
mod pace;
mod passing;
mod read;
mod shutdown;
mod stored;
mod transfers;
mod verbs;
mod write;

use std::fmt;
use std::io;

use bitflags::bitflags;
use poll_core::{Backend, Ready, Token};

use crate::arena::Arena;
use crate::handles::{AnyHandle, Base, Pipe, Tcp, Tty};
use crate::operations::Flight;
use crate::sys::Transport;
use crate::{Loop, error};

use accept::Listener;
use arrivals::{Arrival, Arrivals};
use batch::{Batch, Spare};
pub(crate) use connect::Connecting;
use errands::{Errands, SpareErrands};
use transfers::{List, Transfer};

use pace::Pace;
pub(crate) use passing::Passing;
pub use read::Read;
use read::Reader;
pub(crate) use read::Scratch;
pub(crate) use stored::Stored;
pub use verbs::Stream;
pub(crate) use verbs::StreamKey;
pub use write::Write;
pub(crate) use write::write_with_handles;

bitflags! {
    /// What a stream may do and does.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(crate) struct Flags: u16 {
        const READABLE = 1;
        const WRITABLE = 1 << 1;
        const READING = 1 << 2;
        const LISTENING = 1 << 3;
        const CONNECTING = 1 << 4;
        /// A shutdown was asked for and has not called back.
        const SHUTTING = 1 << 5;
        /// The pending phase is to look at it.
        const FED = 1 << 6;
        /// Its calls wait instead of saying `WouldBlock`.
        const BLOCKING = 1 << 7;
        /// It has come over a pipe, and its sender may have operations of its own.
        const SHARED = 1 << 8;
        /// Small writes are sent at once.
        const NODELAY = 1 << 9;
        /// It is read into memory that is allocated late.
        const LATE = 1 << 14;
        /// Its writes are in the outbox.
        const OUTBOX = 1 << 15;
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

/// How a connect went, or a shutdown, and of which stream.
pub(crate) type Ended = (Token, io::Result<()>);

/// The state of a stream. In this order: what is read and written by every event is first, in
/// two cache lines, as with thousands of streams most of it is in no cache.
#[repr(C)]
pub(crate) struct StreamSlot<B: Backend> {
    pub(crate) flags: Flags,
    pub(crate) kind: Kind,
    /// What the backend was told to watch for.
    armed: Ready,
    /// How much comes at once.
    pace: Pace,
    /// Gone once the handle is closing; TCP has none before it needs one.
    pub(crate) socket: Option<Transport>,
    /// Called when there is something to read. `None` while that runs.
    reader: Option<Reader<B>>,
    /// Bytes of writes that have neither left nor been told to have failed.
    write_queue_size: usize,
    writes: List,
    /// What goes before them.
    batch: Option<Box<Batch>>,
    pub(crate) base: Base,
    /// The registration, from the first time it waits for something.
    source: Option<Token>,
    /// The operation that accepts or receives.
    input: Option<Flight>,
    /// What operations have received and nobody has read.
    arrivals: Arrivals,
    listener: Option<Box<Listener<B>>>,
    /// A pipe that passes handles.
    pub(crate) passing: Option<Box<Passing>>,
    /// The operation that sends, or connects.
    output: Option<Flight>,
    reads: List,
    /// Reads and writes that are to call back.
    done: List,
    /// Closed when its last operation has ended: among those that leave.
    leaving: Option<Token>,
    /// What it was asked for that few are.
    pub(crate) errands: Option<Box<Errands<B>>>,
}

/// A stream that is closing and has operations in flight.
#[derive(Debug, Default)]
struct Leaving {
    /// What they name.
    socket: Option<Transport>,
    /// Who closes it when they have ended.
    lingering: Option<Token>,
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
    fn tells_of_peers(&self) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.has_callback())
    }

    fn wants_peers(&self) -> bool {
        self.listener.as_ref().is_some_and(|listener| listener.wants_peers())
    }

    /// Active is what reads or listens; requests keep the loop alive by themselves.
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
    transfers: Arena<Transfer<B>>,
    /// What has just been received, while its stream's reader is called.
    arriving: Option<(Token, Arrival)>,
    /// Streams with writes that no operation sends yet.
    outbox: Vec<Token>,
    /// Memory to copy little writes to.
    spare: Spare,
    /// Memory for what few streams are asked for at a time.
    spare_errands: SpareErrands<B>,
    leaving: Arena<Leaving>,
    /// Operations of pipes that are in flight.
    #[cfg(windows)]
    flights: Arena<overlapped::Flight>,
}

impl<B: Backend> Default for Streams<B> {
    fn default() -> Self {
        Streams {
            slots: Arena::default(),
            transfers: Arena::default(),
            arriving: None,
            outbox: Vec::new(),
            spare: Spare::default(),
            spare_errands: SpareErrands::default(),
            leaving: Arena::default(),
            #[cfg(windows)]
            flights: Arena::default(),
        }
    }
}

impl<B: Backend> Streams<B> {
    /// A stream that is neither closed nor closing.
    #[inline]
    pub(crate) fn open(&mut self, key: Token) -> io::Result<&mut StreamSlot<B>> {
        open(&mut self.slots, key)
    }

    /// What is kept of a stream that is closing until its operations have ended.
    fn leaving(&mut self, key: Token) -> Option<&mut Leaving> {
        let slot = self.slots.get_mut(key)?;
        let leaving = *slot.leaving.get_or_insert_with(|| self.leaving.insert(Leaving::default()));
        self.leaving.get_mut(leaving)
    }

    /// Such a stream, and beside it the transfers.
    fn open_with_transfers(
        &mut self,
        key: Token,
    ) -> io::Result<(&mut StreamSlot<B>, &mut Arena<Transfer<B>>)> {
        Ok((open(&mut self.slots, key)?, &mut self.transfers))
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

/// Calls again what a signal has interrupted.
#[inline(always)] // Around a system call that is inlined, too.
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

impl<B: Backend> Loop<B> {
    pub(crate) fn new_stream(&mut self, kind: Kind, socket: Option<Transport>) -> Token {
        let base = self.new_base();
        let connected =
            if socket.is_some() { Flags::READABLE | Flags::WRITABLE } else { Flags::empty() };
        self.streams.slots.insert(StreamSlot {
            base,
            kind,
            flags: connected,
            socket,
            source: None,
            armed: Ready::NONE,
            input: None,
            output: None,
            arrivals: Arrivals::default(),
            pace: Pace::default(),
            leaving: None,
            reader: None,
            reads: List::default(),
            writes: List::default(),
            batch: None,
            done: List::default(),
            write_queue_size: 0,
            listener: None,
            passing: None,
            errands: None,
        })
    }

    /// The stream's socket is ready. Each step finds what the callbacks of those before left.
    pub(crate) fn stream_ready(&mut self, key: Token, ready: Ready) {
        if ready == Ready::READ && self.lend_only(key) {
            return self.keep_pace(key);
        }
        let Some(slot) = self.streams.slots.get(key) else { return };
        if slot.flags.contains(Flags::CONNECTING) {
            self.connect_ready(key);
        } else {
            // Changed by a callback of the same batch?
            let ready = ready & slot.armed;
            if ready.contains(Ready::READ) {
                if slot.listener.is_some() {
                    self.accept_ready(key);
                } else {
                    self.read_ready(key);
                }
            }
            if ready.contains(Ready::WRITE) {
                self.write_ready(key);
            }
        }
        self.rearm_stream(key);
    }

    /// Has the pending phase look at the stream, once.
    fn feed_stream(&mut self, key: Token) {
        if let Some(slot) = self.streams.slots.get_mut(key)
            && !slot.flags.contains(Flags::FED)
        {
            slot.flags |= Flags::FED;
            self.defer(move |lp| lp.stream_pending(key));
        }
    }

    /// The pending phase: what was known at once is told now.
    fn stream_pending(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        slot.flags -= Flags::FED;
        self.tell_connected(key);
        self.tell_done(key);
        self.drain_stream(key);
        self.tell_arrivals(key);
        self.accept_queued(key);
        self.rearm_stream(key);
    }

    /// The first half of closing: nobody is told yet, but the socket is gone, or goes with the
    /// last operation.
    pub(crate) fn stop_stream(&mut self, key: Token) {
        // What was written before the close leaves, if it can.
        self.push_writes(key);
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        slot.flags &= Flags::SHUTTING | Flags::CONNECTING;
        slot.armed = Ready::NONE;
        let (source, reader) = (slot.source.take(), slot.reader.take());
        let arrivals = std::mem::take(&mut slot.arrivals);
        let peers = slot.listener.as_mut().map(|listener| listener.stop());
        let passing = slot.passing.take();
        let path = slot.errands.as_mut().and_then(|errands| errands.stop());
        slot.update_active(&mut self.active_handles);
        if let Some(source) = source {
            self.unwatch(source);
        }
        // Its name before the socket: who connects meanwhile finds nothing at all.
        drop((path, passing));
        self.streams.end_errand(key);
        self.cancel_input(key);
        self.cancel_output(key);
        if let Some(slot) = self.streams.slots.get_mut(key) {
            let socket = slot.socket.take();
            // Who listens gives up the address at once: another may want it.
            let held = slot.listener.is_none() && (slot.input.is_some() || slot.output.is_some());
            #[cfg(windows)]
            let socket = self.leave_pipe(socket);
            if held && let Some(leaving) = self.streams.leaving(key) {
                leaving.socket = socket;
            }
        }
        // Last: dropping what it captured may be anything.
        drop((reader, peers, arrivals));
    }

    /// Before the close callback: requests that have not called back do so now.
    ///
    /// A panic leaves the others, and the next call goes on with them.
    pub(crate) fn settle_stream(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        if let Some(errands) = &mut slot.errands
            && errands.connect.is_some()
        {
            errands.connected.get_or_insert_with(|| Err(error::cancelled()));
        }
        self.tell_connected(key);
        self.end_batch(key);
        self.cancel_transfers(key);
        self.tell_done(key);
        self.cancel_shutdown(key);
        self.cancel_accepts(key);
    }
}
