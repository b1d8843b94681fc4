//! The tasks of a runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};

use uv_core::AsyncSender;

use super::wake_queue::{MAX_IDS, Node, WakeQueue};

/// The future of a task.
pub(super) type BoxedTask = Pin<Box<dyn Future<Output = ()>>>;

/// What wakers of any thread use: the queue, and the sender that notifies the loop.
#[derive(Debug)]
pub(crate) struct Signal {
    pub(super) queue: WakeQueue,
    pub(super) sender: AsyncSender,
}

/// The part of a task that its wakers share. It outlives the task.
#[derive(Debug)]
pub(crate) struct Header {
    node: Node,
    aborted: AtomicBool,
    signal: Arc<Signal>,
}

impl Header {
    /// Makes the next poll drop the task.
    pub(super) fn abort(self: &Arc<Self>) {
        self.aborted.store(true, Ordering::Relaxed);
        self.wake_by_ref();
    }
}

impl Wake for Header {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.signal.queue.push(&self.node) {
            // Fails only if the runtime is gone, or if the backend cannot wake its loop: the entry
            // stays in the queue, and the next notification retries.
            let _ = self.signal.sender.send();
        }
    }
}

/// An id and its task.
#[derive(Default)]
struct Slot {
    /// `None` for an id that is free.
    header: Option<Arc<Header>>,
    /// `None` while it is polled, for the future of `block_on`, and for a task that is done.
    task: Option<Task>,
    kind: Kind,
    /// It is in the list of tasks to poll, or in that of the next pass.
    ready: bool,
    /// Wakers do not queue it: the entry that they made was taken, or the task is gone.
    claimed: bool,
    /// The last pass that polled it.
    polled: u64,
}

/// What a poll needs. The executor has it meanwhile, so that the task can use the others.
pub(super) struct Task {
    pub(super) future: BoxedTask,
    pub(super) waker: Waker,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Free,
    Spawned,
    /// The future of `block_on`, which the caller of the loop polls.
    Root,
    /// Done or dropped, and still in a list or the queue: its id is free when none has it.
    Gone,
}

/// What a pass does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// No task is to be polled.
    Nothing,
    /// It is [taken](Tasks::take) and polled.
    Poll(u32),
    /// It was aborted: it is taken and dropped.
    Drop(u32),
    /// The future of `block_on` was woken.
    Root,
}

/// The tasks.
#[derive(Default)]
pub(super) struct Tasks {
    slots: Vec<Slot>,
    free: Vec<u32>,
    live: usize,
    /// The tasks to poll, of which the first `begun` were.
    ready: Vec<u32>,
    begun: usize,
    /// Tasks that were woken after their poll in the pass under way.
    postponed: Vec<u32>,
    /// Memory to reverse a list.
    reversed: Vec<u32>,
}

impl Tasks {
    /// The number of tasks that are not done.
    #[inline]
    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn header(&self, id: u32) -> Option<&Arc<Header>> {
        self.slots.get(id as usize)?.header.as_ref()
    }

