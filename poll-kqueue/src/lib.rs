//! A [backend](poll_core::Backend) over `kqueue(2)`, for the BSDs and Apple's systems.
//!
#![cfg_attr(
    any(
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd",
        target_os = "dragonfly",
        target_vendor = "apple",
        all(target_os = "linux", any(feature = "model", libkqueue)),
    ),
    doc = "```"
)]
#![cfg_attr(
    not(any(
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd",
        target_os = "dragonfly",
        target_vendor = "apple",
        all(target_os = "linux", any(feature = "model", libkqueue)),
    )),
    doc = "```ignore"
)]
//! use poll_core::{Backend, Event, Mode, RawSource, Ready, Token};
//! use poll_kqueue::Kqueue;
//!
//! let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! socket.send_to(b"hello", socket.local_addr()?)?;
//!
//! let (mut kqueue, mut events) = (Kqueue::new()?, Vec::new());
//! let token = Token::new(0, 0);
//! // SAFETY: `socket` outlives `kqueue`'s interest in it.
//! unsafe { kqueue.register(token, RawSource::of(&socket), Ready::READ, Mode::Level) }?;
//! kqueue.wait(None, &mut events)?;
//! assert_eq!(events, [Event::Ready { token, ready: Ready::READ }]);
//! kqueue.deregister(token)?;
//! # std::io::Result::Ok(())
//! ```
//!
//! **This crate has not run on a BSD or Apple kernel in its project's CI**, which has
//! Linux only. There, the suite runs over a model of kqueue that is written after
//! the rules of those kernels; for them, this crate is compiled, linted and linked.
//!
//! # How it works
//!
//! A kernel queue holds *knotes*, each for one descriptor and one filter: a source
//! has one for reading, one for writing and one for out-of-band data, as it asks.
//!
//! - `register` adds the knotes at once, with receipts: what cannot be watched is
//!   an error there. Regular files can be: they are readable up to their end.
//! - `modify` is only noted. The next `wait` hands the kernel the difference
//!   between what is wanted and what is armed in the same `kevent` call that waits.
//! - `deregister` deletes the knotes at once.
//! - `wait` is that one call; it reports up to 1,024 knotes. A change that
//!   fails is `ERROR` for its source and costs a second call, for the events.
//! - [`Level`](poll_core::Mode::Level) is a plain `EV_ADD`, `Edge` adds `EV_CLEAR`,
//!   and `Oneshot` adds `EV_ONESHOT`: if one knote of a source fires, the next `wait`
//!   deletes the others before it looks. A kernel fixes these flags when it makes a
//!   knote, so another mode is a deletion and an addition.
//! - A wake triggers an `EVFILT_USER` knote if the backend sleeps, and only sets a
//!   flag if not. Where `new` finds no such filter, a [`Bell`](poll_core::Bell) is watched.
//! - `raw_fd` is the queue's descriptor: a queue can be watched like a source.
//!   `has_changes` is true from a `modify`, or a one-shot with several knotes that has fired,
//!   to the next `wait`.
//! - A child of `fork` has no queue: `after_fork` makes one, and all sources are
//!   added again at its next `wait`. Wakers follow.
//!
//! | `struct kevent` | `Ready` |
//! |---|---|
//! | `EVFILT_READ` | `READ` |
//! | `EVFILT_READ`, `EV_EOF` | `READ`, and `DISCONNECT` if asked for |
//! | `EVFILT_WRITE` | `WRITE` |
//! | `EV_EOF` in both filters | `HANGUP`, and what was asked for of `READ` and `WRITE` |
//! | `EV_EOF` with an error in `fflags` | `ERROR`, and what was asked for of `READ` and `WRITE` |
//! | `EVFILT_EXCEPT`, `NOTE_OOB` | `PRIORITY` |
//! | `EV_ERROR`: a change failed | `ERROR`, and what was asked for of `READ` and `WRITE` |
//!
//! `DISCONNECT` without `READ` is a read knote whose low-water mark no amount of
//! data reaches. Where a kernel does not honour the mark (for pipes, and by Apple for
//! a full buffer), arriving data costs a turn of `wait` that reports nothing.
//! A source that asked for `PRIORITY` alone learns of no failures.
//! There are no [operations](poll_core::Op).
//!
//! # Platforms
//!
//! | | `PRIORITY` | wakes |
//! |---|---|---|
//! | FreeBSD 12+ | `Unsupported` | `EVFILT_USER` |
//! | NetBSD | `Unsupported` | `EVFILT_USER` from NetBSD 10 on, sockets before |
//! | OpenBSD | yes | `EVFILT_USER` where the kernel has it, sockets before |
//! | DragonFly | yes | `EVFILT_USER` |
//! | macOS, iOS, tvOS, watchOS, visionOS | yes | `EVFILT_USER` |
//!
//! Elsewhere this crate is empty, but for two ways to test it on Linux: the feature
//! `model` (see `Rules`), and `--cfg libkqueue`, which links the library of that
//! name as `pkg-config` finds it.
#![cfg(any(
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd",
    target_os = "dragonfly",
    target_vendor = "apple",
    all(target_os = "linux", any(feature = "model", libkqueue)),
))]

