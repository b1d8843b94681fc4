//! Running cases: exclusively where required, with a time limit, catching panics.

use std::any::Any;
use std::fmt;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::RwLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use poll_core::Backend;

use crate::{Lab, Verdict};

/// The time limit of a case. The slowest take a few seconds.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Groups and cases that run exclusively: they change or count process-wide state (descriptors,
/// limits, children), or measure time, which concurrent cases would distort.
const ALONE: &[&str] = &[
    "embedding",
    "files::a_full_disk_accepts_a_partial_write",
    "files::no_descriptor_leaks",
    "files::out_of_descriptors_is_an_error",
    "files::permission_errors_are_reported",
    "panics::in_a_signal",
    "pipes::handles_reach_another_process",
    "pipes::unaccepted_handles_are_limited",
    "pipes::no_descriptor_leaks",
    "pipes::handles_lost_for_want_of_descriptors_are_reported",
    "pipes::handles_share_a_standard_stream_by_turns",
    "pipes::standard_streams_stay_open",
    "pipes::unaccepted_handles_are_closed_with_the_pipe",
    "platform::the_process_title_is_visible",
    "platform::memory_sizes_are_consistent",
    "platform::priorities_can_be_lowered",
    "platform::the_temporary_directory_follows_the_environment",
    "platform::too_many_random_bytes_are_refused",
    "polls::a_thousand_polls",
    "processes",
    "scale",
    "signals",
    "streams::memory_of_queued_writes_is_returned",
    "surroundings",
    "tcp::a_thousand_concurrent_connections",
    "tcp::a_write_of_a_gibibyte_is_not_copied",
    "tcp::errors_leak_no_descriptor",
    "tcp::no_descriptor_leaks",
    "tcp::out_of_descriptors_closes_pending_connections",
    "tcp::ten_thousand_concurrent_connections",
    "terminals",
    "timeouts::have_bounded_lateness",
    "timeouts::zero_does_not_block",
    "udp::no_descriptor_leaks",
    "wakes::from_many_threads",
    "watching::a_forked_child_continues_to_watch",
    "watching::a_queue_overflow_is_reported",
    "watching::a_relative_tree_survives_a_change_of_directory",
    "watching::no_descriptor_leaks",
    "watching::out_of_descriptors_is_an_error",
    "watching::out_of_watches_is_an_error",
    "work::the_environment_sets_the_pool_size",
];

/// Locked for reading by ordinary cases, for writing by exclusive ones.
static EXCLUSIVE: RwLock<()> = RwLock::new(());

/// The title of each point, from point 1 on: those of poll-core's
/// [contract](poll_core::contract), then those of uv-core's
/// [behaviour](uv_core::behaviour).
pub const POINTS: &[&str] = &[
    "Changes",
    "Deregistering",
    "Modes",
    "Silence",
    "Timeouts",
    "Wakes",
    "Mistakes",
    "Operations",
    "Lent memory",
    "Conditions",
    "Scale",
    "Surroundings",
    "Running",
    "Time",
    "Handles",
    "Closing",
    "Timers",
    "Watchers",
    "Asyncs",
    "Polls",
    "Signals",
    "Work",
    "Metrics",
    "Panics",
    "Embedding",
    "Streams",
    "TCP",
    "UDP",
    "Names",
    "Platform",
    "Terminals",
    "Pipes",
    "Processes",
    "Watching",
    "File polls",
    "Files",
    "Short forms",
];

/// A case of the suite.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Case {
    /// The point of the contract, or of the loop's behaviour, that it checks.
    pub point: u8,
    /// The name of its module.
    pub group: &'static str,
    /// Its name within the module.
    pub name: &'static str,
    /// The function to run.
    pub run: fn(&Lab) -> Verdict,
}

impl Case {
    /// The qualified name of the case: `wakes::coalesce`.
    pub fn path(&self) -> String {
        format!("{}::{}", self.group, self.name)
    }
}

/// The outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The contract holds.
    Pass,
    /// The contract is violated, and how.
    Fail(String),
    /// The case does not apply, and why.
    Skip(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Pass => f.write_str("pass"),
            Outcome::Fail(why) => write!(f, "fail: {why}"),
            Outcome::Skip(why) => write!(f, "skip: {why}"),
        }
    }
}

