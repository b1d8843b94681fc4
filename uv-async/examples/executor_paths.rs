//! What the executor costs by itself, beside tokio's `LocalSet`: spawning and joining tasks, a
//! message from task to task and back, and from thread to thread and back.
//!
//! ```sh
//! cargo run --release -p uv-async --features tokio-io --example executor_paths -- 1000000
//! ```
//!
//! The channels are tokio's for both, so that the difference is that of the executors. Both wait for
//! I/O, too: a runtime of tokio without it blocks on a futex, which costs less than its poller.
//! Compare the two columns of one run only.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::LocalSet;
use uv_async::{LoopExt, Rt};
use uv_core::{DefaultBackend, Loop};

/// Spawns a future on one of the executors, and waits for it.
trait Executor: Clone + 'static {
    fn spawn<T: 'static>(
        &self,
        future: impl Future<Output = T> + 'static,
    ) -> impl Future<Output = T>;
}

#[derive(Clone)]
struct Ours(Rt<DefaultBackend>);

impl Executor for Ours {
    fn spawn<T: 'static>(
        &self,
        future: impl Future<Output = T> + 'static,
    ) -> impl Future<Output = T> {
        let handle = self.0.spawn_local(future);
        async { handle.await.unwrap_or_else(|error| panic!("{error}")) }
    }
}

#[derive(Clone)]
struct Tokio;

impl Executor for Tokio {
    fn spawn<T: 'static>(
        &self,
        future: impl Future<Output = T> + 'static,
    ) -> impl Future<Output = T> {
        let handle = tokio::task::spawn_local(future);
        async { handle.await.unwrap_or_else(|error| panic!("{error}")) }
    }
}

/// Spawns tasks in groups, and joins them.
async fn spawn_and_join(executor: impl Executor, count: usize) -> usize {
    const GROUP: usize = 1000;
    let (mut sum, mut left) = (0, count);
    while left > 0 {
        let group = left.min(GROUP);
        let tasks: Vec<_> = (0..group).map(|_| executor.spawn(async { 1 })).collect();
        for task in tasks {
            sum += task.await;
        }
        left -= group;
    }
    sum
}

/// Returns each message, increased by one.
async fn answer(mut requests: UnboundedReceiver<usize>, answers: UnboundedSender<usize>) {
    while let Some(number) = requests.recv().await {
        if answers.send(number + 1).is_err() {
            return;
        }
    }
}

/// The round trips of one number between two ends of channels.
async fn exchange(
    requests: UnboundedSender<usize>,
    mut answers: UnboundedReceiver<usize>,
    count: usize,
) -> usize {
    let mut number = 0;
    while number < count && requests.send(number).is_ok() {
        let Some(next) = answers.recv().await else { break };
        number = next;
    }
    number
}

async fn between_tasks(executor: impl Executor, count: usize) -> usize {
    let ((requests, their_requests), (their_answers, answers)) =
        (unbounded_channel(), unbounded_channel());
    let other = executor.spawn(answer(their_requests, their_answers));
    let number = exchange(requests, answers, count).await;
    other.await;
    number
}

/// The other end is a runtime of tokio in a thread of its own.
async fn between_threads(count: usize) -> usize {
    let ((requests, their_requests), (their_answers, answers)) =
        (unbounded_channel(), unbounded_channel());
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.map(|runtime| runtime.block_on(answer(their_requests, their_answers)))
    });
    let number = exchange(requests, answers, count).await;
    let ended = thread.join();
    assert!(matches!(ended, Ok(Ok(()))), "the other thread has failed: {ended:?}");
    number
}

/// Runs all paths; each does `count` operations, across threads a hundredth of that.
async fn paths(executor: impl Executor, count: usize) -> [(&'static str, usize, Duration); 3] {
    let across = count.div_ceil(100);
    let begun = Instant::now();
    assert_eq!(spawn_and_join(executor.clone(), count).await, count);
    let spawned = begun.elapsed();
    let begun = Instant::now();
    assert_eq!(between_tasks(executor, count).await, count);
    let exchanged = begun.elapsed();
    let begun = Instant::now();
    assert_eq!(between_threads(across).await, across);
    [
        ("spawn and join", count, spawned),
        ("round trip between tasks", count, exchanged),
        ("round trip between threads", across, begun.elapsed()),
    ]
}

pub(crate) fn run(count: usize) -> std::io::Result<String> {
    let mut lp = Loop::with_default_backend()?;
    let ours = lp.block_on(async |rt| paths(Ours(rt), count).await)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let theirs = LocalSet::new().block_on(&runtime, paths(Tokio, count));
    let mut table = format!("{:28} {:>12} {:>12}\n", "ns", "uv-async", "tokio");
    for ((name, count, ours), (_, _, theirs)) in ours.into_iter().zip(theirs) {
        let each = |time: Duration| time.as_nanos() / count.max(1) as u128;
        table += &format!("{name:28} {:>12} {:>12}\n", each(ours), each(theirs));
    }
    Ok(table)
}

fn main() -> std::io::Result<()> {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    print!("{}", run(count)?);
    Ok(())
}
