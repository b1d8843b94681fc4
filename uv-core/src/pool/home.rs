//! Where jobs go when they are done: back to the loop they came from.

use std::sync::Arc;

use super::job::Job;
use super::list::{Chain, List, Pushed};
use crate::notify::{Notes, Notifier};

/// The jobs that workers have handed back to one loop, and how to tell it.
#[derive(Debug)]
pub(crate) struct Home {
    done: List,
    notifier: Arc<Notifier>,
}

impl Home {
    pub(crate) fn new(notifier: Arc<Notifier>) -> Home {
        Home { done: List::default(), notifier }
    }

    /// Hands jobs back. Only the first of a batch wakes the loop.
    pub(super) fn hand_back(&self, jobs: Chain) {
        // If waking fails, the loop finds the jobs when it next looks, or the next one that
        // is handed back tries again.
        let notifier = &self.notifier;
        let _ = match self.done.push(jobs) {
            Pushed::First => notifier.notify(Notes::WORK),
            Pushed::Behind => notifier.renew(),
            Pushed::Refused(jobs) => {
                jobs.for_each(discard);
                Ok(())
            }
        };
    }

    /// Appends the jobs that were handed back to `jobs`, the first of them last.
    pub(crate) fn take(&self, jobs: &mut Vec<Job>) {
        self.done.take(jobs);
    }

    /// The loop is gone: nobody will come any more.
    pub(crate) fn close(&self) {
        let mut jobs = Vec::new();
        self.done.end(&mut jobs);
        jobs.into_iter().for_each(discard);
    }
}

/// For a job that nobody will come for.
fn discard(job: Job) {
    job.drop_result();
    job.free();
}
