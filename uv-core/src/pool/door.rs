//! How jobs come to a pool.
//!
//! Whoever brings a job does not take the lock that the threads contend for: it leaves the job at
//! the door, and knocks only if a thread sleeps. A thread that has run out of jobs lets in all that
//! have come since. So a loop that brings many jobs and a thread that runs them seldom write to the
//! same memory.
//!
//! No job is left lying: a thread first says that it is about to sleep, and then looks at the door
//! once more; whoever brings a job first leaves it, and then looks whether somebody sleeps. One of
//! them sees the other.

use std::sync::atomic::{AtomicBool, Ordering};

use super::job::Job;
use super::list::{Chain, List, Pushed};

/// On cache lines of its own, as what is beside it is written all the time.
#[repr(align(128))]
#[derive(Debug, Default)]
pub(super) struct Door {
    arrived: List,
    /// A thread sleeps, and none is on its way.
    is_quiet: AtomicBool,
}

impl Door {
    /// Leaves a job. True if a thread is to be woken for it.
    pub(super) fn leave(&self, job: Job) -> bool {
        let left = self.arrived.push(Chain::of(job));
        debug_assert!(!matches!(left, Pushed::Refused(_)), "a door is never closed");
        self.is_quiet.load(Ordering::SeqCst)
    }

    /// Says whether a thread is to be woken for the next job. Who is about to sleep says so before
    /// it looks whether there [is one](Door::is_empty).
    pub(super) fn set_quiet(&self, is_quiet: bool) {
        self.is_quiet.store(is_quiet, Ordering::SeqCst);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// Appends the jobs that have come to `jobs`, the first of them last.
    pub(super) fn take(&self, jobs: &mut Vec<Job>) {
        // To look is cheaper than to take nothing.
        if !self.is_empty() {
            self.arrived.take(jobs);
        }
    }
}
