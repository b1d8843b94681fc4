//! What something costs, on a machine that is busy with other things as well.

use std::time::Duration;

/// How much time this thread has taken of a processor; on Windows, which counts that in whole
/// clock ticks, the time that has passed instead. Only differences mean something.
#[cfg(unix)]
pub(crate) fn thread_time() -> Duration {
    // SAFETY: all zeros are a time.
    let mut time = unsafe { std::mem::zeroed::<libc::timespec>() };
    // SAFETY: the system writes to `time` during the call only.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "every Unix here has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(windows)]
pub(crate) fn thread_time() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;

    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}
