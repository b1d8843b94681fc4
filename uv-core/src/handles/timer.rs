//! Timers: call back after a time, once or again and again.

mod actions;
mod slots;

use std::hint::black_box;
use std::io;
use std::time::Duration;

use poll_core::{Backend, Token};

use actions::{ActionKey, Actions};
use slots::{Slot, Slots};

use crate::callback::{Plain, Repeated};
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
    slots: Slots,
    wheel: Wheel,
    actions: Actions<B>,
    /// Those that a pass runs, fixed before the first of them runs.
    expired: Vec<Expired>,
    /// How many of them have run. A pass that a panic cut short goes on from here.
    run: usize,
    /// The one whose callback runs.
    running: Option<Timer>,
    /// How many are parts of other handles.
    internal: usize,
}

/// How many timers' memory is asked for at a time.
const TOGETHER: usize = 64;

impl<B: Backend> Timers<B> {
    pub(crate) fn new() -> Timers<B> {
        Timers {
            slots: Slots::new(),
            wheel: Wheel::new(),
            actions: Actions::new(),
            expired: Vec::new(),
            run: 0,
            running: None,
            internal: 0,
        }
    }

    /// How many there are that are handles of their own.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.internal
    }

    pub(crate) fn base(&self, key: Token) -> Option<&Base> {
        self.slots.get(key).map(|slot| &slot.base)
    }

    pub(crate) fn base_mut(&mut self, key: Token) -> Option<&mut Base> {
        self.slots.get_mut(key).map(|slot| &mut slot.base)
    }

    /// Those that are handles of their own.
    pub(crate) fn bases(&self) -> impl Iterator<Item = (Token, Base)> {
        self.slots.bases().filter(|(_, base)| base.is_ones_own())
    }

    /// Frees a timer, which is not scheduled.
    pub(crate) fn remove(&mut self, timer: Timer) {
        if let Some(action) = self.slots.remove(timer.0) {
            self.actions.remove(action);
        }
    }

    /// Asks for the memory of the timers that run next. They may be far apart: asked for
    /// one by one, each would be waited for.
    fn fetch(&self) {
        let next = &self.expired[self.run..];
        for expired in &next[..next.len().min(TOGETHER)] {
            let action = self.slots.action_at(expired.index);
            black_box(self.actions.repeat_ns(action));
        }
    }

    #[inline]
    fn schedule(&mut self, timer: Timer, deadline: u64) {
        self.wheel.schedule(self.slots.as_mut(), timer.0.index(), deadline);
    }

    /// When the next timer is due; earlier by a little if very many are.
    pub(crate) fn next_deadline_ns(&mut self) -> Option<u64> {
        // What is left of a pass is due now.
        if self.run < self.expired.len() {
            Some(0)
        } else {
            self.wheel.next_deadline(self.slots.as_mut())
        }
    }
}

impl Timer {
    /// A timer that is not started.
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> Timer {
        let base = lp.new_base();
        Timer(lp.timers.slots.insert(base))
    }

    /// A timer that is a part of another handle, which keeps the loop alive or not, and
    /// [frees](Loop::free_internal) it.
    pub(crate) fn internal<B: Backend>(lp: &mut Loop<B>) -> Timer {
        lp.timers.internal += 1;
        Timer(lp.timers.slots.insert(Base::internal()))
    }

    /// A timer that calls `callback` once, after `timeout`: made and [started](Timer::start) at
    /// once, which is quicker than one after the other.
    ///
    /// As all handles it is there until it is [closed](crate::Handle::close), also when it has
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
    pub fn after<B: Backend>(
        lp: &mut Loop<B>,
        timeout: Duration,
        callback: impl FnMut(&mut Loop<B>, Timer) + 'static,
    ) -> Timer {
        let deadline = lp.now_ns().saturating_add(nanoseconds(timeout));
        let mut base = lp.new_base();
        base.start(&mut lp.active_handles);
        let (mut action, actions) = (actions::NONE, &mut lp.timers.actions);
        match Plain::new(callback) {
            Ok(plain) => match actions.find_plain(action, plain) {
                Some(known) => action = known,
                None => actions.set_plain(&mut action, plain),
            },
            Err(callback) => actions.set(&mut action, 0, Repeated::new(callback)),
        }
        let Timers { slots, wheel, .. } = &mut lp.timers;
        Timer(slots.insert_with(base, action, |slots, index| wheel.admit(slots, index, deadline)))
    }

