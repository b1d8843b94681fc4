//! The knotes of a queue, and which of them may have something to tell.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use super::condition::{self, Fired, Kind};
use super::epoll::{Epoll, NOTICES};
use super::{Queue, Rules, user_bit};
use crate::sys::{
    EV_ADD, EV_CLEAR, EV_DELETE, EV_ONESHOT, EV_RECEIPT, EVFILT_EXCEPT, EVFILT_READ, EVFILT_USER,
    EVFILT_WRITE, Kevent, NOTE_TRIGGER, RawFilter, RawFlags,
};

/// Flags that this crate does not use, but that its model knows.
pub(super) const EV_ENABLE: RawFlags = 0x4;
pub(super) const EV_DISABLE: RawFlags = 0x8;
pub(super) const EV_DISPATCH: RawFlags = 0x80;

#[derive(Debug, Default)]
pub(super) struct State {
    /// By serial number, which is never used again: a notice that comes too late
    /// finds nothing.
    knotes: HashMap<u64, Knote>,
    serials: HashMap<(usize, RawFilter), u64>,
    next_serial: u64,
    /// Knotes that may fire, each at most once.
    active: VecDeque<u64>,
    /// Knotes of files, of which Linux gives no notice: looked at by every call.
    files: BTreeSet<u64>,
    /// The flag for pollers is up.
    pending: bool,
}

#[derive(Debug)]
struct Knote {
    /// Identity, parameters, `udata`, and the flags that stay.
    set: Kevent,
    /// `None` for a user event.
    kind: Option<Kind>,
    disabled: bool,
    /// It may fire: it is among the active, unless it is disabled.
    active: bool,
}

impl State {
    /// Makes one change.
    pub(super) fn change(&mut self, queue: &Queue, change: &Kevent) -> Result<(), i32> {
        let filter = change.filter();
        let known = [EVFILT_READ, EVFILT_WRITE, EVFILT_EXCEPT].contains(&filter)
            || filter == EVFILT_USER && queue.rules == Rules::Lenient;
        if !known {
            return Err(libc::EINVAL);
        }
        let name = (change.ident(), filter);
        // A closed descriptor is EBADF whatever the change; this also drops its knotes.
        let serial =
            self.serials.get(&name).copied().filter(|serial| self.is_there(queue, *serial));
        if filter != EVFILT_USER {
            Kind::of(change.ident() as RawFd, false)?;
        }
        if change.has(EV_DELETE) {
            self.remove(queue, serial.ok_or(libc::ENOENT)?);
            return Ok(());
        }
        let serial = match serial {
            Some(serial) => serial,
            None if change.has(EV_ADD) => self.add(queue, change)?,
            None => return Err(libc::ENOENT),
        };
        self.touch(queue, serial, change);
        Ok(())
    }

    /// Makes a knote.
    fn add(&mut self, queue: &Queue, change: &Kevent) -> Result<u64, i32> {
        let serial = self.next_serial;
        let (ident, filter) = (change.ident(), change.filter());
        let kind = if filter == EVFILT_USER {
            queue.user_knotes.fetch_or(user_bit(ident)?, Ordering::SeqCst);
            None
        } else {
            Some(attach(queue, ident as RawFd, filter, serial)?)
        };
        self.next_serial += 1;
        if matches!(kind, Some(Kind::File(..))) {
            self.files.insert(serial);
        }
        let mut set = *change;
        set.0.flags &= EV_CLEAR | EV_ONESHOT | EV_DISPATCH | EV_RECEIPT;
        self.knotes.insert(serial, Knote { set, kind, disabled: false, active: false });
        self.serials.insert((ident, filter), serial);
        Ok(serial)
    }

    /// Changes a knote, new or old, and evaluates it as the rules say.
    fn touch(&mut self, queue: &Queue, serial: u64, change: &Kevent) {
        let Some(knote) = self.knotes.get_mut(&serial) else { return };
        let flags = knote.set.0.flags;
        knote.set = *change;
        knote.set.0.flags = flags;
        let was_disabled = knote.disabled;
        if change.has(EV_DISABLE) {
            knote.disabled = true;
        } else if change.has(EV_ADD | EV_ENABLE) {
            knote.disabled = false;
        }
        let evaluated = change.has(EV_ADD) || queue.rules == Rules::Lenient;
        let evaluated = match knote.kind {
            Some(_) => evaluated,
            None => change.fflags() & NOTE_TRIGGER != 0,
        };
        let missed = was_disabled && !knote.disabled && knote.active;
        if missed {
            self.active.push_back(serial);
        } else if evaluated {
            self.activate(serial);
        }
    }

    fn activate(&mut self, serial: u64) {
        if let Some(knote) = self.knotes.get_mut(&serial)
            && !std::mem::replace(&mut knote.active, true)
            && !knote.disabled
        {
            self.active.push_back(serial);
        }
    }

    /// Drops a knote.
    fn remove(&mut self, queue: &Queue, serial: u64) {
        let Some(knote) = self.knotes.remove(&serial) else { return };
        let (ident, filter) = (knote.set.ident(), knote.set.filter());
        self.serials.remove(&(ident, filter));
        match knote.kind {
            Some(Kind::File(..)) => drop(self.files.remove(&serial)),
            Some(_) => notices(queue, filter).0.remove(ident as RawFd),
            None => {
                let others = !user_bit(ident).unwrap_or(0);
                queue.user_knotes.fetch_and(others, Ordering::SeqCst);
                queue.user_triggers.fetch_and(others, Ordering::SeqCst);
            }
        }
    }

