//! Children that outlive what started them, and children of others.

use poll_core::Backend;
use uv_core::{Handle, RunMode};

#[cfg(unix)]
use crate::support::children::run_child;
use crate::support::children::{code, each_way, no_children, runs, spawn};
use crate::support::limits::settled_descriptors;
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::program::child;
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// A child whose handle is closed runs on. Its end is not told, and it leaves no zombie, even
/// if the loop never runs again.
pub fn closing_leaves_the_child_and_no_zombie<T: Backend>(lab: &Lab<T>) -> Verdict {
    for command in each_way(child(&["sleep"])) {
        let mut lp = new_loop(lab)?;
        let ends = Log::default();
        let pids: Vec<_> = (0..3)
            .map(|_| {
                let process = spawn(&mut lp, &command, &ends);
                let pid = process.pid(&lp).expect("a number");
                process.close(&mut lp).expect("an open handle");
                assert!(!process.is_active(&lp));
                pid
            })
            .collect();
        run_to_the_end(&mut lp);
        for pid in pids {
            assert!(runs(pid) || cfg!(windows), "it runs on");
            uv_core::kill(pid as i32, 9).expect("it is there to be killed");
        }
        no_children("closed before their ends");
        assert_eq!(ends.len(), 0, "not told");
    }
    Ok(())
}

/// The children of a loop that is dropped run on, and leave no zombies. Nothing is told.
pub fn a_dropped_loop_leaves_no_zombie<T: Backend>(lab: &Lab<T>) -> Verdict {
    for command in each_way(child(&["sleep"])) {
        let ends = Log::default();
        let mut lp = new_loop(lab)?;
        let closed = spawn(&mut lp, &command, &ends);
        let kept = spawn(&mut lp, &command, &ends);
        let pids = [closed, kept].map(|process| process.pid(&lp).expect("a number"));
        closed.close(&mut lp).expect("an open handle");
        run(&mut lp, RunMode::NoWait);
        drop(lp);
        for pid in pids {
            assert!(runs(pid) || cfg!(windows), "it runs on");
            uv_core::kill(pid as i32, 9).expect("it is there to be killed");
        }
        no_children("their loop is gone");
        assert_eq!(ends.len(), 0, "not told");
    }
    Ok(())
}

/// However children start and end, and however their handles go, no descriptor is left behind.
pub fn no_descriptor_is_left_behind<T: Backend>(lab: &Lab<T>) -> Verdict {
    let round = |expected| -> Verdict {
        for command in each_way(child(&["exit", "0"])) {
            let mut lp = new_loop(lab)?;
            let ends = Log::default();
            for _ in 0..3 {
                spawn(&mut lp, &command, &ends);
            }
            run_to_the_end(&mut lp);
            let closed = spawn(&mut lp, &command, &ends);
            closed.close(&mut lp).expect("an open handle");
            spawn(&mut lp, &command, &ends); // Dropped with the loop.
            drop(lp);
            no_children("they end by themselves");
        }
        let _: Option<usize> = expected;
        Ok(())
    };
    round(None)?; // What is looked up once is looked up now.
    let before = settled_descriptors()?;
    round(Some(before))?;
    assert_eq!(settled_descriptors()?, before);
    Ok(())
}

/// A child that is not the loop's is not waited for, even if it ends beside one that is.
#[cfg(unix)]
pub fn children_of_others_are_left_alone<T: Backend>(lab: &Lab<T>) -> Verdict {
    for command in each_way(child(&["exit", "1"])) {
        let mut lp = new_loop(lab)?;
        let mut own = std::process::Command::new("/bin/sh");
        let mut own = own.args(["-c", "exit 42"]).spawn().expect("a child of one's own");
        for _ in 0..3 {
            assert_eq!(run_child(&mut lp, &command), code(1));
        }
        let status = own.wait().expect("nobody else has waited for it");
        assert_eq!(status.code(), Some(42));
    }
    no_children("all were waited for");
    Ok(())
}

/// A child that somebody else has waited for, whatever for, ends with an error, and does not
/// keep the loop for ever. So does one that nobody can wait for.
#[cfg(unix)]
pub fn a_stolen_end_is_an_error<T: Backend>(lab: &Lab<T>) -> Verdict {
    use crate::support::dispositions::{Changed, Disposition};
    use uv_core::Process;

    let stolen = |exit: std::io::Result<uv_core::Exit>| {
        let error = exit.expect_err("nobody knows");
        assert_eq!(error.raw_os_error(), Some(libc::ECHILD), "{error}");
    };
    for command in each_way(child(&["exit", "1"])) {
        let mut lp = new_loop(lab)?;
        let process = Process::spawn(&mut lp, &command, move |lp, process, exit| {
            stolen(exit);
            process.close(lp).expect("an open handle");
        });
        let pid = process.expect("a child").pid(&lp).expect("a number");
        let mut status = 0;
        // SAFETY: the kernel writes one number.
        let waited = unsafe { libc::waitpid(pid as libc::pid_t, &raw mut status, 0) };
        assert_eq!(waited, pid as libc::pid_t);
        run_to_the_end(&mut lp);
    }
    // Ignoring the signal leaves nothing to wait for. A loop that needs it, handles it.
    let _ignored = Changed::to(libc::SIGCHLD, Disposition::Ignored);
    let mut lp = new_loop(lab)?;
    for command in [child(&["exit", "1"]), child(&["exit", "1"]).without_pidfd()] {
        let process = Process::spawn(&mut lp, &command, move |lp, process, exit| {
            match exit {
                Ok(exit) => assert_eq!(exit, code(1)),
                Err(error) => stolen(Err(error)),
            }
            process.close(lp).expect("an open handle");
        });
        process.expect("a child");
        run_to_the_end(&mut lp);
    }
    Ok(())
}

