//! The receive queue: chunks that multishot receives have delivered and no callback has read.
//!
//! A buffer that a multishot receive has filled is lent to the callback immediately, and released
//! after it. The receive goes on until it is cancelled: bytes that arrive while no callback reads are
//! copied into the queue, which is usually empty, for the next reader.

use std::collections::VecDeque;
use std::io;

use poll_core::{Backend, Token};

use super::read::{READS_PER_EVENT, Reader};
use crate::event_loop::{Done, Piece};
use crate::streams::input::read;
use crate::streams::{self, Flags, StreamSlot, Streams, arm};
use crate::{Loop, error, sys};

/// A result of a receive.
#[derive(Debug)]
pub(in crate::streams) enum RecvChunk {
    /// Bytes that were kept, and how many of them have been read.
    Kept(Vec<u8>, usize),
    /// The end of file.
    End,
    /// An error, which ends both directions.
    Failed(io::Error),
}

/// The chunks that were not read. Usually there are none, so an empty queue is a null pointer.
#[derive(Debug, Default)]
#[allow(clippy::box_collection, reason = "a queue is four words in each stream")]
pub(in crate::streams) struct RecvQueue(Option<Box<VecDeque<RecvChunk>>>);

impl RecvQueue {
    pub(in crate::streams) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// True if bytes were received that were not read.
    pub(in crate::streams) fn has_bytes(&self) -> bool {
        let is_data = |chunk: &RecvChunk| matches!(chunk, RecvChunk::Kept(..));
        self.0.as_ref().is_some_and(|all| all.iter().any(is_data))
    }

    fn pop_front(&mut self) -> Option<RecvChunk> {
        let first = self.0.as_mut()?.pop_front();
        if self.0.as_ref().is_some_and(|all| all.is_empty()) {
            self.0 = None;
        }
        first
    }

    fn push_back(&mut self, chunk: RecvChunk) {
        self.0.get_or_insert_default().push_back(chunk);
    }

    fn push_front(&mut self, chunk: RecvChunk) {
        self.0.get_or_insert_default().push_front(chunk);
    }
}

impl<B: Backend> StreamSlot<B> {
    /// Takes the reader, if it may get the bytes just received: it is lent bytes, and none are queued.
    #[inline]
    fn take_next_reader(&mut self) -> Option<Reader<B>> {
        let lends = self.flags & (Flags::READING | Flags::ALLOC) == Flags::READING;
        if lends && self.recv_queue.is_empty() { self.reader.take() } else { None }
    }
}

impl<B: Backend> Streams<B> {
    #[inline]
    pub(in crate::streams) fn has_received(&self, key: Token) -> bool {
        self.slots.get(key).is_some_and(|slot| !slot.recv_queue.is_empty())
    }

    /// Takes the next chunk.
    #[inline]
    fn take_received(&mut self, key: Token) -> Option<RecvChunk> {
        self.slots.get_mut(key)?.recv_queue.pop_front()
    }

    /// Queues a chunk for the next reader. True if the stream is read.
    pub(in crate::streams) fn queue_received(
        &mut self,
        backend: &mut B,
        key: Token,
        chunk: RecvChunk,
    ) -> bool {
        let Some(slot) = self.slots.get_mut(key) else { return false };
        if slot.base.is_closing() {
            return false;
        }
        slot.recv_queue.push_back(chunk);
        let is_read = slot.flags.contains(Flags::READING) || !slot.reads.is_empty();
        if !is_read {
            // The rest stays in the kernel, so that back-pressure reaches the peer.
            self.cancel_input(backend, key);
        }
        is_read
    }

    /// Copies received bytes into other memory. `None` if there are none.
    pub(in crate::streams) fn copy_received(
        &mut self,
        key: Token,
        memory: &mut [u8],
    ) -> Option<io::Result<usize>> {
        let (bytes, read) = match self.take_received(key)? {
            RecvChunk::Kept(bytes, read) => (bytes, read),
            RecvChunk::End => return Some(Ok(0)),
            RecvChunk::Failed(error) => return Some(Err(error)),
        };
        let count = memory.len().min(bytes.len() - read);
        memory[..count].copy_from_slice(&bytes[read..][..count]);
        if read + count < bytes.len()
            && let Some(slot) = self.slots.get_mut(key)
        {
            slot.recv_queue.push_front(RecvChunk::Kept(bytes, read + count));
        }
        Some(Ok(count))
    }
}

