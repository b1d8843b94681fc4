//! Counts the instructions of a program, by running it under valgrind's callgrind.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// An error that names the remedy if valgrind cannot be started.
pub(crate) fn find() -> io::Result<()> {
    let version = Command::new("valgrind").arg("--version").output();
    match version {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(io::Error::other(format!(
            "valgrind does not run ({}): reinstall it, e.g. 'apt-get install valgrind'",
            output.status
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(io::Error::new(
            io::ErrorKind::NotFound,
            "instructions are counted by valgrind, which is not installed: \
             'apt-get install valgrind' or 'dnf install valgrind'",
        )),
        Err(error) => Err(error),
    }
}

/// Runs a program with its arguments, and writes its profile to `file`. Returns the number of
/// instructions of all its threads.
///
/// # Errors
///
/// Those of starting it, and an error with the program's output if it fails.
pub(super) fn count(program: &Path, args: &[String], file: &Path) -> io::Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--quiet", "--tool=callgrind", "--read-inline-info=no"]);
    // Threads run one at a time under valgrind; fair scheduling makes their order more repeatable.
    valgrind.arg("--fair-sched=try");
    valgrind.arg(format!("--callgrind-out-file={}", file.display()));
    valgrind.env(super::ONE_THREAD.0, super::ONE_THREAD.1);
    let output = valgrind.arg(program).args(args).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        let why = format!("{} under callgrind: {}\n{words}", args.join(" "), output.status);
        return Err(io::Error::other(why));
    }
    total_of(file)
}

/// The instructions in a profile that callgrind has written.
///
/// # Errors
///
/// Those of reading, and an error if it is incomplete.
pub(crate) fn total_of(file: &Path) -> io::Result<u64> {
    let profile = std::fs::read_to_string(file)?;
    let why = || io::Error::other(format!("{}: a profile without totals", file.display()));
    total(&profile).ok_or_else(why)
}

/// The instructions of a whole profile.
fn total(profile: &str) -> Option<u64> {
    let line = profile.lines().rev().find_map(|line| line.strip_prefix("totals:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_a_profile_is_its_last_line() {
        assert_eq!(
            total("events: Ir\nsummary: 12\n\nfn=(1) main\n1 12\ntotals: 1234\n"),
            Some(1234)
        );
        assert_eq!(total("events: Ir\n"), None);
    }
}
