//! What one source wants, what it is armed with, and what was seen of it.

use std::mem;
use std::os::fd::RawFd;

use poll_core::{Mode, Ready, Token};

use crate::sys::{
    EV_ADD, EV_CLEAR, EV_DELETE, EV_EOF, EV_ONESHOT, EVFILT_EXCEPT, EVFILT_READ, EVFILT_WRITE,
    HAS_EXCEPT, Kevent, NOTE_LOWAT, NOTE_OOB, RawFlags,
};

/// The filters in which a source can have a knote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filter {
    Read,
    Write,
    Except,
}

impl Filter {
    const ALL: [Filter; 3] = [Filter::Read, Filter::Write, Filter::Except];

    /// The filter that an event is about, if it is one of these.
    pub(crate) fn of(event: &Kevent) -> Option<Filter> {
        match event.filter() {
            EVFILT_READ => Some(Filter::Read),
            EVFILT_WRITE => Some(Filter::Write),
            EVFILT_EXCEPT if HAS_EXCEPT => Some(Filter::Except),
            _ => None,
        }
    }

    /// A change to this filter's knote of a source.
    pub(crate) fn change(self, fd: RawFd, token: Token, flags: RawFlags) -> Kevent {
        let filter = match self {
            Filter::Read => EVFILT_READ,
            Filter::Write => EVFILT_WRITE,
            Filter::Except => EVFILT_EXCEPT,
        };
        Kevent::new(fd as usize, filter, flags, udata(token))
    }
}

/// What knotes carry of a token: all of it, or its index where pointers have 32 bits.
pub(crate) fn udata(token: Token) -> usize {
    token.to_u64() as usize
}

/// How a knote is armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knote {
    Level,
    Oneshot,
    Edge,
    /// The filter also fires for what was not asked for: for data if only the end
    /// of file is wanted, for the end of file if only out-of-band data is. `EV_CLEAR`
    /// makes such an event cost one turn instead of a spin. Where the condition
    /// that was asked for should be repeated, the knote is made anew.
    Sifted,
    /// A call failed: the knote may be there or not.
    Unknown,
}

/// No buffer is as large.
const NEVER: i32 = i32::MAX;

impl Knote {
    /// The change that makes this knote.
    fn add(self, filter: Filter, fd: RawFd, token: Token) -> Kevent {
        let flags = match self {
            Knote::Level | Knote::Unknown => EV_ADD,
            Knote::Oneshot => EV_ADD | EV_ONESHOT,
            Knote::Edge | Knote::Sifted => EV_ADD | EV_CLEAR,
        };
        let change = filter.change(fd, token, flags);
        match filter {
            Filter::Read if self == Knote::Sifted => change.with(NOTE_LOWAT, NEVER),
            Filter::Except => change.with(NOTE_OOB, 0),
            _ => change,
        }
    }
}

/// The knote that an interest wants in a filter.
fn wanted(filter: Filter, interest: Ready, mode: Mode) -> Option<Knote> {
    let plain = match mode {
        Mode::Level => Knote::Level,
        Mode::Oneshot => Knote::Oneshot,
        Mode::Edge => Knote::Edge,
    };
    match filter {
        Filter::Read if interest.contains(Ready::READ) => Some(plain),
        Filter::Read => interest.contains(Ready::DISCONNECT).then_some(Knote::Sifted),
        Filter::Write => interest.contains(Ready::WRITE).then_some(plain),
        Filter::Except => interest.contains(Ready::PRIORITY).then_some(Knote::Sifted),
    }
}

/// What an event says about its source. `HANGUP` stands for the writing direction
/// alone here, as `DISCONNECT` does for the reading one: see [`Watch::report`].
fn seen(filter: Filter, event: &Kevent) -> Ready {
    let ended = event.has(EV_EOF);
    let (ready, end) = match filter {
        Filter::Read => (Ready::READ, Ready::DISCONNECT),
        Filter::Write => (Ready::WRITE, Ready::HANGUP),
        // Some kernels tell of the end of file here too; the others cannot.
        Filter::Except if event.fflags() & NOTE_OOB == 0 => return Ready::NONE,
        Filter::Except => return Ready::PRIORITY,
    };
    match (ended, event.fflags()) {
        (false, _) => ready,
        (true, 0) => ready | end,
        (true, _error) => ready | end | Ready::ERROR,
    }
}

/// A registered source.
#[derive(Debug)]
pub(crate) struct Watch {
    /// What the caller wants to know.
    interest: Ready,
    mode: Mode,
    /// Spent or dead: until the next `modify` it wants nothing.
    asleep: bool,
    /// The knotes that the kernel has, by filter.
    armed: [Option<Knote>; 3],
    /// What the kernel has told in this wait.
    seen: Ready,
    /// The descriptor cannot be watched: there will be no more to tell.
    dead: bool,
    /// What holds must be told again, even by knotes that have told it.
    again: bool,
    /// Where in the queue of changes it is.
    queued: Option<usize>,
}

