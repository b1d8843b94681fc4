//! What the command line asks for.

use std::io;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::backends;
use crate::runner::LEAST_ROUNDS;
use crate::servers::Service;
use crate::suite::{Contestant, Suite};
use crate::suites::{self, Scale};

/// Who else there is, by the names to choose them by.
const PEERS: [&str; 9] =
    ["libuv", "libuv-lean", "hand", "mio", "polling", "tokio", "compio", "monoio", "none"];

/// Measures every backend, the loop on top of it and their peers, side by side.
#[derive(Debug, Parser)]
#[command(name = "bench", version, args_conflicts_with_subcommands = true)]
pub struct Options {
    /// Only these suites
    #[arg(short, long = "suite", value_name = "NAME", value_delimiter = ',')]
    suites: Vec<String>,

    /// Only scenarios whose name contains one of these
    #[arg(long = "scenario", value_name = "TEXT", value_delimiter = ',')]
    scenarios: Vec<String>,

    /// Only these of our backends
    #[arg(short, long = "backend", value_name = "NAME", value_delimiter = ',')]
    backends: Vec<String>,

    /// Only these peers: libuv, libuv-lean, hand (what one would write by hand), mio, polling,
    /// tokio, compio, monoio; or none
    #[arg(short, long = "peer", value_name = "NAME", value_delimiter = ',')]
    peers: Vec<String>,

    /// To whom the others are compared [default: libuv, or else what is written by hand]
    #[arg(long, value_name = "CONTESTANT")]
    pub baseline: Option<String>,

    /// How often each contestant runs each scenario, after one run to warm up unless runs do that themselves
    #[arg(short, long, value_name = "N", default_value_t = LEAST_ROUNDS, value_parser = rounds)]
    pub rounds: usize,

    /// Small scenarios, in about one minute (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,

    /// Large scenarios, in about fifteen minutes
    #[arg(long)]
    full: bool,

    /// Name the suites, their scenarios and who runs them, and run nothing
    #[arg(short, long)]
    pub list: bool,

    /// Print every table, not only the scoreboard; so does '--suite'
    #[arg(short, long)]
    tables: bool,

    /// Where to write report.html and results.json [default: bench in Cargo's target folder]
    #[arg(short, long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// Write the results to this file instead, and no page; '-' is the standard output
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    pub json: Option<PathBuf>,

    /// What else to do
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What the program does besides measuring.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Tells what changed beyond the noise between two results; status 1 if anything got worse
    Compare {
        /// Results of before
        old: PathBuf,
        /// Results of now
        new: PathBuf,
    },
    /// Runs one scenario of a suite once, and prints what it found
    Once {
        /// The suite
        suite: String,
        /// On which of our backends: under uv-core's loop if the suite has that, else bare
        #[arg(short, long, value_name = "NAME")]
        backend: Option<String>,
        /// Or who else runs it: a contestant's whole name, as '--list' has it
        #[arg(short, long, value_name = "CONTESTANT", conflicts_with = "backend")]
        who: Option<String>,
        /// The first scenario whose name contains this [default: the first]
        #[arg(long, value_name = "TEXT")]
        scenario: Option<String>,
        /// The size that '--full' has
        #[arg(long)]
        full: bool,
        /// As one flat line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Draws results that were written before
    Report {
        /// The results
        results: PathBuf,
        /// Where to write the page
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
        /// Where to write the chart of the costs of waiting, as an SVG file
        #[arg(long, value_name = "FILE")]
        chart: Option<PathBuf>,
    },
    /// Serves TCP on 127.0.0.1 with one thread until killed
    Serve {
        /// What to do with what is read
        service: Service,
        /// Which of our backends is under uv-core's loop [default: the best that works here]
        #[arg(short, long, value_name = "NAME")]
        backend: Option<String>,
        /// The port; 0 is any that is free
        #[arg(short, long, value_name = "N", default_value_t = 7000)]
        port: u16,
        /// Who serves, if it is not uv-core: a contestant's whole name
        #[arg(long, hide = true)]
        who: Option<String>,
        /// The core to stay on
        #[arg(long, hide = true)]
        core: Option<usize>,
        /// Answer on the standard streams, and end with them
        #[arg(long, hide = true, requires = "who")]
        supervised: bool,
    },
}

fn rounds(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(rounds) if rounds >= LEAST_ROUNDS => Ok(rounds),
        Ok(_) => Err(format!("fewer than {LEAST_ROUNDS} rounds allow no conclusion")),
        Err(_) => Err("not a number".into()),
    }
}

