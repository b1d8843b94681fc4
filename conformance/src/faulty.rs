//! A backend decorator that injects faults from a seed.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use poll_core::{
    Backend, Event, Interest, Mode, Op, OpKind, RawSource, Readiness, Token, delegate_backend,
};

use crate::rng::SplitMix64;

/// A kind of fault that [`Faulty`] injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// A wait returns early and without events, as after a signal.
    EarlyReturn,
    /// A readiness event is reported one to three waits late.
    LateReadiness,
    /// A level-triggered source is reported as ready without cause.
    SpuriousReadiness,
    /// A completion is reported one to three waits late.
    LateCompletion,
    /// Two neighbouring events of different tokens change places.
    Reorder,
    /// A cancel reaches the backend inside one or two waits late, so that the result may be faster.
    LateCancel,
    /// `register` fails for want of memory, buffers or descriptors.
    RegisterError,
    /// `submit` fails for want of memory or buffers, or as if the ring were full.
    SubmitError,
    /// A send to or a receive from a stream transfers fewer bytes than it could.
    ShortTransfer,
}

impl Fault {
    /// Every kind.
    pub const ALL: [Fault; 9] = [
        Fault::EarlyReturn,
        Fault::LateReadiness,
        Fault::SpuriousReadiness,
        Fault::LateCompletion,
        Fault::Reorder,
        Fault::LateCancel,
        Fault::RegisterError,
        Fault::SubmitError,
        Fault::ShortTransfer,
    ];

    /// Its name in reports, in the plural.
    pub fn name(self) -> &'static str {
        match self {
            Fault::EarlyReturn => "early returns",
            Fault::LateReadiness => "late events",
            Fault::SpuriousReadiness => "spurious events",
            Fault::LateCompletion => "late completions",
            Fault::Reorder => "events out of order",
            Fault::LateCancel => "late cancels",
            Fault::RegisterError => "errors of register",
            Fault::SubmitError => "errors of submit",
            Fault::ShortTransfer => "short transfers",
        }
    }
}

/// How many faults of each kind a [`Faulty`] has injected. Clones share the counts.
#[derive(Clone, Debug, Default)]
pub struct FaultCounts(Arc<[AtomicU64; Fault::ALL.len()]>);

impl FaultCounts {
    /// The number of faults of one kind.
    pub fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize].load(Ordering::Relaxed)
    }

    /// The number of faults of all kinds.
    pub fn total(&self) -> u64 {
        Fault::ALL.iter().map(|fault| self.of(*fault)).sum()
    }

    /// Adds faults that were counted elsewhere, as in another process.
    pub fn add(&self, fault: Fault, number: u64) {
        self.0[fault as usize].fetch_add(number, Ordering::Relaxed);
    }
}

/// The number and the name of each kind that has occurred.
impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = Fault::ALL.into_iter().filter(|fault| self.of(*fault) > 0);
        let counts: Vec<_> =
            kinds.map(|fault| format!("{} {}", self.of(fault), fault.name())).collect();
        f.write_str(&counts.join(", "))
    }
}

