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
//! use poll_core::{Backend, Event, Mode, RawSource, Interest, Readiness, Token};
//! use poll_kqueue::Kqueue;
//!
//! let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! socket.send_to(b"hello", socket.local_addr()?)?;
//!
//! let (mut kqueue, mut events) = (Kqueue::new()?, Vec::new());
//! let token = Token::new(0, 0);
//! // SAFETY: `socket` outlives its registration.
//! unsafe { kqueue.register(token, RawSource::of(&socket), Interest::READ, Mode::Level) }?;
//! kqueue.wait(None, &mut events)?;
//! assert_eq!(events, [Event::Ready { token, ready: Readiness::READ }]);
//! kqueue.deregister(token)?;
//! # std::io::Result::Ok(())
//! ```
//!
//! # What was verified
//!
//! The contract's cases passed once on a FreeBSD 14 kernel (emulated). NetBSD 7.99's kqueue was
//! driven as a library. Nothing has run on Apple's kernel, OpenBSD or DragonFly. CI has Linux
//! only: there, the suite runs over a model of kqueue with the rules of FreeBSD, NetBSD and Apple
//! (see `Rules`), and this crate is compiled, linted and linked for the other targets.
//!
//! # How it works
//!
//! A kernel queue holds *knotes*, each for one descriptor and one filter: a source
//! has one for reading, one for writing and one for out-of-band data, as its interest requires.
//!
//! - `register` adds the knotes immediately, with receipts: a source that cannot be watched is
//!   an error of the call. Regular files are accepted: they are readable up to their end. A file
//!   registered at its end becomes readable when it is written, but not after a seek.
//! - `modify` records the interest. The next `wait` passes the difference between the interest
//!   and the knotes to the kernel, in the `kevent` call that waits.
//! - `deregister` deletes the knotes immediately.
//! - `wait` is one call, and reports up to 1,024 knotes. A change that
//!   fails is `ERROR` for its source and costs a second call, for the events.
//! - [`Level`](poll_core::Mode::Level) is a plain `EV_ADD`, `Edge` adds `EV_CLEAR`,
//!   and `Oneshot` adds `EV_ONESHOT`: if one knote of a source fires, the next `wait`
//!   deletes the others before it takes events. A kernel fixes these flags when it makes a
//!   knote, so a change of the mode is a deletion and an addition.
//! - A one-shot readiness may be spurious: FreeBSD, NetBSD, OpenBSD and DragonFly do not evaluate
//!   the condition of an `EV_ONESHOT` knote again when `wait` takes the event. Apple does.
//! - A wake triggers an `EVFILT_USER` knote if the backend is blocked in `wait`, and only sets a
//!   flag otherwise. Where `new` finds no such filter, the waker is a [`SocketWaker`](poll_core::SocketWaker).
//! - `raw_source` is the queue's descriptor: a queue can be a source of another poller.
//!   `has_unflushed_changes` is true from a `modify`, or from the event of a one-shot source with several
//!   knotes, to the next `wait`.
//! - A child of `fork` does not inherit the queue: `after_fork` makes a new one, and the next
//!   `wait` adds all sources again. Wakers use the new queue.
//!
//! | `struct kevent` | `Readiness` |
//! |---|---|
//! | `EVFILT_READ` | `READ` |
//! | `EVFILT_READ`, `EV_EOF` | `READ`, and `DISCONNECT` if it is in the interest |
//! | `EVFILT_WRITE` | `WRITE` |
//! | `EV_EOF` in both filters | `HANGUP`, and `READ` and `WRITE` as in the interest |
//! | `EV_EOF` with an error in `fflags` | `ERROR`, and `READ` and `WRITE` as in the interest |
//! | `EVFILT_EXCEPT`, `NOTE_OOB`, no `EV_EOF` | `PRIORITY` |
//! | `EV_ERROR`, `ENXIO`: a terminal hung up | as `EV_EOF` in both filters |
//! | `EV_ERROR`: another change failed | `ERROR`, and `READ` and `WRITE` as in the interest |
//!
//! `DISCONNECT` without `READ` is a read knote with a low-water mark that no amount of
//! data reaches. Where a kernel does not honour the mark (for pipes, and Apple's for
//! a full buffer), arriving data costs one iteration inside of `wait` that reports no event.
//! A source with an interest in `PRIORITY` alone gets no failures.
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
//! On other systems this crate is empty, except for two ways to test it on Linux: the feature
//! `model`, and `--cfg libkqueue`, which links the library of that
//! name as `pkg-config` finds it.
#![cfg(any(
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd",
    target_os = "dragonfly",
    target_vendor = "apple",
    all(target_os = "linux", any(feature = "model", libkqueue)),
))]

#[cfg(all(target_os = "linux", not(libkqueue)))]
#[cfg(all(target_os = "linux", not(libkqueue)))]
mod model;
mod sys;
#[cfg(test)]
mod tests;
mod waker;
mod watch;

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use poll_core::{Backend, Deadline, Event, Interest, Mode, Open, RawSource, Registry, Token};