impl Options {
    /// How large the scenarios are.
    pub fn scale(&self) -> Scale {
        if self.full { Scale::Full } else { Scale::Quick }
    }

    /// Whether to print every table.
    pub fn tables(&self) -> bool {
        self.tables || !self.suites.is_empty()
    }

    /// The folder for the page and the results.
    pub fn out(&self) -> PathBuf {
        let target = || std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into());
        self.out.clone().unwrap_or_else(|| PathBuf::from(target()).join("bench"))
    }

    /// The suites that were chosen, with the contestants that were.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for names that do not exist or choices that leave nothing.
    pub fn select(&self) -> io::Result<Vec<Suite>> {
        self.check()?;
        // Someone who names a backend wants it everywhere.
        let which =
            if self.backends.is_empty() { backends::Which::Default } else { backends::Which::All };
        let mut suites = suites::all(self.scale(), which);
        suites
            .retain(|suite| self.suites.is_empty() || self.suites.iter().any(|n| n == suite.name));
        for suite in &mut suites {
            suite.scenarios.retain(|scenario| {
                let mut parts = self.scenarios.iter();
                self.scenarios.is_empty() || parts.any(|part| scenario.name.contains(part.as_str()))
            });
        }
        suites.retain(|suite| !suite.scenarios.is_empty());
        for scenario in suites.iter_mut().flat_map(|suite| &mut suite.scenarios) {
            scenario.entrants.contestants.retain(|contestant| self.wants(contestant));
            let backends = &self.backends;
            scenario.entrants.absent.retain(|absent| {
                backends.is_empty() || backends.iter().any(|name| absent.who.ends_with(name))
            });
        }
        let contestants =
            |suite: &Suite| suite.scenarios.iter().all(|s| s.entrants.contestants.is_empty());
        if suites.iter().all(contestants) {
            return Err(invalid("nobody is left to run: '--list' names who there is".into()));
        }
        Ok(suites)
    }

    fn wants(&self, contestant: &Contestant) -> bool {
        let among = |names: &[String], name| names.is_empty() || names.iter().any(|n| n == name);
        let backend = contestant.who.backend().is_none_or(|name| among(&self.backends, name));
        backend && contestant.who.peer().is_none_or(|name| among(&self.peers, name))
    }

    fn check(&self) -> io::Result<()> {
        known("suite", &self.suites, &suites::NAMES)?;
        known("backend", &self.backends, &backends::NAMES)?;
        known("peer", &self.peers, &PEERS)
    }
}

fn known(what: &str, wanted: &[String], names: &[&str]) -> io::Result<()> {
    match wanted.iter().find(|wanted| !names.contains(&wanted.as_str())) {
        Some(wanted) => {
            Err(invalid(format!("no {what} is called '{wanted}': {} are", names.join(", "))))
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
    fn names_that_do_not_exist_are_refused() {
        let options = Options::parse_from(["bench", "--suite", "tea"]);
        assert_eq!(options.select().unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(Options::try_parse_from(["bench", "--rounds", "3"]).is_err());
    }

    #[test]
    fn filters_leave_what_was_asked_for() {
        let options = Options::parse_from(["bench", "-s", "turns", "-b", "poll", "-p", "mio"]);
        let suites = options.select().unwrap();
        assert_eq!(suites.len(), 1);
        for contestant in suites.iter().flat_map(|s| &s.scenarios[0].entrants.contestants) {
            assert!(["uv-core poll", "mio"].contains(&contestant.who.to_string().as_str()));
        }
    }
}
