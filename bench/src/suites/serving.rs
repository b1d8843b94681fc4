//! The parts that all suites of servers share: the processes, the cores, the figures.
//!
//! A scenario is a [`Setup`] and a load, which is a closure over a started server.

#[cfg(target_os = "linux")]
pub(crate) use self::linux::latency;
#[cfg(target_os = "linux")]
pub(super) use self::linux::{Field, Setup, every_server, figures, requests};

/// The clients, and the CPU clocks of other processes, need Linux.
#[cfg(not(target_os = "linux"))]
pub(super) fn elsewhere(_: super::Scale) -> Vec<crate::suite::Scenario> {
    use crate::suite::{ContestantId, Entrants, Scenario};

    let mut entrants = Entrants::default();
    for name in crate::backends::NAMES {
        entrants.skip(ContestantId::Core(name), "servers are measured on Linux only");
    }
    let name = "on Linux".to_string();
    vec![Scenario { name, parameter: None, figures: Vec::new(), entrants }]
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::time::Duration;

    use crate::cores::{self, Pinned};
    use crate::load::{Outcome, Window};
    use crate::process::{Launch, ServerProcess};
    use crate::servers::{self, Service};
    use crate::suite::{ContestantId, Count, Entrants, Figure, Sample, Unit};
    use crate::suites::Scale;

    impl Window {
        /// The warm-up of a full run is long enough for a server to touch its memory and for the
        /// kernel to grow its buffers. Results of a quick run are preliminary.
        pub(in crate::suites) fn of(scale: Scale) -> Window {
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

    /// The contestants of a scenario.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(in crate::suites) enum Field {
        /// All of them.
        All,
        /// The loops and the libraries at their best, without select, poll and bare backends.
        Best,
    }

    impl Field {
        /// All at a tiny and at full size; the best in a quick run, which has a minute for
        /// everything.
        pub(in crate::suites) fn of(scale: Scale) -> Field {
            if scale == Scale::Quick { Field::Best } else { Field::All }
        }

        fn has(self, id: ContestantId) -> bool {
            self == Field::All || id.is_best()
        }
    }

    /// A scenario's servers.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::suites) struct Setup {
        service: Service,
        window: Window,
        field: Field,
        threads: usize,
    }

    impl Setup {
        pub(in crate::suites) fn new(service: Service, window: Window, field: Field) -> Setup {
            Setup { service, window, field, threads: 1 }
        }

        /// The same with this number of threads, which are not pinned.
        pub(in crate::suites) fn threads(self, threads: usize) -> Setup {
            Setup { threads, ..self }
        }

        /// Adds the servers, each in a new process per run, under a load.
        pub(in crate::suites) fn entrants(
            self,
            load: impl Fn(&ServerProcess) -> io::Result<Sample> + Clone + 'static,
        ) -> Entrants {
            self.entrants_by_id(move |_, server| load(server))
        }

        /// The same; the load also gets the name of the server.
        pub(in crate::suites) fn entrants_by_id(
            self,
            load: impl Fn(ContestantId, &ServerProcess) -> io::Result<Sample> + Clone + 'static,
        ) -> Entrants {
            let mut entrants = Entrants { warm_up_themselves: true, ..Entrants::default() };
            // Tests run concurrently and must not share one core.
            let pins = !self.window.check && self.threads == 1;
            let cores = if pins { cores::server_and_clients() } else { None };
            for server in servers::all() {
                let id = server.id;
                match (server.serve, servers::lacks(id, self.service)) {
                    (Err(why), _) => entrants.skip(id, why),
                    (Ok(_), Some(why)) if !id.is_variant() => entrants.skip(id, why),
                    (Ok(_), Some(_)) => {}
                    (Ok(_), None) if !self.field.has(id) => {}
                    (Ok(_), None) => {
                        let load = load.clone();
                        let core = cores.map(|(core, _)| core);
                        let launch =
                            Launch { threads: self.threads, ..Launch::new(id, self.service, core) };
                        entrants.enter(id, move || {
                            let _pinned = cores.map(|(_, core)| Pinned::to(core)).transpose()?;
                            load(id, &ServerProcess::launch(&launch)?)
                        });
                    }
                }
            }
            entrants
        }
    }

    /// Every server. Each run starts a process, which needs no warm-up: counts do not get faster.
    pub(in crate::suites) fn every_server(
        run: impl Fn(ContestantId) -> io::Result<Sample> + Copy + 'static,
    ) -> Entrants {
        let mut entrants = Entrants { warm_up_themselves: true, ..Entrants::default() };
        for server in servers::all() {
            let id = server.id;
            match server.serve {
                Err(why) => entrants.skip(id, why),
                Ok(_) => entrants.enter(id, move || run(id)),
            }
        }
        entrants
    }

    /// Two rates and latency quantiles.
    pub(in crate::suites) fn figures(
        about: &'static str,
        quantiles: &[&'static str],
    ) -> Vec<Figure> {
        let count = Count::AtLeast(1);
        let wall = "the same per second of wall-clock time, which the clients may limit";
        let mut figures = vec![
            Figure { name: "requests", about, unit: Unit::PerCpuSecond, count },
            Figure { name: "requests, wall", about: wall, unit: Unit::PerSecond, count },
        ];
        figures.extend(quantiles.iter().map(|name| latency(name)));
        figures
    }

    /// A latency quantile.
    pub(crate) fn latency(name: &'static str) -> Figure {
        let about = match name {
            "p50" => "half of the requests are answered within this time",
            "p99" => "99 of 100 requests are answered within this time",
            _ => "999 of 1,000 requests are answered within this time",
        };
        Figure { name, about, unit: Unit::WallTimeEach, count: Count::AtLeast(1) }
    }

    /// Two rates and the latency quantiles of these shares.
    pub(in crate::suites) fn requests(outcome: Outcome, shares: &[f64]) -> Sample {
        outcome.sample(2, shares)
    }
}
