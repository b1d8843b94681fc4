//! The program: every case on every backend, each in its own process.
//!
//! [`main`] is the whole program, for any list of [`Candidate`]s. This is the program `conformance`
//! with an additional backend:
//!
//! ```no_run
//! use conformance::matrix::{self, Candidate};
//!
//! fn main() -> std::process::ExitCode {
//!     let mut candidates = matrix::backends();
//!     candidates.push(Candidate::new("mine", poll_select::Select::new));
//!     matrix::main(candidates)
//! }
//! ```
//!
//! A case that crashes or hangs is a result like any other, because it runs in its own process.
//! Cases that measure time or need many descriptors run one by one after the others.

mod backends;
mod candidate;
mod fuzz;
mod json;
mod options;
mod process;
mod schedule;
mod table;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

pub use backends::backends;
pub use candidate::{Candidate, Entry};
pub use options::Options;
pub use process::Processes;
pub use schedule::Progress;
pub use table::Style;

use crate::Outcome;

/// How one case is run on one backend.
pub trait Runner: Sync {
    /// Runs `case` on `candidate`'s backend and returns the outcome.
    fn run(&self, candidate: &Candidate, case: &Entry) -> Outcome;
}

/// Runs cases in the calling process. A case that crashes ends it.
#[derive(Clone, Copy, Debug, Default)]
pub struct InProcess;

impl Runner for InProcess {
    fn run(&self, _candidate: &Candidate, case: &Entry) -> Outcome {
        case.run()
    }
}

/// The outcome of a case on a backend, and its duration.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finished {
    /// The name of the backend.
    pub backend: &'static str,
    /// The point of the contract.
    pub point: u8,
    /// The path of the case: `group::name`.
    pub case: String,
    /// The outcome.
    pub outcome: Outcome,
    /// The duration, including the start of its process.
    pub time: Duration,
}

/// The results of a run.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report<'a> {
    /// The selected backends, including those that cannot run here.
    pub candidates: Vec<&'a Candidate>,
    /// The finished cases, by case and then by backend.
    pub finished: Vec<Finished>,
    /// The total duration.
    pub time: Duration,
}

impl Report<'_> {
    /// The numbers of passed, failed and skipped cases.
    pub fn totals(&self) -> (usize, usize, usize) {
        self.finished.iter().fold((0, 0, 0), |(pass, fail, skip), one| match one.outcome {
            Outcome::Pass => (pass + 1, fail, skip),
            Outcome::Fail(_) => (pass, fail + 1, skip),
            Outcome::Skip(_) => (pass, fail, skip + 1),
        })
    }
}

/// The whole program, from its arguments to its exit status: 0 if nothing failed, 1 if a case
/// failed, 2 if the arguments are invalid.
pub fn main(candidates: Vec<Candidate>) -> ExitCode {
    let options = Options::from_command_line();
    if let Some(fuzz) = options.fuzz() {
        return fuzz::main(fuzz, candidates);
    }
    let candidates = match &options.faulty {
        Some(seeds) => candidates.iter().map(|one| one.with_faults(seeds.clone())).collect(),
        None => candidates,
    };
    if let Some((backend, case)) = options.child() {
        return process::run_as_child(&candidates, backend, case);
    }
    let runner = match Processes::of_this_program() {
        Ok(runner) => runner.with_faults(options.faulty.clone()),
        Err(error) => {
            eprintln!("error: the path of this program is unknown: {error}");
            return ExitCode::from(2);
        }
    };
    let style = Style::of(&io::stdout());
    let progress = if io::stderr().is_terminal() { Progress::Bar } else { Progress::Silent };
    match run(&options, &candidates, &runner, style, progress, &mut io::stdout().lock()) {
        Ok(status) => ExitCode::from(status),
        // The reader closed the pipe.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            eprintln!("error: {error}\n\nFor more information, try '--help'.");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the selection of `options`, writes the report to `out`, and returns the exit status.
///
/// # Errors
///
/// `InvalidInput` if the options name an unknown backend or select no case; otherwise the errors of
/// writing to `out`.
pub fn run(
    options: &Options,
    candidates: &[Candidate],
    runner: &dyn Runner,
    style: Style,
    progress: Progress,
    out: &mut dyn Write,
) -> io::Result<u8> {
    let selection = options.select(candidates)?;
    if options.list {
        table::list(&selection, style, out)?;
        return Ok(0);
    }
    let started = Instant::now();
    let finished = schedule::run(&selection, runner, options.jobs(), progress);
    let candidates = candidates.iter().filter(|candidate| options.wants_backend(candidate));
    let report = Report { candidates: candidates.collect(), finished, time: started.elapsed() };
    if options.json {
        json::write(&report, out)?;
    } else {
        table::write(&report, style, out)?;
    }
    Ok(u8::from(report.totals().1 > 0))
}
