//! The program, as one calls it.

use std::path::PathBuf;
use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_bench");
    Command::new(program).args(args).env("NO_COLOR", "1").output().expect("the program runs")
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_list_names_suites_and_contestants() {
    let output = bench(&["--list"]);
    assert!(output.status.success());
    let list = text(&output.stdout);
    for name in bench::suites::NAMES.iter().chain(&["uv-core poll", "bare select", "polling"]) {
        assert!(list.contains(name), "no {name} in {list}");
    }
}

#[test]
fn a_mistake_is_told_and_has_a_status() {
    let output = bench(&["--suite", "tea"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no suite is called 'tea': timers, turns"));
}

/// One quick suite, its table, its file, and the comparison of that file with itself and
/// with one in which everyone had been half as fast.
#[test]
fn results_are_shown_written_and_compared() {
    let (now, before) = (file("now.json"), file("before.json"));
    let (now, before) = (now.to_str().unwrap(), before.to_str().unwrap());
    let output = bench(&["-s", "turns", "-b", "poll", "-p", "polling,libuv,hand", "--json", now]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    for part in ["turns: turns", "uv-core poll", "polling", "again", "a quiet socket"] {
        assert!(table.contains(part), "no {part} in {table}");
    }
    assert!(!table.contains('\u{1b}'), "NO_COLOR was set");

    let same = bench(&["compare", now, now]);
    assert!(same.status.success());
    assert!(text(&same.stdout).starts_with("0 of "), "{}", text(&same.stdout));

    let mut results: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(now).unwrap()).unwrap();
    for row in results["rows"].as_array_mut().unwrap() {
        // As if the noise had been none, for this is not about noise.
        for part in ["median", "low", "high"] {
            row["again"]["ratio"][part] = 1.0.into();
        }
        for entry in row["entries"].as_array_mut().unwrap() {
            for part in ["median", "low", "high"] {
                entry["ratio"][part] = 1.0.into();
            }
        }
    }
    std::fs::write(now, results.to_string()).unwrap();
    for row in results["rows"].as_array_mut().unwrap() {
        for entry in row["entries"].as_array_mut().unwrap() {
            for part in ["median", "low", "high"] {
                entry["ratio"][part] = 2.0.into();
            }
        }
    }
    std::fs::write(before, results.to_string()).unwrap();
    let worse = bench(&["compare", before, now]);
    assert_eq!(worse.status.code(), Some(1), "{}", text(&worse.stdout));
    assert!(text(&worse.stdout).contains("worse   0.50×"), "{}", text(&worse.stdout));
    let better = bench(&["compare", now, before]);
    assert!(better.status.success());
    assert!(text(&better.stdout).contains("better  2.00×"), "{}", text(&better.stdout));
}

#[test]
fn a_file_that_is_no_result_is_refused_by_name() {
    let path = file("nothing.json");
    std::fs::write(&path, "{}").unwrap();
    let output = bench(&["compare", path.to_str().unwrap(), path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("nothing.json: no results"));
}