    /// Calls `callback` after `timeout`, and then every `repeat` unless that is zero.
    ///
    /// A zero `timeout` fires the next time timers run, never at once. A timer that is
    /// started already starts anew. Times beyond the clock's range mean never.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the timer is closing.
    #[inline]
    pub fn start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        timeout: Duration,
        repeat: Duration,
        callback: impl FnMut(&mut Loop<B>, Timer) + 'static,
    ) -> io::Result<()> {
        let deadline = lp.now_ns().saturating_add(nanoseconds(timeout));
        let callback = match Plain::new(callback) {
            Ok(plain) if repeat.is_zero() => return self.start_plain(lp, deadline, plain),
            Ok(plain) => plain.into(),
            Err(callback) => Repeated::new(callback),
        };
        self.start_own(lp, deadline, repeat, callback)
    }

    /// With very many timers it counts how few instructions this takes: a timer that is not
    /// started, and gets the callback that others have, is started without calling anything.
    #[inline(never)]
    fn start_plain<B: Backend>(
        self,
        lp: &mut Loop<B>,
        deadline: u64,
        callback: Plain<B, Timer>,
    ) -> io::Result<()> {
        let slots = lp.timers.slots.as_mut();
        let slot = open(slots, self)?;
        match lp.timers.actions.find_plain(slot.action, callback) {
            Some(action) if !slot.base.is_active() => {
                slot.action = action;
                slot.base.start(&mut lp.active_handles);
                lp.timers.wheel.enter(slots, self.0.index(), deadline);
                Ok(())
            }
            Some(action) => self.start_with(lp, deadline, |_, key| *key = action),
            None => self.start_with(lp, deadline, |actions, key| actions.set_plain(key, callback)),
        }
    }

    /// Starts the timer with a callback that is its own, or that repeats.
    fn start_own<B: Backend>(
        self,
        lp: &mut Loop<B>,
        deadline: u64,
        repeat: Duration,
        callback: Repeated<B, Timer>,
    ) -> io::Result<()> {
        self.start_with(lp, deadline, |actions, key| {
            actions.set(key, nanoseconds(repeat), callback);
        })
    }

    /// Starts the timer with another action, which `set` gives it.
    #[inline(never)]
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

    /// Stops the timer; its callback will not be called. A stopped timer stays so.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    pub fn stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slots = lp.timers.slots.as_mut();
        let slot = slots::find_mut(slots, self.0).ok_or_else(error::stale)?;
        slot.base.stop(&mut lp.active_handles);
        lp.timers.wheel.remove(slots, self.0.index());
        Ok(())
    }

    /// Starts the timer again with its repeat time as the timeout and the callback it
    /// had. Does nothing to a timer that does not repeat.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_core::{Loop, Timer};
    ///
    /// // A peer that is silent for half a minute is given up.
    /// let mut lp = Loop::with_default_backend()?;
    /// let (timer, silence) = (Timer::new(&mut lp), Duration::from_secs(30));
    /// timer.start(&mut lp, silence, silence, |_, _| println!("nobody is there"))?;
    ///
    /// // Whenever it says something:
    /// timer.again(&mut lp)?;
    /// assert_eq!(timer.due_in(&lp), Some(silence));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the timer was never started or is
    /// closing.
    pub fn again<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let now = lp.now_ns();
        let runs = lp.timers.running == Some(self);
        let slot = open(lp.timers.slots.as_mut(), self)?;
        let action = slot.action;
        if !lp.timers.actions.has_callback(action) && !runs {
            let why = "a timer that was never started has nothing to do again";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let repeat_ns = lp.timers.actions.repeat_ns(action);
        if repeat_ns != 0 {
            slot.base.start(&mut lp.active_handles);
            lp.timers.schedule(self, now.saturating_add(repeat_ns));
        }
        Ok(())
    }

    /// Sets the repeat time, from the next time the timer fires; zero ends repeating.
    ///
    /// A repeating timer is scheduled anew before its callback runs: set there, the new
    /// time counts from the round after.
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
    pub fn set_repeat<B: Backend>(self, lp: &mut Loop<B>, repeat: Duration) -> io::Result<()> {
        let slot = lp.timers.slots.get_mut(self.0).ok_or_else(error::stale)?;
        lp.timers.actions.set_repeat(&mut slot.action, nanoseconds(repeat));
        Ok(())
    }

    /// The repeat time; zero if the timer fires once, or its key is stale.
    pub fn repeat<B: Backend>(self, lp: &Loop<B>) -> Duration {
        let repeat_ns = |slot: &Slot| lp.timers.actions.repeat_ns(slot.action);
        Duration::from_nanos(lp.timers.slots.get(self.0).map_or(0, repeat_ns))
    }

    /// How long from [`Loop::now`] until the timer is due: zero if it is overdue, `None`
    /// if it is not started.
    pub fn due_in<B: Backend>(self, lp: &Loop<B>) -> Option<Duration> {
        let slot = lp.timers.slots.get(self.0).filter(|slot| slot.base.is_active())?;
        let left = slot.node.deadline().saturating_sub(lp.now_ns_cached());
        Some(Duration::from_nanos(left))
    }
}

