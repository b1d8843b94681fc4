//! `bench count`: user instructions and system calls per operation of the hot paths.
//!
//! Times differ from run to run; these numbers repeat, so that a change of 1 % shows on a busy
//! machine. Each path (`paths`) runs in separate processes with two lengths. The difference
//! of the two counts, divided by the operations between them, is the cost of one operation:
//! start-up cancels out. Instructions are counted by valgrind's callgrind, system calls by
//! tracing the same program without valgrind. The cost of a path's driver is counted in the
//! same way and subtracted.
//!
//! A run is repeated, unless its number is the kept one: that is a repetition, too. A number that
//! differs by more than 1 % between identical runs is marked as unstable and not compared: threads
//! of a pool may make it so.

pub(crate) mod callgrind;
mod kept;
mod paths;
mod table;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use indicatif::ProgressBar;
use serde::Serialize;

use crate::report::Style;
use crate::stats::Spread;
use crate::{process, trace};
use kept::{Cost, UNSTABLE};
pub use paths::{Part, Subject};

/// The ratio of the rounds of the long run to those of the short run.
const LONG: u64 = 3;
/// The pools of all loops have one thread; this variable sets it for libuv.
const ONE_THREAD: (&str, &str) = ("UV_THREADPOOL_SIZE", "1");
/// The file with the baseline.
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/counts.json");

/// The arguments of `bench count`.
#[derive(Debug, clap::Args)]
pub struct CountOptions {
    /// Only these paths
    #[arg(short, long = "path", value_name = "NAME", value_delimiter = ',')]
    paths: Vec<String>,
    /// Only these loops
    #[arg(short = 'l', long = "loop", value_name = "NAME", value_delimiter = ',')]
    subjects: Vec<Subject>,
    /// Store the new numbers as the baseline
    #[arg(long)]
    accept: bool,
    /// Also write the numbers to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Leave the profiles in this folder, for callgrind_annotate
    #[arg(long, value_name = "FOLDER")]
    profiles: Option<PathBuf>,
    /// The file with the numbers to compare with [default: bench/counts.json]
    #[arg(long, value_name = "FILE")]
    kept: Option<PathBuf>,
    /// Rounds of each short run [default: enough for each path]
    #[arg(long, value_name = "N", hide = true)]
    rounds: Option<u64>,
}

/// One path in this process: the other side of [`run`].
#[derive(Debug, clap::Args)]
pub struct CountedOptions {
    path: String,
    subject: Subject,
    part: Part,
    rounds: u64,
}

/// The costs of a path on a loop.
#[derive(Clone, Debug, Serialize)]
struct Counted {
    path: &'static str,
    #[serde(rename = "loop", serialize_with = "subject_name")]
    subject: Subject,
    /// The numbers that repeat.
    #[serde(flatten)]
    cost: Cost,
    /// Instructions and system calls, whether they repeat or not.
    measured: (f64, Option<f64>),
}

fn subject_name<S: serde::Serializer>(subject: &Subject, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(subject.name())
}

impl Counted {
    fn key(&self) -> String {
        key(self.path, self.subject)
    }
}

/// The name of a cost in the kept file.
fn key(path: &str, subject: Subject) -> String {
    format!("{path}/{}", subject.name())
}

/// Runs one path in this process.
///
/// # Errors
///
/// Those of the path.
pub fn run_one(options: &CountedOptions) -> io::Result<()> {
    let path = paths::named(&options.path).ok_or_else(|| unknown(&options.path))?;
    path.run(options.subject, options.part, options.rounds)
}

