//! A loop inside another runtime.

#[cfg(all(unix, any(feature = "drive-smol", feature = "drive-tokio")))]
mod descriptor;
#[cfg(all(unix, feature = "drive-smol"))]
mod smol;
#[cfg(all(unix, feature = "drive-tokio"))]
mod tokio;

#[cfg(all(unix, feature = "drive-smol"))]
pub use smol::drive_in_smol;
#[cfg(all(unix, feature = "drive-tokio"))]
pub use tokio::drive_in_tokio;

use std::io;
use std::time::Duration;

use uv_core::poll_core::{Backend, RawSource};
use uv_core::{Loop, RunMode};

use crate::yield_now;

/// Runs a loop, with its callbacks and tasks, inside a task of another runtime, until it is not
/// [alive](Loop::is_alive).
///
/// `wait` waits by the means of that runtime until the descriptor is readable, but no longer than
/// the given time. The loop stays on its thread: a runtime that moves tasks between threads needs
/// a local task for it.
///
/// For tokio and smol there are `drive_in_tokio` and `drive_in_smol`, by the features `drive-tokio`
/// and `drive-smol`. Here is a `wait` that polls:
///
/// ```
/// use std::time::Duration;
/// use uv_async::{LoopExt, Rt, drive, yield_now};
/// use uv_core::Loop;
///
/// // The other runtime: it could be any.
/// let mut outer = Loop::with_default_backend()?;
/// outer.block_on(async |other| {
///     let mut lp = Loop::with_default_backend()?;
///     if lp.raw_source().is_none() {
///         return Ok(()); // `select` and `poll` have no descriptor.
///     }
///     let rt = Rt::attach(&mut lp);
///     let task = rt.clone();
///     let done = rt.spawn_local(async move { task.sleep(Duration::from_millis(5)).await });
///     drive(&mut lp, async |_descriptor, timeout| {
///         let time = timeout.unwrap_or(Duration::from_millis(1));
///         other.sleep(time.min(Duration::from_millis(1))).await;
///         Ok(())
///     })
///     .await?;
///     assert!(done.is_finished());
///     std::io::Result::Ok(())
/// })??;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `Unsupported` if the backend has no [descriptor](Loop::raw_source); errors of [`Loop::run`] and
/// of `wait`.
///
/// # Cancel safety
///
/// The loop can be driven or run again.
pub async fn drive<B: Backend>(
    lp: &mut Loop<B>,
    mut wait: impl AsyncFnMut(RawSource, Option<Duration>) -> io::Result<()>,
) -> io::Result<()> {
    let source = lp.raw_source().ok_or_else(no_descriptor)?;
    let metrics = lp.metrics();
    loop {
        let events = metrics.events();
        if !lp.run(RunMode::NoWait)? {
            return Ok(());
        }
        // Only after an iteration without events: a runtime that watches the descriptor by edges
        // does not report events that were there before.
        let idle = metrics.events() == events;
        match lp.backend_timeout() {
            timeout if idle && timeout != Some(Duration::ZERO) => wait(source, timeout).await?,
            _ => yield_now().await,
        }
    }
}

fn no_descriptor() -> io::Error {
    let why = "this backend has no descriptor: run its loop in a thread of its own";
    io::Error::new(io::ErrorKind::Unsupported, why)
}
