//! The suite can fail: backends with one defect each, and the cases that catch it.
//!
//! `undamaged.rs` shows that the same backend passes without a defect.
#![cfg(unix)]

#[allow(dead_code)]
mod broken;
#[allow(unreachable_pub)]
#[path = "../../poll-core/docs/minimal.rs"]
mod documented;

use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use broken::Broken;
use broken::Defect::{self, *};
use conformance::{POINTS, all_cases, run_case_within};
use documented::Minimal;
use poll_core::Backend;

/// The time limit after which a case counts as hanging.
const PATIENCE: Duration = Duration::from_secs(15);

/// Defects, and all cases that must catch each.
type Caught = [(Defect, &'static [&'static str])];

/// Defects of the backend in poll-core's documentation.
const OF_MINIMAL: &Caught = &[
    (
        RegisterTakesEffectLate,
        &["changes::register_takes_effect_at_next_wait", "processes::exit_codes_are_reported"],
    ),
    (ModifyIsDropped, &["changes::modify_takes_effect_at_next_wait"]),
    (FirstChangeWins, &["changes::last_change_before_wait_wins"]),
    (RefusedRegisterStays, &["changes::failed_register_has_no_effect"]),
    (RefusedModifySilences, &["changes::failed_modify_has_no_effect"]),
    (StaleTokensAreReported, &["deregister::takes_effect_immediately"]),
    (DeregisteredSourcesSpin, &["deregister::leaves_waits_asleep"]),
    (SourcesAreNotFreed, &["deregister::allows_descriptor_reuse"]),
    (DeregisterNeverFails, &["deregister::twice_is_not_found"]),
    (OneshotRepeats, &["modes::oneshot_reports_once"]),
    (
        LevelReportsOnce,
        &[
            "modes::level_repeats_while_condition_holds",
            "watching::entry_changes_are_reported_by_name",
        ],
    ),
    (SpentIsPermanent, &["modes::modify_rearms_a_spent_oneshot"]),
    (EdgesAreLevels, &["modes::edge_reports_transitions_only"]),
    (NoneReportsHangups, &["silence::covers_hangup_and_error"]),
    (SilenceSpins, &["silence::lets_waits_sleep"]),
    (SilenceIsPermanent, &["silence::ends_when_interest_is_set"]),
    (SilenceEndsWaits, &["silence::does_not_end_a_wait"]),
    (WaitsEndEarly, &["timeouts::are_never_early"]),
    (TimeoutsAreRoundedDown, &["timeouts::are_never_early"]),
    (FractionsSpin, &["timeouts::of_fractions_of_a_millisecond_are_slept"]),
    (WaitsEndLate, &["timeouts::have_bounded_lateness"]),
    (ZeroWaits, &["timeouts::zero_does_not_block"]),
    (NoneEnds, &["timeouts::none_blocks_indefinitely"]),
    (HugeTimeoutsOverflow, &["timeouts::huge_values_do_not_overflow"]),
    (EventsAreDelayed, &["timeouts::events_end_the_wait"]),
    (SignalsAreIgnored, &["timeouts::signals_interrupt_the_wait"]),
    (WakesAreLost, &["wakes::between_waits", "files::callbacks_run_once_and_never_inline"]),
    (EarlyWakesAreLost, &["wakes::before_a_wait"]),
    (WakesStick, &["wakes::before_a_wait", "wakes::coalesce"]),
    (WakesAreNotDrained, &["wakes::leave_later_waits_asleep"]),
    (
        WakesHideEvents,
        &["wakes::combine_with_events", "signals::follow_data_that_arrived_before_them"],
    ),
    (LateWakesPanic, &["wakes::after_the_backend_is_dropped"]),
    (DuplicatesAreAccepted, &["mistakes::duplicate_token", "mistakes::duplicate_source"]),
    (UnknownIsAccepted, &["mistakes::unknown_token"]),
    (StaleIsAccepted, &["mistakes::stale_token"]),
    (ErrorsAreHidden, &["mistakes::closed_descriptor"]),
    (ErrorsRepeat, &["mistakes::descriptor_closed_while_registered"]),
    (InvalidDescriptorPanics, &["mistakes::invalid_descriptor_number"]),
    (UnsupportedOpsAreAccepted, &["operations::unsupported_kinds_are_refused"]),
    (CancelNeverFails, &["operations::cancel_of_unknown_token_is_not_found"]),
    (UnsupportedGroupsAreAccepted, &["memory::unsupported_groups_are_refused"]),
    (TwoEventsASource, &["conditions::both_directions_are_one_event"]),
    (FailuresImplyNothing, &["conditions::reset_is_readable_and_writable"]),
    (NothingIsWritable, &["conditions::free_send_buffer_is_writable"]),
    (UrgentIsData, &["conditions::urgent_data_without_interest_is_ignored"]),
    (SourcesAreCapped, &["scale::eleven_hundred_sources"]),
    (ChangesAreQuadratic, &["scale::changes_take_linear_time"]),
    (HighTokensStarve, &["scale::busy_sources_do_not_starve_others"]),
    (HighNumbersAreIgnored, &["scale::high_descriptor_numbers"]),
    (DescriptorsLeak, &["surroundings::no_descriptor_leaks"]),
    (TimeGoesBackwards, &["surroundings::time_is_monotonic"]),
    // Parent and child share the waker's descriptor.
    (ForksAreIgnored, &["surroundings::wakes_stay_in_their_process"]),
];

