//! One case in its own process: a crash or a hang is a result.

use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Candidate, Entry, Runner};
use crate::run::TIME_LIMIT;
use crate::{Fault, FaultCounts, Outcome};

/// The time that a process gets beyond the limits of its case: normally it reports a hang itself.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs each case in a new process of this program.
#[derive(Debug)]
pub struct Processes {
    program: PathBuf,
    faulty: Option<RangeInclusive<u64>>,
}

impl Processes {
    /// Starts processes of the running program.
    ///
    /// # Errors
    ///
    /// If the system does not report the path of the program.
    pub fn of_this_program() -> io::Result<Processes> {
        Ok(Processes { program: std::env::current_exe()?, faulty: None })
    }

    /// The same, over backends with the faults of some seeds.
    #[must_use]
    pub fn with_faults(self, faulty: Option<RangeInclusive<u64>>) -> Processes {
        Processes { faulty, ..self }
    }
}

impl Runner for Processes {
    fn run(&self, candidate: &Candidate, case: &Entry) -> Outcome {
        let mut command = Command::new(&self.program);
        let mut limit = TIME_LIMIT;
        if let Some(seeds) = &self.faulty {
            command.args(["--faulty", &format!("{}-{}", seeds.start(), seeds.end())]);
            let runs = (seeds.end() - seeds.start()).saturating_add(1);
            limit = TIME_LIMIT.saturating_mul(runs.try_into().unwrap_or(u32::MAX));
        }
        command.args(["__run-one", candidate.name(), case.path()]);
        outcome_of(&mut command, limit.saturating_add(PATIENCE), candidate.faults())
    }
}

