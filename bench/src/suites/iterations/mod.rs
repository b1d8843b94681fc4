//! The cost of a loop iteration without events.

mod core;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;
mod others;

use std::io;

use poll_core::Backend;

use crate::backends::{self, OnBackend, Which};
use crate::suite::{ContestantId, Count, Entrants, Figure, Sample, Scenario, Suite, Unit};
use crate::suites::Scale;

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let iterations = scale.pick(100, 100_000, 500_000);
    let scenarios = vec![
        scenario(Registered::Nothing, iterations),
        scenario(Registered::QuietSocket, iterations),
    ];
    let about = "iterations of a loop with one idle handle, which keeps it from blocking";
    Suite { name: "iterations", about, scenarios }
}

/// The sources of the loop besides its waker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registered {
    Nothing,
    /// A socket that receives nothing.
    QuietSocket,
}

fn scenario(registered: Registered, iterations: u64) -> Scenario {
    let name = match registered {
        Registered::Nothing => "no source",
        Registered::QuietSocket => "a quiet socket",
    };
    let mut entrants = Entrants::default();
    let task = Iterations { registered, iterations };
    backends::enter(&mut entrants, Which::All, ContestantId::Core, &task);
    #[cfg(all(unix, feature = "libuv"))]
    entrants.enter(ContestantId::Peer("libuv"), move || libuv::run(registered, iterations));
    #[cfg(not(all(unix, feature = "libuv")))]
    super::skip_libuv(&mut entrants);
    others::enter(&mut entrants, registered, iterations);
    let figure = Figure {
        name: "iterations",
        about: "for loops, whole iterations with the callback of an idle handle in each; for \
                pollers (hand, mio, polling), waits with a timeout of zero. Each watches \
                its waker; a loop may skip the system call if it can",
        unit: Unit::PerCpuSecond,
        count: Count::Exactly(iterations),
    };
    Scenario { name: name.into(), parameter: None, figures: vec![figure], entrants }
}

#[derive(Clone)]
struct Iterations {
    registered: Registered,
    iterations: u64,
}

impl OnBackend for Iterations {
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        core::run(make()?, self.registered, self.iterations)
    }
}
