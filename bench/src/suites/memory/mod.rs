//! The memory of idle handles and connections.

#[cfg(target_os = "linux")]
mod connections;
mod core;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;

use std::io;

use poll_core::Backend;

use crate::allocations;
use crate::backends::{self, OnBackend, Which};
use crate::suite::{ContestantId, Count, Entrants, Figure, Reading, Sample, Scenario, Suite, Unit};
use crate::suites::Scale;

/// The suite.
pub fn suite(scale: Scale, which: Which) -> Suite {
    let mut scenarios = vec![handles(which, scale.pick(100, 10_000, 10_000))];
    #[cfg(target_os = "linux")]
    scenarios.push(connections::scenario(scale.pick(10, 300, 2_000)));
    #[cfg(not(target_os = "linux"))]
    scenarios.extend(super::serving::elsewhere(scale));
    Suite { name: "memory", about: "memory of idle handles and connections", scenarios }
}

fn handles(which: Which, count: u64) -> Scenario {
    let mut entrants = Entrants::default();
    backends::enter(&mut entrants, which, ContestantId::Core, &Handles { count });
    #[cfg(all(unix, feature = "libuv"))]
    entrants.enter(ContestantId::Peer("libuv"), move || libuv::handles(count));
    #[cfg(not(all(unix, feature = "libuv")))]
    super::skip_libuv(&mut entrants);
    let figure =
        |name, about| Figure { name, about, unit: Unit::BytesEach, count: Count::Exactly(count) };
    Scenario {
        name: format!("{count} of each"),
        parameter: Some(count),
        figures: vec![
            figure("timer", "a started timer with its callback: allocated bytes"),
            figure("idle handle", "a started idle handle"),
            figure("async handle", "an async handle with its sender"),
            figure("TCP handle", "a TCP handle without a socket"),
            figure("UDP handle", "a UDP handle without a socket"),
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

/// The growth of allocated bytes by creating `count` objects.
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
