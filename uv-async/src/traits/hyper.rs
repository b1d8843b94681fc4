//! `hyper::rt`: streams, an executor of futures that are not `Send`, and a timer.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Executor, Read, ReadBufCursor, Sleep, Timer};
use uv_core::poll_core::Backend;
use uv_core::{DefaultBackend, Stream};

use crate::{IoStream, Rt, Spawned, Spawner};

impl<S: Stream, B: Backend> Read for IoStream<S, B> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let read = self.poll_read_copy(cx, buf.remaining(), |bytes| buf.put_slice(bytes));
        read.map_ok(drop)
    }
}

poll_write!(hyper::rt::Write, poll_shutdown, is_write_vectored);

impl<B: Backend, F: Future + 'static> Executor<F> for Rt<B> {
    fn execute(&self, future: F) {
        drop(self.spawn_local(future));
    }
}

/// hyper's timer on a loop. hyper requires that timers and their futures are `Send`: each sleep is
/// a small task of the runtime.
///
/// ```
/// use std::time::Duration;
/// use hyper::rt::{Executor, Timer};
/// use uv_async::{HyperTimer, LoopExt};
/// use uv_core::Loop;
///
/// let mut lp = Loop::with_default_backend()?;
/// lp.block_on(async |rt| {
///     let timer = HyperTimer::new(&rt);
///     timer.sleep(Duration::from_millis(1)).await;
///     rt.execute(async { println!("`Rt` is the executor") });
/// })?;
/// # std::io::Result::Ok(())
/// ```
pub struct HyperTimer<B: Backend = DefaultBackend>(Spawner<B>);

impl<B: Backend> HyperTimer<B> {
    /// A timer of this runtime.
    pub fn new(rt: &Rt<B>) -> HyperTimer<B> {
        HyperTimer(rt.spawner())
    }
}

impl<B: Backend> Clone for HyperTimer<B> {
    fn clone(&self) -> HyperTimer<B> {
        HyperTimer(self.0.clone())
    }
}

impl<B: Backend> fmt::Debug for HyperTimer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HyperTimer").finish_non_exhaustive()
    }
}

impl<B: Backend> Timer for HyperTimer<B> {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        let sleep = self.0.spawn(move |rt| async move { rt.sleep(duration).await });
        Box::pin(SleepTask(sleep))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(Instant::now()))
    }
}

/// A sleep, whose task ends with it.
struct SleepTask(Spawned<()>);

impl Future for SleepTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // An error means that the runtime is gone: what it was to limit is gone too.
        Pin::new(&mut self.0).poll(cx).map(drop)
    }
}

impl Sleep for SleepTask {}

impl Drop for SleepTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
