//! A [backend](poll_core::Backend) over Linux's `epoll(7)`.
//!
#![cfg_attr(any(target_os = "linux", target_os = "android"), doc = "```")]
#![cfg_attr(not(any(target_os = "linux", target_os = "android")), doc = "```ignore")]
//! use poll_core::{Backend, Event, Mode, RawSource, Ready, Token};
//! use poll_epoll::Epoll;
//!
//! let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! socket.send_to(b"hello", socket.local_addr()?)?;
//!
//! let (mut epoll, mut events) = (Epoll::new()?, Vec::new());
//! let token = Token::new(0, 0);
//! // SAFETY: `socket` outlives `epoll`'s interest in it.
//! unsafe { epoll.register(token, RawSource::of(&socket), Ready::READ, Mode::Level) }?;
//! epoll.wait(None, &mut events)?;
//! assert_eq!(events, [Event::Ready { token, ready: Ready::READ }]);
//! epoll.deregister(token)?;
//! # std::io::Result::Ok(())
//! ```
//!
//! # How it works
//!
//! - `register` adds the descriptor at once: what epoll cannot watch, such as a
//!   regular file (`EPERM`), is an error there. An interest of `NONE` is only noted.
//! - `modify` is only noted. The next `wait` makes one `epoll_ctl` for each source
//!   that now wants something else than the kernel was told, and none for the others.
//! - Silence is lazy: `modify` to `NONE` costs nothing until the kernel reports the
//!   source for the first time. That report is swallowed and the descriptor deleted
//!   from the set. Until then, going back to the old interest costs nothing either.
//! - `deregister` deletes the descriptor at once, as a duplicate of it would keep
//!   the registration alive in the kernel.
//! - A descriptor that is closed while watched stays in the set if a duplicate keeps
//!   its file open. When such an orphan is reported, `wait` moves to a new epoll
//!   instance, unless `raw_fd` has shown the old one to someone.
//! - `wait` is one `epoll_pwait`, or `epoll_pwait2` if there is a time to count. Who is
//!   busy, so that waits find something at once, does not count: an `epoll_pwait` that does
//!   not wait comes first then, and seldom for nothing.
//!   It reports up to 1,024 sources; the kernel puts those that were reported
//!   behind the others, so none starves.
//! - A wake writes to an `eventfd(2)` if the backend sleeps, and only sets a flag if not.
//! - `raw_fd` is the epoll descriptor: an epoll instance can be watched like a source.
//!   `has_changes` is true from a `modify` to the next `wait`.
//! - `after_fork` gives the child a new instance and a new eventfd under the old
//!   numbers; all sources are added again at its next `wait`.
//!
//! Nothing is emulated: all [modes](poll_core::Mode) and [conditions](poll_core::Ready)
//! are the kernel's own. There are no [operations](poll_core::Op).
//!
//! | `epoll_event.events` | `Ready` |
//! |---|---|
//! | `EPOLLIN` | `READ` |
//! | `EPOLLOUT` | `WRITE` |
//! | `EPOLLPRI` | `PRIORITY` |
//! | `EPOLLRDHUP` | `DISCONNECT`, if asked for |
//! | `EPOLLHUP` | `HANGUP`, and what was asked for of `READ` and `WRITE` |
//! | `EPOLLERR` | `ERROR`, and what was asked for of `READ` and `WRITE` |
//!
//! # Platforms
//!
//! Linux and Android; elsewhere this crate is empty. Before Linux 5.11, on Android
//! and under filters that deny `epoll_pwait2`, timeouts are rounded up to
//! milliseconds.
#![cfg(any(target_os = "linux", target_os = "android"))]

use std::cell::Cell;
use std::ffi::c_int;
use std::fmt;
use std::io;
use std::time::Duration;

use libc::{EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD};
use libc::{EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLONESHOT, EPOLLOUT, EPOLLPRI, EPOLLRDHUP};
use poll_core::{Backend, Countdown, Event, Mode, RawSource, Ready, Registry, Token};

mod instance;
mod rush;
mod waker;

use instance::Instance;
use rush::Rush;
pub use waker::Waker;

/// Longer waits may be cut short by a kernel that counts them in milliseconds.
const LONGEST: Duration = Duration::from_millis(i32::MAX as u64);

