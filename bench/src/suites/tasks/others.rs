//! Runtimes of other libraries, each with its executor for one thread.

use std::io;
use std::rc::Rc;
use std::thread;

use super::linux::Work;
use super::turns::{Turns, yield_once};
use crate::clock::Stopwatch;
use crate::suite::{Reading, Sample};

fn sample(count: u64, watch: &Stopwatch) -> Sample {
    Sample::new([Reading { count, spent: watch.spent() }])
}

/// Spawns all tasks, then joins them; returns the number of those that `ended` confirms.
async fn spawn_and_join<T: Future>(
    count: u64,
    spawn: impl Fn() -> T,
    ended: impl Fn(T::Output) -> bool,
) -> u64 {
    let tasks: Vec<T> = (0..count).map(|_| spawn()).collect();
    let mut joined = 0;
    for task in tasks {
        joined += u64::from(ended(task.await));
    }
    joined
}

/// Takes turns with a spawned task; returns the fewer turns of both.
async fn ping_pong<T: Future>(
    count: u64,
    spawn: impl FnOnce(Turns) -> T,
    taken_by: impl Fn(T::Output) -> u64,
) -> u64 {
    let turns = Turns::default();
    let other = spawn(turns.clone());
    let taken = turns.take(0, count).await;
    taken.min(taken_by(other.await))
}

/// Runs the other side of turns in a thread.
fn across<R: FnOnce(Turns) -> io::Result<u64> + Send + 'static>(
    turns: &Turns,
    other: R,
    this: impl FnOnce(Turns) -> io::Result<u64>,
) -> io::Result<u64> {
    let there = turns.clone();
    let thread = thread::spawn(move || other(there));
    let taken = this(turns.clone())?;
    let panicked = |_| io::Error::other("the other thread panicked");
    Ok(taken.min(thread.join().map_err(panicked)??))
}

/// tokio's current-thread runtime.
///
/// Its best: `tokio::spawn`, since these tasks are `Send`. Compared with a `LocalSet`
/// (`tokio-local`), which tasks need that are not: it has a queue of its own besides the runtime's.
pub(super) fn tokio(work: Work) -> io::Result<Sample> {
    use tokio::spawn;

    let runtime = current_thread()?;
    let watch = Stopwatch::start();
    let count = match work {
        Work::Spawn(count) => {
            runtime.block_on(spawn_and_join(count, || spawn(yield_once()), |end| end.is_ok()))
        }
        Work::PingPong(count) => {
            let other = move |turns: Turns| spawn(turns.take(1, count));
            runtime.block_on(ping_pong(count, other, |taken| taken.unwrap_or(0)))
        }
        Work::AcrossThreads(count) => across(
            &Turns::default(),
            move |turns| Ok(current_thread()?.block_on(turns.take(1, count))),
            |turns| Ok(runtime.block_on(turns.take(0, count))),
        )?,
    };
    Ok(sample(count, &watch))
}

/// The same with tasks that need not be `Send`; across threads there is no difference.
pub(super) fn tokio_local(work: Work) -> io::Result<Sample> {
    use tokio::task::{LocalSet, spawn_local};

    let runtime = current_thread()?;
    let watch = Stopwatch::start();
    let set = LocalSet::new();
    let count = match work {
        Work::Spawn(count) => set.block_on(
            &runtime,
            spawn_and_join(count, || spawn_local(yield_once()), |end| end.is_ok()),
        ),
        Work::PingPong(count) => {
            let other = move |turns: Turns| spawn_local(turns.take(1, count));
            set.block_on(&runtime, ping_pong(count, other, |taken| taken.unwrap_or(0)))
        }
        Work::AcrossThreads(_) => return tokio(work),
    };
    Ok(sample(count, &watch))
}

fn current_thread() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_io().build()
}

/// smol's executor for one thread, driven by its reactor.
pub(super) fn smol(work: Work) -> io::Result<Sample> {
    use async_executor::LocalExecutor;
    use async_io::block_on;

    let executor = Rc::new(LocalExecutor::new());
    let spawner = Rc::clone(&executor);
    let watch = Stopwatch::start();
    let count = match work {
        Work::Spawn(count) => {
            block_on(executor.run(spawn_and_join(count, || spawner.spawn(yield_once()), |()| true)))
        }
        Work::PingPong(count) => block_on(executor.run(ping_pong(
            count,
            |turns| spawner.spawn(turns.take(1, count)),
            |taken| taken,
        ))),
        Work::AcrossThreads(count) => across(
            &Turns::default(),
            move |turns| Ok(block_on(turns.take(1, count))),
            |turns| Ok(block_on(turns.take(0, count))),
        )?,
    };
    Ok(sample(count, &watch))
}

/// compio's runtime.
#[cfg(feature = "compio")]
pub(super) fn compio(work: Work) -> io::Result<Sample> {
    use compio::runtime::{Runtime, spawn};

    let runtime = Runtime::new()?;
    let watch = Stopwatch::start();
    let count = match work {
        Work::Spawn(count) => {
            runtime.block_on(spawn_and_join(count, || spawn(yield_once()), |end| end.is_ok()))
        }
        Work::PingPong(count) => {
            let other = move |turns: Turns| spawn(turns.take(1, count));
            runtime.block_on(ping_pong(count, other, |taken| taken.unwrap_or(0)))
        }
        Work::AcrossThreads(count) => across(
            &Turns::default(),
            move |turns| Ok(Runtime::new()?.block_on(turns.take(1, count))),
            |turns| Ok(runtime.block_on(turns.take(0, count))),
        )?,
    };
    Ok(sample(count, &watch))
}

/// monoio's runtime. Its tasks can be woken by their own thread only, without a feature that makes
/// every wake slower.
#[cfg(feature = "monoio")]
pub(super) fn monoio(work: Work) -> io::Result<Sample> {
    use monoio::spawn;

    let mut runtime = monoio::RuntimeBuilder::<monoio::IoUringDriver>::new().build()?;
    let watch = Stopwatch::start();
    let count = match work {
        Work::Spawn(count) => {
            runtime.block_on(spawn_and_join(count, || spawn(yield_once()), |()| true))
        }
        Work::PingPong(count) => {
            let other = move |turns: Turns| spawn(turns.take(1, count));
            runtime.block_on(ping_pong(count, other, |taken| taken))
        }
        Work::AcrossThreads(_) => return Err(io::ErrorKind::Unsupported.into()),
    };
    Ok(sample(count, &watch))
}

/// glommio's executor.
#[cfg(feature = "glommio")]
pub(super) fn glommio(work: Work) -> io::Result<Sample> {
    use glommio::{LocalExecutor, LocalExecutorBuilder, Placement, spawn_local};

    fn executor() -> io::Result<LocalExecutor> {
        let made = LocalExecutorBuilder::new(Placement::Unbound).make();
        made.map_err(|error| io::Error::other(error.to_string()))
    }
    let runtime = executor()?;
    let watch = Stopwatch::start();
    let count = match work {
        Work::Spawn(count) => {
            runtime.run(spawn_and_join(count, || spawn_local(yield_once()), |()| true))
        }
        Work::PingPong(count) => {
            let other = move |turns: Turns| spawn_local(turns.take(1, count));
            runtime.run(ping_pong(count, other, |taken| taken))
        }
        Work::AcrossThreads(count) => across(
            &Turns::default(),
            move |turns| Ok(executor()?.run(turns.take(1, count))),
            |turns| Ok(runtime.run(turns.take(0, count))),
        )?,
    };
    Ok(sample(count, &watch))
}
