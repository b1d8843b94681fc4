//! The time of the loop.

use std::time::Duration;

use poll_core::Backend;

use super::Loop;
use crate::handles;

impl<B: Backend> Loop<B> {
    /// The loop's time: since some fixed moment, and the same from the timers to the poll
    /// and from the poll to the timers.
    ///
    /// Timers count from it. It is read when it is first asked for after the poll, so that
    /// loops without timers do not pay for a clock.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_core::Loop;
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (before, a_moment) = (lp.now(), Duration::from_millis(2));
    /// std::thread::sleep(a_moment);
    /// assert_eq!(lp.now(), before);
    /// lp.update_time();
    /// assert!(lp.now() >= before + a_moment);
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_now")]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns_cached())
    }

    /// Updates the loop's time from the clock, for example after a callback that took long. The
    /// example of [`now`](Loop::now) calls it.
    #[doc(alias = "uv_update_time")]
    pub fn update_time(&mut self) {
        self.now_is_stale.set(true);
    }

    /// The backend's clock, read now. Has nothing to do with the time of day.
    ///
    /// ```
    /// use uv_core::{Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.defer(|lp| {
    ///     let begun = lp.hrtime();
    ///     let sum: u64 = (0..1000).sum();
    ///     println!("{sum} took {:?}", lp.hrtime() - begun);
    /// });
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_hrtime")]
    pub fn hrtime(&self) -> Duration {
        self.backend.now()
    }

    pub(crate) fn now_ns(&mut self) -> u64 {
        self.now_ns_cached()
    }

    pub(crate) fn now_ns_cached(&self) -> u64 {
        if self.now_is_stale.get() {
            self.read_clock();
        }
        self.now_ns.get()
    }

    #[cold]
    fn read_clock(&self) {
        self.now_is_stale.set(false);
        self.now_ns.set(handles::nanoseconds(self.backend.now()));
    }
}
