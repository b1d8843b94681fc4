//! The run queue: the order in which the watchers of a phase run.

/// A circular list of indices, most recently started first, that may change during a round.
///
/// A round goes from the first member to the last. A member that is added during a round is
/// inserted before the first and runs in the next round; one that is removed does not run. If a
/// panic ends a round, the next round begins with the members that have not run.
#[derive(Debug)]
pub(crate) struct RunQueue {
    /// The sentinel, which is before the first member and after the last; then the members.
    links: Vec<Link>,
    /// The next to run in this round; the sentinel if the round is over.
    next: u32,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
}

const SENTINEL: u32 = 0;
/// Member 0 is link 1.
const FIRST: u32 = 1;
/// A member that is not in the list.
const UNLINKED: Link = Link { prev: u32::MAX, next: u32::MAX };

impl Default for RunQueue {
    fn default() -> Self {
        RunQueue { links: vec![Link { prev: SENTINEL, next: SENTINEL }], next: SENTINEL, len: 0 }
    }
}

impl RunQueue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a member that is not in the list. It runs first from the next round on.
    pub(crate) fn push_front(&mut self, index: u32) {
        let link = index + FIRST;
        if link as usize >= self.links.len() {
            self.links.resize(link as usize + 1, UNLINKED);
        }
        self.insert(link, self.links[SENTINEL as usize].next);
        self.len += 1;
    }

    /// Removes a member.
    pub(crate) fn remove(&mut self, index: u32) {
        let link = index + FIRST;
        if self.next == link {
            self.next = self.links[link as usize].next;
        }
        self.unlink(link);
        self.len -= 1;
    }

    /// The first member of a round.
    #[inline]
    pub(crate) fn begin_round(&mut self) -> Option<u32> {
        if self.next != SENTINEL {
            // A panic ended the last round: members that have not run come first.
            self.unlink(SENTINEL);
            self.insert(SENTINEL, self.next);
        }
        self.next = self.links[SENTINEL as usize].next;
        self.next_in_round()
    }

    /// The next member of this round.
    #[inline]
    pub(crate) fn next_in_round(&mut self) -> Option<u32> {
        let index = self.next.checked_sub(FIRST)?;
        self.next = self.links[self.next as usize].next;
        Some(index)
    }

    /// Inserts a link before another.
    fn insert(&mut self, link: u32, next: u32) {
        let prev = std::mem::replace(&mut self.links[next as usize].prev, link);
        self.links[prev as usize].next = link;
        self.links[link as usize] = Link { prev, next };
    }

    fn unlink(&mut self, link: u32) {
        let Link { prev, next } = std::mem::replace(&mut self.links[link as usize], UNLINKED);
        self.links[prev as usize].next = next;
        self.links[next as usize].prev = prev;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(queue: &mut RunQueue, mut each: impl FnMut(&mut RunQueue, u32)) -> Vec<u32> {
        let mut ran = Vec::new();
        let mut next = queue.begin_round();
        while let Some(index) = next {
            ran.push(index);
            each(queue, index);
            next = queue.next_in_round();
        }
        ran
    }

    #[test]
    fn most_recently_started_member_runs_first_in_every_round() {
        let mut queue = RunQueue::default();
        for index in 0..3 {
            queue.push_front(index);
        }
        assert_eq!(round(&mut queue, |_, _| {}), [2, 1, 0]);
        assert_eq!(round(&mut queue, |_, _| {}), [2, 1, 0]);
    }

    #[test]
    fn members_added_or_removed_during_a_round_do_not_run_in_it() {
        let mut queue = RunQueue::default();
        for index in 0..3 {
            queue.push_front(index);
        }
        let ran = round(&mut queue, |queue, index| {
            if index == 2 {
                queue.remove(1);
                queue.push_front(7);
            }
        });
        assert_eq!(ran, [2, 0], "7 runs from the next round on");
        assert_eq!(round(&mut queue, |_, _| {}), [7, 2, 0]);
        for index in [7, 2, 0] {
            queue.remove(index);
        }
        assert!(queue.is_empty());
        assert_eq!(round(&mut queue, |_, _| {}), [0; 0]);
    }

    #[test]
    fn the_next_member_of_a_round_may_be_removed() {
        let mut queue = RunQueue::default();
        for index in 0..4 {
            queue.push_front(index);
        }
        let ran = round(&mut queue, |queue, index| {
            if index == 3 {
                queue.remove(2);
                queue.remove(1);
                queue.push_front(2);
            }
        });
        assert_eq!(ran, [3, 0], "a member that is added again runs in the next round");
        assert_eq!(queue.begin_round(), Some(2));
        for index in [3, 0, 2] {
            queue.remove(index);
        }
        assert_eq!(queue.next_in_round(), None);
        assert_eq!(round(&mut queue, |_, _| {}), [0; 0]);
    }

    #[test]
    fn an_interrupted_round_continues_in_the_next() {
        let mut queue = RunQueue::default();
        for index in 0..3 {
            queue.push_front(index);
        }
        assert_eq!(queue.begin_round(), Some(2));
        queue.push_front(7);
        assert_eq!(round(&mut queue, |_, _| {}), [1, 0, 7, 2]);
        assert_eq!(round(&mut queue, |_, _| {}), [1, 0, 7, 2]);
    }
}
