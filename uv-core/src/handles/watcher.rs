//! Idle, prepare and check watchers: one callback per iteration, each in its phase.

use std::io;

use poll_core::{Backend, Token};

use crate::event_loop::exchange;
use crate::handles::{AnyHandle, Base};
use crate::storage::{Arena, InlineFnMut, RunQueue, Seed};
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
    callback: Option<InlineFnMut<B, Token>>,
}

impl<B: Backend> Watchers<B> {
    pub(crate) fn new(seed: Seed) -> Watchers<B> {
        Watchers { slots: Arena::new(seed), queue: RunQueue::default() }
    }

    #[inline]
    pub(crate) fn any_started(&self) -> bool {
        !self.queue.is_empty()
    }
}

/// The phase of a watcher.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    Idle,
    Prepare,
    Check,
}

macro_rules! watchers {
    ($($(#[$doc:meta])* $kind:ident $init:literal $start:literal $stop:literal;)*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $kind(pub(crate) Token);

        impl $kind {
            /// A watcher that is not started.
            #[doc(alias = $init)]
            #[must_use = "the handle exists until it is closed"]
            #[cfg_attr(feature = "origins", track_caller)]
            pub fn new<B: Backend>(lp: &mut Loop<B>) -> $kind {
                let slot = WatcherSlot { base: lp.new_base(), callback: None };
                $kind(lp.watchers[Phase::$kind as usize].slots.insert(slot))
            }

            /// Calls `callback` in every iteration. The watcher that was started last runs first.
            /// A watcher that is started by a callback of the same phase runs from the next
            /// iteration on.
            ///
            /// Does nothing to a started watcher, which keeps its callback.
            ///
            /// # Errors
            ///
            /// `NotFound` for a stale key, `InvalidInput` if the watcher is closing.
            #[doc(alias = $start)]
            pub fn start<B: Backend>(
                self,
                lp: &mut Loop<B>,
                mut callback: impl FnMut(&mut Loop<B>, $kind) + 'static,
            ) -> io::Result<()> {
                let callback = move |lp: &mut Loop<B>, key| callback(lp, $kind(key));
                // A callback that is refused is dropped as one of the loop's: a panic in its
                // destructor does not unwind.
                start(lp, Phase::$kind, self.0, InlineFnMut::new(callback))
            }

            /// Stops the watcher and drops its callback. Does nothing to a stopped watcher.
            ///
            /// # Errors
            ///
            /// `NotFound` for a stale key.
            #[doc(alias = $stop)]
            pub fn stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
                stop(lp, Phase::$kind, self.0)
            }
        }
    )* };
}

watchers! {
    /// Calls back once per iteration before the prepare watchers. While one is active, the poll
    /// does not block.
    ///
    /// ```
    /// use uv_core::{Idle, Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (idle, mut iterations) = (Idle::new(&mut lp), 0);
    /// idle.start(&mut lp, move |lp, idle| {
    ///     iterations += 1;
    ///     if iterations == 10 {
    ///         idle.stop(lp).unwrap();
    ///     }
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    Idle "uv_idle_init" "uv_idle_start" "uv_idle_stop";
    /// Calls back once per iteration, immediately before the poll.
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
    Prepare "uv_prepare_init" "uv_prepare_start" "uv_prepare_stop";
    /// Calls back once per iteration, immediately after the poll.
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
    Check "uv_check_init" "uv_check_start" "uv_check_stop";
}

fn start<B: Backend>(
    lp: &mut Loop<B>,
    phase: Phase,
    key: Token,
    callback: InlineFnMut<B, Token>,
) -> io::Result<()> {
    let watchers = &mut lp.watchers[phase as usize];
    let slot = watchers.slots.get_mut(key).ok_or_else(error::stale)?;
    if slot.base.is_closing() {
        return Err(error::closing());
    }
    if !slot.base.is_active() {
        slot.callback = Some(callback);
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
        // Last: destructors of the captured values may do anything.
        drop(slot.callback.take());
    }
    Ok(())
}

/// Runs the watchers of a phase, the most recently started first.
#[inline]
pub(crate) fn run_phase<B: Backend>(lp: &mut Loop<B>, phase: Phase) {
    if lp.watchers[phase as usize].any_started() {
        run_started(lp, phase);
    }
}

fn run_started<B: Backend>(lp: &mut Loop<B>, phase: Phase) {
    let mut next = lp.watchers[phase as usize].queue.begin_round();
    while let Some(index) = next {
        run_one(lp, phase, index);
        next = lp.watchers[phase as usize].queue.next_in_round();
    }
}

#[inline]
fn run_one<B: Backend>(lp: &mut Loop<B>, phase: Phase, index: u32) {
    let slots = &mut lp.watchers[phase as usize].slots;
    let Some((key, slot)) = slots.at_mut(index) else { return };
    let Some(mut callback) = slot.callback.take() else {
        // An exchange of loops has lost the callback.
        return drop(stop(lp, phase, key));
    };
    lp.call_with(&mut callback, key, (phase, key), |lp, (phase, key)| {
        drop(stop(lp, phase, key));
    });
    // Restored unless the callback has stopped or restarted the watcher.
    match lp.watchers[phase as usize].slots.get_mut(key) {
        Some(slot) if slot.base.is_active() => {
            slot.callback.get_or_insert(callback);
        }
        Some(_) => {}
        None => exchange::note(),
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
