//! The slot table of timers: 28 bytes per timer, less than half a cache line.

use poll_core::Token;

use super::callbacks::{self, ActionKey};
use super::wheel::{Node, Nodes};
use crate::handles::Base;
use crate::storage::Seed;

/// A timer. Cache misses dominate the cost of many timers, so a slot has only the fields that every
/// timer needs: actions are stored apart and shared where possible.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) node: Node,
    pub(super) base: Base,
    /// The generation of the key, and `LIVE` if the slot has a timer.
    stamp: u32,
    /// The action of the timer. In a free slot: the index of the next free slot, or `END`.
    pub(super) action: ActionKey,
}

const _: () = assert!(size_of::<Slot>() == 28);

/// Set in the stamp of a slot that has a timer.
const LIVE: u32 = 1 << 31;
/// The end of the free list.
const END: u32 = u32::MAX;

/// The stamp of the slot that `key` refers to.
fn stamp_of(key: Token) -> u32 {
    key.generation() | LIVE
}

/// A generational arena of timers, as [`Arena`](crate::storage::Arena) but for plain data: one
/// comparison detects a stale key, and a slot has no memory overhead beside its stamp.
#[derive(Debug)]
pub(super) struct Slots {
    all: Vec<Slot>,
    /// The first slot of the free list, or `END`.
    free: u32,
    /// The length of the free list.
    vacant: usize,
    seed: Seed,
}

impl Slots {
    pub(super) fn new(seed: Seed) -> Slots {
        Slots { all: Vec::new(), free: END, vacant: 0, seed }
    }

    /// Inserts a timer that is not started, under a new key.
    #[inline]
    pub(super) fn insert(&mut self, base: Base) -> Token {
        self.insert_with(base, callbacks::NONE, |_, _| Node::UNSCHEDULED)
    }

    /// Inserts a timer under a new key. `node_at` gets the slots and the index of the timer, which
    /// is not in the slots yet, and returns the timer's node.
    #[inline]
    pub(super) fn insert_with(
        &mut self,
        base: Base,
        action: ActionKey,
        node_at: impl FnOnce(&mut [Slot], u32) -> Node,
    ) -> Token {
        let free = self.free;
        if let Some(slot) = self.all.get(free as usize) {
            let (key, next) = (Token::new(free, slot.stamp), slot.action);
            let node = node_at(&mut self.all, free);
            self.all[free as usize] = Slot { node, base, stamp: stamp_of(key), action };
            self.free = next;
            self.vacant -= 1;
            return key;
        }
        let key = self.seed.first_key(self.all.len() as u32);
        let node = node_at(&mut self.all, key.index());
        self.all.push(Slot { node, base, stamp: stamp_of(key), action });
        key
    }

    pub(super) fn get(&self, key: Token) -> Option<&Slot> {
        self.all.get(key.index() as usize).filter(|slot| slot.stamp == stamp_of(key))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: Token) -> Option<&mut Slot> {
        find_mut(&mut self.all, key)
    }

    /// All slots, including free ones.
    #[inline]
    pub(super) fn as_mut(&mut self) -> &mut [Slot] {
        &mut self.all
    }

    /// The timer at `index` and its key, whatever its generation.
    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> Option<(Token, &mut Slot)> {
        let slot = self.all.get_mut(index as usize)?;
        (slot.stamp & LIVE != 0).then(|| (Token::new(index, slot.stamp), slot))
    }

    /// The action of the slot at `index`.
    #[inline]
    pub(super) fn action_at(&self, index: u32) -> ActionKey {
        self.all.get(index as usize).map_or(callbacks::NONE, |slot| slot.action)
    }

    /// Frees a slot. Returns the action of its timer.
    pub(super) fn remove(&mut self, key: Token) -> Option<ActionKey> {
        let free = self.free;
        let slot = self.get_mut(key)?;
        slot.stamp = key.next().generation();
        let action = std::mem::replace(&mut slot.action, free);
        self.free = key.index();
        self.vacant += 1;
        Some(action)
    }

    /// The number of timers.
    pub(super) fn len(&self) -> usize {
        self.all.len() - self.vacant
    }

    /// The key and base of each timer.
    pub(super) fn bases(&self) -> impl Iterator<Item = (Token, Base)> {
        let live = self.all.iter().enumerate().filter(|(_, slot)| slot.stamp & LIVE != 0);
        live.map(|(index, slot)| (Token::new(index as u32, slot.stamp), slot.base))
    }
}

/// [`Slots::get_mut`] for a borrowed slice of slots.
#[inline]
pub(super) fn find_mut(slots: &mut [Slot], key: Token) -> Option<&mut Slot> {
    slots.get_mut(key.index() as usize).filter(|slot| slot.stamp == stamp_of(key))
}

impl Nodes for [Slot] {
    #[inline]
    fn node(&self, index: u32) -> Option<&Node> {
        self.get(index as usize).map(|slot| &slot.node)
    }

    #[inline]
    fn node_mut(&mut self, index: u32) -> Option<&mut Node> {
        self.get_mut(index as usize).map(|slot| &mut slot.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut slots = Slots::new(Seed::draw());
        let old = slots.insert(Base::new(1));
        assert_eq!(slots.remove(old), Some(callbacks::NONE));
        assert!(slots.at_mut(old.index()).is_none(), "the slot is free");
        let new = slots.insert(Base::new(2));
        assert_eq!(new.index(), old.index(), "the slot is reused");
        assert!(slots.get(old).is_none() && slots.get_mut(old).is_none());
        assert_eq!(slots.remove(old), None);
        assert_eq!(slots.get(new).map(|slot| slot.base.id()), Some(2));
        assert_eq!(slots.at_mut(new.index()).map(|(key, _)| key), Some(new));
    }

    #[test]
    fn a_key_of_another_loop_finds_nothing() {
        let (mut one, mut other) = (Slots::new(Seed::draw()), Slots::new(Seed::draw()));
        let (mine, foreign) = (one.insert(Base::new(1)), other.insert(Base::new(2)));
        assert_eq!(mine.index(), foreign.index(), "each is the first timer of its loop");
        assert!(one.get(foreign).is_none() && one.get_mut(foreign).is_none());
        assert_eq!(one.remove(foreign), None);
        assert_eq!(one.get(mine).map(|slot| slot.base.id()), Some(1));
    }

    #[test]
    fn free_slots_are_reused_last_in_first_out() {
        let mut slots = Slots::new(Seed::draw());
        let keys: Vec<_> = (0..4).map(|id| slots.insert(Base::new(id))).collect();
        slots.remove(keys[1]);
        slots.remove(keys[3]);
        assert_eq!(slots.len(), 2);
        let indices = [4, 5, 6].map(|id| slots.insert(Base::new(id)).index());
        assert_eq!(indices, [3, 1, 4]);
        let id: Vec<_> = slots.bases().map(|(_, base)| base.id()).collect();
        assert_eq!(id, [0, 5, 2, 4, 6]);
    }
}
