//! A [backend](poll_core::Backend) over the I/O completion ports of Windows.
//!
#![cfg_attr(windows, doc = "```")]
#![cfg_attr(not(windows), doc = "```ignore")]
//! use poll_core::{Backend, Event, Mode, RawSource, Ready, Token};
//! use poll_iocp::Iocp;
//!
//! let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! socket.send_to(b"hello", socket.local_addr()?)?;
//!
//! let (mut iocp, mut events) = (Iocp::new()?, Vec::new());
//! let token = Token::new(0, 0);
//! // SAFETY: `socket` outlives `iocp`'s interest in it.
//! unsafe { iocp.register(token, RawSource::of(&socket), Ready::READ, Mode::Level) }?;
//! iocp.wait(None, &mut events)?;
//! assert_eq!(events, [Event::Ready { token, ready: Ready::READ }]);
//! iocp.deregister(token)?;
//! # std::io::Result::Ok(())
//! ```
//!
//! # How it works
//!
//! A completion port tells what has ended, not what could begin. Readiness comes
//! from *AFD polls*, requests to the socket driver that end when a socket is ready;
//! `select` and `WSAPoll` are made of them too.
//!
//! - `register` finds the socket of the driver under layers that other software may
//!   have put over it. What is no socket is an error: readiness exists for sockets
//!   only on Windows.
//! - `modify` is only noted. The next `wait` starts a poll for each source that wants
//!   one. A poll in flight cannot be changed: if a source wants something else by
//!   then, its poll is cancelled and another started, which is two system calls.
//! - Silence is lazy: a poll in flight stays when its source wants nothing. When it
//!   ends it is swallowed; if its interest comes back before, that costs nothing.
//! - `deregister` cancels the poll and forgets it. The memory that the kernel writes
//!   to belongs to the poll, not to the source, and lives until the poll has ended.
//! - `wait` dequeues up to 512 packets at once, oldest first, so no source starves.
//! - A poll is a one-shot, so `Mode::Oneshot` is free. `Mode::Level` costs a new poll for
//!   each report, started by the next `wait` if the source still wants it: what the caller
//!   has emptied by then is not reported. `Mode::Edge` is `Unsupported`.
//! - A wake posts a packet if the backend sleeps, and only sets a flag if not.
//! - Waits shorter than 100 ms end by a high-resolution timer, longer ones at a tick of
//!   the system clock, which comes every 15.6 ms or more often.
//! - `raw_fd` is `None`: a completion port cannot be watched by another poller. There
//!   is no `fork`, so `after_fork` is `Unsupported`.
//! - Dropping the backend cancels all polls and operations and waits for them to end: a
//!   moment for sockets and pipes, as long as the disk takes for files. What they had
//!   accepted unheard is closed.
//!
//! | `AFD_POLL_…` | polled for | `Ready` |
//! |---|---|---|
//! | `RECEIVE`, `ACCEPT` | `READ` | `READ` |
//! | `SEND` | `WRITE` | `WRITE` |
//! | `RECEIVE_EXPEDITED` | `PRIORITY` | `PRIORITY` |
//! | `DISCONNECT` | `READ`, `DISCONNECT` | `READ`; `DISCONNECT`, if asked for |
//! | `ABORT`, `CONNECT_FAIL` | always | `ERROR`, `HANGUP`, and what was asked for of `READ` and `WRITE` |
//! | `LOCAL_CLOSE` | always | `ERROR`; then the source sleeps |
//!
//! # Operations
//!
//! [Operations](poll_core::Op) start in `submit`, each with an overlapped call. Its
//! `OVERLAPPED` is in a slot that is used again once the call's packet was dequeued,
//! whatever becomes of the operation. What ends within `submit` is told by the next wait.
//!
//! | `Op` | calls |
//! |---|---|
//! | `Accept` | `AcceptEx` with a socket like the listener, then `SO_UPDATE_ACCEPT_CONTEXT` |
//! | `AcceptMulti` | the same again and again, with up to 32 calls at a time as bursts of connections show to be of use; a peer that is gone already is passed over |
//! | `Connect` | `bind` to any address if need be, `ConnectEx`, `SO_UPDATE_CONNECT_CONTEXT`; for datagrams `connect`, which does not block |
//! | `Recv`, `Send` | `WSARecv`, `WSASend` |
//! | `RecvMsg` | a `WSAMSG`: `WSARecvMsg` if there is room for control data (datagrams only), else `WSARecvFrom` if there is room for an address, else `WSARecv` |
//! | `SendMsg` | likewise `WSASendMsg`, `WSASendTo` or `WSASend` |
//! | `RecvMulti` | `WSARecv` of no bytes until there is something, then `WSARecv` into a buffer of the group |
//! | `RecvMsgMulti`, and `RecvMulti` for datagrams | an AFD poll, then as for `RecvMsg` into a buffer of the group |
//! | `Poll` | an AFD poll |
//! | `Read`, `Write` | `ReadFile`, `WriteFile`, one buffer after the other |
//! | `ConnectNamedPipe` | `ConnectNamedPipe` |
//! | `cancel` | `CancelIoEx`; for polls `NtCancelIoFileEx` |
//!
//! - Everything else is not supported: Windows has no overlapped call for it.
//! - A `Recv` of no bytes ends when there is something to receive, or the end of it: so
//!   memory can be allocated late. The same holds for a `Read` of a pipe.
//! - Operations that take a group take a buffer only when there is something to receive:
//!   an idle connection holds none. `count` may be any number.
//! - A datagram that does not fit is cut, as elsewhere; `MSG_TRUNC` says so in the flags.
//! - `Read` of a pipe fills one buffer; of a file, all. The end of a file and a pipe whose
//!   other side has closed are a count of 0. Files need `FILE_FLAG_OVERLAPPED` and an
//!   offset, as such handles have no position; `submit` refuses others as `Unsupported`.
//! - A source is bound to the backend's port by its first operation, and again by the first
//!   one that starts when none is in flight, as it may have been closed in between: two
//!   system calls. On Windows (8.1 and later) a source may go from one backend to another
//!   when it has no operation in flight; under Wine it cannot, and `submit` says
//!   `Unsupported`.
//! - `FILE_SKIP_COMPLETION_PORT_ON_SUCCESS` is never set: it would save a packet for calls
//!   that are over at once, but can never be undone for whoever has the source next. Where
//!   somebody else has set it, it is respected.
//! - The steady state allocates nothing. A slot is 112 bytes; there are as many as calls
//!   were ever in flight at a time.
//!
//! # Platforms
//!
//! Windows 10 and later; elsewhere this crate is empty. Before version 1803 of Windows
//! 10, all timeouts end at a tick. A process that may not open `\Device\Afd`, as in some
//! sandboxes, gets `Unsupported` from `Iocp::new`.
//!
//! This crate has run under Wine 8 only. Its high-resolution timer, which Wine lacks, and
//! the move of a source to another port have not run at all. Wine differs from Windows in
//! ways that show: `DISCONNECT` is reported once the data before it has been read, as Wine
//! finds it by peeking for the end of file; to start or to cancel a poll takes time in
//! proportion to the number of all polls, which Wine keeps in one list; and what cannot be
//! sent fails with `WSAECONNRESET`, whatever the reason.
#![cfg(windows)]