/// How many sources one `wait` reports at the most: 12 KiB of events.
const BATCH: usize = 1024;

/// The waker's eventfd in the kernel's reports. No token has bit 63.
const BELL: u64 = 1 << 63;

/// Watches sources through `epoll(7)`; see the [crate's page](crate).
pub struct Epoll {
    instance: Instance,
    waker: Waker,
    sources: Registry<Source>,
    /// Sources that were modified since the last flush, each once.
    changed: Vec<Token>,
    /// What the last system call reported; kept to reuse its memory.
    ready: Vec<libc::epoll_event>,
    /// `raw_fd` was given out: another poller may watch this very instance.
    shown: Cell<bool>,
    /// How many sources are silent though the kernel still watches them.
    silent: usize,
    /// Some source was watched once, or may be an orphan: what the kernel reports has to be
    /// compared with what is known of the source.
    wary: bool,
    /// A knock was found before its ring, which may come when nobody expects it.
    rings_late: bool,
    rush: Rush,
}

/// Whether a wait that counts time looks first what is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    No,
    First,
    /// It has looked, and there was nothing.
    Over,
}

#[derive(Debug)]
struct Source {
    /// What the caller asks for, in epoll's bits; 0 while the source is to be silent.
    wanted: u32,
    armed: Armed,
    /// Where in `changed` it is.
    queued: Option<usize>,
}

impl Source {
    /// It is to be silent, and may not be: the kernel was told to watch it.
    fn is_silent(&self) -> bool {
        self.wanted == 0 && matches!(self.armed, Armed::For(_))
    }
}

/// What the kernel was last told about a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    /// Nothing: the descriptor is not in the set.
    Absent,
    /// To watch for these bits.
    For(u32),
    /// To watch once, which it has done: the descriptor is in the set, asleep.
    Spent,
}

impl Epoll {
    /// Makes an epoll instance and an eventfd to wake it.
    ///
    /// # Errors
    ///
    /// `Unsupported` if a filter denies epoll; else most likely that the process
    /// is out of descriptors.
    pub fn new() -> io::Result<Epoll> {
        let (instance, waker) = (Instance::new()?, Waker::new()?);
        watch_bell(&instance, &waker)?;
        Ok(Epoll {
            instance,
            waker,
            sources: Registry::default(),
            changed: Vec::new(),
            ready: Vec::with_capacity(BATCH),
            shown: Cell::new(false),
            silent: 0,
            wary: false,
            rings_late: false,
            rush: Rush::new(),
        })
    }
}

impl Backend for Epoll {
    type Waker = Waker;

    fn waker(&self) -> Waker {
        self.waker.clone()
    }

    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Ready,
        mode: Mode,
    ) -> io::Result<()> {
        let wanted = to_epoll(interest, mode);
        let unarmed = Source { wanted, armed: Armed::Absent, queued: None };
        let state = self.sources.insert(token, source, unarmed)?;
        let Some(op) = change(state.armed, wanted) else { return Ok(()) };
        match self.instance.ctl(op, source.fd(), wanted, token.to_u64()) {
            Ok(()) => {
                state.armed = Armed::For(wanted);
                self.wary |= is_once(wanted);
            }
            Err(error) => {
                self.sources.remove(token)?;
                return Err(error);
            }
        }
        Ok(())
    }

    fn modify(&mut self, token: Token, interest: Ready, mode: Mode) -> io::Result<()> {
        let state = self.sources.get_mut(token)?;
        let was_silent = state.is_silent();
        state.wanted = to_epoll(interest, mode);
        self.silent = self.silent - usize::from(was_silent) + usize::from(state.is_silent());
        if state.queued.is_none() {
            state.queued = Some(self.changed.len());
            self.changed.push(token);
        }
        Ok(())
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        let (source, state) = self.sources.remove(token)?;
        self.silent -= usize::from(state.is_silent());
        if let Some(place) = state.queued {
            self.changed.swap_remove(place);
            if let Some(&moved) = self.changed.get(place) {
                self.sources.get_mut(moved)?.queued = Some(place);
            }
        }
        if state.armed != Armed::Absent {
            // It fails only if the caller has closed the descriptor too early.
            self.wary |= self.instance.ctl(EPOLL_CTL_DEL, source.fd(), 0, 0).is_err();
        }
        Ok(())
    }

    #[inline]
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        // Most have nothing to tell the kernel, and nothing that they must not tell of.
        let is_usual = self.changed.is_empty() && self.silent == 0 && !self.rings_late;
        if timeout == Some(Duration::ZERO) {
            if self.sources.is_empty() && !self.shown.get() {
                // The kernel has nothing to tell of nothing. Not so if others watch the
                // instance, whose bell would go on ringing for them.
                self.waker.bell().wake_up();
                return Ok(());
            }
            if is_usual {
                return self.glance(events);
            }
        }
        let looks = self.is_to_look(timeout);
        if looks && is_usual {
            return self.look(timeout, events);
        }
        self.wait_long(timeout, if looks { Look::First } else { Look::No }, events)
    }

    #[inline]
    fn now(&self) -> Duration {
        instance::monotonic()
    }

    fn raw_fd(&self) -> Option<RawSource> {
        self.shown.set(true);
        if self.waker.bell().watch() {
            // The eventfd is never full, and the knock itself is noted anyway.
            let _ = self.waker.ring();
        }
        Some(RawSource::from_fd(self.instance.fd()))
    }

    fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    fn after_fork(&mut self) -> io::Result<()> {
        // The old instance is the parent's too: it is left without a word.
        self.waker.after_fork()?;
        self.renew()
    }
}

