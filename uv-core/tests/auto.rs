//! `Auto`: the backend that is chosen at run time, and the order of the alternatives.

use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

use uv_core::backends::Auto;
use uv_core::{Loop, RunMode, Timer};

/// Set in a child process: it prints the backend that `Auto` chose.
const CHILD: &str = "UV_CORE_TEST_CHILD";

/// The output of a child process that runs `test` with `UV_BACKEND` set to `backends`.
fn child(test: &str, backends: Option<&str>) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", test, "--nocapture"]).env(CHILD, "1");
    match backends {
        Some(names) => child.env("UV_BACKEND", names),
        None => child.env_remove("UV_BACKEND"),
    };
    String::from_utf8_lossy(&child.output().unwrap().stdout).into_owned()
}

/// Prints the result of `Auto::new` in a child process.
fn print_choice() {
    match Auto::new() {
        Ok(backend) => println!("chose {}", backend.name()),
        Err(error) => println!("failed with {:?}: {error}", error.kind()),
    }
}

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
fn unknown_name_is_an_error_that_lists_the_valid_names() {
    // A later name that works does not hide it.
    let last = Auto::NAMES[Auto::NAMES.len() - 1];
    let lists: [&[&str]; 4] = [&["devpoll"], &["devpoll", last], &[last, "devpoll"], &[last, ""]];
    let errors = lists.map(|names| Auto::first_of(names).unwrap_err());
    for error in errors.into_iter().chain([Auto::named("devpoll").unwrap_err()]) {
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(Auto::NAMES.iter().all(|name| error.to_string().contains(name)), "{error}");
    }
}

#[test]
fn backends_of_other_targets_are_skipped() {
    let last = Auto::NAMES[Auto::NAMES.len() - 1];
    let all = ["epoll", "kqueue", "iocp"];
    let other = all.into_iter().find(|name| !Auto::NAMES.contains(name)).unwrap();
    assert_eq!(Auto::first_of(&[other, last]).unwrap().name(), last);
    let error = Auto::first_of(&[other]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().starts_with(other), "{error}");
}

#[test]
fn environment_lists_the_backends() {
    const TEST: &str = "environment_lists_the_backends";
    if std::env::var_os(CHILD).is_some() {
        return print_choice();
    }
    assert!(child(TEST, None).contains("chose "));
    let last = Auto::NAMES[Auto::NAMES.len() - 1];
    let chosen = format!("chose {last}");
    assert!(child(TEST, Some(last)).contains(&chosen));
    assert!(child(TEST, Some(&format!(" {last} , poll"))).contains(&chosen));
    for names in ["devpoll".to_string(), format!("{last},devpoll"), String::new()] {
        let failed = child(TEST, Some(&names));
        let start = format!("failed with InvalidInput: UV_BACKEND={names}: no backend");
        assert!(failed.contains(&start) && failed.contains(last), "{failed}");
    }
}

#[cfg(target_os = "linux")]
mod locked_memory {
    use super::*;

    /// Makes this process one of an ordinary user that may not lock memory.
    fn forbid_locked_memory() {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `none` outlives the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const none) }, 0);
        // SAFETY: the call takes no pointer. From root it drops all capabilities.
        assert_eq!(unsafe { libc::setuid(100_000 + std::process::id()) }, 0);
    }

    #[test]
    fn exhausted_locked_memory_falls_back_to_the_next_backend() {
        const TEST: &str = "locked_memory::exhausted_locked_memory_falls_back_to_the_next_backend";
        if std::env::var_os(CHILD).is_some() {
            forbid_locked_memory();
            return print_choice();
        }
        // SAFETY: the call takes no argument.
        if unsafe { libc::geteuid() } != 0 {
            return eprintln!("skip: only root can become a user that may not lock memory");
        }
        if let Err(error) = Auto::named("uring") {
            return eprintln!("skip: {error}");
        }
        let alone = child(TEST, Some("uring"));
        if alone.contains("chose uring") {
            return eprintln!("skip: this kernel (5.12 and later) does not count rings");
        }
        assert!(alone.contains("failed with OutOfMemory: UV_BACKEND=uring: uring: "), "{alone}");
        assert!(alone.contains("RLIMIT_MEMLOCK, 0 KiB"), "{alone}");
        let list = child(TEST, Some("uring,epoll"));
        assert!(list.contains("chose epoll"), "{list}");
    }
}
