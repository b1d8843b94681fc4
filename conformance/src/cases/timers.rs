//! Point 17: when timers fire, and in which order.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::{Duration, Instant};

use poll_core::Backend;
use uv_core::{Handle, Loop, Prepare, RunMode, Timer};

use crate::support::loops::{
    AN_HOUR, ZERO, keep_alive, new_loop, run, run_to_the_end, spend, timer_in,
};
use crate::support::trace::{Count, Trace};
use crate::{Lab, Verdict};

const MS: Duration = Duration::from_millis(1);

/// How late the best of several timers may be: far more than the 16 ms of a coarse
/// clock, far less than a mistake in the unit.
const LATE: Duration = Duration::from_millis(60);

/// A timer fires when its time has fully passed, not a nanosecond earlier. libuv counts
/// whole milliseconds and can fire a timer of one after none.
pub fn are_never_early<T: Backend>(lab: &Lab<T>) -> Verdict {
    const NANOS: [u64; 9] =
        [1, 999, 100_000, 999_999, 1_000_000, 1_000_001, 1_999_999, 5_500_000, 15_600_001];
    let mut lp = new_loop(lab)?;
    for nanos in NANOS.repeat(5) {
        let timeout = Duration::from_nanos(nanos);
        // The timer counts from the loop's time, which is read anew when it starts.
        let started = lp.hrtime();
        lp.update_time();
        timer_in(&mut lp, timeout, move |lp, timer| {
            let elapsed = lp.hrtime() - started;
            assert!(elapsed >= timeout, "a timer of {timeout:?} fired after {elapsed:?}");
            assert!(lp.now() - started >= timeout, "the loop's time says so, too");
            timer.close(lp).unwrap();
        });
        run_to_the_end(&mut lp);
    }
    Ok(())
}

/// A timer fires soon after its time has passed. The best of several counts, as any
/// machine is busy at times.
pub fn are_not_absurdly_late<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    for timeout in [Duration::from_micros(1), MS, 10 * MS, 200 * MS] {
        let mut best = Duration::MAX;
        for _ in 0..20 {
            let started = Instant::now();
            lp.update_time();
            timer_in(&mut lp, timeout, |lp, timer| timer.close(lp).unwrap());
            run_to_the_end(&mut lp);
            best = best.min(started.elapsed());
            if best < timeout + LATE {
                break;
            }
        }
        assert!(best < timeout + LATE, "the best of 20 timers of {timeout:?} took {best:?}");
    }
    Ok(())
}

/// Timers fire in the order of their deadlines, and those with one deadline in the order
/// they were started in.
pub fn fire_in_order<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let timers = [
        ("fourth", 3 * MS),
        ("first", MS),
        ("fifth", 3 * MS),
        ("second", MS),
        ("third", MS + Duration::from_nanos(1)),
        ("sixth", 3 * MS),
    ];
    let again = timer_in(&mut lp, 3 * MS, |_, _| {});
    for (name, timeout) in timers {
        timer_in(&mut lp, timeout, trace.noting(name));
    }
    again.start(&mut lp, 3 * MS, ZERO, trace.noting("last")).unwrap();
    spend(&lp, 3 * MS);
    run_to_the_end(&mut lp);
    let expected = ["first", "second", "third", "fourth", "fifth", "sixth", "last"];
    trace.expect(&expected, "all are due at once: by deadline, then by start");
    Ok(())
}

