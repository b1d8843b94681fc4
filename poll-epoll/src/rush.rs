//! Whether it is worthwhile to look before waiting.
//!
//! A wait with a time to count costs the kernel two readings of the clock, though something may
//! be there at once: almost half as much again as a look that does not wait. But a look that
//! finds nothing is a system call for nothing. So a backend that is busy looks first, and one
//! that mostly sleeps tries that seldom.

/// How many waits there are before the first look, when nothing is known yet.
const AT_FIRST: u8 = 15;

/// What the last looks were like.
#[derive(Debug)]
pub(crate) struct Rush {
    /// So many waits come before the next look.
    left: u8,
    /// As many came before the last one. There are never more than this type can say.
    pause: u8,
}

impl Rush {
    pub(crate) fn new() -> Rush {
        Rush { left: AT_FIRST, pause: AT_FIRST }
    }

    /// The next wait looks first.
    #[cfg(test)]
    pub(crate) fn under_way() -> Rush {
        Rush { left: 0, pause: 0 }
    }

    /// How many waits come before the next look.
    #[cfg(test)]
    pub(crate) fn left(&self) -> u8 {
        self.left
    }

    /// True if the wait that is about to begin is to look first.
    #[inline]
    pub(crate) fn is_to_look(&mut self) -> bool {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                false
            }
            None => true,
        }
    }

    /// The look has found something, or not.
    #[inline]
    pub(crate) fn looked(&mut self, found: bool) {
        self.pause = if found { self.pause / 2 } else { self.pause.saturating_mul(2) | 1 };
        self.left = self.pause;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many waits look first, if a look finds what `found` says.
    fn looks(rush: &mut Rush, waits: u32, mut found: impl FnMut(u32) -> bool) -> u32 {
        (0..waits).fold(0, |looks, wait| {
            let looks_now = rush.is_to_look();
            if looks_now {
                rush.looked(found(wait));
            }
            looks + u32::from(looks_now)
        })
    }

    #[test]
    fn who_mostly_sleeps_looks_seldom() {
        let mut rush = Rush::new();
        assert_eq!(looks(&mut rush, 15, |_| false), 0);
        assert!(looks(&mut rush, 512, |_| false) <= 6, "at first it learns");
        assert!(looks(&mut rush, 25_600, |_| false) <= 101);
    }

    #[test]
    fn who_is_busy_looks_every_time() {
        let mut rush = Rush::new();
        looks(&mut rush, 600, |_| true);
        assert_eq!(looks(&mut rush, 1_000, |_| true), 1_000);
        assert_eq!(looks(&mut rush, 2, |_| false), 1, "one miss is a wait without a look");
        assert!(looks(&mut rush, 25_600, |_| false) < 120, "and so on, twice as long each time");
    }

    #[test]
    fn half_a_chance_is_not_enough() {
        let mut rush = Rush::new();
        let mut state = 1_u32;
        let chance = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 31 == 0
        };
        assert!(looks(&mut rush, 100_000, chance) < 10_000);
    }
}
