//! Children of a loop: running them, looking at what they leave.

use std::fs::File;
use std::io;
use std::time::Instant;

use poll_core::Backend;
use uv_core::{Command, Exit, Handle, Loop, Process, Stdio};

use super::files::Directory;
use super::loops::run_to_the_end;
use super::observe::SOON;
use super::program;
use super::trace::Log;

/// The end of a child that returns this.
pub(crate) fn code(code: i64) -> Exit {
    Exit { code, signal: None }
}

/// The end of a child by this signal.
pub(crate) fn signal(signum: i32) -> Exit {
    // Windows ends a process with a code.
    Exit { code: i64::from(cfg!(windows)), signal: Some(signum) }
}

/// The command, started in each of the ways that there are.
pub(crate) fn each_way(command: Command<'_>) -> Vec<Command<'_>> {
    if cfg!(windows) {
        return vec![command];
    }
    let by_fork = command.clone().by_fork();
    let by_posix_spawn = command.clone().by_posix_spawn();
    let by_signal = command.clone().without_pidfd();
    vec![command, by_signal, by_fork, by_posix_spawn]
}

/// Starts a child. Its handle logs the end and closes.
#[track_caller]
pub(crate) fn spawn<T: Backend>(
    lp: &mut Loop<T>,
    command: &Command<'_>,
    ends: &Log<Exit>,
) -> Process {
    try_spawn(lp, command, ends).unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Starts a child that may fail to start.
pub(crate) fn try_spawn<T: Backend>(
    lp: &mut Loop<T>,
    command: &Command<'_>,
    ends: &Log<Exit>,
) -> io::Result<Process> {
    let ends = ends.clone();
    Process::spawn(lp, command, move |lp, process, exit| {
        ends.push(exit.expect("our child, that nobody else has waited for"));
        process.close(lp).expect("an open handle");
    })
}

/// Runs a child to its end.
#[track_caller]
pub(crate) fn run_child<T: Backend>(lp: &mut Loop<T>, command: &Command<'_>) -> Exit {
    let ends = Log::default();
    spawn(lp, command, &ends);
    run_to_the_end(lp);
    let ends = ends.take();
    assert_eq!(ends.len(), 1, "one end of one child");
    ends[0]
}

/// What a child that does what `words` say writes to its standard output.
#[track_caller]
pub(crate) fn answer<T: Backend>(lp: &mut Loop<T>, words: &[&str]) -> String {
    answer_to(lp, program::child(words))
}

/// What a child writes to its standard output. The others of its first three are ignored.
#[track_caller]
pub(crate) fn answer_to<T: Backend>(lp: &mut Loop<T>, command: Command<'_>) -> String {
    let directory = Directory::new();
    let path = directory.path("answer");
    let file = File::create(&path).expect("a file for the answer");
    let command = command.stdio([Stdio::Ignore, of_file(&file), Stdio::Ignore]);
    assert_eq!(run_child(lp, &command), code(0), "how {command:?} ends");
    std::fs::read_to_string(path).expect("an answer in UTF-8")
}

/// A file, as a child's.
#[cfg(unix)]
pub(crate) fn of_file(file: &File) -> Stdio<'_> {
    Stdio::Descriptor(std::os::fd::AsFd::as_fd(file))
}

/// A file, as a child's.
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
        assert!(started.elapsed() < SOON, "there are children left: {why}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Windows has neither zombies nor a list of children.
#[cfg(windows)]
pub(crate) fn no_children(_why: &str) {
    let _ = (Instant::now(), SOON);
}

/// True if this process has children, zombies included. None of them is waited for.
#[cfg(unix)]
pub(crate) fn has_children() -> bool {
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: all zeros is a valid `siginfo_t`.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one structure.
    unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) == 0 }
}

/// True if there is a process of that number that is no zombie.
pub(crate) fn runs(pid: u32) -> bool {
    if let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        return state != Some('Z');
    }
    cfg!(not(target_os = "linux")) && uv_core::kill(pid as i32, 0).is_ok()
}
