//! Threads for work that would block the loop.
//!
//! One queue, one lock, and a [door](door) where jobs are left without it. What costs in such a
//! pool is waking: so a thread is woken only if one sleeps and none is on its way already, a
//! woken thread wakes the next if there is more to do, and threads look for more work before
//! they sleep. Jobs that do not block are taken several at a time, and told together.

mod door;
mod home;
mod job;
mod list;
mod queue;
mod task;
mod worker;

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::sys;

use door::Door;
pub(crate) use home::Home;
pub(crate) use job::{Ending, Job, fits_task};
pub use queue::Lane;
use queue::Queue;
pub(crate) use task::{Running, Step, Task};

/// The environment variable that sets the size of the process-wide pool.
const VARIABLE: &str = "UV_THREADPOOL_SIZE";
const DEFAULT_THREADS: usize = 4;
const MAX_THREADS: usize = 1024;

/// A pool of threads that run [work](crate::Loop::queue_work).
///
/// The process has one ([`Pool::global`]), which loops use unless told otherwise. Pools of
/// one's own keep kinds of work from getting in each other's way.
///
/// ```
/// use uv_core::{Lane, Loop, Pool, RunMode};
///
/// let pool = Pool::new(2)?;
/// let mut lp = Loop::with_default_backend()?;
/// lp.queue_work_on(&pool, Lane::Cpu, || 6 * 7, |_, answer| assert_eq!(answer.unwrap(), 42))?;
/// lp.run(RunMode::Default)?;
/// assert_eq!(pool.threads(), 2);
/// # std::io::Result::Ok(())
/// ```
///
/// Clones share the threads. When the last clone is gone the threads end, after they have
/// run what is queued.
#[derive(Clone, Debug)]
pub struct Pool {
    shared: Arc<Shared>,
    /// How many have started.
    threads: usize,
    /// Tells the threads when the last clone is gone.
    _end: Arc<End>,
}

#[derive(Debug)]
struct Shared {
    door: Door,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: Queue,
    /// Memory for the way from the door to the queue.
    arrived: Vec<Job>,
    /// Threads that run a job.
    active: usize,
    /// Threads that run brief jobs, and look for more before any of them could wait long.
    brief: usize,
    /// As many threads as there are cores: no more are woken for jobs that do not block.
    brief_limit: usize,
    /// Threads that wait for work.
    asleep: usize,
    /// A thread was woken and has not looked at the queue yet.
    waking: bool,
    ending: bool,
}

#[derive(Debug)]
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.lock().ending = true;
        self.0.work.notify_all();
    }
}

impl Pool {
    /// A pool of `threads` threads, 1 to 1,024, which start at once; of fewer, if the system
    /// cannot start as many.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for another number; those of starting threads, if not even one can be
    /// started.
    pub fn new(threads: usize) -> io::Result<Pool> {
        if !(1..=MAX_THREADS).contains(&threads) {
            let why = format!("a pool has 1 to {MAX_THREADS} threads, not {threads}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
        // Threads ask for this as soon as they start.
        let state = State { brief_limit: cores.min(threads), ..State::default() };
        let (door, state, work) = (Door::default(), Mutex::new(state), Condvar::new());
        let shared = Arc::new(Shared { door, state, work });
        let end = Arc::new(End(Arc::clone(&shared)));
        let threads = start(threads, || {
            let (worker, thread) = (Arc::clone(&shared), thread::Builder::new());
            thread.name("uv-worker".into()).spawn(move || worker::run(&worker)).map(drop)
        })?;
        // Nobody can have submitted anything yet.
        let mut state = shared.lock();
        state.brief_limit = cores.min(threads);
        state.queue.set_threads(threads);
        drop(state);
        Ok(Pool { shared, threads, _end: end })
    }

    /// The process's pool. It starts when it is first used, with 4 threads, or as many as
    /// `UV_THREADPOOL_SIZE` said then: at least 1, at most 1,024.
    ///
    /// ```
    /// use uv_core::Pool;
    ///
    /// let pool = Pool::global()?;
    /// println!("{} threads, {} jobs wait", pool.threads(), pool.queued());
    /// assert!(pool.threads() >= 1);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of starting threads.
    pub fn global() -> io::Result<Pool> {
        static POOL: Mutex<Option<(u32, Pool)>> = Mutex::new(None);
        let generation = sys::forks();
        let mut pool = POOL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, pool)) = &*pool
            && *of == generation
        {
            return Ok(pool.clone());
        }
        let new = Pool::new(size_from(std::env::var(VARIABLE).ok().as_deref()))?;
        // The threads of a parent's pool are not in this process: forget it as it is.
        std::mem::forget(pool.replace((generation, new.clone())));
        Ok(new)
    }

