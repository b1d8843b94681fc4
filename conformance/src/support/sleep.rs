//! Whether waits sleep: a wait that polls again and again until its timeout is over returns as it
//! should, and takes a whole processor.

use std::time::Duration;

use poll_core::BoxedBackend;

use super::effort::thread_time;
use super::observe::lasts;
use super::syscalls;
use crate::{Skip, Verdict};

/// The most calls that a wait may make which nothing ends but its timeout: one that does not block,
/// one that does, and two for a clock that is coarser than the timeout.
const CALLS: u32 = 4;

/// The share of its duration that a wait may spend on the processor. A wait that sleeps takes some
/// microseconds; one that spins takes all that the machine has for it.
const SHARE: u32 = 10;

/// How often the processor time is measured. The least counts: a machine may charge the time of an
/// interrupt, or of another machine beside it, to the thread that runs.
const ATTEMPTS: u32 = 3;

/// Asserts that a wait without an event lasts for its `timeout` and sleeps meanwhile.
pub(crate) fn sleeps(backend: &mut BoxedBackend, timeout: Duration, why: &str) -> Verdict {
    // Exact at any load. Where calls cannot be counted, the processor time still applies.
    if let Ok((_, calls)) = syscalls::count(|| lasts(backend, timeout, why)) {
        let total = calls.total();
        assert!(total <= CALLS, "a wait of {timeout:?} should sleep, as {why}: {calls:?}");
    }
    sleeps_on_average(backend, timeout, 1, why)
}

/// The same for the processor time of several waits together.
pub(crate) fn sleeps_on_average(
    backend: &mut BoxedBackend,
    timeout: Duration,
    waits: u32,
    why: &str,
) -> Verdict {
    if cfg!(windows) {
        let why = "Windows counts the processor time of a thread in clock ticks of 16 ms";
        return Err(Skip::because(why));
    }
    let most = timeout * waits / SHARE;
    let mut used = Duration::MAX;
    for _ in 0..ATTEMPTS {
        let before = thread_time();
        for _ in 0..waits {
            lasts(backend, timeout, why);
        }
        used = used.min(thread_time() - before);
        if used <= most {
            return Ok(());
        }
    }
    panic!("{waits} waits of {timeout:?} used {used:?} of the processor, but {why}");
}

/// Asserts that none of several waits makes more calls than one that sleeps. A single wait that
/// spins is enough to fail: on a busy machine it may overshoot its timeout before it begins to.
pub(crate) fn none_spins(backend: &mut BoxedBackend, timeout: Duration, waits: u32, why: &str) {
    for _ in 0..waits {
        let Ok((_, calls)) = syscalls::count(|| lasts(backend, timeout, why)) else { return };
        let total = calls.total();
        assert!(total <= CALLS, "a wait of {timeout:?} should sleep, as {why}: {calls:?}");
    }
}
