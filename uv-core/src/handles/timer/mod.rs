//! Timer handles: one-shot and repeating.

mod callbacks;
mod table;
pub(crate) mod wheel;

use std::hint::black_box;
use std::io;
use std::time::Duration;

use poll_core::{Backend, Token};

use callbacks::{ActionKey, Actions};
use table::{Slot, Slots};

use crate::event_loop::exchange;
use crate::handles::Base;
use crate::storage::{InlineFnMut, Seed, StatelessFn};
use crate::{Loop, error};
use wheel::{Expired, Node, Wheel};

/// Calls back after a time, once or repeatedly.
///
/// Times are counted from [`Loop::now`] in nanoseconds, and a timer never fires before
/// its deadline. Timers fire in the order of their deadlines; timers with equal deadlines, in the
/// order they were started.
///
/// ```
/// use std::time::Duration;
/// use uv_core::{Loop, RunMode, Timer};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (timer, mut left) = (Timer::new(&mut lp), 3);
/// let tick = Duration::from_millis(1);
/// timer.start(&mut lp, tick, tick, move |lp, timer| {
///     left -= 1;
///     if left == 0 {
///         timer.stop(lp).unwrap();
///     }
/// })?;
/// lp.run(RunMode::Default)?;
/// assert_eq!(timer.due_in(&lp), None);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Timer(pub(crate) Token);

/// The timers of a loop.
#[derive(Debug)]
pub(crate) struct Timers<B: Backend> {
    slots: Slots,
    wheel: Wheel,
    actions: Actions<B>,
    /// The timers of a pass, determined before the first of them runs.
    expired: Vec<Expired>,
    /// How many of `expired` have run. After a panic, the pass continues here.
    run: usize,
    /// The timer whose callback runs.
    running: Option<Timer>,
    /// The number of timers that are parts of other handles.
    internal: usize,
}

/// The number of timers that are prefetched at a time.
const MAX_BATCH: usize = 64;

impl<B: Backend> Timers<B> {
    pub(crate) fn new(seed: Seed) -> Timers<B> {
        Timers {
            slots: Slots::new(seed),
            wheel: Wheel::new(),
            actions: Actions::new(),
            expired: Vec::new(),
            run: 0,
            running: None,
            internal: 0,
        }
    }

    /// The number of timers that are handles by themselves.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.internal
    }

    pub(crate) fn base(&self, key: Token) -> Option<&Base> {
        self.slots.get(key).map(|slot| &slot.base)
    }

    pub(crate) fn base_mut(&mut self, key: Token) -> Option<&mut Base> {
        self.slots.get_mut(key).map(|slot| &mut slot.base)
    }

    /// The timers that are handles by themselves.
    pub(crate) fn bases(&self) -> impl Iterator<Item = (Token, Base)> {
        self.slots.bases().filter(|(_, base)| base.is_public())
    }

    /// Frees a timer, which is not scheduled.
    pub(crate) fn remove(&mut self, timer: Timer) {
        if let Some(action) = self.slots.remove(timer.0) {
            self.actions.remove(action);
        }
    }

    /// Prefetches the timers that run next: they are scattered, and their cache misses overlap. Without
    /// it, firing a million timers in random order, each with captures, takes 30 % longer.
    fn prefetch(&self) {
        let next = &self.expired[self.run..];
        for expired in &next[..next.len().min(MAX_BATCH)] {
            let action = self.slots.action_at(expired.index);
            black_box(self.actions.repeat_ns(action));
        }
    }

    #[inline]
    fn schedule(&mut self, timer: Timer, deadline: u64) {
        self.wheel.schedule(self.slots.as_mut(), timer.0.index(), deadline);
    }

    /// The next deadline, or a lower bound of it if very many timers are near it.
    pub(crate) fn next_deadline_ns(&mut self) -> Option<u64> {
        self.next_due_ns().or_else(|| self.wheel.next_deadline(self.slots.as_mut()))
    }

    /// The same without the largest deadline, which the clock does not reach.
    #[inline]
    pub(crate) fn next_due_ns(&mut self) -> Option<u64> {
        // The rest of an interrupted pass is due now.
        if !self.expired.is_empty() && self.run < self.expired.len() {
            return Some(0);
        }
        let next = self.wheel.next_or_never(self.slots.as_mut());
        (next < u64::MAX).then_some(next)
    }
}

