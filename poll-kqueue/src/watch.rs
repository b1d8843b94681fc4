//! A registered source: its interest, its knotes, and its readiness in the current wait.

use std::mem;
use std::os::fd::RawFd;

use poll_core::{Interest, Mode, Readiness, Token};

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

    /// The filter of an event, if it is one of these.
    pub(crate) fn of(event: &Kevent) -> Option<Filter> {
        match event.filter() {
            EVFILT_READ => Some(Filter::Read),
            EVFILT_WRITE => Some(Filter::Write),
            EVFILT_EXCEPT if HAS_EXCEPT => Some(Filter::Except),
            _ => None,
        }
    }

    /// A change of a source's knote in this filter.
    pub(crate) fn change(self, fd: RawFd, token: Token, flags: RawFlags) -> Kevent {
        let filter = match self {
            Filter::Read => EVFILT_READ,
            Filter::Write => EVFILT_WRITE,
            Filter::Except => EVFILT_EXCEPT,
        };
        Kevent::new(fd as usize, filter, flags, udata(token))
    }
}

/// The `udata` of a token's knotes: all of the token, or its index where pointers have 32 bits.
pub(crate) fn udata(token: Token) -> usize {
    token.to_u64() as usize
}

/// The kind of a knote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knote {
    Level,
    Oneshot,
    Edge,
    /// The filter fires for more than the interest: for data if the interest is in the end of
    /// file only, for the end of file if the interest is in out-of-band data only. `EV_CLEAR`
    /// makes such an event cost one iteration instead of a busy loop. To report a condition of
    /// the interest again, the knote is deleted and added.
    Broad,
    /// A call failed: the knote may exist or not.
    Unknown,
}

/// A low-water mark that no buffer reaches.
const NEVER: i32 = i32::MAX;

/// Why a kernel refused a knote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The source is a pipe without readers. It is ready: a write fails.
    BrokenPipe,
    /// The source is a terminal whose other side is closed. It is at its end of file.
    HungUp,
    /// The source cannot be watched.
    Error,
}

impl Knote {
    /// The change that adds this knote.
    fn add(self, filter: Filter, fd: RawFd, token: Token) -> Kevent {
        let flags = match self {
            Knote::Level | Knote::Unknown => EV_ADD,
            Knote::Oneshot => EV_ADD | EV_ONESHOT,
            Knote::Edge | Knote::Broad => EV_ADD | EV_CLEAR,
        };
        let change = filter.change(fd, token, flags);
        match filter {
            Filter::Read if self == Knote::Broad => change.with(NOTE_LOWAT, NEVER),
            Filter::Except => change.with(NOTE_OOB, 0),
            _ => change,
        }
    }
}

/// The knote that an interest requires in a filter.
fn wanted(filter: Filter, interest: Interest, mode: Mode) -> Option<Knote> {
    let plain = match mode {
        Mode::Level => Knote::Level,
        Mode::Oneshot => Knote::Oneshot,
        Mode::Edge => Knote::Edge,
    };
    match filter {
        Filter::Read if interest.contains(Interest::READ) => Some(plain),
        Filter::Read => interest.contains(Interest::DISCONNECT).then_some(Knote::Broad),
        Filter::Write => interest.contains(Interest::WRITE).then_some(plain),
        Filter::Except => interest.contains(Interest::PRIORITY).then_some(Knote::Broad),
    }
}

/// The readiness that an event reports. Here, `HANGUP` is the end of the writing direction
/// alone, as `DISCONNECT` is the end of the reading direction: see [`Watch::report`].
fn readiness(filter: Filter, event: &Kevent) -> Readiness {
    let ended = event.has(EV_EOF);
    let (ready, end) = match filter {
        Filter::Read => (Readiness::READ, Readiness::DISCONNECT),
        Filter::Write => (Readiness::WRITE, Readiness::HANGUP),
        // Some kernels report the end of file here too, others cannot. `fflags` is then an error
        // number: ECONNRESET (54) contains the bit of NOTE_OOB.
        Filter::Except if ended || event.fflags() & NOTE_OOB == 0 => return Readiness::NONE,
        Filter::Except => return Readiness::PRIORITY,
    };
    match (ended, event.fflags()) {
        (false, _) => ready,
        (true, 0) => ready | end,
        (true, _error) => ready | end | Readiness::ERROR,
    }
}