/// Any backend with faults: events that come late, early, in another order or without cause, waits
/// that return with nothing, cancels that come too late, and errors for want of resources.
///
/// The faults are those that a kernel may produce; a loop has to work over them. They are drawn
/// from a seed, so that the same calls meet the same faults. Results are never falsified: a
/// completion that is delayed is the one that the backend inside reported. The promises of
/// [`Backend`]'s safety section hold.
///
/// By default the faults are transparent: no call fails. [`with_rate`](Faulty::with_rate) changes
/// how often each kind occurs, and turns on [`Fault::RegisterError`], [`Fault::SubmitError`] and
/// [`Fault::ShortTransfer`], after which a program sees its bytes in other pieces.
///
/// ```
/// use std::time::Duration;
/// use conformance::{Fault, FaultCounts, Faulty};
/// use uv_core::{Loop, RunMode, Stream, Tcp};
///
/// let counts = FaultCounts::default();
/// let backend = Faulty::new(poll_select::Select::new()?, 7)
///     .with_rate(Fault::EarlyReturn, 500)
///     .with_counts(&counts);
/// let mut lp = Loop::new(backend);
/// let (one, other) = Tcp::pair(&mut lp)?;
/// for _ in 0..100 {
///     one.try_write(&mut lp, b"ping")?;
///     other.read(&mut lp, vec![0; 4], |_, _, count, _| assert_eq!(count.unwrap(), 4))?;
///     lp.run(RunMode::Default)?;
/// }
/// assert!(counts.of(Fault::EarlyReturn) > 0);
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct Faulty<B: Backend> {
    inner: B,
    rng: SplitMix64,
    per_mille: [u16; Fault::ALL.len()],
    counts: FaultCounts,
    /// The registrations, as the caller sees them.
    registered: HashMap<Token, (Interest, Mode)>,
    /// The tokens that were registered or changed last, to choose spurious events from.
    recent: VecDeque<Token>,
    /// Operations whose final event the caller has not seen.
    in_flight: HashMap<Token, OpKind>,
    /// Events of the backend inside that the caller has not seen, and how many more waits they
    /// stay here. Those of one token are in order.
    held: VecDeque<(Event, u8)>,
    /// Cancels that the backend inside has not seen, and how many more waits they stay here.
    late_cancels: Vec<(Token, u8)>,
    /// Early returns since the last real wait.
    early_returns: u8,
    fresh: Vec<Event>,
}

/// Spurious events are chosen from as many sources.
const RECENT: usize = 16;

/// No event or cancel is delayed for more waits.
const MAX_DELAY: usize = 3;

impl<B: Backend> Faulty<B> {
    /// `inner` with the faults of a seed, at default rates.
    #[must_use = "the backend is inside"]
    pub fn new(inner: B, seed: u64) -> Faulty<B> {
        let faulty = Faulty {
            inner,
            rng: SplitMix64::new(seed),
            per_mille: [0; Fault::ALL.len()],
            counts: FaultCounts::default(),
            registered: HashMap::new(),
            recent: VecDeque::new(),
            in_flight: HashMap::new(),
            held: VecDeque::new(),
            late_cancels: Vec::new(),
            early_returns: 0,
            fresh: Vec::new(),
        };
        faulty
            .with_rate(Fault::EarlyReturn, 100)
            .with_rate(Fault::LateReadiness, 150)
            .with_rate(Fault::SpuriousReadiness, 100)
            .with_rate(Fault::LateCompletion, 200)
            .with_rate(Fault::Reorder, 300)
            .with_rate(Fault::LateCancel, 300)
    }

    /// The same with a fault in `per_mille` of 1000 opportunities.
    #[must_use = "the backend is inside"]
    pub fn with_rate(mut self, fault: Fault, per_mille: u16) -> Faulty<B> {
        self.per_mille[fault as usize] = per_mille;
        self
    }

    /// The same with counts that the caller keeps, also when a loop owns the backend.
    #[must_use = "the backend is inside"]
    pub fn with_counts(mut self, counts: &FaultCounts) -> Faulty<B> {
        self.counts = counts.clone();
        self
    }

    /// The counts of the faults.
    pub fn counts(&self) -> &FaultCounts {
        &self.counts
    }

    /// Draws whether a fault occurs now.
    fn occurs(&mut self, fault: Fault) -> bool {
        let occurs = self.rng.chance(self.per_mille[fault as usize]);
        if occurs {
            self.counts.add(fault, 1);
        }
        occurs
    }

    fn delay(&mut self) -> u8 {
        1 + self.rng.below(MAX_DELAY) as u8
    }

    /// Notes a registration or a change. The backend inside re-evaluates the source, so an event
    /// that is held for it is out of date.
    fn note(&mut self, token: Token, interest: Interest, mode: Mode) {
        self.forget_readiness(token);
        self.registered.insert(token, (interest, mode));
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(token);
    }

    fn forget_readiness(&mut self, token: Token) {
        let is_stale =
            |event: &Event| matches!(event, Event::Ready { token: of, .. } if *of == token);
        self.held.retain(|(event, _)| !is_stale(event));
    }

    /// Passes one wait: cancels whose time has come reach the backend inside.
    fn issue_late_cancels(&mut self) {
        let mut at = 0;
        while let Some((token, waits)) = self.late_cancels.get_mut(at) {
            if *waits > 0 {
                *waits -= 1;
                at += 1;
                continue;
            }
            // An operation that has ended meanwhile is not found, which is the fault intended.
            let _ = self.inner.cancel(*token);
            self.late_cancels.swap_remove(at);
        }
    }