impl Timer {
    /// A timer that is not started.
    #[doc(alias = "uv_timer_init")]
    #[must_use = "the handle exists until it is closed"]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> Timer {
        let base = lp.new_base();
        Timer(lp.timers.slots.insert(base))
    }

    /// A timer that is a part of another handle, which [frees](Timers::free_internal) it. It does
    /// not keep the loop alive.
    pub(crate) fn internal<B: Backend>(lp: &mut Loop<B>) -> Timer {
        lp.timers.internal += 1;
        Timer(lp.timers.slots.insert(Base::internal()))
    }

    /// Creates and [starts](Timer::start) a timer that calls `callback` once after `timeout`.
    /// Faster than `new` and `start`.
    ///
    /// As every handle it exists until it is [closed](crate::Handle::close), also after it has
    /// fired.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_core::{Handle, Loop, RunMode, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// Timer::after(&mut lp, Duration::from_millis(1), |lp, timer| {
    ///     println!("it is time");
    ///     timer.close(lp).unwrap();
    /// });
    /// lp.run(RunMode::Default)?;
    /// assert!(lp.close().is_ok(), "nothing is left");
    /// # std::io::Result::Ok(())
    /// ```
    #[inline]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn after<B: Backend>(
        lp: &mut Loop<B>,
        timeout: Duration,
        callback: impl FnMut(&mut Loop<B>, Timer) + 'static,
    ) -> Timer {
        let deadline = lp.now_ns().saturating_add(nanoseconds(timeout));
        let mut base = lp.new_base();
        base.start(&mut lp.active_handles);
        let (mut action, actions) = (callbacks::NONE, &mut lp.timers.actions);
        match StatelessFn::new(callback) {
            Ok(stateless) => match actions.find_shared(action, stateless) {
                Some(known) => action = known,
                None => actions.set_shared(&mut action, stateless),
            },
            Err(callback) => actions.set(&mut action, 0, InlineFnMut::new(callback)),
        }
        let Timers { slots, wheel, .. } = &mut lp.timers;
        Timer(
            slots
                .insert_with(base, action, |slots, index| wheel.insert_new(slots, index, deadline)),
        )
    }

    /// Calls `callback` after `timeout`, and then every `repeat` unless that is zero.
    ///
    /// A zero `timeout` fires in the next timer phase, never within this call. A started timer is
    /// restarted. A deadline beyond the range of the clock never fires.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the timer is closing.
    #[doc(alias = "uv_timer_start")]
    #[inline]
    pub fn start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        timeout: Duration,
        repeat: Duration,
        callback: impl FnMut(&mut Loop<B>, Timer) + 'static,
    ) -> io::Result<()> {
        let deadline = lp.now_ns().saturating_add(nanoseconds(timeout));
        let callback = match StatelessFn::new(callback) {
            Ok(stateless) if repeat.is_zero() => return self.start_shared(lp, deadline, stateless),
            Ok(stateless) => stateless.into(),
            Err(callback) => InlineFnMut::new(callback),
        };
        self.start_own(lp, deadline, repeat, callback)
    }

    /// The fast path: an inactive timer with a callback that other timers share is started
    /// without a call.
    #[inline(never)] // With `start_with` inlined too, `timer-start` costs 10 % more, a restart 12 % less.
    fn start_shared<B: Backend>(
        self,
        lp: &mut Loop<B>,
        deadline: u64,
        callback: StatelessFn<B, Timer>,
    ) -> io::Result<()> {
        let slots = lp.timers.slots.as_mut();
        let slot = open(slots, self)?;
        match lp.timers.actions.find_shared(slot.action, callback) {
            Some(action) if !slot.base.is_active() => {
                slot.action = action;
                slot.base.start(&mut lp.active_handles);
                lp.timers.wheel.insert(slots, self.0.index(), deadline);
                Ok(())
            }
            Some(action) => self.start_with(lp, deadline, |_, key| *key = action),
            None => self.start_with(lp, deadline, |actions, key| actions.set_shared(key, callback)),
        }
    }

    /// Starts the timer with a callback that is not shared, or that repeats.
    fn start_own<B: Backend>(
        self,
        lp: &mut Loop<B>,
        deadline: u64,
        repeat: Duration,
        callback: InlineFnMut<B, Timer>,
    ) -> io::Result<()> {
        self.start_with(lp, deadline, |actions, key| {
            actions.set(key, nanoseconds(repeat), callback);
        })
    }

    /// Starts the timer with the action that `set` stores.
    #[inline(never)] // Measured with `start_shared`.
    fn start_with<B: Backend>(
        self,
        lp: &mut Loop<B>,
        deadline: u64,
        set: impl FnOnce(&mut Actions<B>, &mut ActionKey),
    ) -> io::Result<()> {
        let slots = lp.timers.slots.as_mut();
        let slot = open(slots, self)?;
        slot.base.start(&mut lp.active_handles);
        set(&mut lp.timers.actions, &mut slot.action);
        lp.timers.wheel.schedule(slots, self.0.index(), deadline);
        Ok(())
    }

    /// Stops the timer. Does nothing to a stopped timer.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    #[doc(alias = "uv_timer_stop")]
    pub fn stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slots = lp.timers.slots.as_mut();
        let slot = table::find_mut(slots, self.0).ok_or_else(error::stale)?;
        slot.base.stop(&mut lp.active_handles);
        lp.timers.wheel.remove(slots, self.0.index());
        Ok(())
    }

    /// Restarts the timer with its repeat time as the timeout and its previous callback. Does
    /// nothing to a timer that does not repeat.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_core::{Loop, Timer};
    ///
    /// // Give up a peer that is idle for half a minute.
    /// let mut lp = Loop::with_default_backend()?;
    /// let (timer, silence) = (Timer::new(&mut lp), Duration::from_secs(30));
    /// timer.start(&mut lp, silence, silence, |_, _| println!("timed out"))?;
    ///
    /// // After each message of the peer:
    /// timer.again(&mut lp)?;
    /// assert_eq!(timer.due_in(&lp), Some(silence));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the timer was never started or is
    /// closing.
    #[doc(alias = "uv_timer_again")]
    pub fn again<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let now = lp.now_ns();
        let runs = lp.timers.running == Some(self);
        let slot = open(lp.timers.slots.as_mut(), self)?;
        let action = slot.action;
        if !lp.timers.actions.has_callback(action) && !runs {
            return Err(never_started());
        }
        let repeat_ns = lp.timers.actions.repeat_ns(action);
        if repeat_ns != 0 {
            slot.base.start(&mut lp.active_handles);
            lp.timers.schedule(self, now.saturating_add(repeat_ns));
        }
        Ok(())
    }

    /// As [`start`](Timer::start), with the callback that the timer has. Faster than that.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_core::{Loop, RunMode, Timer};
    ///
    /// // Later and later.
    /// let mut lp = Loop::with_default_backend()?;
    /// let (timer, mut delay) = (Timer::new(&mut lp), Duration::from_millis(1));
    /// timer.start(&mut lp, delay, Duration::ZERO, move |lp, timer| {
    ///     delay *= 2;
    ///     if delay < Duration::from_millis(10) {
    ///         timer.restart(lp, delay, Duration::ZERO).unwrap();
    ///     }
    /// })?;
    /// lp.run(RunMode::Default)?; // After 1, 2, 4 and 8 ms.
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the timer was never started or is
    /// closing.
    #[doc(alias = "uv_timer_start")]
    #[inline]
    pub fn restart<B: Backend>(
        self,
        lp: &mut Loop<B>,
        timeout: Duration,
        repeat: Duration,
    ) -> io::Result<()> {
        self.restart_with(lp, nanoseconds(timeout), |actions, key| {
            actions.set_repeat(key, nanoseconds(repeat));
        })
    }

    /// As [`restart`](Timer::restart), with the repeat time that the timer has, and with a timeout
    /// in nanoseconds, the unit that the loop counts in.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_core::{Loop, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (timer, second) = (Timer::new(&mut lp), Duration::from_secs(1));
    /// timer.start(&mut lp, second, second, |_, _| println!("a second has passed"))?;
    /// timer.restart_in_nanos(&mut lp, 500_000_000)?;
    /// assert_eq!(timer.due_in(&lp), Some(second / 2));
    /// assert_eq!(timer.repeat(&lp), second);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`restart`](Timer::restart).
    #[inline]
    pub fn restart_in_nanos<B: Backend>(self, lp: &mut Loop<B>, timeout: u64) -> io::Result<()> {
        self.restart_with(lp, timeout, |_, _| {})
    }

    /// Restarts the timer after `set` has changed its action.
    #[inline(always)] // As `Wheel::schedule`.
    fn restart_with<B: Backend>(
        self,
        lp: &mut Loop<B>,
        timeout_ns: u64,
        set: impl FnOnce(&mut Actions<B>, &mut ActionKey),
    ) -> io::Result<()> {
        let deadline = lp.now_ns().saturating_add(timeout_ns);
        let slots = lp.timers.slots.as_mut();
        let slot = open(slots, self)?;
        if !lp.timers.actions.has_callback(slot.action) && lp.timers.running != Some(self) {
            return Err(never_started());
        }
        set(&mut lp.timers.actions, &mut slot.action);
        slot.base.start(&mut lp.active_handles);
        lp.timers.wheel.schedule(slots, self.0.index(), deadline);
        Ok(())
    }

    /// Sets the repeat time, from the next time the timer fires; zero ends repeating.
    ///
    /// A repeating timer is rescheduled before its callback runs: a time set by the callback
    /// applies after the next firing.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_core::{Loop, RunMode, Timer};
    ///
    /// // Slower and slower, and then no more.
    /// let mut lp = Loop::with_default_backend()?;
    /// let (timer, tick) = (Timer::new(&mut lp), Duration::from_millis(1));
    /// timer.start(&mut lp, tick, tick, move |lp, timer| {
    ///     let repeat = timer.repeat(lp) * 2;
    ///     timer.set_repeat(lp, if repeat > 4 * tick { Duration::ZERO } else { repeat }).unwrap();
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// assert_eq!(timer.repeat(&lp), Duration::ZERO);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    #[doc(alias = "uv_timer_set_repeat")]
    pub fn set_repeat<B: Backend>(self, lp: &mut Loop<B>, repeat: Duration) -> io::Result<()> {
        let slot = lp.timers.slots.get_mut(self.0).ok_or_else(error::stale)?;
        lp.timers.actions.set_repeat(&mut slot.action, nanoseconds(repeat));
        Ok(())
    }

    /// The repeat time; zero if the timer fires once, or its key is stale.
    #[doc(alias = "uv_timer_get_repeat")]
    pub fn repeat<B: Backend>(self, lp: &Loop<B>) -> Duration {
        let repeat_ns = |slot: &Slot| lp.timers.actions.repeat_ns(slot.action);
        Duration::from_nanos(lp.timers.slots.get(self.0).map_or(0, repeat_ns))
    }

    /// The time from [`Loop::now`] until the deadline: zero if it has passed, `None` if the timer
    /// is not started.
    #[doc(alias = "uv_timer_get_due_in")]
    pub fn due_in<B: Backend>(self, lp: &Loop<B>) -> Option<Duration> {
        let slot = lp.timers.slots.get(self.0).filter(|slot| slot.base.is_active())?;
        let left = slot.node.deadline().saturating_sub(lp.now_ns_cached());
        Some(Duration::from_nanos(left))
    }
}

