//! The subcommand that runs random programs.

use std::process::ExitCode;
use std::time::Duration;

use super::Candidate;
use super::options::FuzzOptions;
use crate::fuzz::{Fuzz, fuzz, program_text, watchdog};

/// A program that takes longer hangs. Most take a few milliseconds.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the programs on each backend that was asked for. The status is that of the whole program.
pub(super) fn main(options: &FuzzOptions, mut candidates: Vec<Candidate>) -> ExitCode {
    candidates.extend(variants());
    for wanted in &options.backends {
        match candidates.iter().find(|candidate| candidate.name() == wanted) {
            Some(candidate) if candidate.cases().is_ok() => {}
            Some(candidate) => {
                let why = candidate.cases().err().unwrap_or_default();
                eprintln!("error: {wanted} cannot run here: {why}");
                return ExitCode::from(2);
            }
            None => {
                let known: Vec<_> = candidates.iter().map(Candidate::name).collect();
                eprintln!("error: no backend is called '{wanted}': {} are", known.join(", "));
                return ExitCode::from(2);
            }
        }
    }
    // One line for each panic: a program that fails is run many times.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let mut status = ExitCode::SUCCESS;
    for candidate in &candidates {
        let is_wanted = options.backends.is_empty()
            || options.backends.iter().any(|name| name == candidate.name());
        if is_wanted && candidate.cases().is_ok() && !run(options, candidate) {
            status = ExitCode::FAILURE;
        }
    }
    status
}

/// io_uring with zero-copy sends, whose memory it holds for longer than they take.
const ZERO_COPY: &str = "uring_zero_copy";

/// io_uring with zero-copy sends, and with a ring that is always full.
fn variants() -> Vec<Candidate> {
    cfg_if::cfg_if! {
        if #[cfg(target_os = "linux")] {
            let zero_copy = || {
                let mut uring = poll_uring::Uring::new()?;
                uring.set_zero_copy(Some(64));
                Ok(uring)
            };
            vec![
                Candidate::new(ZERO_COPY, zero_copy),
                Candidate::new("uring_tiny", || poll_uring::Uring::with_entries(1)),
            ]
        } else {
            Vec::new()
        }
    }
}

/// True if no program failed.
fn run(options: &FuzzOptions, candidate: &Candidate) -> bool {
    let name = candidate.name();
    let (from, seeds) = match options.seed {
        Some(seed) => (seed, 1),
        None => (options.from, options.seeds),
    };
    let time = options.minutes.map(|minutes| Duration::from_secs_f64(minutes.max(0.0) * 60.0));
    let fuzzed = Fuzz { from, seeds, time, faulty: options.faulty, zero_copy: name == ZERO_COPY };
    let faulty = options.faulty;
    let begin = watchdog(LIMIT, move |seed| {
        let program = program_text(seed);
        eprintln!("{name}: seed {seed} hangs:\n{program}replay: {}", replay(name, faulty, seed));
        std::process::exit(1);
    });
    let report = fuzz(&fuzzed, || candidate.backend(), begin);
    let separator = if report.faults.total() > 0 { ", " } else { "" };
    println!("{name}: {} programs passed{separator}{}", report.programs, report.faults);
    if let Some(failure) = &report.failure {
        println!("{name}: {failure}replay: {}", replay(name, faulty, failure.seed));
    }
    report.failure.is_none()
}

fn replay(name: &str, faulty: bool, seed: u64) -> String {
    let faulty = if faulty { " --faulty" } else { "" };
    format!("cargo run -p poll-conformance -- fuzz --backend {name}{faulty} --seed {seed}")
}
