//! The knotes of a queue, and the list of those that may fire.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use super::condition::{self, Fired, Kind, Version};
use super::linux::{Epoll, MAX_ACTIVITY};
use super::{Queue, Rules, user_bit};
use crate::sys::{
    EV_ADD, EV_CLEAR, EV_DELETE, EV_ONESHOT, EV_RECEIPT, EVFILT_EXCEPT, EVFILT_READ, EVFILT_USER,
    EVFILT_WRITE, Kevent, NOTE_TRIGGER, RawFilter, RawFlags,
};

/// Flags that the backend does not use.
pub(super) const EV_ENABLE: RawFlags = 0x4;
pub(super) const EV_DISABLE: RawFlags = 0x8;
pub(super) const EV_DISPATCH: RawFlags = 0x80;

#[derive(Debug, Default)]
pub(super) struct Knotes {
    /// By serial number. A number is never reused: late activity of a removed knote finds
    /// nothing.
    by_serial: HashMap<u64, Knote>,
    serials: HashMap<(usize, RawFilter), u64>,
    next_serial: u64,
    /// Knotes that may fire, each at most once.
    active: VecDeque<u64>,
    /// Knotes of files, for which epoll reports no activity, with the file's last known state.
    files: BTreeMap<u64, Option<Version>>,
    /// The queue's `pending` flag is set.
    pending: bool,
}

#[derive(Debug)]
struct Knote {
    /// Identity, parameters, `udata` and the flags that are fixed when the knote is made.
    set: Kevent,
    /// `None` for a user event.
    kind: Option<Kind>,
    disabled: bool,
    /// The knote may fire: it is in the list of active knotes unless it is disabled.
    active: bool,
    /// The result of the evaluation that activated a one-shot knote, if the scan does not
    /// evaluate it again.
    latched: Option<Fired>,
}

impl Knotes {
    /// Makes one change.
    pub(super) fn change(&mut self, queue: &Queue, change: &Kevent) -> Result<(), i32> {
        let filter = change.filter();
        let known = [EVFILT_READ, EVFILT_WRITE, EVFILT_EXCEPT].contains(&filter)
            || filter == EVFILT_USER && queue.rules.has_user_events();
        if !known {
            return Err(libc::EINVAL);
        }
        // This removes the knotes of a closed descriptor, for which every change is EBADF.
        let serial = self.serials.get(&(change.ident(), filter)).copied();
        let serial = serial.filter(|serial| self.is_open(queue, *serial));
        if filter != EVFILT_USER {
            condition::check_open(change.ident() as RawFd)?;
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
        self.update(queue, serial, change);
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
        if kind.is_some_and(Kind::is_file) {
            self.files.insert(serial, condition::version(ident as RawFd));
        }
        let mut set = *change;
        set.0.flags &= EV_CLEAR | EV_ONESHOT | EV_DISPATCH | EV_RECEIPT;
        let knote = Knote { set, kind, disabled: false, active: false, latched: None };
        self.by_serial.insert(serial, knote);
        self.serials.insert((ident, filter), serial);
        Ok(serial)
    }

    /// Changes a knote, and evaluates it if the rules require it.
    fn update(&mut self, queue: &Queue, serial: u64, change: &Kevent) {
        let Some(knote) = self.by_serial.get_mut(&serial) else { return };
        let flags = knote.set.0.flags;
        knote.set = *change;
        knote.set.0.flags = flags;
        let was_disabled = knote.disabled;
        if change.has(EV_DISABLE) {
            knote.disabled = true;
        } else if change.has(EV_ADD | EV_ENABLE) {
            knote.disabled = false;
        }
        let evaluated = match knote.kind {
            Some(_) => change.has(EV_ADD) || queue.rules.evaluates_on_enable(),
            None => change.fflags() & NOTE_TRIGGER != 0,
        };
        if was_disabled && !knote.disabled && knote.active {
            self.active.push_back(serial);
        } else if evaluated {
            self.activate(queue.rules, serial);
        }
    }

    /// Puts a knote in the list of active knotes.
    fn activate(&mut self, rules: Rules, serial: u64) {
        let Some(knote) = self.by_serial.get_mut(&serial) else { return };
        if knote.is_latching(rules) && knote.latched.is_none() {
            knote.latched = knote.evaluate(rules);
            if knote.latched.is_none() {
                return;
            }
        }
        if !std::mem::replace(&mut knote.active, true) && !knote.disabled {
            self.active.push_back(serial);
        }
    }

    /// Removes a knote.
    fn remove(&mut self, queue: &Queue, serial: u64) {
        let Some(knote) = self.by_serial.remove(&serial) else { return };
        let (ident, filter) = (knote.set.ident(), knote.set.filter());
        self.serials.remove(&(ident, filter));
        match knote.kind {
            Some(kind) if kind.is_file() => drop(self.files.remove(&serial)),
            Some(_) => activity(queue, filter).0.remove(ident as RawFd),
            None => {
                let others = !user_bit(ident).unwrap_or(0);
                queue.user_knotes.fetch_and(others, Ordering::SeqCst);
                queue.user_triggers.fetch_and(others, Ordering::SeqCst);
            }
        }
    }

    /// Removes a knote whose descriptor was closed. Returns false if there is no knote.
    fn is_open(&mut self, queue: &Queue, serial: u64) -> bool {
        let Some(knote) = self.by_serial.get(&serial) else { return false };
        let fd = knote.set.ident() as RawFd;
        let open = match knote.kind {
            None => true,
            Some(file) if file.is_file() => Kind::of_file(fd) == Ok(file),
            Some(_) => activity(queue, knote.set.filter()).0.has(fd),
        };
        if !open {
            self.remove(queue, serial);
        }
        open
    }

    /// Activates the knotes whose descriptors had activity.
    pub(super) fn take_activity(&mut self, queue: &Queue) {
        let mut list = [libc::epoll_event { events: 0, u64: 0 }; MAX_ACTIVITY];
        for epoll in &queue.activity {
            loop {
                let count = epoll.take(&mut list);
                for event in &list[..count] {
                    self.activate(queue.rules, event.u64);
                }
                if count < MAX_ACTIVITY {
                    break;
                }
            }
        }
        self.check_files(queue.rules);
        // Cleared first: a later trigger is either seen below or sets the flag again.
        if queue.user_triggers.load(Ordering::SeqCst) != 0 {
            queue.triggered.clear();
        }
        let triggers = queue.user_triggers.swap(0, Ordering::SeqCst);
        for ident in (0..64).filter(|ident| triggers & 1 << ident != 0) {
            if let Some(serial) = self.serials.get(&(ident, EVFILT_USER)) {
                self.activate(queue.rules, *serial);
            }
        }
    }

    /// Activates the knotes of files that were written.
    fn check_files(&mut self, rules: Rules) {
        let mut written = Vec::new();
        for (serial, last) in &mut self.files {
            let Some(knote) = self.by_serial.get(serial) else { continue };
            let version = condition::version(knote.set.ident() as RawFd);
            if std::mem::replace(last, version) != version {
                written.push(*serial);
            }
        }
        for serial in written {
            self.activate(rules, serial);
        }
    }

    /// Passes once over the active knotes and writes the events of those that fire.
    pub(super) fn fire(&mut self, queue: &Queue, events: &mut [Kevent]) -> usize {
        let mut count = 0;
        for _ in 0..self.active.len() {
            if count == events.len() {
                break;
            }
            let Some(serial) = self.active.pop_front() else { break };
            if !self.is_open(queue, serial) {
                continue;
            }
            let Some(knote) = self.by_serial.get_mut(&serial) else { continue };
            if knote.disabled {
                continue;
            }
            let Some(fired) = knote.latched.take().or_else(|| knote.evaluate(queue.rules)) else {
                knote.active = false;
                continue;
            };
            events[count] = knote.event(fired);
            count += 1;
            if knote.set.has(EV_ONESHOT) {
                self.remove(queue, serial);
            } else if knote.set.has(EV_CLEAR | EV_DISPATCH) {
                knote.active = false;
                knote.disabled = knote.set.has(EV_DISPATCH);
            } else {
                self.active.push_back(serial);
            }
        }
        count
    }

    /// Makes the queue's descriptor readable while knotes are active.
    pub(super) fn update_pending(&mut self, queue: &Queue) {
        let pending = !self.active.is_empty();
        if pending != std::mem::replace(&mut self.pending, pending) {
            if pending { queue.pending.set() } else { queue.pending.clear() }
        }
    }
}

impl Knote {
    /// True if the scan reports the result of the evaluation that activated the knote.
    fn is_latching(&self, rules: Rules) -> bool {
        self.set.has(EV_ONESHOT) && !rules.evaluates_oneshot_at_scan()
    }