/// So it is with thousands of them, started, stopped and started again at random.
pub fn thousands_fire_in_order<T: Backend>(lab: &Lab<T>) -> Verdict {
    const TIMERS: usize = 5_000;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut lp = new_loop(lab)?;
    let timers: Vec<_> = (0..TIMERS).map(|_| Timer::new(&mut lp)).collect();
    let fired = Rc::new(RefCell::new(Vec::new()));
    let mut expected = vec![None; TIMERS];
    for order in 0..2 * TIMERS {
        let which = draw(TIMERS as u64) as usize;
        if draw(8) == 0 {
            timers[which].stop(&mut lp).unwrap();
            expected[which] = None;
            continue;
        }
        // Some are spread over 20 ms, and some share a few deadlines.
        let timeout = match draw(3) {
            0 => draw(20) * 1_000_000,
            _ => draw(20_000_000),
        };
        let fired = Rc::clone(&fired);
        let note = move |_: &mut Loop<T>, _| fired.borrow_mut().push(which);
        timers[which].start(&mut lp, Duration::from_nanos(timeout), ZERO, note).unwrap();
        expected[which] = Some((timeout, order, which));
    }
    let mut expected: Vec<_> = expected.into_iter().flatten().collect();
    expected.sort_unstable();
    let expected: Vec<_> = expected.into_iter().map(|(_, _, which)| which).collect();
    run_to_the_end(&mut lp);
    let fired = fired.take();
    assert_eq!(fired.len(), expected.len(), "each that was left fires once");
    let wrong = (0..fired.len()).find(|&at| fired[at] != expected[at]);
    assert_eq!(wrong, None, "the order is wrong from there on");
    Ok(())
}

/// A timeout of zero fires the next time timers run, not at once; started by a timer,
/// or started again by itself, it waits for the pass after.
pub fn a_zero_timeout_waits_for_the_next_pass<T: Backend>(lab: &Lab<T>) -> Verdict {
    fn restart<T: Backend>(lp: &mut Loop<T>, timer: Timer, trace: Trace, left: u32) {
        trace.note("timer");
        if left > 0 {
            let callback = move |lp: &mut Loop<T>, timer| {
                restart(lp, timer, trace.clone(), left - 1);
            };
            timer.start(lp, ZERO, ZERO, callback).unwrap();
        }
    }
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let prepare = Prepare::new(&mut lp);
    prepare.start(&mut lp, trace.noting("iteration")).unwrap();
    prepare.unreference(&mut lp).unwrap();
    let note = trace.clone();
    timer_in(&mut lp, ZERO, move |lp, timer| {
        restart(lp, timer, note.clone(), 2);
        timer_in(lp, ZERO, note.noting("other"));
    });
    trace.expect(&[], "never at once");
    run_to_the_end(&mut lp);
    let expected = ["timer", "iteration", "timer", "other", "iteration", "timer"];
    trace.expect(&expected, "one call for each pass");
    Ok(())
}

/// A timeout or repeat that is beyond the clock means never. It does not overflow, and
/// other timers fire meanwhile.
pub fn may_be_huge<T: Backend>(lab: &Lab<T>) -> Verdict {
    let century = 100 * 365 * 24 * AN_HOUR;
    let huge = [
        Duration::MAX,
        Duration::from_secs(u64::MAX),
        Duration::from_secs(i64::MAX as u64),
        Duration::from_nanos(u64::MAX),
        Duration::from_nanos(i64::MAX as u64),
        century,
    ];
    for huge in huge {
        let (mut lp, trace) = (new_loop(lab)?, Trace::default());
        let never = timer_in(&mut lp, huge, move |_, _| panic!("a timer of {huge:?} has fired"));
        let once = Timer::new(&mut lp);
        once.start(&mut lp, MS, huge, trace.noting("once")).unwrap();
        assert!(run(&mut lp, RunMode::Once));
        trace.expect(&["once"], "the one that is due");
        for timer in [never, once] {
            assert!(timer.is_active(&lp), "{huge:?} is a time to wait for");
            assert!(timer.due_in(&lp) >= Some(century - AN_HOUR), "{huge:?} is far away");
        }
        assert!(lp.backend_timeout() >= Some(century - AN_HOUR), "a poll may wait that long");
        assert!(run(&mut lp, RunMode::NoWait));
        trace.expect(&[], "nothing is due");
    }
    Ok(())
}

/// A timer that is due but is stopped or closed by one that fires before it, in the same
/// pass, does not fire.
pub fn stopped_by_an_earlier_one_do_not_fire<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let [killer, stopped, closed] = [(); 3].map(|()| Timer::new(&mut lp));
    let kill = trace.then("killer", move |lp, _: Timer| {
        stopped.stop(lp).unwrap();
        closed.close(lp).unwrap();
    });
    killer.start(&mut lp, ZERO, ZERO, kill).unwrap();
    stopped.start(&mut lp, ZERO, MS, |_, _| panic!("it was stopped")).unwrap();
    closed.start(&mut lp, ZERO, MS, |_, _| panic!("it was closed")).unwrap();
    timer_in(&mut lp, ZERO, trace.noting("survivor"));
    run_to_the_end(&mut lp);
    trace.expect(&["killer", "survivor"], "one pass");
    Ok(())
}

