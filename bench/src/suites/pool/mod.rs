//! Jobs on the thread pool.

mod condvar;
mod core;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;

use std::io;

use poll_core::Backend;

use crate::backends::{self, OnBackend, Which};
use crate::suite::{ContestantId, Count, Entrants, Figure, Sample, Scenario, Suite, Unit};
use crate::suites::Scale;

/// Jobs in flight.
const IN_FLIGHT: u64 = 1_024;
/// The number of pool threads: the default of libuv and uv-core.
const THREADS: usize = 4;

/// The suite.
pub fn suite(scale: Scale, which: Which) -> Suite {
    let jobs = scale.pick(2_000, 50_000, 500_000);
    let mut entrants = Entrants::default();
    backends::enter(&mut entrants, which, ContestantId::Core, &Jobs { jobs });
    #[cfg(all(unix, feature = "libuv"))]
    entrants.enter(ContestantId::Peer("libuv"), move || libuv::run(jobs));
    #[cfg(not(all(unix, feature = "libuv")))]
    super::skip_libuv(&mut entrants);
    entrants.enter(ContestantId::Hand("condvar"), move || condvar::run(jobs));
    let about = "an empty job runs on a pool thread and completes on the loop, \
                 which queues the next: 1,024 in flight, 4 threads";
    let count = Count::Exactly(jobs);
    let figures = vec![
        Figure { name: "jobs", about, unit: Unit::PerSecond, count },
        Figure { name: "jobs, CPU", about, unit: Unit::CpuTimeEach, count },
    ];
    let scenario = Scenario { name: "1,024 in flight".into(), parameter: None, figures, entrants };
    Suite { name: "pool", about: "jobs on the thread pool", scenarios: vec![scenario] }
}

#[derive(Clone)]
struct Jobs {
    jobs: u64,
}

impl OnBackend for Jobs {
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        core::run(make()?, self.jobs)
    }
}
