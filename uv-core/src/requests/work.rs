//! Work requests: closures that run on a pool and return their result to the loop.

#![allow(unsafe_code)]

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::sync::Arc;

use poll_core::{Backend, Op, Token};

use crate::event_loop::{InFlight, Notification, exchange};
use crate::handles::{key_from_bits, key_to_bits};
use crate::pool::{CompletionQueue, Job, Outcome, Pool, WorkKind};
use crate::requests::task;
use crate::storage::{Arena, InlineFnOnce, Seed};
use crate::{Loop, error};

/// The key of a closure that is queued or runs on a pool, to [cancel](WorkRequest::cancel) it.
///
/// It is stale once the request's callback has run.
///
/// ```
/// use uv_core::{WorkKind, Loop, Pool, RunMode, WorkRequest, WorkError};
///
/// let (mut lp, pool) = (Loop::with_default_backend()?, Pool::new(1)?);
/// let (go, wait) = std::sync::mpsc::channel::<()>();
/// lp.queue_work_on(&pool, WorkKind::Cpu, move || wait.recv(), |_, _| {})?;
///
/// // The only thread is busy, so this work has not started.
/// let work: WorkRequest = lp.queue_work_on(&pool, WorkKind::Cpu, || 6 * 7, |_, answer| {
///     assert!(matches!(answer, Err(WorkError::Cancelled)));
/// })?;
/// work.cancel(&mut lp)?;
/// go.send(()).unwrap();
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "uv_work_t")]
pub struct WorkRequest(Token);

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
///         Err(WorkError::Cancelled) => println!("it did not run"),
///         Err(panicked) => assert_eq!(panicked.to_string(), "the work panicked: no idea"),
///     },
/// )?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[non_exhaustive]
pub enum WorkError {
    /// It was cancelled before it started.
    Cancelled,
    /// It panicked, with this payload.
    Panicked(Box<dyn Any + Send>),
}

/// The work requests of a loop.
#[derive(Debug)]
pub(crate) struct Works<B: Backend> {
    pub(super) requests: Arena<WorkSlot<B>>,
    /// Operations of tasks that are submitted before the backend next waits.
    pub(super) to_submit: Vec<(Token, Op)>,
    completions: Arc<CompletionQueue>,
    /// Free list of jobs.
    spare: Vec<Job>,
    /// Completed jobs whose callbacks are due, the next one last.
    completed: Vec<Job>,
    /// Jobs that no pool returns, because they were cancelled or completed by the loop itself, in
    /// that order, since the last callbacks.
    pub(super) completed_here: Vec<Job>,
    /// The pool that the loop was given, or the process's once the loop has used it.
    pub(crate) pool: Option<Pool>,
}

#[derive(Debug)]
pub(super) struct WorkSlot<B: Backend> {
    pub(super) job: Job,
    /// The operation that performs the task, from its submission until the backend has reported
    /// its completion and no next part follows.
    pub(super) flight: Option<InFlight>,
    /// Moves the result out of the job and calls back with it.
    pub(super) finish: InlineFnOnce<B, Job>,
}

impl<B: Backend> Works<B> {
    pub(crate) fn new(seed: Seed, completions: CompletionQueue) -> Works<B> {
        Works {
            requests: Arena::new(seed),
            to_submit: Vec::new(),
            completions: Arc::new(completions),
            spare: Vec::new(),
            completed: Vec::new(),
            completed_here: Vec::new(),
            pool: None,
        }
    }

    /// The number of requests whose callbacks have not run yet.
    pub(crate) fn active(&self) -> usize {
        self.requests.len()
    }

    /// True if tasks are to be submitted to the backend.
    pub(crate) fn has_lent(&self) -> bool {
        !self.to_submit.is_empty()
    }

    /// An empty job.
    pub(super) fn vacant_job(&mut self) -> Job {
        self.spare.pop().unwrap_or_else(|| Job::allocate(&self.completions))
    }
}

impl<B: Backend> Drop for Works<B> {
    fn drop(&mut self) {
        for (_, request) in self.requests.iter() {
            // The backend was dropped before and has released the operations that it had accepted.
            if request.job.cancel() || request.job.abandon() {
                self.completed_here.push(request.job);
            }
        }
        // A pool frees the jobs that it still holds.
        for job in self.completed.drain(..).chain(self.completed_here.drain(..)) {
            job.drop_result();
            if job.release_from_loop() {
                job.free();
            }
        }
        self.spare.drain(..).for_each(Job::free);
        self.completions.close();
    }
}

