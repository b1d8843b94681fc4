//! The bytes and datagrams of one direction, and whether they arrive as they were sent.

use std::cell::{Cell, RefCell};

use crate::rng::mix;

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// It was accepted whole.
    All,
    /// It was cancelled, failed, or has not been reported: a first part may have left.
    Part,
}

/// One direction of a stream.
#[derive(Debug, Default)]
pub(super) struct Lane {
    writes: RefCell<Vec<(usize, Sent)>>,
    received: RefCell<Vec<u8>>,
    /// The reader saw the end of file because the writer was shut down.
    pub(super) ended: Cell<bool>,
    /// An end has failed or was closed: bytes may be lost from then on.
    pub(super) broken: Cell<bool>,
}

impl Lane {
    /// The next write: its number and its bytes. It counts as a part until it is settled.
    pub(super) fn next_write(&self, len: usize) -> (usize, Vec<u8>) {
        let mut writes = self.writes.borrow_mut();
        writes.push((len, Sent::Part));
        let number = writes.len() - 1;
        (number, (0..len).map(|at| byte(number, at)).collect())
    }

    /// Settles a write of which `len` bytes were accepted.
    pub(super) fn settle(&self, number: usize, len: usize) {
        self.writes.borrow_mut()[number] = (len, Sent::All);
    }

    pub(super) fn receive(&self, bytes: &[u8]) {
        self.received.borrow_mut().extend_from_slice(bytes);
    }

    /// Compares what arrived with what was written.
    pub(super) fn check(&self, name: &str) -> Result<(), String> {
        let (writes, received) = (self.writes.borrow(), self.received.borrow());
        let whole = self.ended.get() && !self.broken.get();
        if matches(&writes, &received, 0, whole) {
            return Ok(());
        }
        let written: Vec<_> =
            writes.iter().map(|(len, sent)| format!("{len} ({sent:?})")).collect();
        let extent = if whole { "whole" } else { "a prefix of" };
        Err(format!(
            "{name}: the {} bytes received are not {extent} the writes of {}",
            received.len(),
            written.join(", ")
        ))
    }
}

/// True if `bytes` is the concatenation of the writes from `number` on, of which those that were
/// not accepted whole contribute any first part. Unless it must be `whole`, it may end anywhere.
fn matches(writes: &[(usize, Sent)], bytes: &[u8], number: usize, whole: bool) -> bool {
    let Some(&(len, sent)) = writes.get(number) else { return bytes.is_empty() };
    if bytes.is_empty() && !whole {
        return true;
    }
    let equal = (0..len.min(bytes.len())).take_while(|at| bytes[*at] == byte(number, *at)).count();
    match sent {
        Sent::All if equal == len => matches(writes, &bytes[len..], number + 1, whole),
        Sent::All => equal == bytes.len() && !whole,
        // The longest part is tried first: bytes of the next write may look like this one's.
        Sent::Part => {
            (0..=equal).rev().any(|part| matches(writes, &bytes[part..], number + 1, whole))
        }
    }
}

/// The byte at a position of a write.
fn byte(number: usize, at: usize) -> u8 {
    (mix((number as u64) << 32 | (at / 8) as u64) >> (at % 8 * 8)) as u8
}

/// One direction between two datagram sockets.
#[derive(Debug, Default)]
pub(super) struct DatagramLane {
    sent: Cell<u32>,
    last_received: Cell<u32>,
}

impl DatagramLane {
    /// The next datagram: its number, its length and a pattern.
    pub(super) fn next(&self, len: usize) -> Vec<u8> {
        let number = self.sent.get() + 1;
        self.sent.set(number);
        let len = len.min(1400);
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.extend((len as u32).to_le_bytes());
        bytes.extend((0..len).map(|at| byte(number as usize, at)));
        bytes
    }

    /// A datagram has arrived: it was sent, is whole, and came in order. Others may be lost.
    pub(super) fn receive(&self, bytes: &[u8]) -> Result<(), String> {
        let words = |at: usize| bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
        let (Some(number), Some(len)) = (words(0), words(4)) else {
            return Err(format!("a datagram of {} bytes was not sent", bytes.len()));
        };
        let (number, len) = (u32::from_le_bytes(number), u32::from_le_bytes(len) as usize);
        let body = &bytes[8..];
        let is_whole = body.len() == len
            && body.iter().enumerate().all(|(at, it)| *it == byte(number as usize, at));
        let last = self.last_received.replace(number);
        if number > self.sent.get() || !is_whole {
            return Err(format!("datagram {number} arrived damaged: {} bytes", bytes.len()));
        }
        if number <= last {
            return Err(format!("datagram {number} arrived after datagram {last}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane() -> (Lane, Vec<u8>, Vec<u8>) {
        let lane = Lane::default();
        let (first, one) = lane.next_write(100);
        let (_, other) = lane.next_write(50);
        lane.settle(first, 100);
        (lane, one, other)
    }

    #[test]
    fn a_prefix_is_accepted_unless_the_end_was_seen() {
        let (lane, one, other) = lane();
        lane.receive(&one[..60]);
        assert!(lane.check("lane").is_ok());
        lane.receive(&one[60..]);
        lane.receive(&other[..10]);
        lane.ended.set(true);
        assert!(lane.check("lane").is_ok(), "the second write was never settled");
        lane.settle(1, 50);
        assert!(lane.check("lane").is_err(), "40 bytes are lost");
    }

    #[test]
    fn lost_repeated_and_changed_bytes_are_found() {
        for damage in [1, 2, 3] {
            let (lane, mut one, other) = lane();
            match damage {
                1 => drop(one.remove(70)),
                2 => one.insert(70, !one[70]),
                _ => one[70] ^= 1,
            }
            lane.receive(&one);
            lane.receive(&other);
            assert!(lane.check("lane").is_err(), "damage {damage}");
        }
    }
}