fn unknown(name: &str) -> io::Error {
    let names: Vec<_> = paths::ALL.iter().map(|path| path.name).collect();
    let why = format!("unknown path '{name}': use {}", names.join(", "));
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// Counts, prints the table, and compares with the baseline. The status is 1 if a count of uv-core
/// is more than 3 % above the baseline.
///
/// # Errors
///
/// `InvalidInput` for an unknown path, `NotFound` without valgrind, `Unsupported` if the code is
/// not optimised, and those of the runs and files.
pub fn run(options: &CountOptions, style: Style, out: &mut dyn Write) -> io::Result<ExitCode> {
    if cfg!(debug_assertions) && options.kept.is_none() {
        let why = "the baseline is of optimised code: use 'cargo run --release -p bench'";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    callgrind::find()?;
    let file = options.kept.clone().unwrap_or_else(|| KEPT.into());
    let kept = kept::read(&file)?;
    if !kept.compiler.is_empty() && kept.compiler != env!("VERSION_OF_RUSTC") {
        let now = env!("VERSION_OF_RUSTC");
        writeln!(out, "The baseline is of another compiler: {}, now {now}", kept.compiler)?;
    }
    let subjects = available(&options.subjects, out)?;
    let tasks = tasks(options, &subjects)?;
    let folder = Folder::new(options.profiles.clone())?;
    let counts = count_and_repeat(&tasks, &folder, |row| !options.accept && kept.confirms(row))?;
    if counts.values().any(|(_, calls)| calls.is_none()) {
        writeln!(out, "System calls are not counted: processes may not be traced here")?;
    }
    let rows = rows(&tasks, &counts);
    let worse = table::write(&rows, &kept, style, out)?;
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_string_pretty(&rows)? + "\n")?;
    }
    if options.accept {
        let now = rows.iter().map(|row| (row.key(), row.cost)).collect();
        kept::accept(&file, &now)?;
        writeln!(out, "baseline written to {}", file.display())?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::from(u8::from(worse)))
}

/// The selected loops that can run on this machine.
fn available(wanted: &[Subject], out: &mut dyn Write) -> io::Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for subject in Subject::ALL {
        if !wanted.is_empty() && !wanted.contains(&subject) {
            continue;
        }
        let why = match subject {
            Subject::Epoll => None,
            Subject::Uring => poll_uring::Uring::new().err().map(|error| error.to_string()),
            Subject::Libuv if cfg!(feature = "libuv") => None,
            Subject::Libuv => Some(crate::suites::not_in_this_build("libuv")),
        };
        match why {
            None => subjects.push(subject),
            Some(why) => writeln!(out, "{} is not counted: {why}", subject.name())?,
        }
    }
    if subjects.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "no selected loop can run here: choose others with '--loop'",
        ));
    }
    Ok(subjects)
}

/// A path on a loop, or its driver, to be counted.
#[derive(Clone, Copy, Debug)]
struct Task {
    path: &'static paths::Path,
    subject: Subject,
    part: Part,
    rounds: u64,
}