    /// False if the knote's descriptor was closed; then the knote is gone.
    fn is_there(&mut self, queue: &Queue, serial: u64) -> bool {
        let Some(knote) = self.knotes.get(&serial) else { return false };
        let fd = knote.set.ident() as RawFd;
        let there = match knote.kind {
            None => true,
            Some(file @ Kind::File(..)) => file.is_same_file(fd),
            Some(_) => notices(queue, knote.set.filter()).0.has(fd),
        };
        if !there {
            self.remove(queue, serial);
        }
        there
    }

    /// Activates the knotes to whose descriptors something has happened.
    pub(super) fn take_notices(&mut self, queue: &Queue) {
        let mut list = [libc::epoll_event { events: 0, u64: 0 }; NOTICES];
        for epoll in &queue.notices {
            loop {
                let count = epoll.take(&mut list);
                for notice in &list[..count] {
                    self.activate(notice.u64);
                }
                if count < NOTICES {
                    break;
                }
            }
        }
        for serial in std::mem::take(&mut self.files) {
            self.activate(serial);
            self.files.insert(serial);
        }
        // Lowered first: a trigger from now on is either seen below or raises it again.
        if queue.user_triggers.load(Ordering::SeqCst) != 0 {
            queue.triggered.lower();
        }
        let triggers = queue.user_triggers.swap(0, Ordering::SeqCst);
        for ident in (0..64).filter(|ident| triggers & 1 << ident != 0) {
            if let Some(serial) = self.serials.get(&(ident, EVFILT_USER)) {
                self.activate(*serial);
            }
        }
    }

    /// Goes once through the active knotes and tells of those whose condition holds.
    pub(super) fn fire(&mut self, queue: &Queue, events: &mut [Kevent]) -> usize {
        let mut told = 0;
        for _ in 0..self.active.len() {
            if told == events.len() {
                break;
            }
            let Some(serial) = self.active.pop_front() else { break };
            if !self.is_there(queue, serial) {
                continue;
            }
            let Some(knote) = self.knotes.get_mut(&serial) else { continue };
            if knote.disabled {
                continue;
            }
            let Some(fired) = knote.look() else {
                knote.active = false;
                continue;
            };
            events[told] = knote.tell(fired);
            told += 1;
            if knote.set.has(EV_ONESHOT) {
                self.remove(queue, serial);
            } else if knote.set.has(EV_CLEAR | EV_DISPATCH) {
                knote.active = false;
                knote.disabled = knote.set.has(EV_DISPATCH);
            } else {
                self.active.push_back(serial);
            }
        }
        told
    }

    /// Makes the queue's descriptor readable if knotes are left that may fire.
    pub(super) fn settle(&mut self, queue: &Queue) {
        let pending = !self.active.is_empty();
        if pending != std::mem::replace(&mut self.pending, pending) {
            if pending { queue.pending.raise() } else { queue.pending.lower() }
        }
    }
}

impl Knote {
    fn look(&self) -> Option<Fired> {
        let Some(kind) = self.kind else { return Some(Fired::default()) };
        let set = &self.set;
        condition::look(kind, set.ident() as RawFd, set.filter(), set.fflags(), set.0.data as i64)
    }

    fn tell(&self, fired: Fired) -> Kevent {
        let mut event = self.set;
        event.0.flags |= fired.flags;
        event.0.fflags = fired.fflags;
        event.0.data = fired.data as isize;
        event
    }
}

/// Asks Linux for notices of what happens to a descriptor.
fn attach(queue: &Queue, fd: RawFd, filter: RawFilter, serial: u64) -> Result<Kind, i32> {
    let (epoll, events) = notices(queue, filter);
    let error = match epoll.add(fd, events, serial) {
        Ok(()) => None,
        Err(error) => error.raw_os_error(),
    };
    match error {
        None => {}
        // It was closed without being the last of its file, and is back.
        Some(libc::EEXIST) => {
            epoll.replace(fd, events, serial).map_err(|_| libc::EBADF)?;
        }
        Some(libc::EPERM) if filter != EVFILT_EXCEPT => return Kind::of(fd, false),
        Some(error) => return Err(error),
    }
    let kind = Kind::of(fd, true)?;
    if filter == EVFILT_WRITE && condition::is_broken_pipe(kind, fd) {
        epoll.remove(fd);
        return Err(if queue.rules == Rules::Lenient { libc::EPIPE } else { libc::EBADF });
    }
    Ok(kind)
}

/// Where notices for a filter come from, and what is asked of it.
fn notices(queue: &Queue, filter: RawFilter) -> (&Epoll, i32) {
    let [read, write, except] = &queue.notices;
    match filter {
        EVFILT_READ => (read, libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET),
        EVFILT_WRITE => (write, libc::EPOLLOUT | libc::EPOLLET),
        _ => (except, libc::EPOLLPRI | libc::EPOLLET),
    }
}
