//! The order in which the watchers of a phase run.

/// A circular list of indices, most recently started first, that can be run while
/// it changes.
///
/// A round goes from the first member to the last. One that is added meanwhile comes before
/// the first, and so waits for the next round; one that is removed meanwhile does not run. A
/// round cut short by a panic goes on with the next, which begins with those that have not run.
#[derive(Debug)]
pub(crate) struct RunQueue {
    /// The anchor, which is before the first member and after the last; then the members.
    links: Vec<Link>,
    /// The next to run in this round; the anchor if the round is over.
    next: u32,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
}

const ANCHOR: u32 = 0;
/// Member 0 is link 1.
const FIRST: u32 = 1;
/// A member that is not in the list.
const APART: Link = Link { prev: u32::MAX, next: u32::MAX };

impl Default for RunQueue {
    fn default() -> Self {
        RunQueue { links: vec![Link { prev: ANCHOR, next: ANCHOR }], next: ANCHOR, len: 0 }
    }
}

impl RunQueue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a member that is not in the list, to run first in the rounds to come.
    pub(crate) fn push_front(&mut self, index: u32) {
        let link = index + FIRST;
        if link as usize >= self.links.len() {
            self.links.resize(link as usize + 1, APART);
        }
        self.insert(link, self.links[ANCHOR as usize].next);
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
        if self.next != ANCHOR {
            // The last round was cut short: who has not run comes first, who has comes last.
            self.unlink(ANCHOR);
            self.insert(ANCHOR, self.next);
        }
        self.next = self.links[ANCHOR as usize].next;
        self.next_in_round()
    }

    /// The next member of this round.
    #[inline]
    pub(crate) fn next_in_round(&mut self) -> Option<u32> {
        let index = self.next.checked_sub(FIRST)?;
        self.next = self.links[self.next as usize].next;
        Some(index)
    }

    /// Puts a link before another.
    fn insert(&mut self, link: u32, next: u32) {
        let prev = std::mem::replace(&mut self.links[next as usize].prev, link);
        self.links[prev as usize].next = link;
        self.links[link as usize] = Link { prev, next };
    }

    fn unlink(&mut self, link: u32) {
        let Link { prev, next } = std::mem::replace(&mut self.links[link as usize], APART);
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
    fn the_most_recent_runs_first_round_after_round() {
        let mut queue = RunQueue::default();
        for index in 0..3 {
            queue.push_front(index);
        }
        assert_eq!(round(&mut queue, |_, _| {}), [2, 1, 0]);
        assert_eq!(round(&mut queue, |_, _| {}), [2, 1, 0]);
    }

    #[test]
    fn changes_during_a_round() {
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
        assert_eq!(ran, [2, 0], "a removed one does not run, an added one not yet");
        assert_eq!(round(&mut queue, |_, _| {}), [7, 2, 0]);
        for index in [7, 2, 0] {
            queue.remove(index);
        }
        assert!(queue.is_empty());
        assert_eq!(round(&mut queue, |_, _| {}), [0; 0]);
    }

    #[test]
    fn those_that_are_next_may_go() {
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
        assert_eq!(ran, [3, 0], "one that starts anew has had its turn");
        assert_eq!(queue.begin_round(), Some(2));
        for index in [3, 0, 2] {
            queue.remove(index);
        }
        assert_eq!(queue.next_in_round(), None);
        assert_eq!(round(&mut queue, |_, _| {}), [0; 0]);
    }

    #[test]
    fn a_round_cut_short_goes_on_with_the_next() {
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
