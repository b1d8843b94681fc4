//! The order in which a pool runs jobs.

use std::collections::VecDeque;

use super::job::Job;

/// What kind of work a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Computes, or does I/O that is quick.
    #[default]
    Cpu,
    /// May wait long for somebody else, as name lookups do. Such jobs occupy at most half
    /// of the threads, rounded up, so that they cannot hold up everything else.
    Slow,
}

/// Jobs that wait for a thread: first come, first served, but for the slow ones that must
/// wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    cpu: VecDeque<(u64, Job)>,
    slow: VecDeque<(u64, Job)>,
    /// How many of those that are not slow are brief.
    brief: usize,
    arrivals: u64,
    slow_running: usize,
    slow_limit: usize,
}

impl Queue {
    /// Says how many threads there are.
    pub(crate) fn set_threads(&mut self, threads: usize) {
        self.slow_limit = threads.div_ceil(2);
    }

    pub(crate) fn push(&mut self, job: Job) {
        self.arrivals += 1;
        self.brief += usize::from(job.is_brief());
        let lane = match job.lane() {
            Lane::Cpu => &mut self.cpu,
            Lane::Slow => &mut self.slow,
        };
        lane.push_back((self.arrivals, job));
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
        self.brief -= usize::from(next.1.is_brief());
        Some(next)
    }

    fn is_slow_first(&self) -> bool {
        let slow = self.slow.front().filter(|_| self.slow_running < self.slow_limit);
        match (self.cpu.front(), slow) {
            (Some((cpu, _)), Some((slow, _))) => slow < cpu,
            (_, slow) => slow.is_some(),
        }
    }

    /// The next job to run with its place, if it is a brief one.
    pub(crate) fn pop_brief(&mut self) -> Option<(u64, Job)> {
        let is_next = self.cpu.front().is_some_and(|(_, job)| job.is_brief());
        if is_next && !self.is_slow_first() { self.pop_cpu() } else { None }
    }

    /// Brief jobs that were taken and not begun get their places again.
    pub(crate) fn put_back(&mut self, jobs: impl DoubleEndedIterator<Item = (u64, Job)>) {
        for job in jobs.rev() {
            self.brief += 1;
            self.cpu.push_front(job);
        }
    }

    pub(crate) fn slow_ended(&mut self) {
        self.slow_running -= 1;
    }

    /// True if [`Queue::pop`] has something to give.
    pub(crate) fn has_work(&self) -> bool {
        !self.cpu.is_empty() || (!self.slow.is_empty() && self.slow_running < self.slow_limit)
    }

    /// True if all that [`Queue::pop`] has to give is brief.
    pub(crate) fn is_brief(&self) -> bool {
        self.brief == self.cpu.len() && self.slow.is_empty()
    }

    /// How many jobs wait.
    pub(crate) fn len(&self) -> usize {
        self.cpu.len() + self.slow.len()
    }
}
