//! Point 18: idle, prepare and check watchers. They differ only in their phase: each case covers
//! all three.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use uv_core::{Check, Handle, Idle, Prepare, RunMode};

use crate::support::loops::{keep_alive, new_loop, run, run_to_the_end, timer_in};
use crate::support::trace::{Count, Trace};
use crate::{Lab, Loop, Verdict};

/// The interface that the three kinds share.
trait Watcher: Handle {
    fn create(lp: &mut Loop) -> Self;

    fn begin(
        self,
        lp: &mut Loop,
        callback: impl FnMut(&mut Loop, Self) + 'static,
    ) -> io::Result<()>;

    fn end(self, lp: &mut Loop) -> io::Result<()>;

    /// A started watcher.
    fn started(lp: &mut Loop, callback: impl FnMut(&mut Loop, Self) + 'static) -> Self {
        let watcher = Self::create(lp);
        watcher.begin(lp, callback).expect("a new watcher starts");
        watcher
    }
}

macro_rules! watchers {
    ($($kind:ident)*) => { $(
        impl Watcher for $kind {
            fn create(lp: &mut Loop) -> $kind {
                $kind::new(lp)
            }

            fn begin(
                self,
                lp: &mut Loop,
                callback: impl FnMut(&mut Loop, $kind) + 'static,
            ) -> io::Result<()> {
                self.start(lp, callback)
            }

            fn end(self, lp: &mut Loop) -> io::Result<()> {
                self.stop(lp)
            }
        }
    )* };
}

watchers! { Idle Prepare Check }

/// Runs a function that is generic over the kind of watcher on fresh loops.
macro_rules! for_each_kind {
    ($lab:expr, $case:ident) => {{
        $case::<Idle>(&mut new_loop($lab)?);
        $case::<Prepare>(&mut new_loop($lab)?);
        $case::<Check>(&mut new_loop($lab)?);
        Ok(())
    }};
}

/// One iteration that does not block.
#[track_caller]
fn iterate(lp: &mut Loop) {
    run(lp, RunMode::NoWait);
}

/// A watcher runs once in every iteration until it is stopped.
pub fn run_once_per_iteration(lab: &Lab) -> Verdict {
    fn case<W: Watcher>(lp: &mut Loop) {
        let trace = Trace::default();
        let watcher = W::started(lp, trace.noting("watcher"));
        assert!(watcher.is_active(lp) && lp.is_alive());
        trace.expect(&[], "never inline");
        for _ in 0..3 {
            iterate(lp);
            trace.expect(&["watcher"], "one iteration");
        }
        watcher.end(lp).unwrap();
        watcher.end(lp).expect("a stopped watcher stays so");
        assert!(!watcher.is_active(lp) && !lp.is_alive());
        lp.defer(|_| {});
        iterate(lp);
        trace.expect(&[], "it was stopped");
    }
    for_each_kind!(lab, case)
}

/// The most recently started watcher runs first, in every iteration.
pub fn run_in_reverse_start_order(lab: &Lab) -> Verdict {
    fn case<W: Watcher>(lp: &mut Loop) {
        let trace = Trace::default();
        // Started in another order than they were created in.
        let [third, second, first] = [(); 3].map(|()| W::create(lp));
        first.begin(lp, trace.noting("first started")).unwrap();
        second.begin(lp, trace.noting("second started")).unwrap();
        third.begin(lp, trace.noting("third started")).unwrap();
        for _ in 0..3 {
            iterate(lp);
            let expected = ["third started", "second started", "first started"];
            trace.expect(&expected, "the order stays the same");
        }
        first.end(lp).unwrap();
        first.begin(lp, trace.noting("started again")).unwrap();
        for _ in 0..2 {
            iterate(lp);
            let expected = ["started again", "third started", "second started"];
            trace.expect(&expected, "a start after a stop is a new start");
        }
    }
    for_each_kind!(lab, case)
}

/// A watcher started by another of its phase runs from the next iteration on.
pub fn started_by_a_sibling_run_next_iteration(lab: &Lab) -> Verdict {
    fn case<W: Watcher>(lp: &mut Loop) {
        let trace = Trace::default();
        let newcomer = W::create(lp);
        W::started(lp, trace.noting("earlier"));
        let note = trace.clone();
        let start = move |lp: &mut Loop, _| {
            // On the second call it is already started, and nothing changes.
            newcomer.begin(lp, note.noting("newcomer")).unwrap();
        };
        W::started(lp, trace.then("sibling", start));
        iterate(lp);
        trace.expect(&["sibling", "earlier"], "the newcomer waits");
        for _ in 0..2 {
            iterate(lp);
            trace.expect(&["newcomer", "sibling", "earlier"], "it is the most recent");
        }
    }
    for_each_kind!(lab, case)
}

/// A watcher that is stopped or closed by one that runs before it does not run, and the others do.
pub fn stopped_by_a_sibling_do_not_run(lab: &Lab) -> Verdict {
    fn case<W: Watcher>(lp: &mut Loop) {
        let trace = Trace::default();
        W::started(lp, trace.noting("last"));
        let stopped = W::started(lp, |_, _| panic!("it was stopped"));
        W::started(lp, trace.noting("middle"));
        let closed = W::started(lp, |_, _| panic!("it was closed"));
        let mut first_time = true;
        W::started(
            lp,
            trace.then("first", move |lp, _: W| {
                if std::mem::take(&mut first_time) {
                    stopped.end(lp).unwrap();
                    closed.close(lp).unwrap();
                }
            }),
        );
        for _ in 0..2 {
            iterate(lp);
            trace.expect(
                &["first", "middle", "last"],
                "the stopped and the closed watcher do not run",
            );
        }
    }
    for_each_kind!(lab, case)
}

