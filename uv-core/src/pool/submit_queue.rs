//! The submission queue of a pool.
//!
//! A loop submits a job without the mutex that the workers contend for: it pushes the job onto a
//! lock-free stack and wakes a worker only if one sleeps. A worker that has run out of jobs drains
//! the stack. So a loop that submits many jobs and a worker that runs them seldom write to the
//! same cache line.
//!
//! No job is missed: a worker sets [`needs_wake`](SubmitQueue::set_needs_wake) before it checks the
//! stack a last time and sleeps; a submitter pushes its job before it reads `needs_wake`. All four
//! accesses are sequentially consistent, so at least one side sees the write of the other.

use std::sync::atomic::Ordering;

use super::job::Job;
use super::mpsc_stack::{JobChain, MpscStack, Pushed};
use crate::sync::AtomicBool;

/// Aligned to its own cache lines, because the pool's mutex beside it is written all the time.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(super) struct SubmitQueue {
    submitted: MpscStack,
    /// A worker sleeps, and none has been woken yet.
    needs_wake: AtomicBool,
}

impl SubmitQueue {
    /// Pushes a job. True if the caller must wake a worker.
    pub(super) fn push(&self, job: Job) -> bool {
        let pushed = self.submitted.push(JobChain::of(job));
        debug_assert!(!matches!(pushed, Pushed::Closed(_)), "a submission queue is never closed");
        self.needs_wake.load(Ordering::SeqCst)
    }

    /// Sets whether the next push must wake a worker. A worker that is about to sleep sets it
    /// before it checks [`is_empty`](SubmitQueue::is_empty).
    pub(super) fn set_needs_wake(&self, needs_wake: bool) {
        self.needs_wake.store(needs_wake, Ordering::SeqCst);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.submitted.is_empty()
    }

    /// Moves the submitted jobs to the end of `jobs`, the most recent first.
    pub(super) fn take(&self, jobs: &mut Vec<Job>) {
        // A load is cheaper than a swap that finds nothing.
        if !self.is_empty() {
            self.submitted.take(jobs);
        }
    }
}
