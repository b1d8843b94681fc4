//! A [backend](poll_core::Backend) over Linux's `epoll(7)`.
//!
#![cfg_attr(any(target_os = "linux", target_os = "android"), doc = "```")]
#![cfg_attr(not(any(target_os = "linux", target_os = "android")), doc = "```ignore")]
//! use poll_core::{Backend, Event, Mode, RawSource, Interest, Readiness, Token};
//! use poll_epoll::Epoll;
//!
//! let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! socket.send_to(b"hello", socket.local_addr()?)?;
//!
//! let (mut epoll, mut events) = (Epoll::new()?, Vec::new());
//! let token = Token::new(0, 0);
//! // SAFETY: `socket` stays open until `deregister` below.
//! unsafe { epoll.register(token, RawSource::of(&socket), Interest::READ, Mode::Level) }?;
//! epoll.wait(None, &mut events)?;
//! assert_eq!(events, [Event::Ready { token, ready: Readiness::READ }]);
//! epoll.deregister(token)?;
//! # std::io::Result::Ok(())
//! ```
//!
//! # How it works
//!
//! - `register` is one `EPOLL_CTL_ADD`, so a descriptor that epoll cannot watch, such as a
//!   regular file (`EPERM`), is an error there. An interest of `NONE` makes no system call.
//! - `modify` makes no system call. The next `wait` makes one `epoll_ctl` for each source
//!   whose wanted events differ from the armed ones.
//! - Muting is lazy: `modify` to `NONE` costs nothing until the kernel reports the source.
//!   `wait` drops that report and deletes the descriptor from the interest list. A source
//!   that is unmuted before then costs nothing either.
//! - `deregister` is one `EPOLL_CTL_DEL`: closing the descriptor is not enough, as a
//!   duplicate keeps its entry in the interest list.
//! - A descriptor that is closed while registered leaves an orphaned entry if a duplicate
//!   keeps its file open. No `epoll_ctl` reaches that entry. When the kernel reports one,
//!   `wait` moves all sources to a new epoll instance.
//! - `wait` is one `epoll_pwait`, or one `epoll_pwait2` if it may block for a limited time.
//!   A busy backend polls with a zero timeout before it blocks.
//!   One call reports up to 1,024 sources; the kernel moves reported sources to the end of
//!   its ready list, so none starves.
//! - A wake writes to an `eventfd(2)` if the backend is blocked, and only sets a flag if not.
//! - `raw_source` is a second epoll instance that watches the first one, and stays valid when
//!   that one is replaced. The kernel nests at most five instances.
//! - `has_unflushed_changes` is true from a `modify` to the next `wait`.
//! - `after_fork` gives the child new kernel objects under the old descriptor numbers; the
//!   child's next `wait` adds all sources again.
//!
//! Nothing is emulated: all [modes](poll_core::Mode) and [conditions](poll_core::Interest)
//! are the kernel's own. There are no [operations](poll_core::Op).
//!
//! | `epoll_event.events` | `Readiness` |
//! |---|---|
//! | `EPOLLIN` | `READ` |
//! | `EPOLLOUT` | `WRITE` |
//! | `EPOLLPRI` | `PRIORITY` |
//! | `EPOLLRDHUP` | `DISCONNECT`, if it is in the interest |
//! | `EPOLLHUP` | `HANGUP`, and `READ` and `WRITE` if they are in the interest |
//! | `EPOLLERR` | `ERROR`, and `READ` and `WRITE` if they are in the interest |
//!
//! # Platforms
//!
//! Linux and Android; elsewhere this crate is empty. Before Linux 5.11, on Android
//! and under seccomp filters that deny `epoll_pwait2`, timeouts are rounded up to
//! milliseconds.
#![cfg(any(target_os = "linux", target_os = "android"))]

use std::cell::OnceCell;
use std::ffi::c_int;
use std::fmt;
use std::io;
use std::time::Duration;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use libc::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLPRI, EPOLLRDHUP};
use poll_core::{
    Backend, Backoff, Deadline, Event, Interest, Mode, Open, RawSource, Readiness, Registry, Token,
};

mod instance;
mod waker;

use instance::Instance;
pub use waker::Waker;

/// The number of sources that one `wait` reports at most: 12 KiB of `epoll_event`.
const BATCH: usize = 1024;

/// The number of timed waits before the first that polls with a zero timeout first.
const WAITS_BEFORE_POLL: u8 = 15;

/// The `epoll_event.data` of the waker's eventfd. No token has bit 63.
const WAKER: u64 = 1 << 63;