/// A timer that is due but is started again by one that fires before it waits for its
/// new time, which comes in a later pass at the earliest.
pub fn restarted_by_an_earlier_one_wait<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let prepare = Prepare::new(&mut lp);
    prepare.start(&mut lp, trace.noting("iteration")).unwrap();
    prepare.unreference(&mut lp).unwrap();
    let [first, second, third] = [(); 3].map(|()| Timer::new(&mut lp));
    let note = trace.clone();
    let restart = trace.then("first", move |lp: &mut Loop<T>, _: Timer| {
        let stop = move |lp: &mut Loop<T>, _: Timer| third.stop(lp).unwrap();
        second.start(lp, ZERO, ZERO, note.then("second", stop)).unwrap();
        third.again(lp).unwrap();
        assert_eq!(third.due_in(lp), Some(AN_HOUR), "its new time");
    });
    first.start(&mut lp, ZERO, ZERO, restart).unwrap();
    second.start(&mut lp, ZERO, ZERO, |_, _| panic!("it has another callback now")).unwrap();
    third.start(&mut lp, ZERO, AN_HOUR, |_, _| panic!("it waits for an hour now")).unwrap();
    run_to_the_end(&mut lp);
    trace.expect(&["first", "iteration", "second"], "the second in a pass of its own");
    Ok(())
}

/// A timer that is started again starts anew, with its new times and callback; the old
/// callback is dropped.
pub fn start_anew_when_started_again<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace, held) = (new_loop(lab)?, Trace::default(), Rc::new(()));
    let (timer, keep) = (keep_alive(&mut lp), Rc::clone(&held));
    timer.start(&mut lp, ZERO, MS, move |_, _| panic!("replaced, with {keep:?}")).unwrap();
    assert_eq!((timer.due_in(&lp), timer.repeat(&lp)), (Some(ZERO), MS));
    let note = trace.clone();
    let replace = move |lp: &mut Loop<T>, timer: Timer| {
        note.note("first callback");
        let second = note.noting("second callback");
        timer.start(lp, MS, ZERO, second).unwrap();
        note.note("which goes on");
    };
    timer.start(&mut lp, 2 * MS, ZERO, replace).unwrap();
    assert_eq!(Rc::strong_count(&held), 1, "the callback that was replaced is dropped");
    assert_eq!((timer.due_in(&lp), timer.repeat(&lp)), (Some(2 * MS), ZERO));
    run_to_the_end(&mut lp);
    let expected = ["first callback", "which goes on", "second callback"];
    trace.expect(&expected, "a callback may replace itself");
    Ok(())
}

/// In its callback a timer that fires once is not active any more, so it may be started
/// again; one that repeats is scheduled already.
pub fn are_scheduled_before_their_callbacks<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let once = trace.then("once", |lp, timer: Timer| {
        assert!(!timer.is_active(lp), "it has fired, and will not again");
        assert_eq!(timer.due_in(lp), None);
    });
    timer_in(&mut lp, ZERO, once);
    let repeating = Timer::new(&mut lp);
    let repeat = trace.then("repeating", |lp, timer: Timer| {
        assert!(timer.is_active(lp), "it will fire again");
        assert_eq!(timer.due_in(lp), Some(AN_HOUR), "scheduled from the loop's time");
        timer.stop(lp).unwrap();
        assert!(!timer.is_active(lp), "a callback may stop its timer");
    });
    repeating.start(&mut lp, MS, AN_HOUR, repeat).unwrap();
    run_to_the_end(&mut lp);
    trace.expect(&["once", "repeating"], "once each");
    Ok(())
}

