//! The exit of children, and its report.

use std::io::ErrorKind;

use uv_core::{Handle, Process, RunMode};

use crate::support::children::{
    code, each_way, no_children, run_child, runs, signal, spawn, try_spawn,
};
use crate::support::loops::{keep_alive, new_loop, run, run_to_the_end};
use crate::support::program::child;
use crate::support::trace::{Count, Log};
use crate::{Lab, Verdict};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// The exit code of a child is reported.
pub fn exit_codes_are_reported(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    for expected in [0, 1, 7, 255] {
        for command in each_way(child(&["exit", &expected.to_string()])) {
            let exit = run_child(&mut lp, &command);
            assert_eq!(exit, code(expected), "{command:?}");
            assert_eq!(exit.success(), expected == 0);
        }
    }
    no_children("all were waited for");
    Ok(())
}

/// The signal that ends a child is reported, whichever process sent it.
#[cfg(unix)]
pub fn termination_signals_are_reported(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    for signum in [libc::SIGTERM, libc::SIGKILL, libc::SIGUSR1] {
        for command in each_way(child(&["die", &signum.to_string()])) {
            assert_eq!(run_child(&mut lp, &command), signal(signum), "{command:?}");
        }
    }
    no_children("all were waited for");
    Ok(())
}

/// The signal that ends a child is reported, whichever process sent it.
#[cfg(windows)]
pub fn termination_signals_are_reported(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("Windows has only the signals that this crate emulates"))
}

/// A handle is active until the exit of its child, which is reported once, and never inside
/// `spawn`. The handle keeps the process ID.
pub fn the_exit_is_reported_once_and_never_inline(lab: &Lab) -> Verdict {
    for command in each_way(child(&["exit", "3"])) {
        let mut lp = new_loop(lab)?;
        let (count, callbacks) = (Count::default(), Log::default());
        let (counts, log) = (count.clone(), callbacks.clone());
        let process = Process::spawn(&mut lp, &command, move |lp, process, exit| {
            counts.add();
            assert!(!process.is_active(lp), "it is complete");
            log.push((process, exit.expect("our child")));
        });
        let process = process.expect("a child");
        assert_eq!(count.get(), 0, "never inline");
        assert!(process.is_active(&lp) && lp.is_alive());
        let pid = process.pid(&lp).expect("a number");
        assert!(pid != 0 && pid != std::process::id());
        run_to_the_end(&mut lp);
        assert_eq!(callbacks.take(), [(process, code(3))]);
        assert_eq!(process.pid(&lp).ok(), Some(pid), "the number is kept");
        run_to_the_end(&mut lp);
        assert_eq!(count.get(), 1, "once");
        process.close(&mut lp).expect("an open handle");
        run_to_the_end(&mut lp);
        assert_eq!(process.pid(&lp).map_err(|it| it.kind()), Err(ErrorKind::NotFound));
    }
    Ok(())
}

/// A running child can be killed, and probed with signal 0.
pub fn can_be_killed(lab: &Lab) -> Verdict {
    for signum in [SIGTERM, SIGKILL] {
        for command in each_way(child(&["sleep"])) {
            let mut lp = new_loop(lab)?;
            let ends = Log::default();
            let process = spawn(&mut lp, &command, &ends);
            assert!(run(&mut lp, RunMode::NoWait), "it runs");
            process.kill(&mut lp, 0).expect("it is there");
            process.kill(&mut lp, signum).expect("it is there to be killed");
            run_to_the_end(&mut lp);
            assert_eq!(ends.take(), [signal(signum)], "{command:?}");
        }
    }
    no_children("all were waited for");
    Ok(())
}

/// A child that has exited cannot be killed: another process may have its ID.
pub fn an_exited_child_cannot_be_killed(lab: &Lab) -> Verdict {
    for command in each_way(child(&["exit", "0"])) {
        let mut lp = new_loop(lab)?;
        let process = Process::spawn(&mut lp, &command, |lp, process, _| {
            no_such_process(process.kill(lp, SIGKILL));
        });
        let process = process.expect("a child");
        run_to_the_end(&mut lp);
        no_such_process(process.kill(&mut lp, SIGKILL));
        no_such_process(process.kill(&mut lp, 0));
        process.close(&mut lp).expect("an open handle");
        no_such_process(process.kill(&mut lp, SIGKILL));
        run_to_the_end(&mut lp);
        let stale = process.kill(&mut lp, SIGKILL).map_err(|it| it.kind());
        assert_eq!(stale, Err(ErrorKind::NotFound), "a stale key");
    }
    Ok(())
}

