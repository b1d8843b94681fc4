//! The table of libuv's functions lists each of them once, and every item that it names exists.

use std::collections::BTreeMap;
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
