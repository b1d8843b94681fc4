//! Memory for received bytes that goes from one stream to the next, so that a stream that waits has
//! none.

use std::cell::{Cell, RefCell};

/// The largest memory that a stream keeps itself.
pub(super) const MAX_OWN: usize = 2 * 1024;
/// The number of bytes of unused pieces that are kept, and the largest piece.
///
/// In one iteration the loop may receive from all streams before a task has taken anything. Each
/// then needs a piece: if fewer are kept than streams are busy, the rest is allocated and faulted in
/// anew in each iteration, which takes longer than the transfer.
const MAX_BYTES: usize = 8 << 20;
const MAX_SIZE: usize = 256 * 1024;

/// Unused memory.
#[derive(Debug, Default)]
pub(crate) struct MemoryPool {
    pieces: RefCell<Vec<Vec<u8>>>,
    /// The sum of their capacities.
    bytes: Cell<usize>,
}

impl MemoryPool {
    /// Memory for `size` bytes, without content.
    pub(crate) fn take(&self, size: usize) -> Vec<u8> {
        let kept = if size > MAX_OWN { self.pieces.borrow_mut().pop() } else { None };
        let kept = kept.unwrap_or_default();
        self.bytes.set(self.bytes.get() - kept.capacity());
        kept
    }

    /// Takes memory back that is too large for a stream that waits.
    #[inline]
    pub(crate) fn release(&self, memory: &mut Vec<u8>) {
        if memory.capacity() > MAX_OWN {
            self.keep(std::mem::take(memory));
        }
    }

    fn keep(&self, mut memory: Vec<u8>) {
        let bytes = self.bytes.get() + memory.capacity();
        if memory.capacity() <= MAX_SIZE && bytes <= MAX_BYTES {
            memory.clear();
            self.pieces.borrow_mut().push(memory);
            self.bytes.set(bytes);
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
        // As many as there are busy streams, in whatever sizes.
        let sizes = [16 * 1024, 64 * 1024].into_iter().cycle().take(200);
        let held: Vec<_> = sizes.map(Vec::<u8>::with_capacity).collect();
        let total: usize = held.iter().map(Vec::capacity).sum();
        held.into_iter().for_each(|mut piece| pool.release(&mut piece));
        let mut kept = 0;
        while let size @ 1.. = pool.take(MAX_OWN + 1).capacity() {
            kept += size;
        }
        assert_eq!(kept, total);
        (0..100).for_each(|_| pool.release(&mut Vec::with_capacity(MAX_SIZE)));
        assert_eq!(pool.pieces.borrow().len(), MAX_BYTES / MAX_SIZE, "and no more than the limit");
        while pool.take(MAX_OWN + 1).capacity() > 0 {}
        assert_eq!(pool.bytes.get(), 0);
        let mut huge = Vec::with_capacity(MAX_SIZE + 1);
        pool.release(&mut huge);
        assert_eq!(pool.take(MAX_OWN + 1).capacity(), 0);
    }
}
