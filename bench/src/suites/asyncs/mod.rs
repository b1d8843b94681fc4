//! Wake-ups of a loop by another thread.

mod core;
#[cfg(target_os = "linux")]
mod eventfd;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;

use std::io;

use poll_core::Backend;

use crate::backends::{self, OnBackend, Which};
use crate::clock::Spent;
use crate::suite::{ContestantId, Count, Entrants, Figure, Reading, Sample, Scenario, Suite, Unit};
use crate::suites::Scale;

/// The suite.
pub fn suite(scale: Scale, which: Which) -> Suite {
    let scenarios = vec![
        pending(which, scale.pick(100, 2_000_000, 10_000_000)),
        round_trip(which, scale.pick(20, 4_000, 25_000)),
    ];
    Suite { name: "async", about: "wake-ups of a loop by another thread", scenarios }
}

fn pending(which: Which, sends: u64) -> Scenario {
    let mut entrants = Entrants::default();
    backends::enter(&mut entrants, which, ContestantId::Core, &Pending { sends });
    #[cfg(all(unix, feature = "libuv"))]
    entrants.enter(ContestantId::Peer("libuv"), move || libuv::pending(sends));
    #[cfg(not(all(unix, feature = "libuv")))]
    super::skip_libuv(&mut entrants);
    let figure = Figure {
        name: "pending send",
        about: "a send to a handle whose callback is already pending",
        unit: Unit::CpuTimeEach,
        count: Count::Exactly(sends),
    };
    Scenario { name: "one thread".into(), parameter: None, figures: vec![figure], entrants }
}

fn round_trip(which: Which, trips: u64) -> Scenario {
    let mut entrants = Entrants::default();
    backends::enter(&mut entrants, which, ContestantId::Core, &RoundTrip { trips });
    #[cfg(all(unix, feature = "libuv"))]
    entrants.enter(ContestantId::Peer("libuv"), move || libuv::round_trip(trips));
    #[cfg(not(all(unix, feature = "libuv")))]
    super::skip_libuv(&mut entrants);
    #[cfg(target_os = "linux")]
    entrants.enter(ContestantId::Hand("eventfd"), move || eventfd::round_trip(trips));
    let about = "a send to a loop that blocks in another thread, and one back";
    let count = Count::Exactly(trips);
    let figures = vec![
        Figure { name: "round trip", about, unit: Unit::WallTimeEach, count },
        Figure { name: "round trip, CPU", about, unit: Unit::CpuTimeEach, count },
    ];
    Scenario { name: "two threads".into(), parameter: None, figures, entrants }
}

/// The sample of the round trips; the count is wrong unless both sides agree.
fn both(trips: (u64, u64), spent: Spent) -> Sample {
    let reading = Reading { count: trips.0.min(trips.1), spent };
    Sample::new([reading, reading])
}

#[derive(Clone)]
struct Pending {
    sends: u64,
}

impl OnBackend for Pending {
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        core::pending(make()?, self.sends)
    }
}

#[derive(Clone)]
struct RoundTrip {
    trips: u64,
}

impl OnBackend for RoundTrip {
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        core::round_trip(make, self.trips)
    }
}
