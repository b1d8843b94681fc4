//! The queue of woken tasks: lock-free, for any number of waking threads and one loop.
//!
//! A stack of task ids, linked through the nodes of the tasks. The loop takes the whole stack at
//! once and reverses it, so that no entry is removed while another thread links to it. The head
//! also records whether the loop has to be notified: after the first push onto a queue that is not
//! attended, and only then.

use super::sync::{AtomicBool, AtomicU32, Ordering};

/// The queue is empty, and the loop does not check it until it is notified.
const UNATTENDED: u32 = u32::MAX;
/// The queue is empty, and the loop is going to check it.
const ATTENDED: u32 = u32::MAX - 1;

/// The number of ids that a queue can hold.
pub(crate) const MAX_IDS: u32 = ATTENDED;

/// The queue.
#[derive(Debug)]
pub(crate) struct WakeQueue {
    head: AtomicU32,
}

/// The part of a task that is linked into the queue.
#[derive(Debug)]
pub(crate) struct Node {
    id: u32,
    /// In the queue, about to be, or taken from it and not yet begun.
    queued: AtomicBool,
    /// The entry below, while it is in the queue.
    next: AtomicU32,
}

impl Node {
    pub(crate) fn new(id: u32) -> Node {
        debug_assert!(id < MAX_IDS);
        Node { id, queued: AtomicBool::new(false), next: AtomicU32::new(UNATTENDED) }
    }

    /// Marks it as queued. False if it was already: then the entry that is there serves both.
    pub(crate) fn claim(&self) -> bool {
        !self.queued.swap(true, Ordering::AcqRel)
    }

    /// A wake from here on queues it again. Writes before the wakes so far are visible afterwards:
    /// a swap, because a store would not read what the last wake wrote.
    pub(crate) fn begin(&self) {
        self.queued.swap(false, Ordering::AcqRel);
    }
}

impl WakeQueue {
    pub(crate) fn new() -> WakeQueue {
        WakeQueue { head: AtomicU32::new(UNATTENDED) }
    }

    /// Queues a node unless it is queued. True if the loop has to be notified.
    pub(crate) fn push(&self, node: &Node) -> bool {
        if !node.claim() {
            return false;
        }
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            node.next.store(head, Ordering::Relaxed);
            // Release: the loop reads `next` after it has taken the head. Acquire: a notification
            // that follows comes after the one that the loop has cleared before its last pass.
            match self.head.compare_exchange_weak(
                head,
                node.id,
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return head == UNATTENDED,
                Err(changed) => head = changed,
            }
        }
    }

    /// Takes all entries in the order of the pushes; `node` finds a node by its id. From here until
    /// [`leave`](WakeQueue::leave) the queue is attended.
    ///
    /// Called by the loop's thread only.
    pub(crate) fn take<'a>(
        &self,
        node: impl Fn(u32) -> Option<&'a Node>,
        into: &mut impl Extend<u32>,
        reversed: &mut Vec<u32>,
    ) {
        // Most calls find nothing. A push that this load misses is found by the next call, or by
        // `leave`.
        if self.head.load(Ordering::Relaxed) == ATTENDED {
            return;
        }
        let mut id = self.head.swap(ATTENDED, Ordering::AcqRel);
        if id == UNATTENDED {
            return;
        }
        while id < ATTENDED {
            reversed.push(id);
            let Some(node) = node(id) else { break };
            id = node.next.load(Ordering::Relaxed);
        }
        into.extend(reversed.drain(..).rev());
    }

    /// Ends the attendance. False if there are new entries: then it goes on.
    pub(crate) fn leave(&self) -> bool {
        let left =
            self.head.compare_exchange(ATTENDED, UNATTENDED, Ordering::AcqRel, Ordering::Acquire);
        matches!(left, Ok(_) | Err(UNATTENDED))
    }
}