/// A registered source.
#[derive(Debug)]
pub(crate) struct Watch {
    interest: Interest,
    mode: Mode,
    /// A one-shot source that has fired, or a source that cannot be watched: it requires no
    /// knotes until the next `modify`.
    disarmed: bool,
    /// The knotes that the kernel has, by filter.
    armed: [Option<Knote>; 3],
    /// The readiness recorded in this wait.
    ready: Readiness,
    /// The kernel refused a knote, and must not be asked again.
    refused: bool,
    /// Conditions that hold must be reported again, by knotes that reported them before too.
    repeat: bool,
    /// The index of the source in the queue of changes.
    queued: Option<usize>,
}

impl Watch {
    pub(crate) fn new(interest: Interest, mode: Mode) -> Watch {
        Watch {
            interest,
            mode,
            disarmed: false,
            armed: [None; 3],
            ready: Readiness::NONE,
            refused: false,
            repeat: false,
            queued: None,
        }
    }

    /// Replaces the interest.
    pub(crate) fn modify(&mut self, interest: Interest, mode: Mode) {
        (self.interest, self.mode) = (interest, mode);
        (self.disarmed, self.repeat) = (false, true);
    }

    /// In a forked child: the new queue has no knotes.
    pub(crate) fn forget_knotes(&mut self) {
        self.armed = [None; 3];
    }

    /// Puts the source in the queue of changes, once.
    pub(crate) fn queue(&mut self, token: Token, changed: &mut Vec<Token>) {
        if self.queued.is_none() {
            self.queued = Some(changed.len());
            changed.push(token);
        }
    }

    /// The index of the source in the queue of changes.
    pub(crate) fn queued(&mut self) -> &mut Option<usize> {
        &mut self.queued
    }

    /// The filters that have a knote.
    pub(crate) fn armed(&self) -> impl Iterator<Item = Filter> {
        let armed = self.armed;
        Filter::ALL.into_iter().filter(move |filter| armed[*filter as usize].is_some())
    }

