//! Point 35: file polls.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use uv_core::fs::Stat;
use uv_core::{FsPoll, Handle, RunMode};

use crate::support::datagrams::code::EALREADY;
use crate::support::datagrams::refused;
use crate::support::files::Directory;
use crate::support::loops::{new_loop, run, run_to_the_end, timer_in};
use crate::support::trace::{Count, Log};
use crate::{Lab, Loop, Verdict};

/// The shortest interval.
const INTERVAL: Duration = Duration::from_millis(1);

/// The compared part of a report: the previous size, and the current size or the error.
type Report = (u64, Result<u64, ErrorKind>);

/// Polls, and logs the reports.
fn polling(lp: &mut Loop, path: &Path, log: &Log<Report>) -> FsPoll {
    let (poll, log) = (FsPoll::new(lp), log.clone());
    let started = poll.start(lp, path, INTERVAL, move |_, _, previous, current| {
        log.push(report(previous, current));
    });
    started.expect("a valid path");
    poll
}

/// Runs until the `stat` in flight has completed: then the loop waits for the next interval.
fn run_until_stat_completes(lp: &mut Loop) {
    run(lp, RunMode::NoWait);
    while lp.backend_timeout().is_none() {
        run(lp, RunMode::Once);
    }
}

fn report(previous: Stat, current: io::Result<Stat>) -> Report {
    (previous.size, current.map(|stat| stat.size).map_err(|error| error.kind()))
}

/// Runs until a report is logged, and returns the log.
fn next(lp: &mut Loop, log: &Log<Report>) -> Vec<Report> {
    while log.len() == 0 {
        assert!(run(lp, RunMode::Once), "the loop is alive");
    }
    log.take()
}

/// Runs for the time of many intervals, and until the first `stat` has completed: threads may be
/// busy.
fn many_looks(lp: &mut Loop) {
    run_until_stat_completes(lp);
    let count = Count::default();
    let counts = count.clone();
    timer_in(lp, INTERVAL * 30, move |lp, timer| {
        counts.add();
        timer.close(lp).expect("an open handle");
    });
    while count.get() == 0 {
        run(lp, RunMode::Once);
    }
}

/// The first `stat` is the baseline and is not reported. Unchanged attributes are not reported
/// either.
pub fn unchanged_files_are_not_reported(lab: &Lab) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let path = directory.file("file", "12345");
    let poll = polling(&mut lp, &path, &log);
    assert_eq!(poll.path(&lp).expect("a path"), path);
    many_looks(&mut lp);
    std::fs::read(&path).expect("the file"); // Reading is not a change.
    many_looks(&mut lp);
    assert_eq!(log.take(), []);
    Ok(())
}

/// The interval is measured from `stat` to `stat`: neither its duration nor the loop's delay is
/// added.
pub fn the_interval_includes_the_stat(lab: &Lab) -> Verdict {
    const LONG: Duration = Duration::from_secs(100);
    const LATE: Duration = Duration::from_millis(20);
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let poll = FsPoll::new(&mut lp);
    poll.start(&mut lp, directory.file("file", "1"), LONG, |_, _, _, _| {}).expect("a path");
    std::thread::sleep(LATE);
    run_until_stat_completes(&mut lp);
    let left = lp.backend_timeout().expect("the time until the next `stat`");
    assert!(left <= LONG - LATE, "{left:?} until the next `stat`");
    Ok(())
}

/// A change is reported with the previous and the current attributes.
pub fn changes_are_reported(lab: &Lab) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let path = directory.file("file", "1");
    polling(&mut lp, &path, &log);
    many_looks(&mut lp);
    // By a rename, so that no `stat` occurs between truncation and write.
    for (before, text) in [(1, "22"), (2, "4444"), (4, "")] {
        let other = directory.file("other", text);
        replace(&path, &other);
        assert_eq!(next(&mut lp, &log), [(before, Ok(text.len() as u64))]);
        many_looks(&mut lp);
        assert_eq!(log.take(), [], "once");
    }
    Ok(())
}

/// Renames a file to a polled path: Windows refuses this during a `stat`.
fn replace(path: &Path, other: &Path) {
    let mut tries = 0;
    while let Err(error) = std::fs::rename(other, path) {
        let is_looked_at = cfg!(windows) && error.kind() == ErrorKind::PermissionDenied;
        assert!(is_looked_at && tries < 1_000, "one's own file: {error}");
        tries += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A change of permissions is reported.
#[cfg(unix)]
pub fn permission_changes_are_reported(lab: &Lab) -> Verdict {
    use std::os::unix::fs::PermissionsExt;

    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let path = directory.file("file", "1");
    polling(&mut lp, &path, &log);
    many_looks(&mut lp);
    let rights = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&path, rights).expect("one's own file");
    assert_eq!(next(&mut lp, &log), [(1, Ok(1))]);
    Ok(())
}

/// A change of permissions is reported.
#[cfg(not(unix))]
pub fn permission_changes_are_reported(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("Windows has no permissions of that kind"))
}

/// An error is reported once, with the last known attributes, and so is the recovery.
pub fn errors_are_reported_once(lab: &Lab) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let path = directory.path("file");
    polling(&mut lp, &path, &log);
    assert_eq!(next(&mut lp, &log), [(0, Err(ErrorKind::NotFound))], "also for the first `stat`");
    many_looks(&mut lp);
    assert_eq!(log.take(), [], "once");
    replace(&path, &directory.file("other", "333"));
    assert_eq!(next(&mut lp, &log), [(0, Ok(3))], "it has arrived");
    std::fs::remove_file(&path).expect("one's own file");
    assert_eq!(next(&mut lp, &log), [(3, Err(ErrorKind::NotFound))], "it has gone");
    many_looks(&mut lp);
    assert_eq!(log.take(), [], "once");
    replace(&path, &directory.file("other", "22"));
    assert_eq!(next(&mut lp, &log), [(3, Ok(2))], "it is back, and the last is remembered");
    Ok(())
}

