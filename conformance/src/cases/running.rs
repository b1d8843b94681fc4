//! Point 13: the phases of an iteration, when it blocks, and when `run` returns.

mod next_iteration;
mod no_callback;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use poll_core::{Backend, Wake};
use uv_core::{Async, Check, Handle, Idle, Poll, PollEvents, Prepare, RunMode, Timer};

#[cfg(not(unix))]
use crate::Skip;
use crate::support::loops::{AN_HOUR, ZERO, keep_alive, new_loop, run, run_to_the_end, timer_in};
use crate::support::scenes::{call_everything, every_phase, mark_iterations};
#[cfg(unix)]
use crate::support::signals::Thread;
use crate::support::sources::{arrived, drain, send, tcp_pair};
use crate::support::trace::{Count, Trace};
use crate::{Lab, Loop, Verdict};

pub use {next_iteration::*, no_callback::*};

const MODES: [RunMode; 3] = [RunMode::Default, RunMode::Once, RunMode::NoWait];

const MS: Duration = Duration::from_millis(1);

/// The default mode iterates until the loop is not alive, then returns false.
pub fn returns_when_not_alive(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    assert!(!lp.is_alive(), "an empty loop is not alive");
    let note = trace.clone();
    timer_in(&mut lp, MS, move |lp, _| {
        note.note("first");
        timer_in(lp, MS, note.noting("second"));
    });
    assert!(lp.is_alive(), "a started timer keeps a loop alive");
    run_to_the_end(&mut lp);
    trace.expect(&["first", "second"], "both timers run, then the loop ends");
    assert!(!lp.is_alive());
    Ok(())
}

/// The default mode returns true only if the loop is still alive, which requires a stop.
pub fn returns_true_only_after_a_stop(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (timer, fired) = (Timer::new(&mut lp), Count::default());
    let count = fired.clone();
    let tick = move |lp: &mut Loop, timer: Timer| match count.add() {
        2 => lp.stop(),
        4 => {
            lp.stop();
            timer.close(lp).unwrap();
        }
        _ => {}
    };
    timer.start(&mut lp, ZERO, MS, tick).unwrap();
    assert!(run(&mut lp, RunMode::Default), "a timer is left: the loop is alive");
    assert_eq!(fired.get(), 2, "the loop iterates until it is stopped");
    assert!(run(&mut lp, RunMode::Default), "a close is left: the loop is alive");
    assert_eq!(fired.get(), 4, "a stop affects one run");
    run_to_the_end(&mut lp);
    assert_eq!(fired.get(), 4);
    Ok(())
}

/// One iteration blocks until an event arrives, and handles it.
pub fn once_blocks_until_an_event(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    mark_iterations(&mut lp, &trace);
    let close = trace.then("async", |lp, handle: Async| handle.close(lp).unwrap());
    let (_, sender) = Async::new(&mut lp, close);
    let sent = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(30 * MS);
            sent.store(true, Ordering::SeqCst);
            sender.send().unwrap();
        });
        assert!(!run(&mut lp, RunMode::Once), "the handle was closed in this iteration");
        assert!(sent.load(Ordering::SeqCst), "it returned before the event");
    });
    trace.expect(&["prepare", "async", "check"], "one iteration");
    Ok(())
}

/// One iteration waits for the next timer and runs that timer only.
pub fn once_waits_for_the_next_timer(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    mark_iterations(&mut lp, &trace);
    let hour = keep_alive(&mut lp);
    timer_in(&mut lp, 20 * MS, trace.noting("timer"));
    assert!(run(&mut lp, RunMode::Once), "the other timer is left");
    trace.expect(&["prepare", "check", "timer"], "one iteration that waits for the timer");
    hour.stop(&mut lp).unwrap();
    timer_in(&mut lp, 20 * MS, trace.noting("last"));
    assert!(!run(&mut lp, RunMode::Once), "nothing is left");
    trace.expect(&["prepare", "check", "last"], "one iteration");
    Ok(())
}

