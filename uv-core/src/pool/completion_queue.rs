//! The completion queue of a loop: the jobs that workers have finished.

use std::io;
use std::sync::Arc;

use poll_core::Wake;

use super::job::Job;
use super::mpsc_stack::{JobChain, MpscStack, Pushed};
use crate::event_loop::{Notification, Notifier};

/// The finished jobs of one loop, and the notifier that wakes it.
#[derive(Debug)]
pub(crate) struct CompletionQueue {
    done: MpscStack,
    notifier: Arc<Notifier>,
}

impl CompletionQueue {
    pub(crate) fn new(notifier: Arc<Notifier>) -> CompletionQueue {
        CompletionQueue { done: MpscStack::default(), notifier }
    }

    /// For jobs that no loop waits for: a finished job is freed by the thread that has run it.
    pub(super) fn of_no_loop() -> CompletionQueue {
        let queue = CompletionQueue::new(Arc::new(Notifier::new(NoLoop)));
        queue.close();
        queue
    }

    /// Returns finished jobs to the loop. Only the first push onto an empty queue wakes it.
    pub(super) fn push(&self, jobs: JobChain) {
        // If the wake fails, the loop finds the jobs in its next iteration, or the next push
        // tries again.
        let notifier = &self.notifier;
        let _ = match self.done.push(jobs) {
            Pushed::First => notifier.notify(Notification::WORK),
            Pushed::Behind => notifier.retry_failed_wake(),
            Pushed::Closed(jobs) => {
                jobs.for_each(discard);
                Ok(())
            }
        };
    }

    /// Appends the finished jobs to `jobs`, the most recent first.
    pub(crate) fn take(&self, jobs: &mut Vec<Job>) {
        self.done.take(jobs);
    }

    /// Discards all jobs, and those that are pushed from now on: the loop is being dropped.
    pub(crate) fn close(&self) {
        let mut jobs = Vec::new();
        self.done.close(&mut jobs);
        jobs.into_iter().for_each(discard);
    }
}

/// The waker of a queue that is closed from the start, and so never wakes.
#[derive(Clone)]
struct NoLoop;

impl Wake for NoLoop {
    fn wake(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Frees a job whose loop is gone.
fn discard(job: Job) {
    job.drop_result();
    job.free();
}
