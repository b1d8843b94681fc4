//! Idle connections.

use std::io;

use crate::load::{self, Echo, Talk};
use crate::process::ServerProcess;
use crate::servers::Service;
use crate::suite::{ContestantId, Count, Figure, Reading, Sample, Scenario, Unit};
use crate::suites::serving::every_server;

/// Memory grows by pages: smaller differences are not measurable.
const PAGE: u64 = 4_096;

pub(super) fn scenario(count: u64) -> Scenario {
    let entrants = every_server(move |id| run(id, count));
    let figure = Figure {
        name: "idle connection",
        about: "a connection to a TCP server that is idle after one request of 64 bytes: \
                what the server's process has grown by, a page at least. What the kernel keeps is \
                not in it",
        unit: Unit::BytesEach,
        count: Count::Exactly(count),
    };
    let name = format!("{count} connections");
    Scenario { name, parameter: Some(count), figures: vec![figure], entrants }
}

fn run(id: ContestantId, count: u64) -> io::Result<Sample> {
    let server = ServerProcess::start(id, Service::Echo, None)?;
    // The first connection allocates the shared buffers.
    let plan = |connections| Echo::new(connections, Talk::Echo(64), 1, 1);
    let first = load::idle(&server, plan(1))?;
    let before = server.memory()?;
    let others = load::idle(&server, plan(count as usize))?;
    let after = server.memory()?;
    let mut reading = Reading { count: others.connections() as u64, spent: Default::default() };
    reading.spent.amount = after.saturating_sub(before).max(PAGE);
    drop(first);
    Ok(Sample::new([reading]))
}
