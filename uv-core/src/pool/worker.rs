//! What a thread of a pool does.
//!
//! It takes a job, runs it, hands it back, and looks for the next. Where many wait that are
//! [brief](super::Task::is_brief), as reads of files that are in memory, it takes several and
//! hands them back together: the lock and the waking of the loop are paid for once. Nothing
//! waits for a job that blocks: before one does, what is done is handed back, and what is not
//! begun goes back to its place in the queue.

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard, PoisonError};

use super::home::Home;
use super::job::Job;
use super::list::Chain;
use super::{Lane, Shared, State};

/// How many brief jobs a thread takes at the most.
const TOGETHER: usize = 32;

/// Runs jobs until the pool ends.
pub(super) fn run(shared: &Shared) {
    let (batch, luck) = (VecDeque::new(), Luck::default());
    Worker { shared, home: None, batch, active: 0, brief: false, luck }.run_jobs();
}

struct Worker<'a> {
    shared: &'a Shared,
    /// Where the last job was handed back to: most come from the same loop as the one before.
    /// Once handed back a job may go, and its home with it: hence one's own. Not kept while
    /// asleep, as it keeps a loop's waker.
    home: Option<Arc<Home>>,
    /// Brief jobs that were taken together and are not begun, with their places in the queue.
    batch: VecDeque<(u64, Job)>,
    /// How many jobs this thread has taken, as the pool counts them, and if it is one of
    /// those that run brief jobs.
    active: usize,
    brief: bool,
    luck: Luck,
}

impl<'a> Worker<'a> {
    fn run_jobs(&mut self) {
        let mut state = self.shared.lock();
        loop {
            let Some(job) = self.next(&mut state) else {
                if state.ending && state.queue.len() == 0 {
                    return;
                }
                state = self.sleep(state);
                continue;
            };
            self.take_more(&mut state, job);
            // A job that is queued no longer is active.
            self.active = 1 + self.batch.len();
            self.brief = !self.batch.is_empty();
            state.active += self.active;
            state.brief += usize::from(self.brief);
            let slow = job.lane() == Lane::Slow;
            self.shared.wake_one(state);
            self.run_taken(job);
            state = self.shared.lock();
            state.active -= self.active;
            state.brief -= usize::from(self.brief);
            if slow {
                state.queue.slow_ended();
            }
        }
    }

    fn next(&self, state: &mut State) -> Option<Job> {
        state.queue.pop().or_else(|| {
            self.shared.let_in(state);
            state.queue.pop()
        })
    }

    /// Sleeps until woken, unless a job has come meanwhile.
    fn sleep(&mut self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if self.home.is_some() {
            drop(state);
            self.home = None;
            return self.shared.lock();
        }
        state.asleep += 1;
        self.shared.tell_door(&state);
        if self.shared.door.is_empty() {
            state = self.shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waking = false;
        }
        state.asleep -= 1;
        self.shared.tell_door(&state);
        state
    }

    /// Takes the jobs behind a brief one if they are brief, too: not more than the share of
    /// each thread that runs such jobs.
    fn take_more(&mut self, state: &mut State, first: Job) {
        if !first.is_brief() {
            return;
        }
        let share = (state.queue.len() + 1).div_ceil(state.brief_limit);
        if share < 2 || !self.luck.is_to_be_tried() {
            return;
        }
        while self.batch.len() + 1 < share.min(TOGETHER)
            && let Some(next) = state.queue.pop_brief()
        {
            self.batch.push_back(next);
        }
    }

    /// Runs what was taken: `first`, then the batch.
    fn run_taken(&mut self, first: Job) {
        let mut done = None;
        let mut next = Some(first);
        while let Some(job) = next {
            if job.begin() {
                if self.brief && job.run_at_once() {
                    self.luck.tried(true);
                } else {
                    self.run_alone(job, &mut done);
                }
                done = Some(self.chain(done, job));
            }
            next = self.batch.pop_front().map(|(_, job)| job);
        }
        self.hand_back(done);
    }

    /// Runs a job that may block.
    fn run_alone(&mut self, job: Job, done: &mut Option<Chain>) {
        self.hand_back(done.take());
        if self.brief {
            self.luck.tried(false);
            self.active -= self.batch.len();
            let mut state = self.shared.lock();
            state.active -= self.batch.len();
            state.brief -= 1;
            self.brief = false;
            state.queue.put_back(self.batch.drain(..));
            self.shared.wake_one(state);
        }
        job.run();
    }

    /// Adds a job to those that are handed back together.
    fn chain(&mut self, done: Option<Chain>, job: Job) -> Chain {
        let home = job.home();
        job.handed_back();
        if self.home.as_ref().is_some_and(|last| Arc::ptr_eq(last, home)) {
            return match done {
                Some(mut chain) => {
                    chain.add(job);
                    chain
                }
                None => Chain::of(job),
            };
        }
        self.hand_back(done);
        self.home = Some(Arc::clone(home));
        Chain::of(job)
    }

    fn hand_back(&self, done: Option<Chain>) {
        if let Some(done) = done
            && let Some(home) = &self.home
        {
            home.hand_back(done);
        }
    }
}

/// Whether brief jobs were found to be brief: to try costs a system call. What is not in
/// memory, or on a file system that does not tell, is tried more and more seldom.
#[derive(Debug, Default)]
struct Luck {
    /// So many chances are let go before the next try.
    left: u8,
    /// As many were before the last one.
    pause: u8,
}

impl Luck {
    fn is_to_be_tried(&mut self) -> bool {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                false
            }
            None => true,
        }
    }

    fn tried(&mut self, lucky: bool) {
        self.pause = if lucky { self.pause / 2 } else { self.pause.saturating_mul(2) | 1 };
        self.left = self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_unlucky_tries_more_and_more_seldom() {
        let (mut luck, mut tries) = (Luck::default(), 0);
        for _ in 0..25_600 {
            if luck.is_to_be_tried() {
                luck.tried(false);
                tries += 1;
            }
        }
        assert!((8..120).contains(&tries), "{tries} tries");
    }

    #[test]
    fn who_is_lucky_tries_every_time_again() {
        let mut luck = Luck::default();
        (0..20).for_each(|_| luck.tried(false));
        (0..20).for_each(|_| luck.tried(true));
        assert!((0..100).all(|_| luck.is_to_be_tried()));
    }
}
