//! The run queue of a pool.

use std::collections::VecDeque;

use super::job::Job;

/// The kind of work of a job, which limits how many threads it may occupy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WorkKind {
    /// Computation, or I/O that is fast.
    #[default]
    Cpu,
    /// I/O that may wait for a long time, such as name lookups. Such jobs occupy at most half of
    /// the threads, rounded up, so that they cannot starve other work.
    SlowIo,
}

/// Jobs that wait for a thread, first in, first out, except that slow jobs wait while they occupy
/// all the threads that they may.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    cpu: VecDeque<(u64, Job)>,
    slow: VecDeque<(u64, Job)>,
    /// The number of short jobs in `cpu`.
    short: usize,
    arrivals: u64,
    slow_running: usize,
    slow_limit: usize,
}

impl Queue {
    /// Sets the number of threads of the pool.
    pub(crate) fn set_threads(&mut self, threads: usize) {
        self.slow_limit = threads.div_ceil(2);
    }

    pub(crate) fn push(&mut self, job: Job) {
        self.arrivals += 1;
        self.short += usize::from(job.is_short());
        let queue = match job.kind() {
            WorkKind::Cpu => &mut self.cpu,
            WorkKind::SlowIo => &mut self.slow,
        };
        queue.push_back((self.arrivals, job));
    }

    /// The next job to run. A slow one must be followed by [`Queue::slow_ended`].
    pub(crate) fn pop(&mut self) -> Option<Job> {
        if self.is_slow_first() {
            self.slow_running += 1;
            return self.slow.pop_front().map(|(_, job)| job);
        }
        self.pop_cpu().map(|(_, job)| job)
    }

    fn pop_cpu(&mut self) -> Option<(u64, Job)> {
        let next = self.cpu.pop_front()?;
        self.short -= usize::from(next.1.is_short());
        Some(next)
    }

    fn is_slow_first(&self) -> bool {
        if self.slow.is_empty() {
            return false;
        }
        let slow = self.slow.front().filter(|_| self.slow_running < self.slow_limit);
        match (self.cpu.front(), slow) {
            (Some((cpu, _)), Some((slow, _))) => slow < cpu,
            (_, slow) => slow.is_some(),
        }
    }

    /// The next job to run, with its position, if it is a short one.
    pub(crate) fn pop_short(&mut self) -> Option<(u64, Job)> {
        let is_next = self.cpu.front().is_some_and(|(_, job)| job.is_short());
        if is_next && !self.is_slow_first() { self.pop_cpu() } else { None }
    }

    /// Puts short jobs that were taken but not started back at their positions.
    pub(crate) fn put_back(&mut self, jobs: impl DoubleEndedIterator<Item = (u64, Job)>) {
        for job in jobs.rev() {
            self.short += 1;
            self.cpu.push_front(job);
        }
    }

    pub(crate) fn slow_ended(&mut self) {
        self.slow_running -= 1;
    }

    /// True if [`Queue::pop`] returns a job.
    pub(crate) fn has_work(&self) -> bool {
        !self.cpu.is_empty() || (!self.slow.is_empty() && self.slow_running < self.slow_limit)
    }

    /// True if all queued jobs are short.
    pub(crate) fn is_short(&self) -> bool {
        self.short == self.cpu.len() && self.slow.is_empty()
    }

    /// The number of queued jobs.
    pub(crate) fn len(&self) -> usize {
        self.cpu.len() + self.slow.len()
    }
}
