//! Per-token state in a dense array.

use crate::Token;

/// Values by token: indexed by [`Token::index`], guarded by generation.
///
/// A lookup is one array access, without hashing. A stale token finds nothing.
///
/// ```
/// use poll_core::{Table, Token};
///
/// let mut table = Table::default();
/// let token = Token::new(2, 0);
/// table.insert(token, "state").unwrap();
/// assert_eq!(table.get(token), Some(&"state"));
/// assert_eq!(table.get(token.next()), None);
/// assert_eq!(table.remove(token), Some("state"));
/// ```
#[derive(Debug)]
pub struct Table<T> {
    /// A token is never zero, so that an empty slot needs no tag, and one comparison checks a slot.
    slots: Vec<Option<(Token, T)>>,
    live: usize,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { slots: Vec::new(), live: 0 }
    }
}

impl<T> Table<T> {
    /// Stores `value`; returns it as the error if the index is taken, in any generation.
    pub fn insert(&mut self, token: Token, value: T) -> Result<(), T> {
        let index = token.index() as usize;
        if index >= self.slots.len() {
            self.grow(index + 1);
        }
        match &mut self.slots[index] {
            Some(_) => Err(value),
            empty => {
                *empty = Some((token, value));
                self.live += 1;
                Ok(())
            }
        }
    }

    /// Grows the array to `len` entries. The allocator maps a large array from the kernel on its
    /// own: unused pages cost nothing and `mremap` grows it in place, whereas repeated doubling
    /// of small blocks fragments the heap.
    fn grow(&mut self, len: usize) {
        const LARGE_BYTES: usize = 8 * 1024;
        const RESERVE_BYTES: usize = 256 * 1024;
        let size = size_of::<Option<(Token, T)>>();
        if len > self.slots.capacity() && len * size >= LARGE_BYTES {
            self.slots.reserve(RESERVE_BYTES / size);
        }
        self.slots.resize_with(len, || None);
    }

    /// The live value for `token`, if any.
    #[inline]
    pub fn get(&self, token: Token) -> Option<&T> {
        match self.slots.get(token.index() as usize)? {
            Some((live, value)) if *live == token => Some(value),
            _ => None,
        }
    }

    /// The live value for `token`, if any.
    #[inline]
    pub fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        match self.slots.get_mut(token.index() as usize)? {
            Some((live, value)) if *live == token => Some(value),
            _ => None,
        }
    }

    /// True if the token's index is taken, in any generation.
    pub fn is_taken(&self, token: Token) -> bool {
        matches!(self.slots.get(token.index() as usize), Some(Some(_)))
    }

    /// Removes the value for `token`.
    pub fn remove(&mut self, token: Token) -> Option<T> {
        self.get(token)?;
        let (_, value) = self.slots[token.index() as usize].take()?;
        self.live -= 1;
        Some(value)
    }

    /// The number of live values.
    pub fn len(&self) -> usize {
        self.live
    }

    /// True if no value is live.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Every live value with its token, by index.
    pub fn iter(&self) -> impl Iterator<Item = (Token, &T)> {
        self.slots.iter().flatten().map(|(token, value)| (*token, value))
    }

    /// Every live value with its token, by index.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Token, &mut T)> {
        self.slots.iter_mut().flatten().map(|(token, value)| (*token, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_token_finds_nothing() {
        let mut table = Table::default();
        let old = Token::new(5, 0);
        table.insert(old, 'a').unwrap();
        assert_eq!(table.remove(old), Some('a'));
        table.insert(old.next(), 'b').unwrap();
        assert_eq!(table.get(old), None);
        assert_eq!(table.get_mut(old), None);
        assert_eq!(table.remove(old), None);
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn inserting_at_a_taken_index_returns_the_value() {
        let mut table = Table::default();
        table.insert(Token::new(0, 1), 'a').unwrap();
        assert_eq!(table.insert(Token::new(0, 2), 'b'), Err('b'));
        assert!(table.is_taken(Token::new(0, 9)));
        assert!(!table.is_taken(Token::new(1, 0)));
    }

    #[test]
    fn iteration_is_by_index_and_skips_free_entries() {
        let mut table = Table::default();
        for index in [4, 0, 2] {
            table.insert(Token::new(index, index), index).unwrap();
        }
        table.remove(Token::new(2, 2));
        let seen: Vec<_> = table.iter().map(|(token, &value)| (token.index(), value)).collect();
        assert_eq!(seen, [(0, 0), (4, 4)]);
        assert_eq!(table.iter_mut().count(), 2);
    }
}
