//! A loop inside tokio.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};
use uv_core::Loop;
use uv_core::poll_core::Backend;

use super::descriptor::duplicate;
use super::drive;

/// Runs a loop inside a task of tokio, until it is not [alive](Loop::is_alive).
///
/// The loop stays on its thread: use a runtime of one thread, or a `LocalSet`. Tasks of both wake
/// each other as usual.
///
/// ```
/// use std::time::Duration;
/// use uv_async::{Rt, drive_in_tokio};
/// use uv_core::Loop;
///
/// let mut lp = Loop::with_default_backend()?;
/// let rt = Rt::attach(&mut lp);
/// let task = rt.clone();
/// let done = rt.spawn_local(async move { task.sleep(Duration::from_millis(2)).await });
///
/// let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
/// if lp.raw_source().is_some() {
///     tokio.block_on(drive_in_tokio(&mut lp))?;
///     assert!(done.is_finished());
/// }
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As [`drive`].
///
/// # Panics
///
/// Outside of tokio, or if its I/O or its time is not enabled.
///
/// # Cancel safety
///
/// The loop can be driven or run again.
pub async fn drive_in_tokio<B: Backend>(lp: &mut Loop<B>) -> io::Result<()> {
    let watched = watch(duplicate(lp)?)?;
    drive(lp, async |_, timeout: Option<Duration>| {
        let readable = async {
            watched.readable().await?.clear_ready_matching(Ready::READABLE);
            io::Result::Ok(())
        };
        match timeout {
            Some(timeout) => tokio::time::timeout(timeout, readable).await.unwrap_or(Ok(())),
            None => readable.await,
        }
    })
    .await
}

#[allow(
    deprecated,
    reason = "its successor is unsafe, and newer than the oldest tokio that is allowed"
)]
fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}
