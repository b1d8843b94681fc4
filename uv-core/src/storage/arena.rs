//! An arena with generational keys: the memory of every handle.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use poll_core::Token;

/// The generation that all slots of one loop start with: it makes the keys of two loops differ.
///
/// Loop number `n` of the process starts at `n` times [`Seed::STEP`], modulo 2³¹. The step is odd:
/// 2³¹ loops start at different generations. It is 2³¹ divided by the golden ratio, and so the
/// starts of the first `N` loops, up to 20,000, are at least 2³¹ / 3`N` apart.
///
/// A slot that is reused moves on by one generation. A key of one loop is therefore found in
/// another only after one slot was reused at least that often: 357 million times with 2 loops,
/// 11 million times with 64, 715,000 times with 1,000. A key that is found by such an accident
/// names another handle or request of the same kind. No memory depends on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed(u32);

impl Seed {
    /// The odd number next to 2³¹ / φ.
    const STEP: u32 = 1_327_217_885;

    /// The seed of one more loop.
    pub(crate) fn draw() -> Seed {
        static LOOPS: AtomicU32 = AtomicU32::new(0);
        Seed::of_loop(LOOPS.fetch_add(1, Ordering::Relaxed))
    }

    fn of_loop(number: u32) -> Seed {
        Seed(number.wrapping_mul(Seed::STEP) & Token::MAX_GENERATION)
    }

    /// The key of a slot that was never used.
    #[inline]
    pub(crate) fn first_key(self, index: u32) -> Token {
        Token::new(index, self.0)
    }
}

/// A slab whose keys carry a generation: a stale key finds nothing, and neither does a key of
/// another loop, whose generations start at another [`Seed`].
///
/// Freed slots are reused last in, first out, so that a program that opens and
/// closes handles at a steady rate allocates nothing. A large arena that has become nearly empty
/// releases its memory; the few live slots that are behind the rest of it move to a map.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    slots: Vec<Slot<T>>,
    /// Live slots whose place in `slots` was released, by index.
    outliers: BTreeMap<u32, Live<T>>,
    /// The first free slot; each names the next. `END` if there is none.
    free: u32,
    live: usize,
    /// The generation of slots that are added: it starts at the loop's seed, and is later than
    /// that of every slot whose memory was released.
    first_generation: u32,
    /// With fewer live slots than this, memory is released. 0 in an arena that is not large.
    shrink_below: usize,
}

#[derive(Debug)]
enum Slot<T> {
    Live(Live<T>),
    Free { generation: u32, next: u32 },
}

/// A live slot. It holds the whole key, so that one comparison checks index and generation, next
/// to the first fields of the value.
#[derive(Debug)]
#[repr(C)]
struct Live<T> {
    key: Token,
    value: T,
}

const END: u32 = u32::MAX;

/// An arena of this many bytes releases memory when few of its slots are live.
const LARGE_ARENA: usize = 1 << 20;
/// Few slots are live if fewer than one in this many is.
const NEARLY_EMPTY: usize = 64;
/// The bytes that an arena keeps when it releases memory.
const KEPT: usize = 64 << 10;
/// The most live slots that are moved to release the memory in front of them. A lookup in a small
/// map costs little, and the slots of a program that keeps more stay where they are.
const MAX_OUTLIERS: usize = 64;

impl<T> Arena<T> {
    /// An arena of the loop that drew `seed`.
    pub(crate) fn new(seed: Seed) -> Arena<T> {
        Arena {
            slots: Vec::new(),
            outliers: BTreeMap::new(),
            free: END,
            live: 0,
            first_generation: seed.first_key(0).generation(),
            shrink_below: 0,
        }
    }

    /// Stores a value under a key that no other has had.
    pub(crate) fn insert(&mut self, value: T) -> Token {
        self.live += 1;
        if self.free == END {
            while let Some(live) = self.next_outlier() {
                self.slots.push(Slot::Live(live));
            }
            let key = Token::new(self.slots.len() as u32, self.first_generation);
            if self.slots.len() == self.slots.capacity() {
                self.grow();
            }
            self.slots.push(Slot::Live(Live { key, value }));
            return key;
        }
        let index = self.free;
        let slot = &mut self.slots[index as usize];
        let Slot::Free { generation, next } = *slot else {
            unreachable!("the free list holds free slots only")
        };
        self.free = next;
        let key = Token::new(index, generation);
        // A free slot has nothing to drop, and need not be asked.
        std::mem::forget(std::mem::replace(slot, Slot::Live(Live { key, value })));
        key
    }

