//! The backend that is chosen when the program runs.

use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

use uv_core::backends::Auto;
use uv_core::{Loop, RunMode, Timer};

/// Set in a child process: it prints what `Auto` chose.
const CHILD: &str = "UV_CORE_TEST_CHILD";

#[test]
fn every_candidate_can_be_named_and_runs() {
    assert!(!Auto::NAMES.is_empty());
    for name in Auto::NAMES {
        let backend = match Auto::named(name) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                eprintln!("skip {name}: {error}");
                continue;
            }
            other => other.unwrap(),
        };
        assert_eq!(backend.name(), *name);
        let mut lp = Loop::new(backend);
        let timer = Timer::new(&mut lp);
        timer.start(&mut lp, Duration::from_micros(1), Duration::ZERO, |_, _| {}).unwrap();
        assert!(!lp.run(RunMode::Default).unwrap(), "{name}");
    }
}

#[test]
fn an_unknown_name_is_refused_and_the_known_are_listed() {
    let error = Auto::named("devpoll").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains(Auto::NAMES[0]), "{error}");
}

#[test]
fn the_environment_names_one() {
    if std::env::var_os(CHILD).is_some() {
        match Auto::new() {
            Ok(backend) => println!("chose {}", backend.name()),
            Err(error) => println!("refused: {error}"),
        }
        return;
    }
    let chosen = |variable: Option<&str>| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "the_environment_names_one", "--nocapture"]).env(CHILD, "1");
        match variable {
            Some(name) => child.env("UV_BACKEND", name),
            None => child.env_remove("UV_BACKEND"),
        };
        String::from_utf8_lossy(&child.output().unwrap().stdout).into_owned()
    };
    assert!(chosen(None).contains("chose "));
    let last = Auto::NAMES[Auto::NAMES.len() - 1];
    assert!(chosen(Some(last)).contains(&format!("chose {last}")));
    let refused = chosen(Some("devpoll"));
    assert!(refused.contains("refused: UV_BACKEND=devpoll"), "{refused}");
}