impl Watch {
    pub(crate) fn new(interest: Ready, mode: Mode) -> Watch {
        Watch {
            interest,
            mode,
            asleep: false,
            armed: [None; 3],
            seen: Ready::NONE,
            dead: false,
            again: false,
            queued: None,
        }
    }

    /// Takes a new interest.
    pub(crate) fn modify(&mut self, interest: Ready, mode: Mode) {
        (self.interest, self.mode) = (interest, mode);
        (self.asleep, self.again) = (false, true);
    }

    /// In a forked child: there are no knotes.
    pub(crate) fn forget(&mut self) {
        self.armed = [None; 3];
    }

    /// Puts the source in the queue of changes, once.
    pub(crate) fn queue(&mut self, token: Token, changed: &mut Vec<Token>) {
        if self.queued.is_none() {
            self.queued = Some(changed.len());
            changed.push(token);
        }
    }

    /// Where the source is in the queue of changes.
    pub(crate) fn queued(&mut self) -> &mut Option<usize> {
        &mut self.queued
    }

    /// The filters that have a knote.
    pub(crate) fn armed(&self) -> impl Iterator<Item = Filter> {
        let armed = self.armed;
        Filter::ALL.into_iter().filter(move |filter| armed[*filter as usize].is_some())
    }

    /// Appends the changes from what is armed to what is wanted, and takes them as made.
    pub(crate) fn changes(&mut self, fd: RawFd, token: Token, list: &mut Vec<Kevent>) {
        let again = mem::take(&mut self.again);
        for filter in Filter::ALL {
            let (armed, wanted) = (self.armed[filter as usize], self.wanted(filter));
            // A level knote tells anyway, and one that shoots once has not yet. The
            // others would do to be added again, says the BSDs' code; made anew, they
            // tell on every system.
            let silent = matches!(armed, Some(Knote::Edge | Knote::Sifted));
            if armed == wanted && !(again && silent) {
                continue;
            }
            if armed.is_some() {
                list.push(filter.change(fd, token, EV_DELETE));
            }
            if let Some(knote) = wanted {
                list.push(knote.add(filter, fd, token));
            }
            self.armed[filter as usize] = wanted;
        }
    }

    /// True if [`Watch::changes`] would find any.
    pub(crate) fn has_changes(&self) -> bool {
        self.again || Filter::ALL.iter().any(|f| self.armed[*f as usize] != self.wanted(*f))
    }

    /// A knote fired. True if this is the first that was seen of the source in this wait.
    pub(crate) fn fired(&mut self, filter: Filter, event: &Kevent) -> bool {
        let armed = &mut self.armed[filter as usize];
        if *armed == Some(Knote::Oneshot) {
            *armed = None;
        }
        self.see(seen(filter, event))
    }

    /// A change failed: because the descriptor is a pipe without readers, or
    /// because it cannot be watched. True as for [`Watch::fired`].
    pub(crate) fn failed(&mut self, filter: Filter, broken_pipe: bool) -> bool {
        self.refused(filter);
        // A level is told again by asking again, at every wait; an edge is told once.
        self.dead |= !broken_pipe || self.mode == Mode::Edge;
        self.see(Ready::ERROR)
    }

    /// There is no knote in this filter after all.
    pub(crate) fn refused(&mut self, filter: Filter) {
        self.armed[filter as usize] = None;
    }

    /// There may or may not be a knote in this filter.
    pub(crate) fn doubt(&mut self, filter: Filter) {
        self.armed[filter as usize] = Some(Knote::Unknown);
    }

    /// What is to be reported of all that was seen in this wait, perhaps nothing.
    pub(crate) fn report(&mut self) -> Ready {
        let mut seen = mem::take(&mut self.seen);
        if !seen.contains(Ready::DISCONNECT) {
            // The source's own shutdown ends the writing direction too. Only with
            // the reading one it is a hang-up.
            seen.remove(Ready::HANGUP);
        }
        let interest = if self.asleep { Ready::NONE } else { self.interest };
        let ready = interest.report(seen);
        if mem::take(&mut self.dead) || self.mode == Mode::Oneshot && !ready.is_empty() {
            self.asleep = true;
        }
        let sifted = Ready::DISCONNECT | Ready::PRIORITY | Ready::HANGUP | Ready::ERROR;
        if self.mode == Mode::Level && ready.intersects(sifted) {
            self.again |= self.armed.contains(&Some(Knote::Sifted));
        }
        ready
    }

    fn wanted(&self, filter: Filter) -> Option<Knote> {
        if self.asleep { None } else { wanted(filter, self.interest, self.mode) }
    }

