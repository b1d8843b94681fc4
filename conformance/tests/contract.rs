//! What the documentation of poll-core and uv-core promises, and the list of cases, are one.

use std::collections::BTreeMap;

use conformance::{POINTS, all_cases};
use poll_select::Select;

/// The contract of backends, and the behaviour of the loop: their points are numbered on.
const DOCUMENTS: [&str; 2] = [
    include_str!("../../poll-core/docs/contract.md"),
    include_str!("../../uv-core/docs/behaviour.md"),
];

/// The cases of each point of the contract that are about what goes wrong.
const FAILURES: [&[&str]; 12] = [
    &["changes::a_failed_register_changes_nothing", "changes::a_failed_modify_changes_nothing"],
    &["deregister::twice_is_not_found"],
    &["modes::a_missing_edge_is_said_at_once"],
    &["silence::covers_hangup_and_error"],
    &["timeouts::end_at_a_signal", "timeouts::survive_unreported_events"],
    &["wakes::after_the_backend_is_gone"],
    &["mistakes::a_token_twice", "mistakes::a_closed_descriptor"],
    &["operations::fail_with_the_error", "operations::are_refused_if_unsupported"],
    &["memory::exhausted_groups_say_so", "memory::groups_are_refused_if_unsupported"],
    &[
        "conditions::a_refused_connection_is_writable",
        "conditions::a_reset_is_readable_and_writable",
    ],
    &["scale::high_descriptor_numbers"],
    &["surroundings::out_of_descriptors_is_an_error"],
];

/// A point of a document: its title, and the cases named with it.
struct Point {
    title: String,
    cases: Vec<String>,
}

/// The points of both documents, by number.
fn points() -> BTreeMap<u8, Point> {
    let mut points = BTreeMap::new();
    let mut current = 0;
    for line in DOCUMENTS.into_iter().flat_map(str::lines) {
        if let Some((number, rest)) = line.split_once(". **") {
            current = number.parse().expect("a point starts with its number");
            let title = rest.split("**").next().expect("a title").trim_end_matches('.');
            points.insert(current, Point { title: title.into(), cases: Vec::new() });
        }
        let quoted = line.split('`').skip(1).step_by(2).filter(|word| word.contains("::"));
        let is_case = |word: &&str| word.starts_with(|c: char| c.is_ascii_lowercase());
        for case in quoted.filter(is_case) {
            points.get_mut(&current).expect("a case belongs to a point").cases.push(case.into());
        }
    }
    points
}

#[test]
fn the_documents_name_every_case_and_no_other() {
    let mut listed: BTreeMap<u8, Vec<String>> = BTreeMap::new();
    for case in all_cases::<Select>() {
        listed.entry(case.point).or_default().push(case.path());
    }
    let named: BTreeMap<u8, Vec<String>> =
        points().into_iter().map(|(number, point)| (number, point.cases)).collect();
    assert_eq!(named, listed);
}

#[test]
fn the_titles_are_the_documents() {
    let titles: Vec<_> = points().into_values().map(|point| point.title).collect();
    assert_eq!(titles, POINTS);
}

#[test]
fn each_point_is_one_group() {
    let mut groups: BTreeMap<u8, &str> = BTreeMap::new();
    for case in all_cases::<Select>() {
        assert_eq!(*groups.entry(case.point).or_insert(case.group), case.group);
    }
    assert_eq!(groups.len(), POINTS.len());
}

#[test]
fn every_point_of_the_contract_has_two_cases_and_one_about_failure() {
    for (point, failures) in points().into_values().zip(FAILURES) {
        assert!(point.cases.len() >= 2, "{} has {:?} only", point.title, point.cases);
        assert!(!failures.is_empty(), "{} has no case about failure", point.title);
        for failure in failures {
            assert!(point.cases.iter().any(|case| case == failure), "{failure} is not a case");
        }
    }
}
