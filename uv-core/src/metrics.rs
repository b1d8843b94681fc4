//! Counters of a loop, written by the loop and read by any thread.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::handles::nanoseconds;

/// The counters. Only the loop's thread writes, so an update is a relaxed load and store.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    loop_count: AtomicU64,
    events: AtomicU64,
    events_waiting: AtomicU64,
    measures_idle_time: AtomicBool,
    /// Idle time of the polls that have ended, by the backend's clock.
    idle_ns: AtomicU64,
    /// Start of the poll in progress, by a clock that all threads can read; `NOT_WAITING` if there
    /// is none.
    waiting_since_ns: AtomicU64,
    /// The same by the backend's clock.
    begun_ns: AtomicU64,
}

const NOT_WAITING: u64 = 0;

impl Meters {
    #[inline]
    fn add(counter: &AtomicU64, count: u64) {
        counter.store(counter.load(Ordering::Relaxed) + count, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn count_iteration(&self) {
        Self::add(&self.loop_count, 1);
    }

    /// Counts dispatched events. `waiting` is true for the events of a poll that did not block:
    /// they were ready before it.
    #[inline]
    pub(crate) fn count_events(&self, events: usize, waiting: bool) {
        if events > 0 {
            Self::add(&self.events, events as u64);
            if waiting {
                Self::add(&self.events_waiting, events as u64);
            }
        }
    }

    pub(crate) fn measure_idle_time(&self) {
        self.measures_idle_time.store(true, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn measures_idle_time(&self) -> bool {
        self.measures_idle_time.load(Ordering::Relaxed)
    }

    /// Begins a poll; `now` is the backend's time.
    pub(crate) fn begin_idle(&self, now: Duration) {
        self.begun_ns.store(nanoseconds(now), Ordering::Relaxed);
        self.waiting_since_ns.store(clock_ns(), Ordering::Release);
    }

    /// Ends a poll; `now` is the backend's time.
    pub(crate) fn end_idle(&self, now: Duration) {
        let since = self.begun_ns.load(Ordering::Relaxed);
        // A reader between the two stores would count this poll twice in the other order. In
        // this order it misses the poll, and the next reading includes it.
        self.waiting_since_ns.store(NOT_WAITING, Ordering::Release);
        Self::add(&self.idle_ns, nanoseconds(now).saturating_sub(since));
    }
}

/// Nanoseconds of a monotonic clock shared by all threads. Never `NOT_WAITING`.
fn clock_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    nanoseconds(START.get_or_init(Instant::now).elapsed()).max(NOT_WAITING + 1)
}

/// Counters of a loop and its idle time, readable from any thread.
///
/// ```
/// use std::time::Duration;
/// use uv_core::{Async, Handle, Loop, Metrics, RunMode};
///
/// let mut lp = Loop::with_default_backend()?;
/// lp.measure_idle_time();
/// let metrics: Metrics = lp.metrics();
///
/// let (_, sender) = Async::new(&mut lp, |lp, handle| handle.close(lp).unwrap());
/// let thread = std::thread::spawn(move || {
///     std::thread::sleep(Duration::from_millis(2));
///     sender.send()
/// });
/// lp.run(RunMode::Default)?;
/// thread.join().unwrap()?;
///
/// assert!(metrics.loop_count() > 0);
/// assert_eq!(metrics.events(), 1);
/// assert_eq!(metrics.events_waiting(), 0, "the poll blocked until it");
/// assert!(metrics.idle_time() > Duration::ZERO);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "uv_metrics_t")]
pub struct Metrics {
    meters: Arc<Meters>,
}

impl Metrics {
    pub(crate) fn new(meters: Arc<Meters>) -> Metrics {
        Metrics { meters }
    }

    /// The number of polls.
    #[doc(alias = "uv_metrics_info")]
    #[inline]
    pub fn loop_count(&self) -> u64 {
        self.meters.loop_count.load(Ordering::Relaxed)
    }

    /// The number of events that the loop has processed.
    #[doc(alias = "uv_metrics_info")]
    pub fn events(&self) -> u64 {
        self.meters.events.load(Ordering::Relaxed)
    }

    /// The number of events that were ready when the loop polled, so that it did not block.
    #[doc(alias = "uv_metrics_info")]
    pub fn events_waiting(&self) -> u64 {
        self.meters.events_waiting.load(Ordering::Relaxed)
    }

    /// The time that the loop was blocked in polls, including the one in progress.
    ///
    /// Zero unless [`Loop::measure_idle_time`](crate::Loop::measure_idle_time) was called. It is
    /// measured by the backend's clock; the part of the poll in progress by the system's clock,
    /// because other threads cannot read the former.
    #[doc(alias = "uv_metrics_idle_time")]
    pub fn idle_time(&self) -> Duration {
        let since = self.meters.waiting_since_ns.load(Ordering::Acquire);
        let ended = self.meters.idle_ns.load(Ordering::Relaxed);
        let in_progress = if since == NOT_WAITING { 0 } else { clock_ns().saturating_sub(since) };
        Duration::from_nanos(ended + in_progress)
    }
}
