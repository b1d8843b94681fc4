//! What timers do when they are due.
//!
//! A callback that captures nothing is the same for every timer that has it. The timers that
//! fire once and do no more share one entry: a million of them take no memory for it, and read
//! none. All others have an action of their own.

use poll_core::Backend;

use super::Timer;
use crate::callback::{Plain, Repeated};

/// Names what a timer does: one of the shared callbacks, an action of its own (these are counted
/// from `FIRST_OWN`), or nothing.
pub(super) type ActionKey = u32;

/// A timer that was never started, and has no repeat time.
pub(super) const NONE: ActionKey = u32::MAX;
/// Shared callbacks are searched one after another. When there are so many different ones,
/// timers have them as their own.
const MAX_SHARED: u32 = 64;
const FIRST_OWN: ActionKey = MAX_SHARED;

#[derive(Debug)]
pub(super) struct Actions<B: Backend> {
    /// They stay: a program has a few.
    shared: Vec<Plain<B, Timer>>,
    /// Which of them a timer got last. New timers mostly get the same.
    latest: ActionKey,
    own: Vec<Own<B>>,
    /// The keys of those that no timer has.
    free: Vec<u32>,
}

#[derive(Debug)]
struct Own<B: Backend> {
    /// Zero for a timer that fires once.
    repeat_ns: u64,
    /// `None` before the first start, and while the callback runs.
    callback: Option<Repeated<B, Timer>>,
}

impl<B: Backend> Actions<B> {
    pub(super) fn new() -> Actions<B> {
        Actions { shared: Vec::new(), latest: NONE, own: Vec::new(), free: Vec::new() }
    }

    /// The key of `callback` if the timer shares it already, or has none and gets the one that
    /// was shared last.
    #[inline]
    pub(super) fn find_plain(
        &self,
        key: ActionKey,
        callback: Plain<B, Timer>,
    ) -> Option<ActionKey> {
        let key = if key == NONE { self.latest } else { key };
        (self.shared(key) == Some(callback)).then_some(key)
    }

    /// From now on the timer calls `callback`, once.
    pub(super) fn set_plain(&mut self, key: &mut ActionKey, callback: Plain<B, Timer>) {
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
        self.latest = *key;
    }

    /// From now on the timer calls `callback`, and does so again after each `repeat_ns` unless
    /// that is zero.
    #[inline(never)]
    pub(super) fn set(
        &mut self,
        key: &mut ActionKey,
        repeat_ns: u64,
        callback: Repeated<B, Timer>,
    ) {
        let own = self.own_mut(key);
        own.repeat_ns = repeat_ns;
        own.callback = Some(callback);
    }

    pub(super) fn set_repeat(&mut self, key: &mut ActionKey, repeat_ns: u64) {
        if self.repeat_ns(*key) != repeat_ns {
            self.own_mut(key).repeat_ns = repeat_ns;
        }
    }

    #[inline]
    pub(super) fn repeat_ns(&self, key: ActionKey) -> u64 {
        self.own.get(own_index(key)).map_or(0, |own| own.repeat_ns)
    }

    pub(super) fn has_callback(&self, key: ActionKey) -> bool {
        match self.own.get(own_index(key)) {
            Some(own) => own.callback.is_some(),
            None => key != NONE,
        }
    }

    /// The callback, of a timer that shares it and therefore fires once.
    #[inline]
    pub(super) fn shared(&self, key: ActionKey) -> Option<Plain<B, Timer>> {
        self.shared.get(key as usize).copied()
    }

    /// The callback, to run it. [`give_back`](Actions::give_back) it then.
    #[inline]
    pub(super) fn take_callback(&mut self, key: ActionKey) -> Option<Repeated<B, Timer>> {
        match self.own.get_mut(own_index(key)) {
            Some(own) => own.callback.take(),
            None => self.shared(key).map(Repeated::from),
        }
    }

    /// From now on the timer calls nothing. Gives what it has called, unless that is shared.
    pub(super) fn forget_callback(&mut self, key: &mut ActionKey) -> Option<Repeated<B, Timer>> {
        match self.own.get_mut(own_index(*key)) {
            Some(own) => own.callback.take(),
            None => {
                *key = NONE;
                None
            }
        }
    }

    /// Keeps the callback that has run, unless the timer has another one by now.
    #[inline]
    pub(super) fn give_back(&mut self, key: ActionKey, callback: Repeated<B, Timer>) {
        if let Some(own) = self.own.get_mut(own_index(key)) {
            own.callback.get_or_insert(callback);
        }
    }

    /// Forgets what a timer did.
    pub(super) fn remove(&mut self, key: ActionKey) {
        if let Some(own) = self.own.get_mut(own_index(key)) {
            *own = Own { repeat_ns: 0, callback: None };
            self.free.push(key);
        }
    }

    /// The action that is the timer's own; now it has one.
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

/// Past the end for what is no timer's own.
#[inline]
fn own_index(key: ActionKey) -> usize {
    key.wrapping_sub(FIRST_OWN) as usize
}
