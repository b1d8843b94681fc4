//! The monotonic clock of [`Instant`](std::time::Instant), counted from the kernel's origin.

use std::time::Duration;

/// Reads the clock of `Instant`. Apple's `CLOCK_MONOTONIC` has a resolution of 1 µs only and
/// counts while the machine sleeps, so `Instant` uses another one there.
#[cfg(unix)]
#[inline]
pub(crate) fn monotonic() -> Duration {
    #[cfg(target_vendor = "apple")]
    const CLOCK: libc::clockid_t = libc::CLOCK_UPTIME_RAW;
    #[cfg(not(target_vendor = "apple"))]
    const CLOCK: libc::clockid_t = libc::CLOCK_MONOTONIC;

    // SAFETY: `timespec` consists of integers, for which zero is a valid value.
    let mut now = unsafe { std::mem::zeroed::<libc::timespec>() };
    // SAFETY: `now` is a local variable that the system writes during the call only.
    let result = unsafe { libc::clock_gettime(CLOCK, &mut now) };
    debug_assert_eq!(result, 0, "every supported Unix has this clock");
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Reads the clock of `Instant`.
#[cfg(windows)]
pub(crate) fn monotonic() -> Duration {
    use std::sync::OnceLock;

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn QueryPerformanceCounter(count: *mut i64) -> i32;
        fn QueryPerformanceFrequency(frequency: *mut i64) -> i32;
    }
    static FREQUENCY: OnceLock<u64> = OnceLock::new();

    let frequency = *FREQUENCY.get_or_init(|| {
        let mut frequency = 0;
        // SAFETY: `frequency` is a local variable that the system writes during the call only.
        unsafe { QueryPerformanceFrequency(&mut frequency) };
        frequency as u64
    });
    let mut count = 0;
    // SAFETY: `count` is a local variable that the system writes during the call only.
    unsafe { QueryPerformanceCounter(&mut count) };
    let (seconds, rest) = (count as u64 / frequency, count as u64 % frequency);
    // The frequency is far below 2⁶⁴ / 10⁹ Hz, so the product does not overflow.
    Duration::new(seconds, (rest * 1_000_000_000 / frequency) as u32)
}

/// Counts from the first call: no other clock is available here.
#[cfg(not(any(unix, windows)))]
pub(crate) fn monotonic() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;

    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn advances_like_instant() {
        let (outer, first) = (Instant::now(), monotonic());
        let inner = Instant::now();
        std::thread::sleep(Duration::from_millis(2));
        let (inner, second) = (inner.elapsed(), monotonic());
        let (outer, elapsed) = (outer.elapsed(), second - first);
        let rounding = Duration::from_micros(1);
        assert!(inner <= elapsed + rounding && elapsed <= outer + rounding, "{elapsed:?}");
    }
}
