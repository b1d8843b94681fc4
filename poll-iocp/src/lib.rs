//! A [backend](poll_core::Backend) over the I/O completion ports of Windows.
//!
#![cfg_attr(windows, doc = "```")]
#![cfg_attr(not(windows), doc = "```ignore")]
//! use poll_core::{Backend, Event, Mode, RawSource, Interest, Readiness, Token};
//! use poll_iocp::Iocp;
//!
//! let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! socket.send_to(b"hello", socket.local_addr()?)?;
//!
//! let (mut iocp, mut events) = (Iocp::new()?, Vec::new());
//! let token = Token::new(0, 0);
//! // SAFETY: `socket` stays open until `deregister` below.
//! unsafe { iocp.register(token, RawSource::of(&socket), Interest::READ, Mode::Level) }?;
//! iocp.wait(None, &mut events)?;
//! assert_eq!(events, [Event::Ready { token, ready: Readiness::READ }]);
//! iocp.deregister(token)?;
//! # std::io::Result::Ok(())
//! ```
//!
//! # How it works
//!
//! A completion port reports completed operations, not readiness. Readiness comes from *AFD
//! polls*: requests to the socket driver that complete when a socket is ready. `select` and
//! `WSAPoll` are built on them too.
//!
//! - `register` finds the driver's socket below layered service providers. Only sockets have
//!   readiness on Windows; any other source is an error.
//! - `modify` makes no system call. The next `wait` starts a poll for each source that needs
//!   one. A poll in flight cannot be changed: if the interest differs by then, the poll is
//!   cancelled and another one started, which is two system calls.
//! - Muting is lazy: the poll of a muted source stays in flight, and `wait` drops its result. A
//!   source that gets its old interest back before then costs nothing.
//! - `deregister` cancels the poll. The memory that the kernel writes to belongs to the poll,
//!   not to the source, and is freed after the poll has ended.
//! - `wait` dequeues up to 512 packets with one call, oldest first, so no source starves.
//! - A poll is a one-shot, so `Mode::Oneshot` costs nothing. `Mode::Level` is emulated: each
//!   report costs a new poll, which the next `wait` starts if the interest still holds, so data
//!   that the caller has read by then is not reported. `Mode::Edge` is `Unsupported`.
//! - A wake posts a packet if the backend is blocked, and only sets a flag if not.
//! - Waits shorter than 100 ms end by a high-resolution timer, longer ones at a tick of the
//!   system clock, by default every 15.6 ms.
//! - `raw_source` is `None`: a completion port cannot be watched by another poller. Windows has no
//!   `fork`, so `after_fork` is `Unsupported`.
//! - Dropping the backend cancels all polls and operations and waits until they have ended:
//!   immediately for sockets and pipes, after the disk access for files. Sockets that were
//!   accepted and not delivered are closed.
//!
//! | `AFD_POLL_…` | requested for | `Readiness` |
//! |---|---|---|
//! | `RECEIVE`, `ACCEPT` | `READ` | `READ` |
//! | `SEND` | `WRITE` | `WRITE` |
//! | `RECEIVE_EXPEDITED` | `PRIORITY` | `PRIORITY` |
//! | `DISCONNECT` | `READ`, `DISCONNECT` | `READ`; `DISCONNECT`, if it is in the interest |
//! | `ABORT`, `CONNECT_FAIL` | always | `ERROR`, `HANGUP`, and `READ` and `WRITE` if they are in the interest |
//! | `LOCAL_CLOSE` | always | `ERROR`; then the source is muted |
//!
//! # Operations
//!
//! [Operations](poll_core::Op) start in `submit`, each with an overlapped call. Its
//! `OVERLAPPED` is in a slot that is reused after the packet of the call was dequeued, even if
//! the operation has ended before. The next wait delivers the result of an operation that
//! completes within `submit`.
//!
//! | `Op` | calls |
//! |---|---|
//! | `Accept` | `AcceptEx` with a socket like the listener, then `SO_UPDATE_ACCEPT_CONTEXT` |
//! | `AcceptMulti` | the same repeatedly, with up to 32 calls in flight after bursts of connections; connections that the peer has already reset are skipped |
//! | `Connect` | `bind` to any address if unbound, `ConnectEx`, `SO_UPDATE_CONNECT_CONTEXT`; for datagrams `connect`, which does not block |
//! | `Recv`, `Send` | `WSARecv`, `WSASend` |
//! | `RecvMsg` | a `WSAMSG`: `WSARecvMsg` if it has space for control data (datagrams only), else `WSARecvFrom` if it has space for an address, else `WSARecv` |
//! | `SendMsg` | likewise `WSASendMsg`, `WSASendTo` or `WSASend` |
//! | `RecvMulti` | a zero-byte `WSARecv` until data is pending, then `WSARecv` into a buffer of the group |
//! | `RecvMsgMulti`, and `RecvMulti` for datagrams | an AFD poll, then as for `RecvMsg` into a buffer of the group |
//! | `Poll` | an AFD poll |
//! | `Read`, `Write` | `ReadFile`, `WriteFile`, one buffer after the other |
//! | `ConnectNamedPipe` | `ConnectNamedPipe` |
//! | `cancel` | `CancelIoEx`; for polls `NtCancelIoFileEx` |
//!
//! - All other operations are `Unsupported`: Windows has no overlapped call for them.
//! - A zero-byte `Recv` completes when data is pending or the stream has ended, so that a buffer
//!   can be allocated late. The same holds for a `Read` of a pipe.
//! - Operations with a buffer group take a buffer only when data is pending: an idle connection
//!   holds none. `count` may be any number.
//! - A datagram that does not fit is truncated, and the flags have `MSG_TRUNC`.
//! - `Read` of a pipe fills one buffer, of a file all buffers. At the end of a file, and when the
//!   other side of a pipe has closed, the count is 0. Files need `FILE_FLAG_OVERLAPPED` and an
//!   offset, as overlapped handles have no position; `submit` rejects others as `Unsupported`.
//! - The first operation associates its source with the backend's port, and so does each one
//!   that starts while none is in flight, as the source may have been closed in between: two
//!   system calls. On Windows 8.1 and later a source may move from one backend to another while
//!   it has no operation in flight; under Wine 8 it cannot, and `submit` fails with
//!   `Unsupported`.
//! - `FILE_SKIP_COMPLETION_PORT_ON_SUCCESS` is never set: it would save a packet for calls that
//!   complete synchronously, but cannot be undone for the next user of the source. Where other
//!   code has set it, it is respected.
//! - The steady state allocates nothing. A slot has 112 bytes; there are as many as the largest
//!   number of calls that were in flight.
//!
//! # Platforms
//!
//! Windows 10 and later; elsewhere this crate is empty. Before version 1803 of Windows
//! 10, all timeouts end at a tick. A process that may not open `\Device\Afd`, as in some
//! sandboxes, gets `Unsupported` from `Iocp::new`.
//!
//! This crate was tested under Wine 8 only. The high-resolution timer, which Wine lacks, and the
//! move of a source to another port were never run. Wine differs from Windows: it reports
//! `DISCONNECT` after the data before it was read, as it peeks for the end of file; starting or
//! cancelling a poll takes time in proportion to the number of all polls, which Wine keeps in
//! one list; and every failed send reports `WSAECONNRESET`.
#![cfg(windows)]

