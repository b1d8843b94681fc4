//! Point 14: the cached loop time, constant while callbacks run.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use uv_core::{Async, Check, Handle, Idle, Prepare, RunMode, Timer};

use crate::support::loops::{
    AN_HOUR, ZERO, keep_alive, new_loop, run, run_to_the_end, spend, timer_in,
};
use crate::support::observe::SOON;
use crate::{Lab, Loop, Verdict};

const MS: Duration = Duration::from_millis(1);

/// The loop times that callbacks saw, in order.
#[derive(Clone, Default)]
struct Times(Rc<RefCell<Vec<Duration>>>);

impl Times {
    /// Records the loop time, spends some real time, and asserts that the loop time is unchanged.
    fn note(&self, lp: &Loop) {
        let now = lp.now();
        spend(lp, MS);
        assert_eq!(lp.now(), now, "the loop's time has moved within a callback");
        self.0.borrow_mut().push(now);
    }

    /// A handle callback that records the time.
    fn noting<H: Handle>(&self) -> impl FnMut(&mut Loop, H) + 'static {
        let times = self.clone();
        move |lp, _| times.note(lp)
    }

    /// A deferred callback that records the time.
    fn once(&self) -> impl FnOnce(&mut Loop) + 'static {
        let times = self.clone();
        move |lp| times.note(lp)
    }

    /// The times recorded since the last call.
    fn take(&self) -> Vec<Duration> {
        self.0.take()
    }
}

fn all_equal(times: &[Duration]) -> bool {
    times.windows(2).all(|pair| pair[0] == pair[1])
}

/// From the timers to the poll, all callbacks see one time, however long they take.
pub fn is_constant_before_the_poll(lab: &Lab) -> Verdict {
    let (mut lp, times) = (new_loop(lab)?, Times::default());
    timer_in(&mut lp, ZERO, times.noting());
    timer_in(&mut lp, ZERO, times.noting());
    lp.defer(times.once());
    Idle::new(&mut lp).start(&mut lp, times.noting()).unwrap();
    let prepare = Prepare::new(&mut lp);
    let times_too = times.clone();
    let noting = move |lp: &mut Loop, _| {
        times_too.note(lp);
        lp.stop();
    };
    prepare.start(&mut lp, noting).unwrap();
    assert!(run(&mut lp, RunMode::Default));
    let seen = times.take();
    assert_eq!(seen.len(), 5, "two timers, a deferred callback, an idle and a prepare watcher");
    assert!(all_equal(&seen), "the time is constant from the timers to the poll: {seen:?}");
    Ok(())
}

/// From the poll to the close callbacks, all callbacks see one time.
pub fn is_constant_after_the_poll(lab: &Lab) -> Verdict {
    let (mut lp, times) = (new_loop(lab)?, Times::default());
    let noting = times.clone();
    let (_, sender) = Async::new(&mut lp, move |lp: &mut Loop, handle| {
        noting.note(lp);
        lp.defer(noting.once());
        handle.close_with(lp, noting.noting()).unwrap();
    });
    sender.send().unwrap();
    Check::new(&mut lp).start(&mut lp, times.noting()).unwrap();
    assert!(run(&mut lp, RunMode::Once));
    let seen = times.take();
    assert_eq!(seen.len(), 4, "an async, a deferred callback, a check watcher and a close");
    assert!(all_equal(&seen), "the time is constant from the poll to the closing phase: {seen:?}");
    Ok(())
}

/// Every poll updates the time, also one that does not block.
pub fn is_updated_by_every_poll(lab: &Lab) -> Verdict {
    let (mut lp, times) = (new_loop(lab)?, Times::default());
    Prepare::new(&mut lp).start(&mut lp, times.noting()).unwrap();
    Check::new(&mut lp).start(&mut lp, times.noting()).unwrap();
    for mode in [RunMode::NoWait, RunMode::NoWait] {
        run(&mut lp, mode);
        let seen = times.take();
        assert!(seen[1] >= seen[0] + MS, "the poll was a millisecond after {seen:?}");
    }
    let due = lp.now() + 20 * MS;
    timer_in(&mut lp, 20 * MS, |_, _| {});
    run(&mut lp, RunMode::Once);
    let seen = times.take();
    assert!(seen[1] >= due, "the poll has waited until {due:?}: {seen:?}");
    Ok(())
}

