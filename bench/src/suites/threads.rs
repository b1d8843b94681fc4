//! Servers with several threads: a loop and a listener in each, between which the kernel distributes
//! the connections (`SO_REUSEPORT`).

use crate::suite::Suite;
use crate::suites::Scale;

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let about = "echo servers with a loop in each of several threads";
    #[cfg(target_os = "linux")]
    let scenarios = linux::scenarios(scale);
    #[cfg(not(target_os = "linux"))]
    let scenarios = super::serving::elsewhere(scale);
    Suite { name: "threads", about, scenarios }
}

#[cfg(target_os = "linux")]
mod linux {
    use crate::load::{self, Echo, Talk, Window};
    use crate::servers::Service;
    use crate::suite::Scenario;
    use crate::suites::Scale;
    use crate::suites::serving::{Field, Setup, figures, requests};

    pub(super) fn scenarios(scale: Scale) -> Vec<Scenario> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // The clients need a core as well; with two, all share them.
        let counts: Vec<usize> = match scale {
            Scale::Tiny | Scale::Quick => vec![2],
            Scale::Full => {
                [1, 2, 4, 8, 16, 32].into_iter().filter(|n| *n <= cores.max(2)).collect()
            }
        };
        counts.into_iter().map(|threads| scenario(threads, scale)).collect()
    }

    fn scenario(threads: usize, scale: Scale) -> Scenario {
        let window = Window::of(scale);
        let least = if window.check { 3 } else { 1 };
        let plan = Echo::new(scale.pick(8, 256, 256) as usize, Talk::Echo(64), 1, least);
        let setup = Setup::new(Service::Echo, window, Field::of(scale)).threads(threads);
        let entrants = setup
            .entrants(move |server| Ok(requests(load::echo(server, plan, window)?, &[0.5, 0.99])));
        let about = "requests of 64 bytes on 256 connections, one of each in flight: answered in \
                     each second of the CPU time of all threads, which are not pinned";
        let name = if threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
        let figures = figures(about, &["p50", "p99"]);
        Scenario { name, parameter: Some(threads as u64), figures, entrants }
    }
}
