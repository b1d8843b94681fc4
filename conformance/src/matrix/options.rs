//! The command line.

use std::io;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;

use clap::{Args, Parser, Subcommand};

use super::{Candidate, Entry};
use crate::POINTS;

/// Runs the conformance suite on every backend that this machine can run.
#[derive(Debug, Default, Parser)]
#[command(name = "conformance", version, subcommand_negates_reqs = true)]
pub struct Options {
    /// Only cases whose name (group::case) contains one of these
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,

    /// The same as a FILTER
    #[arg(long = "case", value_name = "FILTER", value_delimiter = ',')]
    case_filters: Vec<String>,

    /// No cases whose name contains one of these
    #[arg(long = "skip", value_name = "FILTER", value_delimiter = ',')]
    skipped: Vec<String>,

    /// Only these backends
    #[arg(short, long = "backend", value_name = "NAME", value_delimiter = ',')]
    backends: Vec<String>,

    /// Only these points of the contract
    #[arg(short, long = "point", value_name = "N", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=POINTS.len() as i64))]
    points: Vec<u8>,

    /// Name the cases and run none
    #[arg(short, long, conflicts_with = "json")]
    pub(super) list: bool,

    /// Write one JSON document instead of a table
    #[arg(long)]
    pub(super) json: bool,

    /// How many cases to run at a time [default: four per core, since most of them wait]
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    /// Run the cases of the loop over backends with faults, once for each seed (7, or 1-200)
    #[arg(long, value_name = "SEEDS", value_parser = seeds)]
    pub(super) faulty: Option<RangeInclusive<u64>>,

    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Runs one case in this process and writes its outcome.
    #[command(name = "__run-one", hide = true)]
    Child { backend: String, case: String },
    /// Runs random programs, and prints the shortest that fails
    Fuzz(FuzzOptions),
}

/// Which random programs to run.
#[derive(Clone, Debug, Args)]
pub(super) struct FuzzOptions {
    /// Only on these backends
    #[arg(short, long = "backend", value_name = "NAME", value_delimiter = ',')]
    pub(super) backends: Vec<String>,

    /// How many programs to run on each backend
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(super) seeds: u64,

    /// The seed of the first program
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(super) from: u64,

    /// Only the program of this seed
    #[arg(long, conflicts_with_all = ["from", "seeds"])]
    pub(super) seed: Option<u64>,

    /// Start no program on a backend after as many minutes
    #[arg(long, value_name = "MINUTES")]
    pub(super) minutes: Option<f64>,

    /// Over backends with faults
    #[arg(long)]
    pub(super) faulty: bool,
}

/// The selected backends, with their selected cases.
pub(super) type Selection<'a> = Vec<(&'a Candidate, Vec<&'a Entry>)>;

impl Options {
    /// Parses the arguments of this process. Exits with status 2 if they are invalid.
    pub fn from_command_line() -> Options {
        Options::parse()
    }

    /// Parses `args`, without the program's name.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, with the cause and the remedy.
    pub fn from_args<'a>(args: impl IntoIterator<Item = &'a str>) -> io::Result<Options> {
        Options::try_parse_from(["conformance"].into_iter().chain(args))
            .map_err(|error| invalid(error.to_string()))
    }

    /// The backend and the case to run, if this process is a child.
    pub(super) fn child(&self) -> Option<(&str, &str)> {
        match &self.role {
            Some(Role::Child { backend, case }) => Some((backend, case)),
            Some(Role::Fuzz(_)) | None => None,
        }
    }

    /// The random programs to run, if that was asked for.
    pub(super) fn fuzz(&self) -> Option<&FuzzOptions> {
        match &self.role {
            Some(Role::Fuzz(options)) => Some(options),
            Some(Role::Child { .. }) | None => None,
        }
    }

    /// The number of cases to run concurrently.
    pub(super) fn jobs(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
        self.jobs.map_or_else(|| 4 * cores().min(8), NonZeroUsize::get)
    }

    /// The selection to run.
    pub(super) fn select<'a>(&self, candidates: &'a [Candidate]) -> io::Result<Selection<'a>> {
        self.check_backends(candidates)?;
        let mut selection = Selection::new();
        for candidate in candidates.iter().filter(|candidate| self.wants_backend(candidate)) {
            if let Ok(cases) = candidate.cases() {
                selection.push((candidate, cases.iter().filter(|case| self.wants(case)).collect()));
            }
        }
        if selection.is_empty() {
            return Err(invalid("no backend can run here".into()));
        }
        if selection.iter().all(|(_, cases)| cases.is_empty()) {
            let filters: Vec<_> = self.filters().map(|filter| format!("'{filter}'")).collect();
            let mut what = filters.join(" or ");
            if !self.points.is_empty() {
                let points: Vec<_> = self.points.iter().map(u8::to_string).collect();
                what = format!("{what} in point {}", points.join(", "));
            }
            return Err(invalid(format!("no case matches {what}: '--list' names them all")));
        }
        Ok(selection)
    }

    /// Checks that each backend selected by name exists and can run.
    fn check_backends(&self, candidates: &[Candidate]) -> io::Result<()> {
        for wanted in &self.backends {
            match candidates.iter().find(|candidate| candidate.name() == wanted) {
                None => {
                    let known: Vec<_> = candidates.iter().map(Candidate::name).collect();
                    let known = known.join(", ");
                    return Err(invalid(format!("no backend is called '{wanted}': {known} are")));
                }
                Some(candidate) => {
                    candidate
                        .cases()
                        .map_err(|why| invalid(format!("{wanted} cannot run here: {why}")))?;
                }
            }
        }
        Ok(())
    }

    /// True if this backend was selected, or none was.
    pub(super) fn wants_backend(&self, candidate: &Candidate) -> bool {
        self.backends.is_empty() || self.backends.iter().any(|name| name == candidate.name())
    }

    fn wants(&self, case: &Entry) -> bool {
        let mut filters = self.filters().peekable();
        (self.points.is_empty() || self.points.contains(&case.point()))
            && !self.skipped.iter().any(|filter| case.path().contains(filter))
            && (filters.peek().is_none() || filters.any(|filter| case.path().contains(filter)))
    }

    fn filters(&self) -> impl Iterator<Item = &str> {
        self.filters.iter().chain(&self.case_filters).map(String::as_str)
    }
}

/// Parses a seed, or the first and the last of several.
fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok(first..=last),
        _ => Err("write a seed, as 7, or the first and the last, as 1-200".into()),
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
    fn seeds_are_one_or_a_range() {
        assert_eq!(seeds("7"), Ok(7..=7));
        assert_eq!(seeds("1-200"), Ok(1..=200));
        for wrong in ["", "-", "7-", "-7", "3-2", "a", "1-2-3"] {
            assert!(seeds(wrong).is_err_and(|why| why.contains("1-200")), "{wrong}");
        }
    }
}
