//! TCP servers, each in a separate process, under the same load: echo requests, short connections,
//! and bytes in one direction.

#[cfg(target_os = "linux")]
mod cells;

use crate::suite::Suite;
use crate::suites::Scale;

/// The suite of requests: throughput and latency.
pub fn suite(scale: Scale) -> Suite {
    let about = "TCP echo servers by connections, request size and pipeline depth";
    #[cfg(target_os = "linux")]
    let scenarios = cells::echo(scale);
    #[cfg(not(target_os = "linux"))]
    let scenarios = super::serving::elsewhere(scale);
    Suite { name: "echo", about, scenarios }
}

/// The suite of connections.
pub fn connections(scale: Scale) -> Suite {
    let about = "connections that are opened, used for one request and reset";
    #[cfg(target_os = "linux")]
    let scenarios = cells::connections(scale);
    #[cfg(not(target_os = "linux"))]
    let scenarios = super::serving::elsewhere(scale);
    Suite { name: "connect", about, scenarios }
}

/// The suite of bytes in one direction.
pub fn pump(scale: Scale) -> Suite {
    let about = "bytes in one direction, from clients to a server that discards them";
    #[cfg(target_os = "linux")]
    let scenarios = cells::pump(scale);
    #[cfg(not(target_os = "linux"))]
    let scenarios = super::serving::elsewhere(scale);
    Suite { name: "pump", about, scenarios }
}
