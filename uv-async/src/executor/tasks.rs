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

/// A task, or the id of one that is gone and still queued.
struct Slot {
    header: Arc<Header>,
    waker: Option<Waker>,
    /// `None` while it is polled, for the future of `block_on`, and for a task that is done.
    future: Option<BoxedTask>,
    kind: Kind,
    /// The last pass that polled it.
    polled: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Spawned,
    /// The future of `block_on`, which the caller of the loop polls.
    Root,
    /// Done or dropped, and still queued: it is freed when the queue reaches it.
    Gone,
}

/// What a pass does with an id of the queue.
pub(super) enum Next {
    /// There is no such task any more.
    Nothing,
    /// It was polled in this pass.
    Later,
    /// The future of `block_on` was woken.
    Root,
    /// It was aborted.
    Drop(BoxedTask),
    Poll(BoxedTask, Waker),
}

/// The tasks.
#[derive(Default)]
pub(super) struct Tasks {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    live: usize,
}

impl Tasks {
    /// The number of tasks that are not done.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn node(&self, id: u32) -> Option<&Node> {
        Some(&self.slots.get(id as usize)?.as_ref()?.header.node)
    }

    pub(super) fn header(&self, id: u32) -> Option<&Arc<Header>> {
        Some(&self.slots.get(id as usize)?.as_ref()?.header)
    }

    /// Adds a task, or the future of `block_on` without one.
    pub(super) fn insert(
        &mut self,
        signal: &Arc<Signal>,
        future: Option<BoxedTask>,
    ) -> (u32, Arc<Header>) {
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).unwrap_or(MAX_IDS)
        });
        assert!(id < MAX_IDS, "more tasks than ids");
        let node = Node::new(id);
        let (aborted, signal) = (AtomicBool::new(false), Arc::clone(signal));
        let header = Arc::new(Header { node, aborted, signal });
        let waker = Some(Waker::from(Arc::clone(&header)));
        let kind = if future.is_some() { Kind::Spawned } else { Kind::Root };
        let slot = Slot { header: Arc::clone(&header), waker, future, kind, polled: 0 };
        self.slots[id as usize] = Some(slot);
        self.live += 1;
        (id, header)
    }

    /// Begins an entry of the queue.
    pub(super) fn begin(&mut self, id: u32, pass: u64) -> Next {
        let Some(place) = self.slots.get_mut(id as usize) else { return Next::Nothing };
        let Some(slot) = place else { return Next::Nothing };
        match slot.kind {
            Kind::Gone => {
                *place = None;
                self.free.push(id);
                Next::Nothing
            }
            Kind::Root => {
                slot.header.node.begin();
                Next::Root
            }
            Kind::Spawned if slot.polled == pass => Next::Later,
            Kind::Spawned => {
                slot.header.node.begin();
                slot.polled = pass;
                let aborted = slot.header.aborted.load(Ordering::Relaxed);
                match (slot.future.take(), slot.waker.take()) {
                    (Some(future), _) if aborted => Next::Drop(future),
                    (Some(future), Some(waker)) => Next::Poll(future, waker),
                    _ => Next::Nothing,
                }
            }
        }
    }

    /// Puts back a task that is pending; returns it if its slot is gone.
    pub(super) fn put_back(
        &mut self,
        id: u32,
        future: BoxedTask,
        waker: Waker,
    ) -> Option<BoxedTask> {
        match self.slots.get_mut(id as usize) {
            Some(Some(slot)) if slot.kind == Kind::Spawned && slot.header.has(&waker) => {
                slot.future = Some(future);
                slot.waker = Some(waker);
                None
            }
            _ => Some(future),
        }
    }

    /// Ends a task that was polled with `waker`, unless it was removed meanwhile.
    pub(super) fn finish(&mut self, id: u32, waker: &Waker) {
        if self.header(id).is_some_and(|header| header.has(waker)) {
            drop(self.remove(id));
        }
    }

    /// Frees the slot of a task that is done, as soon as no queue names it.
    pub(super) fn remove(&mut self, id: u32) -> Option<BoxedTask> {
        let place = self.slots.get_mut(id as usize)?;
        let slot = place.as_mut().filter(|slot| slot.kind != Kind::Gone)?;
        self.live -= 1;
        slot.waker = None;
        let future = slot.future.take();
        if slot.header.node.claim() {
            // Wakers that are left find it queued for ever.
            *place = None;
            self.free.push(id);
        } else {
            slot.kind = Kind::Gone;
        }
        future
    }

    /// Removes all tasks and returns their futures. The future of `block_on` stays.
    pub(super) fn clear(&mut self) -> Vec<BoxedTask> {
        let spawned =
            |slot: &Option<Slot>| slot.as_ref().is_some_and(|slot| slot.kind == Kind::Spawned);
        let ids: Vec<_> = (0..).zip(&self.slots).filter(|(_, slot)| spawned(slot)).collect();
        let ids: Vec<u32> = ids.into_iter().map(|(id, _)| id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }
}

impl Header {
    /// True if the waker is that of this task.
    fn has(self: &Arc<Self>, waker: &Waker) -> bool {
        waker.data() == Arc::as_ptr(self).cast()
    }
}
