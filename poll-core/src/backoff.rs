//! Exponential back-off of an attempt that may be wasted.

/// Decides whether an optional attempt, such as a poll before a blocking wait, is worth its cost.
///
/// The number of occasions between two attempts doubles with each attempt that fails, up to 255,
/// and halves with each that succeeds. A failing attempt becomes rare, and one that succeeds is
/// soon made at every occasion.
///
/// ```
/// use poll_core::Backoff;
///
/// let mut backoff = Backoff::new(1);
/// assert!(!backoff.should_try(), "the first occasion is skipped");
/// assert!(backoff.should_try());
/// backoff.record(false);
/// assert!(!backoff.should_try() && !backoff.should_try() && !backoff.should_try());
/// assert!(backoff.should_try());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The number of occasions that remain before the next attempt.
    remaining: u8,
    /// The number of occasions between the last two attempts.
    interval: u8,
}

impl Backoff {
    /// A back-off that skips this many occasions before the first attempt.
    pub const fn new(initial: u8) -> Backoff {
        Backoff { remaining: initial, interval: initial }
    }

    /// Counts one occasion. Returns true if the attempt is to be made, and
    /// [recorded](Backoff::record).
    #[inline]
    pub fn should_try(&mut self) -> bool {
        match self.remaining.checked_sub(1) {
            Some(remaining) => {
                self.remaining = remaining;
                false
            }
            None => true,
        }
    }

    /// Records whether the attempt has succeeded.
    #[inline]
    pub fn record(&mut self, success: bool) {
        self.interval =
            if success { self.interval / 2 } else { self.interval.saturating_mul(2) | 1 };
        self.remaining = self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of attempts at so many occasions, if `succeeds` decides their outcome.
    fn attempts(
        backoff: &mut Backoff,
        occasions: u32,
        mut succeeds: impl FnMut(u32) -> bool,
    ) -> u32 {
        (0..occasions).fold(0, |attempts, occasion| {
            let tries = backoff.should_try();
            if tries {
                backoff.record(succeeds(occasion));
            }
            attempts + u32::from(tries)
        })
    }

    #[test]
    fn failures_make_attempts_exponentially_rarer() {
        let mut backoff = Backoff::new(15);
        assert_eq!(attempts(&mut backoff, 15, |_| false), 0);
        assert!(attempts(&mut backoff, 512, |_| false) <= 6, "the interval grows");
        assert!(attempts(&mut backoff, 25_600, |_| false) <= 101);
    }

    #[test]
    fn successes_lead_to_an_attempt_at_every_occasion() {
        let mut backoff = Backoff::new(15);
        attempts(&mut backoff, 600, |_| true);
        assert_eq!(attempts(&mut backoff, 1_000, |_| true), 1_000);
        assert_eq!(attempts(&mut backoff, 2, |_| false), 1, "a failure skips the next occasion");
        assert!(attempts(&mut backoff, 25_600, |_| false) < 120, "the interval doubles");
    }

    #[test]
    fn a_success_rate_of_one_half_does_not_sustain_attempts() {
        let mut backoff = Backoff::new(15);
        let mut state = 1_u32;
        let coin = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 31 == 0
        };
        assert!(attempts(&mut backoff, 100_000, coin) < 10_000);
    }
}
