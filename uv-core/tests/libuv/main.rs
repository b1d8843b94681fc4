//! The table of libuv's functions has each of them once, and names nothing that is not there.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// All functions that libuv 1.x exports, in order.
const FUNCTIONS: &str = include_str!("functions.txt");
const TABLE: &str = include_str!("../../docs/libuv.md");

/// The rows of the table: libuv's functions, and what stands for them here.
fn rows() -> Vec<(Vec<&'static str>, &'static str)> {
    let cells = TABLE.lines().filter_map(|line| {
        let line = line.strip_prefix("| `")?.strip_suffix(" |")?;
        line.split_once("` | ")
    });
    cells.map(|(functions, here)| (functions.split("`, `").collect(), here)).collect()
}

#[test]
fn each_function_is_there_once() {
    let mut counts: BTreeMap<&str, usize> = FUNCTIONS.lines().map(|name| (name, 0)).collect();
    assert_eq!(counts.len(), 318);
    for function in rows().into_iter().flat_map(|(functions, _)| functions) {
        match counts.get_mut(function) {
            Some(count) => *count += 1,
            None => panic!("libuv has no {function}"),
        }
    }
    let wrong: Vec<_> = counts.into_iter().filter(|(_, count)| *count != 1).collect();
    assert!(wrong.is_empty(), "missing, or there twice: {wrong:?}");
}

#[test]
fn each_row_says_something() {
    for (functions, here) in rows() {
        // An item, or a sentence that says why there is none.
        let names_an_item = here.contains("[`");
        assert!(names_an_item || here.ends_with('.'), "{functions:?}: {here}");
        assert!(!here.starts_with("None.") && here.len() > 5, "{functions:?}: {here}");
    }
}

/// The items are links, which rustdoc looks up.
#[test]
fn each_item_exists() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !crate_root.join("Cargo.toml").exists() || cfg!(not(target_os = "linux")) {
        eprintln!("skip: the sources are not where these tests run");
        return;
    }
    // A directory of its own: that of this build may be in use.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("links");
    let check = Command::new(env!("CARGO"))
        .args(["rustdoc", "--lib", "--offline", "--quiet", "--"])
        .args(["-D", "rustdoc::broken-intra-doc-links"])
        .current_dir(crate_root)
        .env("CARGO_TARGET_DIR", target)
        .env_remove("RUSTDOCFLAGS")
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&check.stderr);
    assert!(check.status.success(), "the table names what is not there:\n{said}");
}
