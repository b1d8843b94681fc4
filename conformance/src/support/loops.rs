//! Creating and running loops.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use uv_core::{RunMode, Timer};

use super::observe::SOON;
use crate::{Lab, Loop, Skip};

/// A zero duration.
pub(crate) const ZERO: Duration = Duration::ZERO;

/// Longer than any case runs.
pub(crate) const AN_HOUR: Duration = Duration::from_secs(3600);

/// Creates a loop over a new backend.
pub(crate) fn new_loop(lab: &Lab) -> Result<Loop, Skip> {
    Ok(Loop::new(lab.backend()?))
}

/// Runs the loop until it is not alive.
#[track_caller]
pub(crate) fn run_to_the_end(lp: &mut Loop) {
    assert!(!run(lp, RunMode::Default), "a loop without a stop runs until it is not alive");
}

/// Runs the loop; true if it is alive afterwards.
#[track_caller]
pub(crate) fn run(lp: &mut Loop, mode: RunMode) -> bool {
    lp.run(mode).unwrap_or_else(|error| panic!("run({mode:?}): {error}"))
}

/// Panics without a message on the standard error stream.
pub(crate) fn panic_on_purpose() -> ! {
    resume_unwind(Box::new("on purpose"))
}

/// Asserts that the panic of a callback propagates out of `run`.
#[track_caller]
pub(crate) fn unwinds(lp: &mut Loop, mode: RunMode) {
    let result = catch_unwind(AssertUnwindSafe(|| lp.run(mode)));
    let payload = result.expect_err("the panic propagates out of `run`");
    assert_eq!(payload.downcast_ref(), Some(&"on purpose"), "the payload is unchanged");
}

/// Busy-waits until the backend's clock has advanced by `time`.
pub(crate) fn spend(lp: &Loop, time: Duration) {
    let (from, started) = (lp.hrtime(), Instant::now());
    while lp.hrtime() - from < time {
        assert!(started.elapsed() < SOON, "the backend's clock does not advance");
        std::hint::spin_loop();
    }
}

/// A started one-shot timer.
pub(crate) fn timer_in(
    lp: &mut Loop,
    timeout: Duration,
    callback: impl FnMut(&mut Loop, Timer) + 'static,
) -> Timer {
    Timer::after(lp, timeout, callback)
}

/// A timer that calls `stalled` when the loop has processed no event for a time: a busy machine may
/// take as long as it needs for many events.
pub(crate) fn watchdog(lp: &mut Loop, mut stalled: impl FnMut() + 'static) -> Timer {
    let (watchdog, mut seen) = (Timer::new(lp), lp.metrics().events());
    let started = watchdog.start(lp, SOON, SOON, move |lp, _| {
        let before = std::mem::replace(&mut seen, lp.metrics().events());
        if seen == before {
            stalled();
        }
    });
    started.expect("a timer");
    watchdog
}

/// A timer that keeps the loop alive and never fires.
pub(crate) fn keep_alive(lp: &mut Loop) -> Timer {
    timer_in(lp, AN_HOUR, |_, _| panic!("a timer of an hour has fired"))
}
