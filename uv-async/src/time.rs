//! Time: sleeping, intervals, timeouts.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use uv_core::poll_core::Backend;
use uv_core::{DefaultBackend, Handle, Timer};

use crate::Rt;
use crate::op::Op;

impl<B: Backend> Rt<B> {
    /// The loop's time: see [`Loop::now`](uv_core::Loop::now).
    ///
    /// # Panics
    ///
    /// Outside of tasks, as [`with`](Rt::with).
    pub fn now(&self) -> Duration {
        self.with(|lp| lp.now())
    }

    /// Waits for a time, counted from this call. Time is that of the loop's backend: a simulated
    /// one passes without waiting.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_async::LoopExt;
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let begun = rt.now();
    ///     rt.sleep(Duration::from_millis(2)).await;
    ///     assert!(rt.now() >= begun + Duration::from_millis(2));
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn sleep(&self, time: Duration) -> Sleep<B> {
        let deadline = match self.try_with(|lp| lp.now()) {
            Some(now) => Deadline::At(now.saturating_add(time)),
            None => Deadline::After(time),
        };
        Sleep { rt: self.clone(), deadline, state: State::New }
    }

    /// Waits until the loop's time is `deadline`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_async::LoopExt;
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let deadline = rt.now() + Duration::from_millis(2);
    ///     rt.sleep_until(deadline).await;
    ///     assert!(rt.now() >= deadline);
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn sleep_until(&self, deadline: Duration) -> Sleep<B> {
        Sleep { rt: self.clone(), deadline: Deadline::At(deadline), state: State::New }
    }

    /// Ticks immediately, and then every `period`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_async::LoopExt;
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     let mut ticks = rt.interval(Duration::from_millis(2));
    ///     let first = ticks.tick().await;
    ///     assert_eq!(ticks.tick().await - first, ticks.period());
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the period is zero.
    pub fn interval(&self, period: Duration) -> Interval<B> {
        assert!(!period.is_zero(), "an interval needs a period");
        Interval { sleep: self.sleep(Duration::ZERO), period, next: None }
    }

    /// The output of a future, or [`Elapsed`] if it takes longer than `time`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_async::LoopExt;
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.block_on(async |rt| {
    ///     assert_eq!(rt.timeout(Duration::from_secs(1), async { 7 }).await, Ok(7));
    ///     let never = std::future::pending::<()>();
    ///     assert!(rt.timeout(Duration::from_millis(1), never).await.is_err());
    /// })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Elapsed`]; the future is dropped then.
    ///
    /// # Cancel safety
    ///
    /// That of the future.
    pub async fn timeout<F: Future>(
        &self,
        time: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        let (mut future, mut sleep) = (pin!(future), self.sleep(time));
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            Pin::new(&mut sleep).poll(cx).map(|()| Err(Elapsed(())))
        })
        .await
    }
}

#[derive(Clone, Copy, Debug)]
enum Deadline {
    /// From the first poll, because the loop was not lent before.
    After(Duration),
    At(Duration),
}

enum State<B: Backend> {
    New,
    Started(Timer, Op<B, ()>),
    Done,
}

/// The future of [`Rt::sleep`].
///
/// # Cancel safety
///
/// Dropping it closes its timer.
#[must_use = "futures do nothing until they are awaited"]
pub struct Sleep<B: Backend = DefaultBackend> {
    rt: Rt<B>,
    deadline: Deadline,
    state: State<B>,
}

impl<B: Backend> Sleep<B> {
    /// The time of the loop at which it ends; `None` if it was made outside of a task and not
    /// polled.
    pub fn deadline(&self) -> Option<Duration> {
        match self.deadline {
            Deadline::After(_) => None,
            Deadline::At(deadline) => Some(deadline),
        }
    }

    /// Makes it end at another time, also if it has ended.
    pub fn reset(&mut self, deadline: Duration) {
        self.cancel();
        self.deadline = Deadline::At(deadline);
        self.state = State::New;
    }

    fn start(&mut self) {
        let (completer, op) = self.rt.op();
        let mut completer = Some(completer);
        let deadline = self.deadline;
        let (timer, deadline) = self.rt.with(|lp| {
            let (timeout, deadline) = match deadline {
                Deadline::After(time) => (time, lp.now().saturating_add(time)),
                Deadline::At(deadline) => (deadline.saturating_sub(lp.now()), deadline),
            };
            let timer = Timer::after(lp, timeout, move |lp, timer| {
                if let Some(completer) = completer.take() {
                    completer.complete(lp, ());
                }
                // Fails only if a destructor of the woken task has closed it.
                let _ = timer.close(lp);
            });
            (timer, deadline)
        });
        self.deadline = Deadline::At(deadline);
        self.state = State::Started(timer, op);
    }

    /// Closes the timer if it has not fired.
    fn cancel(&mut self) {
        if let State::Started(timer, op) = std::mem::replace(&mut self.state, State::Done)
            && op.is_pending()
        {
            drop(op);
            self.rt.with_or_defer(move |lp| drop(timer.close(lp)));
        }
    }
}

impl<B: Backend> Future for Sleep<B> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let State::New = self.state {
            self.start();
        }
        if let State::Started(_, op) = &mut self.state {
            std::task::ready!(Pin::new(op).poll(cx));
            self.state = State::Done;
        }
        Poll::Ready(())
    }
}

impl<B: Backend> Drop for Sleep<B> {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl<B: Backend> fmt::Debug for Sleep<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// The ticks of [`Rt::interval`].
#[derive(Debug)]
pub struct Interval<B: Backend = DefaultBackend> {
    sleep: Sleep<B>,
    period: Duration,
    /// The time of the next tick, from the first on.
    next: Option<Duration>,
}

impl<B: Backend> Interval<B> {
    /// Waits for the next tick; returns its time. Ticks that were missed are skipped: the next
    /// comes at a multiple of the period after the first.
    ///
    /// # Cancel safety
    ///
    /// No tick is lost: the next call waits for the same one.
    pub async fn tick(&mut self) -> Duration {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// As [`tick`](Interval::tick), for implementations of futures.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        std::task::ready!(Pin::new(&mut self.sleep).poll(cx));
        let now = self.sleep.rt.now();
        let tick = self.next.or(self.sleep.deadline()).unwrap_or(now);
        let mut next = tick.saturating_add(self.period);
        if next <= now {
            let behind = (now - tick).as_nanos() / self.period.as_nanos();
            let skipped = u32::try_from(behind).unwrap_or(u32::MAX);
            next = next.saturating_add(self.period.saturating_mul(skipped));
        }
        self.next = Some(next);
        self.sleep.reset(next);
        Poll::Ready(tick)
    }

    /// The time between two ticks.
    pub fn period(&self) -> Duration {
        self.period
    }
}

/// The error of [`Rt::timeout`]: the time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the time is over")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for std::io::Error {
    fn from(elapsed: Elapsed) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::TimedOut, elapsed)
    }
}

/// Lets other tasks, callbacks and I/O run before this task goes on.
///
/// ```
/// use uv_async::{LoopExt, yield_now};
/// use uv_core::Loop;
///
/// let mut lp = Loop::with_default_backend()?;
/// lp.block_on(async |rt| {
///     let other = rt.spawn_local(async {});
///     yield_now().await;
///     assert!(other.is_finished());
/// })?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Cancel safety
///
/// There is nothing to lose.
pub async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
