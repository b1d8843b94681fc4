//! Timers of libuv.

use std::io;

use super::{FIRED, count_fired, forget_memory};
use crate::clock::Stopwatch;
use crate::libuv::{Loop, Memory, sys};
use crate::suite::{Reading, Sample};

type Timers = Memory<sys::uv_timer_t>;

pub(super) fn run(timeouts_ms: &[u64]) -> io::Result<Sample> {
    forget_memory();
    // As in libuv's own benchmark: the memory of the timers is untouched.
    let timers = Timers::untouched(timeouts_ms.len());
    let lp = Loop::new()?;

    let watch = Stopwatch::start();
    for (timer, timeout) in timers.iter().zip(timeouts_ms) {
        // SAFETY: the memory outlives the loop.
        unsafe { sys::uv_timer_init(lp.raw(), timer) };
        start(timer, *timeout);
    }
    let add = Reading { spent: watch.spent(), count: active(&timers) };

    let watch = Stopwatch::start();
    for timer in timers.iter() {
        // SAFETY: the timer is initialised.
        unsafe { sys::uv_timer_stop(timer) };
    }
    let stop = Reading { spent: watch.spent(), count: add.count - active(&timers) };

    let watch = Stopwatch::start();
    for (timer, timeout) in timers.iter().zip(timeouts_ms) {
        start(timer, *timeout);
    }
    let started = Reading { spent: watch.spent(), count: active(&timers) };

    let watch = Stopwatch::start();
    for (timer, timeout) in timers.iter().zip(timeouts_ms) {
        start(timer, timeout + 1);
    }
    let restart = Reading { spent: watch.spent(), count: active(&timers) };

    FIRED.set(0);
    let watch = Stopwatch::start();
    lp.run();
    let fire = Reading { spent: watch.spent(), count: FIRED.get() };
    Ok(Sample::new([add, stop, started, restart, fire]))
}

fn start(timer: *mut sys::uv_timer_t, timeout_ms: u64) {
    // SAFETY: the timer is initialised. Only this thread uses it.
    unsafe { sys::uv_timer_start(timer, Some(fired), timeout_ms, 0) };
}

unsafe extern "C" fn fired(_: *mut sys::uv_timer_t) {
    count_fired();
}

fn active(timers: &Timers) -> u64 {
    // SAFETY: the timers are initialised.
    timers.iter().filter(|timer| unsafe { sys::uv_is_active(timer.cast()) } != 0).count() as u64
}
