//! `bench count`: user instructions and system calls per operation of the hot paths.
//!
//! Times differ from run to run; these numbers repeat, so that a change of 1 % shows on a busy
//! machine. Each path (`paths`) runs in separate processes with two lengths. The difference
//! of the two counts, divided by the operations between them, is the cost of one operation:
//! start-up cancels out. Instructions are counted by valgrind's callgrind, system calls by
//! tracing the same program without valgrind. The cost of a path's driver is counted in the
//! same way and subtracted.
//!
//! A number above the kept one is counted again. If identical runs differ, the smallest number is
//! compared, and marked: a disturbance can only add instructions.

pub(crate) mod callgrind;
mod kept;
mod paths;
mod table;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use indicatif::ProgressBar;
use serde::Serialize;

use crate::report::Style;
use crate::stats::Spread;
use crate::{process, trace};
use kept::{Cost, UNSTEADY};
pub use paths::{Part, Subject};

/// The number of runs of a path whose first number needs confirmation.
const REPEATS: usize = 2;
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
    /// The least of the repeated numbers.
    #[serde(flatten)]
    cost: Cost,
    /// Whether identical runs differ by more than 1 %.
    unsteady: bool,
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

/// Whether a name in the kept file is that of a path.
fn exists(key: &str) -> bool {
    key.split_once('/').is_some_and(|(path, _)| paths::named(path).is_some())
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
/// is more than 3 % above the baseline, or missing in it.
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
    if cfg!(any(feature = "libuv", feature = "compio", feature = "monoio", feature = "glommio")) {
        writeln!(
            out,
            "This build has peers, which change how code is inlined: small paths differ by some \
             percent from a\nbuild without features, of which the baseline of epoll and uring is."
        )?;
    }
    let file = options.kept.clone().unwrap_or_else(|| KEPT.into());
    let kept = kept::read(&file)?;
    let subjects = available(&options.subjects, out)?;
    let tasks = tasks(options, &subjects)?;
    let folder = Folder::new(options.profiles.clone())?;
    // A number fails only if it is too high twice, and is stored only after a repetition.
    let counts = count_and_repeat(&tasks, &folder, |row| options.accept || kept.refuses(row))?;
    if counts.values().any(|(_, calls)| calls.is_none()) {
        writeln!(out, "System calls are not counted: processes may not be traced here")?;
    }
    let rows = rows(&tasks, &counts);
    table::write(&rows, &kept, style, out)?;
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_string_pretty(&rows)? + "\n")?;
    }
    if options.accept {
        let now = rows.iter().map(|row| (row.key(), row.cost)).collect();
        kept::accept(&file, &now, exists)?;
        writeln!(out, "{} numbers written to {}", rows.len(), file.display())?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::from(u8::from(table::judge(&rows, &kept, style, out)?)))
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

    fn driver(&self) -> Option<Task> {
        self.path.driver().map(|path| Task { path, part: Part::Driver, ..*self })
    }

    fn args(&self, rounds: u64) -> Vec<String> {
        let part = if self.part == Part::Whole { "whole" } else { "driver" };
        let name = self.path.name;
        ["counted", name, self.subject.name(), part, &rounds.to_string()].map(String::from).into()
    }
}

/// Everything to count: each path on each loop, and each driver once.
fn tasks(options: &CountOptions, subjects: &[Subject]) -> io::Result<Vec<Task>> {
    if let Some(name) = options.paths.iter().find(|name| paths::named(name).is_none()) {
        return Err(unknown(name));
    }
    let (mut tasks, mut drivers) = (Vec::new(), BTreeMap::new());
    for path in &paths::ALL {
        if !options.paths.is_empty() && !options.paths.iter().any(|name| name == path.name) {
            continue;
        }
        let rounds = options.rounds.unwrap_or(path.rounds).max(1);
        for &subject in subjects {
            if path.only_loop && subject == Subject::Uring && subjects.contains(&Subject::Epoll) {
                continue;
            }
            let task = Task { path, subject, part: Part::Whole, rounds };
            tasks.push(task);
            if let Some(driver) = task.driver() {
                let rounds = options.rounds.unwrap_or(driver.path.rounds).max(1);
                drivers.insert(driver.key(), Task { rounds, ..driver });
            }
        }
    }
    tasks.extend(drivers.into_values());
    Ok(tasks)
}

/// The slopes of a task: one of each repeated pair of runs.
type Slopes = (Vec<f64>, Option<Vec<f64>>);