impl<B: Backend> Loop<B> {
    /// Frees a timer that is a part of another handle.
    pub(crate) fn free_internal(&mut self, timer: Timer) {
        if self.timers.slots.get(timer.0).is_some() {
            self.timers.wheel.remove(self.timers.slots.as_mut(), timer.0.index());
            self.timers.internal -= 1;
            self.timers.remove(timer);
        }
    }

    /// Runs the timers that are due, in order.
    #[inline]
    pub(crate) fn run_timers(&mut self) {
        // Without a timer there is no need to know the time.
        let Some(deadline) = self.timers.next_deadline_ns() else { return };
        let now = self.now_ns();
        if deadline <= now {
            self.run_due_timers(now);
        }
    }

    #[inline(never)]
    fn run_due_timers(&mut self, now: u64) {
        let Timers { wheel, slots, expired, .. } = &mut self.timers;
        wheel.expire(slots.as_mut(), now, expired);
        while let Some(&expired) = self.timers.expired.get(self.timers.run) {
            if self.timers.run.is_multiple_of(TOGETHER) {
                self.timers.fetch();
            }
            self.timers.run += 1;
            self.fire(expired.index, now);
        }
        self.timers.expired.clear();
        self.timers.run = 0;
    }

    /// Fires a timer of this pass, unless one that ran before has stopped, closed or restarted it.
    #[inline]
    fn fire(&mut self, index: u32, now: u64) {
        let timers = &mut self.timers;
        let Some((key, slot)) = timers.slots.at_mut(index) else { return };
        if !slot.node.take_expired() {
            return;
        }
        let (timer, action) = (Timer(key), slot.action);
        let Some(callback) = timers.actions.shared(action) else {
            return self.fire_own(timer, action, now);
        };
        slot.base.stop(&mut self.active_handles);
        self.guarded(timer, stop_after_panic, |lp| callback.call(lp, timer));
    }

    /// Fires a timer that has its action for itself.
    #[inline(never)]
    fn fire_own(&mut self, timer: Timer, action: ActionKey, now: u64) {
        let timers = &mut self.timers;
        match timers.actions.repeat_ns(action) {
            0 => drop(timer.stop(self)),
            repeat_ns => timers.schedule(timer, now.saturating_add(repeat_ns)),
        }
        let timers = &mut self.timers;
        let Some(mut callback) = timers.actions.take_callback(action) else { return };
        timers.running = Some(timer);
        self.call(&mut callback, timer, stop_after_panic);
        let timers = &mut self.timers;
        timers.running = None;
        if let Some(slot) = timers.slots.get(timer.0) {
            // Kept even if stopped, for `again`; unless there is a new one.
            timers.actions.give_back(slot.action, callback);
        }
    }
}

/// The timer whose callback has panicked has none any more.
fn stop_after_panic<B: Backend>(lp: &mut Loop<B>, timer: Timer) {
    drop(timer.stop(lp));
    let timers = &mut lp.timers;
    timers.running = None;
    if let Some(slot) = timers.slots.get_mut(timer.0) {
        drop(timers.actions.forget_callback(&mut slot.action));
    }
}

/// A timer that is not closing.
#[inline]
fn open(slots: &mut [Slot], timer: Timer) -> io::Result<&mut Slot> {
    let slot = slots::find_mut(slots, timer.0).ok_or_else(error::stale)?;
    if slot.base.is_closing() { Err(error::closing()) } else { Ok(slot) }
}

/// Saturates after 584 years.
#[inline]
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