    /// Holds an event back, or lets it pass.
    fn sift(&mut self, event: Event, out: &mut Vec<Event>) {
        match event {
            Event::Ready { token, ready } => self.sift_readiness(token, ready, out),
            Event::Done { token, .. } => {
                // Behind those of the same operation that are held.
                let mut held = self.held.iter().rev();
                let behind = held.find(|(held, _)| held.token() == token).map(|(_, waits)| *waits);
                if behind.is_none() && !self.occurs(Fault::LateCompletion) {
                    return out.push(event);
                }
                let waits = behind.unwrap_or_else(|| self.delay());
                self.held.push_back((event, waits));
            }
        }
    }

    fn sift_readiness(&mut self, token: Token, ready: Readiness, out: &mut Vec<Event>) {
        // One event a source and wait: an edge adds to the one that is held.
        for (event, _) in &mut self.held {
            if let Event::Ready { token: of, ready: held } = event
                && *of == token
            {
                *held |= ready;
                return;
            }
        }
        if !self.occurs(Fault::LateReadiness) {
            return out.push(Event::Ready { token, ready });
        }
        // A level-triggered source is reported again by the backend inside.
        if !matches!(self.registered.get(&token), None | Some((_, Mode::Level))) {
            let waits = self.delay();
            self.held.push_back((Event::Ready { token, ready }, waits));
        }
    }

    /// Reports the events that have been held for long enough.
    fn release_held(&mut self, out: &mut Vec<Event>) {
        for _ in 0..self.held.len() {
            match self.held.pop_front() {
                Some((event, 0)) => out.push(event),
                Some((event, waits)) => self.held.push_back((event, waits - 1)),
                None => break,
            }
        }
    }

    fn add_spurious(&mut self, out: &mut Vec<Event>) {
        if self.recent.is_empty() {
            return;
        }
        let token = self.recent[self.rng.below(self.recent.len())];
        let Some((interest, Mode::Level)) = self.registered.get(&token) else { return };
        let ready = interest.to_readiness() & (Readiness::READ | Readiness::WRITE);
        // One event a source and wait.
        let is_reported = out.iter().any(|event| event.token() == token);
        if !ready.is_empty() && !is_reported && self.occurs(Fault::SpuriousReadiness) {
            out.push(Event::Ready { token, ready });
        }
    }

    /// Changes the order of events, but not of those of one token.
    fn reorder(&mut self, events: &mut [Event]) {
        for at in 1..events.len() {
            if events[at - 1].token() != events[at].token() && self.occurs(Fault::Reorder) {
                events.swap(at - 1, at);
            }
        }
    }

    /// Notes which operations have ended, as the caller sees it from now on.
    fn note_ends(&mut self, events: &[Event]) {
        for event in events {
            if let Event::Done { token, more: false, .. } = event {
                self.in_flight.remove(token);
                self.late_cancels.retain(|(cancelled, _)| cancelled != token);
            }
        }
    }
}

/// An error of a kernel that lacks something.
fn shortage(which: usize) -> io::Error {
    cfg_if::cfg_if! {
        if #[cfg(unix)] {
            let codes = [libc::ENOMEM, libc::ENOBUFS, libc::EMFILE, libc::EAGAIN];
        } else {
            // ERROR_NOT_ENOUGH_MEMORY, WSAENOBUFS, WSAEMFILE, WSAEWOULDBLOCK.
            let codes = [8, 10055, 10024, 10035];
        }
    }
    io::Error::from_raw_os_error(codes[which])
}

/// True if a transfer of a part leaves the rest for the next.
fn is_stream(source: RawSource) -> bool {
    cfg_if::cfg_if! {
        if #[cfg(unix)] {
            let mut kind: libc::c_int = 0;
            let mut len = size_of_val(&kind) as libc::socklen_t;
            let (level, name) = (libc::SOL_SOCKET, libc::SO_TYPE);
            // SAFETY: the call writes at most `len` bytes, the size of `kind`.
            let failed = unsafe {
                libc::getsockopt(source.fd(), level, name, (&raw mut kind).cast(), &mut len)
            };
            failed == 0 && kind == libc::SOCK_STREAM
        } else {
            let _ = source;
            false
        }
    }
}

