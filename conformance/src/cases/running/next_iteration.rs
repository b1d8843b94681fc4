//! Callbacks that are deferred to the next iteration.

use uv_core::RunMode;

use crate::support::loops::{new_loop, run};
use crate::support::trace::Trace;
use crate::{Lab, Loop, Verdict};

/// A callback that is deferred to the next iteration, in whichever phase, does not run in a later
/// round of this one. It keeps the loop alive and from blocking.
pub fn a_callback_for_the_next_iteration_follows_a_poll(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let note = trace.clone();
    lp.defer(move |lp| {
        let inner = note.clone();
        lp.defer(move |lp: &mut Loop| {
            // After the poll: rounds of this iteration are left.
            lp.defer_to_next_iteration(inner.once("after the poll"));
            lp.defer(inner.once("round"));
        });
        lp.defer_to_next_iteration(note.once("before the poll"));
    });
    assert!(run(&mut lp, RunMode::NoWait), "the deferred callbacks keep it alive");
    trace.expect(&["round"], "the others wait for the next iteration");
    assert!(!run(&mut lp, RunMode::NoWait));
    trace.expect(&["before the poll", "after the poll"], "in the order of the calls");
    Ok(())
}
