//! The queue of woken tasks under a model checker: every order of its atomic accesses.

mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
}

#[path = "../src/executor/wake_queue.rs"]
#[allow(dead_code)]
mod wake_queue;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::thread;
use wake_queue::{Node, WakeQueue};

/// Checks every order with up to three preemptions, which suffices for a queue of two entries and
/// takes seconds.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

struct Shared {
    queue: WakeQueue,
    nodes: [Node; 2],
    /// Set by a waker that has to notify and cleared before a pass, both by swaps, as the flag of an
    /// async handle.
    notified: AtomicBool,
    notifications: AtomicUsize,
    /// Written before a wake, read by each poll, and what the last poll has read.
    written: AtomicUsize,
    seen: AtomicUsize,
}

fn shared() -> Arc<Shared> {
    Arc::new(Shared {
        queue: WakeQueue::new(),
        nodes: [Node::new(0), Node::new(1)],
        notified: AtomicBool::new(false),
        notifications: AtomicUsize::new(0),
        written: AtomicUsize::new(0),
        seen: AtomicUsize::new(0),
    })
}

impl Shared {
    fn wake(&self, index: usize) {
        if self.queue.push(&self.nodes[index]) {
            self.notified.swap(true, Ordering::AcqRel);
            self.notifications.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The loop polls everything that is queued.
    fn pass(&self, polled: &mut Vec<u32>) {
        loop {
            let mut ready = Vec::new();
            let node = |id: u32| self.nodes.get(id as usize);
            if self.queue.begin_drain() {
                self.queue.take(node, |id| ready.push(id));
            }
            for id in ready.into_iter().rev() {
                self.nodes[id as usize].begin();
                self.seen.store(self.written.load(Ordering::Relaxed), Ordering::Relaxed);
                polled.push(id);
            }
            if self.queue.end_drain() {
                return;
            }
        }
    }
}

#[test]
fn every_wake_is_polled_after_it_and_notified_if_needed() {
    check(|| {
        let shared = shared();
        let threads = [0, 1].map(|index| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.wake(index))
        });
        let mut polled = Vec::new();
        // The loop may be in a pass while the wakers push.
        shared.pass(&mut polled);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let early = polled.len();
        if shared.notified.load(Ordering::SeqCst) {
            shared.pass(&mut polled);
        }
        polled.sort_unstable();
        assert_eq!(polled, [0, 1], "{early} in the first pass: none is lost, none is polled twice");
    });
}

#[test]
fn wakes_before_a_pass_notify_once() {
    check(|| {
        let shared = shared();
        let threads = [0, 1].map(|index| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.wake(index))
        });
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(shared.notifications.load(Ordering::SeqCst), 1);
        let mut polled = Vec::new();
        shared.pass(&mut polled);
        assert_eq!(polled.len(), 2);
    });
}

/// If a wake finds the node queued, the poll that the earlier wake caused sees what was written
/// before the later one.
#[test]
fn a_poll_sees_what_was_written_before_the_wake() {
    check(|| {
        let shared = shared();
        let waker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.written.store(7, Ordering::Relaxed);
                shared.wake(0);
            })
        };
        shared.wake(0);
        shared.notified.swap(false, Ordering::AcqRel);
        let mut polled = Vec::new();
        shared.pass(&mut polled);
        waker.join().unwrap();
        if shared.notified.load(Ordering::SeqCst) {
            shared.pass(&mut polled);
        }
        assert_eq!(shared.seen.load(Ordering::Relaxed), 7, "by the last of {polled:?}");
    });
}
