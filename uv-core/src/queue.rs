//! The order in which the watchers of a phase run.

/// A circular list of indices, most recently started first, that can be run while
/// it changes.
///
/// A round moves all members aside and takes them one by one, appending each to the
/// list again before it runs. So members keep their order from round to round, one
/// that is added meanwhile waits for the next round, and one that is removed
/// meanwhile does not run. A round cut short by a panic goes on with the next.
#[derive(Debug)]
pub(crate) struct RunQueue {
    /// Two anchors, of the list and of the members moved aside; then the members.
    links: Vec<Link>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
}

const LIST: u32 = 0;
const ASIDE: u32 = 1;
/// Member 0 is link 2.
const ANCHORS: u32 = 2;
/// A member that is in neither list.
const APART: Link = Link { prev: u32::MAX, next: u32::MAX };

impl Default for RunQueue {
    fn default() -> Self {
        let anchors = [LIST, ASIDE].map(|anchor| Link { prev: anchor, next: anchor });
        RunQueue { links: anchors.to_vec(), len: 0 }
    }
}

impl RunQueue {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a member that is in no list, to run first in the rounds to come.
    pub(crate) fn push_front(&mut self, index: u32) {
        let link = index + ANCHORS;
        if link as usize >= self.links.len() {
            self.links.resize(link as usize + 1, APART);
        }
        self.insert(link, LIST, self.links[LIST as usize].next);
        self.len += 1;
    }

    /// Removes a member.
    pub(crate) fn remove(&mut self, index: u32) {
        self.unlink(index + ANCHORS);
        self.len -= 1;
    }

    /// Moves all members aside.
    #[inline]
    pub(crate) fn begin_round(&mut self) {
        let Link { prev: last, next: first } = self.links[LIST as usize];
        if first == LIST {
            return;
        }
        let aside = self.links[ASIDE as usize].prev;
        self.links[aside as usize].next = first;
        self.links[first as usize].prev = aside;
        self.links[last as usize].next = ASIDE;
        self.links[ASIDE as usize].prev = last;
        self.links[LIST as usize] = Link { prev: LIST, next: LIST };
    }

    /// The next member of this round.
    #[inline]
    pub(crate) fn next_in_round(&mut self) -> Option<u32> {
        let link = self.links[ASIDE as usize].next;
        if link == ASIDE {
            return None;
        }
        self.unlink(link);
        self.insert(link, self.links[LIST as usize].prev, LIST);
        Some(link - ANCHORS)
    }

    #[inline]
    fn insert(&mut self, link: u32, prev: u32, next: u32) {
        self.links[prev as usize].next = link;
        self.links[next as usize].prev = link;
        self.links[link as usize] = Link { prev, next };
    }

    #[inline]
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
        queue.begin_round();
        while let Some(index) = queue.next_in_round() {
            ran.push(index);
            each(queue, index);
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
    fn a_round_cut_short_goes_on_with_the_next() {
        let mut queue = RunQueue::default();
        for index in 0..3 {
            queue.push_front(index);
        }
        queue.begin_round();
        assert_eq!(queue.next_in_round(), Some(2));
        assert_eq!(round(&mut queue, |_, _| {}), [1, 0, 2]);
    }
}
