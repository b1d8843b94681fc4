//! The command line.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::backends;
use crate::network::Network;
use crate::plan;
use crate::runner::LEAST_ROUNDS;
use crate::servers::Service;
use crate::suite::{Contestant, Suite};
use crate::suites::{self, Scale};

/// The names of `--peer`.
const PEERS: [&str; 23] = [
    "libuv",
    "libuv-write",
    "libuv-malloc",
    "libuv-send",
    "libuv-uring",
    "hand",
    "mio",
    "mio-drain",
    "polling",
    "tokio",
    "tokio-buffers",
    "tokio-local",
    "tokio-uring",
    "smol",
    "smol-readable",
    "compio",
    "compio-4k",
    "monoio",
    "monoio-4k",
    "glommio",
    "glommio-buffered",
    "fio",
    "none",
];

/// Benchmarks every backend, the loop on top of it and comparable libraries.
#[derive(Debug, Parser)]
#[command(name = "bench", version, args_conflicts_with_subcommands = true)]
pub struct Options {
    /// Only these suites
    #[arg(short, long = "suite", value_name = "NAME", value_delimiter = ',')]
    suites: Vec<String>,

    /// Only scenarios whose name contains one of these
    #[arg(long = "scenario", value_name = "TEXT", value_delimiter = ',')]
    scenarios: Vec<String>,

    /// Only these backends
    #[arg(short, long = "backend", value_name = "NAME", value_delimiter = ',')]
    backends: Vec<String>,

    /// Only these peers: libuv, hand (hand-written code), mio, polling, tokio, smol, compio,
    /// monoio, glommio, fio; other styles of use: libuv-write, libuv-malloc, libuv-send, mio-drain,
    /// tokio-buffers, tokio-local, tokio-uring, smol-readable, compio-4k, monoio-4k, glommio-buffered; or none
    #[arg(short, long = "peer", value_name = "NAME", value_delimiter = ',')]
    peers: Vec<String>,

    /// The contestant that others are compared with [default: libuv, or else hand-written code]
    #[arg(long, value_name = "CONTESTANT")]
    pub baseline: Option<String>,

    /// Runs of each contestant in each scenario, after one warm-up run if the scenario needs one
    /// [default: 7]
    #[arg(short, long, value_name = "N", value_parser = rounds)]
    rounds: Option<usize>,

    /// The time of the run: scenarios that need more than their share of it run fewer rounds
    /// [default: 1, or 20 with '--full'; no limit with '--suite', '--scenario' or '--rounds']
    #[arg(long, value_name = "MINUTES", value_parser = minutes)]
    budget: Option<Duration>,

    /// Small scenarios, in about a minute (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Large scenarios, in about twenty minutes
    #[arg(long)]
    full: bool,

    /// List the suites, their scenarios and contestants, and run nothing
    #[arg(short, long)]
    pub list: bool,

    /// Print every table, not only the scoreboard; implied by '--suite'
    #[arg(short, long)]
    tables: bool,

    /// The folder for report.html and results.json [default: bench in Cargo's target folder]
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// Write the results to this file instead, without a page; '-' is the standard output
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    pub json: Option<PathBuf>,

    /// Run clients and servers in two network namespaces joined by veth (needs root and iproute2)
    #[arg(long)]
    namespaces: bool,

    /// The delay of each direction between the namespaces, in microseconds (netem)
    #[arg(long, value_name = "US", default_value_t = 0, requires = "namespaces")]
    delay: u64,

