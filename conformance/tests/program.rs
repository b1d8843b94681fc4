//! The program's output and exit status.

#[cfg(unix)]
#[allow(dead_code)]
mod broken;

use std::process::{Command, Output};

use conformance::matrix::{self, Candidate, InProcess, Options, Progress, Style};
use serde_json::Value;

/// Runs the program as a user does.
fn program(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_conformance"));
    for variable in ["LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
    let Output { status, stdout, stderr } = command.args(args).output().expect("the program");
    let text = |bytes| String::from_utf8(bytes).expect("valid UTF-8").replace("\r\n", "\n");
    (status.code(), text(stdout), text(stderr))
}

/// Runs the program's library entry point on custom candidates, in this process.
fn run(candidates: &[Candidate], style: Style, args: &[&str]) -> (u8, String) {
    let options = Options::from_args(args.iter().copied()).expect("valid options");
    let (runner, mut out) = (InProcess, Vec::new());
    let status = matrix::run(&options, candidates, &runner, style, Progress::Silent, &mut out);
    (status.expect("a report"), String::from_utf8(out).expect("valid UTF-8"))
}

fn select() -> Candidate {
    Candidate::new("select", poll_select::Select::new)
}

#[test]
fn a_pass_is_a_mark_in_the_matrix() {
    let (status, out, err) = program(&["--backend", "select,poll", "mistakes::duplicate_token"]);
    assert_eq!(status, Some(0), "{out}{err}");
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["select", "poll"]);
    assert_eq!(lines[1], "7. Mistakes");
    assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["duplicate_token", "ok", "ok"]);
    assert!(lines.last().unwrap().starts_with("2 passed, 0 failed, 0 skipped in "), "{out}");
    assert!(out.is_ascii() && !out.contains('\x1b'), "a pipe without a locale is plain: {out:?}");
}

#[test]
fn a_skip_has_a_reason() {
    let (status, out, _) = program(&["-b", "select,poll", "--case", "complete_exactly_once"]);
    assert_eq!(status, Some(0), "a skip is no failure");
    assert!(out.contains("\nSkipped\n"), "{out}");
    assert!(out.contains("    select, poll: operations::complete_exactly_once\n"), "{out}");
    assert!(out.contains("0 passed, 0 failed, 2 skipped"), "{out}");
}

#[test]
fn absent_backends_have_a_reason() {
    let absent =
        if cfg!(windows) { "epoll: not run: needs Linux" } else { "iocp: not run: needs Windows" };
    let (_, out, _) = program(&["mistakes::duplicate_token"]);
    assert!(out.contains(absent), "{out}");
    let (_, out, _) = program(&["-b", "select", "mistakes::duplicate_token"]);
    assert!(!out.contains(absent), "iocp was not selected: {out}");
}

#[test]
fn json_is_one_document() {
    let (status, out, _) = program(&["--json", "--backend", "poll", "--point", "7"]);
    assert_eq!(status, Some(0), "{out}");
    let document: Value = serde_json::from_str(&out).expect("one document");
    assert_eq!(document["machine"]["os"], std::env::consts::OS);
    let results = document["results"].as_array().expect("a list");
    assert_eq!(document["totals"]["passed"].as_u64(), Some(results.len() as u64));
    for result in results {
        assert_eq!((&result["backend"], &result["point"]), (&"poll".into(), &7.into()));
        assert!(result["case"].as_str().unwrap().starts_with("mistakes::"));
        assert_eq!(result["outcome"], "pass");
        assert!(result["seconds"].as_f64().unwrap() > 0.0);
    }
    let (_, out, _) = program(&["--json", "mistakes::duplicate_token"]);
    let document: Value = serde_json::from_str(&out).expect("one document");
    let absent = if cfg!(windows) { "epoll" } else { "iocp" };
    let named = document["backends"].as_array().unwrap().iter().find(|one| one["name"] == absent);
    let named = named.expect("every backend is listed");
    assert_eq!(named["runs_here"], false);
    assert!(named["why_not"].is_string());
}

#[test]
fn the_list_names_all_cases_and_runs_none() {
    let (status, out, _) = program(&["--list"]);
    assert_eq!(status, Some(0));
    let all = conformance::all_cases();
    for case in &all {
        assert!(out.contains(&format!("  {}\n", case.path())), "{} is not listed", case.path());
    }
    assert!(out.contains("1. Changes\n") && out.contains("12. Surroundings\n"), "{out}");
    assert!(out.contains(&format!("\n{} cases for select, poll", all.len())), "{out}");

    let (_, out, _) = program(&["--list", "--point", "4", "modify"]);
    assert!(out.starts_with("4. Silence\n  silence::modify_to_no_interest\n\n1 cases"), "{out}");
}

