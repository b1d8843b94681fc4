//! Task requests: performed by the backend if it supports the operation, otherwise by a pool.

#![allow(unsafe_code)]

use std::io;

use poll_core::{Backend, OpKind, Token};

use super::work::WorkSlot;
use crate::event_loop::{InFlight, Notification, OpOwner};
use crate::pool::{Job, Pool, Running, Task};
use crate::storage::InlineFnOnce;
use crate::{Loop, error, sys};

/// Starts a task; calls `done` with the task and its result when it is complete.
#[inline]
pub(crate) fn queue<B: Backend, A: Task>(
    lp: &mut Loop<B>,
    pool: Option<&Pool>,
    mut task: A,
    done: impl FnOnce(&mut Loop<B>, A, io::Result<A::Value>) + 'static,
) -> Token {
    // A caller that names a pool gets that pool.
    let lend = pool.is_none() && task.kind().is_some_and(|kind| lp.backend.supports(kind));
    let job = lp.works.vacant_job();
    let finish = InlineFnOnce::new(move |lp: &mut Loop<B>, job: Job| {
        // SAFETY: the job is filled with an `A` below, and a request finishes once.
        let Running { task, outcome } = unsafe { job.take_task::<A>() };
        lp.works.reuse(job);
        done(lp, task, outcome.unwrap_or_else(|| Err(error::cancelled())));
    });
    let request = lp.works.requests.insert(WorkSlot { job, flight: None, finish });
    let op = if lend {
        job.fill_and_lend(request, task)
    } else {
        job.fill_with_task(request, task);
        None
    };
    match op {
        Some(op) => lp.works.to_submit.push((request, op)),
        None if pool.is_none() && job.try_complete() => complete_later(lp, job),
        None => submit_to_pool(lp, pool, job),
    }
    request
}

fn submit_to_pool<B: Backend>(lp: &mut Loop<B>, pool: Option<&Pool>, job: Job) {
    let pool = match pool {
        Some(pool) => Ok(pool),
        None => lp.works.pool(),
    };
    match pool {
        Ok(pool) => {
            job.queue();
            pool.submit(job);
        }
        // No thread can be started: the request fails in its callback, as other errors do.
        Err(error) => {
            job.fail(error.raw_os_error().unwrap_or(sys::CANCELLED));
            complete_later(lp, job);
        }
    }
}

/// Calls back for a job that no pool holds when the loop next collects completed work.
fn complete_later<B: Backend>(lp: &mut Loop<B>, job: Job) {
    lp.works.completed_here.push(job);
    // If the wake fails, the loop finds the job in its next iteration.
    let _ = lp.notifier.notify(Notification::WORK);
}

/// Submits the pending tasks to the backend, before it waits.
#[inline]
pub(crate) fn submit_lent<B: Backend>(lp: &mut Loop<B>) {
    if !lp.works.has_lent() {
        return;
    }
    let mut to_submit = std::mem::take(&mut lp.works.to_submit);
    for (request, op) in to_submit.drain(..) {
        let Some(slot) = lp.works.requests.get(request) else { continue };
        let job = slot.job;
        if job.is_cancelled() {
            continue;
        }
        if slot.flight.is_some_and(|before| before.cancelled) {
            // Cancelled between two operations.
            job.fail(sys::CANCELLED);
            complete_later(lp, job);
            continue;
        }
        let kind = op.kind();
        // SAFETY: the memory and the source of the operation are part of the task or owned by
        // it, as `Task` requires. The task stays in the job's memory, and the request keeps
        // the job until the operation has completed or the backend was dropped.
        let submitted = unsafe { lp.submit(OpOwner::Task(request), op) };
        if let Some(slot) = lp.works.requests.get_mut(request) {
            let token = submitted.as_ref().ok().copied();
            slot.flight = token.map(|token| InFlight { token, kind, cancelled: false });
        }
        match submitted {
            Ok(_) => job.submitted(),
            Err(_) => submit_to_pool(lp, None, job),
        }
    }
    lp.works.to_submit = to_submit;
}

/// Handles the completion of an operation of a task. True if a callback ran.
#[inline]
pub(crate) fn done<B: Backend>(
    lp: &mut Loop<B>,
    request: Token,
    result: Result<usize, i32>,
) -> bool {
    let Some(slot) = lp.works.requests.get_mut(request) else { return false };
    let job = slot.job;
    if slot.flight.is_some_and(|flight| flight.cancelled) {
        // A part may be complete; the rest is not tried.
        if !job.step(result) {
            job.step(Err(sys::CANCELLED));
        }
    } else if result.err().is_some_and(sys::fs::is_unsupported) {
        // The kernel has the operation, but does not support it for this kind of file.
        slot.flight = None;
        submit_to_pool(lp, None, job);
        return false;
    } else if result.err().is_some_and(sys::fs::is_interrupted) || !job.step(result) {
        match job.op() {
            Some(op) => lp.works.to_submit.push((request, op)),
            None => {
                slot.flight = None;
                submit_to_pool(lp, None, job);
            }
        }
        return false;
    }
    if let Some(slot) = lp.works.requests.remove(request) {
        slot.finish.call(lp, job);
    }
    true
}

/// Cancels a request that has not started, or asks the backend to cancel its operation.
pub(crate) fn cancel<B: Backend>(lp: &mut Loop<B>, request: Token) -> io::Result<()> {
    let slot = lp.works.requests.get_mut(request).ok_or_else(error::stale_request)?;
    if !slot.job.cancel() {
        if let Some(flight) = &mut slot.flight
            // The kernel owns the descriptor: it must not stay open.
            && flight.kind != OpKind::Close
        {
            flight.cancel(&mut lp.backend);
            return Ok(());
        }
        let why = "a thread has started it, or it is complete";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    lp.works.completed_here.push(slot.job);
    lp.notifier.notify(Notification::WORK)
}
