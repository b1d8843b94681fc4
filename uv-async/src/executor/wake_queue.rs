//! The queue of woken tasks: lock-free, for any number of waking threads and one loop.
//!
//! A stack of task ids, linked through the nodes of the tasks. The loop takes the whole stack at
//! once, so that no entry is removed while another thread links to it. The head also records whether
//! the loop has to be notified: after the first push onto a queue that it is not draining, and only
//! then.
//!
//! The loop's own thread has a list without atomics beside it: see `tasks`.

use super::sync::{AtomicBool, AtomicU32, Ordering};

/// The queue is empty, and the loop does not check it until it is notified.
const IDLE: u32 = u32::MAX;
/// The queue is empty, and the loop is going to check it.
const DRAINING: u32 = u32::MAX - 1;

/// The number of ids that a queue can hold.
pub(crate) const MAX_IDS: u32 = DRAINING;

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
        Node { id, queued: AtomicBool::new(false), next: AtomicU32::new(IDLE) }
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
        WakeQueue { head: AtomicU32::new(IDLE) }
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
                Ok(_) => return head == IDLE,
                Err(changed) => head = changed,
            }
        }
    }

    /// Begins to drain: until [`end_drain`](WakeQueue::end_drain) no push needs a notification. True if there are entries to [take](WakeQueue::take). A push that this misses is found by the
    /// next call, or by [`end_drain`](WakeQueue::end_drain).
    #[inline]
    pub(crate) fn begin_drain(&self) -> bool {
        match self.head.load(Ordering::Relaxed) {
            DRAINING => false,
            IDLE => {
                let begun =
                    self.head.compare_exchange(IDLE, DRAINING, Ordering::AcqRel, Ordering::Relaxed);
                begun.is_err()
            }
            _ => true,
        }
    }

    /// Takes all entries; `node` finds a node by its id, and `taken` gets the ids, the last one
    /// first. The loop is draining afterwards.
    ///
    /// Called by the loop's thread only.
    pub(crate) fn take<'a>(
        &self,
        node: impl Fn(u32) -> Option<&'a Node>,
        mut taken: impl FnMut(u32),
    ) {
        let mut id = self.head.swap(DRAINING, Ordering::AcqRel);
        while id < DRAINING {
            let Some(node) = node(id) else { break };
            id = node.next.load(Ordering::Relaxed);
            taken(node.id);
        }
    }

    /// Ends draining. False if there are new entries: then the loop goes on.
    #[inline]
    pub(crate) fn end_drain(&self) -> bool {
        let left = self.head.compare_exchange(DRAINING, IDLE, Ordering::AcqRel, Ordering::Acquire);
        matches!(left, Ok(_) | Err(IDLE))
    }
}
