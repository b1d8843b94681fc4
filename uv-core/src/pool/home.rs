//! Where jobs go when they are done: back to the loop they came from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering, fence};

use super::job::Job;
use crate::notify::{Notes, Notifier};

/// The jobs that workers have handed back to one loop, and how to tell it.
#[derive(Debug)]
pub(crate) struct Home {
    /// A list without a lock: workers push, the loop takes it whole.
    done: AtomicPtr<()>,
    /// The loop is gone: nobody will come for them.
    closed: AtomicBool,
    notifier: Arc<Notifier>,
}

impl Home {
    pub(crate) fn new(notifier: Arc<Notifier>) -> Home {
        Home { done: AtomicPtr::default(), closed: AtomicBool::new(false), notifier }
    }

    /// Hands a job back. Only the first of a batch wakes the loop.
    pub(crate) fn hand_back(home: &Arc<Home>, job: Job) {
        job.handed_back();
        let first = job.push(&home.done);
        // If waking fails, the loop finds the job when it next looks, or the next one that is
        // handed back tries again.
        let notifier = &home.notifier;
        let _ = if first { notifier.notify(Notes::WORK) } else { notifier.renew() };
        // Either this sees that the loop has gone, or the loop sees the job.
        fence(Ordering::SeqCst);
        if home.closed.load(Ordering::Relaxed) {
            home.discard();
        }
    }

    /// Appends the jobs that were handed back to `jobs`, the first of them last.
    pub(crate) fn take(&self, jobs: &mut Vec<Job>) {
        Job::take_list(&self.done, jobs);
    }

    /// Nobody will come any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.discard();
    }

    fn discard(&self) {
        let mut jobs = Vec::new();
        self.take(&mut jobs);
        for job in jobs {
            job.drop_result();
            job.free();
        }
    }
}
