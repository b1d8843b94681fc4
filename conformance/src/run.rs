//! Running cases: alone where they must be, with a limit on time, panics caught.

use std::any::Any;
use std::fmt;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::RwLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use poll_core::Backend;

use crate::{Lab, Verdict};

/// A case that takes longer hangs. The slowest take a few seconds.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(60);

/// Groups and cases that run while no other does: they change or count what the
/// whole process shares (descriptors, limits, children), or they measure time,
/// which other cases would use up.
const ALONE: &[&str] = &[
    "embedding",
    "files::a_full_disk_takes_what_fits",
    "files::no_descriptor_is_left_behind",
    "files::out_of_descriptors_is_told",
    "files::what_is_forbidden_is_refused",
    "panics::in_a_signal",
    "pipes::handles_reach_another_process",
    "pipes::no_descriptor_is_left_behind",
    "pipes::out_of_descriptors_is_told_of_handles",
    "pipes::standard_streams_stay_open",
    "pipes::what_is_not_taken_is_closed_with_the_pipe",
    "platform::a_title_is_shown",
    "platform::memory_adds_up",
    "platform::priorities_can_be_lowered",
    "platform::temporary_files_go_where_they_are_told",
    "platform::too_many_random_bytes_are_refused",
    "polls::a_thousand_at_once",
    "processes",
    "scale",
    "signals",
    "surroundings",
    "tcp::a_thousand_connections_at_once",
    "tcp::a_write_of_a_gibibyte_goes_in_pieces",
    "tcp::hardship_leaves_no_descriptor",
    "tcp::no_descriptor_is_left_behind",
    "tcp::out_of_descriptors_turns_peers_away",
    "tcp::ten_thousand_connections_at_once",
    "terminals",
    "timeouts::are_not_absurdly_late",
    "timeouts::zero_does_not_wait",
    "udp::no_descriptor_is_left_behind",
    "wakes::from_many_threads",
    "watching::a_forked_child_watches_on",
    "watching::lost_changes_are_told",
    "watching::no_descriptor_is_left_behind",
    "watching::out_of_descriptors_is_an_error",
    "watching::out_of_watches_is_an_error",
    "work::the_environment_sets_the_size",
];

/// Held for reading by ordinary cases, for writing by those that run alone.
static ROOM: RwLock<()> = RwLock::new(());

/// The title of each point, from point 1 on: those of poll-core's
/// [contract](poll_core#the-contract), then those of uv-core's
/// [behaviour](uv_core#behaviour).
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
];

/// One case for one kind of backend.
#[derive(Debug)]
pub struct Case<B> {
    /// The point of the contract, or of the loop's behaviour, that it checks.
    pub point: u8,
    /// The module it is in.
    pub group: &'static str,
    /// Its name within the module.
    pub name: &'static str,
    /// The case itself.
    pub run: fn(&Lab<B>) -> Verdict,
}

impl<B> Case<B> {
    /// The name of the case with its module: `wakes::coalesce`.
    pub fn path(&self) -> String {
        format!("{}::{}", self.group, self.name)
    }
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The contract holds.
    Pass,
    /// The contract is broken, and how.
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

/// Every case, for backends of type `B`.
pub fn all_cases<B: Backend + 'static>() -> Vec<Case<B>> {
    crate::__list_of_cases!(__array_of_cases)
}

#[doc(hidden)]
#[macro_export]
macro_rules! __array_of_cases {
    (; $($point:literal $group:ident: $($case:ident)*;)*) => {
        vec![$($(
            $crate::Case {
                point: $point,
                group: stringify!($group),
                name: stringify!($case),
                run: $crate::cases::$group::$case,
            },
        )*)*]
    };
}

/// True if the case named `path` must not share the process, or the machine, with
/// others while it runs.
pub fn runs_alone(path: &str) -> bool {
    let group = path.split("::").next().unwrap_or_default();
    ALONE.contains(&group) || ALONE.contains(&path)
}

/// Runs one case on backends from `new`, within a minute. `path` is its name, as
/// [`Case::path`] gives it.
pub fn run_case<B: Backend + 'static>(
    path: &str,
    case: fn(&Lab<B>) -> Verdict,
    new: impl Fn() -> io::Result<B> + Send + Sync + 'static,
) -> Outcome {
    run_case_within(TIME_LIMIT, path, case, new)
}

/// As [`run_case`], with a limit of one's own. A case that hangs keeps its thread.
pub fn run_case_within<B: Backend + 'static>(
    limit: Duration,
    path: &str,
    case: fn(&Lab<B>) -> Verdict,
    new: impl Fn() -> io::Result<B> + Send + Sync + 'static,
) -> Outcome {
    let alone = runs_alone(path);
    // A case that panicked poisons nothing that the next one could see.
    let _shared = (!alone).then(|| ROOM.read().unwrap_or_else(|poison| poison.into_inner()));
    let _alone = alone.then(|| ROOM.write().unwrap_or_else(|poison| poison.into_inner()));

    let (done, result) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let lab = Lab::new(new);
        let _ = done.send(catch_unwind(AssertUnwindSafe(|| case(&lab))));
    });
    match result.recv_timeout(limit) {
        Ok(Ok(Ok(()))) => Outcome::Pass,
        Ok(Ok(Err(skip))) => Outcome::Skip(skip.reason().into()),
        Ok(Err(panic)) => Outcome::Fail(message(&*panic)),
        Err(RecvTimeoutError::Timeout) => Outcome::Fail(format!("hangs: not over in {limit:?}")),
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
pub fn check<B: Backend + 'static>(
    backend: &str,
    path: &str,
    case: fn(&Lab<B>) -> Verdict,
    new: impl Fn() -> io::Result<B> + Send + Sync + 'static,
) {
    match run_case(path, case, new) {
        Outcome::Pass => {}
        Outcome::Fail(why) => panic!("{backend}::{path}: {why}"),
        // Not `eprintln!`: the test harness would swallow it.
        Outcome::Skip(why) => {
            let _ = io::stderr().write_all(format!("skip {backend}::{path}: {why}\n").as_bytes());
        }
    }
}

/// The text of a panic.
pub(crate) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| text.to_string());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "panicked with something other than a text".into())
}