/// Closes a source that an operation has made and that no event will report.
fn close_source(kind: OpKind, raw: usize) {
    cfg_if::cfg_if! {
        if #[cfg(unix)] {
            use std::os::fd::{FromRawFd, OwnedFd};
            if matches!(kind, OpKind::Accept | OpKind::AcceptMulti | OpKind::OpenAt) {
                // SAFETY: the backend inside has reported the source, which makes it the
                // receiver's; the event was dropped here and reached no other code.
                drop(unsafe { OwnedFd::from_raw_fd(raw as i32) });
            }
        } else {
            use std::os::windows::io::{FromRawSocket, OwnedSocket, RawSocket};
            if matches!(kind, OpKind::Accept | OpKind::AcceptMulti) {
                // SAFETY: the backend inside has reported the socket, which makes it the
                // receiver's; the event was dropped here and reached no other code.
                drop(unsafe { OwnedSocket::from_raw_socket(raw as RawSocket) });
            }
        }
    }
}

impl<B: Backend> Drop for Faulty<B> {
    fn drop(&mut self) {
        let held = self.held.drain(..).map(|(event, _)| event);
        for event in held.chain(self.fresh.drain(..)) {
            if let Event::Done { token, result: Ok(raw), .. } = event
                && let Some(kind) = self.in_flight.get(&token)
            {
                close_source(*kind, raw);
            }
        }
    }
}

