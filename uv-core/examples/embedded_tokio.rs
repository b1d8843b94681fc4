//! This loop inside tokio: tasks and callbacks share one thread.
//!
//! ```sh
//! cargo run -p uv-core --example embedded_tokio -- --ticks 3 --backend auto
//! ```
//!
//! `AsyncFd` keeps what it polls, so it gets a duplicate of the loop's descriptor. The guide has the
//! same steps for glib and others, in `several_loops`. `uv-async` has
//! `drive` as a function (`drive_in_tokio`). Unix only.

#[cfg(unix)]
pub(crate) fn main() -> std::io::Result<()> {
    let arguments = common::Arguments::read(&["--backend", "--ticks"])?;
    let backend: String = arguments.get("--backend", "auto".into())?;
    let (ticks, tasks) = run(&backend, arguments.get("--ticks", 3)?)?;
    println!("{ticks} ticks of this loop, answered by {tasks} messages of a task");
    Ok(())
}

#[cfg(unix)]
mod common;

#[cfg(unix)]
use uv_core::poll_core::Backend;

/// Runs until `until` ticks of a timer of the inner loop, each of which is sent to a task of tokio.
#[cfg(unix)]
pub(crate) fn run(backend: &str, until: u32) -> std::io::Result<(u32, u32)> {
    use std::time::Duration;
    use tokio::sync::mpsc;
    use uv_core::{Handle, Loop, Timer};

    let outer = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut lp = Loop::new(common::backend(backend)?);
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let (timer, tick) = (Timer::new(&mut lp), Duration::from_millis(2));
    timer.start(&mut lp, tick, tick, move |lp, timer| {
        *lp.state::<u32>() += 1;
        // The task may have ended, which is no error of the timer's.
        let _ = sender.send(*lp.state::<u32>());
        if *lp.state::<u32>() == until {
            timer.close_if_open(lp); // Drops the sender, which ends the task.
        }
    })?;
    outer.block_on(async {
        let count = async {
            let mut tasks = 0;
            while receiver.recv().await.is_some() {
                tasks += 1;
            }
            std::io::Result::Ok(tasks)
        };
        let ((), tasks) = tokio::try_join!(drive(&mut lp), count)?;
        Ok((*lp.state::<u32>(), tasks))
    })
}

/// Runs a loop inside a task until it is not alive.
#[cfg(unix)]
#[allow(deprecated, reason = "the successor of `with_interest` is unsafe, and newer")]
async fn drive<B: Backend>(lp: &mut uv_core::Loop<B>) -> std::io::Result<()> {
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    // `select` and `poll` have no descriptor: those loops need a thread of their own.
    let fd = lp.backend_fd().ok_or(std::io::ErrorKind::Unsupported)?.try_clone_to_owned()?;
    let (watched, metrics) = (AsyncFd::with_interest(fd, Interest::READABLE)?, lp.metrics());
    loop {
        let events = metrics.events();
        if !lp.run(uv_core::RunMode::NoWait)? {
            return Ok(());
        }
        if metrics.events() != events {
            // tokio watches by edges, and does not report again what the loop has left for its next
            // iteration.
            tokio::task::yield_now().await;
            continue;
        }
        let readable = async { watched.readable().await.map(|mut ready| ready.clear_ready()) };
        match lp.backend_timeout() {
            Some(timeout) => tokio::time::timeout(timeout, readable).await.unwrap_or(Ok(()))?,
            None => readable.await?,
        }
    }
}

#[cfg(not(unix))]
fn main() {
    println!("a completion port is no descriptor that another loop could poll");
}
