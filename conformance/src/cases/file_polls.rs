//! Point 35: file polls.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use poll_core::Backend;
use uv_core::fs::Stat;
use uv_core::{FsPoll, Handle, Loop, RunMode};

use crate::support::files::Directory;
use crate::support::loops::{new_loop, run, run_to_the_end, timer_in};
use crate::support::trace::{Count, Log};
use crate::{Lab, Verdict};

/// As short as it can be.
const INTERVAL: Duration = Duration::from_millis(1);

/// What a callback was told, as far as cases compare it: the size before, and the size now or
/// what is wrong.
type Told = (u64, Result<u64, ErrorKind>);

/// Polls, and logs what it is told.
fn polling<T: Backend>(lp: &mut Loop<T>, path: &Path, log: &Log<Told>) -> FsPoll {
    let (poll, log) = (FsPoll::new(lp), log.clone());
    let started = poll.start(lp, path, INTERVAL, move |_, _, previous, current| {
        log.push(told(previous, current));
    });
    started.expect("a path to look at");
    poll
}

/// Runs until the look that is under way is over: then the loop waits for the time of the next.
fn look_is_over<T: Backend>(lp: &mut Loop<T>) {
    run(lp, RunMode::NoWait);
    while lp.backend_timeout().is_none() {
        run(lp, RunMode::Once);
    }
}

fn told(previous: Stat, current: io::Result<Stat>) -> Told {
    (previous.size, current.map(|stat| stat.size).map_err(|error| error.kind()))
}

/// Runs until something was told since the last look, and gives it.
fn next<T: Backend>(lp: &mut Loop<T>, log: &Log<Told>) -> Vec<Told> {
    while log.len() == 0 {
        assert!(run(lp, RunMode::Once), "the loop is alive");
    }
    log.take()
}

/// Runs for as long as many looks take, and until the first is over: threads may be busy.
fn many_looks<T: Backend>(lp: &mut Loop<T>) {
    look_is_over(lp);
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

/// The first look is what others are compared with, and is not told; neither is what stays as
/// it is.
pub fn what_does_not_change_is_not_told<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let path = directory.file("file", "12345");
    let poll = polling(&mut lp, &path, &log);
    assert_eq!(poll.path(&lp).expect("a path"), path);
    many_looks(&mut lp);
    std::fs::read(&path).expect("the file"); // Reading is no change.
    many_looks(&mut lp);
    assert_eq!(log.take(), []);
    Ok(())
}

/// The interval is from look to look: what a look took, or the loop until it noticed, is not added.
pub fn the_time_of_a_look_is_a_part_of_the_interval<T: Backend>(lab: &Lab<T>) -> Verdict {
    const LONG: Duration = Duration::from_secs(100);
    const LATE: Duration = Duration::from_millis(20);
    let (mut lp, directory) = (new_loop(lab)?, Directory::new());
    let poll = FsPoll::new(&mut lp);
    poll.start(&mut lp, directory.file("file", "1"), LONG, |_, _, _, _| {}).expect("a path");
    std::thread::sleep(LATE);
    look_is_over(&mut lp);
    let left = lp.backend_timeout().expect("the time of the next look");
    assert!(left <= LONG - LATE, "{left:?} until the next look");
    Ok(())
}

/// A change is told, with what was before and what is now.
pub fn changes_are_told<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let path = directory.file("file", "1");
    polling(&mut lp, &path, &log);
    many_looks(&mut lp);
    // By name, so that no look falls between emptying and writing.
    for (before, text) in [(1, "22"), (2, "4444"), (4, "")] {
        let other = directory.file("other", text);
        replace(&path, &other);
        assert_eq!(next(&mut lp, &log), [(before, Ok(text.len() as u64))]);
        many_looks(&mut lp);
        assert_eq!(log.take(), [], "once");
    }
    Ok(())
}