    /// A subcommand
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Prints the changes beyond the noise between two results; status 1 if anything got worse
    Compare {
        /// The old results
        old: PathBuf,
        /// The new results
        new: PathBuf,
    },
    /// Runs one scenario of a suite once, and prints its figures
    Once {
        /// The suite
        suite: String,
        /// The backend: under uv-core's loop if the suite has that, else bare
        #[arg(short, long, value_name = "NAME")]
        backend: Option<String>,
        /// Or another contestant: its full name, as printed by '--list'
        #[arg(short, long, value_name = "CONTESTANT", conflicts_with = "backend")]
        contestant: Option<String>,
        /// The first scenario whose name contains this [default: the first]
        #[arg(long, value_name = "TEXT")]
        scenario: Option<String>,
        /// The size of '--full'
        #[arg(long)]
        full: bool,
        /// As one flat line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Counts the instructions and system calls of hot paths, and compares them with the baseline
    /// in the repository; status 1 if any costs over 3 % more. Needs valgrind
    #[cfg(target_os = "linux")]
    Count(crate::count::CountOptions),
    /// Runs one of these paths in this process
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Counted(crate::count::CountedOptions),
    /// Runs mixed traffic and checks every byte, descriptors and memory; status 1 if any is wrong
    Soak(crate::soak::SoakOptions),
    /// Copies the standard input to the standard output
    #[command(hide = true)]
    SoakChild,
    /// Draws charts of saved results
    Report {
        /// The results
        results: PathBuf,
        /// The file for the page
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        /// The SVG file for the chart of wait costs
        #[arg(long, value_name = "FILE")]
        chart: Option<PathBuf>,
    },
    /// Loads a server that 'bench serve' runs, on this or another host: closed and open loop
    #[cfg(target_os = "linux")]
    Drive(crate::drive::DriveOptions),
    /// Serves TCP with one thread until killed
    Serve {
        /// The service: echo, sink, http, delay or compute-N
        service: Service,
        /// The backend of uv-core's loop [default: the best one on this machine]
        #[arg(short, long, value_name = "NAME")]
        backend: Option<String>,
        /// The port; 0 selects a free one
        #[arg(short, long, value_name = "N", default_value_t = 7000)]
        port: u16,
        /// The address to listen at; another than the default lets other hosts connect
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
        host: IpAddr,
        /// The server, if it is not uv-core: a contestant's full name
        #[arg(short, long, value_name = "CONTESTANT")]
        contestant: Option<String>,
        /// The core to pin the server to
        #[arg(long, hide = true)]
        core: Option<usize>,
        /// Report counters on the standard streams, and exit when they close
        #[arg(long, hide = true, requires = "contestant")]
        supervised: bool,
        /// The number of threads, each with its loop
        #[arg(long, hide = true, default_value_t = 1)]
        threads: usize,
        /// Exit when the first connection ends
        #[arg(long, hide = true)]
        once: bool,
    },
}

fn rounds(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rounds) if rounds >= LEAST_ROUNDS => Ok(rounds),
        Ok(_) => Err(format!("at least {LEAST_ROUNDS} rounds are needed for a conclusion")),
        Err(_) => Err("not a number".into()),
    }
}

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes: f64 = text.parse().map_err(|_| "not a number")?;
    Duration::try_from_secs_f64(60.0 * minutes).map_err(|error| error.to_string())
}

impl Options {
    /// The runs of each contestant in each scenario.
    pub fn rounds(&self) -> usize {
        self.rounds.unwrap_or(LEAST_ROUNDS)
    }

    /// The time of the run, if it is limited: by the user, or if nothing was selected.
    pub fn budget(&self) -> Option<Duration> {
        let everything =
            self.suites.is_empty() && self.scenarios.is_empty() && self.rounds.is_none();
        let usual = if self.full { plan::FULL } else { plan::QUICK };
        self.budget.or(everything.then_some(usual))
    }

    /// The size of the scenarios.
    pub fn scale(&self) -> Scale {
        if self.full { Scale::Full } else { Scale::Quick }
    }

    /// The network between clients and servers.
    pub fn network(&self) -> Network {
        match self.namespaces {
            true => Network::Namespaces { delay_us: self.delay },
            false => Network::Loopback,
        }
    }

    /// Whether to print every table.
    pub fn tables(&self) -> bool {
        self.tables || !self.suites.is_empty()
    }

