//! Bytes that a stream has received and no reader has got.

use std::collections::VecDeque;

/// The size of the buffers that the crate reads into.
pub(crate) const CHUNK: usize = 8 * 1024;

/// Received bytes.
#[derive(Debug, Default)]
pub(crate) struct Input {
    /// A filled buffer, of which `chunk[at..end]` is not consumed.
    chunk: Vec<u8>,
    at: usize,
    end: usize,
    /// Bytes behind those of the chunk: of reads that were dropped when they were complete.
    behind: VecDeque<u8>,
    /// The last read has filled its buffer: there may be more.
    pub(crate) full: bool,
    /// How many reads in a row did not wait.
    pub(crate) streak: u8,
}

impl Input {
    pub(crate) fn is_empty(&self) -> bool {
        self.at == self.end && self.behind.is_empty()
    }

    /// The next bytes.
    pub(crate) fn bytes(&mut self) -> &[u8] {
        if self.at < self.end {
            return &self.chunk[self.at..self.end];
        }
        let (first, second) = self.behind.as_slices();
        if first.is_empty() { second } else { first }
    }

    pub(crate) fn consume(&mut self, count: usize) {
        if self.at < self.end {
            self.at = self.end.min(self.at + count);
        } else {
            self.behind.drain(..count.min(self.behind.len()));
        }
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

    /// Appends bytes of a read that was dropped.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.behind.extend(bytes);
    }

    /// Sets a filled buffer; there must be no other bytes.
    pub(crate) fn fill(&mut self, chunk: Vec<u8>, end: usize) {
        (self.chunk, self.at, self.end) = (chunk, 0, end);
    }

    /// Memory to fill, if all of it is consumed.
    pub(crate) fn take_memory(&mut self) -> Option<Vec<u8>> {
        let free = self.at == self.end && !self.chunk.is_empty();
        free.then(|| {
            (self.at, self.end) = (0, 0);
            std::mem::take(&mut self.chunk)
        })
    }

    /// Takes the next bytes out, with their memory.
    pub(crate) fn take_chunk(&mut self) -> Chunk {
        if self.at == self.end && !self.behind.is_empty() {
            let memory: Vec<u8> = std::mem::take(&mut self.behind).into();
            let end = memory.len();
            return Chunk { memory, at: 0, end };
        }
        let chunk = Chunk { memory: std::mem::take(&mut self.chunk), at: self.at, end: self.end };
        (self.at, self.end) = (0, 0);
        chunk
    }

    /// Puts a chunk back: what is left of its bytes precedes all others.
    pub(crate) fn put_back(&mut self, chunk: Chunk) {
        let Chunk { memory, at, end } = chunk;
        if self.is_empty() {
            (self.chunk, self.at, self.end) = (memory, at, end);
        } else if at < end {
            let rest = self.take_all();
            self.push(&memory[at..end]);
            self.push(&rest);
        }
    }

    /// Takes all bytes.
    pub(crate) fn take_all(&mut self) -> Vec<u8> {
        let mut all = self.chunk[self.at..self.end].to_vec();
        self.at = self.end;
        all.extend(std::mem::take(&mut self.behind));
        all
    }
}

/// A part of the received bytes.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) memory: Vec<u8>,
    pub(crate) at: usize,
    pub(crate) end: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_in_order_whichever_way_they_are_taken() {
        let mut input = Input::default();
        assert!(input.is_empty() && input.take_memory().is_none());
        input.fill(b"abcd____".to_vec(), 4);
        input.push(b"efgh");
        let mut memory = [0; 2];
        assert_eq!((input.copy_to(&mut memory), &memory), (2, b"ab"));
        let chunk = input.take_chunk();
        assert_eq!(&chunk.memory[chunk.at..chunk.end], b"cd");
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
        assert!(input.is_empty() && input.take_memory().is_some());
    }
}