/// Watches sources through `epoll(7)`; see the [crate's page](crate).
pub struct Epoll {
    /// Watches the waker and all armed sources.
    instance: Instance,
    /// Made by the first `raw_source`: watches `instance` for other pollers. They keep watching
    /// the same descriptor when `instance` is replaced.
    exposed: OnceCell<Instance>,
    waker: Waker,
    sources: Registry<Source>,
    /// Sources that were modified since the last flush, each once.
    changed: Vec<Token>,
    /// The events of the last system call; a field so that its memory is reused.
    ready: Vec<libc::epoll_event>,
    /// Whether a timed wait polls with a zero timeout before it blocks. A wait with a finite
    /// timeout reads the clock, once here and twice in the kernel, even if an event is pending:
    /// 1.6 µs on a ready source, and 1.1 µs if a poll finds it first (Linux 6.18). A poll that
    /// finds nothing is a wasted system call.
    backoff: Backoff,
}

#[derive(Debug)]
struct Source {
    /// The requested interest in epoll's bits; 0 while the source is muted.
    wanted: u32,
    armed: Armed,
    /// Its index in `changed`.
    queued: Option<usize>,
}

/// The last state that the kernel was given for a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    /// The descriptor is not in the interest list.
    Absent,
    /// The descriptor is watched for these bits.
    For(u32),
    /// A one-shot that has fired: the descriptor is in the interest list, disabled.
    Spent,
}

impl Epoll {
    /// Creates an epoll instance and an eventfd to wake it.
    ///
    /// # Errors
    ///
    /// `Unsupported` if a seccomp filter denies epoll; else the kernel's error, most likely
    /// `EMFILE` or `ENFILE`.
    pub fn new() -> io::Result<Epoll> {
        let waker = Waker::new()?;
        Ok(Epoll {
            instance: instance_for(&waker)?,
            exposed: OnceCell::new(),
            waker,
            sources: Registry::default(),
            changed: Vec::new(),
            ready: Vec::with_capacity(BATCH),
            backoff: Backoff::new(WAITS_BEFORE_POLL),
        })
    }
}

impl Open for Epoll {
    /// As [`Epoll::new`].
    fn open() -> io::Result<Epoll> {
        Epoll::new()
    }
}

// SAFETY: the backend performs no operations. `deregister` removes the source from the epoll
// instance, which fails only for a source that was closed before, and no call closes one.
unsafe impl Backend for Epoll {
    type Waker = Waker;

    fn name(&self) -> &'static str {
        "epoll"
    }

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        let wanted = to_epoll(interest, mode);
        let unarmed = Source { wanted, armed: Armed::Absent, queued: None };
        let state = self.sources.insert(token, source, unarmed)?;
        let Some(op) = change(state.armed, wanted) else { return Ok(()) };
        match self.instance.ctl(op, source.fd(), wanted, token.to_u64()) {
            Ok(()) => state.armed = Armed::For(wanted),
            Err(error) => {
                self.sources.remove(token)?;
                return Err(error);
            }
        }
        Ok(())
    }

    fn modify(&mut self, token: Token, interest: Interest, mode: Mode) -> io::Result<()> {
        let state = self.sources.get_mut(token)?;
        state.wanted = to_epoll(interest, mode);
        if state.queued.is_none() {
            state.queued = Some(self.changed.len());
            self.changed.push(token);
        }
        Ok(())
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        let (source, state) = self.sources.remove(token)?;
        if let Some(index) = state.queued {
            self.changed.swap_remove(index);
            if let Some(&moved) = self.changed.get(index) {
                self.sources.get_mut(moved)?.queued = Some(index);
            }
        }
        if state.armed != Armed::Absent {
            // This fails only if the caller has closed the descriptor before. An orphaned
            // entry is found by its unknown token when the kernel reports it.
            let _ = self.instance.ctl(EPOLL_CTL_DEL, source.fd(), 0, 0);
        }
        Ok(())
    }

    #[inline]
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        match timeout {
            Some(Duration::ZERO) if self.sources.is_empty() && self.exposed.get().is_none() => {
                // No source can be ready. An exposed instance still needs the system call: the
                // event of the eventfd keeps it readable until then.
                self.waker.state().unpark();
                Ok(())
            }
            None => self.wait_untimed(true, events),
            Some(Duration::ZERO) => self.wait_untimed(false, events),
            Some(_) => self.wait_timed(timeout, events),
        }
    }

    /// Also `None` if the process is out of descriptors.
    fn raw_source(&self) -> Option<RawSource> {
        let exposed = match self.exposed.get() {
            Some(exposed) => exposed,
            None => {
                let outer = Instance::new().ok()?;
                watch_instance(&outer, &self.instance).ok()?;
                self.exposed.get_or_init(|| outer)
            }
        };
        if self.waker.state().notify_always() {
            // An eventfd write fails only if its counter overflows.
            let _ = self.waker.signal();
        }
        Some(RawSource::from_fd(exposed.fd()))
    }

    fn has_unflushed_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    fn after_fork(&mut self) -> io::Result<()> {
        // The parent shares the old instances: no entry may be deleted from them.
        self.waker.after_fork()?;
        if let Some(exposed) = self.exposed.get_mut() {
            exposed.replace_with(&Instance::new()?)?;
        }
        self.replace_instance()
    }
}

