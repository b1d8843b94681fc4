//! A model of kqueue in user space, on Linux: for tests of this crate, under the feature `model`.
//!
//! The model implements the two calls of [`sys`](crate::sys) with epoll, so that the backend's
//! code runs on Linux against the rules of the kernels that it is for. Each rule has a test in
//! `tests`. All kernels share these:
//!
//! - Knotes of one descriptor in different filters are independent.
//! - `EV_ADD` of a knote that exists changes its parameters and `udata`, but never
//!   `EV_CLEAR`, `EV_ONESHOT` or `EV_DISPATCH`. It evaluates the knote: the knote fires if its
//!   condition holds.
//! - Level-triggered knotes fire at every call while their condition holds, in rotation.
//! - A knote of a regular file is evaluated when it is added and when the file is written. To
//!   seek is no event: a knote added at the end of the file does not fire after seeking back.
//! - A change that fails is reported in the event list, without events. If the list is full, the
//!   call fails and drops the changes behind it.
//! - To close a descriptor removes its knotes.
//! - The end of file is a flag beside the data. The error of a socket is in `fflags`.
//! - A child of `fork` does not inherit the queue.
//!
//! [`Rules`] lists the rules in which kernels differ.
//!
//! The model cannot express these, because the descriptors are Linux's:
//!
//! - `FIONBIO` on a queue fails with `ENOTTY` on FreeBSD 14. Linux accepts it on every descriptor.
//! - To close a socket with unread data resets the connection on Linux, not on FreeBSD.
//! - A one-shot knote whose condition held for a moment between two calls fires on FreeBSD and
//!   NetBSD. In the model the condition must hold when the knote is added, or at a call.
//! - `EVFILT_EXCEPT` exists here under all rules, but not on FreeBSD and NetBSD.
//!
//! Each filter has an edge-triggered epoll instance, which signals activity of a descriptor; the
//! condition is evaluated at the scan. One more epoll instance watches these: its descriptor is
//! the queue's, readable while a knote may fire.

mod condition;
mod knotes;
mod linux;
mod rules;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::sys::{EV_ADD, EV_DELETE, EV_ERROR, EV_RECEIPT, EVFILT_USER, Kevent, NOTE_TRIGGER};
use knotes::Knotes;
use linux::{Epoll, Flag};

pub use rules::Rules;

/// A queue.
#[derive(Debug)]
pub(crate) struct Queue {
    rules: Rules,
    /// The process that made the queue.
    pid: u32,
    /// Watches the descriptors of the next three fields.
    epoll: Epoll,
    /// Activity of descriptors, an instance for each filter.
    activity: [Epoll; 3],
    /// Set while knotes are queued that may fire.
    pending: Flag,
    /// Set after a user event was triggered.
    triggered: Flag,
    /// The user events that were triggered, and those that exist, as bits. They are outside of
    /// the lock: a signal handler may trigger while its thread holds the lock.
    user_triggers: AtomicU64,
    user_knotes: AtomicU64,
    knotes: Mutex<Knotes>,
    /// The number of `kevent` calls.
    calls: AtomicU64,
}

impl Queue {
    pub(crate) fn new(rules: Rules) -> io::Result<Queue> {
        let queue = Queue {
            rules,
            pid: std::process::id(),
            epoll: Epoll::new()?,
            activity: [Epoll::new()?, Epoll::new()?, Epoll::new()?],
            pending: Flag::new()?,
            triggered: Flag::new()?,
            user_triggers: AtomicU64::new(0),
            user_knotes: AtomicU64::new(0),
            knotes: Mutex::default(),
            calls: AtomicU64::new(0),
        };
        for activity in &queue.activity {
            queue.epoll.add(activity.as_raw_fd(), libc::EPOLLIN, 0)?;
        }
        queue.epoll.add(queue.pending.as_raw_fd(), libc::EPOLLIN, 0)?;
        queue.epoll.add(queue.triggered.as_raw_fd(), libc::EPOLLIN, 0)?;
        Ok(queue)
    }

    /// The descriptor, for other pollers.
    pub(crate) fn pollable(&self) -> Option<RawFd> {
        Some(self.epoll.as_raw_fd())
    }

    /// A new queue of the same kind.
    pub(crate) fn another(&self) -> io::Result<Queue> {
        Queue::new(self.rules)
    }

    #[cfg(test)]
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn knotes(&self) -> MutexGuard<'_, Knotes> {
        self.knotes.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Triggers a user event, without locks.
    fn trigger(&self, ident: usize) -> Result<(), i32> {
        let bit = user_bit(ident)?;
        if self.user_knotes.load(Ordering::SeqCst) & bit == 0 {
            return Err(libc::ENOENT);
        }
        self.user_triggers.fetch_or(bit, Ordering::SeqCst);
        self.triggered.set();
        Ok(())
    }
}

/// `kqueue(2)`.
pub(crate) fn kqueue() -> io::Result<Queue> {
    Queue::new(Rules::FreeBsd)
}

/// `kevent(2)`.
pub(crate) fn kevent(
    queue: &Queue,
    changes: &[Kevent],
    events: &mut [Kevent],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let _kernel = linux::Kernel::enter();
    queue.calls.fetch_add(1, Ordering::SeqCst);
    if queue.pid != std::process::id() {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    if events.is_empty() && changes.iter().all(is_trigger) {
        for change in changes {
            queue.trigger(change.ident()).map_err(io::Error::from_raw_os_error)?;
        }
        return Ok(0);
    }
    let count = make_changes(queue, changes, events)?;
    if count > 0 || events.is_empty() {
        return Ok(count);
    }
    let started = Instant::now();
    loop {
        let count = scan(queue, events);
        let left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
        if count > 0 || left == Some(Duration::ZERO) {
            return Ok(count);
        }
        linux::wait_readable(queue.epoll.as_raw_fd(), left)?;
    }
}

/// Makes changes in their order. Returns the number of receipts and failures in `events`.
fn make_changes(queue: &Queue, changes: &[Kevent], events: &mut [Kevent]) -> io::Result<usize> {
    let mut knotes = queue.knotes();
    let mut count = 0;
    for change in changes {
        let error = match knotes.change(queue, change) {
            Ok(()) if change.has(EV_RECEIPT) => 0,
            Ok(()) => continue,
            Err(error) => error,
        };
        let Some(entry) = events.get_mut(count) else {
            knotes.update_pending(queue);
            return Err(io::Error::from_raw_os_error(error));
        };
        *entry = *change;
        entry.0.flags = EV_ERROR;
        entry.0.data = error as isize;
        count += 1;
    }
    knotes.update_pending(queue);
    Ok(count)
}

/// Writes the events of the knotes that fire now. Returns their number.
fn scan(queue: &Queue, events: &mut [Kevent]) -> usize {
    let mut knotes = queue.knotes();
    knotes.take_activity(queue);
    let count = knotes.fire(queue, events);
    knotes.update_pending(queue);
    count
}

fn is_trigger(change: &Kevent) -> bool {
    change.filter() == EVFILT_USER
        && change.fflags() & NOTE_TRIGGER != 0
        && !change.has(EV_ADD | EV_DELETE)
}

/// The bit of a user event. The model has 64 of them.
fn user_bit(ident: usize) -> Result<u64, i32> {
    if ident < 64 { Ok(1 << ident) } else { Err(libc::ENOMEM) }
}
