//! Idle, prepare and check watchers: call back once an iteration, each in its phase.

use std::io;

use poll_core::{Backend, Token};

use crate::arena::Arena;
use crate::callback::Repeated;
use crate::handles::{AnyHandle, Base};
use crate::queue::RunQueue;
use crate::{Loop, error};

/// The watchers of one phase.
#[derive(Debug)]
pub(crate) struct Watchers<B: Backend> {
    pub(crate) slots: Arena<WatcherSlot<B>>,
    queue: RunQueue,
}

#[derive(Debug)]
pub(crate) struct WatcherSlot<B: Backend> {
    pub(crate) base: Base,
    /// `None` while stopped, and while the callback runs.
    callback: Option<Repeated<B, Token>>,
}

impl<B: Backend> Default for Watchers<B> {
    fn default() -> Self {
        Watchers { slots: Arena::default(), queue: RunQueue::default() }
    }
}

impl<B: Backend> Watchers<B> {
    #[inline]
    pub(crate) fn any_started(&self) -> bool {
        !self.queue.is_empty()
    }
}

/// Which watchers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    Idle,
    Prepare,
    Check,
}

macro_rules! watchers {
    ($($(#[$doc:meta])* $kind:ident;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $kind(pub(crate) Token);

        impl $kind {
            /// A watcher that is not started.
            pub fn new<B: Backend>(lp: &mut Loop<B>) -> $kind {
                let slot = WatcherSlot { base: lp.new_base(), callback: None };
                $kind(lp.watchers[Phase::$kind as usize].slots.insert(slot))
            }

            /// Calls `callback` in every iteration, before the watchers of this phase that
            /// were started earlier. Started from a callback of the same phase, it runs
            /// from the next iteration on.
            ///
            /// A watcher that is started already stays as it is and keeps the callback it
            /// has.
            ///
            /// # Errors
            ///
            /// `NotFound` for a stale key, `InvalidInput` if the watcher is closing.
            pub fn start<B: Backend>(
                self,
                lp: &mut Loop<B>,
                mut callback: impl FnMut(&mut Loop<B>, $kind) + 'static,
            ) -> io::Result<()> {
                let callback = move |lp: &mut Loop<B>, key| callback(lp, $kind(key));
                start(lp, Phase::$kind, self.0, || Repeated::new(callback))
            }

            /// Stops the watcher, and drops its callback. A stopped one stays so.
            ///
            /// # Errors
            ///
            /// `NotFound` for a stale key.
            pub fn stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
                stop(lp, Phase::$kind, self.0)
            }
        }
    )* };
}

watchers! {
    /// Calls back once an iteration, before the loop polls; and the loop does not block
    /// while one is active.
    ///
    /// ```
    /// use uv_core::{Idle, Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (idle, mut turns) = (Idle::new(&mut lp), 0);
    /// idle.start(&mut lp, move |lp, idle| {
    ///     turns += 1;
    ///     if turns == 10 {
    ///         idle.stop(lp).unwrap();
    ///     }
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    Idle;
    /// Calls back once an iteration, right before the loop polls.
    ///
    /// ```
    /// use uv_core::{Loop, Prepare, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let prepare = Prepare::new(&mut lp);
    /// prepare.start(&mut lp, |lp, prepare| {
    ///     println!("about to poll");
    ///     prepare.stop(lp).unwrap();
    /// })?;
    /// let alive = lp.run(RunMode::NoWait)?;
    /// assert!(!alive);
    /// # std::io::Result::Ok(())
    /// ```
    Prepare;
    /// Calls back once an iteration, right after the loop has polled.
    ///
    /// ```
    /// use uv_core::{Check, Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let check = Check::new(&mut lp);
    /// check.start(&mut lp, |lp, check| {
    ///     println!("polled");
    ///     check.stop(lp).unwrap();
    /// })?;
    /// let alive = lp.run(RunMode::NoWait)?;
    /// assert!(!alive);
    /// # std::io::Result::Ok(())
    /// ```
    Check;
}

fn start<B: Backend>(
    lp: &mut Loop<B>,
    phase: Phase,
    key: Token,
    callback: impl FnOnce() -> Repeated<B, Token>,
) -> io::Result<()> {
    let watchers = &mut lp.watchers[phase as usize];
    let slot = watchers.slots.get_mut(key).ok_or_else(error::stale)?;
    if slot.base.is_closing() {
        return Err(error::closing());
    }
    if !slot.base.is_active() {
        slot.callback = Some(callback());
        slot.base.start(&mut lp.active_handles);
        watchers.queue.push_front(key.index());
    }
    Ok(())
}

fn stop<B: Backend>(lp: &mut Loop<B>, phase: Phase, key: Token) -> io::Result<()> {
    let watchers = &mut lp.watchers[phase as usize];
    let slot = watchers.slots.get_mut(key).ok_or_else(error::stale)?;
    if slot.base.is_active() {
        slot.base.stop(&mut lp.active_handles);
        watchers.queue.remove(key.index());
        // Last: dropping what it captured may be anything.
        drop(slot.callback.take());
    }
    Ok(())
}

impl<B: Backend> Loop<B> {
    /// Runs the watchers of a phase, the most recently started first.
    #[inline]
    pub(crate) fn run_watchers(&mut self, phase: Phase) {
        if self.watchers[phase as usize].any_started() {
            self.run_started(phase);
        }
    }

    // Most loops have no watchers, and look at all three phases in every turn.
    #[inline(never)]
    fn run_started(&mut self, phase: Phase) {
        let mut next = self.watchers[phase as usize].queue.begin_round();
        while let Some(index) = next {
            self.run_watcher(phase, index);
            next = self.watchers[phase as usize].queue.next_in_round();
        }
    }

    #[inline]
    fn run_watcher(&mut self, phase: Phase, index: u32) {
        let slots = &mut self.watchers[phase as usize].slots;
        let Some((key, slot)) = slots.at_mut(index) else { return };
        let Some(mut callback) = slot.callback.take() else { return };
        self.call_with(&mut callback, key, (phase, key), |lp, (phase, key)| {
            drop(stop(lp, phase, key));
        });
        // Put back only if it was neither stopped nor started anew meanwhile.
        if let Some(slot) = self.watchers[phase as usize].slots.get_mut(key)
            && slot.base.is_active()
        {
            slot.callback.get_or_insert(callback);
        }
    }
}

impl Phase {
    pub(crate) const ALL: [Phase; 3] = [Phase::Idle, Phase::Prepare, Phase::Check];

    pub(crate) fn handle(self, key: Token) -> AnyHandle {
        match self {
            Phase::Idle => Idle(key).into(),
            Phase::Prepare => Prepare(key).into(),
            Phase::Check => Check(key).into(),
        }
    }
}
