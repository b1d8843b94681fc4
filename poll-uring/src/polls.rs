//! Readiness: the polls in flight, kept in line with what is wanted.
//!
//! Level and one-shot sources are one `POLL_ADD`, which completes once; a level
//! source is armed again by the next wait, in the same system call that sleeps.
//! Edge sources are one multishot `POLL_ADD`.

use std::collections::VecDeque;
use std::io;
use std::mem;

use io_uring::types::Fd;
use io_uring::{opcode, squeue};
use poll_core::{Event, Mode, RawSource, Ready, Registry, Token};

use crate::ring::{Completion, Ring};
use crate::user_data::UserData;

/// The registrations and their polls.
#[derive(Debug, Default)]
pub(crate) struct Polls {
    watches: Registry<Watch>,
    /// Registrations to look at before the next wait.
    changed: VecDeque<Token>,
    /// The poll in flight of one of them may not be what is wanted.
    outdated: bool,
    slots: Slots,
    /// Polls that nobody wants any more and that the ring has not been told to end.
    leaving: Vec<Armed>,
    /// A [`HEARSAY`] result is to be checked.
    doubts: bool,
    /// Counts waits, to tell a second event of one source in the same wait.
    turn: u64,
}

/// A registration.
#[derive(Debug)]
struct Watch {
    wanted: Ready,
    mode: Mode,
    armed: Option<Armed>,
    /// The poll in flight is to be replaced even if it is what is wanted: an edge
    /// that has passed shows only to a new one.
    renew: bool,
    /// The poll in flight was started to check a [`HEARSAY`] result.
    checking: bool,
    /// Is in [`Polls::changed`].
    queued: bool,
    /// The turn of the last event, and where it is in that wait's list.
    reported: (u64, usize),
}

/// A poll in flight.
#[derive(Clone, Copy, Debug)]
struct Armed {
    slot: u32,
    what: Poll,
}

/// What a poll looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Poll {
    events: u32,
    multishot: bool,
}

impl Watch {
    /// The poll that should be in flight.
    fn goal(&self) -> Option<Poll> {
        let events = to_poll(self.wanted);
        (events != 0).then_some(Poll { events, multishot: self.mode == Mode::Edge })
    }

    /// Adds what a poll has seen to `events`, once a source and turn.
    fn report(&mut self, token: Token, result: i32, turn: u64, events: &mut Vec<Event>) {
        let seen = u32::try_from(result).map_or(Ready::ERROR, from_poll);
        let ready = self.wanted.report(seen);
        if ready.is_empty() {
            return;
        }
        if self.mode == Mode::Oneshot || result < 0 {
            self.wanted = Ready::NONE;
        }
        let (reported, index) = self.reported;
        if reported == turn
            && let Some(Event::Ready { ready: before, .. }) = events.get_mut(index)
        {
            *before |= ready;
            return;
        }
        self.reported = (turn, events.len());
        events.push(Event::Ready { token, ready });
    }
}

impl Polls {
    pub(crate) fn register(
        &mut self,
        token: Token,
        source: RawSource,
        wanted: Ready,
        mode: Mode,
    ) -> io::Result<()> {
        let watch = Watch {
            wanted,
            mode,
            armed: None,
            renew: false,
            checking: false,
            queued: false,
            reported: (0, 0),
        };
        let watch = self.watches.insert(token, source, watch)?;
        queue(&mut self.changed, token, watch);
        Ok(())
    }

    pub(crate) fn modify(&mut self, token: Token, wanted: Ready, mode: Mode) -> io::Result<()> {
        let watch = self.watches.get_mut(token)?;
        (watch.wanted, watch.mode) = (wanted, mode);
        watch.renew = mode == Mode::Edge;
        self.outdated |= watch.armed.is_some();
        queue(&mut self.changed, token, watch);
        Ok(())
    }

    /// Forgets a registration. True if its poll is in flight and holds the source's
    /// file open: then [`send_off`](Polls::send_off) and enter the ring.
    pub(crate) fn deregister(&mut self, token: Token) -> io::Result<bool> {
        let (_, watch) = self.watches.remove(token)?;
        if let Some(armed) = watch.armed {
            self.slots.disown(armed.slot);
            self.leaving.push(armed);
        }
        Ok(watch.armed.is_some())
    }

