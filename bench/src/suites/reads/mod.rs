//! Reads of a file that is cached, that is not, and past the cache (`O_DIRECT`), by the number of
//! reads in flight.

mod core;
#[cfg(target_os = "linux")]
mod fio;
mod job;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;
#[cfg(target_os = "linux")]
mod ring;
#[cfg(target_os = "linux")]
mod runtimes;
#[cfg(unix)]
mod threads;

use std::io;
use std::rc::Rc;

use poll_core::Backend;

use self::job::{Job, State};
use crate::backends::{self, OnBackend, Which};
use crate::suite::{ContestantId, Count, Entrants, Figure, Sample, Scenario, Suite, Unit};
use crate::suites::Scale;
use crate::temporary::Temporary;

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let depths: &[usize] = match scale {
        Scale::Tiny => &[1, 4],
        Scale::Quick => &[32],
        Scale::Full => &[1, 8, 32, 128],
    };
    // From the disk, these take long.
    let pieces = scale.pick(16, 256, 512);
    let file = Rc::new(Temporary::new("reads", &job::content(pieces)));
    let mut scenarios = Vec::new();
    for state in State::HERE {
        let count = if state == State::Cached { scale.pick(32, 2_048, 8_192) } else { pieces };
        for depth in depths {
            let job = Job { file: Rc::clone(&file), pieces, state, depth: *depth, count };
            scenarios.push(scenario(job, scale));
        }
    }
    let about = "reads of 4 KiB: cached, cold and direct, by the number in flight";
    Suite { name: "reads", about, scenarios }
}

fn scenario(job: Job, scale: Scale) -> Scenario {
    let mut entrants = Entrants::default();
    match job.refusal() {
        None => enter(&mut entrants, &job, scale),
        Some(why) => {
            for name in backends::NAMES {
                entrants.skip(ContestantId::Core(name), why.clone());
            }
        }
    }
    let about = match job.state {
        State::Cached => {
            "4 KiB of a cached file are read into reused memory, with this many reads in flight: \
             inline, on threads or on a ring"
        }
        State::Cold => {
            "4 KiB of a file are read that is not in the page cache, without read-ahead, with this \
             many reads in flight"
        }
        State::Direct => {
            "4 KiB of a file are read past the page cache (O_DIRECT), with this many reads in \
             flight"
        }
    };
    let count = Count::Exactly(job.count);
    let figures = vec![
        Figure { name: "reads", about, unit: Unit::PerSecond, count },
        Figure { name: "reads, CPU", about, unit: Unit::CpuTimeEach, count },
    ];
    let name = format!("{}, {} in flight", job.state.name(), job.depth);
    Scenario { name, parameter: Some(job.depth as u64), figures, entrants }
}

fn enter(entrants: &mut Entrants, job: &Job, scale: Scale) {
    backends::enter(entrants, Which::All, ContestantId::Core, job);
    if scale == Scale::Quick {
        // select and poll differ from epoll by the wait alone.
        let best = |id: ContestantId| !matches!(id.backend(), Some("select" | "poll"));
        if entrants.contestants.iter().any(|one| best(one.id)) {
            entrants.contestants.retain(|one| best(one.id));
        }
    }
    #[cfg(all(unix, feature = "libuv"))]
    libuv::enter(entrants, job);
    #[cfg(not(all(unix, feature = "libuv")))]
    super::skip_libuv(entrants);
    #[cfg(unix)]
    job.enter(entrants, ContestantId::Hand("threads"), threads::run);
    #[cfg(target_os = "linux")]
    {
        ring::enter(entrants, job);
        runtimes::enter(entrants, job);
        match scale {
            Scale::Quick => fio::leave_out(entrants),
            Scale::Tiny | Scale::Full => fio::enter(entrants, job),
        }
    }
}

impl Job {
    /// Adds a contestant that finds the file in the state of the scenario.
    #[cfg(unix)]
    fn enter(
        &self,
        entrants: &mut Entrants,
        id: ContestantId,
        run: impl Fn(&Job) -> io::Result<Sample> + 'static,
    ) {
        let job = self.clone();
        entrants.enter(id, move || job.run(&run));
    }
}

impl OnBackend for Job {
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        let backend = make()?;
        Job::run(self, |job| core::run(backend, job))
    }
}