mod afd;
mod association;
mod buffers;
mod errors;
mod ops;
mod overlapped;
mod port;
mod slots;
mod sockets;
mod timer;
mod waker;

use std::io;
use std::mem;
use std::os::windows::io::RawSocket;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use poll_core::{
    Backend, BufferLease, Deadline, Event, Interest, Mode, Op, OpKind, Open, RawSource, Readiness,
    Registry, Token, WakeState,
};
use windows_sys::Win32::Foundation::{
    ERROR_NO_SYSTEM_RESOURCES, ERROR_NOT_ENOUGH_MEMORY, ERROR_NOT_ENOUGH_QUOTA,
    ERROR_TOO_MANY_OPEN_FILES,
};

use afd::{Owner, Poll, Polls};
use errors::with_remedy;
use ops::{Context, Ops};
use port::{Batch, Key, Packet, Port};
use sockets::base_socket;
use timer::Timer;
use waker::Shared;

pub use waker::Waker;

/// The number of packets that one system call dequeues at most.
const BATCH: usize = 512;

/// Shorter waits start the high-resolution timer, which costs two or three system calls.
const TIMER_LIMIT: Duration = Duration::from_millis(100);

/// The time that a drop waits for the next cancelled poll or operation to end before it checks
/// all of them. Polls end immediately, unless a driver is broken.
const DROP_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Watches sources and performs operations through an I/O completion port; see the
/// [crate's page](crate).
#[derive(Debug)]
pub struct Iocp {
    /// The port and the wake state, shared with the wakers, which may outlive the backend.
    shared: Arc<Shared>,
    sources: Registry<Source>,
    /// Apart from `sources`: the kernel writes to a poll until it ends, even if its source was
    /// deregistered.
    polls: Polls,
    ops: Ops,
    /// Sources whose poll may differ from their interest, for the next wait to flush.
    changed: Vec<Token>,
    /// Replaces `changed` during a flush, so that both keep their memory.
    spare: Vec<Token>,
    /// `None` where the system has no high-resolution timer.
    timer: Option<Timer>,
    batch: Batch,
}