impl<B: Backend> Loop<B> {
    /// Runs `work` on the process's [pool](Pool::global), then calls `done` in the loop with its
    /// result.
    ///
    /// The loop stays alive until then. Work starts in the order in which it was queued. Messages
    /// that `work` sends to a [`Channel`](crate::Channel) or an [`Async`](crate::Async) of this
    /// loop are delivered before `done` is called.
    ///
    /// A request allocates nothing once the loop has had as many at a time, if `work` and its
    /// result take up to 55 words each and the captures of `done` up to three; larger ones are
    /// boxed. So a library may pass raw descriptors and pointers of its callers by a small `Send`
    /// type of its own, as libuv's `uv_fs_*` do; for descriptors see also
    /// [`fs::File::borrow_raw`](crate::fs::File::borrow_raw).
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
    /// The error of starting the pool's threads, on first use, which drops `work` and `done`. There
    /// is none after [`Pool::global`] has succeeded once, or after [`set_pool`](Loop::set_pool).
    #[doc(alias = "uv_queue_work")]
    pub fn queue_work<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&mut Loop<B>, Result<T, WorkError>) + 'static,
    ) -> io::Result<WorkRequest> {
        self.queue_work_kind(WorkKind::Cpu, work, done)
    }

    /// As [`queue_work`](Loop::queue_work), for a given kind of work.
    ///
    /// ```
    /// use uv_core::{Loop, RunMode, WorkKind};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.queue_work_kind(WorkKind::SlowIo, || 6 * 7, |_, answer| {
    ///     assert_eq!(answer.unwrap(), 42);
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for `queue_work`.
    #[doc(alias = "uv_queue_work")]
    pub fn queue_work_kind<T: Send + 'static>(
        &mut self,
        kind: WorkKind,
        work: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&mut Loop<B>, Result<T, WorkError>) + 'static,
    ) -> io::Result<WorkRequest> {
        self.works.pool()?;
        let (work, job) = self.works.prepare(kind, work, done);
        // `Works::pool` has set it.
        if let Some(pool) = &self.works.pool {
            pool.submit(job);
        }
        Ok(work)
    }

    /// Sets the pool of this loop, for [work](Loop::queue_work) and all other requests that need a
    /// thread, instead of the process's pool.
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
        self.works.pool = Some(pool);
    }

    /// As [`queue_work`](Loop::queue_work), on a given pool and for a given kind of work.
    ///
    /// ```
    /// use uv_core::{Loop, Pool, RunMode, WorkKind};
    ///
    /// let (mut lp, pool) = (Loop::with_default_backend()?, Pool::new(1)?);
    /// lp.queue_work_on(&pool, WorkKind::SlowIo, || 6 * 7, |_, answer| {
    ///     assert_eq!(answer.unwrap(), 42);
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// None at present.
    #[doc(alias = "uv_queue_work")]
    pub fn queue_work_on<T: Send + 'static>(
        &mut self,
        pool: &Pool,
        kind: WorkKind,
        work: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&mut Loop<B>, Result<T, WorkError>) + 'static,
    ) -> io::Result<WorkRequest> {
        let (work, job) = self.works.prepare(kind, work, done);
        pool.submit(job);
        Ok(work)
    }
}

impl<B: Backend> Works<B> {
    /// The pool of this loop.
    #[inline]
    pub(crate) fn pool(&mut self) -> io::Result<&Pool> {
        match &mut self.pool {
            Some(pool) => Ok(pool),
            none => Ok(none.insert(Pool::global()?)),
        }
    }

