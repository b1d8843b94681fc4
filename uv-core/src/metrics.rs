//! What a loop has done: counted by the loop, read by anybody.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::handles::nanoseconds;

/// The loop's side. Only the loop writes, so plain loads and stores are enough.
#[derive(Debug, Default)]
pub(crate) struct Meters {
    loop_count: AtomicU64,
    events: AtomicU64,
    events_waiting: AtomicU64,
    measures_idle_time: AtomicBool,
    /// Idle time of the waits that are over.
    idle_ns: AtomicU64,
    /// When the wait under way began; `NOT_WAITING` if there is none.
    waiting_since_ns: AtomicU64,
}

const NOT_WAITING: u64 = 0;

impl Meters {
    #[inline]
    fn add(counter: &AtomicU64, more: u64) {
        counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn count_turn(&self) {
        Self::add(&self.loop_count, 1);
    }

    /// Counts events that were dispatched; those of a wait that did not block were waiting.
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

    pub(crate) fn begin_idle(&self) {
        self.waiting_since_ns.store(clock_ns(), Ordering::Release);
    }

    pub(crate) fn end_idle(&self) {
        let since = self.waiting_since_ns.load(Ordering::Relaxed);
        // A reader between the two stores counts this wait twice or not at all; stored in
        // this order it is not at all, and the next reading makes up for it.
        self.waiting_since_ns.store(NOT_WAITING, Ordering::Release);
        Self::add(&self.idle_ns, clock_ns().saturating_sub(since));
    }
}

/// Nanoseconds of a clock that all threads share. Never `NOT_WAITING`.
fn clock_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    nanoseconds(START.get_or_init(Instant::now).elapsed()).max(NOT_WAITING + 1)
}

/// Counters of a loop and the time it was idle. Any thread may read them.
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
/// assert_eq!(metrics.events_waiting(), 0, "the loop has waited for it");
/// assert!(metrics.idle_time() > Duration::ZERO);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct Metrics {
    meters: Arc<Meters>,
}

impl Metrics {
    pub(crate) fn new(meters: Arc<Meters>) -> Metrics {
        Metrics { meters }
    }

    /// How often the loop has polled.
    pub fn loop_count(&self) -> u64 {
        self.meters.loop_count.load(Ordering::Relaxed)
    }

    /// How many events the loop has handled.
    pub fn events(&self) -> u64 {
        self.meters.events.load(Ordering::Relaxed)
    }

    /// How many of them were there already when the loop polled without blocking.
    pub fn events_waiting(&self) -> u64 {
        self.meters.events_waiting.load(Ordering::Relaxed)
    }

    /// How long the loop was blocked in polls, the one under way included. Zero unless
    /// [`Loop::measure_idle_time`](crate::Loop::measure_idle_time) was called. It is time
    /// of the machine's clock, even where the backend has a clock of its own.
    pub fn idle_time(&self) -> Duration {
        let since = self.meters.waiting_since_ns.load(Ordering::Acquire);
        let over = self.meters.idle_ns.load(Ordering::Relaxed);
        let under_way = if since == NOT_WAITING { 0 } else { clock_ns().saturating_sub(since) };
        Duration::from_nanos(over + under_way)
    }
}
