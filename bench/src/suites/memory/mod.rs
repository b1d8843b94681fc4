//! How much memory things take that do nothing.

#[cfg(target_os = "linux")]
mod connections;
mod core;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;

use std::io;

use poll_core::Backend;

use crate::allocations;
use crate::backends::{self, OnBackend, Which};
use crate::suite::{Count, Entrants, Figure, Reading, Sample, Scenario, Suite, Unit, Who};
use crate::suites::Scale;

/// The suite.
pub fn suite(scale: Scale, which: Which) -> Suite {
    let mut scenarios = vec![handles(which, scale.pick(100, 10_000, 10_000))];
    #[cfg(target_os = "linux")]
    scenarios.push(connections::scenario(scale.pick(10, 1_000, 2_000)));
    #[cfg(not(target_os = "linux"))]
    scenarios.extend(super::echo::elsewhere(scale));
    Suite { name: "memory", about: "memory of things that do nothing", scenarios }
}

fn handles(which: Which, count: u64) -> Scenario {
    let mut entrants = Entrants::default();
    backends::enter(&mut entrants, which, Who::Core, &Handles { count });
    #[cfg(all(unix, feature = "libuv"))]
    entrants.enter(Who::Peer("libuv"), move || libuv::handles(count));
    #[cfg(not(all(unix, feature = "libuv")))]
    super::excuse_libuv(&mut entrants);
    let figure =
        |name, about| Figure { name, about, unit: Unit::BytesEach, count: Count::Exactly(count) };
    Scenario {
        name: format!("{count} of each"),
        parameter: Some(count),
        figures: vec![
            figure("timer", "a timer that is started, callback included: allocated bytes"),
            figure("idle handle", "an idle handle that is started"),
            figure("async handle", "an async handle, and what sends to it"),
            figure("TCP handle", "a TCP handle that has no socket yet"),
            figure("UDP handle", "a UDP handle that has no socket yet"),
        ],
        entrants,
    }
}

#[derive(Clone)]
struct Handles {
    count: u64,
}

impl OnBackend for Handles {
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        core::handles(make, self.count)
    }
}

/// How many bytes making so many of something has taken.
fn taken(count: u64, make: impl FnOnce() -> io::Result<()>) -> io::Result<Reading> {
    allocations::count(true);
    let before = allocations::live();
    let made = make();
    let after = allocations::live();
    allocations::count(false);
    made?;
    let mut reading = Reading { count, spent: Default::default() };
    reading.spent.amount = (after - before).max(0) as u64;
    Ok(reading)
}
