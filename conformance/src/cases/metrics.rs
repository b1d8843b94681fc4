//! Point 23: metrics of a loop.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use uv_core::{Async, Handle, Idle, Poll, PollEvents, Pool, RunMode, Timer, WorkKind};

use crate::support::loops::{ZERO, keep_alive, new_loop, run, run_to_the_end};
use crate::support::observe::{SHORT, SOON};
use crate::support::sources::{arrived, drain, send, tcp_pair};
use crate::{Lab, Loop, Verdict};

/// `loop_count` is the number of polls: one per iteration, in every mode.
pub fn iterations_are_counted(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let metrics = lp.metrics();
    run(&mut lp, RunMode::NoWait);
    assert_eq!(metrics.loop_count(), 0, "an idle loop does not poll");
    let (idle, mut iterations) = (Idle::new(&mut lp), 0);
    idle.start(&mut lp, move |lp, idle| {
        iterations += 1;
        if iterations == 12 {
            idle.close(lp).expect("an open idle");
        }
    })
    .expect("an idle");
    run(&mut lp, RunMode::NoWait);
    run(&mut lp, RunMode::Once);
    assert_eq!(metrics.loop_count(), 2);
    run_to_the_end(&mut lp);
    assert_eq!(metrics.loop_count(), 12, "including the last iteration");
    Ok(())
}

/// `events` counts each ready source, async and work. `events_waiting` counts those of polls that
/// did not block.
pub fn events_are_counted(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let reads = near.try_clone().expect("a second handle of the socket");
    let mut lp = new_loop(lab)?;
    let metrics = lp.metrics();
    let poll = Poll::new(&mut lp, near).expect("a poll");
    poll.start(&mut lp, PollEvents::READABLE, move |_, _, _| {
        drain(&reads);
    })
    .expect("a started poll");
    let (_, sender) = Async::new(&mut lp, |_: &mut Loop, _| {});
    run(&mut lp, RunMode::NoWait);
    assert_eq!((metrics.events(), metrics.events_waiting()), (0, 0), "nothing happened");

    sender.send().expect("a send");
    run(&mut lp, RunMode::NoWait);
    assert_eq!((metrics.events(), metrics.events_waiting()), (1, 1), "an async, waiting");
    send(&far, b"x");
    run(&mut lp, RunMode::Once);
    assert_eq!((metrics.events(), metrics.events_waiting()), (2, 1), "a poll, waited for");

    let pool = Pool::new(1).expect("a pool");
    for _ in 0..5 {
        lp.queue_work_on(&pool, WorkKind::Cpu, || {}, |_, _| {}).expect("work");
    }
    while metrics.events() < 7 {
        run(&mut lp, RunMode::Once);
    }
    assert_eq!((metrics.events(), metrics.events_waiting()), (7, 1), "each work is an event");
    Ok(())
}

/// With idle time measured, events that are there before the loop blocks are waiting events.
pub fn events_before_a_measured_wait_are_waiting(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    lp.measure_idle_time();
    let metrics = lp.metrics();
    let (_, sender) = Async::new(&mut lp, |_: &mut Loop, _| {});
    sender.send().expect("a send");
    run(&mut lp, RunMode::Once);
    assert_eq!((metrics.events(), metrics.events_waiting()), (1, 1), "it was there");
    Ok(())
}

/// Idle time is not measured unless it is enabled, because it costs clock readings.
pub fn idle_time_is_zero_unless_measured(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let metrics = lp.metrics();
    let timer = Timer::new(&mut lp);
    timer.start(&mut lp, SHORT, ZERO, |_, _| {}).expect("a timer");
    run_to_the_end(&mut lp);
    assert_eq!(metrics.idle_time(), ZERO);
    Ok(())
}

/// Idle time is the time that polls have blocked. It excludes callbacks, and does not exceed the
/// elapsed time.
pub fn idle_time_grows_while_the_loop_blocks(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    lp.measure_idle_time();
    let metrics = lp.metrics();
    let started = Instant::now();
    let (timer, wait) = (Timer::new(&mut lp), Duration::from_millis(30));
    timer.start(&mut lp, wait, ZERO, |_, _| thread::sleep(SHORT)).expect("a timer");
    run_to_the_end(&mut lp);
    let (idle, passed) = (metrics.idle_time(), started.elapsed());
    // The timer counts from the loop's time, slightly before the loop blocks.
    assert!(idle > wait / 2, "blocked for {wait:?}, but idle for {idle:?}");
    assert!(idle + SHORT <= passed, "idle for {idle:?} of {passed:?}, with {SHORT:?} at work");
    Ok(())
}

/// Another thread reads the idle time of the current wait: a monitor must not take a loop that
/// blocks for long for a busy one.
pub fn idle_time_includes_the_current_wait(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    lp.measure_idle_time();
    let metrics = lp.metrics();
    let (_, sender) = Async::new(&mut lp, |lp: &mut Loop, handle| {
        handle.close(lp).expect("an open handle");
    });
    let (seen, result) = mpsc::channel();
    let thread = thread::spawn(move || {
        let started = Instant::now();
        while metrics.idle_time() < SHORT && started.elapsed() < SOON {
            thread::sleep(Duration::from_millis(1));
        }
        let first = metrics.idle_time();
        thread::sleep(SHORT);
        seen.send((first, metrics.idle_time())).expect("a case that listens");
        sender.send().expect("a send");
    });
    run_to_the_end(&mut lp);
    thread.join().expect("the monitor");
    let (first, second) = result.recv().expect("what the monitor saw");
    assert!(first >= SHORT, "the current wait does not count: {first:?}");
    assert!(second >= first + SHORT, "{first:?}, and {SHORT:?} later {second:?}");
    let all = lp.metrics().idle_time();
    assert!(all >= second, "{second:?} before the wait ended, {all:?} after");
    Ok(())
}

/// Polls that do not block add no idle time, even if they return no event.
pub fn polls_that_do_not_block_are_not_idle(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut lp = new_loop(lab)?;
    lp.measure_idle_time();
    keep_alive(&mut lp);
    let poll = Poll::new(&mut lp, near.try_clone().expect("a clone")).expect("a poll");
    poll.start(&mut lp, PollEvents::READABLE, |_, _, _| {}).expect("a started poll");
    for round in 0..200 {
        if round == 100 {
            send(&far, b"x");
            arrived(&near);
        }
        run(&mut lp, RunMode::NoWait);
    }
    assert_eq!(lp.metrics().idle_time(), ZERO);
    assert_eq!(lp.metrics().loop_count(), 200);
    Ok(())
}