    /// Queues whatever makes the polls in flight what is wanted.
    pub(crate) fn flush(&mut self, ring: &mut Ring) -> io::Result<()> {
        if mem::take(&mut self.outdated) {
            for &token in &self.changed {
                if let Some((_, watch)) = self.watches.find(token)
                    && let Some(armed) = watch.armed
                    && (watch.renew || watch.goal() != Some(armed.what))
                {
                    self.slots.disown(armed.slot);
                    self.leaving.push(armed);
                    watch.armed = None;
                }
            }
        }
        // Ends go before beginnings, and the youngest poll first: that is the order in
        // which the kernel looks for them.
        self.send_off(ring)?;
        while let Some(&token) = self.changed.front() {
            // Deregistered since, perhaps.
            if let Some((source, watch)) = self.watches.find(token) {
                if watch.armed.is_none()
                    && let Some(what) = watch.goal()
                {
                    let slot = self.slots.take(token);
                    // SAFETY: a poll points to no memory.
                    if let Err(error) = unsafe { ring.push(&add(source, what, slot)) } {
                        self.slots.free(slot);
                        return Err(error);
                    }
                    watch.armed = Some(Armed { slot, what });
                }
                (watch.renew, watch.queued) = (false, false);
            }
            self.changed.pop_front();
        }
        Ok(())
    }

    /// True if a [`flush`](Polls::flush) has something to queue, or may have.
    pub(crate) fn has_changes(&self) -> bool {
        !self.changed.is_empty() || !self.leaving.is_empty()
    }

    /// Queues the ends of polls that nobody wants any more.
    pub(crate) fn send_off(&mut self, ring: &mut Ring) -> io::Result<()> {
        while let Some(&armed) = self.leaving.last() {
            ring.push_quietly(remove(armed))?;
            self.leaving.pop();
        }
        Ok(())
    }

    /// How many completions are certain to come soon and to say nothing: one for each
    /// poll that is being ended. A wait for news waits for one more than that.
    pub(crate) fn noise(&self) -> usize {
        self.slots.disowned
    }

    /// True if something was seen that only another look can tell, which the next
    /// [`flush`](Polls::flush) asks for. Once.
    pub(crate) fn has_doubts(&mut self) -> bool {
        mem::take(&mut self.doubts)
    }

    /// A wait begins.
    pub(crate) fn begin_turn(&mut self) {
        self.turn += 1;
    }

    /// A poll has completed: reports it if that is wanted.
    pub(crate) fn complete(&mut self, slot: u32, done: Completion, events: &mut Vec<Event>) {
        let Some(token) = self.slots.owner(slot) else {
            if !done.more() {
                self.slots.free(slot);
            }
            return;
        };
        let Some((_, watch)) = self.watches.find(token) else { return };
        if !done.more() {
            self.slots.free(slot);
            watch.armed = None;
        }
        // This backend disowns what it cancels: if a poll is cancelled all the same, the
        // thread that armed it has ended, and it is armed again like any other.
        let hearsay = is_hearsay(done.result) && !watch.checking;
        watch.checking = hearsay;
        self.doubts |= hearsay;
        if hearsay {
            watch.renew = watch.armed.is_some();
        } else if done.result != -libc::ECANCELED {
            watch.report(token, done.result, self.turn, events);
        }
        if watch.renew || watch.goal() != watch.armed.map(|armed| armed.what) {
            self.outdated |= watch.armed.is_some();
            queue(&mut self.changed, token, watch);
        }
    }

    /// The ring is gone, and all polls with it: arms everything again.
    pub(crate) fn start_over(&mut self) {
        self.slots = Slots::default();
        self.leaving.clear();
        for (token, _, watch) in self.watches.iter_mut() {
            watch.armed = None;
            queue(&mut self.changed, token, watch);
        }
    }
}

fn queue(changed: &mut VecDeque<Token>, token: Token, watch: &mut Watch) {
    if !mem::replace(&mut watch.queued, true) {
        changed.push_back(token);
    }
}

/// Numbers for polls in flight. One is free again only after the poll's last completion.
#[derive(Debug, Default)]
struct Slots {
    /// Who hears of the poll; nobody if it is being ended.
    owners: Vec<Option<Token>>,
    free: Vec<u32>,
    disowned: usize,
}

impl Slots {
    fn take(&mut self, owner: Token) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.owners.push(None);
            self.owners.len() as u32 - 1
        });
        self.owners[slot as usize] = Some(owner);
        slot
    }

    fn owner(&self, slot: u32) -> Option<Token> {
        self.owners.get(slot as usize).copied().flatten()
    }

    fn disown(&mut self, slot: u32) {
        self.owners[slot as usize] = None;
        self.disowned += 1;
    }

    fn free(&mut self, slot: u32) {
        if self.owners[slot as usize].take().is_none() {
            self.disowned -= 1;
        }
        self.free.push(slot);
    }
}