/// Repeats count from the loop's time when the timer fires: a late one is not made up
/// for, and one that missed several rounds fires once.
pub fn repeats_are_not_made_up_for<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, fired) = (new_loop(lab)?, Count::default());
    let (timer, count) = (Timer::new(&mut lp), fired.clone());
    let late = move |lp: &mut Loop<T>, timer: Timer| {
        count.add();
        assert_eq!(timer.due_in(lp), Some(2 * MS), "two milliseconds from now, not from then");
        spend(lp, 7 * MS);
        assert_eq!(timer.due_in(lp), Some(2 * MS), "the loop's time stands still");
    };
    timer.start(&mut lp, 2 * MS, 2 * MS, late).unwrap();
    spend(&lp, 7 * MS);
    for expected in 1..=3 {
        assert!(run(&mut lp, RunMode::NoWait));
        assert_eq!(fired.get(), expected, "several rounds late, it fires once");
    }
    Ok(())
}

/// A repeating timer fires until it is stopped, by its callback or by others.
pub fn repeat_until_they_are_stopped<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, fired) = (new_loop(lab)?, Count::default());
    let (timer, count) = (Timer::new(&mut lp), fired.clone());
    let stop = move |lp: &mut Loop<T>, timer: Timer| {
        if count.add() == 5 {
            timer.stop(lp).unwrap();
        }
    };
    timer.start(&mut lp, ZERO, MS, stop).unwrap();
    let started = lp.hrtime();
    run_to_the_end(&mut lp);
    assert_eq!(fired.get(), 5);
    assert!(lp.hrtime() - started >= 4 * MS, "four repeats take four times as long");
    timer.stop(&mut lp).expect("a stopped timer stays so");
    assert_eq!(timer.repeat(&lp), MS, "it keeps its repeat time");
    Ok(())
}

/// A new repeat time counts from the next time the timer is scheduled: set in the
/// callback, from the round after. Zero ends the repeats.
pub fn a_new_repeat_counts_from_the_round_after<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (timer, note, mut round) = (Timer::new(&mut lp), trace.clone(), 0);
    let change = move |lp: &mut Loop<T>, timer: Timer| {
        round += 1;
        match round {
            1 => {
                timer.set_repeat(lp, 3 * MS).unwrap();
                assert_eq!(timer.due_in(lp), Some(2 * MS), "scheduled before the change");
                note.note("changed");
            }
            2 => {
                assert_eq!(timer.due_in(lp), Some(3 * MS), "the new time");
                timer.set_repeat(lp, ZERO).unwrap();
                assert!(timer.is_active(lp), "scheduled before the change");
                note.note("ended");
            }
            _ => {
                assert!(!timer.is_active(lp), "it does not repeat any more");
                note.note("last");
            }
        }
    };
    timer.start(&mut lp, 10 * MS, 2 * MS, change).unwrap();
    timer.set_repeat(&mut lp, MS).unwrap();
    assert_eq!(timer.due_in(&lp), Some(10 * MS), "the timeout stays as it is");
    timer.set_repeat(&mut lp, 2 * MS).unwrap();
    assert_eq!(timer.repeat(&lp), 2 * MS);
    run_to_the_end(&mut lp);
    trace.expect(&["changed", "ended", "last"], "three rounds");
    Ok(())
}

/// To do it again is an error for a timer that was never started, whatever its repeat
/// time: there is no callback.
pub fn again_without_a_start_is_an_error<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let timer = Timer::new(&mut lp);
    for repeat in [ZERO, MS] {
        timer.set_repeat(&mut lp, repeat).unwrap();
        let error = timer.again(&mut lp).expect_err("it was never started");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(!timer.is_active(&lp) && !lp.alive());
    }
    Ok(())
}

/// To do it again changes nothing for a timer without repeat time, active or not.
pub fn again_without_a_repeat_does_nothing<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let timer = keep_alive(&mut lp);
    spend(&lp, MS);
    lp.update_time();
    let due_in = timer.due_in(&lp);
    timer.again(&mut lp).unwrap();
    assert_eq!(timer.due_in(&lp), due_in, "an active timer goes on");
    timer.stop(&mut lp).unwrap();
    timer.again(&mut lp).unwrap();
    assert!(!timer.is_active(&lp), "a stopped timer stays so");
    Ok(())
}

