//! Random programs of loop verbs, made from seeds and checked on any backend.
//!
//! A program opens handles of many kinds, and reads, writes, starts, stops, cancels, passes and
//! closes them, from callbacks too, some of which panic or exchange their loop for another one. It
//! uses and sends files and starts children, closes and replaces descriptors behind the loop's
//! back, and may run out of them. Whatever it does, the following holds, and is checked:
//!
//! - each request is reported exactly once, before the close callback of its handle;
//! - no callback runs from within a verb, or after its handle was closed;
//! - what is received is what was written, byte by byte, and all of it if the end was read;
//! - streams that are shut down reach their ends, the loop ends, and it can be closed;
//! - no descriptor is left behind, and no memory, if that is [counted](LiveMemory);
//! - a panic in a destructor comes out of a verb only if the verb refuses the callback.
//!
//! A part of the programs uses only what has a defined order: timers, watchers, deferred
//! callbacks, asyncs, channels and closes. These run on a virtual clock, and their traces are the
//! same on every backend.
//!
//! A failing program is made shorter by deleting steps, and printed with its seed.
//!
//! ```
//! use conformance::fuzz::{Fuzz, fuzz};
//!
//! let options = Fuzz { seeds: 5, ..Fuzz::default() };
//! let report = fuzz(&options, || poll_select::Select::new(), |_| {});
//! assert!(report.failure.is_none(), "{:?}", report.failure);
//! assert_eq!(report.programs, 5);
//! ```

mod children;
mod clock;
mod descriptors;
mod exec;
mod files;
mod lanes;
mod memory;
mod objects;
mod passing;
mod program;
mod runner;
mod send_file;
mod shrink;
mod streams;
mod world;

use std::fmt;
use std::io;
#[cfg(feature = "matrix")]
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use poll_core::{Backend, BoxedBackend};

use crate::rng::mix;
use crate::{Fault, FaultCounts, Faulty};
pub use memory::LiveMemory;
use program::Program;
use runner::Passed;
use world::Tolerated;

/// The options of a run.
#[derive(Clone, Debug)]
// Exhaustive: programs construct it, with `..Fuzz::default()` for the rest.
pub struct Fuzz {
    /// The first seed.
    pub from: u64,
    /// How many seeds.
    pub seeds: u64,
    /// No program is started after this time.
    pub time: Option<Duration>,
    /// Runs the programs over [`Faulty`].
    pub faulty: bool,
    /// The backend sends without copying: a write whose buffer the kernel still holds may be
    /// reported after the close callback of its stream.
    pub zero_copy: bool,
}

impl Default for Fuzz {
    fn default() -> Fuzz {
        Fuzz { from: 0, seeds: 100, time: None, faulty: false, zero_copy: false }
    }
}

/// The findings of a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// How many programs were run.
    pub programs: u64,
    /// The faults that were injected.
    pub faults: FaultCounts,
    /// The first program that failed.
    pub failure: Option<Failure>,
}

/// A program that failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// The failed checks.
    pub why: Vec<String>,
    /// The shortest program that was found to fail, a step a line.
    pub program: String,
    /// The failed checks of the shortest program.
    pub why_shortest: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} fails:", self.seed)?;
        self.why.iter().try_for_each(|why| writeln!(f, "  {why}"))?;
        writeln!(f, "the shortest program that fails:\n{}with:", self.program)?;
        self.why_shortest.iter().try_for_each(|why| writeln!(f, "  {why}"))
    }
}

/// Runs programs on the backends that `new` makes, until one fails. Calls `begin` with the seed
/// before each run of a program, so that a program that crashes or hangs is known.
pub fn fuzz<B: Backend>(
    options: &Fuzz,
    new: impl Fn() -> io::Result<B>,
    begin: impl Fn(u64),
) -> Report {
    let mut report = Report { programs: 0, faults: FaultCounts::default(), failure: None };
    let began = Instant::now();
    // Threads and signal pipes that a process makes once must not count as left behind.
    let _ = runner::run(&Program::generate(0), &|| new().map(BoxedBackend::new), Tolerated::ALL);
    for seed in options.from..options.from.saturating_add(options.seeds) {
        if options.time.is_some_and(|time| began.elapsed() > time) {
            break;
        }
        let check = |program: &Program| {
            begin(seed);
            check_memory(|| check(program, options, &new, &report.faults))
        };
        let program = Program::generate(seed);
        if let Err(why) = check(&program) {
            let short = shrink::shrink(&program, |candidate| check(candidate).is_err());
            let why_shortest = (0..5).find_map(|_| check(&short).err()).unwrap_or_default();
            let program = short.to_string();
            report.failure = Some(Failure { seed, why, program, why_shortest });
            return report;
        }
        report.programs += 1;
    }
    report
}

