//! Where timers are kept: less than half a cache line for each.

use poll_core::Token;

use super::actions::{self, ActionKey};
use crate::handles::Base;
use crate::sys;
use crate::wheel::{Node, Nodes};

/// A timer. With very many of them, memory is what they cost: what is seldom needed, or the
/// same for many, stands elsewhere.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) node: Node,
    pub(super) base: Base,
    /// The generation of its key, and whether there is a timer.
    stamp: u32,
    /// What it does when it is due. Of a free slot: the next one that is free.
    pub(super) action: ActionKey,
}

const _: () = assert!(size_of::<Slot>() == 28);

/// In the stamp of a slot that has a timer.
const LIVE: u32 = 1 << 31;
const END: u32 = u32::MAX;
/// As timers become many, memory for so many more is asked for at a time: 56 KiB of it.
const STEP: usize = 2048;
/// As they become very many, it is for a quarter of those that there are, up to so many: 896 KiB.
const MAX_STEP: usize = 16 * STEP;

fn stamp_of(key: Token) -> u32 {
    key.generation() | LIVE
}

/// As [`Arena`](crate::arena::Arena), for slots that are plain data: one comparison tells whether
/// a key is stale, and nothing but the timer takes room.
#[derive(Debug)]
pub(super) struct Slots {
    all: Vec<Slot>,
    /// For how many of them there is memory at hand, which may be less than they have room for.
    at_hand: usize,
    /// The first free slot; each names the next. `END` if there is none.
    free: u32,
    /// How many are free.
    vacant: usize,
}

impl Slots {
    pub(super) fn new() -> Slots {
        Slots { all: Vec::new(), at_hand: 0, free: END, vacant: 0 }
    }

    /// A timer that is not started, under a key that no other has had.
    #[inline]
    pub(super) fn insert(&mut self, base: Base) -> Token {
        self.insert_with(base, actions::NONE, |_, _| Node::OUT)
    }

    /// A timer under a key that no other has had. `node_at` gets the slots and the index that it
    /// will have, where no timer is yet, and says what its node is.
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
        if self.all.len() == self.at_hand {
            self.grow();
        }
        let key = Token::new(self.all.len() as u32, 0);
        let node = node_at(&mut self.all, key.index());
        self.all.push(Slot { node, base, stamp: stamp_of(key), action });
        key
    }

    /// To have many pages from the system at once costs less than to be given each as it is
    /// touched first.
    #[cold]
    fn grow(&mut self) {
        let few = self.all.len() < STEP;
        if self.all.len() == self.all.capacity() {
            self.all.reserve(if few { 4 } else { STEP });
        }
        let room = self.all.spare_capacity_mut();
        if few {
            self.at_hand += room.len();
            return;
        }
        let next = room.len().min((self.at_hand / 4).clamp(STEP, MAX_STEP));
        sys::fault_in(&mut room[..next]);
        self.at_hand += next;
    }

    pub(super) fn get(&self, key: Token) -> Option<&Slot> {
        self.all.get(key.index() as usize).filter(|slot| slot.stamp == stamp_of(key))
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: Token) -> Option<&mut Slot> {
        find_mut(&mut self.all, key)
    }

    /// All slots, also those that are free.
    #[inline]
    pub(super) fn as_mut(&mut self) -> &mut [Slot] {
        &mut self.all
    }

    /// The timer at `index` and its key, whatever its generation.
    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> Option<(Token, &mut Slot)> {
        let slot = self.all.get_mut(index as usize).filter(|slot| slot.stamp & LIVE != 0)?;
        Some((Token::new(index, slot.stamp), slot))
    }

    /// Which action the slot at `index` has.
    #[inline]
    pub(super) fn action_at(&self, index: u32) -> ActionKey {
        self.all.get(index as usize).map_or(actions::NONE, |slot| slot.action)
    }

    /// Frees a slot; tells the action that the timer had.
    pub(super) fn remove(&mut self, key: Token) -> Option<ActionKey> {
        let free = self.free;
        let slot = self.get_mut(key)?;
        slot.stamp = key.next().generation();
        let action = std::mem::replace(&mut slot.action, free);
        self.free = key.index();
        self.vacant += 1;
        Some(action)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len() - self.vacant
    }

    pub(super) fn bases(&self) -> impl Iterator<Item = (Token, Base)> {
        let live = self.all.iter().enumerate().filter(|(_, slot)| slot.stamp & LIVE != 0);
        live.map(|(index, slot)| (Token::new(index as u32, slot.stamp), slot.base))
    }
}

/// As [`Slots::get_mut`].
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
        let mut slots = Slots::new();
        let old = slots.insert(Base::new(1));
        assert_eq!(slots.remove(old), Some(actions::NONE));
        assert!(slots.at_mut(old.index()).is_none(), "the slot is free");
        let new = slots.insert(Base::new(2));
        assert_eq!(new.index(), old.index(), "the slot is reused");
        assert!(slots.get(old).is_none() && slots.get_mut(old).is_none());
        assert_eq!(slots.remove(old), None);
        assert_eq!(slots.get(new).map(|slot| slot.base.born()), Some(2));
        assert_eq!(slots.at_mut(new.index()).map(|(key, _)| key), Some(new));
    }

    #[test]
    fn free_slots_are_reused_last_in_first_out() {
        let mut slots = Slots::new();
        let keys: Vec<_> = (0..4).map(|born| slots.insert(Base::new(born))).collect();
        slots.remove(keys[1]);
        slots.remove(keys[3]);
        assert_eq!(slots.len(), 2);
        let indices = [4, 5, 6].map(|born| slots.insert(Base::new(born)).index());
        assert_eq!(indices, [3, 1, 4]);
        let born: Vec<_> = slots.bases().map(|(_, base)| base.born()).collect();
        assert_eq!(born, [0, 5, 2, 4, 6]);
    }

    #[test]
    fn memory_grows_step_by_step() {
        let mut slots = Slots::new();
        let count = 3 * STEP as u32 + 5;
        for born in 0..count {
            slots.insert(Base::new(born));
            assert!(slots.len() <= slots.at_hand && slots.at_hand <= slots.all.capacity());
        }
        assert!(slots.bases().map(|(_, base)| base.born()).eq(0..count));
    }
}