/// One iteration that begins with deferred callbacks runs them and does not block.
pub fn once_does_not_block_after_deferred_callbacks(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    keep_alive(&mut lp);
    lp.defer(trace.once("deferred"));
    assert!(run(&mut lp, RunMode::Once));
    trace.expect(&["deferred"], "a callback has run, so the poll does not block for an hour");
    Ok(())
}

/// One iteration that begins with an idle watcher does not block, even if the watcher stops itself:
/// a callback has run.
pub fn once_does_not_block_after_an_idle_callback(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    keep_alive(&mut lp);
    let idle = Idle::new(&mut lp);
    idle.start(&mut lp, trace.then("idle", |lp, idle: Idle| idle.stop(lp).unwrap())).unwrap();
    assert!(run(&mut lp, RunMode::Once));
    trace.expect(&["idle"], "a callback has run, so the poll does not block for an hour");
    Ok(())
}

/// `RunMode::NoWait` runs one iteration and never blocks.
pub fn nowait_does_not_block(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    mark_iterations(&mut lp, &trace);
    let (_, sender) = Async::new(&mut lp, trace.noting("async"));
    for _ in 0..3 {
        assert!(run(&mut lp, RunMode::NoWait), "the async is left");
        trace.expect(&["prepare", "check"], "one iteration");
    }
    sender.send().unwrap();
    assert!(run(&mut lp, RunMode::NoWait));
    trace.expect(&["prepare", "async", "check"], "one iteration, with the pending send");
    Ok(())
}

/// One iteration runs timers once, after the poll. A timer that is due at its start, or due again
/// at its end, fires once.
pub fn once_and_nowait_run_timers_once(lab: &Lab) -> Verdict {
    for mode in [RunMode::Once, RunMode::NoWait] {
        let (mut lp, trace) = (new_loop(lab)?, Trace::default());
        mark_iterations(&mut lp, &trace);
        let repeating = Timer::new(&mut lp);
        let shortest = Duration::from_nanos(1);
        repeating.start(&mut lp, ZERO, shortest, trace.noting("repeating")).unwrap();
        let note = trace.clone();
        timer_in(&mut lp, ZERO, move |lp, timer| {
            note.note("restarting");
            timer.start(lp, ZERO, ZERO, note.noting("restarted")).unwrap();
        });
        run(&mut lp, mode);
        trace.expect(&["prepare", "check", "repeating", "restarting"], "the first iteration");
        run(&mut lp, mode);
        let fired = trace.take();
        assert_eq!(fired.len(), 4, "{mode:?} fires each timer once: {fired:?}");
        assert_eq!(fired[..2], ["prepare", "check"], "{mode:?} runs timers last");
    }
    Ok(())
}

/// The phases of the default mode are libuv's: timers, pending, idle, prepare, poll, pending again,
/// check, closing; then timers again.
pub fn phases_run_in_order(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    every_phase(&mut lp, &trace);
    run_to_the_end(&mut lp);
    let expected = [
        "timer",
        "pending",
        "idle",
        "prepare",
        "poll",
        "pending again",
        "check",
        "closing",
        "timer again",
    ];
    trace.expect(&expected, "one iteration in the default mode");
    Ok(())
}

/// In the other modes an iteration has the same phases, but timers run only at its end.
pub fn timers_run_last_in_once_and_nowait(lab: &Lab) -> Verdict {
    for mode in [RunMode::Once, RunMode::NoWait] {
        let (mut lp, trace) = (new_loop(lab)?, Trace::default());
        every_phase(&mut lp, &trace);
        assert!(!run(&mut lp, mode), "nothing is left after one iteration");
        let expected = [
            "pending",
            "idle",
            "prepare",
            "poll",
            "pending again",
            "check",
            "closing",
            "timer",
            "timer again",
        ];
        trace.expect(&expected, "one iteration");
    }
    Ok(())
}

