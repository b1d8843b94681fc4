//! Handlers that do something: compute for some microseconds, or answer later from a timer.

use crate::suite::Suite;
use crate::suites::Scale;

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let about = "servers whose handlers compute, or answer from a timer";
    #[cfg(target_os = "linux")]
    let scenarios = linux::scenarios(scale);
    #[cfg(not(target_os = "linux"))]
    let scenarios = super::serving::elsewhere(scale);
    Suite { name: "handlers", about, scenarios }
}

#[cfg(target_os = "linux")]
mod linux {
    use crate::load::{self, Echo, Talk, Window};
    use crate::servers::Service;
    use crate::suite::Scenario;
    use crate::suites::Scale;
    use crate::suites::serving::{Field, Setup, figures, requests};

    pub(super) fn scenarios(scale: Scale) -> Vec<Scenario> {
        let times: &[u32] = if scale == Scale::Full { &[1, 5, 20] } else { &[5] };
        let about = "requests of 64 bytes, one of each connection in flight; the handler computes \
                     for about this time before it answers: answered in each second of the \
                     server's CPU time";
        let computing = times
            .iter()
            .map(|time| scenario(format!("{time} µs each"), about, Service::Compute(*time), scale));
        let about = "requests of 64 bytes, one of each connection in flight; a timer writes the \
                     answer a millisecond later: answered in each second of the server's CPU time";
        let mut scenarios: Vec<_> = computing.collect();
        scenarios.push(scenario("from a timer".into(), about, Service::Delay, scale));
        scenarios
    }

    fn scenario(name: String, about: &'static str, service: Service, scale: Scale) -> Scenario {
        let window = Window::of(scale);
        let least = if window.check { 3 } else { 1 };
        let plan = Echo::new(scale.pick(3, 64, 64) as usize, Talk::Echo(64), 1, least);
        let setup = Setup::new(service, window, Field::of(scale));
        let entrants = setup
            .entrants(move |server| Ok(requests(load::echo(server, plan, window)?, &[0.5, 0.99])));
        Scenario { name, parameter: None, figures: figures(about, &["p50", "p99"]), entrants }
    }
}
