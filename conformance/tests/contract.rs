//! The points documented by poll-core and uv-core are those that the suite checks.

use std::collections::{BTreeMap, BTreeSet};

use conformance::{POINTS, all_cases};

/// The contract of backends and the behaviour of the loop, numbered consecutively.
const DOCUMENTS: [&str; 2] = [
    include_str!("../../poll-core/docs/contract.md"),
    include_str!("../../uv-core/docs/behaviour.md"),
];

/// The cases about failures, for each point of the contract.
const FAILURES: [&[&str]; 12] = [
    &["changes::failed_register_has_no_effect", "changes::failed_modify_has_no_effect"],
    &["deregister::twice_is_not_found"],
    &["modes::unsupported_edge_is_refused"],
    &["silence::covers_hangup_and_error"],
    &[
        "timeouts::signals_interrupt_the_wait",
        "timeouts::suppressed_events_do_not_shorten_the_wait",
    ],
    &["wakes::after_the_backend_is_dropped"],
    &["mistakes::duplicate_token", "mistakes::closed_descriptor"],
    &["operations::report_the_os_error", "operations::unsupported_kinds_are_refused"],
    &["memory::exhausted_group_is_enobufs", "memory::unsupported_groups_are_refused"],
    &["conditions::refused_connection_is_writable", "conditions::reset_is_readable_and_writable"],
    &["scale::high_descriptor_numbers"],
    &["surroundings::out_of_descriptors_is_an_error"],
];

/// The number and the title of each point of both documents.
fn points() -> Vec<(u8, String)> {
    let lines = DOCUMENTS.into_iter().flat_map(str::lines);
    let points = lines.filter_map(|line| line.split_once(". **"));
    let points = points.map(|(number, rest)| {
        let title = rest.split("**").next().expect("a title").trim_end_matches('.');
        (number.parse().expect("a point starts with its number"), title.into())
    });
    points.collect()
}

/// The paths of the cases of each point.
fn cases() -> BTreeMap<u8, Vec<String>> {
    let mut cases: BTreeMap<u8, Vec<String>> = BTreeMap::new();
    for case in all_cases() {
        cases.entry(case.point).or_default().push(case.path());
    }
    cases
}

#[test]
fn every_point_has_cases_and_every_case_a_point() {
    let documented: Vec<_> = points().into_iter().map(|(number, _)| number).collect();
    let checked: Vec<_> = cases().into_keys().collect();
    assert_eq!(documented, checked);
}

#[test]
fn the_titles_match_the_documents() {
    let titles: Vec<_> = points().into_iter().map(|(_, title)| title).collect();
    assert_eq!(titles, POINTS);
}

#[test]
fn the_documents_name_no_cases() {
    let groups: BTreeSet<_> = all_cases().iter().map(|case| case.group).collect();
    for document in DOCUMENTS {
        let quoted = document.split('`').skip(1).step_by(2);
        let mut paths = quoted.filter_map(|word| word.split_once("::"));
        let named = paths.find(|(group, _)| groups.contains(group));
        assert_eq!(named, None, "case names belong in cases/list only");
    }
}

#[test]
fn each_point_is_one_group() {
    let mut groups: BTreeMap<u8, &str> = BTreeMap::new();
    for case in all_cases() {
        assert_eq!(*groups.entry(case.point).or_insert(case.group), case.group);
    }
    assert_eq!(groups.len(), POINTS.len());
}

#[test]
fn every_point_of_the_contract_has_two_cases_and_one_about_failure() {
    for ((point, cases), failures) in cases().into_iter().zip(FAILURES) {
        assert!(cases.len() >= 2, "point {point} has {cases:?} only");
        assert!(!failures.is_empty(), "point {point} has no case about failure");
        for failure in failures {
            assert!(cases.iter().any(|case| case == failure), "{failure} is not a case");
        }
    }
}