#[track_caller]
fn no_such_process(killed: std::io::Result<()>) {
    let error = killed.expect_err("the child has exited");
    #[cfg(unix)]
    assert_eq!(error.raw_os_error(), Some(libc::ESRCH), "{error}");
    #[cfg(windows)]
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

/// Processes can be killed by their ID. Invalid signal numbers are refused.
pub fn can_be_killed_by_process_id(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ends = Log::default();
    let process = spawn(&mut lp, &child(&["sleep"]), &ends);
    let pid = process.pid(&lp).expect("a number") as i32;
    uv_core::kill(pid, 0).expect("it is there");
    uv_core::kill(std::process::id() as i32, 0).expect("this process is there");
    for killed in [uv_core::kill(pid, 9_999), process.kill(&mut lp, 9_999)] {
        assert_eq!(killed.map_err(|it| it.kind()), Err(ErrorKind::InvalidInput), "no signal");
    }
    uv_core::kill(pid, SIGKILL).expect("it is there to be killed");
    run_to_the_end(&mut lp);
    let end = ends.take();
    // Windows does not report which process ended it.
    let expected = if cfg!(windows) { code(1) } else { signal(SIGKILL) };
    assert_eq!(end, [expected]);
    no_such_process(uv_core::kill(pid, 0));
    Ok(())
}

/// A child killed before its program has started exits like others.
pub fn can_be_killed_while_starting(lab: &Lab) -> Verdict {
    let rounds = if cfg!(windows) { 3 } else { 20 };
    let mut lp = new_loop(lab)?;
    let ends = Log::default();
    for round in 0..rounds {
        for command in each_way(child(&["sleep"])) {
            let process = spawn(&mut lp, &command, &ends);
            process.kill(&mut lp, SIGKILL).expect("it is there to be killed");
            if round % 2 == 0 {
                run_to_the_end(&mut lp);
            }
        }
    }
    run_to_the_end(&mut lp);
    let expected = rounds * each_way(child(&[])).len();
    assert_eq!(ends.take(), vec![signal(SIGKILL); expected]);
    no_children("all were waited for");
    Ok(())
}

/// Many children run concurrently, and each exit is reported once, with its own code.
pub fn many_run_concurrently(lab: &Lab) -> Verdict {
    let many = if cfg!(windows) { 12 } else { 100 };
    let mut lp = new_loop(lab)?;
    for way in 0..each_way(child(&[])).len() {
        let ends = Log::default();
        for number in 0..many {
            let command = child(&["exit", &number.to_string()]);
            spawn(&mut lp, &each_way(command)[way], &ends);
        }
        run_to_the_end(&mut lp);
        let mut codes: Vec<_> = ends.take().into_iter().map(|end| end.code).collect();
        codes.sort_unstable();
        assert_eq!(codes, (0..many).collect::<Vec<_>>(), "each with its own code, once");
    }
    no_children("all were waited for");
    Ok(())
}

/// A child keeps the loop alive, unless its handle is unreferenced.
pub fn keep_the_loop_alive_unless_unreferenced(lab: &Lab) -> Verdict {
    for command in each_way(child(&["sleep"])) {
        let mut lp = new_loop(lab)?;
        let ends = Log::default();
        let process = spawn(&mut lp, &command, &ends);
        assert!(run(&mut lp, RunMode::NoWait), "it keeps the loop alive");
        process.unreference(&mut lp).expect("an open handle");
        run_to_the_end(&mut lp);
        assert_eq!(ends.len(), 0, "it still runs");
        assert!(process.is_active(&lp) && runs(process.pid(&lp).expect("a number")));
        // Still reported, if the loop runs for another reason.
        process.kill(&mut lp, SIGKILL).expect("it is there to be killed");
        let timer = keep_alive(&mut lp);
        while ends.len() == 0 {
            run(&mut lp, RunMode::Once);
        }
        timer.close(&mut lp).expect("an open handle");
        run_to_the_end(&mut lp);
        assert_eq!(ends.take(), [signal(SIGKILL)]);
    }
    Ok(())
}

/// If a callback panics, other exits of the same batch are reported by the next run.
pub fn a_panic_keeps_other_exits(lab: &Lab) -> Verdict {
    for command in each_way(child(&["exit", "0"])) {
        let mut lp = new_loop(lab)?;
        let ends = Log::default();
        let panics = Process::spawn(&mut lp, &command, |_, _, _| panic!("on purpose"));
        let panics = panics.expect("a child");
        for _ in 0..3 {
            try_spawn(&mut lp, &command, &ends).expect("a child");
        }
        // Until all have exited.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            lp.run(RunMode::Default).expect("it runs")
        }));
        assert!(ran.is_err(), "the panic propagates out of the loop");
        assert!(!panics.is_active(&lp), "it is complete");
        run_to_the_end(&mut lp);
        assert_eq!(ends.take(), [code(0); 3], "{command:?}");
    }
    no_children("all were waited for");
    Ok(())
}
