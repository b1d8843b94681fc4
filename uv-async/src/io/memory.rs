//! Memory for received bytes that goes from one stream to the next, so that a stream that waits has
//! none.

use std::cell::RefCell;

/// The largest memory that a stream keeps itself.
pub(super) const MAX_OWN: usize = 2 * 1024;
/// The number of unused pieces that are kept, and the largest one.
const MAX_PIECES: usize = 32;
const MAX_SIZE: usize = 256 * 1024;

/// Unused memory.
#[derive(Debug, Default)]
pub(crate) struct MemoryPool(RefCell<Vec<Vec<u8>>>);

impl MemoryPool {
    /// Memory for `size` bytes, without content.
    pub(crate) fn take(&self, size: usize) -> Vec<u8> {
        let kept = if size > MAX_OWN { self.0.borrow_mut().pop() } else { None };
        kept.unwrap_or_default()
    }

    /// Takes memory back that is too large for a stream that waits.
    #[inline]
    pub(crate) fn release(&self, memory: &mut Vec<u8>) {
        if memory.capacity() > MAX_OWN {
            self.keep(std::mem::take(memory));
        }
    }

    fn keep(&self, mut memory: Vec<u8>) {
        let mut pieces = self.0.borrow_mut();
        if pieces.len() < MAX_PIECES && memory.capacity() <= MAX_SIZE {
            memory.clear();
            pieces.push(memory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_memory_is_kept_and_small_memory_stays() {
        let pool = MemoryPool::default();
        let (mut small, mut large) = (Vec::with_capacity(MAX_OWN), Vec::with_capacity(MAX_OWN + 1));
        large.push(1);
        pool.release(&mut small);
        pool.release(&mut large);
        assert_eq!((small.capacity(), large.capacity()), (MAX_OWN, 0));
        assert!(pool.take(MAX_OWN).capacity() == 0, "small memory is a stream's own");
        let again = pool.take(MAX_OWN + 1);
        assert!(again.capacity() > MAX_OWN && again.is_empty());
        assert_eq!(pool.take(MAX_OWN + 1).capacity(), 0);
        let mut huge = Vec::with_capacity(MAX_SIZE + 1);
        pool.release(&mut huge);
        assert_eq!(pool.take(MAX_OWN + 1).capacity(), 0);
    }
}
