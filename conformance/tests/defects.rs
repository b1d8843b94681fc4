//! The suite can fail: backends with one defect each, and the cases that catch it.
//!
//! That the same backend passes without a defect is shown by `undamaged.rs`.
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

/// A defect that makes a case hang is caught after this time.
const PATIENCE: Duration = Duration::from_secs(15);

/// Defects, and all the cases that must catch each.
type Caught = [(Defect, &'static [&'static str])];

/// Those of the backend in poll-core's documentation.
const OF_MINIMAL: &Caught = &[
    (RegisterComesLate, &["changes::register_reaches_the_next_wait", "processes::codes_are_told"]),
    (ModifyIsDropped, &["changes::modify_reaches_the_next_wait"]),
    (FirstChangeCounts, &["changes::the_last_of_many_changes_counts"]),
    (RefusedRegisterStays, &["changes::a_failed_register_changes_nothing"]),
    (RefusedModifySilences, &["changes::a_failed_modify_changes_nothing"]),
    (StaleTokensAreReported, &["deregister::silences_at_once"]),
    (NumbersAreNotFreed, &["deregister::frees_the_number_for_reuse"]),
    (DeregisterNeverFails, &["deregister::twice_is_not_found"]),
    (OneshotRepeats, &["modes::oneshot_reports_once"]),
    (
        LevelReportsOnce,
        &["modes::level_repeats_while_it_holds", "watching::entries_are_told_by_name"],
    ),
    (SpentForEver, &["modes::modify_rearms_a_spent_oneshot"]),
    (EdgesAreLevels, &["modes::edge_reports_news_only"]),
    (NoneReportsHangups, &["silence::covers_hangup_and_error"]),
    (SilenceForEver, &["silence::ends_with_an_interest"]),
    (SilenceEndsWaits, &["silence::does_not_end_a_wait"]),
    (WaitsEndEarly, &["timeouts::are_never_early"]),
    (TimeoutsAreRoundedDown, &["timeouts::are_never_early"]),
    (WaitsEndLate, &["timeouts::are_not_absurdly_late"]),
    (ZeroWaits, &["timeouts::zero_does_not_wait"]),
    (NoneEnds, &["timeouts::none_waits_for_ever"]),
    (HugeTimeoutsOverflow, &["timeouts::may_be_huge"]),
    (TimeoutsComeFirst, &["timeouts::give_way_to_events"]),
    (SignalsAreIgnored, &["timeouts::end_at_a_signal"]),
    (WakesAreLost, &["wakes::between_waits", "files::callbacks_come_once_and_later"]),
    (EarlyWakesAreLost, &["wakes::before_a_wait"]),
    (WakesStick, &["wakes::before_a_wait", "wakes::coalesce"]),
    (WakesHideEvents, &["wakes::come_with_events"]),
    (LateWakesPanic, &["wakes::after_the_backend_is_gone"]),
    (TwiceIsFine, &["mistakes::a_token_twice", "mistakes::a_source_twice"]),
    (UnknownIsFine, &["mistakes::an_unknown_token"]),
    (StaleIsFine, &["mistakes::a_stale_token"]),
    (ErrorsAreHidden, &["mistakes::a_closed_descriptor"]),
    (ErrorsRepeat, &["mistakes::a_descriptor_closed_while_watched"]),
    (ImpossiblePanics, &["mistakes::an_impossible_descriptor"]),
    (OperationsAreSwallowed, &["operations::are_refused_if_unsupported"]),
    (CancelNeverFails, &["operations::cancelling_nothing_is_not_found"]),
    (GroupsAreSwallowed, &["memory::groups_are_refused_if_unsupported"]),
    (TwoEventsASource, &["conditions::both_directions_come_in_one_event"]),
    (FailuresImplyNothing, &["conditions::a_reset_is_readable_and_writable"]),
    (NothingIsWritable, &["conditions::room_is_writable"]),
    (UrgentIsData, &["conditions::urgent_data_is_silent_unasked"]),
    (AThousandIsEnough, &["scale::eleven_hundred_sources"]),
    (ChangesAreQuadratic, &["scale::changes_take_linear_time"]),
    (LateComersStarve, &["scale::busy_sources_starve_nobody"]),
    (HighNumbersAreIgnored, &["scale::high_descriptor_numbers"]),
    (DescriptorsLeak, &["surroundings::no_descriptor_is_left_behind"]),
    (TimeGoesBack, &["surroundings::time_only_goes_forward"]),
];