impl<B: Backend> Timers<B> {
    /// Frees a timer that is a part of another handle.
    pub(crate) fn free_internal(&mut self, timer: Timer) {
        if self.slots.get(timer.0).is_some() {
            self.wheel.remove(self.slots.as_mut(), timer.0.index());
            self.internal -= 1;
            self.remove(timer);
        }
    }
}

/// Runs the timers that are due, in order.
#[inline]
pub(crate) fn run_due<B: Backend>(lp: &mut Loop<B>) {
    // Without timers the clock is not read.
    let Some(deadline) = lp.timers.next_due_ns() else { return };
    let now = lp.now_ns();
    if deadline <= now {
        run_expired(lp, now);
    }
}

#[inline(never)] // Inlined, `iteration` costs 6 % more.
fn run_expired<B: Backend>(lp: &mut Loop<B>, now: u64) {
    let Timers { wheel, slots, expired, .. } = &mut lp.timers;
    // A single timer needs no list, unless a panic has left some of the last pass.
    if expired.is_empty()
        && let Some(only) = wheel.expire_only(slots.as_mut(), now)
    {
        return fire(lp, only, now, |_| true);
    }
    run_pass(lp, now);
}

/// Runs the timers that are due, however many.
fn run_pass<B: Backend>(lp: &mut Loop<B>, now: u64) {
    let Timers { wheel, slots, expired, .. } = &mut lp.timers;
    wheel.expire(slots.as_mut(), now, expired);
    while let Some(&expired) = lp.timers.expired.get(lp.timers.run) {
        if lp.timers.run.is_multiple_of(MAX_BATCH) && lp.timers.expired.len() > 1 {
            lp.timers.prefetch();
        }
        lp.timers.run += 1;
        // An earlier callback may have stopped, closed or restarted it.
        fire(lp, expired.index, now, Node::take_expired);
    }
    lp.timers.expired.clear();
    lp.timers.run = 0;
}