/// To do it again starts a timer with its repeat time as the timeout and the callback it
/// had, whether it was stopped or is active.
pub fn again_starts_with_the_repeat_time<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (timer, note, mut calls) = (Timer::new(&mut lp), trace.clone(), 0);
    let callback = move |lp: &mut Loop<T>, timer: Timer| {
        calls += 1;
        note.note("timer");
        timer.stop(lp).unwrap();
        if calls == 1 {
            timer.again(lp).unwrap();
            assert_eq!(timer.due_in(lp), Some(MS), "it may do so in its callback");
        }
    };
    timer.start(&mut lp, AN_HOUR, AN_HOUR / 2, callback).unwrap();
    timer.again(&mut lp).unwrap();
    assert_eq!(timer.due_in(&lp), Some(AN_HOUR / 2), "an active timer starts anew");
    timer.stop(&mut lp).unwrap();
    timer.set_repeat(&mut lp, MS).unwrap();
    timer.again(&mut lp).unwrap();
    assert_eq!(timer.due_in(&lp), Some(MS), "a stopped one starts");
    assert!(timer.is_active(&lp) && lp.alive());
    run_to_the_end(&mut lp);
    trace.expect(&["timer", "timer"], "the same callback");
    Ok(())
}

/// How long a timer has left counts from the loop's time: nothing if it is overdue,
/// `None` if it is not started.
pub fn due_in_counts_from_the_loop_time<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let timer = Timer::new(&mut lp);
    assert_eq!(timer.due_in(&lp), None, "it was never started");
    timer.start(&mut lp, AN_HOUR, ZERO, |_, _| {}).unwrap();
    let started = lp.now();
    spend(&lp, MS);
    assert_eq!(timer.due_in(&lp), Some(AN_HOUR), "the loop's time stands still");
    lp.update_time();
    assert_eq!(timer.due_in(&lp), Some(AN_HOUR - (lp.now() - started)));
    timer.start(&mut lp, MS, ZERO, |_, _| {}).unwrap();
    spend(&lp, 2 * MS);
    lp.update_time();
    assert_eq!(timer.due_in(&lp), Some(ZERO), "it is overdue");
    timer.stop(&mut lp).unwrap();
    assert_eq!(timer.due_in(&lp), None, "it was stopped");
    timer.start(&mut lp, ZERO, ZERO, |lp, timer| assert_eq!(timer.due_in(lp), None)).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(timer.due_in(&lp), None, "it has fired");
    Ok(())
}

thread_local! {
    /// Which callbacks that capture nothing have run.
    static RUN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A callback that captures nothing, one for each number.
fn run_number<T: Backend, const N: usize>(_: &mut Loop<T>, _: Timer) {
    RUN.with_borrow_mut(|run| run.push(N));
}

/// A timer calls what it was started with last, be it something that captures or nothing that
/// does; also if it is started so by the callback that it had. What it had before is dropped.
pub fn call_what_they_were_started_with_last<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (timer, held) = (Timer::new(&mut lp), Rc::new(()));
    let hold = |what| {
        let held = Rc::clone(&held);
        trace.then(what, move |_, _| drop(Rc::clone(&held)))
    };
    RUN.take();
    timer.start(&mut lp, MS, ZERO, hold("replaced")).unwrap();
    timer.start(&mut lp, MS, ZERO, run_number::<T, 1>).unwrap();
    assert_eq!(Rc::strong_count(&held), 1, "what was replaced is dropped");
    run_to_the_end(&mut lp);
    assert_eq!(RUN.take(), [1]);

    timer.start(&mut lp, MS, ZERO, run_number::<T, 2>).unwrap();
    timer.start(&mut lp, MS, ZERO, hold("captures")).unwrap();
    run_to_the_end(&mut lp);
    trace.expect(&["captures"], "the last one");

    let plain_next = trace.then("first", |lp: &mut Loop<T>, timer: Timer| {
        timer.start(lp, ZERO, ZERO, run_number::<T, 3>).unwrap();
    });
    timer.start(&mut lp, MS, ZERO, plain_next).unwrap();
    assert_eq!(Rc::strong_count(&held), 1, "what was replaced is dropped");
    run_to_the_end(&mut lp);
    trace.expect(&["first"], "it started the timer with another");
    assert_eq!(RUN.take(), [3]);

    timer.start(&mut lp, ZERO, ZERO, |lp, timer| timer.set_repeat(lp, MS).unwrap()).unwrap();
    run_to_the_end(&mut lp);
    timer.start(&mut lp, MS, ZERO, hold("closed")).unwrap();
    timer.close(&mut lp).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(Rc::strong_count(&held), 1, "a timer that is gone holds nothing");
    assert_eq!(RUN.take(), [0; 0], "nothing but the last one ran");
    trace.expect(&[], "nothing but the last one ran");
    Ok(())
}

