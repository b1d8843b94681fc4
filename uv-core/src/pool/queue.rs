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
    arrivals: u64,
    slow_running: usize,
    slow_limit: usize,
}

impl Queue {
    pub(crate) fn new(threads: usize) -> Queue {
        Queue { slow_limit: threads.div_ceil(2), ..Queue::default() }
    }

    pub(crate) fn push(&mut self, job: Job) {
        self.arrivals += 1;
        let lane = match job.lane() {
            Lane::Cpu => &mut self.cpu,
            Lane::Slow => &mut self.slow,
        };
        lane.push_back((self.arrivals, job));
    }

    /// The next job to run. A slow one must be followed by [`Queue::slow_ended`].
    pub(crate) fn pop(&mut self) -> Option<Job> {
        let slow = self.slow.front().filter(|_| self.slow_running < self.slow_limit);
        let slow_first = match (self.cpu.front(), slow) {
            (Some((cpu, _)), Some((slow, _))) => slow < cpu,
            (_, slow) => slow.is_some(),
        };
        if slow_first {
            self.slow_running += 1;
            return self.slow.pop_front().map(|(_, job)| job);
        }
        self.cpu.pop_front().map(|(_, job)| job)
    }

    pub(crate) fn slow_ended(&mut self) {
        self.slow_running -= 1;
    }

    /// True if [`Queue::pop`] has something to give.
    pub(crate) fn has_work(&self) -> bool {
        !self.cpu.is_empty() || (!self.slow.is_empty() && self.slow_running < self.slow_limit)
    }

    /// How many jobs wait.
    pub(crate) fn len(&self) -> usize {
        self.cpu.len() + self.slow.len()
    }
}
