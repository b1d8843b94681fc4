//! Timer actions: the callback and the repeat time of a timer.
//!
//! A callback that captures nothing is the same value for every timer that has it. One-shot timers
//! with such a callback share one entry: a million of them use no memory for their callbacks and
//! load none. Every other timer has its own action.

use poll_core::Backend;

use super::Timer;
use crate::storage::{InlineFnMut, StatelessFn};

/// The action of a timer: the index of a shared callback, `FIRST_OWN` plus the index of the timer's
/// own action, or `NONE`.
pub(super) type ActionKey = u32;

/// The key of a timer that was never started and has no repeat time.
pub(super) const NONE: ActionKey = u32::MAX;
/// The largest number of shared callbacks, which are searched linearly. Timers with any further
/// callback get their own action.
const MAX_SHARED: u32 = 64;
const FIRST_OWN: ActionKey = MAX_SHARED;

/// The actions of a loop's timers.
#[derive(Debug)]
pub(super) struct Actions<B: Backend> {
    /// Never removed: a program has few distinct ones, at most `MAX_SHARED`.
    shared: Vec<StatelessFn<B, Timer>>,
    /// The shared callback that was set last, checked first for a new timer.
    last_shared: ActionKey,
    own: Vec<Own<B>>,
    /// The keys of the entries of `own` that no timer has.
    free: Vec<u32>,
}

/// An action that one timer has.
#[derive(Debug)]
struct Own<B: Backend> {
    /// Zero for a one-shot timer.
    repeat_ns: u64,
    /// `None` before the first start, and while the callback runs.
    callback: Option<InlineFnMut<B, Timer>>,
}

impl<B: Backend> Actions<B> {
    pub(super) fn new() -> Actions<B> {
        Actions { shared: Vec::new(), last_shared: NONE, own: Vec::new(), free: Vec::new() }
    }

    /// The key of `callback`, if the timer with the action `key` has it already, or has no action
    /// and the callback is the one that was set last.
    #[inline]
    pub(super) fn find_shared(
        &self,
        key: ActionKey,
        callback: StatelessFn<B, Timer>,
    ) -> Option<ActionKey> {
        let key = if key == NONE { self.last_shared } else { key };
        (self.shared(key) == Some(callback)).then_some(key)
    }

    /// Makes `callback` the timer's one-shot action, shared if possible.
    pub(super) fn set_shared(&mut self, key: &mut ActionKey, callback: StatelessFn<B, Timer>) {
        let index = self.shared.iter().position(|shared| *shared == callback);
        if index.is_none() && self.shared.len() == MAX_SHARED as usize {
            return self.set(key, 0, callback.into());
        }
        self.remove(*key);
        let index = index.unwrap_or_else(|| {
            self.shared.push(callback);
            self.shared.len() - 1
        });
        *key = index as ActionKey;
        self.last_shared = *key;
    }

    /// Gives the timer its own action: `callback`, and a repeat time that is zero for a one-shot
    /// timer.
    pub(super) fn set(
        &mut self,
        key: &mut ActionKey,
        repeat_ns: u64,
        callback: InlineFnMut<B, Timer>,
    ) {
        let own = self.own_mut(key);
        own.repeat_ns = repeat_ns;
        own.callback = Some(callback);
    }

    /// Sets the repeat time.
    pub(super) fn set_repeat(&mut self, key: &mut ActionKey, repeat_ns: u64) {
        if self.repeat_ns(*key) != repeat_ns {
            self.own_mut(key).repeat_ns = repeat_ns;
        }
    }

    /// The repeat time; zero for a one-shot timer.
    #[inline]
    pub(super) fn repeat_ns(&self, key: ActionKey) -> u64 {
        self.own.get(own_index(key)).map_or(0, |own| own.repeat_ns)
    }

    /// True if the timer has a callback; false while its own callback runs.
    pub(super) fn has_callback(&self, key: ActionKey) -> bool {
        match self.own.get(own_index(key)) {
            Some(own) => own.callback.is_some(),
            None => key != NONE,
        }
    }

    /// The shared callback of a one-shot timer; `None` if the timer's action is not shared.
    #[inline]
    pub(super) fn shared(&self, key: ActionKey) -> Option<StatelessFn<B, Timer>> {
        self.shared.get(key as usize).copied()
    }

    /// Takes the callback for a call. [`restore_callback`](Actions::restore_callback) puts it back.
    #[inline]
    pub(super) fn take_callback(&mut self, key: ActionKey) -> Option<InlineFnMut<B, Timer>> {
        match self.own.get_mut(own_index(key)) {
            Some(own) => own.callback.take(),
            None => self.shared(key).map(InlineFnMut::from),
        }
    }

    /// Removes the timer's callback. Returns it unless it is shared.
    pub(super) fn remove_callback(&mut self, key: &mut ActionKey) -> Option<InlineFnMut<B, Timer>> {
        match self.own.get_mut(own_index(*key)) {
            Some(own) => own.callback.take(),
            None => {
                *key = NONE;
                None
            }
        }
    }

    /// Stores the callback that has run, unless it was replaced meanwhile.
    #[inline]
    pub(super) fn restore_callback(
        &mut self,
        key: ActionKey,
        callback: Option<InlineFnMut<B, Timer>>,
    ) {
        if let Some(own) = self.own.get_mut(own_index(key))
            && own.callback.is_none()
        {
            own.callback = callback;
        }
    }

    /// Frees the action of a timer.
    pub(super) fn remove(&mut self, key: ActionKey) {
        if let Some(own) = self.own.get_mut(own_index(key)) {
            *own = Own { repeat_ns: 0, callback: None };
            self.free.push(key);
        }
    }

    /// The timer's own action, created if the timer has none.
    fn own_mut(&mut self, key: &mut ActionKey) -> &mut Own<B> {
        if own_index(*key) >= self.own.len() {
            let callback = self.take_callback(*key);
            *key = self.free.pop().unwrap_or_else(|| {
                self.own.push(Own { repeat_ns: 0, callback: None });
                FIRST_OWN + self.own.len() as u32 - 1
            });
            self.own[own_index(*key)].callback = callback;
        }
        &mut self.own[own_index(*key)]
    }
}

/// The index in `Actions::own`; beyond its end for a key that is not an own action's.
#[inline]
fn own_index(key: ActionKey) -> usize {
    key.wrapping_sub(FIRST_OWN) as usize
}
