//! Interest, readiness and mode: the conditions to watch, those that hold, and when to report them.

use bitflags::bitflags;

bitflags! {
    /// A set of conditions to watch a source for.
    ///
    /// Each has the bit of the [`Readiness`] that reports it, so a conversion between the two
    /// costs nothing. Hang-ups and errors are no interest: they are reported for every source
    /// with a non-empty interest.
    ///
    /// ```
    /// use poll_core::{Interest, Readiness};
    ///
    /// let interest = Interest::READ | Interest::WRITE;
    /// assert!(Readiness::from(interest).contains(Readiness::WRITE));
    /// assert!(Interest::NONE.is_empty());
    /// ```
    ///
    /// ```compile_fail,E0599
    /// let interest = poll_core::Interest::HANGUP; // Reported without being requested.
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Interest: u8 {
        /// A read would not block: there is data, the end of file, or an error to collect.
        const READ = 1;
        /// A write would not block.
        const WRITE = 1 << 1;
        /// Out-of-band data. A backend that cannot see it returns `Unsupported`.
        const PRIORITY = 1 << 2;
        /// The peer has shut down its writing side, even if data it sent before is
        /// still unread. A backend that cannot see it returns `Unsupported`.
        const DISCONNECT = 1 << 3;
    }
}

bitflags! {
    /// A set of conditions that hold at a source.
    ///
    /// ```
    /// use poll_core::Readiness;
    ///
    /// let seen = Readiness::READ | Readiness::HANGUP;
    /// assert!(seen.intersects(Readiness::READ | Readiness::WRITE));
    /// assert!(Readiness::NONE.is_empty());
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Readiness: u8 {
        /// A read would not block: there is data, the end of file, or an error to collect.
        const READ = Interest::READ.bits();
        /// A write would not block.
        const WRITE = Interest::WRITE.bits();
        /// Out-of-band data.
        const PRIORITY = Interest::PRIORITY.bits();
        /// The peer has shut down its writing side, even if data it sent before is
        /// still unread.
        const DISCONNECT = Interest::DISCONNECT.bits();
        /// Both directions are closed. Reported where the kernel distinguishes it.
        const HANGUP = 1 << 4;
        /// An error is pending. Reported where the kernel distinguishes it.
        const ERROR = 1 << 5;
    }
}

impl Interest {
    /// The empty set: the source reports nothing, not even errors.
    pub const NONE: Interest = Interest::empty();

    /// The readiness that fulfils this interest.
    #[inline]
    #[must_use]
    pub const fn to_readiness(self) -> Readiness {
        Readiness::from_bits_truncate(self.intersection(Interest::all()).bits())
    }

    /// The readiness to report for a source with this interest when the kernel reports `seen`.
    ///
    /// Conditions outside the interest are dropped, except [`HANGUP`](Readiness::HANGUP)
    /// and [`ERROR`](Readiness::ERROR), which also imply whichever of
    /// [`READ`](Interest::READ) and [`WRITE`](Interest::WRITE) is in the interest: neither
    /// would block now. Every backend ends its flag map with this call, so that
    /// all of them report failures in the same way.
    ///
    /// ```
    /// use poll_core::{Interest, Readiness};
    ///
    /// let seen = Readiness::HANGUP | Readiness::PRIORITY;
    /// assert_eq!(Interest::READ.report(seen), Readiness::READ | Readiness::HANGUP);
    /// assert_eq!(Interest::NONE.report(seen), Readiness::NONE);
    /// ```
    #[inline]
    #[must_use]
    pub const fn report(self, seen: Readiness) -> Readiness {
        let asked = self.to_readiness();
        if asked.is_empty() {
            return Readiness::NONE;
        }
        let failure = seen.intersection(Readiness::HANGUP.union(Readiness::ERROR));
        let answer = seen.intersection(asked).union(failure);
        if failure.is_empty() {
            answer
        } else {
            answer.union(asked.intersection(Readiness::READ.union(Readiness::WRITE)))
        }
    }
}

impl Readiness {
    /// The empty set: no condition holds.
    pub const NONE: Readiness = Readiness::empty();

    /// The part that can be an interest: without [`HANGUP`](Readiness::HANGUP) and
    /// [`ERROR`](Readiness::ERROR).
    ///
    /// ```
    /// use poll_core::{Interest, Readiness};
    ///
    /// assert_eq!((Readiness::READ | Readiness::ERROR).to_interest(), Interest::READ);
    /// ```
    #[inline]
    #[must_use]
    pub const fn to_interest(self) -> Interest {
        Interest::from_bits_truncate(self.bits())
    }
}

impl From<Interest> for Readiness {
    #[inline]
    fn from(interest: Interest) -> Readiness {
        interest.to_readiness()
    }
}

/// When a watched condition is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
// Exhaustive: a backend has to implement each mode.
pub enum Mode {
    /// At every wait while it holds. Every backend supports it.
    #[default]
    Level,
    /// Once; then the whole registration is disarmed until `modify`. Every backend supports it.
    Oneshot,
    /// When it starts to hold, and again when more data or space arrives. Backends
    /// without it return `Unsupported` from `register` and `modify`.
    Edge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_conditions_of_the_interest_are_reported() {
        let seen = Readiness::READ | Readiness::WRITE | Readiness::DISCONNECT;
        assert_eq!(Interest::WRITE.report(seen), Readiness::WRITE);
        assert_eq!(Interest::PRIORITY.report(seen), Readiness::NONE);
    }

    #[test]
    fn failures_are_always_reported_and_imply_the_interest() {
        let both = Interest::READ | Interest::WRITE;
        let reported = both.to_readiness() | Readiness::ERROR;
        assert_eq!(both.report(Readiness::ERROR), reported);
        assert_eq!(Interest::PRIORITY.report(Readiness::HANGUP), Readiness::HANGUP);
    }

    #[test]
    fn undefined_bits_are_dropped_from_an_interest() {
        let unknown = Interest::from_bits_retain(!Interest::all().bits());
        assert_eq!(unknown.report(Readiness::all()), Readiness::NONE);
        assert_eq!(unknown.to_readiness(), Readiness::NONE);
    }

    #[test]
    fn every_interest_has_the_bit_of_its_readiness() {
        for interest in Interest::all().iter() {
            assert_eq!(interest.bits(), interest.to_readiness().bits());
            assert_eq!(interest.to_readiness().to_interest(), interest);
        }
    }
}
