//! A list of jobs without a lock: some push, others take it whole.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, Ordering};

use super::job::Job;

/// The jobs that were pushed, the last of them first. Its end says so when nobody will come
/// for them any more.
#[derive(Debug, Default)]
pub(super) struct List {
    head: AtomicPtr<()>,
}

/// The head of a list that nothing can be pushed onto.
const ENDED: *mut () = NonNull::dangling().as_ptr();

/// What became of a push.
#[derive(Debug)]
pub(super) enum Pushed {
    /// The list was empty.
    First,
    Behind,
    /// The list has ended, and the jobs are still the caller's.
    Refused(Chain),
}

impl List {
    pub(super) fn push(&self, chain: Chain) -> Pushed {
        // Whoever has ended the list is done with all jobs before: to see the end is to know that.
        let mut first = self.head.load(Ordering::Acquire);
        loop {
            if first == ENDED {
                return Pushed::Refused(chain);
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

    /// Takes all and appends them to `jobs`, last pushed first.
    pub(super) fn take(&self, jobs: &mut Vec<Job>) {
        self.replace(ptr::null_mut(), jobs);
    }

    /// As [`take`](List::take), and from now on nothing can be pushed.
    pub(super) fn end(&self, jobs: &mut Vec<Job>) {
        self.replace(ENDED, jobs);
    }

    fn replace(&self, by: *mut (), jobs: &mut Vec<Job>) {
        let first = self.head.swap(by, Ordering::AcqRel);
        if first != ENDED {
            jobs.extend(std::iter::successors(Job::from_raw(first), Job::next));
        }
    }
}

/// Jobs that are pushed together: at least one.
#[derive(Debug)]
pub(super) struct Chain {
    newest: Job,
    oldest: Job,
}

impl Chain {
    pub(super) fn of(job: Job) -> Chain {
        job.set_next(None);
        Chain { newest: job, oldest: job }
    }

    pub(super) fn add(&mut self, job: Job) {
        job.set_next(Some(self.newest));
        self.newest = job;
    }

    /// Calls `each` with every job, which may free it.
    pub(super) fn for_each(self, mut each: impl FnMut(Job)) {
        let mut next = Some(self.newest);
        while let Some(job) = next {
            // What is behind the oldest is what it was last tried to be pushed onto.
            next = if job == self.oldest { None } else { job.next() };
            each(job);
        }
    }
}