    /// Adds a task, or the future of `block_on` without one.
    pub(super) fn insert(
        &mut self,
        signal: &Arc<Signal>,
        future: Option<BoxedTask>,
    ) -> (u32, Arc<Header>) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            u32::try_from(self.slots.len() - 1).unwrap_or(MAX_IDS)
        });
        assert!(id < MAX_IDS, "more tasks than ids");
        let node = Node::new(id);
        let (aborted, signal) = (AtomicBool::new(false), Arc::clone(signal));
        let header = Arc::new(Header { node, aborted, signal });
        let kind = if future.is_some() { Kind::Spawned } else { Kind::Root };
        let waker = || Waker::from(Arc::clone(&header));
        let task = future.map(|future| Task { future, waker: waker() });
        let header_of_slot = Some(Arc::clone(&header));
        self.slots[id as usize] = Slot { header: header_of_slot, task, kind, ..Slot::default() };
        self.live += 1;
        (id, header)
    }

    /// Makes a task one of those to poll. False if it is one already, or gone.
    #[inline]
    pub(super) fn make_ready(&mut self, id: u32) -> bool {
        match self.slots.get_mut(id as usize) {
            Some(slot) if !slot.ready && slot.kind != Kind::Free => {
                slot.ready = true;
                self.ready.push(id);
                true
            }
            _ => false,
        }
    }

    /// True if there are tasks to poll.
    #[inline]
    pub(super) fn any_ready(&self) -> bool {
        self.begun < self.ready.len()
    }

    /// Adds what wakers have queued to the tasks to poll.
    pub(super) fn take_woken(&mut self, queue: &WakeQueue) {
        let mut reversed = std::mem::take(&mut self.reversed);
        let slots = &self.slots;
        let node = |id: u32| Some(&slots.get(id as usize)?.header.as_ref()?.node);
        queue.take(node, |id| reversed.push(id));
        while let Some(id) = reversed.pop() {
            if let Some(slot) = self.slots.get_mut(id as usize) {
                slot.claimed = true;
            }
            self.make_ready(id);
        }
        self.reversed = reversed;
    }

    /// The next of the tasks to poll, each once in a pass.
    #[inline]
    pub(super) fn next(&mut self, pass: u64) -> Next {
        while let Some(&id) = self.ready.get(self.begun) {
            self.begun += 1;
            let Some(slot) = self.slots.get_mut(id as usize) else { continue };
            // Wakers of the loop's thread do not use the queue: most tasks are not claimed.
            if slot.kind == Kind::Spawned && !slot.claimed && slot.polled != pass {
                (slot.ready, slot.polled) = (false, pass);
                return Next::Poll(id);
            }
            match self.next_unusual(id, pass) {
                Next::Nothing => {}
                next => return next,
            }
        }
        self.ready.clear();
        self.begun = 0;
        Next::Nothing
    }

    #[inline(never)]
    fn next_unusual(&mut self, id: u32, pass: u64) -> Next {
        let Some(slot) = self.slots.get_mut(id as usize) else { return Next::Nothing };
        if slot.kind == Kind::Spawned && slot.polled == pass {
            self.postponed.push(id);
            return Next::Nothing;
        }
        slot.ready = false;
        if matches!(slot.kind, Kind::Gone | Kind::Free) {
            self.free_if_unused(id);
            return Next::Nothing;
        }
        let mut aborted = false;
        if std::mem::take(&mut slot.claimed)
            && let Some(header) = &slot.header
        {
            header.node.begin();
            // An abort queues the task.
            aborted = header.aborted.load(Ordering::Relaxed);
        }
        if slot.kind == Kind::Root {
            return Next::Root;
        }
        slot.polled = pass;
        if aborted { Next::Drop(id) } else { Next::Poll(id) }
    }

    /// Takes a task out to be polled. `None` if it is polled already.
    #[inline]
    pub(super) fn take(&mut self, id: u32) -> Option<Task> {
        self.slots.get_mut(id as usize)?.task.take()
    }

    /// Ends a pass: what was left, and what was woken after its poll, is for the next one.
    #[inline]
    pub(super) fn end_pass(&mut self) {
        if self.begun > 0 || !self.postponed.is_empty() {
            self.ready.drain(..self.begun);
            self.begun = 0;
            self.ready.append(&mut self.postponed);
        }
    }

    /// Puts back a task that is pending; returns it if its slot is gone.
    #[inline]
    pub(super) fn put_back(&mut self, id: u32, task: Task) -> Option<Task> {
        match self.slots.get_mut(id as usize) {
            Some(slot) if slot.kind == Kind::Spawned && slot.is_of(&task.waker) => {
                slot.task = Some(task);
                None
            }
            _ => Some(task),
        }
    }

    /// Ends a task that was polled with `waker`, unless it was removed meanwhile.
    pub(super) fn finish(&mut self, id: u32, waker: &Waker) {
        if self.slots.get(id as usize).is_some_and(|slot| slot.is_of(waker)) {
            drop(self.remove(id));
        }
    }

    /// Frees the slot of a task that is done, as soon as no list and no queue names it.
    pub(super) fn remove(&mut self, id: u32) -> Option<Task> {
        let slot = self.slots.get_mut(id as usize)?;
        if matches!(slot.kind, Kind::Gone | Kind::Free) {
            return None;
        }
        slot.kind = Kind::Gone;
        self.live -= 1;
        let task = slot.task.take();
        // Wakers that are left find it queued for ever. If one has queued it, its entry is taken
        // later.
        slot.claimed |= slot.header.as_ref().is_none_or(|header| header.node.claim());
        self.free_if_unused(id);
        task
    }

    fn free_if_unused(&mut self, id: u32) {
        let Some(slot) = self.slots.get_mut(id as usize) else { return };
        if slot.kind == Kind::Gone && slot.claimed && !slot.ready {
            *slot = Slot::default();
            self.free.push(id);
        }
    }

    /// Removes all tasks and returns their futures. The future of `block_on` stays.
    pub(super) fn clear(&mut self) -> Vec<Task> {
        let spawned = (0..).zip(&self.slots).filter(|(_, slot)| slot.kind == Kind::Spawned);
        let ids: Vec<u32> = spawned.map(|(id, _)| id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}

impl Slot {
    /// True if the waker is that of its task.
    #[inline]
    fn is_of(&self, waker: &Waker) -> bool {
        self.header.as_ref().is_some_and(|header| waker.data() == Arc::as_ptr(header).cast())
    }
}
