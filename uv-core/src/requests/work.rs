//! Work requests: run a closure on a pool, get its result in the loop.

#![allow(unsafe_code)]

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::Arc;

use poll_core::{Backend, Op, Token};

use crate::arena::Arena;
use crate::callback::Once;
use crate::notify::Notes;
use crate::pool::{Ending, Home, Job, Lane, Pool};
use crate::{Loop, error};

/// A closure that runs, or will run, on a pool: the key to [cancel](Work::cancel) it.
///
/// It is stale once the request has called back.
///
/// ```
/// use uv_core::{Lane, Loop, Pool, RunMode, Work, WorkError};
///
/// let (mut lp, pool) = (Loop::with_default_backend()?, Pool::new(1)?);
/// let (go, wait) = std::sync::mpsc::channel::<()>();
/// lp.queue_work_on(&pool, Lane::Cpu, move || wait.recv(), |_, _| {})?;
///
/// // The only thread is busy, so this one has not begun.
/// let work: Work = lp.queue_work_on(&pool, Lane::Cpu, || 6 * 7, |_, answer| {
///     assert!(matches!(answer, Err(WorkError::Cancelled)));
/// })?;
/// work.cancel(&mut lp)?;
/// go.send(()).unwrap();
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Work(Token);

/// Why work has no result.
///
/// ```
/// use uv_core::{Loop, RunMode, WorkError};
///
/// let mut lp = Loop::with_default_backend()?;
/// lp.queue_work(
///     || -> u32 { panic!("no idea") },
///     |_, answer| match answer {
///         Ok(answer) => println!("{answer}"),
///         Err(WorkError::Cancelled) => println!("nobody was asked"),
///         Err(panicked) => assert_eq!(panicked.to_string(), "the work panicked: no idea"),
///     },
/// )?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
pub enum WorkError {
    /// It was cancelled before it began.
    Cancelled,
    /// It panicked, with this.
    Panicked(Box<dyn Any + Send>),
}

/// The work requests of a loop.
#[derive(Debug)]
pub(crate) struct Works<B: Backend> {
    pub(super) requests: Arena<WorkSlot<B>>,
    /// Those whose tasks wait for the backend to take them, before it waits.
    pub(super) lent: Vec<(Token, Op)>,
    home: Arc<Home>,
    /// Jobs that were used and can be used again.
    spare: Vec<Job>,
    /// Jobs that were handed back and wait for their callbacks, the next one last.
    ended: Vec<Job>,
    /// Jobs that have an end and that no pool hands back: cancelled, or done at once. In the
    /// order of that, since the last callbacks.
    pub(super) settled: Vec<Job>,
}

#[derive(Debug)]
pub(super) struct WorkSlot<B: Backend> {
    pub(super) job: Job,
    /// Takes the result out of the job and calls back with it.
    pub(super) finish: Once<B, Job>,
}

impl<B: Backend> Works<B> {
    pub(crate) fn new(home: Home) -> Works<B> {
        Works {
            requests: Arena::default(),
            lent: Vec::new(),
            home: Arc::new(home),
            spare: Vec::new(),
            ended: Vec::new(),
            settled: Vec::new(),
        }
    }

    /// How many have not called back yet.
    pub(crate) fn active(&self) -> usize {
        self.requests.len()
    }

    /// True if tasks wait for the backend to take them.
    pub(crate) fn has_lent(&self) -> bool {
        !self.lent.is_empty()
    }

    /// A job to fill.
    pub(super) fn vacant_job(&mut self) -> Job {
        self.spare.pop().unwrap_or_else(|| Job::allocate(&self.home))
    }
}

impl<B: Backend> Drop for Works<B> {
    fn drop(&mut self) {
        for (_, request) in self.requests.iter() {
            // The backend, gone by now, has let go of what it had taken.
            if request.job.cancel() || request.job.abandon() {
                self.settled.push(request.job);
            }
        }
        // Those that a pool still holds are freed by it.
        for job in self.ended.drain(..).chain(self.settled.drain(..)) {
            job.drop_result();
            if job.give_up() {
                job.free();
            }
        }
        self.spare.drain(..).for_each(Job::free);
        self.home.close();
    }
}