use sys::{EV_DELETE, EV_RECEIPT, Kevent, Queue};
use watch::{Filter, Refusal, Watch};

#[cfg(all(target_os = "linux", not(libkqueue)))]
pub use model::Rules;
pub use waker::Waker;

/// The most events that one wait takes from the kernel, unless it makes more changes.
const BATCH: usize = 1024;

/// A backend with a kernel queue.
#[derive(Debug)]
pub struct Kqueue {
    /// Shared with the wakers, which trigger a user event of the queue.
    queue: Arc<Queue>,
    waker: Waker,
    sources: Registry<Watch>,
    /// Sources whose knotes may differ from their interest, each once.
    changed: Vec<Token>,
    /// The changes of one call. Kept to reuse the allocation.
    changes: Vec<Kevent>,
    /// The event list of one call. It has at least an entry for each change: without an entry
    /// for its error, a change that fails would drop the changes behind it.
    list: Vec<Kevent>,
    /// Sources with readiness in this wait, in the order of the events.
    batch: Vec<Token>,
}

/// The result of a call besides the readiness of sources.
#[derive(Debug, Default)]
struct Collected {
    /// The waker's event fired.
    woken: bool,
    /// Changes failed: the kernel returned the failures without events.
    failures: bool,
    /// A signal interrupted the call.
    interrupted: bool,
}

impl Kqueue {
    /// Makes a backend with a new kernel queue.
    ///
    /// # Errors
    ///
    /// The errors of `kqueue(2)`: most likely the process has no descriptor left.
    pub fn new() -> io::Result<Kqueue> {
        Kqueue::with_queue(sys::kqueue()?)
    }

    /// Makes a backend over the model of kqueue with these rules.
    ///
    /// # Errors
    ///
    /// As for [`Kqueue::new`].
    #[cfg(all(target_os = "linux", not(libkqueue)))]
    pub fn with_rules(rules: Rules) -> io::Result<Kqueue> {
        Kqueue::with_queue(Queue::new(rules)?)
    }

    fn with_queue(queue: Queue) -> io::Result<Kqueue> {
        let queue = Arc::new(queue);
        Ok(Kqueue {
            waker: Waker::new(&queue)?,
            queue,
            sources: Registry::default(),
            changed: Vec::new(),
            changes: Vec::new(),
            list: vec![Kevent::empty(); BATCH],
            batch: Vec::new(),
        })
    }
}

impl Open for Kqueue {
    /// As [`Kqueue::new`].
    fn open() -> io::Result<Kqueue> {
        Kqueue::new()
    }
}

// SAFETY: the backend performs no operations. `deregister` deletes the filters of a source
// before it returns, and no call closes a registered source; dropping the queue ends the rest.
unsafe impl Backend for Kqueue {
    type Waker = Waker;

    fn name(&self) -> &'static str {
        "kqueue"
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
        check(interest)?;
        let watch = self.sources.insert(token, source, Watch::new(interest, mode))?;
        self.changes.clear();
        watch.changes(source.fd(), token, &mut self.changes);
        if let Err(error) = self.add_knotes(token, source.fd()) {
            self.deregister(token)?;
            return Err(error);
        }
        Ok(())
    }

    fn modify(&mut self, token: Token, interest: Interest, mode: Mode) -> io::Result<()> {
        check(interest)?;
        let watch = self.sources.get_mut(token)?;
        watch.modify(interest, mode);
        watch.queue(token, &mut self.changed);
        Ok(())
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        let (source, mut watch) = self.sources.remove(token)?;
        if let Some(index) = watch.queued().take() {
            self.changed.swap_remove(index);
            if let Some(&moved) = self.changed.get(index) {
                *self.sources.get_mut(moved)?.queued() = Some(index);
            }
        }
        self.changes.clear();
        let deletions = watch.armed().map(|filter| filter.change(source.fd(), token, EV_DELETE));
        self.changes.extend(deletions);
        // This fails only if the caller has closed the descriptor, which removes its knotes.
        let _ = self.make_changes_now();
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        let countdown = Deadline::start(timeout);
        let mut left = timeout;
        loop {
            let may_block = left != Some(Duration::ZERO) && self.waker.prepare_park();
            let collected = self.collect(if may_block { left } else { Some(Duration::ZERO) });
            let fired = collected.as_ref().is_ok_and(|collected| collected.woken);
            let woken = self.waker.unpark(fired);
            let reported = self.report(events);
            if collected?.interrupted || woken || reported {
                return Ok(());
            }
            // No event was in any interest: wait for the rest of the timeout.
            left = countdown.left();
            if left == Some(Duration::ZERO) {
                return Ok(());
            }
        }
    }

    fn raw_source(&self) -> Option<RawSource> {
        let fd = self.queue.pollable()?;
        self.waker.notify_always().ok()?;
        Some(RawSource::from_fd(fd))
    }

    fn has_unflushed_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    fn after_fork(&mut self) -> io::Result<()> {
        let queue = Arc::new(self.queue.another()?);
        self.waker.after_fork(&queue)?;
        self.queue = queue;
        for (token, _, watch) in self.sources.iter_mut() {
            watch.forget_knotes();
            watch.queue(token, &mut self.changed);
        }
        Ok(())
    }
}