/// A watcher may stop itself and others that have already run, without affecting the rest.
pub fn may_stop_watchers_that_have_run(lab: &Lab) -> Verdict {
    fn case<W: Watcher>(lp: &mut Loop) {
        let trace = Trace::default();
        W::started(lp, trace.noting("last"));
        let first = W::create(lp);
        W::started(
            lp,
            trace.then("second", move |lp, second: W| {
                first.end(lp).unwrap();
                second.end(lp).unwrap();
            }),
        );
        first.begin(lp, trace.noting("first")).unwrap();
        iterate(lp);
        trace.expect(&["first", "second", "last"], "all were started");
        iterate(lp);
        trace.expect(&["last"], "two were stopped");
    }
    for_each_kind!(lab, case)
}

/// Starting a started watcher changes nothing: it keeps its callback and its position, and the new
/// callback is dropped.
pub fn keep_their_callback_when_started_again(lab: &Lab) -> Verdict {
    fn case<W: Watcher>(lp: &mut Loop) {
        let (trace, held) = (Trace::default(), Rc::new(()));
        let watcher = W::started(lp, trace.noting("old"));
        W::started(lp, trace.noting("later"));
        let keep = Rc::clone(&held);
        watcher.begin(lp, move |_, _| panic!("not the first callback: {keep:?}")).unwrap();
        assert_eq!(Rc::strong_count(&held), 1, "the second callback was dropped");
        iterate(lp);
        trace.expect(&["later", "old"], "nothing has changed");
    }
    for_each_kind!(lab, case)
}

/// A watcher that stops and restarts itself in its callback has a new callback and runs from the
/// next iteration on.
pub fn may_restart_themselves(lab: &Lab) -> Verdict {
    fn case<W: Watcher>(lp: &mut Loop) {
        let (trace, held) = (Trace::default(), Rc::new(()));
        let (note, keep) = (trace.clone(), Rc::clone(&held));
        let watcher = W::started(lp, move |lp, watcher: W| {
            watcher.end(lp).unwrap();
            watcher.begin(lp, note.noting("new")).unwrap();
            assert_eq!(Rc::strong_count(&keep), 2, "a running callback keeps its captures");
            note.note("old");
        });
        W::started(lp, trace.noting("other"));
        iterate(lp);
        trace.expect(&["other", "old"], "the new callback runs in the next iteration");
        assert_eq!(Rc::strong_count(&held), 1, "the old callback was dropped");
        iterate(lp);
        trace.expect(&["new", "other"], "the new callback, most recently started");
        assert!(watcher.is_active(lp));
    }
    for_each_kind!(lab, case)
}

/// Stopping drops the callback and its captures, also from within the callback.
pub fn drop_their_callback_when_stopped(lab: &Lab) -> Verdict {
    fn case<W: Watcher>(lp: &mut Loop) {
        let held = Rc::new(());
        let keep = Rc::clone(&held);
        let watcher = W::started(lp, move |_, _| drop(Rc::clone(&keep)));
        iterate(lp);
        assert_eq!(Rc::strong_count(&held), 2, "a started watcher has its callback");
        watcher.end(lp).unwrap();
        assert_eq!(Rc::strong_count(&held), 1, "stopped from outside");
        let keep = Rc::clone(&held);
        let stop = move |lp: &mut Loop, watcher: W| {
            watcher.end(lp).unwrap();
            assert_eq!(Rc::strong_count(&keep), 2, "a running callback keeps its captures");
        };
        watcher.begin(lp, stop).unwrap();
        iterate(lp);
        assert_eq!(Rc::strong_count(&held), 1, "stopped from within");
    }
    for_each_kind!(lab, case)
}

/// Thousands of watchers run in order, and stopping any of them is quick.
pub fn thousands_run_in_order(lab: &Lab) -> Verdict {
    fn case<W: Watcher>(lp: &mut Loop) {
        const WATCHERS: u64 = 10_000;
        let ran = Count::default();
        let mut watchers = Vec::new();
        for order in (0..WATCHERS).rev() {
            let ran = ran.clone();
            watchers.push(W::started(lp, move |_, _| {
                assert_eq!(ran.add() % WATCHERS, (order + 1) % WATCHERS, "out of order");
            }));
        }
        for iteration in 1..=2 {
            iterate(lp);
            assert_eq!(ran.get(), iteration * WATCHERS, "each once");
        }
        for watcher in watchers {
            watcher.close(lp).unwrap();
        }
        run_to_the_end(lp);
        assert_eq!(ran.get(), 2 * WATCHERS, "none after its close");
    }
    for_each_kind!(lab, case)
}

/// While an idle watcher is active, the loop polls without blocking; prepare and check watchers do
/// not prevent blocking.
pub fn only_idle_watchers_prevent_blocking(lab: &Lab) -> Verdict {
    let (mut lp, iterations) = (new_loop(lab)?, Count::default());
    let hour = keep_alive(&mut lp);
    let count = iterations.clone();
    Idle::started(&mut lp, move |lp, idle| {
        if count.add() == 3 {
            idle.stop(lp).unwrap();
            hour.stop(lp).unwrap();
        }
    });
    run_to_the_end(&mut lp);
    assert_eq!(iterations.get(), 3, "three iterations that do not block");

    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    Prepare::started(&mut lp, trace.noting("prepare"));
    Check::started(&mut lp, trace.noting("check"));
    timer_in(&mut lp, Duration::from_millis(20), trace.noting("timer"));
    run(&mut lp, RunMode::Once);
    trace.expect(&["prepare", "check", "timer"], "one iteration that waits for the timer");
    Ok(())
}