/// A completion of the multishot receive. True if a callback ran.
#[inline]
pub(in crate::streams) fn receive_done<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    done: Done,
) -> bool {
    let count = done.result.unwrap_or(0);
    let piece = done.lease.and_then(|lease| lp.provided.piece(lease, count));
    match (done.result, piece) {
        (Ok(1..), Some(piece)) => receive_piece(lp, key, piece),
        (Ok(_), piece) => {
            piece.into_iter().for_each(|piece| lp.provided.release(&mut lp.backend, piece));
            receive_chunk(lp, key, RecvChunk::End)
        }
        // All memory is lent at the moment.
        (Err(sys::NO_BUFFER), _) => {
            receive_by_call(lp, key);
            true
        }
        // Cancelled: it is started again if it is wanted.
        (Err(code), _) if sys::is_transient(code) => false,
        (Err(code), _) => {
            receive_chunk(lp, key, RecvChunk::Failed(io::Error::from_raw_os_error(code)))
        }
    }
}

/// Lends a buffer to the reader; or keeps its bytes, and releases it, because other streams
/// need it.
fn receive_piece<B: Backend>(lp: &mut Loop<B>, key: Token, piece: Piece) -> bool {
    let slot = lp.streams.slots.get_mut(key);
    let (changes, reader) = slot.map_or((false, None), |slot| {
        (slot.recv_policy.record(piece.len()), slot.take_next_reader())
    });
    let Some(reader) = reader else {
        let bytes = piece.to_vec();
        lp.provided.release(&mut lp.backend, piece);
        let ran = receive_chunk(lp, key, RecvChunk::Kept(bytes, 0));
        arm::update_or_fail(lp, key);
        return ran;
    };
    read::lend_piece(lp, key, reader, piece);
    if changes {
        arm::update_or_fail(lp, key);
    }
    true
}

/// Delivers a chunk, or queues it behind those that were not read.
fn receive_chunk<B: Backend>(lp: &mut Loop<B>, key: Token, chunk: RecvChunk) -> bool {
    let slot = lp.streams.slots.get_mut(key);
    if let Some(mut reader) = slot.and_then(|slot| slot.take_next_reader()) {
        deliver_chunk(lp, key, chunk, &mut |lp: &mut Loop<B>, result| {
            read::call_reader(lp, &mut reader, key, Some(result));
        });
        lp.streams.put_back_reader(key, reader);
        return true;
    }
    let is_read = lp.streams.queue_received(&mut lp.backend, key, chunk);
    if is_read {
        deliver_received(lp, key);
    }
    is_read
}

/// Puts bytes, and an error behind them, before all that was not read.
pub(in crate::streams) fn unread<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    bytes: Vec<u8>,
    failed: Option<io::Error>,
) -> io::Result<()> {
    let (slot, requests) = lp.streams.open_with_requests(key)?;
    slot.check_not_read(requests)?;
    if slot.socket.is_none() {
        return Err(error::not_connected());
    }
    if let Some(error) = failed {
        slot.recv_queue.push_front(RecvChunk::Failed(error));
        // Until the error is read.
        slot.flags |= Flags::READABLE;
    }
    if !bytes.is_empty() {
        slot.recv_queue.push_front(RecvChunk::Kept(bytes, 0));
    }
    Ok(())
}

/// All buffers are lent: the bytes are read by a call, which needs no such buffer, and records
/// their size for the receive policy. Large reads on all streams usually begin like this.
fn receive_by_call<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let Some(slot) = lp.streams.slots.get(key) else { return };
    let lends = slot.flags & (Flags::READING | Flags::ALLOC) == Flags::READING;
    if lends && slot.input.is_none() && !lp.streams.has_received(key) {
        read::ready(lp, key);
    }
}

/// Delivers the chunks that were received, if the stream is read.
#[inline]
pub(in crate::streams) fn deliver_received<B: Backend>(lp: &mut Loop<B>, key: Token) {
    if lp.streams.has_received(key) {
        read::ready(lp, key);
        let reads = lp
            .streams
            .slots
            .get(key)
            .is_some_and(|slot| slot.flags.contains(Flags::READING) || !slot.reads.is_empty());
        if reads && lp.streams.has_received(key) {
            streams::schedule_pending(lp, key);
        }
    }
}

/// Lends the queued chunks to the callback, until it stops or restarts reading.
pub(in crate::streams) fn deliver_chunks<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    deliver: &mut impl FnMut(&mut Loop<B>, io::Result<&[u8]>),
) {
    for _ in 0..READS_PER_EVENT {
        let Some(chunk) = lp.streams.take_received(key) else { return };
        deliver_chunk(lp, key, chunk, deliver);
        if !lp.streams.is_still_reading(key) {
            return;
        }
    }
}

fn deliver_chunk<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    chunk: RecvChunk,
    deliver: &mut impl FnMut(&mut Loop<B>, io::Result<&[u8]>),
) {
    match chunk {
        RecvChunk::Kept(bytes, read) => deliver(lp, Ok(&bytes[read..])),
        RecvChunk::End => {
            lp.streams.stop_reading_at_end(&mut lp.active_handles, key);
            deliver(lp, Ok(&[]));
        }
        RecvChunk::Failed(error) => {
            lp.streams.fail_reading(&mut lp.active_handles, key);
            deliver(lp, Err(error));
        }
    }
}