/// Counts all tasks once, and those again that are to be repeated.
fn count_and_repeat(
    tasks: &[Task],
    folder: &Folder,
    is_doubtful: impl Fn(&Counted) -> bool,
) -> io::Result<BTreeMap<Key, Slopes>> {
    let mut counts = count_all(tasks, folder, 0..1)?;
    let again = doubtful(tasks, &counts, is_doubtful);
    for (key, (instructions, calls)) in count_all(&again, folder, 1..REPEATS)? {
        let Some(first) = counts.get_mut(&key) else { continue };
        first.0.extend(instructions);
        first.1 = first.1.take().zip(calls).map(|(first, more)| [first, more].concat());
    }
    Ok(counts)
}

/// The tasks whose numbers are doubtful, with their drivers.
fn doubtful(
    tasks: &[Task],
    counts: &BTreeMap<Key, Slopes>,
    is_doubtful: impl Fn(&Counted) -> bool,
) -> Vec<Task> {
    let rows = rows(tasks, counts);
    let whole = tasks.iter().filter(|task| task.part == Part::Whole);
    let again: Vec<Task> = whole
        .zip(&rows)
        .filter(|(_, row)| is_doubtful(row))
        .flat_map(|(task, _)| [Some(*task), task.driver()])
        .flatten()
        .collect();
    let is_wanted = |task: &&Task| again.iter().any(|wanted| wanted.key() == task.key());
    tasks.iter().filter(is_wanted).copied().collect()
}

/// Counts all tasks, on all processors.
fn count_all(
    tasks: &[Task],
    folder: &Folder,
    repeats: Range<usize>,
) -> io::Result<BTreeMap<Key, Slopes>> {
    let (next, counts) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let progress = ProgressBar::new(tasks.len() as u64);
    let workers = thread::available_parallelism().map_or(1, usize::from).min(tasks.len());
    let work = || -> io::Result<()> {
        while let Some(task) = tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
            let slopes = slopes(task, folder, repeats.clone())?;
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
    let program = folder.program()?;
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
        let driver = task.driver().and_then(|driver| counts.get(&driver.key()));
        // The numbers of a driver are per operation, too.
        let (less, fewer) = driver.map_or((0.0, 0.0), |(instructions, calls)| {
            (median(instructions), calls.as_deref().map_or(0.0, median))
        });
        let instructions = minus(instructions, less);
        let calls = calls.as_deref().map(|calls| minus(calls, fewer));
        let (fewest_instructions, steady) = least(&instructions, 1.0);
        let (calls, also_steady) = least(calls.as_deref().unwrap_or_default(), 0.02);
        let cost = Cost { instructions: fewest_instructions, calls };
        let (path, subject) = (task.path.name, task.subject);
        rows.push(Counted { path, subject, cost, unsteady: !(steady && also_steady) });
    }
    rows
}

fn minus(values: &[f64], less: f64) -> Vec<f64> {
    values.iter().map(|value| value - less).collect()
}

fn median(values: &[f64]) -> f64 {
    Spread::of(values).map_or(0.0, |spread| spread.median)
}

/// The least of repeated numbers, and whether they are the same within 1 %, or within what is
/// negligible.
fn least(values: &[f64], negligible: f64) -> (Option<f64>, bool) {
    let Some(least) = values.iter().copied().reduce(f64::min) else { return (None, true) };
    let greatest = values.iter().copied().fold(least, f64::max);
    (Some(least), greatest - least <= negligible.max(least * UNSTEADY))
}

/// The folder of profiles: a permanent one, or a temporary one that is removed on drop.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    stays: bool,
    /// The program without line numbers, which valgrind would read in each run.
    stripped: Option<PathBuf>,
}

impl Folder {
    fn new(wanted: Option<PathBuf>) -> io::Result<Folder> {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let stays = wanted.is_some();
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench-profiles-{}-{number}", std::process::id());
        let path = wanted.unwrap_or_else(|| std::env::temp_dir().join(name));
        std::fs::create_dir_all(&path)?;
        // Profiles that are to be looked at need the line numbers.
        let stripped = (!stays).then(|| stripped(&path)).flatten();
        Ok(Folder { path, stays, stripped })
    }

    fn program(&self) -> io::Result<PathBuf> {
        self.stripped.clone().map_or_else(process::program, Ok)
    }

    fn file(&self, task: &Task, rounds: u64, repeat: usize) -> PathBuf {
        let part = if task.part == Part::Whole { task.subject.name() } else { "driver" };
        self.path.join(format!("{}-{part}-{rounds}-{repeat}.callgrind", task.path.name))
    }
}