/// The timers of an iteration run by the time at its end, so that timers that became due since the
/// poll are not late.
pub fn is_updated_before_timers(lab: &Lab) -> Verdict {
    let (mut lp, times) = (new_loop(lab)?, Times::default());
    let noting = times.clone();
    Check::new(&mut lp)
        .start(&mut lp, move |lp: &mut Loop, check: Check| {
            let fired = noting.clone();
            timer_in(lp, MS, move |lp, _| fired.note(lp));
            noting.note(lp);
            check.stop(lp).unwrap();
        })
        .unwrap();
    assert!(!run(&mut lp, RunMode::NoWait), "the timer is due by the end of the iteration");
    let seen = times.take();
    assert_eq!(seen.len(), 2, "a check watcher and a timer");
    assert!(seen[1] >= seen[0] + MS, "the timers come a millisecond after {seen:?}");
    Ok(())
}

/// A callback that took long may update the time explicitly.
pub fn is_updated_on_request(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let before = lp.now();
    spend(&lp, MS);
    assert_eq!(lp.now(), before, "the time changed without an update");
    lp.update_time();
    assert!(lp.now() >= before + MS, "the time was not updated");
    timer_in(&mut lp, ZERO, |lp, _| {
        let before = lp.now();
        spend(lp, MS);
        lp.update_time();
        let after = lp.now();
        assert!(after >= before + MS, "the time was not updated in a callback");
        spend(lp, MS);
        assert_eq!(lp.now(), after, "the time is constant after the update");
    });
    run_to_the_end(&mut lp);
    Ok(())
}

/// A run updates the time even if the loop is not alive: timers started next do not count from the
/// end of the previous run.
pub fn is_updated_by_run(lab: &Lab) -> Verdict {
    for mode in [RunMode::Default, RunMode::Once, RunMode::NoWait] {
        let (mut lp, times) = (new_loop(lab)?, Times::default());
        let before = lp.now();
        spend(&lp, MS);
        assert!(!run(&mut lp, mode));
        let dead = lp.now();
        assert!(
            dead >= before + MS,
            "{mode:?} does not update the time of a loop that is not alive"
        );
        spend(&lp, MS);
        lp.defer(times.once());
        run(&mut lp, mode);
        assert!(times.take()[0] >= dead + MS, "{mode:?} begins without updating the time");
    }
    Ok(())
}

/// Starting a timer counts from the loop time and does not update it, so that timers started in one
/// callback keep their order.
pub fn is_not_updated_by_timers(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let before = lp.now();
    spend(&lp, MS);
    let timer = keep_alive(&mut lp);
    let due_in = timer.due_in(&lp);
    spend(&lp, MS);
    timer.stop(&mut lp).unwrap();
    timer.start(&mut lp, 5 * MS, 5 * MS, |_, _| {}).unwrap();
    timer.again(&mut lp).unwrap();
    assert_eq!(lp.now(), before, "starting a timer changed the time");
    assert_eq!(due_in, Some(AN_HOUR), "counted from the loop's time");
    Ok(())
}

/// `hrtime` reads the clock on each call, advances within callbacks, never goes backwards, and is
/// never behind the loop time.
pub fn hrtime_is_current_and_monotonic(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let reads = |lp: &Loop| {
        let (now, mut last, started) = (lp.now(), lp.hrtime(), Instant::now());
        assert!(now <= last, "the loop time is ahead of the clock: {now:?}, {last:?}");
        let mut moves = 0;
        while moves < 10 {
            assert!(started.elapsed() < SOON, "the clock does not advance");
            let read = lp.hrtime();
            assert!(read >= last, "the clock goes backwards from {last:?} to {read:?}");
            moves += u32::from(read > last);
            last = read;
        }
    };
    reads(&lp);
    let timer = Timer::new(&mut lp);
    timer.start(&mut lp, MS, ZERO, move |lp, _| reads(lp)).unwrap();
    run_to_the_end(&mut lp);
    Ok(())
}
