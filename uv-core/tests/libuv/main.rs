//! The table of libuv's functions lists each of them once, every item that it names exists, and a
//! search of the documentation for a function finds its counterpart.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// All functions that libuv 1.53 exports, in order.
const FUNCTIONS: &str = include_str!("functions.txt");
const TABLE: &str = include_str!("../../docs/libuv.md");

/// The rows of the table: libuv's functions and their counterparts.
fn rows() -> Vec<(Vec<&'static str>, &'static str)> {
    let cells = TABLE.lines().filter_map(|line| {
        let line = line.strip_prefix("| `")?.strip_suffix(" |")?;
        line.split_once("` | ")
    });
    cells.map(|(functions, here)| (functions.split("`, `").collect(), here)).collect()
}

#[test]
fn every_function_is_listed_once() {
    let mut counts: BTreeMap<&str, usize> = FUNCTIONS.lines().map(|name| (name, 0)).collect();
    assert_eq!(counts.len(), 319);
    for function in rows().into_iter().flat_map(|(functions, _)| functions) {
        match counts.get_mut(function) {
            Some(count) => *count += 1,
            None => panic!("libuv has no {function}"),
        }
    }
    let wrong: Vec<_> = counts.into_iter().filter(|(_, count)| *count != 1).collect();
    assert!(wrong.is_empty(), "missing or listed twice: {wrong:?}");
}

#[test]
fn every_row_names_an_item_or_a_reason() {
    for (functions, here) in rows() {
        // An item, or a sentence with the reason why there is none.
        let names_an_item = here.contains("[`");
        assert!(names_an_item || here.ends_with('.'), "{functions:?}: {here}");
        assert!(!here.starts_with("None.") && here.len() > 5, "{functions:?}: {here}");
    }
}

/// A search for a function of libuv finds its counterpart, by `doc(alias)`.
#[test]
fn every_function_with_a_counterpart_is_an_alias() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    if !sources.exists() {
        eprintln!("skip: the sources are not where these tests run");
        return;
    }
    let mut aliases = BTreeSet::new();
    collect_aliases(&sources, &mut aliases);
    let has_counterpart = |here: &str| {
        let items = here.split("[`").skip(1);
        !here.starts_with("None") && items.into_iter().any(|item| !item.starts_with("std::"))
    };
    let of_table = rows().into_iter().filter(|(_, here)| has_counterpart(here));
    let missing: Vec<_> = of_table
        .flat_map(|(functions, _)| functions)
        .filter(|function| !aliases.contains(*function))
        .collect();
    assert!(missing.is_empty(), "no item has the alias: {missing:?}");

    let functions: BTreeSet<&str> = FUNCTIONS.lines().collect();
    let unknown: Vec<_> = aliases
        .iter()
        .filter(|alias| !alias.ends_with("_t") && !functions.contains(alias.as_str()))
        .filter(|alias| !TYPES.contains(&alias.as_str()))
        .collect();
    assert!(unknown.is_empty(), "neither a function nor a type of libuv: {unknown:?}");
}

/// The types of libuv that are aliases and do not end with `_t`.
const TYPES: [&str; 8] = [
    "uv_file",
    "uv_fs_event",
    "uv_fs_event_flags",
    "uv_handle_type",
    "uv_poll_event",
    "uv_run_mode",
    "uv_tcp_flags",
    "uv_udp_flags",
];

/// All names of libuv that are string literals of the sources: those of `doc(alias)`, directly or
/// as the argument of a macro.
fn collect_aliases(folder: &Path, aliases: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            collect_aliases(&entry, aliases);
        } else if entry.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&entry).unwrap();
            let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let literals = code.flat_map(|line| line.split('"').skip(1).step_by(2));
            aliases.extend(literals.filter(|name| name.starts_with("uv_")).map(String::from));
        }
    }
}

/// The items are links, which rustdoc resolves.
#[test]
fn every_named_item_exists() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !crate_root.join("Cargo.toml").exists() || cfg!(not(target_os = "linux")) {
        eprintln!("skip: the sources are not where these tests run");
        return;
    }
    // A separate directory, because a build may have locked the usual one.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("links");
    let check = Command::new(env!("CARGO"))
        .args(["rustdoc", "--lib", "--offline", "--quiet", "--"])
        .args(["-D", "rustdoc::broken-intra-doc-links"])
        .current_dir(crate_root)
        .env("CARGO_TARGET_DIR", target)
        .env_remove("RUSTDOCFLAGS")
        .output()
        .expect("cargo runs");
    let stderr = String::from_utf8_lossy(&check.stderr);
    assert!(check.status.success(), "the table names items that do not exist:\n{stderr}");
}