impl Epoll {
    /// Waits for an event, or polls once.
    fn wait_untimed(&mut self, blocks: bool, events: &mut Vec<Event>) -> io::Result<()> {
        let timeout = if blocks { None } else { Some(Duration::ZERO) };
        while !self.poll(timeout, events)? && blocks {}
        Ok(())
    }

    /// Waits for an event for a limited time. See [`backoff`](Epoll::backoff).
    fn wait_timed(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        if self.backoff.should_try() {
            let found = self.poll(Some(Duration::ZERO), events)?;
            self.backoff.record(found);
            if found {
                return Ok(());
            }
        }
        Deadline::repeat(timeout, |left| self.poll(left, events))
    }

    /// Flushes all changes, makes the system call and collects its events. Returns true if
    /// `wait` is to return: there are new events, or a wake or a signal ended the call.
    ///
    /// False is the end of the timeout, or a spurious event: of a muted or orphaned source, or
    /// of an eventfd that was written after an earlier `wait` had consumed the wake.
    #[inline(always)] // So that a wait is one function.
    fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<bool> {
        let before = events.len();
        if !self.changed.is_empty() {
            self.flush(events);
        }
        // The error of a failed change and a pending wake are both delivered immediately.
        let may_block = timeout != Some(Duration::ZERO) && events.len() == before;
        let blocks = may_block && self.waker.state().prepare_park();
        let timeout = if blocks { timeout } else { Some(Duration::ZERO) };
        let result = self.instance.wait(timeout, &mut self.ready);
        let woken = self.waker.state().unpark();
        let interrupted = match result {
            Ok(()) => false,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            Err(error) => return Err(error),
        };
        self.collect(events);
        Ok(woken || interrupted || events.len() > before)
    }

    /// Gives the kernel all changes, with one `epoll_ctl` per source at most.
    fn flush(&mut self, events: &mut Vec<Event>) {
        for token in self.changed.drain(..) {
            let Some((source, state)) = self.sources.find(token) else { continue };
            state.queued = None;
            let Some(op) = change(state.armed, state.wanted) else { continue };
            match self.instance.ctl(op, source.fd(), state.wanted, token.to_u64()) {
                Ok(()) => state.armed = Armed::For(state.wanted),
                Err(_) => {
                    (state.wanted, state.armed) = (0, Armed::Absent);
                    events.push(Event::Ready { token, ready: Readiness::ERROR });
                }
            }
        }
    }

    /// Translates the kernel's events, and drops those of muted and orphaned sources.
    #[inline(always)] // So that a wait is one function.
    fn collect(&mut self, events: &mut Vec<Event>) {
        let mut orphaned = false;
        for event in &self.ready {
            if event.u64 == WAKER {
                continue; // `unpark` reports whether a wake is pending.
            }
            let token = Token::from_u64(event.u64);
            let Some((source, state)) = self.sources.find(token) else {
                orphaned = true;
                continue;
            };
            if state.wanted == bit(EPOLLIN) && event.events == bit(EPOLLIN) {
                // The most frequent case. Without it `bench count` shows 18 % more instructions for
                // read/epoll, and 37 % more for echo-try-write-16/epoll.
                events.push(Event::Ready { token, ready: Readiness::READ });
                continue;
            }
            let is_oneshot = matches!(state.armed, Armed::For(bits) if bits & ONESHOT != 0);
            if state.wanted != 0 {
                let ready = to_ready(state.wanted).to_interest().report(to_ready(event.events));
                events.push(Event::Ready { token, ready });
            } else if !is_oneshot {
                // A muted source is deleted at its first report.
                orphaned |= self.instance.ctl(EPOLL_CTL_DEL, source.fd(), 0, 0).is_err();
                state.armed = Armed::Absent;
            }
            if is_oneshot {
                (state.wanted, state.armed) = (0, Armed::Spent);
            }
        }
        if orphaned {
            // If this fails, the next report of the orphaned entry tries again.
            let _ = self.replace_instance();
        }
    }

