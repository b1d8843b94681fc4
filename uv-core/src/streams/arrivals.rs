//! What operations have received.
//!
//! An operation that receives whatever comes goes on until it is told to stop, and what it had
//! received by then is not lost: it is kept for the next reader. Mostly nothing is: a piece of
//! provided memory is lent to the callback at once, and goes back after it.

use std::collections::VecDeque;
use std::io;

use poll_core::{Backend, Token};

use super::Flags;
use super::read::READS_PER_EVENT;
use crate::operations::Done;
use crate::provided::Piece;
use crate::{Loop, sys};

/// Something that was received.
#[derive(Debug)]
pub(super) enum Arrival {
    /// Bytes in provided memory.
    Lent(Piece),
    /// Bytes that were kept, and how many of them have been read.
    Kept(Vec<u8>, usize),
    /// The end of file.
    End,
    /// An error, which ends both directions.
    Failed(i32),
}

/// What nobody has read yet: mostly nothing, for which there is room for no more than a pointer.
#[derive(Debug, Default)]
#[allow(clippy::box_collection, reason = "a queue is four words in each stream")]
pub(super) struct Arrivals(Option<Box<VecDeque<Arrival>>>);

impl Arrivals {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    fn pop_front(&mut self) -> Option<Arrival> {
        let first = self.0.as_mut()?.pop_front();
        if self.0.as_ref().is_some_and(|all| all.is_empty()) {
            self.0 = None;
        }
        first
    }

    fn push_back(&mut self, arrival: Arrival) {
        self.0.get_or_insert_default().push_back(arrival);
    }

    fn push_front(&mut self, arrival: Arrival) {
        self.0.get_or_insert_default().push_front(arrival);
    }
}

impl<B: Backend> Loop<B> {
    /// The operation that receives whatever comes has received something, or is over.
    pub(super) fn receive_done(&mut self, key: Token, done: Done) {
        let (count, mut unread) = (done.result.unwrap_or(0), false);
        let piece = done.lent.and_then(|lent| self.provided.piece(lent, count));
        let arrival = match (done.result, piece) {
            (Ok(count @ 1..), Some(piece)) => {
                if let Some(slot) = self.streams.slots.get_mut(key) {
                    slot.pace.came(count);
                    unread = !slot.flags.contains(Flags::READING) && slot.reads.is_empty();
                }
                Arrival::Lent(piece)
            }
            (Ok(_), piece) => {
                piece.into_iter().for_each(|piece| self.recycle(piece));
                Arrival::End
            }
            // All memory is lent at the moment.
            (Err(sys::NO_BUFFER), _) => return self.receive_at_once(key),
            // Cancelled: it is started again if it is wanted.
            (Err(code), _) if sys::is_passing(code) => {
                self.operations.told_nobody += 1;
                return;
            }
            (Err(code), _) => Arrival::Failed(code),
        };
        self.streams.arriving = Some((key, arrival));
        self.guarded((), |lp, ()| lp.keep_arriving(false), |lp| lp.tell_arrivals(key));
        self.keep_arriving(unread);
    }

    /// Nobody has read what has just been received, or a panic came first.
    #[inline]
    fn keep_arriving(&mut self, unread: bool) {
        if let Some((key, arrival)) = self.streams.arriving.take() {
            self.operations.told_nobody += usize::from(unread);
            self.keep_arrival(key, arrival);
        }
    }

    /// There was no memory to receive into: what has come is read by a call, which needs none of
    /// it, and tells how much that is. If much comes on all streams, most of them begin so.
    fn receive_at_once(&mut self, key: Token) {
        let Some(slot) = self.streams.slots.get(key) else { return };
        let lends = slot.flags & (Flags::READING | Flags::LATE) == Flags::READING;
        if lends && slot.input.is_none() && !self.has_arrivals(key) {
            self.read_ready(key);
        }
    }

