//! How much of a wait is left.

use std::time::{Duration, Instant};

/// The timeout of a wait, running down.
///
/// A wait that the kernel ends too early, by an event that is not for the caller or a bell
/// that rang late, goes on for the time left (point 5 of the contract). The clock is read
/// only where that can matter: not for a timeout of zero, not for none.
///
/// ```
/// use std::time::Duration;
/// use poll_core::Countdown;
///
/// let countdown = Countdown::start(Some(Duration::from_secs(60)));
/// assert!(countdown.left().unwrap() > Duration::from_secs(1));
/// assert_eq!(Countdown::start(None).left(), None, "for ever");
/// assert_eq!(Countdown::start(Some(Duration::ZERO)).left(), Some(Duration::ZERO));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Countdown {
    timeout: Option<Duration>,
    started: Option<Instant>,
}

impl Countdown {
    /// Starts to count.
    #[inline]
    pub fn start(timeout: Option<Duration>) -> Countdown {
        let counts = timeout.is_some_and(|timeout| !timeout.is_zero());
        Countdown { timeout, started: counts.then(Instant::now) }
    }

    /// What is left now: `None` is for ever, zero is over.
    pub fn left(&self) -> Option<Duration> {
        let passed = self.started.map_or(Duration::ZERO, |started| started.elapsed());
        self.timeout.map(|timeout| timeout.saturating_sub(passed))
    }
}