mod sys;
#[cfg(test)]
mod tests;
mod waker;
mod watch;

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use poll_core::{Backend, Countdown, Event, Mode, RawSource, Ready, Registry, Token};

use sys::{EV_DELETE, EV_RECEIPT, Kevent, Queue};
use watch::{Filter, Watch};

#[cfg(all(target_os = "linux", not(libkqueue)))]
pub use sys::Rules;
pub use waker::KqueueWaker;

/// How many events one wait takes from the kernel, unless it has more changes.
const BATCH: usize = 1024;

/// Watches sources through a kernel queue.
#[derive(Debug)]
pub struct Kqueue {
    /// Shared with the wakers, which trigger an event of it.
    queue: Arc<Queue>,
    waker: KqueueWaker,
    sources: Registry<Watch>,
    /// Sources whose knotes may not be what they want, each once.
    changed: Vec<Token>,
    /// The changes of one call, kept for its memory.
    changes: Vec<Kevent>,
    /// Room for the events of one call, and for as many failures as it has changes:
    /// without room for its error, a failing change would drop those behind it.
    list: Vec<Kevent>,
    /// Sources of which this wait has seen something, in that order.
    batch: Vec<Token>,
}

/// What a call told besides the readiness of sources.
#[derive(Debug, Default)]
struct Collected {
    /// The waker's event was among those that happened.
    rung: bool,
    /// Some changes failed, and the kernel told of nothing else.
    failures: bool,
    /// A signal ended the call.
    signalled: bool,
}

impl Kqueue {
    /// Makes a backend with a kernel queue of its own.
    ///
    /// # Errors
    ///
    /// Those of making descriptors: most likely that the process is out of them.
    pub fn new() -> io::Result<Kqueue> {
        Kqueue::over(sys::kqueue()?)
    }

    /// Makes a backend over the model that follows these rules.
    ///
    /// # Errors
    ///
    /// As for [`Kqueue::new`].
    #[cfg(all(target_os = "linux", not(libkqueue)))]
    pub fn with_rules(rules: Rules) -> io::Result<Kqueue> {
        Kqueue::over(Queue::new(rules)?)
    }

    fn over(queue: Queue) -> io::Result<Kqueue> {
        let queue = Arc::new(queue);
        Ok(Kqueue {
            waker: KqueueWaker::new(&queue)?,
            queue,
            sources: Registry::default(),
            changed: Vec::new(),
            changes: Vec::new(),
            list: vec![Kevent::empty(); BATCH],
            batch: Vec::new(),
        })
    }
}

impl Backend for Kqueue {
    type Waker = KqueueWaker;

