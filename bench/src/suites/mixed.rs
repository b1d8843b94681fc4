//! Connections that differ: many idle ones, slow readers, a bulk transfer beside small requests.

use crate::suite::Suite;
use crate::suites::Scale;

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let about = "echo servers with idle, slow or greedy connections beside the measured ones";
    #[cfg(target_os = "linux")]
    let scenarios = linux::scenarios(scale);
    #[cfg(not(target_os = "linux"))]
    let scenarios = super::serving::elsewhere(scale);
    Suite { name: "mixed", about, scenarios }
}

#[cfg(target_os = "linux")]
mod linux {
    use crate::load::{self, Echo, Group, Role, Talk, Window};
    use crate::servers::Service;
    use crate::suite::{ContestantId, Scenario};
    use crate::suites::Scale;
    use crate::suites::serving::{Field, Setup, figures, requests};

    const SMALL: Talk = Talk::Echo(64);

    pub(super) fn scenarios(scale: Scale) -> Vec<Scenario> {
        vec![idle(scale), slow(scale), neighbour(scale)]
    }

    /// Most connections of a server are idle.
    fn idle(scale: Scale) -> Scenario {
        // Descriptors are limited to 20,000 on common machines, and a connection takes one on
        // each side.
        let (busy, idle) = match scale {
            Scale::Tiny => (2, 20),
            Scale::Quick => (50, 200),
            Scale::Full => (100, 10_000),
        };
        let beside = Group { connections: idle, talk: SMALL, depth: 1, role: Role::Idle };
        let about = "requests of 64 bytes on the busy connections, one of each in flight, while \
                     the others are idle: answered in each second of the server's CPU time";
        let name = format!("{idle} idle, {busy} busy");
        scenario(name, about, Group::measured(busy, SMALL, 1), beside, scale)
    }

    /// Some clients do not read their answers: the server must stop reading from these, and go on
    /// with the others.
    fn slow(scale: Scale) -> Scenario {
        let (busy, slow) = (scale.pick(2, 64, 64) as usize, scale.pick(1, 16, 16) as usize);
        let talk = Talk::Echo(16 * 1024);
        let depth = scale.pick(16, 64, 512) as usize;
        let beside = Group { connections: slow, talk, depth, role: Role::Slow };
        let about = "requests of 64 bytes, one of each connection in flight, while other clients \
                     send 8 MiB each (1 MiB in a quick run) and do not read the answers: answered in each second of the \
                     server's CPU time";
        let name = format!("{slow} slow readers");
        let mut scenario = scenario(name, about, Group::measured(busy, SMALL, 1), beside, scale);
        // It has no back-pressure: unsent answers keep all of its receive buffers.
        let ring = ContestantId::Hand("uring");
        scenario.entrants.contestants.retain(|contestant| contestant.id != ring);
        scenario.entrants.skip(ring, "slow readers would keep all buffers of its ring");
        scenario
    }

    /// One client has as much in flight as it can: what the others wait for it.
    fn neighbour(scale: Scale) -> Scenario {
        let busy = scale.pick(2, 64, 64) as usize;
        let (talk, role) = (Talk::Echo(64 * 1024), Role::Neighbour);
        let beside = Group { connections: 1, talk, depth: 16, role };
        let about = "requests of 64 bytes, one of each connection in flight, beside one connection \
                     with sixteen of 64 KiB in flight: the small ones that are answered in each \
                     second of the server's CPU time, and their latency";
        scenario("bulk neighbour".into(), about, Group::measured(busy, SMALL, 1), beside, scale)
    }

    fn scenario(
        name: String,
        about: &'static str,
        main: Group,
        beside: Group,
        scale: Scale,
    ) -> Scenario {
        let window = Window::of(scale);
        let least = if window.check { 3 } else { 1 };
        let plan = Echo { main, beside: Some(beside), least };
        let setup = Setup::new(Service::Echo, window, Field::of(scale));
        let entrants = setup.entrants(move |server| {
            Ok(requests(load::echo(server, plan, window)?, &[0.5, 0.99, 0.999]))
        });
        let figures = figures(about, &["p50", "p99", "p99.9"]);
        Scenario { name, parameter: None, figures, entrants }
    }
}
