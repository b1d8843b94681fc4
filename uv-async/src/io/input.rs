//! Bytes that a stream has received and no reader has got.

use std::collections::VecDeque;

use super::memory::{MAX_OWN, MemoryPool};
use super::received::LARGE;

/// Received bytes.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// Bytes, of which `chunk[at..]` are not consumed.
    chunk: Vec<u8>,
    at: usize,
    /// Bytes behind those of the chunk: of reads that were dropped when they were complete.
    behind: VecDeque<u8>,
    /// The last read has filled its buffer: there may be more.
    pub(crate) full: bool,
    /// How many reads in a row did not wait.
    pub(crate) streak: u8,
    /// Bytes come in large pieces.
    pub(crate) large: bool,
    /// The bytes before these are lent, until the next read.
    pub(crate) lent: bool,
}

impl Input {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.chunk.len() && self.behind.is_empty()
    }

    /// Joins all bytes into one piece. Returns their number.
    pub(crate) fn join(&mut self) -> usize {
        if !self.behind.is_empty() {
            self.chunk.drain(..self.at);
            self.at = 0;
            self.chunk.extend(self.behind.drain(..));
        }
        self.chunk.len() - self.at
    }

    /// The next bytes.
    pub(crate) fn bytes(&mut self) -> &[u8] {
        if self.at < self.chunk.len() {
            return &self.chunk[self.at..];
        }
        let (first, second) = self.behind.as_slices();
        if first.is_empty() { second } else { first }
    }

    pub(crate) fn consume(&mut self, count: usize) {
        if self.at < self.chunk.len() {
            self.at = self.chunk.len().min(self.at + count);
        } else {
            self.behind.drain(..count.min(self.behind.len()));
        }
    }

    /// True if the chunk has bytes, which precede all others.
    #[inline]
    pub(crate) fn has_chunk(&self) -> bool {
        self.at < self.chunk.len()
    }

    /// Copies bytes of the chunk to `memory`.
    #[inline]
    pub(crate) fn copy_chunk(&mut self, memory: &mut [u8]) -> usize {
        let chunk = &self.chunk[self.at..];
        let count = chunk.len().min(memory.len());
        memory[..count].copy_from_slice(&chunk[..count]);
        self.at += count;
        count
    }

    /// Copies bytes to `memory`; 0 if there are none.
    pub(crate) fn copy_to(&mut self, memory: &mut [u8]) -> usize {
        let mut copied = 0;
        self.take_with(memory.len(), |bytes| {
            memory[copied..copied + bytes.len()].copy_from_slice(bytes);
            copied += bytes.len();
        })
    }

    /// Takes at most `room` bytes: `put` gets pieces of them, in order. Returns their number.
    pub(crate) fn take_with(&mut self, room: usize, mut put: impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        loop {
            let bytes = self.bytes();
            let count = bytes.len().min(room - taken);
            if count == 0 {
                return taken;
            }
            put(&bytes[..count]);
            self.consume(count);
            taken += count;
        }
    }

    /// Appends bytes, in memory of the pool if they are many. True if there were others.
    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8], pool: &MemoryPool) -> bool {
        self.large = bytes.len() >= LARGE;
        if !self.is_empty() {
            self.append_behind(bytes);
            return true;
        }
        self.chunk.clear();
        self.at = 0;
        if self.chunk.capacity() < bytes.len() {
            self.take_memory(bytes.len(), pool);
        }
        self.chunk.extend_from_slice(bytes);
        false
    }

    #[cold]
    fn append_behind(&mut self, bytes: &[u8]) {
        match self.behind.is_empty() {
            true => self.chunk.extend_from_slice(bytes),
            false => self.behind.extend(bytes),
        }
    }

    #[inline(never)]
    fn take_memory(&mut self, size: usize, pool: &MemoryPool) {
        pool.release(&mut self.chunk);
        self.chunk = pool.take(size);
    }

    /// True if a read need not look at anything but the bytes.
    #[inline]
    pub(crate) fn is_usual(&self) -> bool {
        !(self.full | self.large | self.lent)
    }

    /// Appends bytes of a read that was dropped.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.behind.extend(bytes);
    }

    /// Gives up memory that holds no bytes, for other streams.
    #[inline]
    pub(crate) fn release_memory(&mut self, pool: &MemoryPool) {
        if self.at == self.chunk.len() {
            self.chunk.clear();
            self.at = 0;
            pool.release(&mut self.chunk);
        }
    }

    /// Forgets everything but small memory, for another stream.
    pub(crate) fn reset(&mut self) {
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.clear();
        chunk.shrink_to(MAX_OWN);
        *self = Input { chunk, ..Input::default() };
    }

    /// Takes the next bytes out, with their memory.
    #[inline]
    pub(crate) fn take_chunk(&mut self) -> Chunk {
        if self.has_chunk() || self.behind.is_empty() {
            let memory = std::mem::take(&mut self.chunk);
            return Chunk { memory, at: std::mem::take(&mut self.at) };
        }
        Chunk { memory: std::mem::take(&mut self.behind).into(), at: 0 }
    }

    /// Puts a chunk back: what is left of its bytes precedes all others.
    #[inline]
    pub(crate) fn put_back(&mut self, chunk: Chunk) {
        if self.is_empty() {
            (self.chunk, self.at) = (chunk.memory, chunk.at);
        } else {
            self.put_before(chunk);
        }
    }

    #[cold]
    fn put_before(&mut self, Chunk { memory, at }: Chunk) {
        if at < memory.len() {
            let rest = self.take_all();
            self.push(&memory[at..]);
            self.push(&rest);
        }
    }

    /// Takes all bytes.
    pub(crate) fn take_all(&mut self) -> Vec<u8> {
        let mut all = self.chunk[self.at..].to_vec();
        self.at = self.chunk.len();
        all.extend(std::mem::take(&mut self.behind));
        all
    }
}

/// A part of the received bytes: `memory[at..]`.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) memory: Vec<u8>,
    pub(crate) at: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_in_order_whichever_way_they_are_taken() {
        let (mut input, pool) = (Input::default(), MemoryPool::default());
        assert!(input.is_empty());
        input.append(b"ab", &pool);
        input.append(b"cd", &pool);
        input.push(b"ef");
        input.append(b"gh", &pool);
        let mut memory = [0; 2];
        assert_eq!((input.copy_to(&mut memory), &memory), (2, b"ab"));
        let chunk = input.take_chunk();
        assert_eq!(&chunk.memory[chunk.at..], b"cd");
        assert_eq!(input.bytes(), b"efgh");
        input.put_back(Chunk { at: chunk.at + 1, ..chunk });
        let mut memory = [0; 8];
        assert_eq!((input.copy_to(&mut memory), &memory[..5]), (5, &b"defgh"[..]));
        assert!(input.is_empty());
        input.push(b"ij");
        let chunk = input.take_chunk();
        assert_eq!(chunk.memory, b"ij");
        input.put_back(chunk);
        assert_eq!(input.take_all(), b"ij");
        assert!(input.is_empty());
        input.append(b"klm", &pool);
        input.consume(1);
        input.push(b"no");
        assert_eq!((input.join(), input.bytes()), (4, &b"lmno"[..]));
        assert_eq!((input.join(), input.take_all()), (4, b"lmno".to_vec()));
        input.append(&[1; 10_000], &pool);
        input.consume(10_000);
        input.release_memory(&pool);
        assert!(pool.take(10_000).capacity() >= 10_000, "a stream that waits has no memory");
    }
}
