//! CPU time of a piece of code on a busy machine.

use std::time::Duration;

/// The CPU time of this thread; on Windows, which counts it in whole clock ticks, the elapsed time
/// instead. Only differences are meaningful.
#[cfg(unix)]
pub(crate) fn thread_time() -> Duration {
    // SAFETY: `timespec` is plain data, for which all zeros are valid.
    let mut time = unsafe { std::mem::zeroed::<libc::timespec>() };
    // SAFETY: `time` outlives the call, which writes it.
    let failed = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    assert_eq!(failed, 0, "every supported Unix has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(windows)]
pub(crate) fn thread_time() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;

    static FIRST: OnceLock<Instant> = OnceLock::new();
    FIRST.get_or_init(Instant::now).elapsed()
}
