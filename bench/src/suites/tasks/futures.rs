//! `uv-async`, on any backend.

use std::io;
use std::thread;

use poll_core::Backend;
use uv_async::{LoopExt, Rt};
use uv_core::Loop;

use super::linux::Work;
use super::turns::{Turns, yield_once};
use crate::clock::Stopwatch;
use crate::suite::{Reading, Sample};

pub(super) fn run<B: Backend>(make: fn() -> io::Result<B>, work: Work) -> io::Result<Sample> {
    let mut lp = Loop::new(make()?);
    let watch = Stopwatch::start();
    let count = match work {
        Work::Spawn(count) => lp.block_on(async move |rt: Rt<B>| {
            let tasks: Vec<_> = (0..count).map(|_| rt.spawn_local(yield_once())).collect();
            let mut joined = 0;
            for task in tasks {
                joined += u64::from(task.await.is_ok());
            }
            joined
        })?,
        Work::PingPong(count) => {
            let turns = Turns::default();
            lp.block_on(async move |rt: Rt<B>| {
                let other = rt.spawn_local(turns.clone().take(1, count));
                let taken = turns.take(0, count).await;
                taken.min(other.await.unwrap_or(0))
            })?
        }
        Work::AcrossThreads(count) => {
            let turns = Turns::default();
            let there = turns.clone();
            let thread = thread::spawn(move || {
                let mut lp = Loop::new(make()?);
                lp.block_on(async move |_: Rt<B>| there.take(1, count).await)
            });
            let taken = lp.block_on(async move |_: Rt<B>| turns.take(0, count).await)?;
            let panicked = |_| io::Error::other("the other thread panicked");
            taken.min(thread.join().map_err(panicked)??)
        }
    };
    Ok(Sample::new([Reading { count, spent: watch.spent() }]))
}