    /// A note on the scenarios that a quick run omits, and how to run them.
    pub fn left_out(&self) -> Option<String> {
        let everything = self.suites.is_empty() && self.scale() == Scale::Quick;
        everything.then(|| {
            let servers = match self.backends.is_empty() && self.peers.is_empty() {
                true => {
                    "; of the servers select, poll and other styles of use than the best of each \
                     library ('--backend', '--peer' or '--full')"
                }
                false => "",
            };
            format!(
                "Left out of a quick run: the suite 'instructions', which takes minutes ('--suite \
                 instructions' or '--full'){servers}; larger numbers of connections, sources, \
                 loads and reads in flight ('--full')."
            )
        })
    }

    /// The folder for the page and the results.
    pub fn out(&self) -> PathBuf {
        let target = || std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
        self.out.clone().unwrap_or_else(|| PathBuf::from(target()).join("bench"))
    }

    /// The selected suites with the selected contestants.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for unknown names and for an empty selection.
    pub fn select(&self) -> io::Result<Vec<Suite>> {
        self.check()?;
        // A named backend is measured in every suite.
        let which =
            if self.backends.is_empty() { backends::Which::Default } else { backends::Which::All };
        let mut suites = suites::all(self.scale(), which);
        suites.retain(|suite| match self.suites.is_empty() {
            // It takes longer than all others of a quick run.
            true => self.full || self.list || suite.name != "instructions",
            false => self.suites.iter().any(|name| name == suite.name),
        });
        for suite in &mut suites {
            suite.scenarios.retain(|scenario| {
                let mut parts = self.scenarios.iter();
                self.scenarios.is_empty() || parts.any(|part| scenario.name.contains(part.as_str()))
            });
        }
        suites.retain(|suite| !suite.scenarios.is_empty());
        if suites.is_empty() {
            let wanted = self.scenarios.join("' or '");
            return Err(invalid(format!(
                "no scenario of the selected suites has '{wanted}' in its name: '--list' prints \
                 them, with '--full' those of a full run"
            )));
        }
        for scenario in suites.iter_mut().flat_map(|suite| &mut suite.scenarios) {
            scenario.entrants.contestants.retain(|contestant| self.wants(contestant));
            let backends = &self.backends;
            scenario.entrants.absent.retain(|absent| {
                backends.is_empty() || backends.iter().any(|name| absent.id.ends_with(name))
            });
        }
        if self.scale() == Scale::Quick && self.backends.is_empty() && self.peers.is_empty() {
            keep_the_best(&mut suites);
        }
        let contestants =
            |suite: &Suite| suite.scenarios.iter().all(|s| s.entrants.contestants.is_empty());
        if suites.iter().all(contestants) {
            return Err(invalid(
                "no contestant is left to run: '--list' prints all of them".into(),
            ));
        }
        self.check_baseline(&suites)?;
        Ok(suites)
    }

    fn wants(&self, contestant: &Contestant) -> bool {
        let among = |names: &[String], name| names.is_empty() || names.iter().any(|n| n == name);
        let backend = contestant.id.backend().is_none_or(|name| among(&self.backends, name));
        backend && contestant.id.peer().is_none_or(|name| among(&self.peers, name))
    }

    /// Refuses a baseline that runs nowhere: the ratios would be to something else.
    fn check_baseline(&self, suites: &[Suite]) -> io::Result<()> {
        let Some(wanted) = &self.baseline else { return Ok(()) };
        let scenarios = suites.iter().flat_map(|suite| &suite.scenarios);
        let all = scenarios.flat_map(|scenario| &scenario.entrants.contestants);
        let mut names: Vec<String> = all.map(|contestant| contestant.id.to_string()).collect();
        names.sort_unstable();
        names.dedup();
        if names.contains(wanted) {
            return Ok(());
        }
        let names = names.join(", ");
        Err(invalid(format!("the baseline '{wanted}' does not run here: use one of {names}")))
    }

