//! Children that outlive their handle or loop, and children of other code.

use uv_core::{Handle, RunMode};

#[cfg(unix)]
use crate::support::children::run_child;
use crate::support::children::{code, each_way, no_children, runs, spawn};
use crate::support::limits::settled_descriptors;
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::program::child;
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// A child whose handle is closed keeps running. Its exit is not reported, and it leaves no zombie,
/// even if the loop never runs again.
pub fn closing_leaves_a_running_child_and_no_zombie(lab: &Lab) -> Verdict {
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
            kill_running(pid);
        }
        no_children("closed before their ends");
        assert_eq!(ends.len(), 0, "not reported");
    }
    Ok(())
}

/// Ends a child that runs on. Under Wine one was seen to be gone, in some thousands: not asserted.
#[track_caller]
fn kill_running(pid: u32) {
    assert!(runs(pid) || cfg!(windows), "it runs on");
    let killed = uv_core::kill(pid as i32, 9);
    assert!(killed.is_ok() || cfg!(windows), "it is there to be killed: {killed:?}");
}

/// The children of a dropped loop keep running, and leave no zombies. No exit is reported.
pub fn a_dropped_loop_leaves_no_zombie(lab: &Lab) -> Verdict {
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
            kill_running(pid);
        }
        no_children("their loop is gone");
        assert_eq!(ends.len(), 0, "not reported");
    }
    Ok(())
}

/// However children start and exit, and however their handles end, no descriptor leaks.
pub fn no_descriptor_leaks(lab: &Lab) -> Verdict {
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
    round(None)?; // Performs one-time lookups.
    let before = settled_descriptors()?;
    round(Some(before))?;
    assert_eq!(settled_descriptors()?, before);
    Ok(())
}

/// A child that is not the loop's is not reaped, even if it exits together with one that is.
#[cfg(unix)]
pub fn other_children_are_not_reaped(lab: &Lab) -> Verdict {
    for command in each_way(child(&["exit", "1"])) {
        let mut lp = new_loop(lab)?;
        let mut own = std::process::Command::new("/bin/sh");
        let mut own = own.args(["-c", "exit 42"]).spawn().expect("a child of one's own");
        for _ in 0..3 {
            assert_eq!(run_child(&mut lp, &command), code(1));
        }
        let status = own.wait().expect("the child was not reaped");
        assert_eq!(status.code(), Some(42));
    }
    no_children("all were waited for");
    Ok(())
}

