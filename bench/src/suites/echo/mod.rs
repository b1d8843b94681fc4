//! TCP servers, each in a process of its own, under the same load: requests that are answered
//! with themselves, connections that come and go, and bytes in one direction.

#[cfg(target_os = "linux")]
mod cells;

use crate::suite::Suite;
use crate::suites::Scale;

/// The suite of requests: throughput and latency.
pub fn suite(scale: Scale) -> Suite {
    let about = "TCP servers that send back what they get, against connections, size and depth";
    #[cfg(target_os = "linux")]
    let scenarios = cells::echo(scale);
    #[cfg(not(target_os = "linux"))]
    let scenarios = elsewhere(scale);
    Suite { name: "echo", about, scenarios }
}

/// The suite of connections.
pub fn connections(scale: Scale) -> Suite {
    let about = "connections that are made, used for one request and reset";
    #[cfg(target_os = "linux")]
    let scenarios = cells::connections(scale);
    #[cfg(not(target_os = "linux"))]
    let scenarios = elsewhere(scale);
    Suite { name: "connect", about, scenarios }
}

/// The suite of bytes in one direction.
pub fn pump(scale: Scale) -> Suite {
    let about = "bytes in one direction, from clients to a server that drops them";
    #[cfg(target_os = "linux")]
    let scenarios = cells::pump(scale);
    #[cfg(not(target_os = "linux"))]
    let scenarios = elsewhere(scale);
    Suite { name: "pump", about, scenarios }
}

/// The clients and the clocks of other processes are Linux's.
#[cfg(not(target_os = "linux"))]
pub(super) fn elsewhere(_: Scale) -> Vec<crate::suite::Scenario> {
    use crate::suite::{Entrants, Scenario, Who};

    let mut entrants = Entrants::default();
    for name in crate::backends::NAMES {
        entrants.excuse(Who::Core(name), "servers are measured on Linux only");
    }
    let name = "on Linux".to_string();
    vec![Scenario { name, parameter: None, figures: Vec::new(), entrants }]
}
