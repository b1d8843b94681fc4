//! What the command line asks for.

use std::io;
use std::num::NonZeroUsize;

use clap::{Parser, Subcommand};

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

    /// How many cases to run at a time [default: four a core, as most of them wait]
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroUsize>,

    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Runs one case in this process and writes how it ended.
    #[command(name = "__run-one", hide = true)]
    Child { backend: String, case: String },
}

/// The backends that were chosen, with the cases that were.
pub(super) type Selection<'a> = Vec<(&'a Candidate, Vec<&'a Entry>)>;

impl Options {
    /// Those of this process. Ends it with status 2 if they make no sense.
    pub fn from_command_line() -> Options {
        Options::parse()
    }

    /// Those in `args`, without the program's name.
    ///
    /// # Errors
    ///
    /// `InvalidInput`, with what is wrong and how to put it right.
    pub fn from_args<'a>(args: impl IntoIterator<Item = &'a str>) -> io::Result<Options> {
        Options::try_parse_from(["conformance"].into_iter().chain(args))
            .map_err(|error| invalid(error.to_string()))
    }

    /// The backend and the case to run here, if this process is there for one only.
    pub(super) fn child(&self) -> Option<(&str, &str)> {
        match &self.role {
            Some(Role::Child { backend, case }) => Some((backend, case)),
            None => None,
        }
    }

    /// How many cases may run at a time.
    pub(super) fn jobs(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
        self.jobs.map_or_else(|| 4 * cores().min(8), NonZeroUsize::get)
    }

    /// What to run.
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

    /// A backend that was asked for by name must exist, and be able to run.
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

    /// True if this backend was asked for, or none was.
    pub(super) fn wants_backend(&self, candidate: &Candidate) -> bool {
        self.backends.is_empty() || self.backends.iter().any(|name| name == candidate.name())
    }

    fn wants(&self, case: &Entry) -> bool {
        let mut filters = self.filters().peekable();
        (self.points.is_empty() || self.points.contains(&case.point()))
            && (filters.peek().is_none() || filters.any(|filter| case.path().contains(filter)))
    }

    fn filters(&self) -> impl Iterator<Item = &str> {
        self.filters.iter().chain(&self.case_filters).map(String::as_str)
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
}
