//! Many timers: added, stopped, started, restarted, fired.

mod btree;
mod core;
#[cfg(all(unix, feature = "libuv"))]
mod libuv;

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use poll_core::Backend;

use crate::backends::{self, OnBackend, Which};
use crate::random::Random;
use crate::suite::{ContestantId, Count, Entrants, Figure, Sample, Scenario, Suite, Unit};
use crate::suites::Scale;

/// The number of timers with a deadline in each millisecond, as in libuv's own benchmark.
const IN_A_MILLISECOND: u64 = 1_000;

thread_local! {
    /// The number of timers of this thread that have fired. The callbacks of all contestants count
    /// here and capture nothing, as in libuv's own benchmark.
    static FIRED: Cell<u64> = const { Cell::new(0) };
}

fn count_fired() {
    FIRED.set(FIRED.get() + 1);
}

/// Returns freed memory to the system, so that every contestant gets untouched memory.
fn forget_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: no pointer is passed; the call releases only free memory.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// The suite. `which` selects the backends: timers belong to the loop, but the waits between them
/// to the backend.
pub fn suite(scale: Scale, which: Which) -> Suite {
    let count = scale.pick(200, 20_000, 1_000_000);
    let scenarios = vec![
        scenario("in order", which, in_order(count)),
        scenario("random", which, random(count)),
    ];
    Suite { name: "timers", about: "many timers, a thousand due in each millisecond", scenarios }
}

fn in_order(count: u64) -> Rc<[u64]> {
    (0..count).map(|index| index / IN_A_MILLISECOND).collect()
}

fn random(count: u64) -> Rc<[u64]> {
    let mut random = Random::new(0);
    (0..count).map(|_| random.draw() % count / IN_A_MILLISECOND).collect()
}

fn scenario(name: &str, which: Which, timeouts_ms: Rc<[u64]>) -> Scenario {
    let count = Count::Exactly(timeouts_ms.len() as u64);
    let figure = |name, about| Figure { name, about, unit: Unit::CpuTimeEach, count };
    let mut entrants = Entrants::default();
    backends::enter(
        &mut entrants,
        which,
        ContestantId::Core,
        &Timers { timeouts_ms: Rc::clone(&timeouts_ms) },
    );
    #[cfg(all(unix, feature = "libuv"))]
    {
        let timeouts_ms = Rc::clone(&timeouts_ms);
        entrants.enter(ContestantId::Peer("libuv"), move || libuv::run(&timeouts_ms));
    }
    #[cfg(not(all(unix, feature = "libuv")))]
    super::skip_libuv(&mut entrants);
    entrants.enter(ContestantId::Hand("btree"), move || btree::run(&timeouts_ms));
    Scenario {
        name: name.into(),
        parameter: None,
        figures: vec![
            figure(
                "add",
                "a timer is created and started, in untouched memory, as in libuv's \
                 own benchmark",
            ),
            figure("stop", "started timers are stopped, in the order of their creation"),
            figure("start", "stopped timers are started, in memory that is already touched"),
            figure(
                "restart",
                "started timers are restarted, a millisecond later: as a server does with \
                 a connection's timeout when data arrives",
            ),
            figure(
                "fire",
                "the loop runs until every timer has called back, and wakes each millisecond",
            ),
        ],
        entrants,
    }
}

#[derive(Clone)]
struct Timers {
    timeouts_ms: Rc<[u64]>,
}

impl OnBackend for Timers {
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        core::run(make()?, &self.timeouts_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_deadlines_are_the_same_each_time_and_in_range() {
        let deadlines = random(10_000);
        assert_eq!(deadlines, random(10_000));
        assert!(deadlines.iter().all(|deadline| *deadline < 10));
        assert!(deadlines.contains(&0) && deadlines.contains(&9));
    }
}
