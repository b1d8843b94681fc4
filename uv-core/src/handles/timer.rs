//! Timers: call back after a time, once or again and again.

use std::io;
use std::time::Duration;

use poll_core::{Backend, Token};

use crate::arena::Arena;
use crate::callback::Repeated;
use crate::handles::Base;
use crate::wheel::{Expired, Wheel};
use crate::{Loop, error};

/// Calls back after a time, once or repeatedly.
///
/// Times are counted from [`Loop::now`] in nanoseconds, and a timer never fires before
/// its time has fully passed. Timers fire in the order of their deadlines, those with
/// one deadline in the order they were started.
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
    pub(crate) slots: Arena<TimerSlot<B>>,
    wheel: Wheel,
    /// Those that a pass runs, fixed before the first of them runs.
    expired: Vec<Expired>,
    /// How many of them have run. A pass that a panic cut short goes on from here.
    run: usize,
    /// How many are parts of other handles.
    internal: usize,
}

#[derive(Debug)]
pub(crate) struct TimerSlot<B: Backend> {
    pub(crate) base: Base,
    /// Zero for a timer that fires once.
    repeat_ns: u64,
    /// `None` before the first start, and while the callback runs.
    callback: Option<Repeated<B, Timer>>,
    started: bool,
}

impl<B: Backend> Timers<B> {
    pub(crate) fn new() -> Timers<B> {
        Timers {
            slots: Arena::default(),
            wheel: Wheel::new(),
            expired: Vec::new(),
            run: 0,
            internal: 0,
        }
    }

    /// How many there are that are handles of their own.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.internal
    }

    /// When the next timer is due; earlier by a little if very many are.
    pub(crate) fn next_deadline_ns(&mut self) -> Option<u64> {
        // What is left of a pass is due now.
        if self.run < self.expired.len() { Some(0) } else { self.wheel.next_deadline() }
    }
}

impl Timer {
    /// A timer that is not started.
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> Timer {
        let base = lp.new_base();
        let slot = TimerSlot { base, repeat_ns: 0, callback: None, started: false };
        Timer(lp.timers.slots.insert(slot))
    }

    /// A timer that is a part of another handle, which keeps the loop alive or not, and
    /// [frees](Loop::free_internal) it.
    pub(crate) fn internal<B: Backend>(lp: &mut Loop<B>) -> Timer {
        let slot =
            TimerSlot { base: Base::internal(), repeat_ns: 0, callback: None, started: false };
        lp.timers.internal += 1;
        Timer(lp.timers.slots.insert(slot))
    }

    /// Calls `callback` after `timeout`, and then every `repeat` unless that is zero.
    ///
    /// A zero `timeout` fires the next time timers run, never at once. A timer that is
    /// started already starts anew. Times beyond the clock's range mean never.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the timer is closing.
    pub fn start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        timeout: Duration,
        repeat: Duration,
        callback: impl FnMut(&mut Loop<B>, Timer) + 'static,
    ) -> io::Result<()> {
        let deadline = lp.now_ns().saturating_add(nanoseconds(timeout));
        let slot = open_slot(self, &mut lp.timers.slots)?;
        slot.callback = Some(Repeated::new(callback));
        slot.repeat_ns = nanoseconds(repeat);
        slot.started = true;
        slot.base.start(&mut lp.active_handles);
        lp.timers.wheel.remove(self.0.index());
        lp.timers.wheel.insert(self.0.index(), deadline);
        Ok(())
    }

    /// Stops the timer; its callback will not be called. A stopped timer stays so.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    pub fn stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.timers.slots.get_mut(self.0).ok_or_else(error::stale)?;
        slot.base.stop(&mut lp.active_handles);
        lp.timers.wheel.remove(self.0.index());
        Ok(())
    }

    /// Starts the timer again with its repeat time as the timeout and the callback it
    /// had. Does nothing to a timer that does not repeat.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the timer was never started or is
    /// closing.
    pub fn again<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let now = lp.now_ns();
        let slot = open_slot(self, &mut lp.timers.slots)?;
        if !slot.started {
            let why = "a timer that was never started has nothing to do again";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if slot.repeat_ns != 0 {
            let deadline = now.saturating_add(slot.repeat_ns);
            slot.base.start(&mut lp.active_handles);
            lp.timers.wheel.remove(self.0.index());
            lp.timers.wheel.insert(self.0.index(), deadline);
        }
        Ok(())
    }

    /// Sets the repeat time, from the next time the timer fires; zero ends repeating.
    ///
    /// A repeating timer is scheduled anew before its callback runs: set there, the new
    /// time counts from the round after.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    pub fn set_repeat<B: Backend>(self, lp: &mut Loop<B>, repeat: Duration) -> io::Result<()> {
        let slot = lp.timers.slots.get_mut(self.0).ok_or_else(error::stale)?;
        slot.repeat_ns = nanoseconds(repeat);
        Ok(())
    }

    /// The repeat time; zero if the timer fires once, or its key is stale.
    pub fn repeat<B: Backend>(self, lp: &Loop<B>) -> Duration {
        let slot = lp.timers.slots.get(self.0);
        slot.map_or(Duration::ZERO, |slot| Duration::from_nanos(slot.repeat_ns))
    }

    /// How long from [`Loop::now`] until the timer is due: zero if it is overdue, `None`
    /// if it is not started.
    pub fn due_in<B: Backend>(self, lp: &Loop<B>) -> Option<Duration> {
        lp.timers.slots.get(self.0).filter(|slot| slot.base.is_active())?;
        let deadline = lp.timers.wheel.deadline(self.0.index())?;
        Some(Duration::from_nanos(deadline.saturating_sub(lp.now_ns_cached())))
    }
}