mod afd;
mod bindings;
mod calls;
mod errors;
mod groups;
mod ops;
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
    Backend, Countdown, Doorbell, Event, Lent, Mode, Op, OpKind, RawSource, Ready, Registry, Token,
};
use windows_sys::Win32::Foundation::{
    ERROR_NO_SYSTEM_RESOURCES, ERROR_NOT_ENOUGH_MEMORY, ERROR_NOT_ENOUGH_QUOTA,
    ERROR_TOO_MANY_OPEN_FILES,
};

use afd::{Owner, Poll, Polls};
use errors::explained;
use ops::{Kernel, Ops};
use port::{Batch, Key, Packet, Port};
use sockets::base_socket;
use timer::Timer;
use waker::Door;

pub use waker::Waker;

/// How many packets one system call dequeues at most.
const BATCH: usize = 512;

/// Waits that are shorter are worth the system calls that set a timer.
const PRECISE: Duration = Duration::from_millis(100);

/// How long a drop waits for the next cancelled poll to end. They end at once,
/// unless a driver is broken.
const PATIENCE: Duration = Duration::from_secs(1);

/// A poller over an I/O completion port.
#[derive(Debug)]
pub struct Iocp {
    /// The port, shared with the wakers, which may outlive the backend.
    door: Arc<Door>,
    sources: Registry<Source>,
    /// Outlive their sources: the kernel writes to a poll until it ends.
    polls: Polls,
    ops: Ops,
    /// Sources that may want another poll than they have, for the next wait to see.
    changed: Vec<Token>,
    /// Takes the place of `changed` while that is gone through.
    spare: Vec<Token>,
    /// Where the system has one.
    timer: Option<Timer>,
    batch: Batch,
}

