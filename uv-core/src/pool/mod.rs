//! The thread pool, for work that would block the loop.
//!
//! A pool has one queue with one mutex, and a lock-free [submission queue](submit_queue) in front
//! of it. Waking a thread is the largest cost of such a pool. So a thread is woken only if one
//! sleeps and none is being woken already, a woken thread wakes the next if there is more work, and
//! a thread checks for more work before it sleeps. Jobs that do not block are run and completed in
//! batches.

mod completion_queue;
mod job;
#[cfg(all(test, loom))]
mod models;
mod mpsc_stack;
mod queue;
mod submit_queue;
mod task;
mod worker;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use poll_core::Token;

use crate::sys;

pub(crate) use completion_queue::CompletionQueue;
pub(crate) use job::{Job, Outcome, fits_task};
use queue::Queue;
pub use queue::WorkKind;
use submit_queue::SubmitQueue;
pub(crate) use task::{Running, Step, Task};

/// The environment variable that sets the size of the process-wide pool.
const VARIABLE: &str = "UV_THREADPOOL_SIZE";
const DEFAULT_THREADS: usize = 4;
const MAX_THREADS: usize = 1024;
/// As libuv names its threads: tools and tests look for it.
const THREAD_NAME: &str = "libuv-worker";

/// A pool of threads that run [work](crate::Loop::queue_work).
///
/// The process has one ([`Pool::global`]), which loops use unless [`Loop::set_pool`] or a call
/// names another. Separate pools keep kinds of work from delaying each other. Threads are called
/// `libuv-worker`, as those of libuv.
///
/// [`Loop::set_pool`]: crate::Loop::set_pool
///
/// ```
/// use uv_core::{WorkKind, Loop, Pool, RunMode};
///
/// let pool = Pool::new(2)?;
/// let mut lp = Loop::with_default_backend()?;
/// lp.queue_work_on(&pool, WorkKind::Cpu, || 6 * 7, |_, answer| assert_eq!(answer.unwrap(), 42))?;
/// lp.run(RunMode::Default)?;
/// assert_eq!(pool.threads(), 2);
/// # std::io::Result::Ok(())
/// ```
///
/// Clones share the threads. When the last clone is dropped, the threads run the queued jobs and
/// end; [`join`](Pool::join) waits for that.
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    /// How many threads have started.
    threads: usize,
    /// Shuts the threads down when the last clone is dropped.
    shutdown: Arc<Shutdown>,
}

#[derive(Debug)]
struct Shared {
    submitted: SubmitQueue,
    state: Mutex<State>,
    work: Condvar,
    /// Of jobs that are returned to no loop.
    detached: Arc<CompletionQueue>,
}

#[derive(Debug, Default)]
struct State {
    queue: Queue,
    /// Scratch memory for draining the submission queue.
    arrived: Vec<Job>,
    /// Jobs that threads have taken and not finished.
    active: usize,
    /// Threads that run short jobs. Each checks the queue again within microseconds.
    short: usize,
    /// The number of cores, or of threads if that is less: no more threads are woken for jobs that
    /// do not block.
    short_limit: usize,
    /// Threads that sleep.
    asleep: usize,
    /// A thread was woken and has not checked the queue yet.
    waking: bool,
    shutdown: bool,
}

#[derive(Debug)]
struct Shutdown {
    shared: Arc<Shared>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    /// The process that has the threads.
    forks: u32,
}

impl Drop for Shutdown {
    fn drop(&mut self) {
        self.shared.lock().shutdown = true;
        self.shared.work.notify_all();
    }
}

static GLOBAL: Mutex<Option<(u32, Pool)>> = Mutex::new(None);