    fn waker(&self) -> KqueueWaker {
        self.waker.clone()
    }

    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Ready,
        mode: Mode,
    ) -> io::Result<()> {
        check(interest)?;
        let watch = self.sources.insert(token, source, Watch::new(interest, mode))?;
        self.changes.clear();
        watch.changes(source.fd(), token, &mut self.changes);
        if let Err(error) = self.arm(token, source.fd()) {
            self.deregister(token)?;
            return Err(error);
        }
        Ok(())
    }

    fn modify(&mut self, token: Token, interest: Ready, mode: Mode) -> io::Result<()> {
        check(interest)?;
        let watch = self.sources.get_mut(token)?;
        watch.modify(interest, mode);
        watch.queue(token, &mut self.changed);
        Ok(())
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        let (source, mut watch) = self.sources.remove(token)?;
        if let Some(place) = watch.queued().take() {
            self.changed.swap_remove(place);
            if let Some(&moved) = self.changed.get(place) {
                *self.sources.get_mut(moved)?.queued() = Some(place);
            }
        }
        self.changes.clear();
        let deletions = watch.armed().map(|filter| filter.change(source.fd(), token, EV_DELETE));
        self.changes.extend(deletions);
        // It fails only if the knotes are gone: the caller has closed the descriptor.
        let _ = self.make_changes_at_once();
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        let countdown = Countdown::start(timeout);
        let mut left = timeout;
        loop {
            let may_block = left != Some(Duration::ZERO) && self.waker.sleep();
            let collected = self.collect(if may_block { left } else { Some(Duration::ZERO) });
            let rung = collected.as_ref().is_ok_and(|collected| collected.rung);
            let woken = self.waker.wake_up(rung);
            let reported = self.report(events);
            if collected?.signalled || woken || reported {
                return Ok(());
            }
            // Nothing happened that anyone asked for: the rest of the time is left.
            left = countdown.left();
            if left == Some(Duration::ZERO) {
                return Ok(());
            }
        }
    }

    fn raw_fd(&self) -> Option<RawSource> {
        let fd = self.queue.pollable()?;
        self.waker.watch().ok()?;
        Some(RawSource::from_fd(fd))
    }

    fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    fn after_fork(&mut self) -> io::Result<()> {
        let queue = Arc::new(self.queue.another()?);
        self.waker.after_fork(&queue)?;
        self.queue = queue;
        for (token, _, watch) in self.sources.iter_mut() {
            watch.forget();
            watch.queue(token, &mut self.changed);
        }
        Ok(())
    }
}

impl Kqueue {
    /// Makes the changes of a new source at once.
    fn arm(&mut self, token: Token, fd: RawFd) -> io::Result<()> {
        self.make_changes_at_once()?;
        for index in 0..self.changes.len() {
            let Some(error @ 1..) = self.list[index].receipt() else { continue };
            let Some(filter) = Filter::of(&self.list[index]) else { continue };
            let watch = self.sources.get_mut(token)?;
            watch.refused(filter);
            if !is_broken_pipe(fd, filter, error) {
                return Err(io::Error::from_raw_os_error(error));
            }
            // There is something to report: the next wait is refused again, and does.
            watch.queue(token, &mut self.changed);
        }
        Ok(())
    }