/// The state of a registration.
#[derive(Debug)]
struct Source {
    /// The driver's own socket, below all layers.
    base: RawSocket,
    /// What was asked for; nothing, if the source sleeps.
    wanted: Ready,
    mode: Mode,
    /// The poll in flight, and what it polls for.
    armed: Option<(Poll, u32)>,
    /// The source is in `changed`.
    queued: bool,
}

impl Iocp {
    /// Makes a completion port and opens the socket driver.
    ///
    /// # Errors
    ///
    /// `Unsupported` if the driver cannot be opened; or what the system lacks.
    pub fn new() -> io::Result<Iocp> {
        let door = Arc::new(Door { port: Port::new()?, bell: Doorbell::default() });
        let mut polls = Polls::default();
        polls.reserve(&door.port, 1).map_err(no_driver)?;
        Ok(Iocp {
            door,
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

impl Backend for Iocp {
    type Waker = Waker;

    fn waker(&self) -> Waker {
        Waker(self.door.clone())
    }

    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Ready,
        mode: Mode,
    ) -> io::Result<()> {
        check(mode)?;
        let base = base_socket(source.socket())?;
        // The handles that a poll needs are made here, where failing harms nobody.
        self.polls.reserve(&self.door.port, self.sources.len() + 1)?;
        let wanted = interest & Ready::INTEREST;
        let state = Source { base, wanted, mode, armed: None, queued: true };
        self.sources.insert(token, source, state)?;
        self.changed.push(token);
        Ok(())
    }

    fn modify(&mut self, token: Token, interest: Ready, mode: Mode) -> io::Result<()> {
        check(mode)?;
        let source = self.sources.get_mut(token)?;
        source.wanted = interest & Ready::INTEREST;
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
        let before = events.len();
        let countdown = Countdown::start(timeout);
        let mut left = timeout;
        loop {
            self.flush(events)?;
            let mut pause = left;
            let mut kernel = Kernel { port: &self.door.port, polls: &mut self.polls };
            self.ops.tell_over(&mut kernel, events);
            if events.len() > before || self.ops.has_news() {
                pause = Some(Duration::ZERO);
            }
            if pause != Some(Duration::ZERO) && !self.door.bell.sleep() {
                pause = Some(Duration::ZERO); // Someone has knocked.
            }
            if let (Some(timer), Some(pause)) = (&mut self.timer, pause)
                && !pause.is_zero()
                && pause < PRECISE
            {
                // Without it, the port's own timeout ends the wait, only later.
                timer.start(&self.door.port, pause);
            }
            let dequeued = self.door.port.dequeue(&mut self.batch, pause);
            let woken = self.door.bell.wake_up();
            dequeued?;
            for index in 0..self.batch.len() {
                self.receive(self.batch.get(index), events);
            }
            if woken || events.len() > before {
                return Ok(());
            }
            // Nothing to tell: the time is over, or a packet was for nobody.
            left = countdown.left();
            if left == Some(Duration::ZERO) {
                return Ok(());
            }
        }
    }

    fn supports(&self, kind: OpKind) -> bool {
        ops::supports(kind)
    }

    unsafe fn submit(&mut self, token: Token, op: Op) -> io::Result<()> {
        let mut kernel = Kernel { port: &self.door.port, polls: &mut self.polls };
        // SAFETY: the caller promises to this what that asks for.
        unsafe { self.ops.submit(&mut kernel, token, op) }
    }

    fn cancel(&mut self, token: Token) -> io::Result<()> {
        self.ops.cancel(&self.polls, token)
    }

    unsafe fn provide(
        &mut self,
        group: u16,
        memory: NonNull<u8>,
        size: u32,
        count: u16,
    ) -> io::Result<()> {
        self.ops.groups.provide(group, memory, size, count)
    }

    fn recycle(&mut self, lent: Lent) {
        self.ops.groups.recycle(lent);
    }

    fn withdraw(&mut self, group: u16) -> io::Result<()> {
        self.ops.withdraw(group)
    }
}

impl Iocp {
    /// Starts the polls that are wanted and not in flight. What cannot be polled is
    /// reported.
    fn flush(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let mut changed = mem::replace(&mut self.changed, mem::take(&mut self.spare));
        let mut result = Ok(());
        for token in changed.drain(..) {
            if result.is_ok() {
                result = self.arm(token, events);
            }
            if result.is_err() {
                self.changed.push(token); // The next wait tries again.
            }
        }
        self.spare = changed;
        result
    }

    /// Gives a source the poll that it wants. An error is about the backend, and
    /// the source is as it was.
    fn arm(&mut self, token: Token, events: &mut Vec<Event>) -> io::Result<()> {
        let Some((_, source)) = self.sources.find(token) else {
            return Ok(()); // Deregistered since.
        };
        let flags = flags_of(source.wanted);
        let as_it_should_be = match source.armed {
            Some((_, armed)) => flags == 0 || flags == armed,
            None => flags == 0,
        };
        if !as_it_should_be {
            self.polls.reserve(&self.door.port, 0)?;
            match self.polls.start(Owner::Source(token), source.base, flags) {
                Ok(poll) => {
                    if let Some((old, _)) = source.armed.replace((poll, flags)) {
                        self.polls.abandon(old);
                    }
                }
                // The socket was closed, or its driver wants nothing of it.
                Err(_) => {
                    let ready = source.wanted.report(Ready::ERROR);
                    source.wanted = Ready::NONE;
                    events.push(Event::Ready { token, ready });
                }
            }
        }
        source.queued = false;
        Ok(())
    }

    fn receive(&mut self, packet: Packet, events: &mut Vec<Event>) {
        if packet.key == Key::Operation as usize {
            let mut kernel = Kernel { port: &self.door.port, polls: &mut self.polls };
            self.ops.complete(&mut kernel, packet.context, events);
        } else if packet.key == Key::Poll as usize {
            match self.polls.finish(packet.context) {
                Some((Owner::Source(token), flags)) => self.report(token, flags, events),
                Some((Owner::Operation(token), flags)) => {
                    let mut kernel = Kernel { port: &self.door.port, polls: &mut self.polls };
                    self.ops.polled(&mut kernel, token, flags, events);
                }
                None => {}
            }
        } else if packet.key == Key::Timer as usize
            && let Some(timer) = &mut self.timer
        {
            timer.expired();
        }
        // A wake has no news: the doorbell has told it already.
    }

    /// The poll of a source has ended.
    fn report(&mut self, token: Token, flags: u32, events: &mut Vec<Event>) {
        let source = self.sources.get_mut(token).expect("else its poll was abandoned");
        source.armed = None;
        let ready = source.wanted.report(seen(flags));
        if !ready.is_empty() {
            events.push(Event::Ready { token, ready });
        }
        let spent = source.mode == Mode::Oneshot && !ready.is_empty();
        if spent || flags & afd::LOCAL_CLOSE != 0 {
            source.wanted = Ready::NONE;
        }
        if !source.wanted.is_empty() && !mem::replace(&mut source.queued, true) {
            self.changed.push(token);
        }
    }
}

impl Iocp {
    /// Lets go of operations that have ended unseen.
    fn rescue(&mut self, unheard: &mut Vec<Event>) {
        let mut kernel = Kernel { port: &self.door.port, polls: &mut self.polls };
        self.ops.rescue(&mut kernel, unheard);
    }
}

impl Drop for Iocp {
    fn drop(&mut self) {
        self.ops.abandon_all(&self.polls);
        self.polls.abandon_all();
        let mut unheard = Vec::new();
        self.rescue(&mut unheard);
        while self.ops.in_flight() + self.polls.in_flight() > 0 {
            let dequeued = self.door.port.dequeue(&mut self.batch, Some(PATIENCE));
            for index in 0..self.batch.len() {
                self.receive(self.batch.get(index), &mut unheard);
            }
            if dequeued.is_ok() && self.batch.len() > 0 {
                continue;
            }
            if self.ops.in_flight() == 0 {
                return; // Polls that have not ended are leaked.
            }
            // The memory of operations is their callers': there is no way but to wait.
            self.rescue(&mut unheard);
            self.ops.abandon_all(&self.polls);
            if dequeued.is_err() {
                thread::sleep(PATIENCE);
            }
        }
    }
}

fn check(mode: Mode) -> io::Result<()> {
    if mode == Mode::Edge {
        let why = "AFD polls have no edge mode: use Mode::Oneshot or Mode::Level";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(())
}

/// Why there is no backend without the driver.
fn no_driver(error: io::Error) -> io::Error {
    const SCARCE: [u32; 4] = [
        ERROR_NO_SYSTEM_RESOURCES,
        ERROR_NOT_ENOUGH_MEMORY,
        ERROR_NOT_ENOUGH_QUOTA,
        ERROR_TOO_MANY_OPEN_FILES,
    ];
    if error.raw_os_error().is_some_and(|code| SCARCE.contains(&(code as u32))) {
        return error;
    }
    let why = r"\Device\Afd cannot be opened here (a sandbox?); use the poll or select backend";
    explained(io::ErrorKind::Unsupported, why, error)
}

/// Failures, which every poll is for.
const UNASKED: u32 = afd::ABORT | afd::CONNECT_FAIL | afd::LOCAL_CLOSE;

/// What an interest polls for. Nothing, for none.
fn flags_of(wanted: Ready) -> u32 {
    if wanted.is_empty() {
        return 0;
    }
    let asked = [
        (Ready::READ, afd::RECEIVE | afd::ACCEPT | afd::DISCONNECT),
        (Ready::WRITE, afd::SEND),
        (Ready::PRIORITY, afd::RECEIVE_EXPEDITED),
        (Ready::DISCONNECT, afd::DISCONNECT),
    ];
    let asked = asked.iter().filter(|(ready, _)| wanted.contains(*ready));
    asked.fold(UNASKED, |all, (_, flags)| all | flags)
}

/// What the end of a poll means, before [`Ready::report`].
fn seen(flags: u32) -> Ready {
    let map = [
        (afd::RECEIVE | afd::ACCEPT, Ready::READ),
        (afd::SEND, Ready::WRITE),
        (afd::RECEIVE_EXPEDITED, Ready::PRIORITY),
        (afd::DISCONNECT, Ready::READ | Ready::DISCONNECT),
        (afd::ABORT | afd::CONNECT_FAIL, Ready::ERROR | Ready::HANGUP),
        (afd::LOCAL_CLOSE, Ready::ERROR),
    ];
    map.iter().filter(|(bits, _)| flags & bits != 0).map(|(_, ready)| *ready).collect()
}

#[cfg(test)]
mod tests;