    /// Inserts a request; returns it and its job, to be submitted to a pool.
    #[inline]
    fn prepare<T: Send + 'static>(
        &mut self,
        kind: WorkKind,
        work: impl FnOnce() -> T + Send + 'static,
        done: impl FnOnce(&mut Loop<B>, Result<T, WorkError>) + 'static,
    ) -> (WorkRequest, Job) {
        let job = self.vacant_job();
        let finish = InlineFnOnce::new(move |lp: &mut Loop<B>, job: Job| {
            // SAFETY: the job is filled with a closure that returns a `T` below, and a request
            // finishes once.
            let outcome = unsafe { job.take_outcome::<T>() };
            lp.works.reuse(job);
            done(
                lp,
                match outcome {
                    Outcome::Returned(value) => Ok(value),
                    Outcome::Panicked(panic) => Err(WorkError::Panicked(panic)),
                    Outcome::Cancelled => Err(WorkError::Cancelled),
                },
            );
        });
        let request = self.requests.insert(WorkSlot { job, flight: None, finish });
        job.fill(kind, request, work);
        (WorkRequest(request), job)
    }

    #[inline]
    pub(super) fn reuse(&mut self, job: Job) {
        if job.release_from_loop() {
            self.spare.push(job);
        }
    }

    /// Collects the completed jobs, whose callbacks [`run_ended`] runs.
    #[inline]
    pub(crate) fn collect_ended(&mut self) {
        let from = self.completed.len();
        self.completions.take(&mut self.completed);
        // Jobs that a panic left over run first, so they must be last here.
        self.completed.rotate_left(from);
        self.completed.splice(..0, self.completed_here.drain(..).rev());
    }

    /// Gives up the threads in a forked child, where they do not exist. Queued jobs count as
    /// cancelled, and so do tasks that were about to be submitted, as the parent submits them.
    /// Jobs that ran never finish: their memory is not touched.
    pub(crate) fn forget_threads(&mut self) {
        self.completions.take(&mut self.completed);
        self.to_submit.clear();
        let known: HashSet<Job> =
            self.completed.iter().chain(&self.completed_here).copied().collect();
        let requests = self.requests.iter().map(|(_, request)| request.job);
        // The backend reports the operations that it had accepted as cancelled.
        let left = requests.filter(|job| !known.contains(job) && job.abandon_after_fork());
        self.completed_here.extend(left);
    }
}

/// As [`queue_work`](Loop::queue_work), for work of this crate that returns an `io::Result`:
/// cancellation and panics become errors too.
pub(crate) fn queue_request<B: Backend, T: Send + 'static>(
    lp: &mut Loop<B>,
    kind: WorkKind,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
    done: impl FnOnce(&mut Loop<B>, io::Result<T>) + 'static,
) -> io::Result<WorkRequest> {
    lp.queue_work_kind(kind, work, move |lp, outcome| {
        done(
            lp,
            outcome.unwrap_or_else(|why| match why {
                WorkError::Cancelled => Err(error::cancelled()),
                panicked => Err(io::Error::other(panicked.to_string())),
            }),
        );
    })
}

/// Runs the callbacks of the [collected](Works::collect_ended) jobs; returns their number.
#[inline]
pub(crate) fn run_ended<B: Backend>(lp: &mut Loop<B>) -> usize {
    let count = lp.works.completed.len();
    while let Some(job) = lp.works.completed.pop() {
        let Some(slot) = lp.works.requests.remove(job.request()) else { continue };
        let notifier = Arc::as_ptr(&lp.notifier);
        // After a panic the remaining callbacks run in the next iteration.
        lp.guarded(Notification::WORK, Loop::notify_itself, |lp| slot.finish.call(lp, job));
        if notifier != Arc::as_ptr(&lp.notifier) {
            exchange::note();
        }
    }
    count
}

impl WorkRequest {
    /// The key as a number, to store it where only numbers fit, as in C structures. It is never 0.
    ///
    /// ```
    /// use uv_core::{Loop, RunMode, WorkRequest};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let work = lp.queue_work(|| (), |_, _| {})?;
    /// assert_eq!(WorkRequest::from_bits(work.to_bits()), work);
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub const fn to_bits(self) -> u64 {
        key_to_bits(self.0)
    }

    /// Reverses [`to_bits`](Self::to_bits). Any number is a key; one that names no request of the
    /// loop that it is used with is stale: `NotFound`.
    ///
    /// ```
    /// use uv_core::{Loop, RunMode, WorkRequest};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let work = lp.queue_work(|| (), |_, _| {})?;
    /// assert_eq!(WorkRequest::from_bits(work.to_bits()), work);
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub const fn from_bits(bits: u64) -> WorkRequest {
        WorkRequest(key_from_bits(bits))
    }

    /// Cancels work that has not started. Its callback still runs, later, with
    /// [`WorkError::Cancelled`].
    ///
    /// # Errors
    ///
    /// `ResourceBusy` if the work runs or has run; `NotFound` if its callback has run.
    #[doc(alias = "uv_cancel")]
    pub fn cancel<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        task::cancel(lp, self.0)
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
        write!(f, "the work panicked: {}", text.unwrap_or("the payload is not a string"))
    }
}

impl std::error::Error for WorkError {}
