//! Point 17: when timers fire, and in which order.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::rc::Rc;
use std::time::{Duration, Instant};

use uv_core::{Handle, Prepare, RunMode, Timer};

use crate::support::loops::{
    AN_HOUR, ZERO, keep_alive, new_loop, run, run_to_the_end, spend, timer_in,
};
use crate::support::trace::{Count, Trace};
use crate::{Lab, Loop, Verdict};

const MS: Duration = Duration::from_millis(1);

/// Tolerated lateness for the best of several timers: far more than the 16 ms of a coarse clock,
/// far less than a wrong time unit would cause.
const LATE: Duration = Duration::from_millis(60);

/// A timer fires when its timeout has fully passed, not a nanosecond earlier. libuv counts whole
/// milliseconds and can fire a timer of one millisecond immediately.
pub fn are_never_early(lab: &Lab) -> Verdict {
    const NANOS: [u64; 9] =
        [1, 999, 100_000, 999_999, 1_000_000, 1_000_001, 1_999_999, 5_500_000, 15_600_001];
    let mut lp = new_loop(lab)?;
    for nanos in NANOS.repeat(5) {
        let timeout = Duration::from_nanos(nanos);
        // The timer counts from the loop time, which is updated when it starts.
        let started = lp.hrtime();
        lp.update_time();
        timer_in(&mut lp, timeout, move |lp, timer| {
            let elapsed = lp.hrtime() - started;
            assert!(elapsed >= timeout, "a timer of {timeout:?} fired after {elapsed:?}");
            assert!(lp.now() - started >= timeout, "the loop time advanced by the timeout");
            timer.close(lp).unwrap();
        });
        run_to_the_end(&mut lp);
    }
    Ok(())
}

/// A timer fires soon after its timeout. The best of several counts, since the machine may be busy.
pub fn have_bounded_lateness(lab: &Lab) -> Verdict {
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

/// Timers fire in the order of their deadlines, and timers with equal deadlines in the order of
/// their starts.
pub fn fire_in_deadline_order(lab: &Lab) -> Verdict {
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
    trace.expect(&expected, "all are due: by deadline, then by start");
    Ok(())
}

/// The order holds for thousands of timers that are started, stopped and restarted at random.
pub fn thousands_fire_in_order(lab: &Lab) -> Verdict {
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
        // Some deadlines spread over 20 ms, others coincide.
        let timeout = match draw(3) {
            0 => draw(20) * 1_000_000,
            _ => draw(20_000_000),
        };
        let fired = Rc::clone(&fired);
        let note = move |_: &mut Loop, _| fired.borrow_mut().push(which);
        timers[which].start(&mut lp, Duration::from_nanos(timeout), ZERO, note).unwrap();
        expected[which] = Some((timeout, order, which));
    }
    let mut expected: Vec<_> = expected.into_iter().flatten().collect();
    expected.sort_unstable();
    let expected: Vec<_> = expected.into_iter().map(|(_, _, which)| which).collect();
    run_to_the_end(&mut lp);
    let fired = fired.take();
    assert_eq!(fired.len(), expected.len(), "each active timer fires once");
    let wrong = (0..fired.len()).find(|&at| fired[at] != expected[at]);
    assert_eq!(wrong, None, "the first position out of order");
    Ok(())
}