/// A copy of this program without line numbers, if there is a tool that removes them.
fn stripped(folder: &Path) -> Option<PathBuf> {
    let (program, copy) = (process::program().ok()?, folder.join("bench"));
    let mut strip = Command::new("strip");
    strip.arg("--strip-debug").arg("-o").arg(&copy).arg(program).stderr(Stdio::null());
    strip.status().is_ok_and(|status| status.success()).then_some(copy)
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
    fn numbers_are_steady_within_one_percent() {
        assert_eq!(least(&[1009.0, 1000.0], 1.0), (Some(1000.0), true));
        assert_eq!(least(&[1000.0, 1011.0], 1.0), (Some(1000.0), false));
        assert_eq!(least(&[2.0, 2.9], 1.0), (Some(2.0), true));
        assert_eq!(least(&[], 1.0), (None, true));
    }

    #[test]
    fn the_driver_is_subtracted_on_every_loop() {
        let path = paths::named("echo-write").unwrap();
        let whole = |subject| Task { path, subject, part: Part::Whole, rounds: 1 };
        let driver = whole(Subject::Epoll).driver().unwrap();
        let tasks = [whole(Subject::Epoll), whole(Subject::Uring), driver];
        let counts = [
            (tasks[0].key(), (vec![1000.0, 1000.0], Some(vec![5.0, 5.0]))),
            (tasks[1].key(), (vec![900.0, 990.0], None)),
            (tasks[2].key(), (vec![100.0, 100.0], Some(vec![2.0, 2.0]))),
        ];
        let rows = rows(&tasks, &BTreeMap::from(counts));
        let costs: Vec<_> = rows.iter().map(|row| row.cost).collect();
        let first = Cost { instructions: Some(900.0), calls: Some(3.0) };
        assert_eq!(costs, [first, Cost { instructions: Some(800.0), calls: None }]);
        assert_eq!(rows.iter().map(|row| row.unsteady).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn drivers_that_do_the_same_are_counted_once() {
        let options = CountOptions {
            paths: ["echo-write", "udp-send", "read", "timer-stop"].map(String::from).into(),
            subjects: Vec::new(),
            accept: false,
            json: None,
            profiles: None,
            kept: None,
            rounds: None,
        };
        let tasks = tasks(&options, &[Subject::Epoll, Subject::Uring]).unwrap();
        let drivers = tasks.iter().filter(|task| task.part == Part::Driver);
        let names: Vec<_> = drivers.map(|task| task.path.name).collect();
        assert_eq!(names, ["echo-write", "read"]);
        // Timers are counted on one loop.
        assert_eq!(tasks.len() - names.len(), 7);
    }

    #[test]
    fn only_what_is_too_high_is_counted_again() {
        let (echo, read) = (paths::named("echo-write").unwrap(), paths::named("read").unwrap());
        let whole = |path, subject| Task { path, subject, part: Part::Whole, rounds: 1 };
        let tasks = [
            whole(echo, Subject::Epoll),
            whole(echo, Subject::Uring),
            whole(read, Subject::Epoll),
            whole(echo, Subject::Epoll).driver().unwrap(),
            whole(read, Subject::Epoll).driver().unwrap(),
        ];
        let slopes = |number: f64| (vec![number], Some(vec![1.0]));
        let numbers = [1_100.0, 1_100.0, 600.0, 100.0, 100.0];
        let counts = tasks.iter().zip(numbers).map(|(task, number)| (task.key(), slopes(number)));
        let counts = counts.collect();
        let cost = |instructions| Cost { instructions: Some(instructions), calls: Some(0.0) };
        let kept =
            [("echo-write/epoll", 1_000.0), ("echo-write/uring", 960.0), ("read/epoll", 503.0)];
        let costs = kept.map(|(key, number)| (key.to_string(), cost(number)));
        let kept = kept::Kept { costs: costs.into(), ..kept::Kept::default() };
        let again = doubtful(&tasks, &counts, |row| kept.refuses(row));
        let keys: Vec<Key> = again.iter().map(Task::key).collect();
        assert_eq!(keys, [tasks[1].key(), tasks[3].key()]);
        assert_eq!(doubtful(&tasks, &counts, |_| true).len(), tasks.len());
    }

    #[test]
    fn numbers_that_are_accepted_are_compared_with() {
        let folder = Folder::new(None).unwrap();
        let file = folder.path.join("counts.json");
        assert_eq!(kept::read(&file).unwrap(), kept::Kept::default());
        let cost = |instructions| Cost { instructions: Some(instructions), calls: None };
        let first = [("a/epoll", 1.04), ("b/epoll", 2.0), ("gone/epoll", 1.0)];
        let first = first.map(|(name, count)| (name.to_string(), cost(count))).into();
        kept::accept(&file, &first, |_| true).unwrap();
        let second = BTreeMap::from([("b/epoll".into(), cost(3.0))]);
        kept::accept(&file, &second, |name| name != "gone/epoll").unwrap();
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
                    if part == Part::Whole || path.driver().is_some() {
                        let run = move || path.run(subject, part, 4);
                        let ran = thread::spawn(run).join().unwrap();
                        ran.unwrap_or_else(|error| panic!("{} {subject:?}: {error}", path.name));
                    }
                }
            }
        }
    }
}