/// A loop that is not alive runs nothing in any mode, not even active unreferenced watchers. These
/// run once another handle or request keeps the loop alive.
pub fn loop_not_alive_runs_nothing(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    mark_iterations(&mut lp, &trace);
    let idle = Idle::new(&mut lp);
    idle.start(&mut lp, trace.noting("idle")).unwrap();
    idle.unreference(&mut lp).unwrap();
    for mode in MODES {
        assert!(!run(&mut lp, mode), "nothing keeps the loop alive");
        trace.expect(&[], "a loop that is not alive runs nothing");
    }
    lp.defer(trace.once("deferred"));
    run_to_the_end(&mut lp);
    trace.expect(&["deferred", "idle", "prepare", "check"], "one iteration");
    Ok(())
}

/// A loop whose first timers are its last active handles still does one iteration, without
/// blocking: unreferenced watchers run in it.
pub fn one_iteration_follows_the_last_timers(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    mark_iterations(&mut lp, &trace);
    timer_in(&mut lp, ZERO, trace.noting("timer"));
    run_to_the_end(&mut lp);
    trace.expect(&["timer", "prepare", "check"], "one iteration");
    assert_eq!(lp.metrics().loop_count(), 1);
    timer_in(&mut lp, ZERO, move |lp, _| lp.stop());
    assert!(!run(&mut lp, RunMode::Default), "nothing is left");
    trace.expect(&[], "a stop in the timer leaves no iteration");
    assert_eq!(lp.metrics().loop_count(), 1);
    Ok(())
}

/// A timer that is due but unreferenced does not fire if nothing else keeps the loop alive. libuv
/// 1.45.0 fired it, so programs that should have ended kept running.
pub fn unreferenced_timer_does_not_fire_alone(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let timer = timer_in(&mut lp, ZERO, trace.noting("timer"));
    timer.unreference(&mut lp).unwrap();
    for mode in MODES {
        assert!(!run(&mut lp, mode), "nothing keeps the loop alive");
        trace.expect(&[], "the loop is not alive");
    }
    lp.defer(trace.once("deferred"));
    run_to_the_end(&mut lp);
    trace.expect(&["timer", "deferred"], "the loop is alive, and the timer is due");
    Ok(())
}

/// A stop before a run makes that run return immediately, without running due timers; the next run
/// is unaffected.
pub fn stop_before_run_is_consumed(lab: &Lab) -> Verdict {
    for mode in MODES {
        let (mut lp, trace) = (new_loop(lab)?, Trace::default());
        timer_in(&mut lp, ZERO, trace.noting("timer"));
        lp.defer(trace.once("deferred"));
        let idle = Idle::new(&mut lp);
        idle.start(&mut lp, trace.then("idle", |lp, idle: Idle| idle.stop(lp).unwrap())).unwrap();
        lp.stop();
        assert!(run(&mut lp, mode), "{mode:?}: everything is pending");
        trace.expect(&[], "the loop was stopped");
        assert!(!run(&mut lp, mode), "{mode:?}: everything is done");
        let expected = match mode {
            RunMode::Default => ["timer", "deferred", "idle"],
            RunMode::Once | RunMode::NoWait => ["deferred", "idle", "timer"],
        };
        trace.expect(&expected, "the stop was consumed");
    }
    Ok(())
}

/// A stop in a callback lets the iteration finish without blocking. No iteration runs if the timers
/// before the first one stop the loop.
pub fn stop_in_a_callback_completes_the_iteration(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    keep_alive(&mut lp);
    let (prepare, check) = (Prepare::new(&mut lp), Check::new(&mut lp));
    check.start(&mut lp, trace.noting("check")).unwrap();
    let stop = trace.then("prepare", |lp: &mut Loop, _: Prepare| lp.stop());
    prepare.start(&mut lp, stop).unwrap();
    for _ in 0..2 {
        assert!(run(&mut lp, RunMode::Default));
        trace.expect(&["prepare", "check"], "the iteration ends without blocking");
    }
    prepare.stop(&mut lp).unwrap();
    timer_in(&mut lp, ZERO, trace.then("timer", |lp, _: Timer| lp.stop()));
    assert!(run(&mut lp, RunMode::Default));
    trace.expect(&["timer"], "stopped before the first iteration");
    Ok(())
}

