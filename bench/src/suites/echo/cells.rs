//! The loads and their figures.

use crate::load::{self, Echo, Pump, Rate, Talk, Window};
use crate::servers::Service;
use crate::suite::{Count, Figure, Reading, Sample, Scenario, Unit};
use crate::suites::Scale;
use crate::suites::serving::{Field, Setup, figures, latency, requests};

/// With this many requests in flight, one round over all of them takes a whole window.
const MANY: usize = 4_096;

pub(super) fn echo(scale: Scale) -> Vec<Scenario> {
    const SMALL: usize = 64;
    const LARGE: usize = 16 * 1024;
    let mut cells = Vec::new();
    match scale {
        Scale::Tiny => cells.extend([(1, SMALL, 1), (5, SMALL, 3), (3, 100_000, 4)]),
        Scale::Quick => cells.extend([(64, SMALL, 1), (256, SMALL, 1), (64, LARGE, 4)]),
        Scale::Full => {
            cells.extend([1, 64, 512, 4_096].map(|connections| (connections, SMALL, 1)));
            cells.extend([64, 512].map(|connections| (connections, SMALL, 16)));
            cells.extend([(64, LARGE, 1), (64, LARGE, 16)]);
        }
    }
    let cells = cells.into_iter();
    cells.map(|cell| echo_scenario(cell, scale)).collect()
}

fn echo_scenario((connections, bytes, depth): (usize, usize, usize), scale: Scale) -> Scenario {
    let mut window = Window::of(scale);
    let least = if window.check { 3 } else { 1 };
    if connections * depth >= MANY {
        window.measured *= 5;
    }
    let plan = Echo::new(connections, Talk::Echo(bytes), depth, least);
    let entrants = Setup::new(Service::Echo, window, Field::All).entrants(move |server| {
        let outcome = load::echo(server, plan, window)?;
        Ok(requests(outcome, &[0.5, 0.99, 0.999]))
    });
    let size = if bytes < 1024 { format!("{bytes} B") } else { format!("{} KiB", bytes / 1024) };
    let about = "requests of equal size on all connections, with a fixed number of each connection in \
                 flight: answered in each second of the server's CPU time. The server is alone \
                 on its core, and the clients on another";
    Scenario {
        name: format!("{connections} × {size} × {depth}"),
        parameter: Some(connections as u64),
        figures: figures(about, &["p50", "p99", "p99.9"]),
        entrants,
    }
}

pub(super) fn connections(scale: Scale) -> Vec<Scenario> {
    let (window, least) = (Window::of(scale), scale.pick(20, 100, 500));
    let scenario = |concurrent: usize| {
        let plan = Rate { concurrent, least };
        let setup = Setup::new(Service::Echo, window, Field::All);
        let entrants = setup.entrants(move |server| {
            let outcome = load::rate(server, plan, window)?;
            Ok(requests(outcome, &[0.5, 0.99]))
        });
        let count = Count::AtLeast(least);
        let about = "connect, a request of 64 bytes and its answer, reset: per second of the \
                     server's CPU time";
        Scenario {
            name: format!("{concurrent} concurrent"),
            parameter: Some(concurrent as u64),
            figures: vec![
                Figure { name: "connections", about, unit: Unit::PerCpuSecond, count },
                Figure {
                    name: "connections, wall",
                    about: "the same per second of wall-clock time, which the clients may limit",
                    unit: Unit::PerSecond,
                    count,
                },
                latency("p50"),
                latency("p99"),
            ],
            entrants,
        }
    };
    let cells: &[usize] = if scale == Scale::Full { &[1, 64] } else { &[16] };
    cells.iter().map(|concurrent| scenario(*concurrent)).collect()
}

pub(super) fn pump(scale: Scale) -> Vec<Scenario> {
    let warm_up = scale.pick(0, 1 << 22, 1 << 25);
    let bytes = scale.pick(1 << 20, 1 << 23, 1 << 26);
    let window = Window::of(scale);
    let scenario = |connections: usize| {
        let plan = Pump { connections, warm_up, bytes, check: window.check };
        let setup = Setup::new(Service::Sink, window, Field::All);
        let entrants = setup.entrants(move |server| {
            let outcome = load::pump(server, plan)?;
            let reading = Reading { count: outcome.count, spent: outcome.spent };
            Ok(Sample::new([reading, reading]))
        });
        let count = Count::AtLeast(bytes);
        let about = "bytes that the server reads and discards, per second of its CPU time. It \
                     is paused while the clients send, so that all servers find the same amount";
        let wall = "the same per second of wall-clock time, which the clients limit";
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