/// A child reaped by other code ends with an error, and does not keep the loop alive. So does a
/// child that cannot be waited for.
#[cfg(unix)]
pub fn an_exit_reaped_elsewhere_is_an_error(lab: &Lab) -> Verdict {
    use crate::support::dispositions::{Changed, Disposition};
    use uv_core::Process;

    let stolen = |exit: std::io::Result<uv_core::Exit>| {
        let error = exit.expect_err("the exit is unknown");
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
        if !cfg!(target_os = "linux") {
            // FreeBSD removes the queued signal of a child that is reaped. The loop checks its
            // children at the next signal.
            // SAFETY: a signal to this process, for which the loop has a handler.
            let sent = unsafe { libc::kill(std::process::id() as libc::pid_t, libc::SIGCHLD) };
            assert_eq!(sent, 0, "a process may signal itself");
        }
        run_to_the_end(&mut lp);
    }
    // If the signal is ignored, there is no child to wait for. A loop that needs the signal handles
    // it.
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

/// Without process descriptors the loop uses `SIGCHLD`, which signal handles may watch too. When
/// the loop has no children, the previous disposition is restored.
#[cfg(unix)]
pub fn sigchld_is_shared_with_signal_handles(lab: &Lab) -> Verdict {
    use crate::support::dispositions::Disposition;
    use crate::support::trace::Count;
    use uv_core::Signal;

    let before = Disposition::of(libc::SIGCHLD);
    let mut lp = new_loop(lab)?;
    let (signal, callbacks) = (Signal::new(&mut lp), Count::default());
    let log = callbacks.clone();
    signal.start(&mut lp, libc::SIGCHLD, move |_, _, _| log.count()).expect("a signal");
    signal.unreference(&mut lp).expect("an open handle");
    assert_eq!(run_child(&mut lp, &child(&["exit", "9"]).without_pidfd()), code(9));
    // The signal may have come after the poll that reported the exit.
    signal.reference(&mut lp).expect("an open handle");
    while callbacks.get() == 0 {
        run(&mut lp, RunMode::Once);
    }
    signal.stop(&mut lp).expect("an open handle");
    assert_eq!(Disposition::of(libc::SIGCHLD), before, "the disposition is restored");
    assert_eq!(run_child(&mut lp, &child(&["exit", "9"]).without_pidfd()), code(9));
    assert_eq!(Disposition::of(libc::SIGCHLD), before, "the disposition is restored");
    Ok(())
}

/// A process is a regular handle: it has a kind name, and references, and appears in walks and
/// lists. It is active until its exit, and its key is stale after its close. Another loop refuses
/// its key.
pub fn a_child_is_a_regular_handle(lab: &Lab) -> Verdict {
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
    assert!(process.is_active(&lp) && process.is_referenced(&lp) && !process.is_closing(&lp));
    let listed = format!("{any}, pid {}", process.pid(&lp).expect("a child"));
    assert_eq!(lp.debug_active_handles().to_string(), format!("[RA-] {listed}\n"));
    let stale = |result: std::io::Result<()>| {
        assert_eq!(result.expect_err("it is gone").kind(), ErrorKind::NotFound);
    };
    let mut other = new_loop(lab)?;
    let own = spawn(&mut other, &child(&["exit", "4"]), &ends);
    stale(process.kill(&mut other, 0));
    stale(process.pid(&other).map(drop));
    stale(process.close(&mut other));
    assert!(own.is_active(&other) && own != process);
    run_to_the_end(&mut other);
    assert_eq!(ends.take(), [code(4)], "the child of the other loop");
    process.unreference(&mut lp).expect("an open handle");
    assert!(!lp.is_alive(), "the handle is inactive");
    assert_eq!(lp.debug_handles().to_string(), format!("[-A-] {listed}\n"));
    process.reference(&mut lp).expect("an open handle");
    run_to_the_end(&mut lp);
    assert_eq!(ends.take(), [code(3)]);
    assert_eq!(lp.debug_handles().to_string(), format!("[R--] {listed}\n"), "it has ended");
    assert_eq!(lp.debug_active_handles().to_string(), "");
    process.close(&mut lp).expect("an open handle");
    assert_eq!(lp.debug_handles().to_string(), format!("[R-C] {listed}\n"));
    run_to_the_end(&mut lp);
    stale(process.close(&mut lp));
    stale(process.reference(&mut lp));
    stale(process.kill(&mut lp, 0));
    stale(process.pid(&lp).map(drop));
    assert!(lp.walk().is_empty() && process.is_closing(&lp) && !process.is_referenced(&lp));
    no_children("it was waited for");
    Ok(())
}

/// In a forked child the loop's children are the parent's: their handles report there that the exit
/// is unknown. The parent gets the exit.
#[cfg(unix)]
pub fn a_forked_loop_has_no_children(lab: &Lab) -> Verdict {
    use crate::support::child::{Child, after_fork};
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
            after_fork(&mut lp)?;
            run_to_the_end(&mut lp);
            assert_eq!(ends.take(), [Err(Some(libc::ECHILD))]);
            assert_eq!(run_child(&mut lp, &child(&["exit", "8"])), code(8), "it has its own");
            Ok(())
        });
        let verdict = forked.join(SOON);
        assert!(runs(process.pid(&lp).expect("a number")), "the fork does not affect it");
        process.kill(&mut lp, libc::SIGKILL).expect("it is there to be killed");
        run_to_the_end(&mut lp);
        assert_eq!(ends.take(), [Ok(signal(libc::SIGKILL))]);
        verdict?;
    }
    no_children("all were waited for");
    Ok(())
}

#[cfg(windows)]
unix_alone! {
    other_children_are_not_reaped: "Windows has no zombies"
    an_exit_reaped_elsewhere_is_an_error: "any process can wait for a child on Windows"
    sigchld_is_shared_with_signal_handles: "Windows has no SIGCHLD"
    a_forked_loop_has_no_children: "Windows has no fork"
}
