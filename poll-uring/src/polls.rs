//! Readiness: which polls are wanted, and which are in flight.
//!
//! A level-triggered or one-shot source is one `POLL_ADD`, which completes once. A level-triggered
//! source is armed again by the next wait, in the system call that sleeps. An edge-triggered source
//! is one multishot `POLL_ADD`.

use std::collections::VecDeque;
use std::io;
use std::mem;

use io_uring::types::Fd;
use io_uring::{opcode, squeue};
use poll_core::{Event, Interest, Mode, RawSource, Readiness, Registry, Token};

use crate::listener::Watcher;
use crate::ring::{Completion, Ring};
use crate::user_data::UserData;

/// The registrations and their polls.
#[derive(Debug, Default)]
pub(crate) struct Polls {
    /// The registrations.
    watches: Registry<Watch>,
    /// Registrations whose wanted poll may differ from the armed one.
    changed: VecDeque<Token>,
    /// One of them has an armed poll that may have to be removed.
    outdated: bool,
    /// The numbers of polls in flight.
    slots: Slots,
    /// Polls in flight whose removal is not queued yet.
    removals: Vec<Armed>,
    /// An [`UNVERIFIED`] result is to be checked by a new poll.
    needs_repoll: bool,
    /// The number of the current wait: several events of a source in one wait are merged.
    wait: u64,
}

/// A registration.
#[derive(Debug)]
struct Watch {
    /// The interest; empty after a one-shot event or a failed poll.
    wanted: Interest,
    mode: Mode,
    /// The poll in flight.
    armed: Option<Armed>,
    /// The armed poll is to be replaced even if it is the wanted one: only a new poll reports an
    /// edge that has passed.
    renew: bool,
    /// The armed poll verifies an [`UNVERIFIED`] result.
    verifying: bool,
    /// The registration is in [`Polls::changed`].
    queued: bool,
    /// The epoll instance that is polled instead of a [listening socket](crate::listener).
    watcher: Option<Watcher>,
    /// The wait that reported the last event, and the event's index in the list of that wait.
    reported: (u64, usize),
}

/// A poll in flight.
#[derive(Clone, Copy, Debug)]
struct Armed {
    slot: u32,
    poll: Poll,
}

/// The arguments of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Poll {
    events: u32,
    multishot: bool,
}

impl Watch {
    /// The descriptor to poll.
    fn polled(&self, source: RawSource) -> Fd {
        Fd(self.watcher.as_ref().map_or(source.fd(), Watcher::fd))
    }

    /// The poll that should be armed.
    fn wanted_poll(&self) -> Option<Poll> {
        let events = to_poll(self.wanted);
        (events != 0).then_some(Poll { events, multishot: self.mode == Mode::Edge })
    }

    /// Adds a poll's result to `events`, as one event for each source and wait.
    fn report(&mut self, token: Token, result: i32, wait: u64, events: &mut Vec<Event>) {
        let seen = u32::try_from(result).map_or(Readiness::ERROR, from_poll);
        let ready = self.wanted.report(seen);
        if ready.is_empty() {
            return;
        }
        if self.mode == Mode::Oneshot || result < 0 {
            self.wanted = Interest::NONE;
        }
        let (reported, index) = self.reported;
        if reported == wait
            && let Some(Event::Ready { ready: before, .. }) = events.get_mut(index)
        {
            *before |= ready;
            return;
        }
        self.reported = (wait, events.len());
        events.push(Event::Ready { token, ready });
    }
}

impl Polls {
    pub(crate) fn register(
        &mut self,
        token: Token,
        source: RawSource,
        wanted: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        let watch = Watch {
            wanted,
            mode,
            armed: None,
            renew: false,
            verifying: false,
            queued: false,
            watcher: None,
            reported: (0, 0),
        };
        let watch = self.watches.insert(token, source, watch)?;
        if wanted == Interest::READ && mode != Mode::Edge {
            watch.watcher = Watcher::of(source);
        }
        queue(&mut self.changed, token, watch);
        Ok(())
    }

    pub(crate) fn modify(&mut self, token: Token, wanted: Interest, mode: Mode) -> io::Result<()> {
        let watch = self.watches.get_mut(token)?;
        (watch.wanted, watch.mode) = (wanted, mode);
        watch.renew = mode == Mode::Edge;
        self.outdated |= watch.armed.is_some();
        queue(&mut self.changed, token, watch);
        Ok(())
    }

