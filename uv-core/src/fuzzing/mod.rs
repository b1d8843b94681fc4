//! The checks of the targets in `fuzz/`. Compiled with `--cfg fuzzing` only: parsers and data
//! structures of this crate are private, and each function here checks one of them.

mod parsers;
mod structures;

pub use parsers::{addresses, control_messages, idna, inotify, pipe_frames, recvmsg_layout};
pub use structures::{arena, timer_wheel};

/// Takes numbers off the input. At its end all of them are zero.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes([0; 8].map(|_: u8| self.byte()))
    }

    /// A number of up to 64 bits, small ones more often.
    fn number(&mut self) -> u64 {
        let bits = self.byte() % 65;
        self.word() & 1_u64.checked_shl(bits.into()).map_or(u64::MAX, |bit| bit - 1)
    }
}
