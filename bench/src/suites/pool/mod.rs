//! Jobs on the thread pool.

mod condvar;
mod core;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;

use std::io;

use poll_core::Backend;

use crate::backends::{self, OnBackend, Which};
use crate::suite::{Count, Entrants, Figure, Sample, Scenario, Suite, Unit, Who};
use crate::suites::Scale;

/// Jobs that are queued, running or on their way back at any time.
const IN_FLIGHT: u64 = 1_024;
/// How many threads the pools have: libuv's default, and so uv-core's.
const THREADS: usize = 4;

/// The suite.
pub fn suite(scale: Scale, which: Which) -> Suite {
    let jobs = scale.pick(2_000, 50_000, 500_000);
    let mut entrants = Entrants::default();
    backends::enter(&mut entrants, which, Who::Core, &Jobs { jobs });
    #[cfg(all(unix, feature = "libuv"))]
    entrants.enter(Who::Peer("libuv"), move || libuv::run(jobs));
    #[cfg(not(all(unix, feature = "libuv")))]
    super::excuse_libuv(&mut entrants);
    entrants.enter(Who::Hand("condvar"), move || condvar::run(jobs));
    let about = "a job that does nothing goes to a thread and its end comes back to the loop, \
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
