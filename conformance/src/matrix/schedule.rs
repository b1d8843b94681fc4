//! The order in which cases run.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::options::Selection;
use super::{Candidate, Entry, Finished, Runner};
use crate::Outcome;

/// The progress display while cases run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// No display.
    Silent,
    /// A bar on the standard error stream.
    Bar,
}

/// A case on a backend, and its position in the report.
struct Job<'a> {
    place: (usize, usize),
    candidate: &'a Candidate,
    case: &'a Entry,
}

/// Runs the selection: ordinary cases concurrently, then exclusive ones one by one. The results are
/// ordered by case, then by backend.
pub(super) fn run(
    selection: &Selection<'_>,
    runner: &dyn Runner,
    jobs: usize,
    progress: Progress,
) -> Vec<Finished> {
    let all = selection.iter().enumerate().flat_map(|(column, (candidate, cases))| {
        cases.iter().enumerate().map(move |(row, case)| Job {
            place: (row, column),
            candidate,
            case,
        })
    });
    let (alone, together): (Vec<_>, Vec<_>) = all.partition(|job| job.case.alone());
    let bar = bar(alone.len() + together.len(), progress);
    let mut finished = run_jobs(&together, runner, jobs, &bar);
    finished.extend(run_jobs(&alone, runner, 1, &bar));
    bar.finish_and_clear();
    finished.sort_by_key(|(place, _)| *place);
    finished.into_iter().map(|(_, finished)| finished).collect()
}

fn run_jobs(
    jobs: &[Job<'_>],
    runner: &dyn Runner,
    threads: usize,
    bar: &ProgressBar,
) -> Vec<((usize, usize), Finished)> {
    let (next, finished, failed) =
        (AtomicUsize::new(0), Mutex::new(Vec::new()), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..threads.min(jobs.len()) {
            scope.spawn(|| {
                while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    bar.set_message(format!("{} {}", job.candidate.name(), job.case.path()));
                    let one = run_job(job, runner);
                    if matches!(one.outcome, Outcome::Fail(_)) {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                    bar.inc(1);
                    if let failed @ 1.. = failed.load(Ordering::Relaxed) {
                        bar.set_prefix(format!("{failed} failed "));
                    }
                    finished.lock().expect("no thread panics").push((job.place, one));
                }
            });
        }
    });
    finished.into_inner().expect("no thread panics")
}

fn run_job(job: &Job<'_>, runner: &dyn Runner) -> Finished {
    let started = Instant::now();
    let outcome = runner.run(job.candidate, job.case);
    Finished {
        backend: job.candidate.name(),
        point: job.case.point(),
        case: job.case.path().into(),
        outcome,
        time: started.elapsed(),
    }
}

fn bar(length: usize, progress: Progress) -> ProgressBar {
    if progress == Progress::Silent {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length as u64);
    let template = "[{bar:30}] {pos}/{len} {prefix:.red}{wide_msg:.dim}";
    let style = ProgressStyle::with_template(template).expect("a template that parses");
    bar.set_style(style.progress_chars("=> "));
    bar.enable_steady_tick(Duration::from_millis(100));
    bar
}