/// Caught by counting system calls, which only Linux lets us do.
const WASTEFUL: &Caught = &[
    (ChangesCostCalls, &["changes::many_changes_cost_one_call"]),
    (WaitsCostCalls, &["changes::unchanged_sources_cost_nothing"]),
    (WakesCostCalls, &["wakes::cost_nothing_while_awake"]),
];

/// Those of a backend whose kernel object a child shares with its parent.
const OF_EPOLL: &Caught = &[
    (ForksAreIgnored, &["surroundings::a_parent_survives_its_child"]),
    (
        ChangesAreDenied,
        &[
            "surroundings::a_sleeper_outside_is_told_of_changes",
            "embedding::what_a_timer_starts_wakes_another_poller",
        ],
    ),
];

/// Those of a backend that performs operations.
const OF_URING: &Caught = &[
    (DoneComesTwice, &["operations::end_exactly_once"]),
    (
        FailuresAreSuccesses,
        &["operations::fail_with_the_error", "files::what_is_missing_is_not_found"],
    ),
    (CancelledNeverEnds, &["operations::end_when_cancelled"]),
    (RecycledIsLost, &["memory::is_provided_and_recycled"]),
    (
        ChangesAreDenied,
        &[
            "surroundings::a_sleeper_outside_is_told_of_changes",
            "embedding::each_event_wakes_another_poller",
            "embedding::an_echo_is_driven_from_outside",
        ],
    ),
];

/// Points from here on are about the loop, which is not broken here: some of their cases
/// catch a broken backend all the same.
const FIRST_OF_THE_LOOP: u8 = 13;

#[test]
fn every_point_of_the_contract_has_a_defect() {
    let all = all_cases::<Broken<Minimal>>();
    for (point, title) in (1..FIRST_OF_THE_LOOP).zip(POINTS) {
        let is_about =
            |path: &&str| all.iter().any(|case| case.point == point && case.path() == **path);
        let mut cases = OF_MINIMAL.iter().flat_map(|(_, cases)| cases.iter());
        assert!(cases.any(is_about), "no defect is about {title}");
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

/// The variable that tells a process which backend, defect and case it is there for.
const ONE: &str = "CONFORMANCE_DEFECT";

/// What there is to run for one backend, as [`ONE`] says it.
fn runs(backend: &str, caught: &Caught) -> Vec<String> {
    let runs = caught.iter().flat_map(|(defect, cases)| {
        cases.iter().map(move |case| format!("{backend} {defect:?} {case}"))
    });
    runs.collect()
}

/// Asserts that each defect makes each of its cases fail. Each has a process of its
/// own, as some hang, and they run all at once, as most wait for what never comes.
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
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let outcome = said.lines().find_map(|line| line.strip_prefix("outcome: "));
        if !outcome.is_some_and(|outcome| outcome.starts_with("fail: ")) {
            missed.push(format!("{one}: {}", outcome.unwrap_or("no outcome")));
        }
    }
    assert!(missed.is_empty(), "not caught:\n{}", missed.join("\n"));
}

/// What the processes of the other tests run. On its own it does nothing.
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
        _ => panic!("no backend is called {backend}"),
    }
}

fn run<B: Backend + 'static>(new: fn() -> io::Result<B>, defect: Defect, path: &str) {
    let all = all_cases::<Broken<B>>();
    let case = all.iter().find(|case| case.path() == path).expect("the path of a case");
    let broken = move || Ok(Broken::new(new()?, defect));
    let outcome = run_case_within(PATIENCE, path, case.run, broken);
    println!("\noutcome: {outcome}");
}