/// A callback that runs its own loop gets an error, and the outer run continues. It may run another
/// loop.
pub fn nested_run_is_refused(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let mut other = new_loop(lab)?;
    timer_in(&mut other, ZERO, trace.noting("other loop"));
    lp.defer(|lp| {
        for mode in MODES {
            assert!(lp.run(mode).is_err(), "{mode:?} within a run");
        }
        timer_in(lp, ZERO, |lp, timer| {
            assert!(lp.run(RunMode::NoWait).is_err(), "within a timer's callback");
            timer
                .close_with(lp, |lp, _| {
                    assert!(lp.run(RunMode::Once).is_err(), "within a close callback");
                })
                .unwrap();
        });
    });
    timer_in(&mut lp, ZERO, trace.then("timer", move |_, _| run_to_the_end(&mut other)));
    run_to_the_end(&mut lp);
    trace.expect(&["timer", "other loop"], "each callback once");
    run_to_the_end(&mut lp);
    Ok(())
}

/// Deferred callbacks run once each, in the order of deferral, and keep the loop alive until then.
pub fn deferred_callbacks_run_in_order(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    for name in ["a", "b", "c"] {
        lp.defer(trace.once(name));
    }
    assert!(lp.is_alive(), "a deferred callback keeps a loop alive");
    run_to_the_end(&mut lp);
    trace.expect(&["a", "b", "c"], "in order");
    assert!(!lp.is_alive());
    Ok(())
}

/// Callbacks deferred by a deferred callback run in the next round, which follows the poll: the
/// poll does not block then.
pub fn deferred_callbacks_can_defer(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    mark_iterations(&mut lp, &trace);
    let hour = keep_alive(&mut lp);
    let note = trace.clone();
    lp.defer(move |lp| {
        note.note("a");
        let inner = note.clone();
        lp.defer(move |lp| {
            inner.note("b");
            lp.defer(inner.once("c"));
            hour.stop(lp).unwrap();
        });
    });
    run_to_the_end(&mut lp);
    trace.expect(&["a", "prepare", "b", "c", "check"], "one round, the poll, more rounds");
    Ok(())
}

/// At most eight rounds run after the poll, so that a callback that defers itself endlessly does
/// not starve the loop.
pub fn endless_deferring_does_not_starve_the_loop(lab: &Lab) -> Verdict {
    fn again(lp: &mut Loop, rounds: Count) {
        rounds.add();
        lp.defer(|lp| again(lp, rounds));
    }
    let (mut lp, rounds) = (new_loop(lab)?, Count::default());
    let count = rounds.clone();
    lp.defer(|lp| again(lp, count));
    let (seen, check) = (rounds.clone(), Check::new(&mut lp));
    let mut expected = 1 + 8;
    let check_rounds = move |_: &mut Loop, _| {
        assert_eq!(seen.get(), expected, "one round before each poll and eight after it");
        expected += 1 + 8;
    };
    check.start(&mut lp, check_rounds).unwrap();
    for _ in 0..3 {
        assert!(run(&mut lp, RunMode::Once), "a deferred callback is always pending");
    }
    assert_eq!(rounds.get(), 3 * (1 + 8));
    Ok(())
}

/// A signal that interrupts the poll does not end the iteration: the loop waits for the remaining
/// time.
pub fn interrupted_poll_is_resumed(lab: &Lab) -> Verdict {
    #[cfg(not(unix))]
    {
        let _ = lab;
        Err(Skip::because("no signal interrupts a wait here"))
    }
    #[cfg(unix)]
    {
        let here = Thread::current();
        wait_interrupted(new_loop(lab)?, move || here.interrupt());
        Ok(())
    }
}

/// A spurious wake does not end the iteration either.
pub fn spurious_wake_resumes_the_poll(lab: &Lab) -> Verdict {
    let lp = new_loop(lab)?;
    let waker = lp.backend().waker();
    wait_interrupted(lp, move || waker.wake().expect("a wake"));
    Ok(())
}

