//! The lock-free lists of the pool in every order that the memory model allows:
//! `bash .ci/run loom`.
//!
//! A value is published with each job in a cell that loom checks: an ordering that is too weak is a
//! race on it.

#![allow(unsafe_code)]

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::thread;
use poll_core::Token;
use poll_core::sync::{Waiter, model};

use super::mpsc_stack::{JobChain, MpscStack, Pushed};
use super::submit_queue::SubmitQueue;
use super::{CompletionQueue, Job, Outcome, WorkKind};
use crate::event_loop::{Notification, Notifier};

/// A cell for each job.
struct Cells([UnsafeCell<u32>; 2]);

// SAFETY: loom checks each access to a cell, and fails where two of them race.
unsafe impl Sync for Cells {}
// SAFETY: as above.
unsafe impl Send for Cells {}

impl Cells {
    fn write(&self, index: u32) {
        // SAFETY: loom checks that no other thread uses the cell now.
        self.0[index as usize].with_mut(|cell| unsafe { *cell = index + 1 });
    }

    fn check(&self, index: u32) {
        // SAFETY: loom checks that the write of the other thread comes before.
        assert_eq!(self.0[index as usize].with(|cell| unsafe { *cell }), index + 1);
    }
}

/// A loop as the pool sees it.
struct Fixture {
    waiter: Waiter,
    notifier: Arc<Notifier>,
    completions: Arc<CompletionQueue>,
    cells: Arc<Cells>,
}

impl Fixture {
    fn new() -> Fixture {
        let waiter = Waiter::default();
        let notifier = Arc::new(Notifier::new(waiter.clone()));
        let completions = Arc::new(CompletionQueue::new(Arc::clone(&notifier)));
        let cells = Arc::new(Cells([UnsafeCell::new(0), UnsafeCell::new(0)]));
        Fixture { waiter, notifier, completions, cells }
    }

    /// A job that writes its cell when it runs.
    fn job(&self, index: u32) -> Job {
        let job = Job::allocate(&self.completions);
        let cells = Arc::clone(&self.cells);
        job.fill(WorkKind::Cpu, Token::new(index, 0), move || cells.write(index));
        job
    }

    /// Reads the cells of the jobs, which `take` has returned, and frees them.
    fn finish(&self, jobs: &mut Vec<Job>) -> u32 {
        let mut seen = 0;
        for job in jobs.drain(..) {
            let index = job.request().index();
            // SAFETY: the job was filled with such a closure, and its outcome is taken once.
            assert!(matches!(unsafe { job.take_outcome::<()>() }, Outcome::Returned(())));
            self.cells.check(index);
            assert!(job.release_from_loop(), "the worker has returned it");
            job.free();
            seen |= 1 << index;
        }
        seen
    }
}

/// Runs a job as a worker does, up to the point where it is returned.
fn run(job: Job) {
    assert!(job.start());
    job.run();
    job.mark_returned();
}

#[test]
fn jobs_of_two_threads_leave_a_stack_once_and_with_their_writes() {
    model(|| {
        let (fixture, stack) = (Fixture::new(), Arc::new(MpscStack::default()));
        let pushers = [0, 1].map(|index| {
            let (job, stack) = (fixture.job(index), Arc::clone(&stack));
            thread::spawn(move || {
                run(job);
                assert!(!matches!(stack.push(JobChain::of(job)), Pushed::Closed(_)));
            })
        });
        let (mut jobs, mut seen) = (Vec::new(), 0);
        stack.take(&mut jobs);
        seen |= fixture.finish(&mut jobs);
        pushers.into_iter().for_each(|pusher| pusher.join().unwrap());
        stack.take(&mut jobs);
        assert_eq!(seen & fixture.finish(&mut jobs), 0, "no job twice");
        assert!(stack.is_empty());
    });
}

#[test]
fn a_closed_stack_returns_what_it_does_not_take() {
    model(|| {
        let (fixture, stack) = (Fixture::new(), Arc::new(MpscStack::default()));
        let pusher = {
            let (job, stack) = (fixture.job(0), Arc::clone(&stack));
            thread::spawn(move || {
                run(job);
                match stack.push(JobChain::of(job)) {
                    Pushed::Closed(chain) => {
                        let mut returned = 0;
                        chain.for_each(|job| {
                            job.free();
                            returned += 1;
                        });
                        returned
                    }
                    _ => 0,
                }
            })
        };
        let mut jobs = Vec::new();
        stack.close(&mut jobs);
        let taken = jobs.len();
        fixture.finish(&mut jobs);
        assert_eq!(taken + pusher.join().unwrap(), 1, "one side has the job");
    });
}

#[test]
fn a_submitted_job_is_seen_by_the_worker_or_the_submitter_wakes_it() {
    model(|| {
        let (fixture, queue) = (Fixture::new(), Arc::new(SubmitQueue::default()));
        let submitter = {
            let (job, queue, cells) =
                (fixture.job(0), Arc::clone(&queue), Arc::clone(&fixture.cells));
            thread::spawn(move || {
                cells.write(1);
                queue.push(job)
            })
        };
        // As a worker that is about to sleep.
        queue.set_needs_wake(true);
        let sleeps = queue.is_empty();
        let mut jobs = Vec::new();
        if !sleeps {
            queue.take(&mut jobs);
            fixture.cells.check(1);
        }
        let woken = submitter.join().unwrap();
        assert!(!sleeps || woken, "the worker sleeps and the job waits for ever");
        queue.take(&mut jobs);
        assert_eq!(jobs.len(), 1);
        jobs.iter().for_each(|job| run(*job));
        assert_eq!(fixture.finish(&mut jobs), 1);
    });
}

#[test]
fn a_loop_is_woken_for_every_job_that_workers_return() {
    model(|| {
        let fixture = Fixture::new();
        let workers = [0, 1].map(|index| {
            let (job, completions) = (fixture.job(index), Arc::clone(&fixture.completions));
            thread::spawn(move || {
                run(job);
                completions.push(JobChain::of(job));
            })
        });
        let (mut jobs, mut seen) = (Vec::new(), 0);
        while seen != 3 {
            fixture.waiter.wait();
            if fixture.notifier.has_any() && fixture.notifier.take(Notification::WORK) {
                fixture.completions.take(&mut jobs);
                seen |= fixture.finish(&mut jobs);
            }
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
}

#[test]
fn a_dropped_loop_and_a_worker_free_a_job_once() {
    model(|| {
        let fixture = Fixture::new();
        let worker = {
            let (job, completions) = (fixture.job(0), Arc::clone(&fixture.completions));
            thread::spawn(move || {
                run(job);
                completions.push(JobChain::of(job));
            })
        };
        fixture.completions.close();
        worker.join().unwrap();
        // Each job has a clone: none is left, and none was released twice.
        assert_eq!(Arc::strong_count(&fixture.completions), 1);
    });
}

#[test]
fn a_job_is_either_cancelled_or_run() {
    model(|| {
        let fixture = Fixture::new();
        let job = fixture.job(0);
        let worker = thread::spawn(move || {
            let started = job.start();
            if started {
                job.run();
                job.mark_returned();
            }
            started
        });
        let cancelled = job.cancel();
        if cancelled {
            // The closure is gone: its cell belongs to this thread.
            fixture.cells.write(0);
            if job.release_from_loop() {
                job.free();
            }
        }
        assert_ne!(worker.join().unwrap(), cancelled);
        if !cancelled {
            assert_eq!(fixture.finish(&mut vec![job]), 1);
        }
        assert_eq!(Arc::strong_count(&fixture.completions), 1);
    });
}