/// Timers that have one callback have no more in common.
pub fn with_one_callback_are_apart<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    RUN.take();
    let [once, repeating, stopped] = [(); 3].map(|()| {
        let timer = Timer::new(&mut lp);
        timer.start(&mut lp, MS, ZERO, run_number::<T, 1>).unwrap();
        timer
    });
    repeating.set_repeat(&mut lp, MS).unwrap();
    stopped.stop(&mut lp).unwrap();
    assert_eq!([once.repeat(&lp), repeating.repeat(&lp)], [ZERO, MS]);
    while RUN.with_borrow(Vec::len) < 4 {
        run(&mut lp, RunMode::Once);
    }
    assert!(!once.is_active(&lp) && !stopped.is_active(&lp));
    assert!(repeating.is_active(&lp), "it goes on");
    repeating.close(&mut lp).unwrap();
    stopped.start(&mut lp, MS, ZERO, run_number::<T, 2>).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(RUN.take(), [1, 1, 1, 1, 2], "each calls what it was given");
    Ok(())
}

/// Timers that are made and started at once are as all others, in new memory and in that of
/// timers that are gone.
pub fn may_be_made_and_started_at_once<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    for _ in 0..2 {
        RUN.take();
        let note = |number| move |_: &mut Loop<T>, _| RUN.with_borrow_mut(|run| run.push(number));
        let made = [
            Timer::after(&mut lp, 2 * MS, run_number::<T, 3>),
            Timer::after(&mut lp, MS, note(1)),
            Timer::new(&mut lp),
            Timer::after(&mut lp, 2 * MS, note(5)),
            Timer::after(&mut lp, MS, run_number::<T, 2>),
            Timer::after(&mut lp, Duration::MAX, run_number::<T, 9>),
            Timer::after(&mut lp, MS, run_number::<T, 8>),
        ];
        made[2].start(&mut lp, 2 * MS, ZERO, run_number::<T, 4>).unwrap();
        made[3].start(&mut lp, 2 * MS, ZERO, note(5)).unwrap(); // Anew, and so behind.
        made[6].stop(&mut lp).unwrap();
        assert_eq!(lp.walk(), made.map(Into::into), "in the order they were made");
        assert_eq!(made[0].due_in(&lp), Some(2 * MS));
        assert_eq!([made[0].repeat(&lp), made[1].repeat(&lp)], [ZERO; 2]);
        while made[3].is_active(&lp) {
            run(&mut lp, RunMode::Once);
        }
        assert_eq!(RUN.take(), [1, 2, 3, 4, 5]);
        assert!(made[5].is_active(&lp), "it is for ever");
        made[4].again(&mut lp).expect("it was started, and does not repeat");
        assert!(!made[4].is_active(&lp));
        for timer in made {
            timer.close(&mut lp).unwrap();
        }
        run_to_the_end(&mut lp);
    }
    Ok(())
}

/// However many callbacks there are that capture nothing, each timer calls its own.
pub fn have_any_number_of_callbacks<T: Backend>(lab: &Lab<T>) -> Verdict {
    macro_rules! start {
        ($lp:ident: $($tens:literal)*) => {$(
            start!($lp, $tens: 0 1 2 3 4 5 6 7 8 9);
        )*};
        ($lp:ident, $tens:literal: $($ones:literal)*) => {$(
            timer_in(&mut $lp, ZERO, run_number::<T, { 10 * $tens + $ones }>);
        )*};
    }
    let mut lp = new_loop(lab)?;
    RUN.take();
    start!(lp: 0 1 2 3 4 5 6 7 8 9);
    start!(lp: 9 8 7 6 5 4 3 2 1 0);
    run_to_the_end(&mut lp);
    let backwards = (0..10).rev().flat_map(|tens| 10 * tens..10 * tens + 10);
    let expected: Vec<_> = (0..100).chain(backwards).collect();
    assert_eq!(RUN.take(), expected);
    Ok(())
}
