//! Requests on files that are in memory already: what asking costs, not the disk.

mod core;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;
#[cfg(unix)]
mod threads;

use std::io;
use std::rc::Rc;

use poll_core::Backend;

use crate::backends::{self, OnBackend, Which};
use crate::suite::{Count, Entrants, Figure, Sample, Scenario, Suite, Unit, Who};
use crate::suites::Scale;
use crate::temporary::Temporary;

/// Requests under way at any time.
const IN_FLIGHT: u64 = 64;
/// How much a read asks for.
const PIECE: usize = 4096;
/// How many pieces the file has, each of which is read in turn.
const PIECES: u64 = 1024;
/// How many threads pools have: libuv's default, and so uv-core's.
#[cfg(unix)]
const THREADS: usize = 4;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// By whoever is quickest: the loop itself, the ring, a thread.
    Read,
    /// By a thread in any case.
    ReadOnThread,
    Stat,
}

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let count = scale.pick(500, 40_000, 150_000);
    let file = Rc::new(Temporary::new("files", &vec![7; PIECE * PIECES as usize]));
    let read = "4 KiB of a file that is cached are read into memory that is used again, at \
                one place after the other: 64 in flight, at once, on 4 threads or on the ring";
    let on_threads = "the same, by 4 threads in any case";
    let stat = "a file is asked about by its path: 64 in flight, on 4 threads or on the ring";
    let scenarios = vec![
        scenario("4 KiB reads", read, Request::Read, count, &file),
        scenario("4 KiB, threads", on_threads, Request::ReadOnThread, count, &file),
        scenario("stat", stat, Request::Stat, count, &file),
    ];
    Suite { name: "files", about: "requests on a file that is in memory", scenarios }
}

fn scenario(
    name: &str,
    about: &'static str,
    request: Request,
    count: u64,
    file: &Rc<Temporary>,
) -> Scenario {
    let mut entrants = Entrants::default();
    backends::enter(
        &mut entrants,
        Which::All,
        Who::Core,
        &Requests { request, count, file: Rc::clone(file) },
    );
    #[cfg(all(unix, feature = "libuv"))]
    {
        let file = Rc::clone(file);
        entrants.enter(Who::Peer("libuv"), move || libuv::run(file.path(), request, count));
    }
    #[cfg(not(all(unix, feature = "libuv")))]
    super::excuse_libuv(&mut entrants);
    #[cfg(unix)]
    {
        let file = Rc::clone(file);
        entrants.enter(Who::Hand("threads"), move || threads::run(file.path(), request, count));
    }
    let count = Count::Exactly(count);
    let figures = vec![
        Figure { name: "requests", about, unit: Unit::PerSecond, count },
        Figure { name: "requests, CPU", about, unit: Unit::CpuTimeEach, count },
    ];
    Scenario { name: name.into(), parameter: None, figures, entrants }
}

#[derive(Clone)]
struct Requests {
    request: Request,
    count: u64,
    file: Rc<Temporary>,
}

impl OnBackend for Requests {
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        core::run(make()?, self.file.path(), self.request, self.count)
    }
}

/// Where the request of that number reads.
fn place(number: u64) -> u64 {
    number % PIECES * PIECE as u64
}