impl Pool {
    /// Starts a pool of `threads` threads, 1 to 1,024. It has fewer if the system cannot start as
    /// many.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for another number; the error of starting a thread, if none can be started.
    pub fn new(threads: usize) -> io::Result<Pool> {
        if !(1..=MAX_THREADS).contains(&threads) {
            let why = format!("a pool has 1 to {MAX_THREADS} threads, not {threads}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        // Threads read the state as soon as they start.
        let state = State { short_limit: cores.min(threads), ..State::default() };
        let (submitted, state, work) = (SubmitQueue::default(), Mutex::new(state), Condvar::new());
        let detached = Arc::new(CompletionQueue::of_no_loop());
        let shared = Arc::new(Shared { submitted, state, work, detached });
        let shutdown = Arc::new(Shutdown {
            shared: Arc::clone(&shared),
            threads: Mutex::default(),
            forks: sys::forks(),
        });
        let threads = start(threads, || {
            let (worker, thread) = (Arc::clone(&shared), thread::Builder::new());
            let handle = thread.name(THREAD_NAME.into()).spawn(move || worker::run(&worker))?;
            shutdown.threads.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
            Ok(())
        })?;
        // No job can have been submitted yet.
        let mut state = shared.lock();
        state.short_limit = cores.min(threads);
        state.queue.set_threads(threads);
        drop(state);
        Ok(Pool { shared, threads, shutdown })
    }

    /// Ends the pool: its threads run the queued jobs and end, and this call waits for that.
    ///
    /// Dropping the last clone ends the pool too, without waiting.
    ///
    /// ```
    /// use uv_core::{Loop, Pool, RunMode, WorkKind};
    ///
    /// let (mut lp, pool) = (Loop::with_default_backend()?, Pool::new(2)?);
    /// lp.queue_work_on(&pool, WorkKind::Cpu, || 6 * 7, |_, answer| assert_eq!(answer.unwrap(), 42))?;
    /// pool.join().expect("the only clone");
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The pool itself if another clone exists, such as that of a loop, or if one of its own
    /// threads makes the call.
    pub fn join(self) -> Result<(), Pool> {
        let Pool { shared, threads, shutdown } = self;
        let own = thread::current().id();
        let lock = || shutdown.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if lock().iter().any(|handle| handle.thread().id() == own) {
            return Err(Pool { shared, threads, shutdown });
        }
        let last = match Arc::try_unwrap(shutdown) {
            Ok(last) => last,
            Err(shutdown) => return Err(Pool { shared, threads, shutdown }),
        };
        let forks = last.forks;
        let lock = last.threads.lock();
        let handles = std::mem::take(&mut *lock.unwrap_or_else(PoisonError::into_inner));
        drop(last);
        if forks == sys::forks() {
            // A job that panics does not end its thread.
            handles.into_iter().for_each(|handle| drop(handle.join()));
        } else {
            // The threads are those of the parent process.
            std::mem::forget(handles);
        }
        Ok(())
    }

    /// Ends the pool of the process as [`join`](Pool::join) does, if it was started. The next use
    /// starts it again.
    ///
    /// ```
    /// use uv_core::{Loop, Pool, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.queue_work(|| (), |_, _| {})?;
    /// lp.run(RunMode::Default)?;
    /// assert!(Pool::shutdown_global().is_err(), "the loop has it");
    /// drop(lp);
    /// Pool::shutdown_global()?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `ResourceBusy` if a loop or another clone has it.
    #[doc(alias = "uv_library_shutdown")]
    pub fn shutdown_global() -> io::Result<()> {
        let mut global = GLOBAL.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((generation, pool)) = global.take() else { return Ok(()) };
        if generation != sys::forks() {
            // The threads are those of the parent process.
            std::mem::forget(pool);
            return Ok(());
        }
        pool.join().map_err(|pool| {
            *global = Some((generation, pool));
            let why = "the pool is in use: drop the loops and clones that have it first";
            io::Error::new(io::ErrorKind::ResourceBusy, why)
        })
    }

    /// The pool of the process. It starts on first use, with 4 threads or as many as the
    /// environment variable `UV_THREADPOOL_SIZE` names then, at least 1 and at most 1,024.
    ///
    /// ```
    /// use uv_core::Pool;
    ///
    /// let pool = Pool::global()?;
    /// println!("{} threads, {} queued jobs", pool.threads(), pool.queued());
    /// assert!(pool.threads() >= 1);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of starting a thread, if none can be started.
    pub fn global() -> io::Result<Pool> {
        let generation = sys::forks();
        let mut pool = GLOBAL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, pool)) = &*pool
            && *of == generation
        {
            return Ok(pool.clone());
        }
        let new = Pool::new(size_from(std::env::var(VARIABLE).ok().as_deref()))?;
        // After a fork the threads of the parent's pool do not exist here: leak that pool.
        std::mem::forget(pool.replace((generation, new.clone())));
        Ok(new)
    }

