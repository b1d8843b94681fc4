//! Latency under a load that does not depend on the server: constant and Poisson arrivals, at
//! shares of the rate that each server can answer.

use crate::suite::Suite;
use crate::suites::Scale;

/// The suite.
pub fn suite(scale: Scale) -> Suite {
    let about = "latency of echo servers at shares of their own maximum rate, without coordinated \
                 omission";
    #[cfg(target_os = "linux")]
    let scenarios = linux::scenarios(scale);
    #[cfg(not(target_os = "linux"))]
    let scenarios = super::serving::elsewhere(scale);
    Suite { name: "open", about, scenarios }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::io;
    use std::rc::Rc;
    use std::time::Duration;

    use crate::load::{self, Arrivals, Echo, Open, Talk, Window};
    use crate::process::ServerProcess;
    use crate::servers::Service;
    use crate::suite::{ContestantId, Count, Figure, Scenario, Unit};
    use crate::suites::Scale;
    use crate::suites::serving::{Field, Setup, latency};

    /// The maximum of each server, measured once: all loads of a server are shares of the same
    /// rate.
    type Maxima = Rc<RefCell<HashMap<ContestantId, f64>>>;

    pub(super) fn scenarios(scale: Scale) -> Vec<Scenario> {
        let maxima = Maxima::default();
        let loads: &[u64] = match scale {
            Scale::Tiny => &[50],
            Scale::Quick => &[50, 90],
            Scale::Full => &[30, 50, 70, 90],
        };
        let kinds: &[Arrivals] = match scale {
            Scale::Quick => &[Arrivals::Poisson],
            _ => &[Arrivals::Constant, Arrivals::Poisson],
        };
        let all = kinds.iter().flat_map(|kind| loads.iter().map(|load| (*kind, *load)));
        all.map(|(arrivals, load)| scenario(arrivals, load, scale, &maxima)).collect()
    }

    fn scenario(arrivals: Arrivals, percent: u64, scale: Scale, maxima: &Maxima) -> Scenario {
        // The tail needs many requests: p99.9 of a run, and p99.99 of all rounds together.
        let (warm_up, measured) = (scale.pick(0, 3, 20), scale.pick(2, 20, 150));
        let window = Window {
            warm_up: Duration::from_millis(warm_up),
            measured: Duration::from_millis(measured),
            check: scale == Scale::Tiny,
        };
        let plan = Echo::new(scale.pick(4, 64, 64) as usize, Talk::Echo(64), 1, 1);
        // At eight loads, only those that a user would choose.
        let field = if scale == Scale::Tiny { Field::All } else { Field::Best };
        let setup = Setup::new(Service::Echo, window, field);
        let maxima = Rc::clone(maxima);
        let entrants = setup.entrants_by_id(move |id, server| {
            let most = most(&maxima, id, server, plan, window)?;
            let load = Open { rate: most * percent as f64 / 100.0, arrivals };
            Ok(load::open(server, plan, load, window)?.sample(1, &[0.5, 0.99, 0.999]))
        });
        let name = match arrivals {
            Arrivals::Constant => format!("constant, {percent} %"),
            Arrivals::Poisson => format!("Poisson, {percent} %"),
        };
        let about = "requests of 64 bytes on 64 connections, sent at times that do not depend on \
                     the server: constant gaps, or exponentially distributed ones. The rate is \
                     this share of what the same server answered in a closed loop";
        let rate =
            Figure { name: "rate, wall", about, unit: Unit::PerSecond, count: Count::AtLeast(1) };
        let mut figures = vec![rate];
        figures.extend(["p50", "p99", "p99.9"].map(latency));
        Scenario { name, parameter: Some(percent), figures, entrants }
    }

    /// The maximum rate of a server: the best of three.
    fn most(
        maxima: &Maxima,
        id: ContestantId,
        server: &ServerProcess,
        plan: Echo,
        window: Window,
    ) -> io::Result<f64> {
        if let Some(known) = maxima.borrow().get(&id) {
            return Ok(*known);
        }
        let mut most = 1.0_f64;
        for _ in 0..if window.check { 1 } else { 3 } {
            most = most.max(load::maximum(server, plan, window)?);
        }
        maxima.borrow_mut().insert(id, most);
        Ok(most)
    }
}