fn add(source: RawSource, what: Poll, slot: u32) -> squeue::Entry {
    opcode::PollAdd::new(Fd(source.fd()), what.events)
        .multi(what.multishot)
        .build()
        .user_data(UserData::Poll(slot).to_u64())
}

fn remove(armed: Armed) -> squeue::Entry {
    let target = UserData::Poll(armed.slot).to_u64();
    if armed.what.multishot {
        // `POLL_REMOVE` fails with `EALREADY` if an event is on its way, and the poll
        // stays; a cancel marks it, and it ends after the event.
        opcode::AsyncCancel::new(target).build()
    } else {
        opcode::PollRemove::new(target).build()
    }
}

const MAP: [(i16, Ready); 7] = [
    (libc::POLLIN, Ready::READ),
    (libc::POLLOUT, Ready::WRITE),
    (libc::POLLPRI, Ready::PRIORITY),
    (libc::POLLRDHUP, Ready::DISCONNECT),
    (libc::POLLHUP, Ready::HANGUP),
    (libc::POLLERR, Ready::ERROR),
    (libc::POLLNVAL, Ready::ERROR),
];

/// A bit that no socket ever is, but that all of them say when data arrives, urgent or
/// not. The kernel reports what was said, without a look at the socket, and nothing at
/// all to a poll for `POLLPRI` alone. So polls for `POLLPRI` also ask for this bit, and
/// where it comes back, a new poll looks at the socket.
const HEARSAY: u32 = libc::POLLRDBAND as u32;

/// True if a poll's result is what was said and not what is.
fn is_hearsay(result: i32) -> bool {
    u32::try_from(result).is_ok_and(|bits| bits & HEARSAY != 0)
}

/// What to poll for; 0 for an interest in nothing. Hang-ups and errors come unasked.
pub(crate) fn to_poll(interest: Ready) -> u32 {
    if interest == Ready::READ {
        return libc::POLLIN as u32; // Mostly.
    }
    let asked = interest & Ready::INTEREST;
    let bits = MAP.iter().filter(|(_, ready)| asked.contains(*ready)).map(|(bit, _)| bit);
    let hearsay = if asked.contains(Ready::PRIORITY) { HEARSAY } else { 0 };
    bits.fold(hearsay, |all, &bit| all | bit as u32)
}

/// What a poll has seen.
pub(crate) fn from_poll(bits: u32) -> Ready {
    if bits == libc::POLLIN as u32 {
        return Ready::READ; // Mostly.
    }
    MAP.iter().filter(|(bit, _)| bits & *bit as u32 != 0).map(|(_, ready)| *ready).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_survive_the_flag_map() {
        for ready in Ready::INTEREST.iter() {
            assert_eq!(from_poll(to_poll(ready)), ready);
        }
        assert_eq!(from_poll(libc::POLLHUP as u32), Ready::HANGUP);
        assert_eq!(from_poll(libc::POLLERR as u32), Ready::ERROR);
        assert_eq!(from_poll(libc::POLLNVAL as u32), Ready::ERROR);
    }

    #[test]
    fn only_polls_for_priority_listen_to_hearsay() {
        assert!(is_hearsay(to_poll(Ready::PRIORITY) as i32));
        assert!(!is_hearsay(to_poll(Ready::INTEREST - Ready::PRIORITY) as i32));
        assert!(!is_hearsay(-libc::EBADF));
    }

    #[test]
    fn failures_are_never_asked_for() {
        assert_eq!(to_poll(Ready::HANGUP | Ready::ERROR), 0);
        assert_eq!(to_poll(Ready::READ | Ready::ERROR), libc::POLLIN as u32);
    }

    #[test]
    fn a_slot_is_free_only_after_the_last_completion() {
        let mut slots = Slots::default();
        let first = slots.take(Token::new(0, 0));
        slots.disown(first);
        assert_eq!(slots.disowned, 1);
        let second = slots.take(Token::new(0, 1));
        assert_ne!(first, second);
        assert_eq!(slots.owner(first), None);
        slots.free(first);
        assert_eq!(slots.disowned, 0);
        assert_eq!(slots.take(Token::new(1, 0)), first);
        assert_eq!(slots.owner(second), Some(Token::new(0, 1)));
    }
}