/// The key of a task: drivers are the same on every loop.
type Key = (&'static str, Part, Option<Subject>);

impl Task {
    fn key(&self) -> Key {
        (self.path.name, self.part, (self.part == Part::Whole).then_some(self.subject))
    }

    fn driver(&self) -> Task {
        Task { part: Part::Driver, ..*self }
    }

    /// The number of runs. Paths with threads need more runs to detect unstable counts.
    fn repeats(&self) -> usize {
        if self.path.threads { 3 } else { 2 }
    }

    fn args(&self, rounds: u64) -> Vec<String> {
        let part = if self.part == Part::Whole { "whole" } else { "driver" };
        let name = self.path.name;
        ["counted", name, self.subject.name(), part, &rounds.to_string()].map(String::from).into()
    }
}

/// Everything to count: each path on each loop, and its driver once.
fn tasks(options: &CountOptions, subjects: &[Subject]) -> io::Result<Vec<Task>> {
    if let Some(name) = options.paths.iter().find(|name| paths::named(name).is_none()) {
        return Err(unknown(name));
    }
    let mut tasks = Vec::new();
    for path in &paths::ALL {
        if !options.paths.is_empty() && !options.paths.iter().any(|name| name == path.name) {
            continue;
        }
        let rounds = options.rounds.unwrap_or(path.rounds).max(1);
        for &subject in subjects {
            if path.only_loop && subject == Subject::Uring && subjects.contains(&Subject::Epoll) {
                continue;
            }
            // Valgrind 3.19 runs no other thread while one blocks in io_uring_enter: a loop on
            // the ring that waits for its pool would deadlock.
            if path.needs_pool && subject == Subject::Uring {
                continue;
            }
            tasks.push(Task { path, subject, part: Part::Whole, rounds });
        }
        if path.has_driver() {
            tasks.push(Task { path, subject: subjects[0], part: Part::Driver, rounds });
        }
    }
    Ok(tasks)
}

/// The slopes of a task: one of each repeated pair of runs.
type Slopes = (Vec<f64>, Option<Vec<f64>>);

/// Counts all tasks once, and those again whose numbers nothing confirms.
fn count_and_repeat(
    tasks: &[Task],
    folder: &Folder,
    is_confirmed: impl Fn(&Counted) -> bool,
) -> io::Result<BTreeMap<Key, Slopes>> {
    let mut counts = count_all(tasks, folder, |_| 0..1)?;
    let again = unconfirmed(tasks, &counts, is_confirmed);
    for (key, (instructions, calls)) in count_all(&again, folder, |task| 1..task.repeats())? {
        let Some(first) = counts.get_mut(&key) else { continue };
        first.0.extend(instructions);
        first.1 = first.1.take().zip(calls).map(|(first, more)| [first, more].concat());
    }
    Ok(counts)
}

/// The tasks whose numbers nothing confirms, with their drivers.
fn unconfirmed(
    tasks: &[Task],
    counts: &BTreeMap<Key, Slopes>,
    is_confirmed: impl Fn(&Counted) -> bool,
) -> Vec<Task> {
    let rows = rows(tasks, counts);
    let is_doubtful = |path: &str, subject: Option<Subject>| {
        let mut of = rows.iter().filter(|row| row.path == path);
        of.any(|row| subject.is_none_or(|one| one == row.subject) && !is_confirmed(row))
    };
    let is_wanted = |task: &&Task| {
        let subject = (task.part == Part::Whole).then_some(task.subject);
        is_doubtful(task.path.name, subject)
    };
    tasks.iter().filter(is_wanted).copied().collect()
}

/// Counts all tasks, on all processors.
fn count_all(
    tasks: &[Task],
    folder: &Folder,
    repeats: impl Fn(&Task) -> Range<usize> + Sync,
) -> io::Result<BTreeMap<Key, Slopes>> {
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let progress = ProgressBar::new(tasks.len() as u64);
    let workers = thread::available_parallelism().map_or(1, usize::from).min(tasks.len());
    let work = || -> io::Result<()> {
        while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let slopes = slopes(task, folder, repeats(task))?;
            counts.lock().unwrap_or_else(|held| held.into_inner()).insert(task.key(), slopes);
            progress.inc(1);
        }
        Ok(())
    };
    let result = thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        let panicked = |_| io::Error::other("a counting thread panicked");
        ended.map(|end| end.map_err(panicked)?).collect::<io::Result<Vec<()>>>()
    });
    progress.finish_and_clear();
    result?;
    Ok(counts.into_inner().unwrap_or_else(|held| held.into_inner()))
}

