//! Every scenario at a tiny size, on every backend and peer of this machine: counts are checked,
//! durations are not.

use bench::allocations::Counting;
use bench::backends::Which;
use bench::results::Row;
use bench::runner::{LEAST_ROUNDS, Runner};
use bench::suite::Suite;
use bench::suites::{self, Scale};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The suite of that name.
fn suite(name: &str) -> Suite {
    bench::process::use_program(env!("CARGO_BIN_EXE_bench"));
    let mut suites = suites::all(Scale::Tiny, Which::All);
    suites.retain(|suite| suite.name == name);
    suites.pop().unwrap_or_else(|| panic!("no suite {name}"))
}

/// Runs each contestant of each scenario once. Wrong counts are errors.
fn check(name: &str) {
    let suite = suite(name);
    for scenario in &suite.scenarios {
        for contestant in &scenario.entrants.contestants {
            let ran = contestant.run(&scenario.figures);
            let sample = ran.unwrap_or_else(|error| panic!("{name}, {}: {error}", scenario.name));
            // A reading that is missing has a note with the reason.
            let some = sample.readings.iter().any(Option::is_some);
            assert!(some || !sample.notes.is_empty(), "{name}: {}", contestant.id);
        }
        for absent in &scenario.entrants.absent {
            println!("{name}, {}: no {} ({})", scenario.name, absent.id, absent.why);
        }
    }
}

#[test]
fn timers_are_added_stopped_started_and_fired() {
    check("timers");
}

#[test]
fn turns_are_counted() {
    check("iterations");
}

#[test]
fn sends_and_round_trips_arrive() {
    check("async");
}

#[test]
fn jobs_come_back() {
    check("pool");
}

#[test]
fn waits_report_the_active_source_and_no_other() {
    check("wait");
}

#[test]
fn servers_answer_with_what_they_got() {
    check("echo");
}

#[test]
fn servers_take_one_connection_after_the_other() {
    check("connect");
}

#[test]
fn servers_read_all_that_is_sent() {
    check("pump");
}

#[test]
fn open_loops_count_every_request() {
    check("open");
}

#[test]
fn http_requests_are_answered_with_the_text() {
    check("http");
}

#[test]
fn idle_slow_and_greedy_connections_leave_the_others_served() {
    check("mixed");
}

#[test]
fn handlers_compute_and_timers_answer() {
    check("handlers");
}

#[test]
fn connections_are_distributed_to_threads() {
    check("threads");
}

#[test]
fn tasks_are_spawned_joined_and_woken() {
    check("tasks");
}

#[test]
fn instructions_are_counted_for_so_many_requests() {
    check("instructions");
}

#[test]
fn datagrams_go_back_and_forth() {
    check("udp");
}

#[test]
fn memory_is_that_of_so_many() {
    check("memory");
}

#[test]
fn calls_are_counted_for_so_many_requests() {
    check("calls");
}

#[test]
fn files_are_read_and_asked_about() {
    check("files");
}

#[test]
fn reads_get_what_is_in_the_file() {
    check("reads");
}

#[test]
fn children_are_started_and_end() {
    check("spawn");
}

#[test]
fn every_suite_has_a_name_for_the_command_line() {
    let suites = suites::all(Scale::Tiny, Which::All);
    assert_eq!(suites.iter().map(|suite| suite.name).collect::<Vec<_>>(), suites::NAMES);
}

#[test]
fn a_backend_that_exists_here_is_a_contestant_of_every_suite() {
    for suite in suites::all(Scale::Tiny, Which::All) {
        for scenario in &suite.scenarios {
            let contestants = scenario.entrants.contestants.iter();
            let ours: Vec<_> = contestants.filter_map(|one| one.id.backend()).collect();
            let is_absent = scenario.entrants.absent.iter().any(|one| one.id == "uv-core poll");
            assert!(ours.contains(&"poll") || is_absent, "{}: {ours:?}", suite.name);
        }
    }
}

#[test]
fn a_run_has_a_row_for_each_figure_and_a_value_for_each_round() {
    let suite = suite("iterations");
    let (scenarios, baseline) = (suite.scenarios.len(), baseline());
    let rows = Runner::silent(LEAST_ROUNDS).run(vec![suite]).unwrap().rows;
    assert_eq!(rows.len(), scenarios);
    for Row { baseline: compared_to, again, entries, .. } in rows {
        assert_eq!(compared_to, baseline);
        assert_eq!(again.values.len(), LEAST_ROUNDS);
        assert!(entries.iter().all(|entry| entry.values.len() == LEAST_ROUNDS));
        let own = entries.iter().find(|entry| entry.id == compared_to).unwrap();
        assert_eq!(own.ratio.median, 1.0);
    }
}

fn baseline() -> &'static str {
    if cfg!(all(unix, feature = "libuv")) {
        "libuv"
    } else if cfg!(target_os = "linux") {
        "hand epoll"
    } else {
        "uv-core select"
    }
}
