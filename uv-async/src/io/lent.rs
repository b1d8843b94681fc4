//! Lent received bytes.

use std::cell::RefCell;
use std::fmt;

use super::input::{Chunk, Input};

/// Received bytes in a buffer of the runtime. Dropping it consumes them all;
/// [`keep_from`](Lent::keep_from) leaves some to the next read.
pub struct Lent<'a> {
    input: &'a RefCell<Input>,
    chunk: Chunk,
    /// Where the next read begins.
    next: usize,
}

impl<'a> Lent<'a> {
    #[inline]
    pub(super) fn new(input: &'a RefCell<Input>, chunk: Chunk) -> Lent<'a> {
        let next = chunk.memory.len();
        Lent { input, chunk, next }
    }

    /// Consumes the first `count` bytes. The rest stays in the stream, for the next read of any
    /// kind, which does not wait: [`lend_more_than`](crate::IoStream::lend_more_than) does.
    pub fn keep_from(mut self, count: usize) {
        self.next = self.next.min(self.chunk.at.saturating_add(count));
    }
}

impl std::ops::Deref for Lent<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.chunk.memory[self.chunk.at..]
    }
}

impl Drop for Lent<'_> {
    #[inline]
    fn drop(&mut self) {
        let memory = std::mem::take(&mut self.chunk.memory);
        self.input.borrow_mut().put_back(Chunk { memory, at: self.next });
    }
}

impl fmt::Debug for Lent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lent").field(&self.len()).finish()
    }
}
