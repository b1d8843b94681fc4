//! Child processes of a loop and their output.

use std::fs::File;
use std::io;
use std::time::Instant;

use uv_core::{Command, Exit, Handle, Process, Stdio};

use super::files::Directory;
use super::loops::run_to_the_end;
use super::observe::SOON;
use super::program;
use super::trace::Log;
use crate::Loop;

/// The exit of a child with this code.
pub(crate) fn code(code: i64) -> Exit {
    Exit { code, signal: None }
}

/// The exit of a child by this signal.
pub(crate) fn signal(signum: i32) -> Exit {
    // Windows reports a killed process with an exit code.
    Exit { code: i64::from(cfg!(windows)), signal: Some(signum) }
}

/// The command, with each of the available ways to start it.
pub(crate) fn each_way(command: Command<'_>) -> Vec<Command<'_>> {
    if cfg!(windows) {
        return vec![command];
    }
    let by_fork = command.clone().by_fork();
    let by_posix_spawn = command.clone().by_posix_spawn();
    let by_signal = command.clone().without_pidfd();
    vec![command, by_signal, by_fork, by_posix_spawn]
}

/// `ERROR_INTERNAL_ERROR`: a busy Wine 8 reports it now and then for a new process that has ended
/// before its first instruction. Windows does not document it for `CreateProcess`.
const DIED_IN_WINE: i32 = 1359;

/// Starts a child. Its handle logs the exit and closes.
#[track_caller]
pub(crate) fn spawn(lp: &mut Loop, command: &Command<'_>, ends: &Log<Exit>) -> Process {
    let mut spawned = try_spawn(lp, command, ends);
    for _ in 0..3 {
        match &spawned {
            Err(error) if cfg!(windows) && error.raw_os_error() == Some(DIED_IN_WINE) => {
                eprintln!("{command:?}: {error}, once more");
                spawned = try_spawn(lp, command, ends);
            }
            _ => break,
        }
    }
    spawned.unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Starts a child that may fail to start.
pub(crate) fn try_spawn(
    lp: &mut Loop,
    command: &Command<'_>,
    ends: &Log<Exit>,
) -> io::Result<Process> {
    let ends = ends.clone();
    Process::spawn(lp, command, move |lp, process, exit| {
        ends.push(exit.expect("our child, reaped by the loop only"));
        process.close(lp).expect("an open handle");
    })
}

/// Runs a child until it exits.
#[track_caller]
pub(crate) fn run_child(lp: &mut Loop, command: &Command<'_>) -> Exit {
    let ends = Log::default();
    spawn(lp, command, &ends);
    run_to_the_end(lp);
    let ends = ends.take();
    assert_eq!(ends.len(), 1, "one exit of one child");
    ends[0]
}

/// The standard output of a child that runs `words`.
#[track_caller]
pub(crate) fn answer(lp: &mut Loop, words: &[&str]) -> String {
    answer_to(lp, program::child(words))
}

/// The standard output of a child. Its other standard streams are ignored.
#[track_caller]
pub(crate) fn answer_to(lp: &mut Loop, command: Command<'_>) -> String {
    answer_with_input(lp, command, Stdio::Ignore)
}

/// As [`answer_to`], of a child that has `input` as its standard input.
#[track_caller]
pub(crate) fn answer_with_input(lp: &mut Loop, command: Command<'_>, input: Stdio<'_>) -> String {
    let directory = Directory::new();
    let path = directory.path("answer");
    let file = File::create(&path).expect("a file for the answer");
    let command = command.stdio([input, of_file(&file), Stdio::Ignore]);
    assert_eq!(run_child(lp, &command), code(0), "the exit of {command:?}");
    std::fs::read_to_string(path).expect("an answer in UTF-8")
}

/// A file as a child's descriptor.
#[cfg(unix)]
pub(crate) fn of_file(file: &File) -> Stdio<'_> {
    Stdio::Descriptor(std::os::fd::AsFd::as_fd(file))
}

/// A file as a child's descriptor.
#[cfg(windows)]
pub(crate) fn of_file(file: &File) -> Stdio<'_> {
    Stdio::Handle(std::os::windows::io::AsHandle::as_handle(file))
}

/// Waits until this process has no children, neither running ones nor zombies.
#[cfg(unix)]
#[track_caller]
pub(crate) fn no_children(why: &str) {
    let started = Instant::now();
    while has_children() {
        assert!(started.elapsed() < SOON, "children are left: {why}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Windows has neither zombies nor a list of children.
#[cfg(windows)]
pub(crate) fn no_children(_why: &str) {
    let _ = (Instant::now(), SOON);
}

/// True if this process has children, including zombies. None is reaped.
#[cfg(unix)]
pub(crate) fn has_children() -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `siginfo_t` is plain data, for which all zeros are valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` outlives the call, which writes one structure.
    unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) == 0 }
}

/// True if a process with this pid exists and is no zombie.
pub(crate) fn runs(pid: u32) -> bool {
    if let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        return state != Some('Z');
    }
    cfg!(not(target_os = "linux")) && uv_core::kill(pid as i32, 0).is_ok()
}