    /// The live slot whose place is the next that `slots` gets.
    #[inline]
    fn next_outlier(&mut self) -> Option<Live<T>> {
        if self.outliers.is_empty() {
            return None;
        }
        self.outliers.remove(&(self.slots.len() as u32))
    }

    /// Reserves more slots: a quarter more if slots are large, because doubling would leave most
    /// of the memory unused.
    ///
    /// A large arena grows by at least 256 KiB, which the allocator maps separately. Unused pages
    /// of such a mapping cost nothing, and it grows in place; smaller blocks would fragment the
    /// heap each time.
    #[cold]
    fn grow(&mut self) {
        const LARGE: usize = 64;
        const SMALL_ARENA: usize = 8 * 1024;
        const MAPPED: usize = 256 * 1024;
        let (len, size) = (self.slots.len(), size_of::<Slot<T>>());
        let least = if len * size < SMALL_ARENA { 4 } else { MAPPED / size };
        if size > LARGE {
            self.slots.reserve_exact((len / 4).max(least));
        } else {
            self.slots.reserve(least);
        }
        if len * size >= LARGE_ARENA {
            self.shrink_below = len / NEARLY_EMPTY;
        }
    }

    /// Releases the memory behind the last live slot but few, if that is most of it. Otherwise new
    /// values use the lowest slots from now on, and the next attempt is made at an eighth of the
    /// live slots.
    #[cold]
    fn shrink(&mut self) {
        let (len, size) = (self.slots.len(), size_of::<Slot<T>>());
        let movable = MAX_OUTLIERS.saturating_sub(self.outliers.len());
        let is_live = |slot: &Slot<T>| matches!(slot, Slot::Live(_));
        let live = self.slots.iter().enumerate().rev().filter(|(_, slot)| is_live(slot));
        let used = live.map(|(index, _)| index + 1).nth(movable).unwrap_or(0);
        let kept = used.max(KEPT / size.max(1));
        if kept < len / 2 {
            self.release(kept);
        }
        if kept < len / 2 || self.live < len / NEARLY_EMPTY / 8 {
            self.sort_free();
        }
        let is_large = self.slots.len() * size >= LARGE_ARENA;
        self.shrink_below = if is_large { self.live / 8 } else { 0 };
    }

    /// Drops the slots from `kept` on, and moves those that are live.
    fn release(&mut self, kept: usize) {
        let first = self.first_generation;
        let mut latest = first;
        for slot in self.slots.drain(kept..) {
            match slot {
                Slot::Free { generation, .. } => latest = later(first, latest, generation),
                Slot::Live(live) => drop(self.outliers.insert(live.key.index(), live)),
            }
        }
        self.first_generation = latest;
        self.slots.shrink_to(kept + kept / 4);
    }

    /// Makes the lowest free slots the first to be reused.
    fn sort_free(&mut self) {
        self.free = END;
        for (index, slot) in self.slots.iter_mut().enumerate().rev() {
            if let Slot::Free { next, .. } = slot {
                *next = self.free;
                self.free = index as u32;
            }
        }
    }