/// Waits for a timer in one iteration while another thread interrupts the poll.
fn wait_interrupted(mut lp: Loop, interrupt: impl Fn() + Sync) {
    let trace = Trace::default();
    mark_iterations(&mut lp, &trace);
    timer_in(&mut lp, 60 * MS, trace.noting("timer"));
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                interrupt();
                thread::sleep(2 * MS);
            }
        });
        let result = lp.run(RunMode::Once);
        over.store(true, Ordering::SeqCst);
        assert!(!result.expect("a run that is interrupted"), "nothing is left");
    });
    trace.expect(&["prepare", "check", "timer"], "one iteration, however often it is interrupted");
}

/// The next poll does not block after a stop, without active handles, or with deferred callbacks,
/// active idle watchers or closing handles. An unreferenced idle watcher counts; an unreferenced
/// timer does not keep the loop alive.
pub fn does_not_block_with_pending_work(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    assert_eq!(lp.backend_timeout(), Some(ZERO), "nothing is active");
    let timer = keep_alive(&mut lp);
    timer.unreference(&mut lp).unwrap();
    assert_eq!(lp.backend_timeout(), Some(ZERO), "nothing is active and referenced");
    timer.reference(&mut lp).unwrap();
    assert_eq!(lp.backend_timeout(), Some(AN_HOUR), "only a timer is pending");

    lp.stop();
    assert_eq!(lp.backend_timeout(), Some(ZERO), "stopped");
    run(&mut lp, RunMode::NoWait);
    assert_ne!(lp.backend_timeout(), Some(ZERO), "the stop was consumed");

    lp.defer(|lp| {
        assert_ne!(lp.backend_timeout(), Some(ZERO), "the last deferred callback is running")
    });
    assert_eq!(lp.backend_timeout(), Some(ZERO), "a deferred callback is due");
    run(&mut lp, RunMode::NoWait);
    assert_ne!(lp.backend_timeout(), Some(ZERO), "it has run");

    let idle = Idle::new(&mut lp);
    assert_ne!(lp.backend_timeout(), Some(ZERO), "the idle watcher is not active");
    idle.start(&mut lp, |_, _| {}).unwrap();
    assert_eq!(lp.backend_timeout(), Some(ZERO), "an idle watcher is active");
    idle.unreference(&mut lp).unwrap();
    assert_eq!(lp.backend_timeout(), Some(ZERO), "an unreferenced one is active too");
    idle.stop(&mut lp).unwrap();
    assert_ne!(lp.backend_timeout(), Some(ZERO), "it was stopped");

    idle.close(&mut lp).unwrap();
    assert_eq!(lp.backend_timeout(), Some(ZERO), "a handle is closing");
    run(&mut lp, RunMode::NoWait);
    assert_ne!(lp.backend_timeout(), Some(ZERO), "it was closed");
    Ok(())
}

/// Without pending work, the poll blocks until the next timer, including unreferenced ones; without
/// timers it blocks indefinitely while a handle or a request is active.
pub fn blocks_until_the_next_timer(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    Async::new(&mut lp, |_, _| {});
    assert_eq!(lp.backend_timeout(), None, "an async may receive a send at any time");
    let timer = |lp: &mut Loop, timeout| timer_in(lp, timeout, |_, _| {});
    let last = timer(&mut lp, AN_HOUR);
    let first = timer(&mut lp, Duration::from_nanos(1_234_567_891));
    let second = timer(&mut lp, 2 * AN_HOUR / 3);
    assert_eq!(lp.backend_timeout(), Some(Duration::from_nanos(1_234_567_891)), "to the ns");
    first.unreference(&mut lp).unwrap();
    assert_eq!(
        lp.backend_timeout(),
        Some(Duration::from_nanos(1_234_567_891)),
        "unreferenced timers count too"
    );
    first.stop(&mut lp).unwrap();
    assert_eq!(lp.backend_timeout(), Some(2 * AN_HOUR / 3), "the earlier timer");
    timer(&mut lp, ZERO);
    assert_eq!(lp.backend_timeout(), Some(ZERO), "it is due");
    run(&mut lp, RunMode::NoWait);
    second.stop(&mut lp).unwrap();
    last.stop(&mut lp).unwrap();
    assert_eq!(lp.backend_timeout(), None, "no timer is left");

    let mut lp = new_loop(lab)?;
    let (finish, finished) = mpsc::channel::<()>();
    lp.queue_work(move || finished.recv().is_ok(), |_, _| {}).expect("a pool");
    assert_eq!(lp.backend_timeout(), None, "a request may complete at any time");
    finish.send(()).expect("the work waits");
    run_to_the_end(&mut lp);
    Ok(())
}