/// The state of a registration.
#[derive(Debug)]
struct Source {
    /// The driver's socket, below all layered service providers.
    base: RawSocket,
    /// The requested interest; `NONE` after a one-shot has fired or the source was closed.
    wanted: Interest,
    mode: Mode,
    /// The poll in flight and its conditions.
    armed: Option<(Poll, u32)>,
    /// The source is in `changed`.
    queued: bool,
}

impl Iocp {
    /// Creates a completion port and opens the socket driver.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the driver cannot be opened; else the system's error, most likely that
    /// memory or handles are exhausted.
    pub fn new() -> io::Result<Iocp> {
        let shared = Arc::new(Shared { port: Port::new()?, wake_state: WakeState::default() });
        let mut polls = Polls::default();
        polls.reserve(&shared.port, 1).map_err(no_driver)?;
        Ok(Iocp {
            shared,
            sources: Registry::default(),
            polls,
            ops: Ops::default(),
            changed: Vec::new(),
            spare: Vec::new(),
            timer: Timer::new(),
            batch: Batch::new(BATCH),
        })
    }
}

impl Open for Iocp {
    /// As [`Iocp::new`].
    fn open() -> io::Result<Iocp> {
        Iocp::new()
    }
}

// SAFETY: the packet of an operation is the kernel's last access to its slot, and each slot
// reports one final event; `drop` cancels and drains the rest. An accepted socket leaves its slot
// when it is reported. `deregister` cancels the AFD poll, whose memory is the slot's own.
unsafe impl Backend for Iocp {
    type Waker = Waker;

    fn name(&self) -> &'static str {
        "iocp"
    }

    fn waker(&self) -> Waker {
        Waker(self.shared.clone())
    }

    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        check_mode(mode)?;
        let base = base_socket(source.socket())?;
        // Allocates here all that a poll needs: a failure in `wait` would concern all sources.
        self.polls.reserve(&self.shared.port, self.sources.len() + 1)?;
        let wanted = interest & Interest::all();
        let state = Source { base, wanted, mode, armed: None, queued: true };
        self.sources.insert(token, source, state)?;
        self.changed.push(token);
        Ok(())
    }

    fn modify(&mut self, token: Token, interest: Interest, mode: Mode) -> io::Result<()> {
        check_mode(mode)?;
        let source = self.sources.get_mut(token)?;
        source.wanted = interest & Interest::all();
        source.mode = mode;
        if !mem::replace(&mut source.queued, true) {
            self.changed.push(token);
        }
        Ok(())
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        let (_, source) = self.sources.remove(token)?;
        if let Some((poll, _)) = source.armed {
            self.polls.abandon(poll);
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        Deadline::repeat(timeout, |left| self.poll(left, events))
    }

    fn supports(&self, kind: OpKind) -> bool {
        ops::supports(kind)
    }

    unsafe fn submit(&mut self, token: Token, op: Op) -> io::Result<()> {
        let mut context = Context { port: &self.shared.port, polls: &mut self.polls };
        // SAFETY: the caller keeps the promise of `Backend::submit`, which is that of
        // `Ops::submit`.
        unsafe { self.ops.submit(&mut context, token, op) }
    }

    fn cancel(&mut self, token: Token) -> io::Result<()> {
        self.ops.cancel(&self.polls, token)
    }

    unsafe fn register_buffers(
        &mut self,
        group: u16,
        memory: NonNull<u8>,
        size: u32,
        count: u16,
    ) -> io::Result<()> {
        self.ops.groups.register_buffers(group, memory, size, count)
    }

    fn release_buffer(&mut self, lease: BufferLease) {
        self.ops.groups.release_buffer(lease);
    }

    fn unregister_buffers(&mut self, group: u16) -> io::Result<()> {
        self.ops.unregister_buffers(group)
    }
}