    fn check(&self) -> io::Result<()> {
        known("suite", &self.suites, &suites::NAMES)?;
        known("backend", &self.backends, &backends::NAMES)?;
        known("peer", &self.peers, &PEERS)
    }
}

/// Leaves the others to full runs, and to those that name them.
fn keep_the_best(suites: &mut [Suite]) {
    let large = |suite: &&mut Suite| ["echo", "connect", "pump"].contains(&suite.name);
    for scenario in suites.iter_mut().filter(large).flat_map(|suite| &mut suite.scenarios) {
        scenario.entrants.contestants.retain(|contestant| contestant.id.is_best());
    }
}

fn known(what: &str, wanted: &[String], names: &[&str]) -> io::Result<()> {
    match wanted.iter().find(|wanted| !names.contains(&wanted.as_str())) {
        Some(wanted) => {
            Err(invalid(format!("unknown {what} '{wanted}': use {}", names.join(", "))))
        }
        None => Ok(()),
    }
}

fn invalid(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
    }

    #[test]
    fn unknown_names_are_rejected() {
        let options = Options::parse_from(["bench", "--suite", "tea"]);
        assert_eq!(options.select().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(Options::try_parse_from(["bench", "--rounds", "3"]).is_err());
        let refusal = |args: &[&str]| {
            let args = ["bench", "-s", "iterations"].iter().chain(args);
            Options::parse_from(args).select().unwrap_err().to_string()
        };
        let words = refusal(&["--scenario", "tea"]);
        assert!(words.contains("has 'tea' in its name"), "{words}");
        let words = refusal(&["--baseline", "tea"]);
        assert!(words.contains("'tea' does not run here: use one of"), "{words}");
        assert!(words.contains("uv-core poll"), "{words}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_quick_run_has_the_best_and_those_that_are_named() {
        let runs = |args: &[&str], id: &str| {
            let args = ["bench", "-s", "connect"].iter().chain(args);
            let suites = Options::parse_from(args).select().unwrap();
            let all = &suites[0].scenarios[0].entrants.contestants;
            all.iter().any(|contestant| contestant.id.to_string() == id)
        };
        assert!(runs(&[], "uv-core epoll") && runs(&[], "tokio"));
        assert!(!runs(&[], "uv-core poll") && !runs(&[], "tokio-buffers"));
        assert!(runs(&["-b", "poll"], "uv-core poll"));
        assert!(runs(&["-p", "tokio-buffers"], "tokio-buffers"));
        assert!(runs(&["--full"], "tokio-buffers"));
    }

    #[test]
    fn a_selection_is_measured_without_haste() {
        let budget = |args: &[&str]| {
            let args = ["bench"].iter().chain(args);
            Options::try_parse_from(args).map(|options| options.budget())
        };
        assert_eq!(budget(&[]).unwrap(), Some(plan::QUICK));
        assert_eq!(budget(&["-b", "epoll"]).unwrap(), Some(plan::QUICK));
        assert_eq!(budget(&["--full"]).unwrap(), Some(plan::FULL));
        for selection in [["-s", "echo"], ["--scenario", "64"], ["--rounds", "9"]] {
            assert_eq!(budget(&selection).unwrap(), None);
        }
        let half = Some(Duration::from_secs(30));
        assert_eq!(budget(&["-s", "echo", "--budget", "0.5"]).unwrap(), half);
        for wrong in ["-1", "tea", "NaN"] {
            assert!(budget(&["--budget", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn filters_keep_the_selected_contestants() {
        let options = Options::parse_from(["bench", "-s", "iterations", "-b", "poll", "-p", "mio"]);
        let suites = options.select().unwrap();
        assert_eq!(suites.len(), 1);
        for contestant in suites.iter().flat_map(|s| &s.scenarios[0].entrants.contestants) {
            assert!(["uv-core poll", "mio"].contains(&contestant.id.to_string().as_str()));
        }
    }
}