    /// The number of threads, which may be less than was requested.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The number of jobs that wait for a thread.
    pub fn queued(&self) -> usize {
        let mut state = self.shared.lock();
        self.shared.drain_submitted(&mut state);
        state.queue.len()
    }

    /// The number of jobs that run now.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use uv_core::{WorkKind, Loop, Pool, RunMode};
    ///
    /// let (mut lp, pool) = (Loop::with_default_backend()?, Pool::new(1)?);
    /// let ((begun, begin), (go, wait)) = (mpsc::channel(), mpsc::channel::<()>());
    /// lp.queue_work_on(&pool, WorkKind::Cpu, move || begun.send(()).map(|()| wait.recv()), |_, _| {})?;
    /// lp.queue_work_on(&pool, WorkKind::Cpu, || (), |_, _| {})?;
    /// begin.recv().unwrap();
    /// assert_eq!((pool.active(), pool.queued()), (1, 1));
    /// go.send(()).unwrap();
    /// lp.run(RunMode::Default)?;
    /// assert_eq!(pool.queued(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    pub fn active(&self) -> usize {
        self.shared.lock().active
    }

    /// Runs work whose end no loop waits for. A thread frees its job.
    pub(crate) fn run_detached(&self, work: impl FnOnce() + Send + 'static) {
        let job = Job::allocate(&self.shared.detached);
        // No loop has a request of it.
        job.fill(WorkKind::Cpu, Token::new(0, 0), work);
        self.submit(job);
    }

    pub(crate) fn submit(&self, job: Job) {
        // A thread takes short jobs in batches if several are queued. Without the lock a fast
        // worker would take them one by one as they are submitted.
        if job.is_short() {
            let mut state = self.shared.lock();
            self.shared.drain_submitted(&mut state);
            state.queue.push(job);
            self.shared.wake_one(state);
        } else if self.shared.submitted.push(job) {
            self.shared.wake_one(self.shared.lock());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Jobs run without the lock, so a panic cannot leave the state inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the submitted jobs to the queue.
    fn drain_submitted(&self, state: &mut State) {
        let State { queue, arrived, .. } = state;
        self.submitted.take(arrived);
        arrived.drain(..).rev().for_each(|job| queue.push(job));
    }

    /// Wakes a thread if there is work for it, one sleeps, and none is being woken. If every core
    /// has a thread for short jobs, more such jobs wake no further thread.
    fn wake_one(&self, mut state: MutexGuard<'_, State>) {
        if state.asleep == 0 || state.waking {
            return;
        }
        self.drain_submitted(&mut state);
        let enough = state.short >= state.short_limit && state.queue.is_short();
        if !enough && state.queue.has_work() {
            state.waking = true;
            self.update_needs_wake(&state);
            drop(state);
            self.work.notify_one();
        }
    }

    /// Publishes whether the next submission must wake a thread.
    fn update_needs_wake(&self, state: &State) {
        self.submitted.set_needs_wake(state.asleep > 0 && !state.waking);
    }
}

/// Starts threads and returns how many have started. It is an error only if none has.
fn start(threads: usize, mut one: impl FnMut() -> io::Result<()>) -> io::Result<usize> {
    for started in 0..threads {
        match one() {
            Ok(()) => {}
            Err(error) if started == 0 => return Err(error),
            Err(_) => return Ok(started),
        }
    }
    Ok(threads)
}

fn size_from(variable: Option<&str>) -> usize {
    match variable.map(str::parse::<usize>) {
        Some(Ok(threads)) => threads.clamp(1, MAX_THREADS),
        Some(Err(_)) => 1,
        None => DEFAULT_THREADS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_variable_is_clamped_to_the_valid_range() {
        assert_eq!(size_from(None), 4);
        assert_eq!(size_from(Some("7")), 7);
        assert_eq!(size_from(Some("0")), 1);
        assert_eq!(size_from(Some("99999")), 1024);
        assert_eq!(size_from(Some("many")), 1);
    }

    #[test]
    fn started_threads_are_counted() {
        let mut left = 3;
        let mut one = || {
            left -= 1;
            if left < 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        };
        assert_eq!(start(2, &mut one).unwrap(), 2);
        assert_eq!(start(2, &mut one).unwrap(), 1, "the fourth thread fails");
        assert_eq!(start(2, &mut one).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn invalid_numbers_of_threads_are_refused() {
        assert_eq!(Pool::new(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(Pool::new(1025).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
