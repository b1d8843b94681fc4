//! What can be watched for, and when it is reported.

use bitflags::bitflags;

bitflags! {
    /// A set of conditions: what to watch for, or what was seen.
    ///
    /// ```
    /// use poll_core::Ready;
    ///
    /// let seen = Ready::READ | Ready::HANGUP;
    /// assert!(seen.intersects(Ready::READ | Ready::WRITE));
    /// assert!(Ready::NONE.is_empty());
    /// ```
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Ready: u8 {
        /// A read would not block: there is data, the end of file, or an error to collect.
        const READ = 1;
        /// A write would not block.
        const WRITE = 1 << 1;
        /// Out-of-band data. A backend that cannot see it says `Unsupported`.
        const PRIORITY = 1 << 2;
        /// The peer has shut down its writing side, even if data it sent before is
        /// still unread. A backend that cannot see it says `Unsupported`.
        const DISCONNECT = 1 << 3;
        /// Both directions are closed. Never asked for; reported where the kernel tells.
        const HANGUP = 1 << 4;
        /// An error is pending. Never asked for; reported where the kernel tells.
        const ERROR = 1 << 5;
    }
}

impl Ready {
    /// Nothing. As an interest, it silences a source completely.
    pub const NONE: Ready = Ready::empty();

    /// The conditions that an interest can name. The others are reported unasked.
    pub const INTEREST: Ready =
        Ready::READ.union(Ready::WRITE).union(Ready::PRIORITY).union(Ready::DISCONNECT);

    /// What a source with this interest reports when the kernel has seen `seen`.
    ///
    /// Conditions that nobody asked for are dropped, except [`HANGUP`](Ready::HANGUP)
    /// and [`ERROR`](Ready::ERROR), which also imply whichever of
    /// [`READ`](Ready::READ) and [`WRITE`](Ready::WRITE) was asked for: neither
    /// would block now. Every backend ends its flag map with this call, and so
    /// all of them report failures alike.
    ///
    /// ```
    /// use poll_core::Ready;
    ///
    /// let seen = Ready::HANGUP | Ready::PRIORITY;
    /// assert_eq!(Ready::READ.report(seen), Ready::READ | Ready::HANGUP);
    /// assert_eq!(Ready::NONE.report(seen), Ready::NONE);
    /// ```
    #[inline]
    pub const fn report(self, seen: Ready) -> Ready {
        let asked = self.intersection(Ready::INTEREST);
        if asked.is_empty() {
            return Ready::NONE;
        }
        let failure = seen.intersection(Ready::HANGUP.union(Ready::ERROR));
        let answer = seen.intersection(asked).union(failure);
        if failure.is_empty() {
            answer
        } else {
            answer.union(asked.intersection(Ready::READ.union(Ready::WRITE)))
        }
    }
}

/// When a watched condition is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// At every wait while it holds. Every backend supports it.
    #[default]
    Level,
    /// Once; then the whole registration sleeps until `modify`. Every backend supports it.
    Oneshot,
    /// When it starts to hold, and again when more of it arrives. Backends
    /// without it say `Unsupported` at `register` and `modify`.
    Edge,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_reported() {
        let seen = Ready::READ | Ready::WRITE | Ready::DISCONNECT;
        assert_eq!(Ready::WRITE.report(seen), Ready::WRITE);
        assert_eq!(Ready::PRIORITY.report(seen), Ready::NONE);
    }

    #[test]
    fn failures_are_reported_unasked_and_imply_what_was_asked_for() {
        let both = Ready::READ | Ready::WRITE;
        assert_eq!(both.report(Ready::ERROR), both | Ready::ERROR);
        assert_eq!(Ready::PRIORITY.report(Ready::HANGUP), Ready::HANGUP);
    }

    #[test]
    fn an_interest_in_failures_alone_is_no_interest() {
        assert_eq!((Ready::HANGUP | Ready::ERROR).report(Ready::HANGUP), Ready::NONE);
    }
}