impl<B: Backend> Loop<B> {
    /// Runs `work` on the process's [pool](Pool::global), then calls `done` in the loop
    /// with what it returned.
    ///
    /// The loop stays alive meanwhile. Work starts in the order it was queued.
    ///
    /// ```
    /// use uv_core::{Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.queue_work(
    ///     || (1..=20_u64).product::<u64>(),
    ///     |_, result| println!("20! = {}", result.unwrap()),
    /// )?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of starting the pool's threads, the first time.
    pub fn queue_work<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&mut Loop<B>, Result<T, WorkError>) + 'static,
    ) -> io::Result<Work> {
        self.queue_on_own_pool(Lane::Cpu, work, done)
    }

    fn queue_on_own_pool<T: Send + 'static>(
        &mut self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&mut Loop<B>, Result<T, WorkError>) + 'static,
    ) -> io::Result<Work> {
        self.pool()?;
        let (work, job) = self.prepare_work(lane, work, done);
        // It is there now.
        if let Some(pool) = &self.pool {
            pool.submit(job);
        }
        Ok(work)
    }

    /// Makes this loop use `pool` from now on, for [work](Loop::queue_work) and for all other
    /// requests that need a thread, instead of the process's.
    ///
    /// ```
    /// use uv_core::{Loop, Pool, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.set_pool(Pool::new(1)?);
    /// lp.queue_work(|| 6 * 7, |_, answer| assert_eq!(answer.unwrap(), 42))?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn set_pool(&mut self, pool: Pool) {
        self.pool = Some(pool);
    }

    /// The pool that this loop uses.
    pub(crate) fn pool(&mut self) -> io::Result<&Pool> {
        match &mut self.pool {
            Some(pool) => Ok(pool),
            none => Ok(none.insert(Pool::global()?)),
        }
    }

    /// As [`queue_work`](Loop::queue_work), for work of this crate's that returns a result
    /// and does not panic: that it was cancelled is one more error.
    pub(crate) fn queue_request<T: Send + 'static>(
        &mut self,
        lane: Lane,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
        done: impl FnOnce(&mut Loop<B>, io::Result<T>) + 'static,
    ) -> io::Result<Work> {
        self.queue_on_own_pool(lane, work, move |lp, ending| {
            done(
                lp,
                ending.unwrap_or_else(|why| match why {
                    WorkError::Cancelled => Err(error::cancelled()),
                    panicked => Err(io::Error::other(panicked.to_string())),
                }),
            );
        })
    }

    /// As [`queue_work`](Loop::queue_work), on a pool of the caller's and in a lane.
    ///
    /// # Errors
    ///
    /// None at present.
    pub fn queue_work_on<T: Send + 'static>(
        &mut self,
        pool: &Pool,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&mut Loop<B>, Result<T, WorkError>) + 'static,
    ) -> io::Result<Work> {
        let (work, job) = self.prepare_work(lane, work, done);
        pool.submit(job);
        Ok(work)
    }

    /// A request, and its job for a pool.
    fn prepare_work<T: Send + 'static>(
        &mut self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&mut Loop<B>, Result<T, WorkError>) + 'static,
    ) -> (Work, Job) {
        let works = &mut self.works;
        let job = works.vacant_job();
        let finish = Once::new(move |lp: &mut Loop<B>, job: Job| {
            // SAFETY: this job was filled with a closure that returns a `T`, below; a
            // request finishes once.
            let ending = unsafe { job.ending::<T>() };
            lp.reuse(job);
            done(
                lp,
                match ending {
                    Ending::Returned(value) => Ok(value),
                    Ending::Panicked(panic) => Err(WorkError::Panicked(panic)),
                    Ending::Cancelled => Err(WorkError::Cancelled),
                },
            );
        });
        let request = works.requests.insert(WorkSlot { job, finish });
        job.fill(lane, request, work);
        (Work(request), job)
    }

    pub(super) fn reuse(&mut self, job: Job) {
        if job.give_up() {
            self.works.spare.push(job);
        }
    }

    /// Calls back for the work that has ended; returns how much that was.
    pub(crate) fn run_ended_work(&mut self) -> usize {
        let from = self.works.ended.len();
        self.works.home.take(&mut self.works.ended);
        // What a panic left over comes first, and so must be last here.
        self.works.ended.rotate_left(from);
        self.works.ended.splice(..0, self.works.settled.drain(..).rev());
        let count = self.works.ended.len();
        while let Some(job) = self.works.ended.pop() {
            let Some(slot) = self.works.requests.remove(job.request()) else { continue };
            let again = NotifyOnPanic { lp: self };
            slot.finish.call(again.lp, job);
            std::mem::forget(again);
        }
        count
    }
}

impl<B: Backend> Works<B> {
    /// In a forked child no thread runs what was queued: it counts as cancelled, and so does
    /// what the backend was to be given next, as the parent's backend performs that. What the
    /// threads were at, they are at for ever, so nothing of theirs is touched.
    pub(crate) fn forget_threads(&mut self) {
        self.home.take(&mut self.ended);
        self.lent.clear();
        let known: HashSet<Job> = self.ended.iter().chain(&self.settled).copied().collect();
        let requests = self.requests.iter().map(|(_, request)| request.job);
        // The backend has cancelled what it had: its events tell of that.
        let left = requests.filter(|job| !known.contains(job) && job.forsake());
        self.settled.extend(left);
    }
}

/// The rest of what has ended must not wait for more to end.
struct NotifyOnPanic<'a, B: Backend> {
    lp: &'a mut Loop<B>,
}

impl<B: Backend> Drop for NotifyOnPanic<'_, B> {
    fn drop(&mut self) {
        // If waking fails the rest is found when the loop next looks.
        let _ = self.lp.notifier.notify(Notes::WORK);
    }
}

impl Work {
    /// Cancels work that has not begun. Its callback comes all the same, later, with
    /// [`WorkError::Cancelled`].
    ///
    /// # Errors
    ///
    /// `ResourceBusy` if the work runs or has run; `NotFound` if it has called back.
    pub fn cancel<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        lp.cancel_queued(self.0)
    }
}

impl fmt::Debug for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WorkError::Cancelled => f.write_str("Cancelled"),
            WorkError::Panicked(_) => write!(f, "Panicked({:?})", self.to_string()),
        }
    }
}

impl fmt::Display for WorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkError::Panicked(panic) = self else {
            return f.write_str("the work was cancelled");
        };
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        write!(f, "the work panicked: {}", text.unwrap_or("with something other than a text"))
    }
}

impl std::error::Error for WorkError {}