    fn see(&mut self, seen: Ready) -> bool {
        let first = self.seen.is_empty() && !seen.is_empty();
        self.seen |= seen;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Token = Token::new(3, 9);
    const FD: RawFd = 5;

    fn event(filter: Filter, flags: RawFlags, fflags: u32) -> Kevent {
        filter.change(FD, TOKEN, flags).with(fflags, 0)
    }

    /// The next changes of a watch, as filter and flags.
    fn changes(watch: &mut Watch) -> Vec<(Filter, RawFlags)> {
        let mut list = Vec::new();
        watch.changes(FD, TOKEN, &mut list);
        assert!(!watch.has_changes(), "they were all of them");
        assert!(list.iter().all(|change| change.ident() == FD as usize));
        assert!(list.iter().all(|change| change.udata() == udata(TOKEN)));
        let known = [EV_ADD, EV_DELETE, EV_CLEAR, EV_ONESHOT];
        let flags = |change: &Kevent| known.into_iter().filter(|flag| change.has(*flag)).sum();
        list.iter().map(|change| (Filter::of(change).unwrap(), flags(change))).collect()
    }

    #[test]
    fn events_are_read_as_documented() {
        let error = libc::ECONNRESET as u32;
        for (filter, flags, fflags, expected) in [
            (Filter::Read, 0, 0, Ready::READ),
            (Filter::Read, EV_EOF, 0, Ready::READ | Ready::DISCONNECT),
            (Filter::Read, EV_EOF, error, Ready::READ | Ready::DISCONNECT | Ready::ERROR),
            (Filter::Write, 0, 0, Ready::WRITE),
            (Filter::Write, EV_EOF, 0, Ready::WRITE | Ready::HANGUP),
            (Filter::Write, EV_EOF, error, Ready::WRITE | Ready::HANGUP | Ready::ERROR),
            (Filter::Except, 0, NOTE_OOB, Ready::PRIORITY),
            (Filter::Except, EV_EOF, 0, Ready::NONE),
        ] {
            let seen = seen(filter, &event(filter, flags, fflags));
            assert_eq!(seen, expected, "{filter:?}, flags {flags:#x}, fflags {fflags}");
        }
    }

    #[test]
    fn a_hangup_needs_both_directions() {
        let both = Ready::READ | Ready::WRITE;
        let mut watch = Watch::new(both, Mode::Level);
        assert!(watch.fired(Filter::Write, &event(Filter::Write, EV_EOF, 0)));
        assert_eq!(watch.report(), Ready::WRITE);
        watch.fired(Filter::Write, &event(Filter::Write, EV_EOF, 0));
        assert!(!watch.fired(Filter::Read, &event(Filter::Read, EV_EOF, 0)), "one report");
        assert_eq!(watch.report(), both | Ready::HANGUP);
    }

    #[test]
    fn only_differences_are_changes() {
        let mut watch = Watch::new(Ready::READ, Mode::Level);
        assert_eq!(changes(&mut watch), [(Filter::Read, EV_ADD)]);
        watch.modify(Ready::READ | Ready::WRITE, Mode::Level);
        assert_eq!(changes(&mut watch), [(Filter::Write, EV_ADD)]);
        watch.modify(Ready::READ | Ready::WRITE, Mode::Level);
        assert_eq!(changes(&mut watch), []);
        watch.modify(Ready::NONE, Mode::Level);
        assert_eq!(changes(&mut watch), [(Filter::Read, EV_DELETE), (Filter::Write, EV_DELETE)]);
    }

    #[test]
    fn another_mode_is_another_knote() {
        let mut watch = Watch::new(Ready::READ, Mode::Level);
        changes(&mut watch);
        watch.modify(Ready::READ, Mode::Edge);
        let anew = [(Filter::Read, EV_DELETE), (Filter::Read, EV_ADD | EV_CLEAR)];
        assert_eq!(changes(&mut watch), anew);
        watch.modify(Ready::READ, Mode::Edge);
        assert_eq!(changes(&mut watch), anew, "what holds is told again");
    }

    #[test]
    fn a_spent_oneshot_loses_its_other_knote() {
        let mut watch = Watch::new(Ready::READ | Ready::WRITE, Mode::Oneshot);
        changes(&mut watch);
        watch.fired(Filter::Write, &event(Filter::Write, 0, 0));
        assert_eq!(watch.report(), Ready::WRITE);
        assert!(watch.has_changes());
        assert_eq!(changes(&mut watch), [(Filter::Read, EV_DELETE)]);
        watch.modify(Ready::WRITE, Mode::Oneshot);
        assert_eq!(changes(&mut watch), [(Filter::Write, EV_ADD | EV_ONESHOT)]);
    }

    #[test]
    fn an_end_without_an_interest_in_reading_is_sifted_from_data() {
        let mut watch = Watch::new(Ready::DISCONNECT, Mode::Level);
        assert_eq!(changes(&mut watch), [(Filter::Read, EV_ADD | EV_CLEAR)]);
        watch.fired(Filter::Read, &event(Filter::Read, 0, 0));
        assert_eq!(watch.report(), Ready::NONE);
        assert!(!watch.has_changes(), "or data would make it spin");
        watch.fired(Filter::Read, &event(Filter::Read, EV_EOF, 0));
        assert_eq!(watch.report(), Ready::DISCONNECT);
        assert!(watch.has_changes(), "a level is told again");
    }

    #[test]
    fn doubtful_knotes_are_made_anew() {
        let mut watch = Watch::new(Ready::READ, Mode::Level);
        changes(&mut watch);
        watch.doubt(Filter::Read);
        assert_eq!(changes(&mut watch), [(Filter::Read, EV_DELETE), (Filter::Read, EV_ADD)]);
    }
}
