//! Lent received bytes.

use std::cell::RefCell;
use std::fmt;

use super::input::{Chunk, Input};

/// Received bytes in a buffer of the runtime. Dropping it consumes them all;
/// [`keep_from`](Lent::keep_from) leaves some to the next read.
pub struct Lent<'a> {
    input: &'a RefCell<Input>,
    chunk: Option<Chunk>,
}

impl<'a> Lent<'a> {
    pub(super) fn new(input: &'a RefCell<Input>, chunk: Chunk) -> Lent<'a> {
        Lent { input, chunk: Some(chunk) }
    }

    /// Consumes the first `count` bytes. The rest stays in the stream, for the next read of any
    /// kind.
    pub fn keep_from(mut self, count: usize) {
        if let Some(chunk) = &mut self.chunk {
            chunk.at = chunk.memory.len().min(chunk.at + count);
        }
        self.put_back();
    }

    fn put_back(&mut self) {
        if let Some(chunk) = self.chunk.take() {
            self.input.borrow_mut().put_back(chunk);
        }
    }
}

impl std::ops::Deref for Lent<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.chunk.as_ref().map_or(&[], |chunk| &chunk.memory[chunk.at..])
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(chunk) = &mut self.chunk {
            chunk.at = chunk.memory.len();
        }
        self.put_back();
    }
}

impl fmt::Debug for Lent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lent").field(&self.len()).finish()
    }
}
