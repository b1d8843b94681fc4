//! A loop inside smol, or another runtime on `async-io`.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use async_io::{Async, Timer};
use uv_core::Loop;
use uv_core::poll_core::Backend;

use super::descriptor::duplicate;
use super::drive;

/// Runs a loop inside a task of smol, until it is not [alive](Loop::is_alive). The same works in
/// every runtime: the waiting is that of `async-io`, which has a thread of its own.
///
/// The loop stays on its thread: use `block_on` or a `LocalExecutor`. Tasks of both wake each
/// other as usual.
///
/// ```
/// use std::time::Duration;
/// use uv_async::{Rt, drive_in_smol};
/// use uv_core::Loop;
///
/// let mut lp = Loop::with_default_backend()?;
/// let rt = Rt::attach(&mut lp);
/// let task = rt.clone();
/// let done = rt.spawn_local(async move { task.sleep(Duration::from_millis(2)).await });
///
/// if lp.raw_source().is_some() {
///     async_io::block_on(drive_in_smol(&mut lp))?; // Which is `smol::block_on`.
///     assert!(done.is_finished());
/// }
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// As [`drive`].
///
/// # Cancel safety
///
/// The loop can be driven or run again.
pub async fn drive_in_smol<B: Backend>(lp: &mut Loop<B>) -> io::Result<()> {
    let watched = Async::new_nonblocking(duplicate(lp)?)?;
    drive(lp, async |_, timeout: Option<Duration>| {
        let mut readable = pin!(watched.readable());
        let mut timer = timeout.map_or_else(Timer::never, Timer::after);
        poll_fn(|cx| match readable.as_mut().poll(cx) {
            Poll::Pending => Pin::new(&mut timer).poll(cx).map(|_| Ok(())),
            ready => ready,
        })
        .await
    })
    .await
}
