//! A kqueue in user space, on Linux, to test this crate with. Not for use.
//!
//! It keeps the rules of the BSDs' kernels, each of which has a test in `tests`:
//!
//! - Knotes of one descriptor in different filters are independent.
//! - `EV_ADD` of a knote that exists changes its parameters and `udata`, never
//!   `EV_CLEAR`, `EV_ONESHOT` or `EV_DISPATCH`, and evaluates it: it fires if its
//!   condition holds.
//! - Level knotes fire at every call while their condition holds, in turns.
//! - A failing change is told in the event list, alone, if there is room; without
//!   room the call fails and the changes behind it are not made.
//! - The closing of a descriptor drops its knotes.
//! - The end of file is a flag besides the data, and the socket's error is in `fflags`.
//! - A child of `fork` does not have the queue.
//!
//! Each filter has an edge-triggered epoll instance that gives notice when
//! something happens to a descriptor; whether the condition holds is looked up when
//! the knote's turn comes. All of them are watched by one epoll instance, whose
//! descriptor is the queue's: it is readable when there may be something to tell.

mod condition;
mod epoll;
mod state;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::{EV_ADD, EV_DELETE, EV_ERROR, EV_RECEIPT, EVFILT_USER, Kevent, NOTE_TRIGGER};
use epoll::{Epoll, Flag};
use state::State;

/// Which kernels the model of kqueue follows where they differ (feature `model`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// FreeBSD's and Apple's: `EV_ENABLE` evaluates a knote, there are user events,
    /// and a write knote for a pipe without readers is refused with `EPIPE`.
    Lenient,
    /// NetBSD's, before version 10: `EV_ENABLE` alone does not make a knote fire that
    /// `EV_DISPATCH` has disabled, there are no user events, and a write knote for a
    /// pipe without readers is refused with `EBADF`.
    Strict,
}

/// A queue.
#[derive(Debug)]
pub(crate) struct Queue {
    rules: Rules,
    /// Whose queue it is.
    pid: u32,
    /// Watches all that follows.
    epoll: Epoll,
    /// Notices of what happened, an instance for each filter.
    notices: [Epoll; 3],
    /// Up while knotes are left that may have something to tell.
    pending: Flag,
    /// Up after a user event was triggered.
    triggered: Flag,
    /// Which user events were triggered, and which there are: a bit each. They are
    /// not under the lock, for a signal handler may trigger while its thread has it.
    user_triggers: AtomicU64,
    user_knotes: AtomicU64,
    state: Mutex<State>,
    /// How often it was called.
    calls: AtomicU64,
}

impl Queue {
    pub(crate) fn new(rules: Rules) -> io::Result<Queue> {
        let queue = Queue {
            rules,
            pid: std::process::id(),
            epoll: Epoll::new()?,
            notices: [Epoll::new()?, Epoll::new()?, Epoll::new()?],
            pending: Flag::new()?,
            triggered: Flag::new()?,
            user_triggers: AtomicU64::new(0),
            user_knotes: AtomicU64::new(0),
            state: Mutex::default(),
            calls: AtomicU64::new(0),
        };
        for notices in &queue.notices {
            queue.epoll.add(notices.as_raw_fd(), libc::EPOLLIN, 0)?;
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

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Triggers a user event, without locks.
    fn trigger(&self, ident: usize) -> Result<(), i32> {
        let bit = user_bit(ident)?;
        if self.user_knotes.load(Ordering::SeqCst) & bit == 0 {
            return Err(libc::ENOENT);
        }
        self.user_triggers.fetch_or(bit, Ordering::SeqCst);
        self.triggered.raise();
        Ok(())
    }
}

/// `kqueue(2)`.
pub(crate) fn kqueue() -> io::Result<Queue> {
    Queue::new(Rules::Lenient)
}

/// `kevent(2)`.
pub(crate) fn kevent(
    queue: &Queue,
    changes: &[Kevent],
    events: &mut [Kevent],
    timeout: Option<Duration>,
) -> io::Result<usize> {
    let _kernel = epoll::Kernel::enter();
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
    let told = make(queue, changes, events)?;
    if told > 0 || events.is_empty() {
        return Ok(told);
    }
    let started = Instant::now();
    loop {
        let told = scan(queue, events);
        let left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
        if told > 0 || left == Some(Duration::ZERO) {
            return Ok(told);
        }
        epoll::sleep(queue.epoll.as_raw_fd(), left)?;
    }
}

/// Makes changes in their order. Returns how many receipts and failures were told.
fn make(queue: &Queue, changes: &[Kevent], events: &mut [Kevent]) -> io::Result<usize> {
    let mut state = queue.state();
    let mut told = 0;
    for change in changes {
        let error = match state.change(queue, change) {
            Ok(()) if change.has(EV_RECEIPT) => 0,
            Ok(()) => continue,
            Err(error) => error,
        };
        let Some(room) = events.get_mut(told) else {
            state.settle(queue);
            return Err(io::Error::from_raw_os_error(error));
        };
        *room = *change;
        room.0.flags = EV_ERROR;
        room.0.data = error as isize;
        told += 1;
    }
    state.settle(queue);
    Ok(told)
}

/// Tells of the knotes that fire now.
fn scan(queue: &Queue, events: &mut [Kevent]) -> usize {
    let mut state = queue.state();
    state.take_notices(queue);
    let told = state.fire(queue, events);
    state.settle(queue);
    told
}

fn is_trigger(change: &Kevent) -> bool {
    change.filter() == EVFILT_USER
        && change.fflags() & NOTE_TRIGGER != 0
        && !change.has(EV_ADD | EV_DELETE)
}

/// The bit of a user event. The model has room for 64.
fn user_bit(ident: usize) -> Result<u64, i32> {
    if ident < 64 { Ok(1 << ident) } else { Err(libc::ENOMEM) }
}