impl Kqueue {
    /// Adds the knotes of a new source, which are in `changes`.
    fn add_knotes(&mut self, token: Token, fd: RawFd) -> io::Result<()> {
        self.make_changes_now()?;
        for index in 0..self.changes.len() {
            let Some(error @ 1..) = self.list[index].receipt() else { continue };
            let Some(filter) = Filter::of(&self.list[index]) else { continue };
            let watch = self.sources.get_mut(token)?;
            watch.clear_knote(filter);
            if refusal(fd, filter, error) == Refusal::Error {
                return Err(io::Error::from_raw_os_error(error));
            }
            // The source is ready: the next wait asks again, and reports the refusal.
            watch.queue(token, &mut self.changed);
        }
        Ok(())
    }

    /// One call for `changes`, with a receipt for each in `list`. The list that the kernel gets
    /// has no entry for events: they stay for the next wait.
    fn make_changes_now(&mut self) -> io::Result<()> {
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

    /// Makes the pending changes, waits, and records the events.
    fn collect(&mut self, timeout: Option<Duration>) -> io::Result<Collected> {
        let mut collected = self.call(timeout)?;
        if collected.failures {
            // The kernel returned failures without events. One more call takes the events:
            // sources whose changes fail at every wait must not starve the others.
            let rest = self.call(Some(Duration::ZERO))?;
            collected.woken |= rest.woken;
            collected.interrupted |= rest.interrupted;
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
                // The kernel makes the changes before it blocks.
                return Ok(Collected { interrupted: true, ..Collected::default() });
            }
            Err(error) => {
                self.mark_changes_unknown();
                return Err(error);
            }
        };
        let mut collected = Collected::default();
        for index in 0..count {
            self.record(self.list[index], &mut collected);
        }
        Ok(collected)
    }

    /// Records one event, or the failure of one change.
    fn record(&mut self, event: Kevent, collected: &mut Collected) {
        collected.failures |= event.receipt().is_some();
        if self.waker.is_wake(&event) {
            collected.woken = true;
            return;
        }
        let Some((token, filter)) = self.owner(&event) else { return };
        let Some((_, watch)) = self.sources.find(token) else { return };
        let is_first = match event.receipt() {
            None => watch.fired(filter, &event),
            // The knote of a deletion did not exist: the descriptor was closed.
            Some(0 | libc::ENOENT) => false,
            Some(error) => watch.refused(filter, refusal(event.ident() as RawFd, filter, error)),
        };
        if is_first {
            self.batch.push(token);
        }
    }

    /// The source of an event. The number of the descriptor finds it, and the generation in
    /// `udata` verifies it (the index, where a pointer has 32 bits).
    fn owner(&self, event: &Kevent) -> Option<(Token, Filter)> {
        let token = self.sources.token_of(RawSource::from_fd(event.ident() as RawFd))?;
        let filter = Filter::of(event)?;
        (event.udata() == watch::udata(token)).then_some((token, filter))
    }

    /// After a call that failed as a whole: each of its changes may have been made or not. The
    /// next wait makes them again.
    fn mark_changes_unknown(&mut self) {
        for index in 0..self.changes.len() {
            if let Some((token, filter)) = self.owner(&self.changes[index])
                && let Some((_, watch)) = self.sources.find(token)
            {
                watch.mark_unknown(filter);
                watch.queue(token, &mut self.changed);
            }
        }
    }

    /// Reports the recorded readiness, one event for each source. Returns true if there was any.
    fn report(&mut self, events: &mut Vec<Event>) -> bool {
        let before = events.len();
        for token in self.batch.drain(..) {
            let Some((_, watch)) = self.sources.find(token) else { continue };
            let ready = watch.report();
            if !ready.is_empty() {
                events.push(Event::Ready { token, ready });
            }
            if watch.has_unflushed_changes() {
                watch.queue(token, &mut self.changed);
            }
        }
        events.len() > before
    }
}

/// Refuses an interest for which the kernel has no filter.
fn check(interest: Interest) -> io::Result<()> {
    if interest.contains(Interest::PRIORITY) && !sys::HAS_EXCEPT {
        let why = "this kernel's kqueue has no filter for out-of-band data: drop PRIORITY";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(())
}

/// The meaning of the error with which a kernel refused a knote.
fn refusal(fd: RawFd, filter: Filter, error: i32) -> Refusal {
    // SAFETY: no memory is passed, and the kernel accepts any number.
    let is_open = || unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
    match (filter, error) {
        (_, libc::ENXIO) => Refusal::HungUp,
        (Filter::Write, libc::EPIPE) => Refusal::BrokenPipe,
        // NetBSD 7 returns the error of a closed descriptor.
        (Filter::Write, libc::EBADF) if is_open() => Refusal::BrokenPipe,
        _ => Refusal::Error,
    }
}
