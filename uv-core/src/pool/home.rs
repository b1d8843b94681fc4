//! Where jobs go when they are done: back to the loop they came from.

use std::sync::Arc;
use std::sync::atomic::AtomicPtr;

use super::job::{Job, Pushed};
use crate::notify::{Notes, Notifier};

/// The jobs that workers have handed back to one loop, and how to tell it.
#[derive(Debug)]
pub(crate) struct Home {
    /// A list without a lock: workers push, the loop takes it whole. Its end says so when
    /// nobody will come for them any more.
    done: AtomicPtr<()>,
    notifier: Arc<Notifier>,
}

impl Home {
    pub(crate) fn new(notifier: Arc<Notifier>) -> Home {
        Home { done: AtomicPtr::default(), notifier }
    }

    /// Hands a job back. Only the first of a batch wakes the loop.
    pub(crate) fn hand_back(&self, job: Job) {
        job.handed_back();
        // If waking fails, the loop finds the job when it next looks, or the next one that is
        // handed back tries again.
        let notifier = &self.notifier;
        let _ = match job.push(&self.done) {
            Pushed::First => notifier.notify(Notes::WORK),
            Pushed::Behind => notifier.renew(),
            Pushed::Refused => {
                discard(job);
                Ok(())
            }
        };
    }

    /// Appends the jobs that were handed back to `jobs`, the first of them last.
    pub(crate) fn take(&self, jobs: &mut Vec<Job>) {
        Job::take_list(&self.done, jobs);
    }

    /// The loop is gone: nobody will come any more.
    pub(crate) fn close(&self) {
        let mut jobs = Vec::new();
        Job::end_list(&self.done, &mut jobs);
        jobs.into_iter().for_each(discard);
    }
}

/// For a job that nobody will come for.
fn discard(job: Job) {
    job.drop_result();
    job.free();
}
