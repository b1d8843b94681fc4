//! Requests on cached files: the cost of the request, without the disk.

mod core;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;
#[cfg(unix)]
mod threads;

use std::io;
use std::rc::Rc;

use poll_core::Backend;

use crate::backends::{self, OnBackend, Which};
use crate::suite::{ContestantId, Count, Entrants, Figure, Sample, Scenario, Suite, Unit};
use crate::suites::Scale;
use crate::temporary::Temporary;

/// Requests in flight.
const IN_FLIGHT: u64 = 64;
/// The size of a read.
const PIECE: usize = 4096;
/// The number of pieces of the file, which are read in order.
const PIECES: u64 = 1024;
/// The number of pool threads: the default of libuv and uv-core.
#[cfg(unix)]
const THREADS: usize = 4;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// Read by the fastest means: the loop itself, the ring or a thread.
    Read,
    /// Read by a pool thread.
    ReadOnThread,
    Stat,
}

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let count = scale.pick(500, 5_000, 50_000);
    let file = Rc::new(Temporary::new("files", &vec![7; PIECE * PIECES as usize]));
    let read = "4 KiB of a cached file are read sequentially into reused memory: 64 in flight, \
                inline, on 4 threads or on the ring";
    let on_threads = "the same, always on 4 threads";
    let stat = "stat of a file by its path: 64 in flight, on 4 threads or on the ring";
    let scenarios = vec![
        scenario("4 KiB reads", read, Request::Read, count, &file),
        scenario("4 KiB, threads", on_threads, Request::ReadOnThread, count, &file),
        scenario("stat", stat, Request::Stat, count, &file),
    ];
    Suite { name: "files", about: "requests on a cached file", scenarios }
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
        ContestantId::Core,
        &Requests { request, count, file: Rc::clone(file) },
    );
    #[cfg(all(unix, feature = "libuv"))]
    {
        let file = Rc::clone(file);
        entrants
            .enter(ContestantId::Peer("libuv"), move || libuv::run(file.path(), request, count));
    }
    #[cfg(not(all(unix, feature = "libuv")))]
    super::skip_libuv(&mut entrants);
    #[cfg(unix)]
    {
        let file = Rc::clone(file);
        entrants.enter(ContestantId::Hand("threads"), move || {
            threads::run(file.path(), request, count)
        });
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

/// The offset of the request with that number.
fn place(number: u64) -> u64 {
    number % PIECES * PIECE as u64
}
