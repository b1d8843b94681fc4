//! Receive policy: small reads by operations, large reads by readiness.
//!
//! A multishot receive saves a system call for each message. But it receives for all streams
//! before any callback runs, into memory that has left the nearest cache by then. Large reads are
//! better received into the same memory each time, right before their callback: the call is then a
//! small part of the work.

use crate::sys;

/// Consecutive small reads until operations receive again (hysteresis). One large read changes to
/// readiness: large reads exhaust the buffers that all streams share.
const STEADY: u8 = 4;

/// The size of the last few reads.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::streams) struct RecvPolicy {
    large: bool,
    /// Consecutive reads that favour the other mode.
    otherwise: u8,
}

impl RecvPolicy {
    /// True if reads are large.
    pub(in crate::streams) fn prefers_readiness(self) -> bool {
        self.large
    }

    /// Records the size of a read. True if that changes the policy.
    #[inline]
    pub(in crate::streams) fn record(&mut self, count: usize) -> bool {
        if (count >= sys::LARGE_READ) == self.large {
            self.otherwise = 0;
            return false;
        }
        self.otherwise += 1;
        let changes = !self.large || self.otherwise == STEADY;
        if changes {
            *self = RecvPolicy { large: !self.large, otherwise: 0 };
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_large_read_or_several_small_ones_change_the_policy() {
        let mut recv_policy = RecvPolicy::default();
        let large = sys::LARGE_READ;
        assert!(!recv_policy.record(1) && !recv_policy.prefers_readiness());
        assert!(recv_policy.record(large) && recv_policy.prefers_readiness());
        for count in [1, 1, 1, large] {
            assert!(!recv_policy.record(count) && recv_policy.prefers_readiness());
        }
        assert_eq!(
            [1, 1, 1, 1].map(|count| recv_policy.record(count)),
            [false, false, false, true]
        );
        assert!(!recv_policy.prefers_readiness());
    }
}
