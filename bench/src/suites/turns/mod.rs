//! What one turn of a loop costs when there is nothing to do.

mod core;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;
mod others;

use std::io;

use poll_core::Backend;

use crate::backends::{self, OnBackend, Which};
use crate::suite::{Count, Entrants, Figure, Sample, Scenario, Suite, Unit, Who};
use crate::suites::Scale;

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let turns = scale.pick(100, 100_000, 500_000);
    let scenarios =
        vec![scenario(Registered::Nothing, turns), scenario(Registered::QuietSocket, turns)];
    let about = "turns of a loop with one idle handle, which keeps it from blocking";
    Suite { name: "turns", about, scenarios }
}

/// What the loop watches, besides what wakes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registered {
    Nothing,
    /// A socket to which nobody sends.
    QuietSocket,
}

fn scenario(registered: Registered, turns: u64) -> Scenario {
    let name = match registered {
        Registered::Nothing => "nothing watched",
        Registered::QuietSocket => "a quiet socket",
    };
    let mut entrants = Entrants::default();
    let task = Turns { registered, turns };
    backends::enter(&mut entrants, Which::All, Who::Core, &task);
    #[cfg(all(unix, feature = "libuv"))]
    entrants.enter(Who::Peer("libuv"), move || libuv::run(registered, turns));
    #[cfg(not(all(unix, feature = "libuv")))]
    super::excuse_libuv(&mut entrants);
    others::enter(&mut entrants, registered, turns);
    let figure = Figure {
        name: "turns",
        about: "for loops, whole turns with the callback of an idle handle in each; for \
                pollers (hand, mio, polling), waits with a timeout of zero. Everyone watches \
                what would wake it; a loop that need not ask the kernel for that is free not to",
        unit: Unit::PerCpuSecond,
        count: Count::Exactly(turns),
    };
    Scenario { name: name.into(), parameter: None, figures: vec![figure], entrants }
}

#[derive(Clone)]
struct Turns {
    registered: Registered,
    turns: u64,
}

impl OnBackend for Turns {
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        core::run(make()?, self.registered, self.turns)
    }
}