fn slopes(task: &Task, folder: &Folder, repeats: Range<usize>) -> io::Result<Slopes> {
    let program = process::program()?;
    let operations = task.rounds * (LONG - 1) * task.path.batch;
    let (mut instructions, mut calls) = (Vec::new(), Some(Vec::new()));
    for repeat in repeats {
        let instructions_of = |rounds| {
            let file = folder.file(task, rounds, repeat);
            callgrind::count(&program, &task.args(rounds), &file)
        };
        let (short, long) = (instructions_of(task.rounds)?, instructions_of(task.rounds * LONG)?);
        instructions.push(slope(short, long, operations));
        let calls_of = |rounds| {
            let mut command = Command::new(&program);
            command.args(task.args(rounds)).stdin(Stdio::null()).stdout(Stdio::null());
            command.env(ONE_THREAD.0, ONE_THREAD.1);
            trace::count_all(&mut command)
        };
        let Some(counted) = &mut calls else { continue };
        match calls_of(task.rounds).and_then(|short| Ok((short, calls_of(task.rounds * LONG)?))) {
            Ok((short, long)) => counted.push(slope(short, long, operations)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => calls = None,
            Err(error) => return Err(error),
        }
    }
    Ok((instructions, calls))
}

/// The cost of one operation: start-up and teardown of a run cancel out.
fn slope(short: u64, long: u64, operations: u64) -> f64 {
    (long as f64 - short as f64) / operations as f64
}

/// The costs, drivers subtracted.
fn rows(tasks: &[Task], counts: &BTreeMap<Key, Slopes>) -> Vec<Counted> {
    let mut rows = Vec::new();
    for task in tasks.iter().filter(|task| task.part == Part::Whole) {
        let Some((instructions, calls)) = counts.get(&task.key()) else { continue };
        let driver = counts.get(&task.driver().key());
        // The numbers of a driver are per operation, too.
        let (less, fewer) = driver.map_or((0.0, 0.0), |(instructions, calls)| {
            (median(instructions), calls.as_deref().map_or(0.0, median))
        });
        let instructions = minus(instructions, less);
        let calls = calls.as_deref().map(|calls| minus(calls, fewer));
        let measured = (median(&instructions), calls.as_deref().map(median));
        let cost = Cost {
            instructions: repeats(&instructions, 1.0),
            calls: calls.as_deref().and_then(|calls| repeats(calls, 0.02)),
        };
        rows.push(Counted { path: task.path.name, subject: task.subject, cost, measured });
    }
    rows
}

fn minus(values: &[f64], less: f64) -> Vec<f64> {
    values.iter().map(|value| value - less).collect()
}

fn median(values: &[f64]) -> f64 {
    Spread::of(values).map_or(0.0, |spread| spread.median)
}

/// The median of numbers that are the same within 1 %, or within what is negligible.
fn repeats(values: &[f64], negligible: f64) -> Option<f64> {
    let least = values.iter().copied().reduce(f64::min)?;
    let greatest = values.iter().copied().reduce(f64::max)?;
    let median = median(values);
    (greatest - least <= negligible.max(median * UNSTABLE)).then_some(median)
}

/// The folder of profiles: a permanent one, or a temporary one that is removed on drop.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    stays: bool,
}