/// Caught by counting system calls, which is possible on Linux only.
const WASTEFUL: &Caught = &[
    (ChangesCostCalls, &["changes::changes_coalesce_into_one_syscall"]),
    (WaitsCostCalls, &["changes::unchanged_sources_cost_no_syscall"]),
    (WakesCostCalls, &["wakes::make_no_syscall_while_awake"]),
];

/// Defects of a backend whose kernel object a child shares with its parent.
const OF_EPOLL: &Caught = &[
    (ForksAreIgnored, &["surroundings::fork_does_not_affect_parent"]),
    (
        UnflushedChangesAreHidden,
        &[
            "surroundings::outer_poller_misses_no_event",
            "embedding::sources_started_by_a_timer_wake_another_poller",
        ],
    ),
];

/// Defects of a backend that performs operations.
const OF_URING: &Caught = &[
    (DoneIsDuplicated, &["operations::complete_exactly_once"]),
    (
        FailuresReportSuccess,
        &["operations::report_the_os_error", "files::missing_paths_are_not_found"],
    ),
    (CancelledNeverEnds, &["operations::complete_when_cancelled"]),
    (ReleasedBufferIsLost, &["memory::group_buffers_are_leased_and_released"]),
    (
        UnflushedChangesAreHidden,
        &[
            "surroundings::outer_poller_misses_no_event",
            "embedding::each_event_wakes_another_poller",
            "embedding::another_poller_drives_an_echo",
        ],
    ),
];

/// Points from here on are about the loop, which has no injected defects; some of their cases catch
/// a broken backend nevertheless.
const FIRST_OF_THE_LOOP: u8 = 13;

#[test]
fn every_point_of_the_contract_has_a_defect() {
    let all = all_cases();
    for (point, title) in (1..FIRST_OF_THE_LOOP).zip(POINTS) {
        let is_about =
            |path: &&str| all.iter().any(|case| case.point == point && case.path() == **path);
        let mut cases = OF_MINIMAL.iter().flat_map(|(_, cases)| cases.iter());
        assert!(cases.any(is_about), "no defect covers {title}");
    }
}

#[test]
fn every_defect_is_caught() {
    let mut runs = runs("minimal", OF_MINIMAL);
    if cfg!(target_os = "linux") {
        runs.extend(self::runs("minimal", WASTEFUL));
    }
    #[cfg(all(target_os = "linux", feature = "matrix"))]
    {
        runs.extend(self::runs("epoll", OF_EPOLL));
        match poll_uring::Uring::new() {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => eprintln!("skip: {error}"),
            _ => runs.extend(self::runs("uring", OF_URING)),
        }
    }
    assert_caught(runs);
}

/// The environment variable that names the backend, defect and case of a child process.
const ONE: &str = "CONFORMANCE_DEFECT";

/// The runs for one backend, in the format of [`ONE`].
fn runs(backend: &str, caught: &Caught) -> Vec<String> {
    let runs = caught.iter().flat_map(|(defect, cases)| {
        cases.iter().map(move |case| format!("{backend} {defect:?} {case}"))
    });
    runs.collect()
}

/// Asserts that each defect makes each of its cases fail. Each run is a separate process, since
/// some hang, and all run concurrently, since most wait for an event that never arrives.
fn assert_caught(runs: Vec<String>) {
    let program = std::env::current_exe().expect("the path of this test");
    let start = |one: String| {
        let mut command = Command::new(&program);
        command.args(["--exact", "one_defect", "--nocapture"]).env(ONE, &one);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        (one, child.expect("a process for each defect"))
    };
    let children: Vec<_> = runs.into_iter().map(start).collect();
    let mut missed = Vec::new();
    for (one, child) in children {
        let output = child.wait_with_output().expect("the output of the process");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let outcome = text.lines().find_map(|line| line.strip_prefix("outcome: "));
        if !outcome.is_some_and(|outcome| outcome.starts_with("fail: ")) {
            missed.push(format!("{one}: {}", outcome.unwrap_or("no outcome")));
        }
    }
    assert!(missed.is_empty(), "not caught:\n{}", missed.join("\n"));
}

/// The entry point of the child processes. Without the variable it does nothing.
#[test]
fn one_defect() {
    let Ok(one) = std::env::var(ONE) else { return };
    let mut words = one.split(' ');
    let mut word = || words.next().expect("three words");
    let (backend, defect, path) = (word(), word(), word());
    let mut known = [OF_MINIMAL, WASTEFUL, OF_EPOLL, OF_URING].into_iter().flatten();
    let named = known.find(|(known, _)| format!("{known:?}") == defect);
    let defect = named.expect("the name of a defect").0;
    match backend {
        "minimal" => run(Minimal::new, defect, path),
        #[cfg(all(target_os = "linux", feature = "matrix"))]
        "epoll" => run(poll_epoll::Epoll::new, defect, path),
        #[cfg(all(target_os = "linux", feature = "matrix"))]
        "uring" => run(poll_uring::Uring::new, defect, path),
        _ => panic!("unknown backend {backend}"),
    }
}

fn run<B: Backend + 'static>(new: fn() -> io::Result<B>, defect: Defect, path: &str) {
    let all = all_cases();
    let case = all.iter().find(|case| case.path() == path).expect("the path of a case");
    let broken = move || Ok(Broken::new(new()?, defect));
    let outcome = run_case_within(PATIENCE, path, case.run, broken);
    println!("\noutcome: {outcome}");
}
