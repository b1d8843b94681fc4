//! A lock-free stack of jobs: many threads push, one takes the whole stack.

use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use super::job::Job;
use crate::sync::AtomicPtr;

/// An intrusive stack of jobs, the most recent on top. It can be closed to further pushes.
#[derive(Debug, Default)]
pub(super) struct MpscStack {
    head: AtomicPtr<()>,
}

/// The head of a closed stack.
const CLOSED: *mut () = NonNull::dangling().as_ptr();

/// The result of a push.
#[derive(Debug)]
pub(super) enum Pushed {
    /// The stack was empty.
    First,
    /// The stack already had jobs.
    Behind,
    /// The stack is closed, and the caller keeps the jobs.
    Closed(JobChain),
}

impl MpscStack {
    pub(super) fn push(&self, chain: JobChain) -> Pushed {
        // Acquire: a caller that sees the closed stack also sees the writes of the thread that
        // closed it.
        let mut first = self.head.load(Ordering::Acquire);
        loop {
            if first == CLOSED {
                return Pushed::Closed(chain);
            }
            chain.oldest.set_next(Job::from_raw(first));
            let new = chain.newest.into_raw();
            match self.head.compare_exchange_weak(first, new, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) if first.is_null() => return Pushed::First,
                Ok(_) => return Pushed::Behind,
                Err(now) => first = now,
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head.load(Ordering::SeqCst).is_null()
    }

    /// Moves all jobs to the end of `jobs`, the most recent first.
    pub(super) fn take(&self, jobs: &mut Vec<Job>) {
        self.replace(ptr::null_mut(), jobs);
    }

    /// As [`take`](MpscStack::take), and later pushes fail.
    pub(super) fn close(&self, jobs: &mut Vec<Job>) {
        self.replace(CLOSED, jobs);
    }

    fn replace(&self, by: *mut (), jobs: &mut Vec<Job>) {
        let first = self.head.swap(by, Ordering::AcqRel);
        if first != CLOSED {
            jobs.extend(std::iter::successors(Job::from_raw(first), Job::next));
        }
    }
}

/// At least one job, pushed as a whole.
#[derive(Debug)]
pub(super) struct JobChain {
    newest: Job,
    oldest: Job,
}

impl JobChain {
    pub(super) fn of(job: Job) -> JobChain {
        job.set_next(None);
        JobChain { newest: job, oldest: job }
    }

    pub(super) fn add(&mut self, job: Job) {
        job.set_next(Some(self.newest));
        self.newest = job;
    }

    /// Calls `each` with every job, which may free it.
    pub(super) fn for_each(self, mut each: impl FnMut(Job)) {
        let mut next = Some(self.newest);
        while let Some(job) = next {
            // A failed push leaves the stack's old head behind the oldest job.
            next = if job == self.oldest { None } else { job.next() };
            each(job);
        }
    }
}
