//! How many system calls and allocations a request costs a server: numbers that repeat exactly
//! on any machine.

use crate::suite::Suite;
use crate::suites::Scale;

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let about = "system calls and allocations of TCP servers for each request";
    #[cfg(target_os = "linux")]
    let scenarios = linux::scenarios(scale);
    #[cfg(not(target_os = "linux"))]
    let scenarios = super::echo::elsewhere(scale);
    Suite { name: "calls", about, scenarios }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    use crate::load::{self, Echo};
    use crate::process::ServerProcess;
    use crate::servers::{self, Service};
    use crate::suite::{Count, Entrants, Figure, Reading, Sample, Scenario, Unit, Who};
    use crate::suites::Scale;

    pub(super) fn scenarios(scale: Scale) -> Vec<Scenario> {
        let (alone, each) = (scale.pick(10, 100, 1_000), scale.pick(2, 4, 50));
        vec![scenario("1 connection", 1, alone), scenario("64 connections", 64, each)]
    }

    fn scenario(name: &str, connections: usize, each: u64) -> Scenario {
        let mut entrants = Entrants::default();
        for server in servers::all() {
            match server.serve {
                Err(why) => entrants.excuse(server.who, why),
                Ok(_) => {
                    let who = server.who;
                    entrants.enter(who, move || run(who, connections, each));
                }
            }
        }
        let count = Count::Exactly(connections as u64 * each);
        let figure = |name, about| Figure { name, about, unit: Unit::CallsEach, count };
        let figures = vec![
            figure(
                "system calls",
                "of the thread that serves, for each request of 64 bytes, one of each \
                 connection in flight. It is traced, and so slow, which lets more requests \
                 arrive between two waits than otherwise",
            ),
            figure("allocations", "of the server, for each such request"),
        ];
        let parameter = Some(connections as u64);
        Scenario { name: name.into(), parameter, figures, entrants }
    }

    fn run(who: Who, connections: usize, each: u64) -> io::Result<Sample> {
        let mut server = ServerProcess::start(who, Service::Echo, None)?;
        let plan = Echo { connections, bytes: 64, depth: 1, least: each };
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