/// A zero timeout fires in the next timer pass, never inline. Started by a timer, or restarted by
/// itself, it fires in the pass after the current one.
pub fn zero_timeout_fires_in_the_next_pass(lab: &Lab) -> Verdict {
    fn restart(lp: &mut Loop, timer: Timer, trace: Trace, left: u32) {
        trace.note("timer");
        if left > 0 {
            let callback = move |lp: &mut Loop, timer| {
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
    trace.expect(&[], "never inline");
    run_to_the_end(&mut lp);
    let expected = ["timer", "iteration", "timer", "other", "iteration", "timer"];
    trace.expect(&expected, "one call for each pass");
    Ok(())
}

/// A timeout or repeat beyond the range of the clock never fires. It does not overflow, and other
/// timers fire meanwhile.
pub fn huge_timeouts_do_not_overflow(lab: &Lab) -> Verdict {
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
        trace.expect(&["once"], "the due timer only");
        for timer in [never, once] {
            assert!(timer.is_active(&lp), "a timer of {huge:?} stays active");
            assert!(
                timer.due_in(&lp) >= Some(century - AN_HOUR),
                "a timer of {huge:?} is due in the far future"
            );
        }
        assert!(lp.backend_timeout() >= Some(century - AN_HOUR), "a poll may wait that long");
        assert!(run(&mut lp, RunMode::NoWait));
        trace.expect(&[], "nothing is due");
    }
    Ok(())
}

/// A due timer that is stopped or closed by a timer that fires before it in the same pass does not
/// fire.
pub fn stopped_by_an_earlier_timer_do_not_fire(lab: &Lab) -> Verdict {
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

/// A due timer that is restarted by a timer that fires before it waits for its new deadline, in a
/// later pass at the earliest.
pub fn restarted_by_an_earlier_timer_wait(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let prepare = Prepare::new(&mut lp);
    prepare.start(&mut lp, trace.noting("iteration")).unwrap();
    prepare.unreference(&mut lp).unwrap();
    let [first, second, third] = [(); 3].map(|()| Timer::new(&mut lp));
    let note = trace.clone();
    let restart = trace.then("first", move |lp: &mut Loop, _: Timer| {
        let stop = move |lp: &mut Loop, _: Timer| third.stop(lp).unwrap();
        second.start(lp, ZERO, ZERO, note.then("second", stop)).unwrap();
        third.again(lp).unwrap();
        assert_eq!(third.due_in(lp), Some(AN_HOUR), "its new timeout");
    });
    first.start(&mut lp, ZERO, ZERO, restart).unwrap();
    second.start(&mut lp, ZERO, ZERO, |_, _| panic!("its callback was replaced")).unwrap();
    third.start(&mut lp, ZERO, AN_HOUR, |_, _| panic!("it waits for an hour now")).unwrap();
    run_to_the_end(&mut lp);
    trace.expect(&["first", "iteration", "second"], "the second timer fires in a later pass");
    Ok(())
}

/// Starting an active timer replaces its times and its callback; the old callback is dropped.
pub fn start_replaces_times_and_callback(lab: &Lab) -> Verdict {
    let (mut lp, trace, held) = (new_loop(lab)?, Trace::default(), Rc::new(()));
    let (timer, keep) = (keep_alive(&mut lp), Rc::clone(&held));
    timer.start(&mut lp, ZERO, MS, move |_, _| panic!("replaced, with {keep:?}")).unwrap();
    assert_eq!((timer.due_in(&lp), timer.repeat(&lp)), (Some(ZERO), MS));
    let note = trace.clone();
    let replace = move |lp: &mut Loop, timer: Timer| {
        note.note("first callback");
        let second = note.noting("second callback");
        timer.start(lp, MS, ZERO, second).unwrap();
        note.note("which continues");
    };
    timer.start(&mut lp, 2 * MS, ZERO, replace).unwrap();
    assert_eq!(Rc::strong_count(&held), 1, "the callback that was replaced is dropped");
    assert_eq!((timer.due_in(&lp), timer.repeat(&lp)), (Some(2 * MS), ZERO));
    run_to_the_end(&mut lp);
    let expected = ["first callback", "which continues", "second callback"];
    trace.expect(&expected, "a callback may replace itself");
    Ok(())
}

/// In its callback, a one-shot timer is inactive, so it may be started again; a repeating timer is
/// already rescheduled.
pub fn are_rescheduled_before_their_callbacks(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let once = trace.then("once", |lp, timer: Timer| {
        assert!(!timer.is_active(lp), "it has fired and does not repeat");
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

/// Repeats count from the loop time when the timer fires: missed repeats are skipped, and a timer
/// that is several periods late fires once.
pub fn missed_repeats_are_skipped(lab: &Lab) -> Verdict {
    let (mut lp, fired) = (new_loop(lab)?, Count::default());
    let (timer, count) = (Timer::new(&mut lp), fired.clone());
    let late = move |lp: &mut Loop, timer: Timer| {
        count.add();
        assert_eq!(
            timer.due_in(lp),
            Some(2 * MS),
            "two milliseconds from the loop time, not from the deadline"
        );
        spend(lp, 7 * MS);
        assert_eq!(timer.due_in(lp), Some(2 * MS), "the loop time is constant");
    };
    timer.start(&mut lp, 2 * MS, 2 * MS, late).unwrap();
    spend(&lp, 7 * MS);
    for expected in 1..=3 {
        assert!(run(&mut lp, RunMode::NoWait));
        assert_eq!(fired.get(), expected, "several periods late, it fires once");
    }
    Ok(())
}

/// A repeating timer fires until it is stopped, by its own callback or another.
pub fn repeat_until_stopped(lab: &Lab) -> Verdict {
    let (mut lp, fired) = (new_loop(lab)?, Count::default());
    let (timer, count) = (Timer::new(&mut lp), fired.clone());
    let stop = move |lp: &mut Loop, timer: Timer| {
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

/// A new repeat time applies from the next scheduling: set in the callback, from the period after
/// the current one. Zero ends the repetition.
pub fn set_repeat_applies_to_the_next_schedule(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (timer, note, mut round) = (Timer::new(&mut lp), trace.clone(), 0);
    let change = move |lp: &mut Loop, timer: Timer| {
        round += 1;
        match round {
            1 => {
                timer.set_repeat(lp, 3 * MS).unwrap();
                assert_eq!(timer.due_in(lp), Some(2 * MS), "scheduled before the change");
                note.note("changed");
            }
            2 => {
                assert_eq!(timer.due_in(lp), Some(3 * MS), "the new repeat time");
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
    assert_eq!(timer.due_in(&lp), Some(10 * MS), "the timeout is unchanged");
    timer.set_repeat(&mut lp, 2 * MS).unwrap();
    assert_eq!(timer.repeat(&lp), 2 * MS);
    run_to_the_end(&mut lp);
    trace.expect(&["changed", "ended", "last"], "three calls");
    Ok(())
}

/// `again` on a timer that was never started is an error, whatever its repeat time: it has no
/// callback.
pub fn again_without_a_start_is_an_error(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let timer = Timer::new(&mut lp);
    for repeat in [ZERO, MS] {
        timer.set_repeat(&mut lp, repeat).unwrap();
        let error = timer.again(&mut lp).expect_err("it was never started");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(!timer.is_active(&lp) && !lp.is_alive());
    }
    Ok(())
}

/// `again` on a timer without a repeat time does nothing, active or not.
pub fn again_without_a_repeat_does_nothing(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let timer = keep_alive(&mut lp);
    spend(&lp, MS);
    lp.update_time();
    let due_in = timer.due_in(&lp);
    timer.again(&mut lp).unwrap();
    assert_eq!(timer.due_in(&lp), due_in, "an active timer keeps its deadline");
    timer.stop(&mut lp).unwrap();
    timer.again(&mut lp).unwrap();
    assert!(!timer.is_active(&lp), "a stopped timer stays so");
    Ok(())
}

/// `again` starts a timer with its repeat time as the timeout and its previous callback, whether it
/// is stopped or active.
pub fn again_starts_with_the_repeat_time(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (timer, note, mut calls) = (Timer::new(&mut lp), trace.clone(), 0);
    let callback = move |lp: &mut Loop, timer: Timer| {
        calls += 1;
        note.note("timer");
        timer.stop(lp).unwrap();
        if calls == 1 {
            timer.again(lp).unwrap();
            assert_eq!(timer.due_in(lp), Some(MS), "`again` works in its callback");
        }
    };
    timer.start(&mut lp, AN_HOUR, AN_HOUR / 2, callback).unwrap();
    timer.again(&mut lp).unwrap();
    assert_eq!(timer.due_in(&lp), Some(AN_HOUR / 2), "an active timer restarts");
    timer.stop(&mut lp).unwrap();
    timer.set_repeat(&mut lp, MS).unwrap();
    timer.again(&mut lp).unwrap();
    assert_eq!(timer.due_in(&lp), Some(MS), "a stopped one starts");
    assert!(timer.is_active(&lp) && lp.is_alive());
    run_to_the_end(&mut lp);
    trace.expect(&["timer", "timer"], "the same callback");
    Ok(())
}

/// The remaining time counts from the loop time: zero if the timer is overdue, `None` if it is
/// inactive.
pub fn due_in_counts_from_the_loop_time(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let timer = Timer::new(&mut lp);
    assert_eq!(timer.due_in(&lp), None, "it was never started");
    timer.start(&mut lp, AN_HOUR, ZERO, |_, _| {}).unwrap();
    let started = lp.now();
    spend(&lp, MS);
    assert_eq!(timer.due_in(&lp), Some(AN_HOUR), "the loop time is constant");
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
    /// Numbers of the non-capturing callbacks that have run.
    static RUN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A non-capturing callback, one for each `N`.
fn run_number<const N: usize>(_: &mut Loop, _: Timer) {
    RUN.with_borrow_mut(|run| run.push(N));
}

/// A timer runs its most recent callback, capturing or not, also if its previous callback started
/// it. The replaced callback is dropped.
pub fn call_the_latest_callback(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (timer, held) = (Timer::new(&mut lp), Rc::new(()));
    let hold = |what| {
        let held = Rc::clone(&held);
        trace.then(what, move |_, _| drop(Rc::clone(&held)))
    };
    RUN.take();
    timer.start(&mut lp, MS, ZERO, hold("replaced")).unwrap();
    timer.start(&mut lp, MS, ZERO, run_number::<1>).unwrap();
    assert_eq!(Rc::strong_count(&held), 1, "the replaced callback is dropped");
    run_to_the_end(&mut lp);
    assert_eq!(RUN.take(), [1]);

    timer.start(&mut lp, MS, ZERO, run_number::<2>).unwrap();
    timer.start(&mut lp, MS, ZERO, hold("captures")).unwrap();
    run_to_the_end(&mut lp);
    trace.expect(&["captures"], "the latest callback");

    let plain_next = trace.then("first", |lp: &mut Loop, timer: Timer| {
        timer.start(lp, ZERO, ZERO, run_number::<3>).unwrap();
    });
    timer.start(&mut lp, MS, ZERO, plain_next).unwrap();
    assert_eq!(Rc::strong_count(&held), 1, "the replaced callback is dropped");
    run_to_the_end(&mut lp);
    trace.expect(&["first"], "it replaced its callback");
    assert_eq!(RUN.take(), [3]);

    timer.start(&mut lp, ZERO, ZERO, |lp, timer| timer.set_repeat(lp, MS).unwrap()).unwrap();
    run_to_the_end(&mut lp);
    timer.start(&mut lp, MS, ZERO, hold("closed")).unwrap();
    timer.close(&mut lp).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(Rc::strong_count(&held), 1, "a closed timer holds no callback");
    assert_eq!(RUN.take(), [0; 0], "only the latest callback ran");
    trace.expect(&[], "only the latest callback ran");
    Ok(())
}

/// Timers that share a non-capturing callback are independent otherwise.
pub fn with_a_shared_callback_are_independent(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    RUN.take();
    let [once, repeating, stopped] = [(); 3].map(|()| {
        let timer = Timer::new(&mut lp);
        timer.start(&mut lp, MS, ZERO, run_number::<1>).unwrap();
        timer
    });
    repeating.set_repeat(&mut lp, MS).unwrap();
    stopped.stop(&mut lp).unwrap();
    assert_eq!([once.repeat(&lp), repeating.repeat(&lp)], [ZERO, MS]);
    while RUN.with_borrow(Vec::len) < 4 {
        run(&mut lp, RunMode::Once);
    }
    assert!(!once.is_active(&lp) && !stopped.is_active(&lp));
    assert!(repeating.is_active(&lp), "it continues");
    repeating.close(&mut lp).unwrap();
    stopped.start(&mut lp, MS, ZERO, run_number::<2>).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(RUN.take(), [1, 1, 1, 1, 2], "each runs its own callback");
    Ok(())
}

/// `Timer::after` timers behave like all others, in new slots and in reused ones.
pub fn after_creates_and_starts(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    for _ in 0..2 {
        RUN.take();
        let note = |number| move |_: &mut Loop, _| RUN.with_borrow_mut(|run| run.push(number));
        let made = [
            Timer::after(&mut lp, 2 * MS, run_number::<3>),
            Timer::after(&mut lp, MS, note(1)),
            Timer::new(&mut lp),
            Timer::after(&mut lp, 2 * MS, note(5)),
            Timer::after(&mut lp, MS, run_number::<2>),
            Timer::after(&mut lp, Duration::MAX, run_number::<9>),
            Timer::after(&mut lp, MS, run_number::<8>),
        ];
        made[2].start(&mut lp, 2 * MS, ZERO, run_number::<4>).unwrap();
        made[3].start(&mut lp, 2 * MS, ZERO, note(5)).unwrap(); // Restarted, so ordered last.
        made[6].stop(&mut lp).unwrap();
        assert_eq!(lp.walk(), made.map(Into::into), "in creation order");
        assert_eq!(made[0].due_in(&lp), Some(2 * MS));
        assert_eq!([made[0].repeat(&lp), made[1].repeat(&lp)], [ZERO; 2]);
        while made[3].is_active(&lp) {
            run(&mut lp, RunMode::Once);
        }
        assert_eq!(RUN.take(), [1, 2, 3, 4, 5]);
        assert!(made[5].is_active(&lp), "a timer of an hour");
        made[4].again(&mut lp).expect("a started timer without repeat");
        assert!(!made[4].is_active(&lp));
        for timer in made {
            timer.close(&mut lp).unwrap();
        }
        run_to_the_end(&mut lp);
    }
    Ok(())
}

/// Any number of distinct non-capturing callbacks is supported; each timer runs its own.
pub fn support_any_number_of_callbacks(lab: &Lab) -> Verdict {
    macro_rules! start {
        ($lp:ident: $($tens:literal)*) => {$(
            start!($lp, $tens: 0 1 2 3 4 5 6 7 8 9);
        )*};
        ($lp:ident, $tens:literal: $($ones:literal)*) => {$(
            timer_in(&mut $lp, ZERO, run_number::<{ 10 * $tens + $ones }>);
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