    /// How many threads it has, which may be fewer than were asked for.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// How many jobs wait for a thread.
    pub fn queued(&self) -> usize {
        let mut state = self.shared.lock();
        self.shared.let_in(&mut state);
        state.queue.len()
    }

    /// How many jobs run now.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use uv_core::{Lane, Loop, Pool, RunMode};
    ///
    /// let (mut lp, pool) = (Loop::with_default_backend()?, Pool::new(1)?);
    /// let ((begun, begin), (go, wait)) = (mpsc::channel(), mpsc::channel::<()>());
    /// lp.queue_work_on(&pool, Lane::Cpu, move || begun.send(()).map(|()| wait.recv()), |_, _| {})?;
    /// lp.queue_work_on(&pool, Lane::Cpu, || (), |_, _| {})?;
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

    pub(crate) fn submit(&self, job: Job) {
        // Of brief jobs a thread takes several, if it finds several: those who bring them one by
        // one, without waiting for anybody, are outrun.
        if job.is_brief() {
            let mut state = self.shared.lock();
            self.shared.let_in(&mut state);
            state.queue.push(job);
            self.shared.wake_one(state);
        } else if self.shared.door.leave(job) {
            self.shared.wake_one(self.shared.lock());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Jobs run without the lock, so a panic cannot have left it half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues the jobs that were left at the door.
    fn let_in(&self, state: &mut State) {
        let State { queue, arrived, .. } = state;
        self.door.take(arrived);
        arrived.drain(..).rev().for_each(|job| queue.push(job));
    }

    /// Wakes a thread if there is work for it, one sleeps, and none is on its way. Brief jobs
    /// are no work for one more if there is a thread for them on each core.
    fn wake_one(&self, mut state: MutexGuard<'_, State>) {
        if state.asleep == 0 || state.waking {
            return;
        }
        self.let_in(&mut state);
        let enough = state.brief >= state.brief_limit && state.queue.is_brief();
        if !enough && state.queue.has_work() {
            state.waking = true;
            self.tell_door(&state);
            drop(state);
            self.work.notify_one();
        }
    }

    /// Says at the door whether somebody sleeps who is to be woken.
    fn tell_door(&self, state: &State) {
        self.door.set_quiet(state.asleep > 0 && !state.waking);
    }
}

/// Starts threads, and returns how many there are. A pool with fewer than were asked for is
/// slower; one without is none.
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
    fn the_environment_sets_the_size() {
        assert_eq!(size_from(None), 4);
        assert_eq!(size_from(Some("7")), 7);
        assert_eq!(size_from(Some("0")), 1);
        assert_eq!(size_from(Some("99999")), 1024);
        assert_eq!(size_from(Some("many")), 1);
    }

    #[test]
    fn a_pool_knows_how_many_have_started() {
        let mut left = 3;
        let mut one = || {
            left -= 1;
            if left < 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        };
        assert_eq!(start(2, &mut one).unwrap(), 2);
        assert_eq!(start(2, &mut one).unwrap(), 1, "the fourth cannot be started");
        assert_eq!(start(2, &mut one).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn a_pool_of_no_threads_is_refused() {
        assert_eq!(Pool::new(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(Pool::new(1025).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