/// Renames a file to one that is looked at now and then: while it is, Windows refuses.
fn replace(path: &Path, other: &Path) {
    let mut tries = 0;
    while let Err(error) = std::fs::rename(other, path) {
        let is_looked_at = cfg!(windows) && error.kind() == ErrorKind::PermissionDenied;
        assert!(is_looked_at && tries < 1_000, "one's own file: {error}");
        tries += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Other rights are a change as well.
#[cfg(unix)]
pub fn rights_are_a_part_of_it<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// Other rights are a change as well.
#[cfg(not(unix))]
pub fn rights_are_a_part_of_it<T: Backend>(_lab: &Lab<T>) -> Verdict {
    Err(crate::Skip::because("Windows has no permissions of that kind"))
}

/// An error is told once, with what was there last, and so is its end.
pub fn errors_are_told_once<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let path = directory.path("file");
    polling(&mut lp, &path, &log);
    assert_eq!(next(&mut lp, &log), [(0, Err(ErrorKind::NotFound))], "at the first look, too");
    many_looks(&mut lp);
    assert_eq!(log.take(), [], "once");
    replace(&path, &directory.file("other", "333"));
    assert_eq!(next(&mut lp, &log), [(0, Ok(3))], "it has come");
    std::fs::remove_file(&path).expect("one's own file");
    assert_eq!(next(&mut lp, &log), [(3, Err(ErrorKind::NotFound))], "it has gone");
    many_looks(&mut lp);
    assert_eq!(log.take(), [], "once");
    replace(&path, &directory.file("other", "22"));
    assert_eq!(next(&mut lp, &log), [(3, Ok(2))], "it is back, and the last is remembered");
    Ok(())
}

/// A handle that is stopped is not told of the look that is under way. It can start anew with
/// another path, in its own callback too.
pub fn may_stop_and_start_anew<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let poll = polling(&mut lp, &directory.path("none"), &log);
    for _ in 0..5 {
        poll.stop(&mut lp).expect("an open handle");
        poll.stop(&mut lp).expect("a stopped handle may be stopped");
        assert!(!poll.is_active(&lp));
        let (there, logs) = (directory.file("there", "1"), log.clone());
        let again = poll.start(&mut lp, there, INTERVAL, move |_, _, previous, current| {
            logs.push(told(previous, current));
        });
        again.expect("a path to look at");
    }
    many_looks(&mut lp);
    assert_eq!(log.take(), [], "the looks of before are nobody's");
    poll.stop(&mut lp).expect("an open handle");
    run_to_the_end(&mut lp);

    let (count, path) = (Count::default(), directory.path("none"));
    restart(&mut lp, poll, path, count.clone());
    run_to_the_end(&mut lp);
    assert_eq!(count.get(), 3, "each start tells of the error");
    Ok(())
}

/// Starts a poll that, in its callback, stops and starts itself anew, and closes at the third.
fn restart<T: Backend>(lp: &mut Loop<T>, poll: FsPoll, path: std::path::PathBuf, count: Count) {
    let started = poll.start(lp, path.clone(), INTERVAL, move |lp, poll, _, current| {
        assert!(current.is_err(), "there is nothing");
        if count.add() == 3 {
            return poll.close(lp).expect("an open handle");
        }
        poll.stop(lp).expect("an open handle");
        restart(lp, poll, path.clone(), count.clone());
    });
    started.expect("a path to look at");
}

/// A closed handle is not told, whether a look is under way or not; the loop ends.
pub fn a_closed_poll_is_not_told<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let path = directory.path("none");
    for looks in [false, true] {
        let poll = polling(&mut lp, &path, &log);
        if looks {
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

/// A handle keeps the loop alive while it is started, unless it is unreferenced. What it waits
/// with is no handle that anybody sees.
pub fn polls_keep_the_loop_unless_unreferenced<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let path = directory.file("file", "1");
    let idle = FsPoll::new(&mut lp);
    assert!(!idle.is_active(&lp));
    run_to_the_end(&mut lp);
    let poll = polling(&mut lp, &path, &log);
    many_looks(&mut lp);
    assert!(poll.is_active(&lp) && run(&mut lp, RunMode::NoWait), "it keeps the loop");
    assert_eq!(lp.walk(), [idle.into(), poll.into()], "and is all there is");
    poll.unreference(&mut lp).expect("an open handle");
    run_to_the_end(&mut lp);
    for handle in [idle, poll] {
        handle.close(&mut lp).expect("an open handle");
    }
    run_to_the_end(&mut lp);
    assert!(lp.close().is_ok(), "nothing is left");
    Ok(())
}

/// What cannot be looked at, and handles that look already, are closing or gone, are refused.
pub fn mistakes_are_errors<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let path = directory.file("file", "1");
    let poll = FsPoll::new(&mut lp);
    let start = |lp: &mut Loop<T>, path: &Path| {
        let never = |_: &mut Loop<T>, _, _, _| panic!("it was refused");
        poll.start(lp, path, INTERVAL, never).map_err(|error| error.kind())
    };
    assert_eq!(start(&mut lp, Path::new("a\0b")), Err(ErrorKind::InvalidInput));
    assert!(!poll.is_active(&lp) && poll.path(&lp).is_err(), "as it was");
    let started = polling(&mut lp, &path, &log);
    let again = started.start(&mut lp, &path, INTERVAL, |_, _, _, _| {});
    assert_eq!(again.map_err(|error| error.kind()), Err(ErrorKind::AlreadyExists));
    assert!(started.is_active(&lp), "as it was");
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
pub fn a_panic_stops_the_poll<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, directory, log) = (new_loop(lab)?, Directory::new(), Log::default());
    let path = directory.path("none");
    let panics = FsPoll::new(&mut lp);
    let started = panics.start(&mut lp, &path, INTERVAL, |_, _, _, _| panic!("on purpose"));
    started.expect("a path to look at");
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lp.run(RunMode::Default)));
    assert!(ran.is_err(), "the panic comes out of the loop");
    assert!(!panics.is_active(&lp), "it is stopped");
    run_to_the_end(&mut lp);
    polling(&mut lp, &path, &log);
    assert_eq!(next(&mut lp, &log), [(0, Err(ErrorKind::NotFound))], "others go on");
    Ok(())
}