    /// One call for `changes`, with a receipt for each in `list`. There is no room for
    /// more: events that have happened are left for the next wait.
    fn make_changes_at_once(&mut self) -> io::Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        for change in &mut self.changes {
            *change = change.flagged(EV_RECEIPT);
        }
        let receipts = &mut self.list[..self.changes.len()];
        receipts.fill(Kevent::empty());
        loop {
            match sys::kevent(&self.queue, &self.changes, receipts, Some(Duration::ZERO)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result.map(drop),
            }
        }
    }

    /// Makes what changes there are, waits, and notes what was seen.
    fn collect(&mut self, timeout: Option<Duration>) -> io::Result<Collected> {
        let mut collected = self.call(timeout)?;
        if collected.failures {
            // The kernel told of them alone. Sources that fail must not starve the others.
            let rest = self.call(Some(Duration::ZERO))?;
            collected.rung |= rest.rung;
            collected.signalled |= rest.signalled;
        }
        Ok(collected)
    }

    /// One `kevent` call with all changes and an event list.
    fn call(&mut self, timeout: Option<Duration>) -> io::Result<Collected> {
        self.changes.clear();
        for token in self.changed.drain(..) {
            if let Some((source, watch)) = self.sources.find(token) {
                *watch.queued() = None;
                watch.changes(source.fd(), token, &mut self.changes);
            }
        }
        if self.list.len() < self.changes.len() {
            self.list.resize(self.changes.len(), Kevent::empty());
        }
        let count = match sys::kevent(&self.queue, &self.changes, &mut self.list, timeout) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                // The changes are made before the kernel sleeps.
                return Ok(Collected { signalled: true, ..Collected::default() });
            }
            Err(error) => {
                self.doubt_changes();
                return Err(error);
            }
        };
        let mut collected = Collected::default();
        for index in 0..count {
            self.note(self.list[index], &mut collected);
        }
        Ok(collected)
    }

    /// Notes one event, or the failure of one change.
    fn note(&mut self, event: Kevent, collected: &mut Collected) {
        collected.failures |= event.receipt().is_some();
        if self.waker.is_ring(&event) {
            collected.rung = true;
            return;
        }
        let Some((token, filter)) = self.owner(&event) else { return };
        let Some((_, watch)) = self.sources.find(token) else { return };
        let news = match event.receipt() {
            None => watch.fired(filter, &event),
            // A deletion of what was gone already: the descriptor was closed.
            Some(0 | libc::ENOENT) => false,
            Some(error) => {
                let broken = is_broken_pipe(event.ident() as RawFd, filter, error);
                watch.failed(filter, broken)
            }
        };
        if news {
            self.batch.push(token);
        }
    }

    /// Whose knote an event is about. The number of a descriptor finds it, and the
    /// generation in `udata` proves it (the index, where a pointer has 32 bits).
    fn owner(&self, event: &Kevent) -> Option<(Token, Filter)> {
        let token = self.sources.token_of(RawSource::from_fd(event.ident() as RawFd))?;
        let filter = Filter::of(event)?;
        (event.udata() == watch::udata(token)).then_some((token, filter))
    }

    /// A call failed as a whole: nobody knows which of its changes were made. The
    /// next wait makes them again.
    fn doubt_changes(&mut self) {
        for index in 0..self.changes.len() {
            if let Some((token, filter)) = self.owner(&self.changes[index])
                && let Some((_, watch)) = self.sources.find(token)
            {
                watch.doubt(filter);
                watch.queue(token, &mut self.changed);
            }
        }
    }

    /// Reports what was seen, one event a source. True if there was anything to report.
    fn report(&mut self, events: &mut Vec<Event>) -> bool {
        let before = events.len();
        for token in self.batch.drain(..) {
            let Some((_, watch)) = self.sources.find(token) else { continue };
            let ready = watch.report();
            if !ready.is_empty() {
                events.push(Event::Ready { token, ready });
            }
            if watch.has_changes() {
                watch.queue(token, &mut self.changed);
            }
        }
        events.len() > before
    }
}

fn check(interest: Ready) -> io::Result<()> {
    if interest.contains(Ready::PRIORITY) && !sys::HAS_EXCEPT {
        let why = "this kernel's kqueue has no filter for out-of-band data (PRIORITY)";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(())
}

/// True if a kernel refuses a write knote because a pipe has lost its reader.
/// That is something to report, not a mistake.
fn is_broken_pipe(fd: RawFd, filter: Filter, error: i32) -> bool {
    // NetBSD says EBADF, as it does of a closed descriptor.
    // SAFETY: it takes no pointer, and any number will do.
    let is_open = || unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
    filter == Filter::Write && (error == libc::EPIPE || error == libc::EBADF && is_open())
}
