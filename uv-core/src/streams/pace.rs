//! Whether little or much comes at once, which decides how it is best received.
//!
//! An operation that receives whatever comes saves a system call for each message. But it
//! receives for all streams before any callback runs, into memory that has left the nearest cache
//! by then, and that is sent from again. Much at once is better received into the same memory
//! each time, when its callback is about to run: then the call is a small part of the work.

use crate::sys;

/// How often in a row little has to come for the way to change back. Much changes it at once: what
/// comes with it takes the memory that all share.
const STEADY: u8 = 4;

/// How much comes at once, by the last few times.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    much: bool,
    /// How often in a row it was otherwise.
    otherwise: u8,
}

impl Pace {
    /// True if much comes at once.
    pub(super) fn is_much(self) -> bool {
        self.much
    }

    /// So much has come at once. True if that changes what is best.
    #[inline]
    pub(super) fn came(&mut self, count: usize) -> bool {
        if (count >= sys::MUCH_AT_ONCE) == self.much {
            self.otherwise = 0;
            return false;
        }
        self.otherwise += 1;
        let changes = !self.much || self.otherwise == STEADY;
        if changes {
            *self = Pace { much: !self.much, otherwise: 0 };
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_changes_it_at_once_and_little_when_it_lasts() {
        let mut pace = Pace::default();
        let much = sys::MUCH_AT_ONCE;
        assert!(!pace.came(1) && !pace.is_much());
        assert!(pace.came(much) && pace.is_much());
        for count in [1, 1, 1, much] {
            assert!(!pace.came(count) && pace.is_much());
        }
        assert_eq!([1, 1, 1, 1].map(|count| pace.came(count)), [false, false, false, true]);
        assert!(!pace.is_much());
    }
}