/// A stopped handle does not report the `stat` in flight. It can be started again with another
/// path, also in its own callback.
pub fn may_be_restarted(lab: &Lab) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let poll = polling(&mut lp, &directory.path("none"), &log);
    for _ in 0..5 {
        poll.stop(&mut lp).expect("an open handle");
        poll.stop(&mut lp).expect("a stopped handle may be stopped");
        assert!(!poll.is_active(&lp));
        let (there, logs) = (directory.file("there", "1"), log.clone());
        let again = poll.start(&mut lp, there, INTERVAL, move |_, _, previous, current| {
            logs.push(report(previous, current));
        });
        again.expect("a valid path");
    }
    many_looks(&mut lp);
    assert_eq!(log.take(), [], "earlier `stat` results are not reported");
    poll.stop(&mut lp).expect("an open handle");
    run_to_the_end(&mut lp);

    let (count, path) = (Count::default(), directory.path("none"));
    restart(&mut lp, poll, path, count.clone());
    run_to_the_end(&mut lp);
    assert_eq!(count.get(), 3, "each start reports the error");
    Ok(())
}

/// Starts a poll whose callback restarts it, and closes it at the third call.
fn restart(lp: &mut Loop, poll: FsPoll, path: std::path::PathBuf, count: Count) {
    let started = poll.start(lp, path.clone(), INTERVAL, move |lp, poll, _, current| {
        assert!(current.is_err(), "there is nothing");
        if count.add() == 3 {
            return poll.close(lp).expect("an open handle");
        }
        poll.stop(lp).expect("an open handle");
        restart(lp, poll, path.clone(), count.clone());
    });
    started.expect("a valid path");
}

/// A closed handle reports nothing, with or without a `stat` in flight, and the loop ends.
pub fn a_closed_poll_is_not_called(lab: &Lab) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let path = directory.path("none");
    for in_flight in [false, true] {
        let poll = polling(&mut lp, &path, &log);
        if in_flight {
            assert_eq!(next(&mut lp, &log), [(0, Err(ErrorKind::NotFound))]);
        }
        let closed = Count::default();
        let counts = closed.clone();
        poll.close_with(&mut lp, move |_, _| counts.count()).expect("an open handle");
        assert!(!poll.is_active(&lp) && poll.path(&lp).is_err());
        directory.file("none", "now there");
        run_to_the_end(&mut lp);
        assert_eq!((closed.get(), log.take()), (1, vec![]));
        std::fs::remove_file(&path).expect("one's own file");
    }
    assert!(lp.walk().is_empty());
    Ok(())
}

/// A started handle keeps the loop alive, unless it is unreferenced. Its internal timer is not
/// visible as a handle.
pub fn keep_the_loop_alive_unless_unreferenced(lab: &Lab) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let path = directory.file("file", "1");
    let idle = FsPoll::new(&mut lp);
    assert!(!idle.is_active(&lp));
    run_to_the_end(&mut lp);
    let poll = polling(&mut lp, &path, &log);
    many_looks(&mut lp);
    assert!(poll.is_active(&lp) && run(&mut lp, RunMode::NoWait), "it keeps the loop alive");
    assert_eq!(lp.walk(), [idle.into(), poll.into()], "and is all there is");
    poll.unreference(&mut lp).expect("an open handle");
    run_to_the_end(&mut lp);
    for handle in [idle, poll] {
        handle.close(&mut lp).expect("an open handle");
    }
    run_to_the_end(&mut lp);
    assert!(lp.close().is_ok(), "no handle is open");
    Ok(())
}

/// Invalid paths, and handles that are active, closing or closed, are refused.
pub fn invalid_calls_are_errors(lab: &Lab) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let path = directory.file("file", "1");
    let poll = FsPoll::new(&mut lp);
    let start = |lp: &mut Loop, path: &Path| {
        let never = |_: &mut Loop, _, _, _| panic!("it was refused");
        poll.start(lp, path, INTERVAL, never).map_err(|error| error.kind())
    };
    assert_eq!(start(&mut lp, Path::new("a\0b")), Err(ErrorKind::InvalidInput));
    assert!(!poll.is_active(&lp) && poll.path(&lp).is_err(), "unchanged");
    let started = polling(&mut lp, &path, &log);
    let again = started.start(&mut lp, &path, INTERVAL, |_, _, _, _| {});
    refused(again, EALREADY, "it is started");
    assert!(started.is_active(&lp), "unchanged");
    for handle in [started, poll] {
        handle.close(&mut lp).expect("an open handle");
    }
    assert_eq!(start(&mut lp, &path), Err(ErrorKind::InvalidInput), "closing");
    run_to_the_end(&mut lp);
    assert_eq!(start(&mut lp, &path), Err(ErrorKind::NotFound), "stale");
    assert_eq!(poll.stop(&mut lp).map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    Ok(())
}

/// A panic in the callback stops the handle, and nothing else.
pub fn a_panic_stops_the_poll(lab: &Lab) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let path = directory.path("none");
    let panics = FsPoll::new(&mut lp);
    let started = panics.start(&mut lp, &path, INTERVAL, |_, _, _, _| panic!("on purpose"));
    started.expect("a valid path");
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lp.run(RunMode::Default)));
    assert!(ran.is_err(), "the panic propagates out of the loop");
    assert!(!panics.is_active(&lp), "it is stopped");
    run_to_the_end(&mut lp);
    polling(&mut lp, &path, &log);
    assert_eq!(next(&mut lp, &log), [(0, Err(ErrorKind::NotFound))], "other handles continue");
    Ok(())
}
