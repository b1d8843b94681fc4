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
use crate::suite::{Count, Entrants, Figure, Sample, Scenario, Suite, Unit, Who};
use crate::suites::Scale;

/// So many timers have a deadline in each millisecond, as in libuv's own benchmark.
const IN_A_MILLISECOND: u64 = 1_000;

thread_local! {
    /// Timers of this thread that have fired. The callback of every contestant counts here:
    /// one that captures nothing, as in libuv's own benchmark.
    static FIRED: Cell<u64> = const { Cell::new(0) };
}

fn count_fired() {
    FIRED.set(FIRED.get() + 1);
}

/// Gives back to the system what earlier runs have freed: memory is to be new to everyone.
fn forget_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it takes no pointer, and frees only what nobody has.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// The suite. `which` backends it runs on: timers are the loop's, but the waits between
/// them are the backend's.
pub fn suite(scale: Scale, which: Which) -> Suite {
    let count = scale.pick(200, 20_000, 1_000_000);
    let scenarios = vec![
        scenario("in order", which, in_order(count)),
        scenario("random", which, random(count)),
    ];
    Suite {
        name: "timers",
        about: "many timers at once, a thousand due each millisecond",
        scenarios,
    }
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
        Who::Core,
        &Timers { timeouts_ms: Rc::clone(&timeouts_ms) },
    );
    #[cfg(all(unix, feature = "libuv"))]
    {
        let timeouts_ms = Rc::clone(&timeouts_ms);
        entrants.enter(Who::Peer("libuv"), move || libuv::run(&timeouts_ms));
    }
    #[cfg(not(all(unix, feature = "libuv")))]
    super::excuse_libuv(&mut entrants);
    entrants.enter(Who::Hand("btree"), move || btree::run(&timeouts_ms));
    Scenario {
        name: name.into(),
        parameter: None,
        figures: vec![
            figure(
                "add",
                "a timer is made and started, in memory that is new to everyone, as in libuv's \
                 own benchmark",
            ),
            figure("stop", "started timers are stopped, in the order they were made"),
            figure("start", "stopped timers are started: no memory is new to anyone"),
            figure(
                "restart",
                "started timers are started anew, a millisecond later: as a server does with \
                 a connection's time limit when something arrives",
            ),
            figure("fire", "the loop runs until all have called back, and wakes each millisecond"),
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
