//! Which loads, and what is read from each.

use std::io;
use std::time::Duration;

use crate::cores::{self, Pinned};
use crate::load::{self, Echo, Outcome, Pump, Rate, Window};
use crate::process::ServerProcess;
use crate::servers::{self, Service};
use crate::suite::{Count, Entrants, Figure, Reading, Sample, Scenario, Unit, Who};
use crate::suites::Scale;

impl Window {
    /// A full run warms up for long enough that a server has touched the memory that it uses, and
    /// the kernel has grown its buffers, before anything counts. A quick one shows much, and proves
    /// little.
    fn of(scale: Scale) -> Window {
        let (warm_up_ms, measured_ms) = match scale {
            Scale::Tiny => (0, 0),
            Scale::Quick => (3, 10),
            Scale::Full => (40, 40),
        };
        Window {
            warm_up: Duration::from_millis(warm_up_ms),
            measured: Duration::from_millis(measured_ms),
            check: scale == Scale::Tiny,
        }
    }
}

/// So many requests in flight take as long as a window until each had its turn.
const MANY: usize = 4_096;

pub(super) fn echo(scale: Scale) -> Vec<Scenario> {
    const SMALL: usize = 64;
    const LARGE: usize = 16 * 1024;
    let mut cells = Vec::new();
    match scale {
        Scale::Tiny => cells.extend([(1, SMALL, 1), (5, SMALL, 3), (3, 100_000, 4)]),
        Scale::Quick => cells.extend([(64, SMALL, 1), (512, SMALL, 1), (64, LARGE, 16)]),
        Scale::Full => {
            for (bytes, depth) in [(SMALL, 1), (LARGE, 1), (SMALL, 16), (LARGE, 16)] {
                cells.extend([1, 64, 512, 4_096].map(|connections| (connections, bytes, depth)));
            }
        }
    }
    let cells = cells.into_iter();
    cells.map(|cell| echo_scenario(cell, Window::of(scale))).collect()
}

fn echo_scenario(
    (connections, bytes, depth): (usize, usize, usize),
    mut window: Window,
) -> Scenario {
    let least = if window.check { 3 } else { 1 };
    if connections * depth >= MANY {
        window.measured *= 5;
    }
    let plan = Echo { connections, bytes, depth, least };
    let entrants = entrants(Service::Echo, window, move |server| {
        let outcome = load::echo(server, plan, window)?;
        Ok(requests(outcome, &[0.5, 0.99, 0.999]))
    });
    let size = if bytes < 1024 { format!("{bytes} B") } else { format!("{} KiB", bytes / 1024) };
    let count = Count::AtLeast(1);
    let latency = |name, about| Figure { name, about, unit: Unit::WallTimeEach, count };
    let about = "requests of so many connections, of one size, so many of each connection in \
                 flight: answered in each second of the server's CPU time. The server is alone \
                 on its core, and the clients on another";
    Scenario {
        name: format!("{connections} × {size} × {depth}"),
        parameter: Some(connections as u64),
        figures: vec![
            Figure { name: "requests", about, unit: Unit::PerCpuSecond, count },
            Figure {
                name: "requests, wall",
                about: "the same in each second on the wall, which the clients may bound",
                unit: Unit::PerSecond,
                count,
            },
            latency("p50", "half of all requests are answered within this time"),
            latency("p99", "99 of 100 requests are answered within this time"),
            latency("p99.9", "999 of 1,000 requests are answered within this time"),
        ],
        entrants,
    }
}

pub(super) fn connections(scale: Scale) -> Vec<Scenario> {
    let (window, least) = (Window::of(scale), scale.pick(20, 100, 500));
    let scenario = |at_once: usize| {
        let plan = Rate { at_once, least };
        let entrants = entrants(Service::Echo, window, move |server| {
            let outcome = load::rate(server, plan, window)?;
            Ok(requests(outcome, &[0.5, 0.99]))
        });
        let count = Count::AtLeast(least);
        let latency = |name, about| Figure {
            name,
            about,
            unit: Unit::WallTimeEach,
            count: Count::AtLeast(1),
        };
        let about = "connect, a request of 64 bytes and its answer, reset: in each second of the \
                     server's CPU time";
        Scenario {
            name: format!("{at_once} at once"),
            parameter: Some(at_once as u64),
            figures: vec![
                Figure { name: "connections", about, unit: Unit::PerCpuSecond, count },
                Figure {
                    name: "connections, wall",
                    about: "the same in each second on the wall, which the clients may bound",
                    unit: Unit::PerSecond,
                    count,
                },
                latency("p50", "half of them have their answer within this time"),
                latency("p99", "99 of 100 have their answer within this time"),
            ],
            entrants,
        }
    };
    let cells: &[usize] = if scale == Scale::Full { &[1, 64] } else { &[16] };
    cells.iter().map(|at_once| scenario(*at_once)).collect()
}

pub(super) fn pump(scale: Scale) -> Vec<Scenario> {
    let warm_up = scale.pick(0, 1 << 24, 1 << 26);
    let bytes = scale.pick(1 << 20, 1 << 25, 1 << 27);
    let window = Window::of(scale);
    let scenario = |connections: usize| {
        let plan = Pump { connections, warm_up, bytes, check: window.check };
        let entrants = entrants(Service::Sink, window, move |server| {
            let outcome = load::pump(server, plan)?;
            let reading = Reading { count: outcome.count, spent: outcome.spent };
            Ok(Sample::new([reading, reading]))
        });
        let count = Count::AtLeast(bytes);
        let about = "bytes that the server reads and drops, in each second of its CPU time. It \
                     stands still while the clients send, so that all servers find as much";
        let wall = "the same in each second on the wall, which the clients bound";
        Scenario {
            name: if connections == 1 {
                "1 connection".into()
            } else {
                format!("{connections} connections")
            },
            parameter: Some(connections as u64),
            figures: vec![
                Figure { name: "bytes", about, unit: Unit::BytesPerCpuSecond, count },
                Figure { name: "bytes, wall", about: wall, unit: Unit::BytesPerSecond, count },
            ],
            entrants,
        }
    };
    let cells: &[usize] = if scale == Scale::Quick { &[1] } else { &[1, 64] };
    cells.iter().map(|connections| scenario(*connections)).collect()
}

/// Everyone who serves, each in a new process for each run, under a load.
fn entrants(
    service: Service,
    window: Window,
    load: impl Fn(&ServerProcess) -> io::Result<Sample> + Clone + 'static,
) -> Entrants {
    let mut entrants = Entrants { warm_up_themselves: true, ..Entrants::default() };
    // Tests run side by side, and would all be on the same core.
    let cores = if window.check { None } else { cores::server_and_clients() };
    for server in servers::all() {
        match server.serve {
            Err(why) => entrants.excuse(server.who, why),
            Ok(_) => {
                let (who, load): (Who, _) = (server.who, load.clone());
                entrants.enter(who, move || {
                    let _pinned = cores.map(|(_, core)| Pinned::to(core)).transpose()?;
                    let server = ServerProcess::start(who, service, cores.map(|(core, _)| core))?;
                    load(&server)
                });
            }
        }
    }
    entrants
}

/// Two rates, and the latencies within which these shares were answered.
fn requests(outcome: Outcome, shares: &[f64]) -> Sample {
    let reading = Reading { count: outcome.count, spent: outcome.spent };
    let mut sample = Sample::new([reading, reading]);
    for share in shares {
        let mut reading = Reading { count: 1, ..reading };
        reading.spent.wall = outcome.latencies.quantile(*share);
        sample.readings.push(Some(reading));
    }
    sample.latencies = Some(outcome.latencies);
    sample
}