    /// Has what was received read, as far as somebody reads.
    pub(super) fn tell_arrivals(&mut self, key: Token) {
        if self.has_arrivals(key) {
            self.read_ready(key);
            let reads =
                self.streams.slots.get(key).is_some_and(|slot| {
                    slot.flags.contains(Flags::READING) || !slot.reads.is_empty()
                });
            if reads && self.has_arrivals(key) {
                self.feed_stream(key);
            }
        }
    }

    #[inline]
    pub(super) fn has_arrivals(&self, key: Token) -> bool {
        let kept = self.streams.slots.get(key).is_some_and(|slot| !slot.arrivals.is_empty());
        kept || self.streams.arriving.as_ref().is_some_and(|(of, _)| *of == key)
    }

    /// The next of what was received.
    fn take_arrival(&mut self, key: Token) -> Option<Arrival> {
        let slot = self.streams.slots.get_mut(key)?;
        slot.arrivals.pop_front().or_else(|| {
            let arrived = self.streams.arriving.take_if(|(of, _)| *of == key);
            arrived.map(|(_, arrival)| arrival)
        })
    }

    /// Nobody reads now. The memory goes back, as others need it.
    fn keep_arrival(&mut self, key: Token, arrival: Arrival) {
        let kept = match arrival {
            Arrival::Lent(piece) => {
                let bytes = piece.to_vec();
                self.recycle(piece);
                Arrival::Kept(bytes, 0)
            }
            other => other,
        };
        let Some(slot) = self.streams.slots.get_mut(key) else { return };
        if slot.base.is_closing() {
            return;
        }
        slot.arrivals.push_back(kept);
        let reads = slot.flags.contains(Flags::READING) || !slot.reads.is_empty();
        if reads {
            self.feed_stream(key);
        } else {
            // The rest waits in the kernel, so that the peer notices.
            self.cancel_input(key);
        }
    }

    /// Lends what was received to the callback, if there is something. The callback has
    /// neither stopped reading nor started anew.
    pub(super) fn lend_arrivals(
        &mut self,
        key: Token,
        tell: &mut impl FnMut(&mut Loop<B>, io::Result<&[u8]>),
    ) {
        for _ in 0..READS_PER_EVENT {
            let Some(arrival) = self.take_arrival(key) else { return };
            match arrival {
                Arrival::Lent(piece) => self.lend(piece, |lp, bytes| tell(lp, Ok(bytes))),
                Arrival::Kept(bytes, read) => tell(self, Ok(&bytes[read..])),
                Arrival::End => {
                    self.stop_reading_at_end(key);
                    tell(self, Ok(&[]));
                }
                Arrival::Failed(code) => {
                    self.fail_reading(key);
                    tell(self, Err(io::Error::from_raw_os_error(code)));
                }
            }
            if !self.goes_on_reading(key) {
                return;
            }
        }
    }

    /// Copies what was received into other memory. `None` if there is nothing.
    pub(super) fn copy_arrival(
        &mut self,
        key: Token,
        memory: &mut [u8],
    ) -> Option<io::Result<usize>> {
        let (count, rest) = match self.take_arrival(key)? {
            Arrival::Lent(piece) => {
                let count = copy(&piece, memory);
                let rest = piece[count..].to_vec();
                self.recycle(piece);
                (count, Arrival::Kept(rest, 0))
            }
            Arrival::Kept(bytes, read) => {
                let count = copy(&bytes[read..], memory);
                (count, Arrival::Kept(bytes, read + count))
            }
            Arrival::End => return Some(Ok(0)),
            Arrival::Failed(code) => return Some(Err(io::Error::from_raw_os_error(code))),
        };
        if let Arrival::Kept(bytes, read) = &rest
            && *read < bytes.len()
            && let Some(slot) = self.streams.slots.get_mut(key)
        {
            slot.arrivals.push_front(rest);
        }
        Some(Ok(count))
    }
}

fn copy(bytes: &[u8], memory: &mut [u8]) -> usize {
    let count = bytes.len().min(memory.len());
    memory[..count].copy_from_slice(&bytes[..count]);
    count
}
