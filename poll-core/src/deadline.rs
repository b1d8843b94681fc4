//! The time left of a wait.

use std::io;
use std::time::{Duration, Instant};

/// The point in time at which a wait ends.
///
/// A wait that the kernel ends early, by an internal event or a late wake, continues for the
/// time left (point 5 of the contract). The clock is read only where it matters: not for a
/// timeout of zero, and not without a timeout.
///
/// ```
/// use std::time::Duration;
/// use poll_core::Deadline;
///
/// let deadline = Deadline::start(Some(Duration::from_secs(60)));
/// assert!(deadline.left().unwrap() > Duration::from_secs(1));
/// assert_eq!(Deadline::start(None).left(), None, "for ever");
/// assert_eq!(Deadline::start(Some(Duration::ZERO)).left(), Some(Duration::ZERO));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    timeout: Option<Duration>,
    started: Option<Instant>,
}

impl Deadline {
    /// Starts counting from now.
    #[inline]
    #[must_use = "it measures the time left"]
    pub fn start(timeout: Option<Duration>) -> Deadline {
        let measured = timeout.is_some_and(|timeout| !timeout.is_zero());
        Deadline { timeout, started: measured.then(Instant::now) }
    }

    /// Repeats `poll` with the time left until it returns true or the timeout has passed.
    ///
    /// This is the loop of a wait: `poll` makes the system call and returns whether the wait is
    /// to return. It is called at least once, also with a timeout of zero.
    ///
    /// ```
    /// use std::time::Duration;
    /// use poll_core::Deadline;
    ///
    /// let mut calls = 0;
    /// Deadline::repeat(Some(Duration::from_secs(60)), |left| {
    ///     calls += 1;
    ///     assert!(left.is_some());
    ///     Ok(calls == 3)
    /// })?;
    /// assert_eq!(calls, 3);
    /// Deadline::repeat(Some(Duration::ZERO), |_| Ok(false))?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of `poll`.
    #[inline]
    pub fn repeat(
        timeout: Option<Duration>,
        mut poll: impl FnMut(Option<Duration>) -> io::Result<bool>,
    ) -> io::Result<()> {
        let deadline = Deadline::start(timeout);
        let mut left = timeout;
        while !poll(left)? {
            left = deadline.left();
            if left == Some(Duration::ZERO) {
                break;
            }
        }
        Ok(())
    }

    /// The time left: `None` without a timeout, zero when it has passed.
    pub fn left(&self) -> Option<Duration> {
        let passed = self.started.map_or(Duration::ZERO, |started| started.elapsed());
        self.timeout.map(|timeout| timeout.saturating_sub(passed))
    }
}