    /// Appends the changes that turn the armed knotes into those that the interest requires. The
    /// caller makes them.
    pub(crate) fn changes(&mut self, fd: RawFd, token: Token, list: &mut Vec<Kevent>) {
        let repeat = mem::take(&mut self.repeat);
        for filter in Filter::ALL {
            let (armed, wanted) = (self.armed[filter as usize], self.wanted(filter));
            // A level-triggered knote fires again anyway, and a one-shot knote has not fired yet.
            // For the others, the BSDs evaluate an EV_ADD of an existing knote. A deletion and
            // an addition make them fire on every system.
            let is_edge = matches!(armed, Some(Knote::Edge | Knote::Broad));
            if armed == wanted && !(repeat && is_edge) {
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

    /// True if [`Watch::changes`] would append a change.
    pub(crate) fn has_unflushed_changes(&self) -> bool {
        self.repeat || Filter::ALL.iter().any(|f| self.armed[*f as usize] != self.wanted(*f))
    }

    /// Records that a knote fired. Returns true for the first readiness of the source in this
    /// wait.
    pub(crate) fn fired(&mut self, filter: Filter, event: &Kevent) -> bool {
        let armed = &mut self.armed[filter as usize];
        if *armed == Some(Knote::Oneshot) {
            *armed = None;
        }
        self.record(readiness(filter, event))
    }

    /// Records that the kernel refused a knote. Returns as [`Watch::fired`] does.
    pub(crate) fn refused(&mut self, filter: Filter, refusal: Refusal) -> bool {
        self.clear_knote(filter);
        // A level-triggered source is reported again by asking again at every wait, an
        // edge-triggered one is reported once.
        self.refused |= refusal == Refusal::Error || self.mode == Mode::Edge;
        self.record(match refusal {
            Refusal::BrokenPipe | Refusal::Error => Readiness::ERROR,
            Refusal::HungUp => {
                Readiness::READ | Readiness::DISCONNECT | Readiness::WRITE | Readiness::HANGUP
            }
        })
    }

    /// Records that the kernel has no knote in this filter.
    pub(crate) fn clear_knote(&mut self, filter: Filter) {
        self.armed[filter as usize] = None;
    }

    /// Records that the kernel may have a knote in this filter, or not.
    pub(crate) fn mark_unknown(&mut self, filter: Filter) {
        self.armed[filter as usize] = Some(Knote::Unknown);
    }

    /// Takes the readiness to report from that recorded in this wait. It may be empty.
    pub(crate) fn report(&mut self) -> Readiness {
        let mut recorded = mem::take(&mut self.ready);
        if !recorded.contains(Readiness::DISCONNECT) {
            // A local shutdown ends the writing direction too. It is a hang-up only if the
            // reading direction has ended as well.
            recorded.remove(Readiness::HANGUP);
        }
        let interest = if self.disarmed { Interest::NONE } else { self.interest };
        let ready = interest.report(recorded);
        if mem::take(&mut self.refused) || self.mode == Mode::Oneshot && !ready.is_empty() {
            self.disarmed = true;
        }
        let from_broad =
            Readiness::DISCONNECT | Readiness::PRIORITY | Readiness::HANGUP | Readiness::ERROR;
        if self.mode == Mode::Level && ready.intersects(from_broad) {
            self.repeat |= self.armed.contains(&Some(Knote::Broad));
        }
        ready
    }

    fn wanted(&self, filter: Filter) -> Option<Knote> {
        if self.disarmed { None } else { wanted(filter, self.interest, self.mode) }
    }

    fn record(&mut self, ready: Readiness) -> bool {
        let is_first = self.ready.is_empty() && !ready.is_empty();
        self.ready |= ready;
        is_first
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
        assert!(!watch.has_unflushed_changes(), "one call appends all changes");
        assert!(list.iter().all(|change| change.ident() == FD as usize));
        assert!(list.iter().all(|change| change.udata() == udata(TOKEN)));
        let known = [EV_ADD, EV_DELETE, EV_CLEAR, EV_ONESHOT];
        let flags = |change: &Kevent| known.into_iter().filter(|flag| change.has(*flag)).sum();
        list.iter().map(|change| (Filter::of(change).unwrap(), flags(change))).collect()
    }

    #[test]
    fn events_map_to_readiness_as_documented() {
        // As the BSDs and Apple number it: it contains the bit of NOTE_OOB.
        const ECONNRESET: u32 = 54;
        let error = ECONNRESET;
        for (filter, flags, fflags, expected) in [
            (Filter::Read, 0, 0, Readiness::READ),
            (Filter::Read, EV_EOF, 0, Readiness::READ | Readiness::DISCONNECT),
            (
                Filter::Read,
                EV_EOF,
                error,
                Readiness::READ | Readiness::DISCONNECT | Readiness::ERROR,
            ),
            (Filter::Write, 0, 0, Readiness::WRITE),
            (Filter::Write, EV_EOF, 0, Readiness::WRITE | Readiness::HANGUP),
            (Filter::Write, EV_EOF, error, Readiness::WRITE | Readiness::HANGUP | Readiness::ERROR),
            (Filter::Except, 0, NOTE_OOB, Readiness::PRIORITY),
            (Filter::Except, EV_EOF, 0, Readiness::NONE),
            (Filter::Except, EV_EOF, ECONNRESET, Readiness::NONE),
        ] {
            let ready = readiness(filter, &event(filter, flags, fflags));
            assert_eq!(ready, expected, "{filter:?}, flags {flags:#x}, fflags {fflags}");
        }
    }

    #[test]
    fn a_hangup_is_the_end_of_both_directions() {
        let both = Interest::READ | Interest::WRITE;
        let mut watch = Watch::new(both, Mode::Level);
        assert!(watch.fired(Filter::Write, &event(Filter::Write, EV_EOF, 0)));
        assert_eq!(watch.report(), Readiness::WRITE);
        watch.fired(Filter::Write, &event(Filter::Write, EV_EOF, 0));
        assert!(
            !watch.fired(Filter::Read, &event(Filter::Read, EV_EOF, 0)),
            "the source is in the batch"
        );
        assert_eq!(watch.report(), both.to_readiness() | Readiness::HANGUP);
    }

    #[test]
    fn modify_changes_only_the_knotes_that_differ() {
        let mut watch = Watch::new(Interest::READ, Mode::Level);
        assert_eq!(changes(&mut watch), [(Filter::Read, EV_ADD)]);
        watch.modify(Interest::READ | Interest::WRITE, Mode::Level);
        assert_eq!(changes(&mut watch), [(Filter::Write, EV_ADD)]);
        watch.modify(Interest::READ | Interest::WRITE, Mode::Level);
        assert_eq!(changes(&mut watch), []);
        watch.modify(Interest::NONE, Mode::Level);
        assert_eq!(changes(&mut watch), [(Filter::Read, EV_DELETE), (Filter::Write, EV_DELETE)]);
    }

    #[test]
    fn a_change_of_mode_replaces_the_knote() {
        let mut watch = Watch::new(Interest::READ, Mode::Level);
        changes(&mut watch);
        watch.modify(Interest::READ, Mode::Edge);
        let replaced = [(Filter::Read, EV_DELETE), (Filter::Read, EV_ADD | EV_CLEAR)];
        assert_eq!(changes(&mut watch), replaced);
        watch.modify(Interest::READ, Mode::Edge);
        assert_eq!(changes(&mut watch), replaced, "conditions that hold are reported again");
    }

    #[test]
    fn a_fired_oneshot_source_deletes_its_other_knote() {
        let mut watch = Watch::new(Interest::READ | Interest::WRITE, Mode::Oneshot);
        changes(&mut watch);
        watch.fired(Filter::Write, &event(Filter::Write, 0, 0));
        assert_eq!(watch.report(), Readiness::WRITE);
        assert!(watch.has_unflushed_changes());
        assert_eq!(changes(&mut watch), [(Filter::Read, EV_DELETE)]);
        watch.modify(Interest::WRITE, Mode::Oneshot);
        assert_eq!(changes(&mut watch), [(Filter::Write, EV_ADD | EV_ONESHOT)]);
    }

    #[test]
    fn an_interest_in_disconnect_alone_ignores_data() {
        let mut watch = Watch::new(Interest::DISCONNECT, Mode::Level);
        assert_eq!(changes(&mut watch), [(Filter::Read, EV_ADD | EV_CLEAR)]);
        watch.fired(Filter::Read, &event(Filter::Read, 0, 0));
        assert_eq!(watch.report(), Readiness::NONE);
        assert!(!watch.has_unflushed_changes(), "unread data must not cause a busy loop");
        watch.fired(Filter::Read, &event(Filter::Read, EV_EOF, 0));
        assert_eq!(watch.report(), Readiness::DISCONNECT);
        assert!(watch.has_unflushed_changes(), "a level-triggered condition is reported again");
    }

    #[test]
    fn unknown_knotes_are_replaced() {
        let mut watch = Watch::new(Interest::READ, Mode::Level);
        changes(&mut watch);
        watch.mark_unknown(Filter::Read);
        assert_eq!(changes(&mut watch), [(Filter::Read, EV_DELETE), (Filter::Read, EV_ADD)]);
    }
}
