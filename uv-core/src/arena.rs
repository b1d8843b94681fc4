//! Slots with generational keys: the memory of every handle.

use poll_core::Token;

/// A slab whose keys carry a generation: a stale key finds nothing.
///
/// Freed slots are reused last in, first out, so that a program that opens and
/// closes handles at a steady rate allocates nothing.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    slots: Vec<Slot<T>>,
    /// The first free slot; each names the next. `END` if there is none.
    free: u32,
    live: usize,
}

#[derive(Debug)]
enum Slot<T> {
    Live(Live<T>),
    Free { generation: u32, next: u32 },
}

/// The whole key, so that one comparison tells that it is the one. It is beside what a value has
/// first.
#[derive(Debug)]
#[repr(C)]
struct Live<T> {
    key: Token,
    value: T,
}

const END: u32 = u32::MAX;

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Arena { slots: Vec::new(), free: END, live: 0 }
    }
}

impl<T> Arena<T> {
    /// Stores a value under a key that no other has had.
    pub(crate) fn insert(&mut self, value: T) -> Token {
        self.live += 1;
        if self.free == END {
            let key = Token::new(self.slots.len() as u32, 0);
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
        *slot = Slot::Live(Live { key, value });
        key
    }

    /// By a quarter if slots are large: twice as many would mostly be room.
    ///
    /// Many have memory of their own from the system. What is not used of that costs nothing, and
    /// it grows where it lies, where smaller pieces would leave holes behind each time.
    #[cold]
    fn grow(&mut self) {
        const LARGE: usize = 64;
        const MANY: usize = 8 * 1024;
        const OWN: usize = 256 * 1024;
        let (len, size) = (self.slots.len(), size_of::<Slot<T>>());
        let least = if len * size < MANY { 4 } else { OWN / size };
        if size > LARGE {
            self.slots.reserve_exact((len / 4).max(least));
        } else {
            self.slots.reserve(least);
        }
    }

    #[inline]
    pub(crate) fn get(&self, key: Token) -> Option<&T> {
        match self.slots.get(key.index() as usize)? {
            Slot::Live(live) if live.key == key => Some(&live.value),
            _ => None,
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: Token) -> Option<&mut T> {
        match self.slots.get_mut(key.index() as usize)? {
            Slot::Live(live) if live.key == key => Some(&mut live.value),
            _ => None,
        }
    }

    /// The value at `index` and its key, whatever its generation.
    #[inline]
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<(Token, &mut T)> {
        match self.slots.get_mut(index as usize)? {
            Slot::Live(live) => Some((live.key, &mut live.value)),
            Slot::Free { .. } => None,
        }
    }

    pub(crate) fn remove(&mut self, key: Token) -> Option<T> {
        self.get(key)?;
        let next = Slot::Free { generation: key.next().generation(), next: self.free };
        let Slot::Live(Live { value, .. }) =
            std::mem::replace(&mut self.slots[key.index() as usize], next)
        else {
            unreachable!("`get` found it live")
        };
        self.free = key.index();
        self.live -= 1;
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.live
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Token, &T)> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Live(live) => Some((live.key, &live.value)),
            Slot::Free { .. } => None,
        })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (Token, &mut T)> {
        self.slots.iter_mut().filter_map(|slot| match slot {
            Slot::Live(live) => Some((live.key, &mut live.value)),
            Slot::Free { .. } => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_key_finds_nothing() {
        let mut arena = Arena::default();
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
    fn a_key_takes_the_room_of_a_word() {
        assert_eq!(size_of::<Slot<[u64; 2]>>(), 3 * size_of::<u64>());
    }

    #[test]
    fn free_slots_are_reused_last_in_first_out() {
        let mut arena = Arena::default();
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
