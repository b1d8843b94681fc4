//! Point 14: the loop's time, which stands still while callbacks run.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use poll_core::Backend;
use uv_core::{Async, Check, Handle, Idle, Loop, Prepare, RunMode, Timer};

use crate::support::loops::{
    AN_HOUR, ZERO, keep_alive, new_loop, run, run_to_the_end, spend, timer_in,
};
use crate::support::observe::SOON;
use crate::{Lab, Verdict};

const MS: Duration = Duration::from_millis(1);

/// The loop's time as callbacks saw it, in order.
#[derive(Clone, Default)]
struct Times(Rc<RefCell<Vec<Duration>>>);

impl Times {
    /// Writes the loop's time, spends some, and asserts that this did not change it.
    fn note<T: Backend>(&self, lp: &Loop<T>) {
        let now = lp.now();
        spend(lp, MS);
        assert_eq!(lp.now(), now, "the loop's time has moved within a callback");
        self.0.borrow_mut().push(now);
    }

    /// A callback that does it.
    fn noting<T: Backend, H: Handle>(&self) -> impl FnMut(&mut Loop<T>, H) + 'static {
        let times = self.clone();
        move |lp, _| times.note(lp)
    }

    /// A deferred callback that does it.
    fn once<T: Backend>(&self) -> impl FnOnce(&mut Loop<T>) + 'static {
        let times = self.clone();
        move |lp| times.note(lp)
    }

    /// The times seen since the last look.
    fn take(&self) -> Vec<Duration> {
        self.0.take()
    }
}

fn all_equal(times: &[Duration]) -> bool {
    times.windows(2).all(|pair| pair[0] == pair[1])
}

/// From the timers to the poll all callbacks see one time, however long they take.
pub fn stands_still_until_the_poll<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, times) = (new_loop(lab)?, Times::default());
    timer_in(&mut lp, ZERO, times.noting());
    timer_in(&mut lp, ZERO, times.noting());
    lp.defer(times.once());
    Idle::new(&mut lp).start(&mut lp, times.noting()).unwrap();
    let prepare = Prepare::new(&mut lp);
    let times_too = times.clone();
    let noting = move |lp: &mut Loop<T>, _| {
        times_too.note(lp);
        lp.stop();
    };
    prepare.start(&mut lp, noting).unwrap();
    assert!(run(&mut lp, RunMode::Default));
    let seen = times.take();
    assert_eq!(seen.len(), 5, "two timers, a deferred callback, an idle and a prepare watcher");
    assert!(all_equal(&seen), "from the timers to the poll time stands still: {seen:?}");
    Ok(())
}

/// From the poll to the close callbacks all see one time, too.
pub fn stands_still_after_the_poll<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, times) = (new_loop(lab)?, Times::default());
    let noting = times.clone();
    let (_, sender) = Async::new(&mut lp, move |lp: &mut Loop<T>, handle| {
        noting.note(lp);
        lp.defer(noting.once());
        handle.close_with(lp, noting.noting()).unwrap();
    });
    sender.send().unwrap();
    Check::new(&mut lp).start(&mut lp, times.noting()).unwrap();
    assert!(run(&mut lp, RunMode::Once));
    let seen = times.take();
    assert_eq!(seen.len(), 4, "an async, a deferred callback, a check watcher and a close");
    assert!(all_equal(&seen), "from the poll to the closing phase time stands still: {seen:?}");
    Ok(())
}

/// Every poll moves the time on, also one that does not block.
pub fn moves_with_every_poll<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// The timers of an iteration are run by the time at its end, so that those that
/// became due since the poll are not late.
pub fn moves_before_the_timers<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, times) = (new_loop(lab)?, Times::default());
    let noting = times.clone();
    Check::new(&mut lp)
        .start(&mut lp, move |lp: &mut Loop<T>, check: Check| {
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

/// A callback that took long may ask for the time, and gets it.
pub fn moves_when_updated<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let before = lp.now();
    spend(&lp, MS);
    assert_eq!(lp.now(), before, "the time has moved by itself");
    lp.update_time();
    assert!(lp.now() >= before + MS, "the time was not updated");
    timer_in(&mut lp, ZERO, |lp, _| {
        let before = lp.now();
        spend(lp, MS);
        lp.update_time();
        let after = lp.now();
        assert!(after >= before + MS, "the time was not updated in a callback");
        spend(lp, MS);
        assert_eq!(lp.now(), after, "and then stands still again");
    });
    run_to_the_end(&mut lp);
    Ok(())
}

/// A run moves the time on, even if the loop is dead and runs nothing: what a run starts
/// does not count from when the last one ended.
pub fn moves_when_the_loop_is_run<T: Backend>(lab: &Lab<T>) -> Verdict {
    for mode in [RunMode::Default, RunMode::Once, RunMode::NoWait] {
        let (mut lp, times) = (new_loop(lab)?, Times::default());
        let before = lp.now();
        spend(&lp, MS);
        assert!(!run(&mut lp, mode));
        let dead = lp.now();
        assert!(dead >= before + MS, "{mode:?} leaves a dead loop with an old time");
        spend(&lp, MS);
        lp.defer(times.once());
        run(&mut lp, mode);
        assert!(times.take()[0] >= dead + MS, "{mode:?} begins with an old time");
    }
    Ok(())
}

/// Starting a timer counts from the loop's time and leaves it as it is, so that timers
/// started in one callback keep their order.
pub fn is_not_moved_by_timers<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let before = lp.now();
    spend(&lp, MS);
    let timer = keep_alive(&mut lp);
    let due_in = timer.due_in(&lp);
    spend(&lp, MS);
    timer.stop(&mut lp).unwrap();
    timer.start(&mut lp, 5 * MS, 5 * MS, |_, _| {}).unwrap();
    timer.again(&mut lp).unwrap();
    assert_eq!(lp.now(), before, "a timer has moved the time");
    assert_eq!(due_in, Some(AN_HOUR), "counted from the loop's time");
    Ok(())
}

/// The clock itself is read anew each time, goes on in callbacks, and never back; the
/// loop's time is never ahead of it.
pub fn the_clock_goes_on_meanwhile<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let reads = |lp: &Loop<T>| {
        let (now, mut last, started) = (lp.now(), lp.hrtime(), Instant::now());
        assert!(now <= last, "the loop is ahead of the clock: {now:?}, {last:?}");
        let mut moves = 0;
        while moves < 10 {
            assert!(started.elapsed() < SOON, "the clock stands still");
            let read = lp.hrtime();
            assert!(read >= last, "the clock goes back from {last:?} to {read:?}");
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
