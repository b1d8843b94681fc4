//! The worker: the main loop of a pool's thread.
//!
//! A worker takes a job, runs it, returns it to its loop, and takes the next. If several queued
//! jobs are [short](super::Task::is_short), such as reads of cached files, it takes a batch of them
//! and returns them together, so that the lock and the wake of the loop are paid for once. A batch
//! never waits for a job that blocks: before a job may block, finished jobs are returned, and jobs
//! that have not started go back to their positions in the queue.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

use poll_core::Backoff;

use super::completion_queue::CompletionQueue;
use super::job::Job;
use super::mpsc_stack::JobChain;
use super::{Shared, State, WorkKind};

/// The maximal number of short jobs in a batch.
const MAX_BATCH: usize = 32;

/// Runs jobs until the pool ends.
pub(super) fn run(shared: &Shared) {
    let (batch, backoff) = (VecDeque::new(), Backoff::new(0));
    Worker { shared, completions: None, batch, active: 0, short: false, backoff }.run_jobs();
}

struct Worker<'a> {
    shared: &'a Shared,
    /// The completion queue of the last job, cached because most jobs come from the same loop as
    /// the one before. It is owned, because a returned job may be freed together with its queue.
    /// Released before the worker sleeps, because it keeps the waker of a loop alive.
    completions: Option<Arc<CompletionQueue>>,
    /// Brief jobs that were taken together and have not started, with their queue positions.
    batch: VecDeque<(u64, Job)>,
    /// This worker's share of [`State::active`].
    active: usize,
    /// True if this worker is counted in [`State::short`].
    short: bool,
    /// Of attempts to run short jobs without blocking. A failed one costs a system call: files that
    /// are not cached, or on a file system without such reads, are tried less and less often.
    backoff: Backoff,
}

impl<'a> Worker<'a> {
    fn run_jobs(&mut self) {
        let mut state = self.shared.lock();
        loop {
            let Some(job) = self.next(&mut state) else {
                if state.shutdown && state.queue.len() == 0 {
                    return;
                }
                state = self.sleep(state);
                continue;
            };
            self.take_more(&mut state, job);
            // A job that has left the queue counts as active.
            self.active = 1 + self.batch.len();
            self.short = !self.batch.is_empty();
            state.active += self.active;
            state.short += usize::from(self.short);
            let slow = job.kind() == WorkKind::SlowIo;
            self.shared.wake_one(state);
            self.run_taken(job);
            state = self.shared.lock();
            state.active -= self.active;
            state.short -= usize::from(self.short);
            if slow {
                state.queue.slow_ended();
            }
        }
    }

    fn next(&self, state: &mut State) -> Option<Job> {
        state.queue.pop().or_else(|| {
            self.shared.drain_submitted(state);
            state.queue.pop()
        })
    }

    /// Sleeps until woken, unless a job was submitted meanwhile.
    fn sleep(&mut self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if self.completions.is_some() {
            drop(state);
            self.completions = None;
            return self.shared.lock();
        }
        state.asleep += 1;
        self.shared.update_needs_wake(&state);
        if self.shared.submitted.is_empty() {
            state = self.shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waking = false;
        }
        state.asleep -= 1;
        self.shared.update_needs_wake(&state);
        state
    }

    /// Takes the short jobs that follow a short one, up to an equal share of the queue for each
    /// thread that may run such jobs.
    fn take_more(&mut self, state: &mut State, first: Job) {
        if !first.is_short() {
            return;
        }
        let share = (state.queue.len() + 1).div_ceil(state.short_limit);
        if share < 2 || !self.backoff.should_try() {
            return;
        }
        while self.batch.len() + 1 < share.min(MAX_BATCH)
            && let Some(next) = state.queue.pop_short()
        {
            self.batch.push_back(next);
        }
    }

    /// Runs the jobs that were taken: `first`, then the batch.
    fn run_taken(&mut self, first: Job) {
        let mut done = None;
        if self.batch.is_empty() {
            if first.start() {
                first.run();
                done = Some(self.chain(None, first));
            }
            return self.complete(done);
        }
        let mut next = Some(first);
        while let Some(job) = next {
            if job.start() {
                if self.short && job.try_run() {
                    self.backoff.record(true);
                } else {
                    self.run_blocking(job, &mut done);
                }
                done = Some(self.chain(done, job));
            }
            next = self.batch.pop_front().map(|(_, job)| job);
        }
        self.complete(done);
    }

    /// Runs a job that may block, after everything that must not wait for it was returned.
    fn run_blocking(&mut self, job: Job, done: &mut Option<JobChain>) {
        self.complete(done.take());
        if self.short {
            self.backoff.record(false);
            self.active -= self.batch.len();
            let mut state = self.shared.lock();
            state.active -= self.batch.len();
            state.short -= 1;
            self.short = false;
            state.queue.put_back(self.batch.drain(..));
            self.shared.wake_one(state);
        }
        job.run();
    }

    /// Appends a finished job to those that are returned together.
    fn chain(&mut self, done: Option<JobChain>, job: Job) -> JobChain {
        let completions = job.completions();
        job.mark_returned();
        if self.completions.as_ref().is_some_and(|last| Arc::ptr_eq(last, completions)) {
            return match done {
                Some(mut chain) => {
                    chain.add(job);
                    chain
                }
                None => JobChain::of(job),
            };
        }
        self.complete(done);
        self.completions = Some(Arc::clone(completions));
        JobChain::of(job)
    }

    fn complete(&self, done: Option<JobChain>) {
        if let Some(done) = done
            && let Some(completions) = &self.completions
        {
            completions.push(done);
        }
    }
}