/// Without descriptors of processes the loop is told by `SIGCHLD`, which others may watch too;
/// when it has no children, the signal does again what it did before.
#[cfg(unix)]
pub fn the_signal_is_shared<T: Backend>(lab: &Lab<T>) -> Verdict {
    use crate::support::dispositions::Disposition;
    use crate::support::trace::Count;
    use uv_core::Signal;

    let before = Disposition::of(libc::SIGCHLD);
    let mut lp = new_loop(lab)?;
    let (signal, told) = (Signal::new(&mut lp), Count::default());
    let tells = told.clone();
    signal.start(&mut lp, libc::SIGCHLD, move |_, _, _| tells.count()).expect("a signal");
    signal.unreference(&mut lp).expect("an open handle");
    assert_eq!(run_child(&mut lp, &child(&["exit", "9"]).without_pidfd()), code(9));
    run(&mut lp, RunMode::NoWait);
    assert!(told.get() >= 1, "the signal's own handle is told");
    signal.stop(&mut lp).expect("an open handle");
    assert_eq!(Disposition::of(libc::SIGCHLD), before, "nobody needs it any more");
    assert_eq!(run_child(&mut lp, &child(&["exit", "9"]).without_pidfd()), code(9));
    assert_eq!(Disposition::of(libc::SIGCHLD), before, "nobody needs it any more");
    Ok(())
}

/// A process is a handle like others: it has a name, a place in walks and lists, and references;
/// it is active from its start to its end, and its key is stale when it is closed.
pub fn a_child_is_a_handle_like_others<T: Backend>(lab: &Lab<T>) -> Verdict {
    use std::io::ErrorKind;
    use uv_core::{AnyHandle, Process};

    let (mut lp, ends) = (new_loop(lab)?, Log::default());
    let logs = ends.clone();
    let process = Process::spawn(&mut lp, &child(&["exit", "3"]), move |_, _, exit| {
        logs.push(exit.expect("our child"));
    });
    let process = process.expect("a child");
    let any = AnyHandle::from(process);
    assert_eq!((any.kind(), lp.walk()), ("process", vec![any]));
    assert!(process.is_active(&lp) && process.has_ref(&lp) && !process.is_closing(&lp));
    assert_eq!(lp.list_active_handles().to_string(), format!("[RA-] {any}\n"));
    process.unreference(&mut lp).expect("an open handle");
    assert!(!lp.alive(), "nobody waits for it");
    assert_eq!(lp.list_handles().to_string(), format!("[-A-] {any}\n"));
    process.reference(&mut lp).expect("an open handle");
    run_to_the_end(&mut lp);
    assert_eq!(ends.take(), [code(3)]);
    assert_eq!(lp.list_handles().to_string(), format!("[R--] {any}\n"), "it has ended");
    assert_eq!(lp.list_active_handles().to_string(), "");
    process.close(&mut lp).expect("an open handle");
    assert_eq!(lp.list_handles().to_string(), format!("[R-C] {any}\n"));
    run_to_the_end(&mut lp);
    let stale = |result: std::io::Result<()>| {
        assert_eq!(result.expect_err("it is gone").kind(), ErrorKind::NotFound);
    };
    stale(process.close(&mut lp));
    stale(process.reference(&mut lp));
    stale(process.kill(&mut lp, 0));
    stale(process.pid(&lp).map(drop));
    assert!(lp.walk().is_empty() && process.is_closing(&lp) && !process.has_ref(&lp));
    no_children("it was waited for");
    Ok(())
}

/// In a forked child a loop's children are the parent's: their handles are told that their
/// ends are not known there. The parent is told how they end.
#[cfg(unix)]
pub fn a_forked_loop_has_no_children<T: Backend>(lab: &Lab<T>) -> Verdict {
    use crate::support::child::Child;
    use crate::support::children::signal;
    use crate::support::observe::SOON;
    use uv_core::Process;

    for command in each_way(child(&["sleep"])) {
        let mut lp = new_loop(lab)?;
        let ends = Log::default();
        let logs = ends.clone();
        let process = Process::spawn(&mut lp, &command, move |lp, process, exit| {
            logs.push(exit.map_err(|error| error.raw_os_error()));
            process.close(lp).expect("an open handle");
        });
        let process = process.expect("a child");
        let forked = Child::fork(|| {
            lp.fork().expect("a loop in a forked child");
            run_to_the_end(&mut lp);
            assert_eq!(ends.take(), [Err(Some(libc::ECHILD))]);
            assert_eq!(run_child(&mut lp, &child(&["exit", "8"])), code(8), "it has its own");
            Ok(())
        });
        forked.join(SOON)?;
        assert!(runs(process.pid(&lp).expect("a number")), "the fork has not harmed it");
        process.kill(&mut lp, libc::SIGKILL).expect("it is there to be killed");
        run_to_the_end(&mut lp);
        assert_eq!(ends.take(), [Ok(signal(libc::SIGKILL))]);
    }
    no_children("all were waited for");
    Ok(())
}

#[cfg(windows)]
unix_alone! {
    children_of_others_are_left_alone: "on Windows nobody has to wait for a child"
    a_stolen_end_is_an_error: "on Windows everybody can wait for a child"
    the_signal_is_shared: "Windows has no SIGCHLD"
    a_forked_loop_has_no_children: "Windows has no fork"
}
