//! Futures: tasks that are spawned and joined, messages between two tasks of a thread, and between
//! tasks of two threads. On executors for one thread.

#[cfg(target_os = "linux")]
mod futures;
#[cfg(target_os = "linux")]
mod others;
#[cfg(target_os = "linux")]
mod turns;

use crate::suite::Suite;
use crate::suites::Scale;

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let about = "futures on one thread: spawn and join, messages between tasks and threads";
    #[cfg(target_os = "linux")]
    let scenarios = linux::scenarios(scale);
    #[cfg(not(target_os = "linux"))]
    let scenarios = super::serving::elsewhere(scale);
    Suite { name: "tasks", about, scenarios }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    use poll_core::Backend;

    use super::{futures, others};
    use crate::backends::{self, OnBackend, Which};
    use crate::suite::{ContestantId, Count, Entrants, Figure, Sample, Scenario, Unit};
    use crate::suites::Scale;

    /// The work of a scenario.
    #[derive(Clone, Copy, Debug)]
    pub(super) enum Work {
        /// This number of tasks is spawned, then all are joined.
        Spawn(u64),
        /// Two tasks of one thread wake each other this number of times.
        PingPong(u64),
        /// The same with a task in another thread.
        AcrossThreads(u64),
    }

    pub(super) fn scenarios(scale: Scale) -> Vec<Scenario> {
        let spawns = Work::Spawn(scale.pick(100, 50_000, 1_000_000));
        let turns = scale.pick(50, 20_000, 200_000);
        let trips = scale.pick(20, 1_000, 10_000);
        vec![
            scenario("spawn and join", spawns, "a task that yields once is spawned, and joined"),
            scenario(
                "ping-pong",
                Work::PingPong(turns),
                "two tasks of one thread wake each other in turn",
            ),
            scenario(
                "across threads",
                Work::AcrossThreads(trips),
                "a task wakes one in another thread, which wakes it: CPU time of both threads",
            ),
        ]
    }

    fn scenario(name: &str, work: Work, about: &'static str) -> Scenario {
        let mut entrants = Entrants::default();
        backends::enter(&mut entrants, Which::All, ContestantId::Async, &OnTasks(work));
        entrants.enter(ContestantId::Peer("tokio"), move || others::tokio(work));
        if !matches!(work, Work::AcrossThreads(_)) {
            let local = ContestantId::Peer("tokio-local");
            entrants.enter(local, move || others::tokio_local(work));
        }
        entrants.enter(ContestantId::Peer("smol"), move || others::smol(work));
        #[cfg(feature = "compio")]
        entrants.enter(ContestantId::Peer("compio"), move || others::compio(work));
        #[cfg(feature = "monoio")]
        match work {
            Work::Spawn(_) | Work::PingPong(_) => {
                entrants.enter(ContestantId::Peer("monoio"), move || others::monoio(work));
            }
            Work::AcrossThreads(_) => {
                let why = "its tasks cannot be woken by another thread";
                entrants.skip(ContestantId::Peer("monoio"), why);
            }
        }
        #[cfg(feature = "glommio")]
        entrants.enter(ContestantId::Peer("glommio"), move || others::glommio(work));
        entrants.skip_unbuilt(&["compio", "monoio", "glommio"]);
        let (Work::Spawn(count) | Work::PingPong(count) | Work::AcrossThreads(count)) = work;
        let count = Count::Exactly(count);
        let figure = Figure { name: "tasks", about, unit: Unit::CpuTimeEach, count };
        Scenario { name: name.into(), parameter: None, figures: vec![figure], entrants }
    }

    #[derive(Clone)]
    struct OnTasks(Work);

    impl OnBackend for OnTasks {
        fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
            futures::run(make, self.0)
        }
    }
}