    fn evaluate(&self, rules: Rules) -> Option<Fired> {
        match self.kind {
            Some(kind) => condition::evaluate(kind, &self.set, rules),
            None => Some(Fired::default()),
        }
    }

    fn event(&self, fired: Fired) -> Kevent {
        let mut event = self.set;
        event.0.flags |= fired.flags;
        event.0.fflags = fired.fflags;
        event.0.data = fired.data as isize;
        event
    }
}

/// Asks Linux for activity of a descriptor. Fails as the rules require.
fn attach(queue: &Queue, fd: RawFd, filter: RawFilter, serial: u64) -> Result<Kind, i32> {
    let (epoll, events) = activity(queue, filter);
    let kind = match epoll.add(fd, events, serial).map_err(|error| error.raw_os_error()) {
        Ok(()) => Kind::of_pollable(fd, queue.rules)?,
        // The number was closed while its file stayed open, and names the same file again.
        Err(Some(libc::EEXIST)) => {
            epoll.replace(fd, events, serial).map_err(|_| libc::EBADF)?;
            Kind::of_pollable(fd, queue.rules)?
        }
        Err(Some(libc::EPERM)) if filter != EVFILT_EXCEPT => Kind::of_file(fd)?,
        Err(error) => return Err(error.unwrap_or(libc::EINVAL)),
    };
    let mut refusal = queue.rules.refusal(kind);
    if filter == EVFILT_WRITE && condition::is_broken_pipe(kind, fd) {
        refusal = refusal.or(queue.rules.broken_pipe());
    }
    match refusal {
        None => Ok(kind),
        Some(error) => {
            epoll.remove(fd);
            Err(error)
        }
    }
}

/// The epoll instance of a filter, and the events for which it is asked.
fn activity(queue: &Queue, filter: RawFilter) -> (&Epoll, i32) {
    let [read, write, except] = &queue.activity;
    match filter {
        EVFILT_READ => (read, libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET),
        EVFILT_WRITE => (write, libc::EPOLLOUT | libc::EPOLLET),
        _ => (except, libc::EPOLLPRI | libc::EPOLLRDHUP | libc::EPOLLET),
    }
}
