//! System calls and allocations of a server per request: deterministic counts.

use crate::suite::Suite;
use crate::suites::Scale;

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let about = "system calls and allocations of TCP servers per request";
    #[cfg(target_os = "linux")]
    let scenarios = linux::scenarios(scale);
    #[cfg(not(target_os = "linux"))]
    let scenarios = super::serving::elsewhere(scale);
    Suite { name: "calls", about, scenarios }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    use crate::load::{self, Echo, Talk};
    use crate::process::ServerProcess;
    use crate::servers::Service;
    use crate::suite::{ContestantId, Count, Figure, Reading, Sample, Scenario, Unit};
    use crate::suites::Scale;
    use crate::suites::serving::every_server;

    pub(super) fn scenarios(scale: Scale) -> Vec<Scenario> {
        let (alone, each) = (scale.pick(10, 100, 1_000), scale.pick(2, 4, 50));
        vec![scenario("1 connection", 1, alone), scenario("64 connections", 64, each)]
    }

    fn scenario(name: &str, connections: usize, each: u64) -> Scenario {
        let entrants = every_server(move |id| run(id, connections, each));
        let count = Count::Exactly(connections as u64 * each);
        let figure = |name, about| Figure { name, about, unit: Unit::CallsEach, count };
        let figures = vec![
            figure(
                "system calls",
                "of the thread that serves, for each request of 64 bytes, one of each \
                 connection in flight. It is traced, and so slow, which lets more requests \
                 arrive between two waits than otherwise",
            ),
            figure("allocations", "of the server, per request"),
        ];
        let parameter = Some(connections as u64);
        Scenario { name: name.into(), parameter, figures, entrants }
    }

    fn run(id: ContestantId, connections: usize, each: u64) -> io::Result<Sample> {
        let mut server = ServerProcess::start(id, Service::Echo, None)?;
        let plan = Echo::new(connections, Talk::Echo(64), 1, each);
        let counted = load::counted(&mut server, plan)?;
        let reading = |amount| {
            let mut reading = Reading { count: counted.requests, spent: Default::default() };
            reading.spent.amount = amount;
            reading
        };
        let mut sample = Sample::default();
        match counted.calls {
            Ok(calls) => sample.readings.push(Some(reading(calls))),
            Err(why) => {
                sample.readings.push(None);
                sample.notes.push(format!("system calls are not counted: {why}"));
            }
        }
        sample.readings.push(Some(reading(counted.allocations)));
        Ok(sample)
    }
}