    /// Removes a registration. Returns true if its poll is in flight and holds the source's file
    /// open: the caller then calls [`submit_removals`](Polls::submit_removals) and enters the ring.
    pub(crate) fn deregister(&mut self, token: Token) -> io::Result<bool> {
        let (_, watch) = self.watches.remove(token)?;
        if let Some(armed) = watch.armed {
            self.slots.orphan(armed.slot);
            self.removals.push(armed);
        }
        Ok(watch.armed.is_some())
    }

    /// Queues the entries that make the armed polls the wanted ones.
    pub(crate) fn flush(&mut self, ring: &mut Ring) -> io::Result<()> {
        if mem::take(&mut self.outdated) {
            for &token in &self.changed {
                if let Some((_, watch)) = self.watches.find(token)
                    && let Some(armed) = watch.armed
                    && (watch.renew || watch.wanted_poll() != Some(armed.poll))
                {
                    self.slots.orphan(armed.slot);
                    self.removals.push(armed);
                    watch.armed = None;
                }
            }
        }
        // Removals go first, and the youngest poll first among them: the kernel searches its lists
        // in that order.
        self.submit_removals(ring)?;
        while let Some(&token) = self.changed.front() {
            // The source may have been deregistered since.
            if let Some((source, watch)) = self.watches.find(token) {
                if watch.armed.is_none()
                    && let Some(poll) = watch.wanted_poll()
                {
                    let slot = self.slots.take(token);
                    // SAFETY: a poll points to no memory.
                    if let Err(error) = unsafe { ring.push(&add(watch.polled(source), poll, slot)) }
                    {
                        self.slots.free(slot);
                        return Err(error);
                    }
                    watch.armed = Some(Armed { slot, poll });
                }
                (watch.renew, watch.queued) = (false, false);
            }
            self.changed.pop_front();
        }
        Ok(())
    }

    /// True if the next [`flush`](Polls::flush) may queue entries.
    pub(crate) fn has_unflushed_changes(&self) -> bool {
        !self.changed.is_empty() || !self.removals.is_empty()
    }

    /// Queues the removal of polls that are no longer wanted.
    pub(crate) fn submit_removals(&mut self, ring: &mut Ring) -> io::Result<()> {
        while let Some(&armed) = self.removals.last() {
            ring.push_ignored(remove(armed))?;
            self.removals.pop();
        }
        Ok(())
    }

    /// The number of completions that will follow soon and report nothing: one for each poll that
    /// is being removed. A wait for events waits for one more than that.
    pub(crate) fn expected_removals(&self) -> usize {
        self.slots.orphaned
    }

    /// True, once, if the next [`flush`](Polls::flush) queues a poll that verifies a result.
    pub(crate) fn take_needs_repoll(&mut self) -> bool {
        mem::take(&mut self.needs_repoll)
    }

    /// Starts a wait.
    pub(crate) fn begin_wait(&mut self) {
        self.wait += 1;
    }

