//! Timers of `uv-core`.

use std::io;
use std::time::Duration;

use poll_core::Backend;
use uv_core::{Handle, Loop, RunMode, Timer};

use super::{FIRED, count_fired, forget_memory};
use crate::clock::Stopwatch;
use crate::suite::{Reading, Sample};

pub(super) fn run<B: Backend>(backend: B, timeouts_ms: &[u64]) -> io::Result<Sample> {
    forget_memory();
    let mut lp = Loop::new(backend);
    let mut timers = Vec::with_capacity(timeouts_ms.len());

    let watch = Stopwatch::start();
    for timeout in timeouts_ms {
        let timeout = Duration::from_millis(*timeout);
        timers.push(Timer::after(&mut lp, timeout, fired));
    }
    let add = Reading { spent: watch.spent(), count: active(&lp, &timers) };

    let watch = Stopwatch::start();
    for timer in &timers {
        timer.stop(&mut lp)?;
    }
    let spent = watch.spent();
    let stop = Reading { spent, count: add.count - active(&lp, &timers) };

    let watch = Stopwatch::start();
    for (timer, timeout) in timers.iter().zip(timeouts_ms) {
        start(&mut lp, *timer, *timeout)?;
    }
    let started = Reading { spent: watch.spent(), count: active(&lp, &timers) };

    let watch = Stopwatch::start();
    for (timer, timeout) in timers.iter().zip(timeouts_ms) {
        start(&mut lp, *timer, timeout + 1)?;
    }
    let restart = Reading { spent: watch.spent(), count: active(&lp, &timers) };

    FIRED.set(0);
    let watch = Stopwatch::start();
    lp.run(RunMode::Default)?;
    let fire = Reading { spent: watch.spent(), count: FIRED.get() };
    Ok(Sample::new([add, stop, started, restart, fire]))
}

fn start<B: Backend>(lp: &mut Loop<B>, timer: Timer, timeout_ms: u64) -> io::Result<()> {
    timer.start(lp, Duration::from_millis(timeout_ms), Duration::ZERO, fired)
}

fn fired<B: Backend>(_: &mut Loop<B>, _: Timer) {
    count_fired();
}

fn active<B: Backend>(lp: &Loop<B>, timers: &[Timer]) -> u64 {
    timers.iter().filter(|timer| timer.is_active(lp)).count() as u64
}
