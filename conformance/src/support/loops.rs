//! Making and running loops.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use poll_core::Backend;
use uv_core::{Loop, RunMode, Timer};

use super::observe::SOON;
use crate::{Lab, Skip};

/// No time at all.
pub(crate) const ZERO: Duration = Duration::ZERO;

/// Longer than any case takes.
pub(crate) const AN_HOUR: Duration = Duration::from_secs(3600);

/// A loop over a fresh backend.
pub(crate) fn new_loop<T: Backend>(lab: &Lab<T>) -> Result<Loop<T>, Skip> {
    Ok(Loop::new(lab.backend()?))
}

/// Runs the loop as long as it lives, which must end.
#[track_caller]
pub(crate) fn run_to_the_end<T: Backend>(lp: &mut Loop<T>) {
    assert!(!run(lp, RunMode::Default), "a loop that nobody stopped ends when nothing is left");
}

/// Runs the loop; true if it is alive afterwards.
#[track_caller]
pub(crate) fn run<T: Backend>(lp: &mut Loop<T>, mode: RunMode) -> bool {
    lp.run(mode).unwrap_or_else(|error| panic!("run({mode:?}): {error}"))
}

/// Panics, without a message on the standard error stream.
pub(crate) fn panic_on_purpose() -> ! {
    resume_unwind(Box::new("on purpose"))
}

/// Asserts that the panic of a callback comes out of a run.
#[track_caller]
pub(crate) fn unwinds<T: Backend>(lp: &mut Loop<T>, mode: RunMode) {
    let result = catch_unwind(AssertUnwindSafe(|| lp.run(mode)));
    let payload = result.expect_err("the panic comes out of `run`");
    assert_eq!(payload.downcast_ref(), Some(&"on purpose"), "as it is");
}

/// Keeps the processor busy until the backend's clock has moved by `time`.
pub(crate) fn spend<T: Backend>(lp: &Loop<T>, time: Duration) {
    let (from, started) = (lp.hrtime(), Instant::now());
    while lp.hrtime() - from < time {
        assert!(started.elapsed() < SOON, "the backend's clock does not move");
        std::hint::spin_loop();
    }
}

/// A timer that is started and fires once.
pub(crate) fn timer_in<T: Backend>(
    lp: &mut Loop<T>,
    timeout: Duration,
    callback: impl FnMut(&mut Loop<T>, Timer) + 'static,
) -> Timer {
    Timer::after(lp, timeout, callback)
}

/// A timer that keeps the loop alive and never fires.
pub(crate) fn keep_alive<T: Backend>(lp: &mut Loop<T>) -> Timer {
    timer_in(lp, AN_HOUR, |_, _| panic!("a timer of an hour has fired"))
}