    #[inline]
    pub(crate) fn get(&self, key: Token) -> Option<&T> {
        match self.slots.get(key.index() as usize) {
            Some(Slot::Live(live)) if live.key == key => Some(&live.value),
            Some(_) => None,
            None => self.outlier(key),
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Token) -> Option<&mut T> {
        match self.slots.get_mut(key.index() as usize) {
            Some(Slot::Live(live)) if live.key == key => Some(&mut live.value),
            Some(_) => None,
            None => {
                let live = self.outliers.get_mut(&key.index())?;
                (live.key == key).then_some(&mut live.value)
            }
        }
    }

    #[cold]
    fn outlier(&self, key: Token) -> Option<&T> {
        self.outliers.get(&key.index()).filter(|live| live.key == key).map(|live| &live.value)
    }

    /// The value at `index` and its key, whatever its generation.
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<(Token, &mut T)> {
        match self.slots.get_mut(index as usize) {
            Some(Slot::Live(live)) => Some((live.key, &mut live.value)),
            Some(Slot::Free { .. }) => None,
            None => self.outliers.get_mut(&index).map(|live| (live.key, &mut live.value)),
        }
    }

    pub(crate) fn remove(&mut self, key: Token) -> Option<T> {
        let Some(slot) = self.slots.get_mut(key.index() as usize) else {
            return self.remove_outlier(key);
        };
        if !matches!(slot, Slot::Live(live) if live.key == key) {
            return None;
        }
        let next = Slot::Free { generation: key.next().generation(), next: self.free };
        let Slot::Live(Live { value, .. }) = std::mem::replace(slot, next) else {
            unreachable!("it is live")
        };
        self.free = key.index();
        self.live -= 1;
        if self.live < self.shrink_below {
            self.shrink();
        }
        Some(value)
    }

    #[cold]
    fn remove_outlier(&mut self, key: Token) -> Option<T> {
        self.outlier(key)?;
        let live = self.outliers.remove(&key.index())?;
        let first = self.first_generation;
        self.first_generation = later(first, first, key.next().generation());
        self.live -= 1;
        Some(live.value)
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Token, &T)> {
        let slots = self.slots.iter().filter_map(|slot| match slot {
            Slot::Live(live) => Some(live),
            Slot::Free { .. } => None,
        });
        slots.chain(self.outliers.values()).map(|live| (live.key, &live.value))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Token, &mut T)> {
        let slots = self.slots.iter_mut().filter_map(|slot| match slot {
            Slot::Live(live) => Some(live),
            Slot::Free { .. } => None,
        });
        slots.chain(self.outliers.values_mut()).map(|live| (live.key, &mut live.value))
    }
}

/// The later of two generations, counted from `first`.
fn later(first: u32, one: u32, other: u32) -> u32 {
    let ahead = |generation: u32| generation.wrapping_sub(first) & Token::MAX_GENERATION;
    if ahead(other) > ahead(one) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stale_keys_are_not_found() {
        let mut arena = Arena::new(Seed::draw());
        let old = arena.insert('a');
        assert_eq!(arena.remove(old), Some('a'));
        let new = arena.insert('b');
        assert_eq!(new.index(), old.index(), "the slot is reused");
        assert_eq!((arena.get(old), arena.get(new)), (None, Some(&'b')));
        assert_eq!(arena.remove(old), None);
        assert_eq!(arena.at_mut(new.index()), Some((new, &mut 'b')));
        assert_eq!(arena.len(), 1);
    }

    #[test]
    fn keys_of_another_loop_are_not_found() {
        let (mut one, mut other) = (Arena::new(Seed::draw()), Arena::new(Seed::draw()));
        let (mine, foreign) = (one.insert('a'), other.insert('b'));
        assert_eq!(mine.index(), foreign.index(), "both are the first slot of their loop");
        assert!(one.get(foreign).is_none() && one.get_mut(foreign).is_none());
        assert_eq!(one.remove(foreign), None);
        assert_eq!(one.get(mine), Some(&'a'));
    }

    /// The bound that [`Seed`] documents.
    #[test]
    #[cfg_attr(miri, ignore = "it takes Miri minutes")]
    fn seeds_of_many_loops_are_far_apart() {
        let mut least = u32::MAX;
        for count in 2..=20_000 {
            // The distance of two seeds depends on the difference of their numbers only.
            let seed = Seed::of_loop(count - 1).0;
            least = least.min(seed).min((1 << 31) - seed);
            let bound = (1 << 31) / (3 * count);
            assert!(least >= bound, "{count} loops: {least} is less than {bound}");
        }
    }

    #[test]
    fn a_key_adds_one_word_to_a_slot() {
        assert_eq!(size_of::<Slot<[u64; 2]>>(), 3 * size_of::<u64>());
    }

    type Large = [u64; 16];
    const PEAK: u64 = 50_000;

    fn fill(arena: &mut Arena<Large>) -> Vec<Token> {
        (0..PEAK).map(|value| arena.insert([value; 16])).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes Miri minutes")]
    fn memory_is_released_after_a_peak() {
        let mut arena = Arena::new(Seed::draw());
        let old = fill(&mut arena);
        assert!(arena.slots.capacity() >= PEAK as usize);
        old.iter().for_each(|&key| assert!(arena.remove(key).is_some()));
        assert!(arena.slots.capacity() * size_of::<Slot<Large>>() <= 2 * KEPT);
        let new = fill(&mut arena);
        assert!(old.iter().all(|&key| arena.get(key).is_none()), "old keys stay stale");
        let values = new.iter().zip(0..).all(|(&key, value)| arena.get(key) == Some(&[value; 16]));
        assert!(values && arena.len() == PEAK as usize);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes Miri minutes")]
    fn memory_is_released_in_front_of_a_live_slot() {
        let mut arena = Arena::new(Seed::draw());
        let mut old = fill(&mut arena);
        let (last, other) = (old.pop().unwrap(), old.pop().unwrap());
        old.iter().for_each(|&key| assert!(arena.remove(key).is_some()));
        assert!(arena.slots.capacity() * size_of::<Slot<Large>>() <= 2 * KEPT);
        // The values are found by their keys, and only by them.
        assert_eq!(arena.get(last), Some(&[PEAK - 1; 16]));
        arena.get_mut(last).unwrap()[0] = 7;
        assert_eq!(arena.at_mut(last.index()).unwrap().1[0], 7);
        assert!(arena.get(last.next()).is_none() && arena.get_mut(last.next()).is_none());
        assert_eq!(arena.iter().map(|(key, _)| key).collect::<Vec<_>>(), [other, last]);
        assert_eq!(arena.iter_mut().count(), 2);
        assert!(arena.remove(other).is_some() && arena.remove(other).is_none());
        // The arena grows around the one that is left.
        let new: Vec<_> = fill(&mut arena).into_iter().chain(fill(&mut arena)).collect();
        assert!(arena.outliers.is_empty() && arena.get(last).is_some_and(|value| value[0] == 7));
        assert!(old.iter().all(|&key| arena.get(key).is_none()), "old keys stay stale");
        assert!(arena.get(other).is_none() && new.iter().all(|&key| arena.get(key).is_some()));
        assert_eq!(arena.len(), 2 * PEAK as usize + 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes Miri minutes")]
    fn many_live_slots_behind_free_ones_stay() {
        let mut arena = Arena::new(Seed::draw());
        let keys = fill(&mut arena);
        let (freed, kept) = keys.split_at(PEAK as usize - MAX_OUTLIERS - 1);
        freed.iter().for_each(|&key| assert!(arena.remove(key).is_some()));
        assert!(arena.slots.capacity() >= PEAK as usize && arena.outliers.is_empty());
        kept.iter().for_each(|&key| assert!(arena.remove(key).is_some()));
        assert!(arena.slots.capacity() * size_of::<Slot<Large>>() <= 2 * KEPT);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it takes Miri minutes")]
    fn a_steady_rate_allocates_nothing_after_a_peak() {
        let mut arena = Arena::new(Seed::draw());
        fill(&mut arena).into_iter().for_each(|key| assert!(arena.remove(key).is_some()));
        let capacity = arena.slots.capacity();
        for _ in 0..1000 {
            let keys: Vec<_> = (0..100).map(|_| arena.insert([0; 16])).collect();
            keys.into_iter().for_each(|key| assert!(arena.remove(key).is_some()));
            assert_eq!(arena.slots.capacity(), capacity);
        }
    }

    #[test]
    fn free_slots_are_reused_last_in_first_out() {
        let mut arena = Arena::new(Seed::draw());
        let keys: Vec<_> = (0..4).map(|value| arena.insert(value)).collect();
        arena.remove(keys[1]);
        arena.remove(keys[3]);
        assert_eq!(arena.insert(7).index(), 3);
        assert_eq!(arena.insert(8).index(), 1);
        assert_eq!(arena.insert(9).index(), 4);
        let values: Vec<_> = arena.iter().map(|(_, &value)| value).collect();
        assert_eq!(values, [0, 8, 2, 7, 9]);
    }
}
