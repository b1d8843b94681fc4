//! Rings of a user that may lock only a limited amount of memory.
#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64",
        target_arch = "powerpc64"
    )
))]

use std::io::{self, ErrorKind};
use std::process::Command;

use poll_core::Backend;
use poll_uring::Uring;

/// Set in a child process, to the limit in KiB: it creates rings until that fails.
const CHILD: &str = "POLL_URING_TEST_MEMLOCK";
/// More rings than any limit of these tests has memory for.
const MANY: usize = 400;

/// Sets `RLIMIT_MEMLOCK` and becomes an ordinary user that has no other process.
fn become_limited_user(kib: u64) {
    let limit = libc::rlimit { rlim_cur: kib * 1024, rlim_max: kib * 1024 };
    // SAFETY: `limit` outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) }, 0);
    let files = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
    // SAFETY: `files` outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &files) }, 0);
    let user = 100_000 + std::process::id();
    // SAFETY: a call without pointers. A change of all user ids from root drops all capabilities.
    assert_eq!(unsafe { libc::setuid(user) }, 0, "{}", io::Error::last_os_error());
}

/// Creates rings until that fails, and prints how many there were and the error.
fn make_rings() {
    let mut rings = Vec::new();
    let error = loop {
        match Uring::new() {
            Ok(mut uring) => {
                let mut events = Vec::new();
                uring.wait(Some(std::time::Duration::ZERO), &mut events).expect("a wait");
                rings.push(uring);
            }
            Err(error) => break error,
        }
        if rings.len() == MANY {
            return println!("rings: {MANY}");
        }
    };
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    println!("rings: {}\nerror: {error}", rings.len());
}

/// Uses up a lower limit, and raises it by less than a ring takes whose completion queue has the
/// size that the limit allows for: a ring with the smallest completion queue fits.
fn make_small_ring() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) }, 0);
    // 256 entries and 512 completions take 28 to 32 KiB, 256 and 2,048 take 52 to 80 KiB. Less than
    // 8 KiB are left, the size of the smallest ring.
    let lower = libc::rlimit { rlim_cur: limit.rlim_max - 36 * 1024, ..limit };
    // SAFETY: `lower` outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &lower) }, 0);
    let mut rings = Vec::new();
    for entries in [256, 1] {
        while let Ok(ring) = Uring::with_entries(entries) {
            rings.push(ring);
            if rings.len() == MANY {
                return println!("rings: {MANY}");
            }
        }
    }
    // SAFETY: `limit` outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) }, 0);
    rings.push(Uring::new().expect("a ring with a small completion queue fits"));
    println!("rings: {}", rings.len());
}

/// The output of a child process with that limit. `None`, with a message, where there is none.
fn child(test: &str, kib: u64) -> Option<String> {
    // SAFETY: a call without arguments.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can become a user without other processes");
        return None;
    }
    if let Err(error) = Uring::new() {
        eprintln!("skipped: {error}");
        return None;
    }
    let mut child = Command::new(std::env::current_exe().expect("this program"));
    let child = child.args(["--exact", test, "--nocapture"]).env(CHILD, kib.to_string());
    let output = child.output().expect("a child");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    Some(text)
}

/// Runs `program` as the child of a test, if this is one.
fn is_child(program: fn()) -> bool {
    let Ok(kib) = std::env::var(CHILD) else { return false };
    become_limited_user(kib.parse().expect("a number"));
    program();
    true
}

fn rings(text: &str) -> usize {
    let line = text.lines().find_map(|line| line.split_once("rings: ")).expect("a number of rings");
    line.1.parse().expect("a number")
}

#[test]
fn a_limit_of_8_mib_holds_a_hundred_rings() {
    if is_child(make_rings) {
        return;
    }
    let Some(text) = child("a_limit_of_8_mib_holds_a_hundred_rings", 8192) else { return };
    assert!(rings(&text) >= 100, "{text}");
}

#[test]
fn exhausted_locked_memory_is_an_error_that_names_the_limit() {
    if is_child(make_rings) {
        return;
    }
    let test = "exhausted_locked_memory_is_an_error_that_names_the_limit";
    let Some(text) = child(test, 256) else { return };
    if rings(&text) == MANY {
        return eprintln!("skipped: this kernel (5.12 and later) does not count rings");
    }
    assert!((1..20).contains(&rings(&text)), "{text}");
    for part in ["ENOMEM", "RLIMIT_MEMLOCK, 256 KiB", "ulimit -l", "epoll"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}

/// A ring that does not fit with the completion queue that the limit suggests, because other rings
/// have used up the limit, gets a smaller one.
#[test]
fn the_last_ring_has_a_smaller_completion_queue() {
    if is_child(make_small_ring) {
        return;
    }
    let test = "the_last_ring_has_a_smaller_completion_queue";
    let Some(text) = child(test, 8192) else { return };
    if rings(&text) == MANY {
        return eprintln!("skipped: this kernel (5.12 and later) does not count rings");
    }
    assert!(rings(&text) > 2, "{text}");
}