impl Iocp {
    /// Flushes all changes, dequeues one batch of packets and handles them. Returns true if
    /// `wait` is to return: there are new events, or a wake ended the call.
    ///
    /// False is the end of the timeout, or packets without an event: of the timer, of abandoned
    /// polls, or of a wake that an earlier `wait` has consumed.
    fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<bool> {
        let before = events.len();
        self.flush(events)?;
        let mut context = Context { port: &self.shared.port, polls: &mut self.polls };
        self.ops.deliver_completed(&mut context, events);
        let may_block = timeout != Some(Duration::ZERO)
            && events.len() == before
            && !self.ops.has_undelivered();
        let blocks = may_block && self.shared.wake_state.prepare_park();
        let timeout = if blocks { timeout } else { Some(Duration::ZERO) };
        if let (Some(timer), Some(timeout)) = (&mut self.timer, timeout)
            && !timeout.is_zero()
            && timeout < TIMER_LIMIT
        {
            // If this fails, the port's own timeout ends the wait later.
            timer.start(&self.shared.port, timeout);
        }
        let dequeued = self.shared.port.dequeue(&mut self.batch, timeout);
        let woken = self.shared.wake_state.unpark();
        dequeued?;
        for index in 0..self.batch.len() {
            self.handle_packet(self.batch.get(index), events);
        }
        Ok(woken || events.len() > before)
    }

    /// Starts the polls that the changed interests need. A source that cannot be polled is
    /// reported with `ERROR`.
    fn flush(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let mut changed = mem::replace(&mut self.changed, mem::take(&mut self.spare));
        let mut result = Ok(());
        for token in changed.drain(..) {
            if result.is_ok() {
                result = self.arm(token, events);
            }
            if result.is_err() {
                self.changed.push(token); // The next wait retries.
            }
        }
        self.spare = changed;
        result
    }

    /// Starts the poll for the interest of a source, if it differs from the one in flight. An
    /// error concerns the backend, and the source is unchanged.
    fn arm(&mut self, token: Token, events: &mut Vec<Event>) -> io::Result<()> {
        let Some((_, source)) = self.sources.find(token) else {
            return Ok(()); // Deregistered after the change.
        };
        let flags = to_afd(source.wanted);
        let is_current = match source.armed {
            Some((_, armed)) => flags == 0 || flags == armed,
            None => flags == 0,
        };
        if !is_current {
            self.polls.reserve(&self.shared.port, 0)?;
            match self.polls.start(Owner::Source(token), source.base, flags) {
                Ok(poll) => {
                    if let Some((old, _)) = source.armed.replace((poll, flags)) {
                        self.polls.abandon(old);
                    }
                }
                // The socket was closed, or its driver supports no polls.
                Err(_) => {
                    let ready = source.wanted.report(Readiness::ERROR);
                    source.wanted = Interest::NONE;
                    events.push(Event::Ready { token, ready });
                }
            }
        }
        source.queued = false;
        Ok(())
    }

    /// Dispatches a packet to its origin.
    fn handle_packet(&mut self, packet: Packet, events: &mut Vec<Event>) {
        if packet.key == Key::Operation as usize {
            let mut context = Context { port: &self.shared.port, polls: &mut self.polls };
            self.ops.packet_arrived(&mut context, packet.context, events);
        } else if packet.key == Key::Poll as usize {
            match self.polls.finish(packet.context) {
                Some((Owner::Source(token), flags)) => self.report(token, flags, events),
                Some((Owner::Operation(token), flags)) => {
                    let mut context = Context { port: &self.shared.port, polls: &mut self.polls };
                    self.ops.poll_completed(&mut context, token, flags, events);
                }
                None => {}
            }
        } else if packet.key == Key::Timer as usize
            && let Some(timer) = &mut self.timer
        {
            timer.expired();
        }
        // A packet of `Key::Wake` needs no action: `unpark` reports pending wakes.
    }