    /// Handles a completion of a poll: reports it if the interest matches.
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
        // The polls that this backend cancels have no owner. A cancelled poll with an owner was
        // cancelled by the end of the thread that armed it: it is armed again like any other.
        let unverified = is_unverified(done.result) && !watch.verifying;
        watch.verifying = unverified;
        self.needs_repoll |= unverified;
        if unverified {
            watch.renew = watch.armed.is_some();
        } else if done.result != -libc::ECANCELED {
            watch.report(token, done.result, self.wait, events);
        }
        if watch.renew || watch.wanted_poll() != watch.armed.map(|armed| armed.poll) {
            self.outdated |= watch.armed.is_some();
            queue(&mut self.changed, token, watch);
        }
    }

    /// Arms every source again on a new ring: the old one is gone, and all its polls.
    pub(crate) fn restart(&mut self) {
        self.slots = Slots::default();
        self.removals.clear();
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

/// Numbers for polls in flight. A number is free again only after the poll's last completion.
#[derive(Debug, Default)]
struct Slots {
    /// The registration of each poll; `None` if the poll is being removed.
    owners: Vec<Option<Token>>,
    free: Vec<u32>,
    /// The number of polls that are being removed.
    orphaned: usize,
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

    fn orphan(&mut self, slot: u32) {
        self.owners[slot as usize] = None;
        self.orphaned += 1;
    }

    fn free(&mut self, slot: u32) {
        if self.owners[slot as usize].take().is_none() {
            self.orphaned -= 1;
        }
        self.free.push(slot);
    }
}

fn add(polled: Fd, poll: Poll, slot: u32) -> squeue::Entry {
    opcode::PollAdd::new(polled, poll.events)
        .multi(poll.multishot)
        .build()
        .user_data(UserData::Poll(slot).to_u64())
}

fn remove(armed: Armed) -> squeue::Entry {
    let target = UserData::Poll(armed.slot).to_u64();
    if armed.poll.multishot {
        // `POLL_REMOVE` fails with `EALREADY` while an event is being delivered, and the poll
        // stays. A cancel marks the poll, which then ends after the event.
        opcode::AsyncCancel::new(target).build()
    } else {
        opcode::PollRemove::new(target).build()
    }
}

const MAP: [(i16, Readiness); 7] = [
    (libc::POLLIN, Readiness::READ),
    (libc::POLLOUT, Readiness::WRITE),
    (libc::POLLPRI, Readiness::PRIORITY),
    (libc::POLLRDHUP, Readiness::DISCONNECT),
    (libc::POLLHUP, Readiness::HANGUP),
    (libc::POLLERR, Readiness::ERROR),
    (libc::POLLNVAL, Readiness::ERROR),
];

/// `POLLRDBAND` is in every socket's wake mask but never in its poll mask, so its presence means
/// that the kernel took the result from the wake-up and did not poll the socket again.
///
/// The wake mask is the same for ordinary and urgent data, and a poll for `POLLPRI` alone gets no
/// wake-up from it. So polls for `POLLPRI` also ask for this bit, and a result with this bit is
/// verified by a new poll.
const UNVERIFIED: u32 = libc::POLLRDBAND as u32;

/// True if a poll's result comes from a wake-up, without a second poll of the socket.
fn is_unverified(result: i32) -> bool {
    u32::try_from(result).is_ok_and(|bits| bits & UNVERIFIED != 0)
}

/// The poll mask of an interest; 0 if it is empty. Hang-ups and errors are always reported.
pub(crate) fn to_poll(interest: Interest) -> u32 {
    if interest == Interest::READ {
        return libc::POLLIN as u32; // The most frequent case.
    }
    let interest = interest & Interest::all();
    let bits = MAP
        .iter()
        .filter(|(_, ready)| interest.to_readiness().contains(*ready))
        .map(|(bit, _)| bit);
    let unverified = if interest.contains(Interest::PRIORITY) { UNVERIFIED } else { 0 };
    bits.fold(unverified, |all, &bit| all | bit as u32)
}

/// The readiness of a poll's result.
pub(crate) fn from_poll(bits: u32) -> Readiness {
    if bits == libc::POLLIN as u32 {
        return Readiness::READ; // The most frequent case.
    }
    MAP.iter().filter(|(bit, _)| bits & *bit as u32 != 0).map(|(_, ready)| *ready).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_map_round_trips() {
        for ready in Interest::all().iter() {
            assert_eq!(from_poll(to_poll(ready)), ready.to_readiness());
        }
        assert_eq!(from_poll(libc::POLLHUP as u32), Readiness::HANGUP);
        assert_eq!(from_poll(libc::POLLERR as u32), Readiness::ERROR);
        assert_eq!(from_poll(libc::POLLNVAL as u32), Readiness::ERROR);
    }

    #[test]
    fn only_polls_for_priority_can_be_unverified() {
        assert!(is_unverified(to_poll(Interest::PRIORITY) as i32));
        assert!(!is_unverified(to_poll(Interest::all() - Interest::PRIORITY) as i32));
        assert!(!is_unverified(-libc::EBADF));
    }

    #[test]
    fn hangup_and_error_are_not_in_the_poll_mask() {
        assert_eq!(to_poll(Interest::NONE), 0);
        assert_eq!(to_poll(Interest::READ), libc::POLLIN as u32);
    }

    #[test]
    fn slot_is_reused_only_after_the_last_completion() {
        let mut slots = Slots::default();
        let first = slots.take(Token::new(0, 0));
        slots.orphan(first);
        assert_eq!(slots.orphaned, 1);
        let second = slots.take(Token::new(0, 1));
        assert_ne!(first, second);
        assert_eq!(slots.owner(first), None);
        slots.free(first);
        assert_eq!(slots.orphaned, 0);
        assert_eq!(slots.take(Token::new(1, 0)), first);
        assert_eq!(slots.owner(second), Some(Token::new(0, 1)));
    }
}
