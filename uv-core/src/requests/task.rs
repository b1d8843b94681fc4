//! Task requests: what the backend performs where it can, and else a pool.

#![allow(unsafe_code)]

use std::io;

use poll_core::{Backend, Token};

use super::work::WorkSlot;
use crate::callback::Once;
use crate::notify::Notes;
use crate::operations::Asker;
use crate::pool::{Job, Pool, Running, Task};
use crate::{Loop, error, sys};

impl<B: Backend> Loop<B> {
    /// Has a task performed, then calls `done` with it and with what it gave.
    pub(crate) fn queue_task<A: Task>(
        &mut self,
        pool: Option<&Pool>,
        mut task: A,
        done: impl FnOnce(&mut Loop<B>, A, io::Result<A::Value>) + 'static,
    ) -> Token {
        // Whoever names a pool wants that one.
        let lent = pool.is_none() && task.kind().is_some_and(|kind| self.backend.supports(kind));
        let job = self.works.vacant_job();
        let finish = Once::new(move |lp: &mut Loop<B>, job: Job| {
            // SAFETY: this job was filled with an `A`, below; a request finishes once.
            let Running { task, outcome } = unsafe { job.take_task::<A>() };
            lp.reuse(job);
            done(lp, task, outcome.unwrap_or_else(|| Err(error::cancelled())));
        });
        let request = self.works.requests.insert(WorkSlot { job, finish });
        let op = if lent {
            job.fill_and_lend(request, task)
        } else {
            job.fill_with_task(request, task);
            None
        };
        match op {
            Some(op) => self.works.lent.push((request, op)),
            None if pool.is_none() && job.at_once() => self.tell_later(job),
            None => self.hand_to_pool(pool, job),
        }
        request
    }

    fn hand_to_pool(&mut self, pool: Option<&Pool>, job: Job) {
        let pool = match pool {
            Some(pool) => Ok(pool),
            None => self.pool(),
        };
        match pool {
            Ok(pool) => {
                job.queue();
                pool.submit(job);
            }
            // No threads: it fails as any other operation does, later.
            Err(error) => {
                job.fail(error.raw_os_error().unwrap_or(sys::CANCELLED));
                self.tell_later(job);
            }
        }
    }

    /// Has a job that no pool holds call back when the loop next looks for ended work.
    fn tell_later(&mut self, job: Job) {
        self.works.settled.push(job);
        // If waking fails it is found when the loop next looks.
        let _ = self.notifier.notify(Notes::WORK);
    }

    /// Gives the tasks that wait for it to the backend, before it waits.
    pub(crate) fn submit_lent(&mut self) {
        if !self.works.has_lent() {
            return;
        }
        let mut lent = std::mem::take(&mut self.works.lent);
        for (request, op) in lent.drain(..) {
            let Some(slot) = self.works.requests.get(request) else { continue };
            let job = slot.job;
            if job.is_cancelled() {
                continue;
            }
            // SAFETY: all that the operation names is part of the task or owned by it. The
            // task stays in the job's memory, and the job is kept for the request until the
            // end of the operation has come, or the backend is gone.
            match unsafe { self.submit(Asker::Task(request), op) } {
                Ok(_) => job.submitted(),
                Err(_) => self.hand_to_pool(None, job),
            }
        }
        self.works.lent = lent;
    }

    /// The backend has performed an operation of a task.
    pub(crate) fn task_done(&mut self, request: Token, result: Result<usize, i32>) {
        let Some(slot) = self.works.requests.get(request) else { return };
        let job = slot.job;
        let retried = result.err().is_some_and(sys::fs::is_interrupted);
        if result.err().is_some_and(sys::fs::is_unsupported) {
            // The kernel has the operation, but not for this kind of file.
            self.operations.told_nobody += 1;
            return self.hand_to_pool(None, job);
        }
        if retried || !job.step(result) {
            self.operations.told_nobody += 1;
            return match job.op() {
                Some(op) => self.works.lent.push((request, op)),
                None => self.hand_to_pool(None, job),
            };
        }
        if let Some(slot) = self.works.requests.remove(request) {
            slot.finish.call(self, job);
        }
    }

    /// Cancels a request that has not begun.
    pub(crate) fn cancel_queued(&mut self, request: Token) -> io::Result<()> {
        let slot = self.works.requests.get(request).ok_or_else(error::stale_request)?;
        if !slot.job.cancel() {
            let why = "the work has begun: it can be cancelled only while it is queued";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        self.works.settled.push(slot.job);
        self.notifier.notify(Notes::WORK)
    }
}