/// Generates [`all_cases`] and its documentation from the list.
#[doc(hidden)]
#[macro_export]
macro_rules! __function_of_cases {
    ($($point:literal $group:ident: $($case:ident)*;)*) => {
        /// Every case, by point:
        ///
        #[doc = concat!($(
            stringify!($point), ". ",
            "[`", stringify!($group), "`](crate::cases::", stringify!($group), "): ",
            $(
                "[`", stringify!($case), "`]",
                "(crate::cases::", stringify!($group), "::", stringify!($case), ") ",
            )*
            "\n",
        )*)]
        pub fn all_cases() -> Vec<Case> {
            vec![$($(
                Case {
                    point: $point,
                    group: stringify!($group),
                    name: stringify!($case),
                    run: $crate::cases::$group::$case,
                },
            )*)*]
        }
    };
}

crate::__list_of_cases!(__function_of_cases);

/// True if the case named `path` must not run concurrently with others.
pub fn runs_alone(path: &str) -> bool {
    let group = path.split("::").next().unwrap_or_default();
    ALONE.contains(&group) || ALONE.contains(&path)
}

/// Runs one case on backends from `new`, with a limit of one minute. `path` is its name as
/// [`Case::path`] returns it.
pub fn run_case<B: Backend>(
    path: &str,
    case: fn(&Lab) -> Verdict,
    new: impl Fn() -> io::Result<B> + Send + Sync + 'static,
) -> Outcome {
    run_in(Lab::new(new), TIME_LIMIT, path, case)
}

/// As [`run_case`], with another time limit. A case that hangs keeps its thread.
pub fn run_case_within<B: Backend>(
    limit: Duration,
    path: &str,
    case: fn(&Lab) -> Verdict,
    new: impl Fn() -> io::Result<B> + Send + Sync + 'static,
) -> Outcome {
    run_in(Lab::new(new), limit, path, case)
}

/// Not generic, so that it is compiled once for all backends and cases.
fn run_in(lab: Lab, limit: Duration, path: &str, case: fn(&Lab) -> Verdict) -> Outcome {
    let alone = runs_alone(path);
    // A case that panicked leaves no inconsistent state behind the lock.
    let _shared = (!alone).then(|| EXCLUSIVE.read().unwrap_or_else(|poison| poison.into_inner()));
    let _alone = alone.then(|| EXCLUSIVE.write().unwrap_or_else(|poison| poison.into_inner()));

    let (done, result) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let _ = done.send(catch_unwind(AssertUnwindSafe(|| case(&lab))));
    });
    match result.recv_timeout(limit) {
        Ok(Ok(Ok(()))) => Outcome::Pass,
        Ok(Ok(Err(skip))) => Outcome::Skip(skip.reason().into()),
        Ok(Err(panic)) => Outcome::Fail(message(&*panic)),
        Err(RecvTimeoutError::Timeout) => {
            Outcome::Fail(format!("hangs: not finished in {limit:?}"))
        }
        Err(RecvTimeoutError::Disconnected) => Outcome::Fail(match thread.join() {
            Ok(()) => "ended without a result".into(),
            Err(panic) => message(&*panic),
        }),
    }
}

/// Runs one case as a `#[test]`: panics if it fails, prints if it is skipped.
///
/// # Panics
///
/// If the case fails.
pub fn check<B: Backend>(
    backend: &str,
    path: &str,
    case: fn(&Lab) -> Verdict,
    new: impl Fn() -> io::Result<B> + Send + Sync + 'static,
) {
    check_in(Lab::new(new), backend, path, case);
}

fn check_in(lab: Lab, backend: &str, path: &str, case: fn(&Lab) -> Verdict) {
    match run_in(lab, TIME_LIMIT, path, case) {
        Outcome::Pass => {}
        Outcome::Fail(why) => panic!("{backend}::{path}: {why}"),
        // Not `eprintln!`, which the test harness captures.
        Outcome::Skip(why) => {
            let _ = io::stderr().write_all(format!("skip {backend}::{path}: {why}\n").as_bytes());
        }
    }
}

/// The message of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "panicked with a payload that is not a string".into())
}