/// The child's side: runs one case and writes its outcome as the last line.
pub(super) fn run_as_child(candidates: &[Candidate], backend: &str, case: &str) -> ExitCode {
    // Prints the location of each panic, not only of the last.
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let message = crate::run::message(panic.payload());
        let _ = io::stderr().write_all(format!("{message}\n    at {place}\n").as_bytes());
    }));
    let candidate = candidates.iter().find(|candidate| candidate.name() == backend);
    let cases = candidate.and_then(|candidate| candidate.cases().ok()).unwrap_or_default();
    let Some(entry) = cases.iter().find(|entry| entry.path() == case) else {
        eprintln!("error: no case {case} for the backend {backend}");
        return ExitCode::from(2);
    };
    let mut line = match entry.run() {
        Outcome::Pass => json!({ "outcome": "pass" }),
        Outcome::Fail(why) => json!({ "outcome": "fail", "why": why }),
        Outcome::Skip(why) => json!({ "outcome": "skip", "why": why }),
    };
    if let Some(counts) = candidate.and_then(Candidate::faults) {
        line["faults"] = Fault::ALL.map(|fault| counts.of(fault)).to_vec().into();
    }
    match writeln!(io::stdout(), "\n{line}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Runs `command`, kills it after `limit`, and reads the outcome that it writes. The faults that it
/// has met are added to `faults`.
fn outcome_of(command: &mut Command, limit: Duration, faults: Option<&FaultCounts>) -> Outcome {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Outcome::Fail(format!("its process cannot be started: {error}")),
    };
    let output = collect(child.stdout.take());
    let complained = collect(child.stderr.take());
    let Some(status) = wait_within(&mut child, limit) else {
        return Outcome::Fail(format!("hangs: its process was killed after {limit:?}"));
    };
    let complaints = complained.join().unwrap_or_default();
    let output = output.join().unwrap_or_default();
    let line = output.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let line: Value = line.unwrap_or_default();
    if let Some(faults) = faults {
        let counts = line["faults"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        Fault::ALL.into_iter().zip(counts).for_each(|(fault, number)| faults.add(fault, number));
    }
    match verdict(&line) {
        Some(Outcome::Fail(why)) => Outcome::Fail(with_complaints(why, &complaints)),
        // A sanitizer reports at the end of the process.
        Some(_) if !status.success() => {
            let why = format!("its process did not end well: {status}");
            Outcome::Fail(with_complaints(why, &complaints))
        }
        Some(outcome) => outcome,
        None => Outcome::Fail(with_complaints(how_it_died(status), &complaints)),
    }
}

/// Reads a pipe to its end on a thread, so that it never fills up.
fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait_within(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let started = Instant::now();
    let mut pause = Duration::from_millis(1);
    while started.elapsed() < limit {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

fn verdict(line: &Value) -> Option<Outcome> {
    let why = || line["why"].as_str().unwrap_or_default().to_string();
    match line["outcome"].as_str()? {
        "pass" => Some(Outcome::Pass),
        "fail" => Some(Outcome::Fail(why())),
        "skip" => Some(Outcome::Skip(why())),
        _ => None,
    }
}

/// The standard error stream has every panic with its location, which is more than the last
/// message.
fn with_complaints(why: String, complaints: &str) -> String {
    let complaints = complaints.trim_end();
    match complaints {
        "" => why,
        _ if complaints.starts_with(&why) => complaints.into(),
        _ => format!("{why}\n{complaints}"),
    }
}

#[cfg(unix)]
fn how_it_died(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(libc::SIGSEGV) => "crashed: SIGSEGV".into(),
        Some(libc::SIGBUS) => "crashed: SIGBUS".into(),
        Some(libc::SIGILL) => "crashed: SIGILL".into(),
        Some(libc::SIGFPE) => "crashed: SIGFPE".into(),
        Some(libc::SIGABRT) => "crashed: SIGABRT".into(),
        Some(libc::SIGPIPE) => "crashed: SIGPIPE".into(),
        Some(libc::SIGKILL) => "crashed: SIGKILL (out of memory?)".into(),
        Some(signal) => format!("crashed: signal {signal}"),
        None => format!("ended without a result: {status}"),
    }
}

#[cfg(not(unix))]
fn how_it_died(status: ExitStatus) -> String {
    match status.code() {
        // An NTSTATUS error, left by an unhandled exception.
        Some(code) if code as u32 >= 0xc000_0000 => format!("crashed: {:#010x}", code as u32),
        _ => format!("ended without a result: {status}"),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Outcome {
        outcome_of(Command::new("sh").args(["-c", script]), limit, None)
    }

    const SOON: Duration = Duration::from_secs(30);

    #[test]
    fn a_verdict_is_the_last_line() {
        let outcome = shell(r#"echo noise; echo '{"outcome":"skip","why":"no reason"}'"#, SOON);
        assert_eq!(outcome, Outcome::Skip("no reason".into()));
        assert_eq!(shell(r#"echo '{"outcome":"pass"}'"#, SOON), Outcome::Pass);
    }

    #[test]
    fn faults_are_added_up() {
        let faults = FaultCounts::default();
        let line = r#"echo '{"outcome":"pass","faults":[3,0,1]}'"#;
        for _ in 0..2 {
            let mut command = Command::new("sh");
            assert_eq!(outcome_of(command.args(["-c", line]), SOON, Some(&faults)), Outcome::Pass);
        }
        assert_eq!(faults.to_string(), "6 early returns, 2 spurious events");
    }

    #[test]
    fn a_failure_has_its_location() {
        let outcome =
            shell(r#"echo 'no; at x.rs:1' >&2; echo '{"outcome":"fail","why":"no"}'"#, SOON);
        assert_eq!(outcome, Outcome::Fail("no; at x.rs:1".into()));
    }

    #[test]
    fn a_crash_is_a_failure() {
        assert_eq!(shell("kill -SEGV $$", SOON), Outcome::Fail("crashed: SIGSEGV".into()));
        let outcome = shell("exit 3", SOON);
        assert_eq!(outcome, Outcome::Fail("ended without a result: exit status: 3".into()));
    }

    #[test]
    fn a_case_that_passes_must_end_well() {
        let outcome = shell(r#"echo '{"outcome":"pass"}'; exit 66"#, SOON);
        assert!(matches!(&outcome, Outcome::Fail(why) if why.contains("66")), "{outcome}");
    }

    #[test]
    fn a_hang_is_a_failure() {
        let started = Instant::now();
        let outcome = shell("exec sleep 60", Duration::from_millis(50));
        assert!(matches!(&outcome, Outcome::Fail(why) if why.starts_with("hangs")), "{outcome}");
        assert!(started.elapsed() < SOON);
    }

    #[test]
    fn a_missing_program_is_a_failure() {
        let outcome = outcome_of(&mut Command::new("/nonexistent"), SOON, None);
        assert!(matches!(&outcome, Outcome::Fail(why) if why.contains("cannot be started")));
    }
}