/// Every kind of fault that changes no result is met; the others are for random programs.
#[cfg(target_os = "linux")]
#[test]
fn faults_are_counted() {
    use conformance::Fault;

    let cases = ["one_way_pipes", "read_requests", "hundreds_of_connects", "the_final_count"];
    let args = ["--backend", "epoll,uring", "--faulty", "1-8"];
    let (status, out, err) = program(&[&args[..], &cases].concat());
    assert_eq!(status, Some(0), "{out}{err}");
    let (_, faults) = out.split_once("\nFaults\n").expect("a section");
    let of = |backend| faults.lines().find(|line| line.starts_with(backend)).expect("a line");
    let operations = [Fault::LateCompletion, Fault::LateCancel, Fault::ShortTransfer];
    for fault in Fault::ALL {
        let is_error = matches!(fault, Fault::RegisterError | Fault::SubmitError);
        let by_readiness = !is_error && !operations.contains(&fault);
        assert_eq!(of("  epoll: ").contains(fault.name()), by_readiness, "{fault:?}: {out}");
        assert_eq!(of("  uring: ").contains(fault.name()), !is_error, "{fault:?}: {out}");
    }
}

#[test]
fn invalid_usage_is_status_2_with_a_remedy() {
    let absent = if cfg!(windows) { "epoll" } else { "iocp" };
    let wrong: [(&[&str], &str); 6] = [
        (&["--backend", "dpoll"], "no backend is called 'dpoll': select, poll, "),
        (&["--backend", absent], "cannot run here: needs "),
        (&["no_such_case"], "no case matches 'no_such_case': '--list' names them all"),
        (&["--point", "99"], "99"),
        (&["--jobs", "0"], "'--jobs <N>'"),
        (&["--colour"], "--colour"),
    ];
    for (args, message) in wrong {
        let (status, out, err) = program(args);
        assert_eq!((status, out.as_str()), (Some(2), ""), "{args:?}: {err}");
        assert!(err.contains(message), "{args:?}: {err}");
        assert!(err.contains("--help"), "{args:?}: {err}");
    }
    let (status, out, _) = program(&["--help"]);
    assert_eq!(status, Some(0));
    assert!(!out.contains("__run-one"), "{out}");
}

#[test]
fn colours_and_symbols_follow_the_style() {
    let style = Style { colour: true, unicode: true };
    let (status, out) = run(&[select()], style, &["duplicate_token", "complete_exactly_once"]);
    assert_eq!(status, 0);
    assert!(out.contains("\x1b[32m") && out.contains('✓') && out.contains('–'), "{out}");
}

#[cfg(unix)]
mod failing {
    use super::*;

    use crate::broken::{Broken, Defect};

    fn broken() -> Candidate {
        let new = || Ok(Broken::new(poll_select::Select::new()?, Defect::DuplicatesAreAccepted));
        Candidate::new("broken", new)
    }

    #[test]
    fn a_failure_is_status_1_and_is_listed() {
        let (status, out) = run(&[select(), broken()], Style::default(), &["duplicate_token"]);
        assert_eq!(status, 1);
        let row = out.lines().find(|line| line.contains("duplicate_token")).unwrap();
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["duplicate_token", "ok", "FAIL"]);
        assert!(out.contains("\nFailed\n  broken mistakes::duplicate_token\n    "), "{out}");
        assert!(out.contains("accepted instead of AlreadyExists"), "{out}");
        assert!(out.contains("1 passed, 1 failed, 0 skipped"), "{out}");
    }

    #[test]
    fn a_failure_is_in_the_json() {
        let (status, out) = run(&[broken()], Style::default(), &["--json", "duplicate_token"]);
        assert_eq!(status, 1);
        let document: Value = serde_json::from_str(&out).unwrap();
        let result = &document["results"][0];
        assert_eq!(result["outcome"], "fail");
        assert!(result["why"].as_str().unwrap().contains("AlreadyExists"), "{result}");
    }

    #[test]
    fn a_constructor_error_other_than_unsupported_fails() {
        let new = || Err::<poll_select::Select, _>(std::io::Error::other("out of memory"));
        let (status, out) =
            run(&[Candidate::new("mine", new)], Style::default(), &["duplicate_token"]);
        assert_eq!(status, 1);
        assert!(out.contains("the backend cannot be created: out of memory"), "{out}");
    }
}
