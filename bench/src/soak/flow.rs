//! The bytes of a direction: made from a seed on one side, compared on the other.

use std::cell::Cell;

/// The bytes of a seed, from a position on.
pub(super) fn bytes(seed: u64, from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|at| byte(seed, at)).collect()
}

/// The byte at a position: every eight bytes differ from all others.
fn byte(seed: u64, at: usize) -> u8 {
    let mut word = (seed ^ (at / 8) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^= word >> 29;
    word = word.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (word >> (at % 8 * 8)) as u8
}

/// Bytes that arrive in pieces.
#[derive(Debug)]
pub(super) struct Expected {
    seed: u64,
    len: usize,
    at: Cell<usize>,
}

impl Expected {
    pub(super) fn new(seed: u64, len: usize) -> Expected {
        Expected { seed, len, at: Cell::new(0) }
    }

    /// A piece has arrived.
    ///
    /// # Errors
    ///
    /// The position of the first byte that is wrong or too much.
    pub(super) fn take(&self, piece: &[u8]) -> Result<(), String> {
        let from = self.at.get();
        let equal =
            piece.iter().zip(from..self.len).take_while(|(it, at)| **it == byte(self.seed, *at));
        let equal = equal.count();
        self.at.set(from + equal);
        match equal == piece.len() {
            true => Ok(()),
            false => Err(format!("byte {} of {} is wrong", from + equal, self.len)),
        }
    }

    /// How many bytes have not arrived.
    pub(super) fn missing(&self) -> usize {
        self.len - self.at.get()
    }

    /// The end has arrived.
    ///
    /// # Errors
    ///
    /// The number of bytes that are missing.
    pub(super) fn end(&self) -> Result<usize, String> {
        match self.missing() {
            0 => Ok(self.len),
            missing => Err(format!("{missing} of {} bytes are missing", self.len)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_changed_and_added_bytes_are_found() {
        let sent = bytes(7, 0, 100);
        let expected = Expected::new(7, 100);
        assert!(expected.take(&sent[..60]).is_ok() && expected.end().is_err());
        assert!(expected.take(&sent[60..]).is_ok() && expected.end() == Ok(100));
        assert!(expected.take(&[0]).is_err(), "too much");
        for damage in [0, 50, 99] {
            let mut wrong = sent.clone();
            wrong[damage] ^= 1;
            let why = Expected::new(7, 100).take(&wrong).unwrap_err();
            assert!(why.contains(&format!("byte {damage} ")), "{why}");
            wrong.remove(damage);
            let expected = Expected::new(7, 100);
            assert!(expected.take(&wrong).is_err() || expected.end().is_err());
        }
        assert_ne!(bytes(7, 0, 8), bytes(8, 0, 8));
    }
}
