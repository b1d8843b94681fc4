//! Handles of `uv-core`.

use std::io;
use std::time::Duration;

use poll_core::Backend;
use uv_core::{Async, Idle, Loop, Tcp, Timer, Udp};

use super::taken;
use crate::suite::Sample;

pub(super) fn handles<B: Backend>(make: fn() -> io::Result<B>, count: u64) -> io::Result<Sample> {
    let an_hour = Duration::from_secs(3_600);
    let mut lp = Loop::new(make()?);
    let timers = taken(count, || {
        (0..count).try_for_each(|_| {
            let timer = Timer::new(&mut lp);
            timer.start(&mut lp, an_hour, Duration::ZERO, |_, _| {})
        })
    })?;
    let idles =
        taken(count, || (0..count).try_for_each(|_| Idle::new(&mut lp).start(&mut lp, |_, _| {})))?;
    let mut senders = Vec::with_capacity(count as usize);
    let asyncs = taken(count, || {
        senders.extend((0..count).map(|_| Async::new(&mut lp, |_, _| {}).1));
        Ok(())
    })?;
    let tcps = taken(count, || {
        for _ in 0..count {
            let _ = Tcp::new(&mut lp);
        }
        Ok(())
    })?;
    let udps = taken(count, || {
        for _ in 0..count {
            let _ = Udp::new(&mut lp);
        }
        Ok(())
    })?;
    drop(lp);
    Ok(Sample::new([timers, idles, asyncs, tcps, udps]))
}
