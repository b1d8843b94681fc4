//! HTTP/1.1: a short text for each request, by the same parser in every server.

use crate::suite::Suite;
use crate::suites::Scale;

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let about = "HTTP/1.1 servers: a text of 13 bytes, keep-alive, the same parser in each";
    #[cfg(target_os = "linux")]
    let scenarios = linux::scenarios(scale);
    #[cfg(not(target_os = "linux"))]
    let scenarios = super::serving::elsewhere(scale);
    Suite { name: "http", about, scenarios }
}

#[cfg(target_os = "linux")]
mod linux {
    use crate::load::{self, Echo, Talk, Window};
    use crate::servers::Service;
    use crate::suite::Scenario;
    use crate::suites::Scale;
    use crate::suites::serving::{Field, Setup, figures, requests};

    pub(super) fn scenarios(scale: Scale) -> Vec<Scenario> {
        let cells: &[(usize, usize)] = match scale {
            Scale::Tiny => &[(3, 1), (2, 5)],
            Scale::Quick => &[(64, 1)],
            Scale::Full => &[(1, 1), (64, 1), (512, 1), (64, 16)],
        };
        cells.iter().map(|cell| scenario(*cell, scale)).collect()
    }

    fn scenario((connections, depth): (usize, usize), scale: Scale) -> Scenario {
        let window = Window::of(scale);
        let least = if window.check { 3 } else { 1 };
        let plan = Echo::new(connections, Talk::Http, depth, least);
        let setup = Setup::new(Service::Http, window, Field::of(scale));
        let entrants = setup.entrants(move |server| {
            Ok(requests(load::echo(server, plan, window)?, &[0.5, 0.99, 0.999]))
        });
        let about = "GET requests with five headers, with a fixed number of each connection in \
                     flight: answered in each second of the server's CPU time";
        let name = match depth {
            1 => format!("{connections} connections"),
            _ => format!("{connections} × {depth} pipelined"),
        };
        let figures = figures(about, &["p50", "p99", "p99.9"]);
        Scenario { name, parameter: Some(connections as u64), figures, entrants }
    }
}