/// How often a program runs that seems to keep memory: queues and tables of the process grow once.
const MEMORY_RUNS: usize = 6;

/// A thread of the pool may have memory of a loop a moment longer than the loop lives.
const LINGER: Duration = Duration::from_millis(50);

/// Runs a program, and again if more memory is in use afterwards: a leak is one in every run.
fn check_memory(run: impl Fn() -> Result<Passed, Vec<String>>) -> Result<(), Vec<String>> {
    let mut grown = 0;
    for _ in 0..MEMORY_RUNS {
        let before = LiveMemory::bytes();
        let forgets = run()?.forgets;
        let Some(before) = before.filter(|_| !forgets) else { return Ok(()) };
        let ended = Instant::now();
        loop {
            grown = LiveMemory::bytes().unwrap_or_default().saturating_sub(before);
            if grown == 0 {
                return Ok(());
            }
            if ended.elapsed() > LINGER {
                break;
            }
            std::thread::yield_now();
        }
    }
    Err(vec![format!("memory: {grown} bytes more after each run")])
}

/// Runs a program; one with a defined order also on a backend without sources.
fn check<B: Backend>(
    program: &Program,
    options: &Fuzz,
    new: &impl Fn() -> io::Result<B>,
    counts: &FaultCounts,
) -> Result<Passed, Vec<String>> {
    // Errors are injected into some of the programs only, as these are checked for less. Not both
    // kinds: a stream whose operation is refused waits for readiness instead, and the loop has no
    // request to report a failure of that registration to.
    let error = match mix(program.seed) % 8 {
        0 if options.faulty => Some((Fault::RegisterError, 300)),
        4 if options.faulty => Some((Fault::SubmitError, 200)),
        _ => None,
    };
    let make = || -> io::Result<BoxedBackend> {
        if !options.faulty {
            return new().map(BoxedBackend::new);
        }
        let mut backend = Faulty::new(new()?, mix(program.seed))
            .with_rate(Fault::ShortTransfer, 500)
            .with_counts(counts);
        if let Some((fault, per_mille)) = error {
            backend = backend.with_rate(fault, per_mille);
        }
        Ok(BoxedBackend::new(backend))
    };
    let tolerated = Tolerated { errors: error.is_some(), late_writes: options.zero_copy };
    let passed = runner::run(program, &make, tolerated)?;
    if program.ordered {
        let new = || Ok(BoxedBackend::new(runner::NoSources));
        let reference = runner::run(program, &new, Tolerated::default())?;
        if passed.trace != reference.trace {
            return Err(vec![difference(&passed.trace, &reference.trace)]);
        }
    }
    Ok(passed)
}

fn difference(trace: &[String], reference: &[String]) -> String {
    let same = trace.iter().zip(reference).take_while(|(one, other)| one == other).count();
    let next = |trace: &[String]| trace.get(same).cloned().unwrap_or_else(|| "the end".into());
    format!(
        "the order differs after {same} events: '{}' instead of '{}'",
        next(trace),
        next(reference)
    )
}

/// The program of a seed, a step a line.
#[cfg(feature = "matrix")]
pub(crate) fn program_text(seed: u64) -> String {
    Program::generate(seed).to_string()
}

/// Calls `hung` on another thread if `beat` is not called again within `limit`. The watching ends
/// when the function that this returns is dropped.
#[cfg(feature = "matrix")]
pub(crate) fn watchdog(limit: Duration, hung: impl FnOnce(u64) + Send + 'static) -> impl Fn(u64) {
    let (beat, beats) = mpsc::channel::<u64>();
    std::thread::spawn(move || {
        let Ok(mut seed) = beats.recv() else { return };
        loop {
            match beats.recv_timeout(limit) {
                Ok(next) => seed = next,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => return hung(seed),
            }
        }
    });
    move |seed| {
        let _ = beat.send(seed);
    }
}