    /// Handles the end of a source's poll.
    fn report(&mut self, token: Token, flags: u32, events: &mut Vec<Event>) {
        let source = self.sources.get_mut(token).expect("deregister abandons the poll of a source");
        source.armed = None;
        let ready = source.wanted.report(to_ready(flags));
        if !ready.is_empty() {
            events.push(Event::Ready { token, ready });
        }
        let spent = source.mode == Mode::Oneshot && !ready.is_empty();
        if spent || flags & afd::LOCAL_CLOSE != 0 {
            source.wanted = Interest::NONE;
        }
        if !source.wanted.is_empty() && !mem::replace(&mut source.queued, true) {
            self.changed.push(token);
        }
    }
}

impl Iocp {
    /// Completes operations whose packets do not arrive; see [`Ops::reap_without_packets`].
    fn reap_without_packets(&mut self, discarded: &mut Vec<Event>) {
        let mut context = Context { port: &self.shared.port, polls: &mut self.polls };
        self.ops.reap_without_packets(&mut context, discarded);
    }
}

impl Drop for Iocp {
    fn drop(&mut self) {
        self.ops.cancel_all(&self.polls);
        self.polls.abandon_all();
        let mut discarded = Vec::new();
        self.reap_without_packets(&mut discarded);
        while self.ops.in_flight() + self.polls.in_flight() > 0 {
            let dequeued = self.shared.port.dequeue(&mut self.batch, Some(DROP_POLL_INTERVAL));
            for index in 0..self.batch.len() {
                self.handle_packet(self.batch.get(index), &mut discarded);
            }
            if dequeued.is_ok() && self.batch.len() > 0 {
                continue;
            }
            if self.ops.in_flight() == 0 {
                return; // `Polls` leaks the memory of polls that have not ended.
            }
            // The kernel may still write to memory of the callers: the drop must not return.
            self.reap_without_packets(&mut discarded);
            self.ops.cancel_all(&self.polls);
            if dequeued.is_err() {
                thread::sleep(DROP_POLL_INTERVAL);
            }
        }
    }
}

fn check_mode(mode: Mode) -> io::Result<()> {
    if mode == Mode::Edge {
        let why = "AFD polls have no edge-triggered mode: use Level or Oneshot";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(())
}

/// Adds a remedy to an error of opening the driver, unless resources are exhausted.
fn no_driver(error: io::Error) -> io::Error {
    const EXHAUSTED: [u32; 4] = [
        ERROR_NO_SYSTEM_RESOURCES,
        ERROR_NOT_ENOUGH_MEMORY,
        ERROR_NOT_ENOUGH_QUOTA,
        ERROR_TOO_MANY_OPEN_FILES,
    ];
    if error.raw_os_error().is_some_and(|code| EXHAUSTED.contains(&(code as u32))) {
        return error;
    }
    let why = r"\Device\Afd cannot be opened here (a sandbox?); use the poll or select backend";
    with_remedy(io::ErrorKind::Unsupported, why, error)
}

/// The conditions that every poll includes.
const ALWAYS: u32 = afd::ABORT | afd::CONNECT_FAIL | afd::LOCAL_CLOSE;

/// Returns the poll conditions of an interest; 0 for `NONE`.
fn to_afd(wanted: Interest) -> u32 {
    if wanted.is_empty() {
        return 0;
    }
    let flags = [
        (Readiness::READ, afd::RECEIVE | afd::ACCEPT | afd::DISCONNECT),
        (Readiness::WRITE, afd::SEND),
        (Readiness::PRIORITY, afd::RECEIVE_EXPEDITED),
        (Readiness::DISCONNECT, afd::DISCONNECT),
    ];
    let flags = flags.iter().filter(|(ready, _)| wanted.to_readiness().contains(*ready));
    flags.fold(ALWAYS, |all, (_, flags)| all | flags)
}

/// Returns the conditions of a poll's result, before [`Readiness::report`].
fn to_ready(flags: u32) -> Readiness {
    let map = [
        (afd::RECEIVE | afd::ACCEPT, Readiness::READ),
        (afd::SEND, Readiness::WRITE),
        (afd::RECEIVE_EXPEDITED, Readiness::PRIORITY),
        (afd::DISCONNECT, Readiness::READ | Readiness::DISCONNECT),
        (afd::ABORT | afd::CONNECT_FAIL, Readiness::ERROR | Readiness::HANGUP),
        (afd::LOCAL_CLOSE, Readiness::ERROR),
    ];
    map.iter().filter(|(bits, _)| flags & bits != 0).map(|(_, ready)| *ready).collect()
}

#[cfg(test)]
mod tests;