impl<B: Backend> Loop<B> {
    /// Frees a timer that is a part of another handle.
    pub(crate) fn free_internal(&mut self, timer: Timer) {
        self.timers.wheel.remove(timer.0.index());
        if let Some(slot) = self.timers.slots.remove(timer.0) {
            self.timers.internal -= 1;
            drop(slot);
        }
    }

    /// Runs the timers that are due, in order.
    pub(crate) fn run_timers(&mut self) {
        // Without a timer there is no need to know the time.
        let Some(deadline) = self.timers.next_deadline_ns() else { return };
        let now = self.now_ns();
        if deadline <= now {
            self.run_due_timers(now);
        }
    }

    fn run_due_timers(&mut self, now: u64) {
        self.timers.wheel.expire(now, &mut self.timers.expired);
        while let Some(&expired) = self.timers.expired.get(self.timers.run) {
            self.timers.run += 1;
            // Stopped, closed or started again by one that ran before?
            if self.timers.wheel.take_expired(expired) {
                self.fire(expired.index, now);
            }
        }
        self.timers.expired.clear();
        self.timers.run = 0;
    }

    fn fire(&mut self, index: u32, now: u64) {
        let Some(key) = self.timers.slots.key_at(index) else { return };
        let Some(slot) = self.timers.slots.get_mut(key) else { return };
        if slot.repeat_ns == 0 {
            slot.base.stop(&mut self.active_handles);
        } else {
            self.timers.wheel.insert(index, now.saturating_add(slot.repeat_ns));
        }
        let Some(mut callback) = slot.callback.take() else { return };
        let timer = Timer(key);
        self.call(&mut callback, timer, |lp, timer| {
            drop(timer.stop(lp));
            // Without a callback there is nothing to do again.
            if let Some(slot) = lp.timers.slots.get_mut(timer.0) {
                slot.started = slot.callback.is_some();
            }
        });
        if let Some(slot) = self.timers.slots.get_mut(key) {
            // Kept even if stopped, for `again`; unless there is a new one.
            slot.callback.get_or_insert(callback);
        }
    }
}

fn open_slot<B: Backend>(
    timer: Timer,
    slots: &mut Arena<TimerSlot<B>>,
) -> io::Result<&mut TimerSlot<B>> {
    let slot = slots.get_mut(timer.0).ok_or_else(error::stale)?;
    if slot.base.is_closing() { Err(error::closing()) } else { Ok(slot) }
}

/// Saturates after 584 years.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    let whole = duration.as_secs().saturating_mul(1_000_000_000);
    whole.saturating_add(u64::from(duration.subsec_nanos()))
}