/// Fires the timer at `index`, if `is_due` is true of its node.
#[inline]
fn fire<B: Backend>(
    lp: &mut Loop<B>,
    index: u32,
    now: u64,
    is_due: impl FnOnce(&mut Node) -> bool,
) {
    let timers = &mut lp.timers;
    let Some((key, slot)) = timers.slots.at_mut(index) else { return };
    if !is_due(&mut slot.node) {
        return;
    }
    let (timer, action) = (Timer(key), slot.action);
    if let Some(callback) = timers.actions.shared(action) {
        slot.base.stop(&mut lp.active_handles);
        return lp.guarded(timer, stop_after_panic, |lp| callback.call(lp, timer));
    }
    let repeat_ns = timers.actions.repeat_ns(action);
    if repeat_ns == 0 {
        slot.base.stop(&mut lp.active_handles);
    } else {
        timers.schedule(timer, now.saturating_add(repeat_ns));
    }
    call_own(lp, timer, action);
}

/// Calls the callback of a timer whose action is not shared.
fn call_own<B: Backend>(lp: &mut Loop<B>, timer: Timer, action: ActionKey) {
    let mut taken = lp.timers.actions.take_callback(action);
    let Some(callback) = &mut taken else {
        // An exchange of loops has lost the callback.
        return drop(timer.stop(lp));
    };
    lp.timers.running = Some(timer);
    lp.call(callback, timer, stop_after_panic);
    let timers = &mut lp.timers;
    timers.running = None;
    match timers.slots.get(timer.0) {
        // Kept even if stopped, for `again`, unless it was replaced.
        Some(slot) => timers.actions.restore_callback(slot.action, taken),
        None => exchange::note(),
    }
}

/// Stops a timer whose callback has panicked, and drops the callback.
fn stop_after_panic<B: Backend>(lp: &mut Loop<B>, timer: Timer) {
    drop(timer.stop(lp));
    let timers = &mut lp.timers;
    timers.running = None;
    if let Some(slot) = timers.slots.get_mut(timer.0) {
        drop(timers.actions.remove_callback(&mut slot.action));
    }
}

/// A timer that is not closing.
#[inline]
fn open(slots: &mut [Slot], timer: Timer) -> io::Result<&mut Slot> {
    let slot = table::find_mut(slots, timer.0).ok_or_else(error::stale)?;
    if slot.base.is_closing() { Err(error::closing()) } else { Ok(slot) }
}

#[cold]
fn never_started() -> io::Error {
    let why = "the timer was never started: call `start` first";
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Saturates after 584 years.
#[inline]
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(duration.subsec_nanos().into())
}