impl Folder {
    fn new(wanted: Option<PathBuf>) -> io::Result<Folder> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let stays = wanted.is_some();
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench-count-{}-{number}", std::process::id());
        let path = wanted.unwrap_or_else(|| std::env::temp_dir().join(name));
        std::fs::create_dir_all(&path)?;
        Ok(Folder { path, stays })
    }

    fn file(&self, task: &Task, rounds: u64, repeat: usize) -> PathBuf {
        let part = if task.part == Part::Whole { task.subject.name() } else { "driver" };
        self.path.join(format!("{}-{part}-{rounds}-{repeat}.callgrind", task.path.name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.stays {
            // A failure leaves files in the temporary folder only.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_up_cancels_out_of_a_slope() {
        let run = |operations: u64| 1_000_000 + 892 * operations;
        assert_eq!(slope(run(200), run(600), 400), 892.0);
        assert_eq!(slope(7, 7, 400), 0.0);
    }

    #[test]
    fn numbers_repeat_within_one_percent() {
        assert_eq!(repeats(&[1000.0, 1009.0], 1.0), Some(1004.5));
        assert_eq!(repeats(&[1000.0, 1011.0], 1.0), None);
        assert_eq!(repeats(&[2.0, 2.9], 1.0), Some(2.45));
        assert_eq!(repeats(&[], 1.0), None);
    }

    #[test]
    fn the_driver_is_subtracted_on_every_loop() {
        let path = paths::named("echo-write").unwrap();
        let whole = |subject| Task { path, subject, part: Part::Whole, rounds: 1 };
        let tasks = [whole(Subject::Epoll), whole(Subject::Uring), whole(Subject::Epoll).driver()];
        let counts = [
            (tasks[0].key(), (vec![1000.0, 1000.0], Some(vec![5.0, 5.0]))),
            (tasks[1].key(), (vec![900.0, 990.0], None)),
            (tasks[2].key(), (vec![100.0, 100.0], Some(vec![2.0, 2.0]))),
        ];
        let rows = rows(&tasks, &BTreeMap::from(counts));
        let costs: Vec<_> = rows.iter().map(|row| row.cost).collect();
        let first = Cost { instructions: Some(900.0), calls: Some(3.0) };
        assert_eq!(costs, [first, Cost::default()]);
        assert_eq!(rows[1].measured, (845.0, None));
    }

    #[test]
    fn only_what_nothing_confirms_is_counted_again() {
        let (echo, read) = (paths::named("echo-write").unwrap(), paths::named("read").unwrap());
        let whole = |path, subject| Task { path, subject, part: Part::Whole, rounds: 1 };
        let tasks = [
            whole(echo, Subject::Epoll),
            whole(echo, Subject::Uring),
            whole(echo, Subject::Epoll).driver(),
            whole(read, Subject::Epoll),
            whole(read, Subject::Epoll).driver(),
        ];
        let slopes = |number: f64| (vec![number], Some(vec![1.0]));
        let numbers = [1_100.0, 1_100.0, 100.0, 600.0, 100.0];
        let counts = tasks.iter().zip(numbers).map(|(task, number)| (task.key(), slopes(number)));
        let counts = counts.collect();
        let cost = |instructions| Cost { instructions: Some(instructions), calls: Some(0.0) };
        let kept =
            [("echo-write/epoll", 1_000.0), ("echo-write/uring", 980.0), ("read/epoll", 503.0)];
        let costs = kept.map(|(key, number)| (key.to_string(), cost(number)));
        let kept = kept::Kept { costs: costs.into(), ..kept::Kept::default() };
        let again = unconfirmed(&tasks, &counts, |row| kept.confirms(row));
        let keys: Vec<Key> = again.iter().map(Task::key).collect();
        assert_eq!(keys, [tasks[1].key(), tasks[2].key()]);
        assert_eq!(unconfirmed(&tasks, &counts, |_| false).len(), tasks.len());
    }

    #[test]
    fn numbers_that_are_accepted_are_compared_with() {
        let folder = Folder::new(None).unwrap();
        let file = folder.path.join("counts.json");
        assert_eq!(kept::read(&file).unwrap(), kept::Kept::default());
        let cost = |instructions| Cost { instructions: Some(instructions), calls: None };
        let first = BTreeMap::from([("a/epoll".into(), cost(1.04)), ("b/epoll".into(), cost(2.0))]);
        kept::accept(&file, &first).unwrap();
        kept::accept(&file, &BTreeMap::from([("b/epoll".into(), cost(3.0))])).unwrap();
        let kept = kept::read(&file).unwrap();
        let expected =
            BTreeMap::from([("a/epoll".into(), cost(1.0)), ("b/epoll".into(), cost(3.0))]);
        assert_eq!((kept.costs, kept.compiler.as_str()), (expected, env!("VERSION_OF_RUSTC")));
        std::fs::write(&file, "tea").unwrap();
        assert!(kept::read(&file).unwrap_err().to_string().contains("counts.json"));
    }

    #[test]
    fn every_path_does_what_it_counts_on_every_loop() {
        // Each path runs in its own thread, because the counter of operations is thread-local.
        for path in &paths::ALL {
            for subject in available(&[], &mut io::sink()).unwrap() {
                for part in [Part::Whole, Part::Driver] {
                    if part == Part::Whole || path.has_driver() {
                        let run = move || path.run(subject, part, 4);
                        let ran = thread::spawn(run).join().unwrap();
                        ran.unwrap_or_else(|error| panic!("{} {subject:?}: {error}", path.name));
                    }
                }
            }
        }
    }
}