// SAFETY: operations, buffers and sources are those of `inner`, which keeps the promises. Here
// events only come later, and buffers are shorter: an operation counts as in flight until the
// caller has its final event (`submit` refuses its token), a group with a piece in a held event is
// not unregistered, and a new source in a held event is closed by the destructor. A held or made
// readiness event of a token is dropped when the token is deregistered, and refers to no source.
unsafe impl<B: Backend> Backend for Faulty<B> {
    delegate_backend! {
        self => self.inner, Waker = B::Waker, except {
            register, modify, deregister, wait, submit, cancel, unregister_buffers,
            has_unflushed_changes
        }
    }

    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        if self.occurs(Fault::RegisterError) {
            return Err(shortage(self.rng.below(3)));
        }
        // SAFETY: the caller's promise is passed on.
        unsafe { self.inner.register(token, source, interest, mode) }?;
        self.note(token, interest, mode);
        Ok(())
    }

    fn modify(&mut self, token: Token, interest: Interest, mode: Mode) -> io::Result<()> {
        self.inner.modify(token, interest, mode)?;
        self.note(token, interest, mode);
        Ok(())
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        self.forget_readiness(token);
        self.registered.remove(&token);
        self.recent.retain(|recent| *recent != token);
        self.inner.deregister(token)
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.issue_late_cancels();
        let is_waiting = !self.held.is_empty() || !self.late_cancels.is_empty();
        // A kernel interrupts waits, but not for ever.
        if self.early_returns < 2 && self.occurs(Fault::EarlyReturn) {
            self.early_returns += 1;
            return Ok(());
        }
        self.early_returns = 0;
        let first = events.len();
        self.release_held(events);
        let no_wait = is_waiting || events.len() > first;
        let timeout = if no_wait { Some(Duration::ZERO) } else { timeout };
        // If the wait panics its events stay in `fresh`, for the next wait or the destructor.
        let result = self.inner.wait(timeout, &mut self.fresh);
        let mut fresh = std::mem::take(&mut self.fresh);
        for event in fresh.drain(..) {
            self.sift(event, events);
        }
        self.fresh = fresh;
        let mut reported = events.split_off(first);
        self.add_spurious(&mut reported);
        self.reorder(&mut reported);
        self.note_ends(&reported);
        events.append(&mut reported);
        result
    }

    unsafe fn submit(&mut self, token: Token, mut op: Op) -> io::Result<()> {
        if self.in_flight.contains_key(&token) {
            let why = "an operation with this token is in flight: wait for its final event";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        if self.occurs(Fault::SubmitError) {
            return Err(shortage(self.rng.below(4)));
        }
        if let Op::Send { buf, source } | Op::Recv { buf, source } = &mut op
            && buf.len > 1
            && is_stream(*source)
            && self.occurs(Fault::ShortTransfer)
        {
            buf.len = 1 + self.rng.below(buf.len as usize - 1) as u32;
        }
        // SAFETY: the caller's promise is passed on; of its memory at most less is used.
        unsafe { self.inner.submit(token, op) }?;
        self.in_flight.insert(token, op.kind());
        Ok(())
    }

    fn cancel(&mut self, token: Token) -> io::Result<()> {
        let is_final = |event: &Event| matches!(event, Event::Done { token: of, more: false, .. } if *of == token);
        if self.held.iter().any(|(event, _)| is_final(event))
            || self.late_cancels.iter().any(|(late, _)| *late == token)
        {
            return Ok(());
        }
        // A listener may be closed when the cancel of its accept returns, so that one is in time.
        let may_be_late = !matches!(
            self.in_flight.get(&token),
            None | Some(OpKind::Accept | OpKind::AcceptMulti)
        );
        if may_be_late && self.occurs(Fault::LateCancel) {
            let waits = self.rng.below(2) as u8;
            self.late_cancels.push((token, waits));
            return Ok(());
        }
        self.inner.cancel(token)
    }

    fn unregister_buffers(&mut self, group: u16) -> io::Result<()> {
        let is_of_group = |event: &Event| matches!(event, Event::Done { lease: Some(lease), .. } if lease.group == group);
        if self.held.iter().any(|(event, _)| is_of_group(event)) {
            let why = "an event that leases a buffer of the group is pending: wait first";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        self.inner.unregister_buffers(group)
    }

    fn has_unflushed_changes(&self) -> bool {
        !self.held.is_empty() || !self.late_cancels.is_empty() || self.inner.has_unflushed_changes()
    }
}

/// The cases of the loop that cannot hold over a [`Faulty`] backend, by group or by name, and why.
///
/// The reasons are few: a case counts system calls, or counts or orders what one wait reports; or
/// its socket blocks.
const BREAK_UNDER_FAULTS: &[(&str, &str)] = &[
    ("embedding::a_loop_runs_inside_another", ORDER),
    ("embedding::another_poller_drives_the_loop", ORDER),
    ("embedding::sends_and_signals_before_a_fork_stay_in_the_parent", SPURIOUS),
    ("metrics::events_are_counted", ORDER),
    ("pipes::an_echo_costs_three_system_calls", CALLS),
    ("polls::closed_poll_is_not_called", SPURIOUS),
    ("polls::a_thousand_polls", ORDER),
    ("running::callback_order_is_backend_independent", ORDER),
    (
        "streams::a_read_survives_a_switch_to_blocking",
        "its socket blocks, so that a read after a spurious event does not return",
    ),
    ("streams::a_close_reaches_the_peer_without_a_run", LATE_CANCEL),
    ("streams::an_echo_costs_three_system_calls", CALLS),
    ("streams::coalesced_responses_share_system_calls", CALLS),
    ("tcp::ten_thousand_concurrent_connections", ORDER),
    ("udp::a_ping_pong_costs_three_system_calls", CALLS),
    ("udp::responses_with_callbacks_share_system_calls", CALLS),
    ("udp::a_close_outside_of_run_frees_the_address", LATE_CANCEL),
    ("udp::closing_frees_the_port", LATE_CANCEL),
    (
        "udp::closing_cancels_receives_in_flight",
        "a receive whose cancel is late takes a datagram that was sent after the close",
    ),
];

const CALLS: &str = "counts system calls, and faults cost more of them";
const ORDER: &str = "counts or orders what one wait reports, and faults spread it over several";
const LATE_CANCEL: &str =
    "an operation whose cancel is late keeps the socket open until the loop runs again";
const SPURIOUS: &str = "expects that a poll is silent, and a spurious event is reported";

/// Why a case of the loop cannot hold over a [`Faulty`] backend, if that is so.
///
/// ```
/// assert!(conformance::breaks_under_faults("timers::fire_in_deadline_order").is_none());
/// ```
pub fn breaks_under_faults(path: &str) -> Option<&'static str> {
    let group = path.split("::").next().unwrap_or_default();
    let found = BREAK_UNDER_FAULTS.iter().find(|(name, _)| *name == path || *name == group);
    found.map(|(_, why)| *why)
}