    /// Replaces the epoll instance by a new one with the same descriptor number. The next
    /// flush adds all sources to it.
    ///
    /// A forked child needs one of its own. An orphaned entry makes one necessary too: it
    /// stays in the interest list until the last duplicate of its descriptor is closed, and
    /// no descriptor is left to name it in `EPOLL_CTL_DEL`.
    #[cold]
    fn replace_instance(&mut self) -> io::Result<()> {
        let new = instance_for(&self.waker)?;
        if let Some(exposed) = self.exposed.get() {
            // Closing is not enough: a forked child may have a duplicate of the old instance.
            let _ = exposed.ctl(EPOLL_CTL_DEL, self.instance.fd(), 0, 0);
        }
        let replaced = self.instance.replace_with(&new);
        if replaced.is_ok() {
            self.changed.clear();
            for (token, _, state) in self.sources.iter_mut() {
                (state.armed, state.queued) = (Armed::Absent, Some(self.changed.len()));
                self.changed.push(token);
            }
        }
        if let Some(exposed) = self.exposed.get() {
            watch_instance(exposed, &self.instance)?;
        }
        replaced
    }
}

impl fmt::Debug for Epoll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoll")
            .field("instance", &self.instance)
            .field("waker", &self.waker)
            .field("sources", &self.sources.len())
            .finish_non_exhaustive()
    }
}

/// Creates an epoll instance that watches the waker's eventfd, edge-triggered: each write is
/// an event, and the counter is never read.
fn instance_for(waker: &Waker) -> io::Result<Instance> {
    let instance = Instance::new()?;
    instance.ctl(EPOLL_CTL_ADD, waker.fd(), bit(EPOLLIN) | bit(EPOLLET), WAKER)?;
    Ok(instance)
}

/// Makes `outer` readable while `inner` has events.
fn watch_instance(outer: &Instance, inner: &Instance) -> io::Result<()> {
    outer.ctl(EPOLL_CTL_ADD, inner.fd(), bit(EPOLLIN), 0)
}

/// Returns the `epoll_ctl` operation that takes a source from `armed` to `wanted`, if one is
/// needed.
///
/// ```text
///    armed ╲ wanted │ nothing  │ the same bits       │ other bits
///   ────────────────┼──────────┼─────────────────────┼────────────
///    Absent         │    -     │         ADD         │    ADD
///    For(bits)      │  - lazy  │  - ; with EPOLLET:  │    MOD
///                   │          │         MOD         │
///    Spent          │    -     │         MOD         │    MOD
/// ```
///
/// `MOD` makes the kernel evaluate the source again and report an edge that it has reported
/// before. Without `EPOLLET` the kernel evaluates it at every wait.
fn change(armed: Armed, wanted: u32) -> Option<c_int> {
    match armed {
        _ if wanted == 0 => None,
        Armed::Absent => Some(EPOLL_CTL_ADD),
        Armed::For(bits) if bits == wanted && bits & bit(EPOLLET) == 0 => None,
        Armed::For(_) | Armed::Spent => Some(EPOLL_CTL_MOD),
    }
}

const FLAGS: [(c_int, Readiness); 6] = [
    (EPOLLIN, Readiness::READ),
    (EPOLLOUT, Readiness::WRITE),
    (EPOLLPRI, Readiness::PRIORITY),
    (EPOLLRDHUP, Readiness::DISCONNECT),
    (EPOLLHUP, Readiness::HANGUP),
    (EPOLLERR, Readiness::ERROR),
];

const ONESHOT: u32 = bit(EPOLLONESHOT);

/// Converts a flag: libc's are signed, `epoll_event.events` is not.
const fn bit(flag: c_int) -> u32 {
    flag as u32
}

/// Returns the bits for `epoll_event.events`; 0 if the interest is empty.
fn to_epoll(interest: Interest, mode: Mode) -> u32 {
    let interest = interest & Interest::all();
    if interest.is_empty() {
        return 0;
    }
    let mode = match mode {
        Mode::Level => 0,
        Mode::Oneshot => EPOLLONESHOT,
        Mode::Edge => EPOLLET,
    };
    let asked = FLAGS.iter().filter(|(_, ready)| interest.to_readiness().contains(*ready));
    asked.fold(bit(mode), |bits, (flag, _)| bits | bit(*flag))
}

/// Returns the conditions in `epoll_event.events`, without the mode bits.
fn to_ready(bits: u32) -> Readiness {
    FLAGS.iter().filter(|(flag, _)| bits & bit(*flag) != 0).map(|(_, ready)| *ready).collect()
}

#[cfg(test)]
mod tests;
