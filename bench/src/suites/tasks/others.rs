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
    let runtime = current_thread()?;
    let watch = Stopwatch::start();
    let count = match work {
        Work::Spawn(count) => runtime.block_on(async move {
            let tasks: Vec<_> = (0..count).map(|_| tokio::spawn(yield_once())).collect();
            joined(tasks).await
        }),
        Work::PingPong(count) => runtime.block_on(async move {
            let turns = Turns::default();
            let other = tokio::spawn(turns.clone().take(1, count));
            let taken = turns.take(0, count).await;
            taken.min(other.await.unwrap_or(0))
        }),
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
    let count = match work {
        Work::Spawn(count) => LocalSet::new().block_on(&runtime, async move {
            let tasks: Vec<_> = (0..count).map(|_| spawn_local(yield_once())).collect();
            joined(tasks).await
        }),
        Work::PingPong(count) => LocalSet::new().block_on(&runtime, async move {
            let turns = Turns::default();
            let other = spawn_local(turns.clone().take(1, count));
            let taken = turns.take(0, count).await;
            taken.min(other.await.unwrap_or(0))
        }),
        Work::AcrossThreads(_) => return tokio(work),
    };
    Ok(sample(count, &watch))
}

fn current_thread() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_io().build()
}

async fn joined(tasks: Vec<tokio::task::JoinHandle<()>>) -> u64 {
    let mut joined = 0;
    for task in tasks {
        joined += u64::from(task.await.is_ok());
    }
    joined
}

/// smol's executor for one thread, driven by its reactor.
pub(super) fn smol(work: Work) -> io::Result<Sample> {
    use async_executor::LocalExecutor;
    use async_io::block_on;

    let executor = Rc::new(LocalExecutor::new());
    let spawner = Rc::clone(&executor);
    let watch = Stopwatch::start();
    let count = match work {
        Work::Spawn(count) => block_on(executor.run(async move {
            let tasks: Vec<_> = (0..count).map(|_| spawner.spawn(yield_once())).collect();
            let mut joined = 0;
            for task in tasks {
                task.await;
                joined += 1;
            }
            joined
        })),
        Work::PingPong(count) => block_on(executor.run(async move {
            let turns = Turns::default();
            let other = spawner.spawn(turns.clone().take(1, count));
            let taken = turns.take(0, count).await;
            taken.min(other.await)
        })),
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
        Work::Spawn(count) => runtime.block_on(async move {
            let tasks: Vec<_> = (0..count).map(|_| spawn(yield_once())).collect();
            let mut joined = 0;
            for task in tasks {
                joined += u64::from(task.await.is_ok());
            }
            joined
        }),
        Work::PingPong(count) => runtime.block_on(async move {
            let turns = Turns::default();
            let other = spawn(turns.clone().take(1, count));
            let taken = turns.take(0, count).await;
            taken.min(other.await.unwrap_or(0))
        }),
        Work::AcrossThreads(count) => across(
            &Turns::default(),
            move |turns| Ok(Runtime::new()?.block_on(turns.take(1, count))),
            |turns| Ok(runtime.block_on(turns.take(0, count))),
        )?,
    };
    Ok(sample(count, &watch))
}