impl Epoll {
    /// True if a wait may find nothing to report before the time is over, and must know how
    /// much of it is left.
    #[inline]
    fn may_go_on(&self, timeout: Option<Duration>) -> bool {
        let longest = timeout.is_some_and(|timeout| timeout > LONGEST);
        self.silent > 0 || self.rings_late || longest
    }

    /// True if the wait would count time, and it is [worthwhile](rush) to look first. Asked once
    /// a wait.
    #[inline]
    fn is_to_look(&mut self, timeout: Option<Duration>) -> bool {
        timeout.is_some_and(|timeout| !timeout.is_zero()) && self.rush.is_to_look()
    }

    /// A system call has found what there is: a knock, a ring, or neither.
    #[inline]
    fn heard(&mut self, woken: bool, rung: bool, slept: bool) {
        if rung {
            self.rings_late = false;
        } else if woken {
            // Who is awake is not rung, unless others watch the instance.
            self.rings_late |= slept || self.shown.get();
        }
    }

    /// Looks what is there, and does not wait.
    #[inline]
    fn glance(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let looked = self.instance.wait(Some(Duration::ZERO), &mut self.ready);
        let woken = self.waker.bell().wake_up();
        match looked {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let rung = !self.ready.is_empty() && self.collect(events);
        self.heard(woken, rung, false);
        Ok(())
    }

    /// Looks what is there, and waits only if that is nothing.
    #[inline]
    fn look(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        let looked = self.instance.wait(Some(Duration::ZERO), &mut self.ready).is_ok();
        let found = !self.ready.is_empty();
        self.rush.looked(found);
        if !found {
            return self.wait_long(timeout, if looked { Look::Over } else { Look::No }, events);
        }
        let woken = self.waker.bell().wake_up();
        if !woken && self.collect_usual(events) {
            return Ok(());
        }
        let before = events.len();
        let rung = self.collect_with_care(events);
        self.heard(woken, rung, false);
        // A ring that not even the doorbell knew of is a wake.
        if woken || rung || events.len() > before {
            return Ok(());
        }
        self.wait_long(timeout, Look::No, events)
    }

    /// A wait, however many system calls it takes.
    #[inline(never)]
    fn wait_long(
        &mut self,
        timeout: Option<Duration>,
        mut look: Look,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        let before = events.len();
        // The clock is read only if the wait may have to go on.
        let countdown = self.may_go_on(timeout).then(|| Countdown::start(timeout));
        let mut left = timeout;
        loop {
            if !self.changed.is_empty() {
                self.flush(events);
            }
            // What is known already is not waited for, nor is anything after a knock.
            if events.len() > before {
                left = Some(Duration::ZERO);
            }
            let mut looked = look == Look::Over;
            if look == Look::First && left != Some(Duration::ZERO) {
                looked = self.instance.wait(Some(Duration::ZERO), &mut self.ready).is_ok();
                self.rush.looked(!self.ready.is_empty());
            }
            look = Look::No;
            let found = looked && !self.ready.is_empty();
            let sleeps = !found && left != Some(Duration::ZERO);
            let knocked = sleeps && !self.waker.bell().sleep();
            if knocked {
                left = Some(Duration::ZERO);
            }
            // Who has looked need not look again.
            let result = match found || (looked && knocked) {
                true => Ok(()),
                false => self.instance.wait(left, &mut self.ready),
            };
            let woken = self.waker.bell().wake_up();
            let signalled = match result {
                Ok(()) => false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
                Err(error) => return Err(error),
            };
            let rung = !self.ready.is_empty() && self.collect(events);
            self.heard(woken, rung, sleeps && !knocked);
            if woken || signalled || events.len() > before {
                return Ok(());
            }
            // All that came was a late ring or from silent sources, or the time is over.
            left = match (&countdown, timeout) {
                (Some(countdown), _) => countdown.left(),
                (None, None) => None,
                // A ring that not even the doorbell knew of is a wake, and the kernel has
                // counted the time otherwise.
                (None, Some(_)) if rung || self.ready.is_empty() => Some(Duration::ZERO),
                // A descriptor that was closed too early. It is late rather than early.
                (None, Some(_)) => timeout,
            };
            if left == Some(Duration::ZERO) {
                return Ok(());
            }
        }
    }

    /// Tells the kernel what has changed, in one system call a source at most.
    fn flush(&mut self, events: &mut Vec<Event>) {
        for token in self.changed.drain(..) {
            let Some((source, state)) = self.sources.find(token) else { continue };
            state.queued = None;
            let Some(op) = change(state.armed, state.wanted) else { continue };
            match self.instance.ctl(op, source.fd(), state.wanted, token.to_u64()) {
                Ok(()) => {
                    state.armed = Armed::For(state.wanted);
                    self.wary |= is_once(state.wanted);
                }
                Err(_) => {
                    self.wary = true;
                    (state.wanted, state.armed) = (0, Armed::Absent);
                    events.push(Event::Ready { token, ready: Ready::ERROR });
                }
            }
        }
    }

    /// Turns what the kernel has reported into events. True if the bell has rung.
    #[inline]
    fn collect(&mut self, events: &mut Vec<Event>) -> bool {
        !self.collect_usual(events) && self.collect_with_care(events)
    }

    /// As [`Epoll::collect`], if nothing has to be known of the sources: most are to be read,
    /// which the kernel was asked for. Else false, and nothing is done.
    #[inline]
    fn collect_usual(&mut self, events: &mut Vec<Event>) -> bool {
        if self.wary || self.silent > 0 {
            return false;
        }
        let usual = |event: &libc::epoll_event| event.events == bit(EPOLLIN) && event.u64 != BELL;
        if !self.ready.iter().all(usual) {
            return false;
        }
        let report = |event: &libc::epoll_event| Event::Ready {
            token: Token::from_u64(event.u64),
            ready: Ready::READ,
        };
        match self.ready.as_slice() {
            [event] => events.push(report(event)),
            // Neither checks for room nor stores a length for each.
            many => events.extend(many.iter().map(report)),
        }
        true
    }

    /// As [`Epoll::collect`]; looks at the sources.
    #[inline(never)]
    fn collect_with_care(&mut self, events: &mut Vec<Event>) -> bool {
        let (mut orphaned, mut rung) = (false, false);
        for event in &self.ready {
            if event.u64 == BELL {
                rung = true; // The doorbell says whether that was a wake.
                continue;
            }
            let token = Token::from_u64(event.u64);
            let Some((source, state)) = self.sources.find(token) else {
                orphaned = true;
                continue;
            };
            // Most are to be read until further notice, and can be. What is wanted is what the
            // kernel was told, since the flush.
            if event.events == bit(EPOLLIN) && state.wanted == bit(EPOLLIN) {
                events.push(Event::Ready { token, ready: Ready::READ });
                continue;
            }
            let spent = matches!(state.armed, Armed::For(bits) if is_once(bits));
            if state.wanted != 0 {
                let ready = to_ready(state.wanted).report(to_ready(event.events));
                events.push(Event::Ready { token, ready });
            } else if !spent {
                let deleted = self.instance.ctl(EPOLL_CTL_DEL, source.fd(), 0, 0);
                orphaned |= deleted.is_err();
                self.silent -= usize::from(state.is_silent());
                state.armed = Armed::Absent;
            }
            if spent {
                self.silent -= usize::from(state.is_silent());
                (state.wanted, state.armed) = (0, Armed::Spent);
            }
        }
        self.wary |= orphaned;
        if orphaned && !self.shown.get() {
            // If it fails, the next report of an orphan tries again.
            let _ = self.renew();
        }
        rung
    }

    /// Takes a new instance, which the next flush fills, under the old number.
    ///
    /// A forked child needs one, and so does who has an orphan: a descriptor that
    /// was closed while watched stays in the set for as long as a duplicate of it
    /// is open anywhere, and can no longer be named to be deleted.
    fn renew(&mut self) -> io::Result<()> {
        let instance = Instance::new()?;
        watch_bell(&instance, &self.waker)?;
        self.instance.replace_with(&instance)?;
        self.changed.clear();
        self.silent = 0;
        for (token, _, state) in self.sources.iter_mut() {
            (state.armed, state.queued) = (Armed::Absent, Some(self.changed.len()));
            self.changed.push(token);
        }
        Ok(())
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

fn watch_bell(instance: &Instance, waker: &Waker) -> io::Result<()> {
    instance.ctl(EPOLL_CTL_ADD, waker.fd(), bit(EPOLLIN) | bit(EPOLLET), BELL)
}

/// Which `epoll_ctl` makes the kernel watch for `wanted`, if any is needed.
///
/// ```text
///    armed ╲ wanted │ nothing  │ the same            │ something else
///   ────────────────┼──────────┼─────────────────────┼────────────────
///    Absent         │    -     │         ADD         │      ADD
///    For(bits)      │  - lazy  │  - ; with EPOLLET:  │      MOD
///                   │          │         MOD         │
///    Spent          │    -     │         MOD         │      MOD
/// ```
///
/// A `MOD` makes the kernel look again, and report an edge that was reported
/// before. With the same bits in the other modes it would look anyway.
fn change(armed: Armed, wanted: u32) -> Option<c_int> {
    match armed {
        _ if wanted == 0 => None,
        Armed::Absent => Some(EPOLL_CTL_ADD),
        Armed::For(bits) if bits == wanted && bits & bit(EPOLLET) == 0 => None,
        Armed::For(_) | Armed::Spent => Some(EPOLL_CTL_MOD),
    }
}

const FLAGS: [(c_int, Ready); 6] = [
    (EPOLLIN, Ready::READ),
    (EPOLLOUT, Ready::WRITE),
    (EPOLLPRI, Ready::PRIORITY),
    (EPOLLRDHUP, Ready::DISCONNECT),
    (EPOLLHUP, Ready::HANGUP),
    (EPOLLERR, Ready::ERROR),
];

/// True if the kernel watches once.
const fn is_once(bits: u32) -> bool {
    bits & bit(EPOLLONESHOT) != 0
}

/// libc's flags are signed, the kernel's words are not.
const fn bit(flag: c_int) -> u32 {
    flag as u32
}

/// What to tell the kernel; 0 if there is nothing to watch for.
fn to_epoll(interest: Ready, mode: Mode) -> u32 {
    let interest = interest & Ready::INTEREST;
    if interest.is_empty() {
        return 0;
    }
    let mode = match mode {
        Mode::Level => 0,
        Mode::Oneshot => EPOLLONESHOT,
        Mode::Edge => EPOLLET,
    };
    let asked = FLAGS.iter().filter(|(_, ready)| interest.contains(*ready));
    asked.fold(bit(mode), |bits, (flag, _)| bits | bit(*flag))
}

/// What the kernel's bits mean, apart from the mode. Most events are to be read, and no more.
#[inline]
fn to_ready(bits: u32) -> Ready {
    if bits == bit(EPOLLIN) {
        return Ready::READ;
    }
    FLAGS.iter().filter(|(flag, _)| bits & bit(*flag) != 0).map(|(_, ready)| *ready).collect()
}

#[cfg(test)]
mod tests;