/// No API call runs a callback inline: the loop runs each one on a fresh stack.
pub fn callbacks_never_run_inline(lab: &Lab) -> Verdict {
    let (mut lp, calling) = (new_loop(lab)?, Arc::new(AtomicBool::new(false)));
    let fired = Count::default();
    let (near, far) = tcp_pair();
    send(&far, b"x");
    arrived(&near);
    let called = {
        let (calling, fired) = (Arc::clone(&calling), fired.clone());
        move || {
            assert!(!calling.load(Ordering::SeqCst), "a callback has run inside a call");
            fired.add();
        }
    };
    timer_in(&mut lp, ZERO, move |lp, timer| {
        calling.store(true, Ordering::SeqCst);
        call_everything(lp, timer, near.try_clone().expect("another descriptor"), called.clone());
        calling.store(false, Ordering::SeqCst);
    });
    run_to_the_end(&mut lp);
    assert_eq!(fired.get(), 9, "every callback has run, later");
    Ok(())
}

/// A program that uses every kind of handle produces the same callback order on every backend.
pub fn callback_order_is_backend_independent(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (near, far) = tcp_pair();
    let (near, far) = (Arc::new(near), Arc::new(far));
    let (prepare, check) = (Prepare::new(&mut lp), Check::new(&mut lp));
    prepare.start(&mut lp, trace.noting("prepare")).unwrap();
    check.start(&mut lp, trace.noting("check")).unwrap();

    let idle = Idle::new(&mut lp);
    let note = trace.clone();
    let (asynchronous, sender) = Async::new(&mut lp, move |lp, _| {
        note.note("async");
        idle.start(lp, note.then("idle", |lp, idle: Idle| idle.close(lp).unwrap())).unwrap();
    });
    let send_byte = {
        let (near, far) = (Arc::clone(&near), Arc::clone(&far));
        move || {
            send(&*far, b"x");
            arrived(&near);
        }
    };
    let (send_again, near_end) = (send_byte.clone(), Arc::clone(&near));
    let poll = Poll::new(&mut lp, near).expect("a poll");
    let (note, mut times) = (trace.clone(), 0);
    let on_readable = move |lp: &mut Loop, poll: Poll, events: std::io::Result<PollEvents>| {
        assert_eq!(events.expect("no error"), PollEvents::READABLE);
        drain(&*near_end);
        note.note("readable");
        times += 1;
        if times == 1 {
            lp.defer(note.once("deferred"));
            let send_again = send_again.clone();
            let second = note.then("second timer", move |lp, timer: Timer| {
                send_again();
                timer.close(lp).unwrap();
            });
            timer_in(lp, ZERO, second);
        } else {
            asynchronous.close_with(lp, note.noting("async closed")).unwrap();
            poll.close_with(lp, note.noting("poll closed")).unwrap();
            prepare.close_with(lp, note.noting("prepare closed")).unwrap();
            check.close_with(lp, note.noting("check closed")).unwrap();
        }
    };
    poll.start(&mut lp, PollEvents::READABLE, on_readable).unwrap();
    timer_in(
        &mut lp,
        ZERO,
        trace.then("first timer", move |lp, timer: Timer| {
            send_byte();
            sender.send().unwrap();
            timer.close(lp).unwrap();
        }),
    );

    run_to_the_end(&mut lp);
    let expected = [
        ["first timer", "prepare", "readable", "async", "deferred", "check", "second timer"],
        [
            "idle",
            "prepare",
            "readable",
            "check closed",
            "prepare closed",
            "poll closed",
            "async closed",
        ],
    ];
    trace.expect(&expected.concat(), "the same trace on every backend");
    assert!(lp.close().is_ok(), "every handle was closed");
    Ok(())
}
