//! Point 21: signals, told in the loop.
//!
//! They belong to the whole process: these cases run alone.

use std::io::ErrorKind;
use std::rc::Rc;

use poll_core::Backend;
use uv_core::{Handle, RunMode, Signal, signum};

use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::{Lab, Verdict};

mod profiling;
#[cfg(unix)]
mod raised;
pub use profiling::*;
#[cfg(unix)]
pub use raised::*;

/// Numbers that are no signals, and signals that cannot be caught, are errors that change
/// nothing: a handle that was started stays as it was.
pub fn impossible_numbers_are_refused<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (idle, started) = (Signal::new(&mut lp), Signal::new(&mut lp));
    let held = Rc::new(());
    let kept = Rc::clone(&held);
    let callback = move |_: &mut _, _, _| drop(Rc::clone(&kept));
    started.start(&mut lp, signum::SIGINT, callback).expect("a signal");
    let mut impossible = vec![0, -1, 9_999, i32::MAX, i32::MIN];
    if cfg!(unix) {
        impossible.extend([9, 19].map(|number| if cfg!(target_os = "linux") { number } else { 9 }));
    }
    for number in impossible {
        for signal in [idle, started] {
            let refused = signal.start(&mut lp, number, |_, _, _| {}).map_err(|it| it.kind());
            assert_eq!(refused, Err(ErrorKind::InvalidInput), "signal {number}");
            let refused = signal.start_oneshot(&mut lp, number, |_, _, _| {});
            assert_eq!(refused.map_err(|it| it.kind()), Err(ErrorKind::InvalidInput));
        }
        assert!(!idle.is_active(&lp) && started.is_active(&lp), "as they were");
        assert_eq!((idle.signum(&lp), started.signum(&lp)), (None, Some(signum::SIGINT)));
        assert_eq!(Rc::strong_count(&held), 2, "the callback is there");
    }
    Ok(())
}

/// A signal handle is active while it is started, and keeps the loop unless it is
/// unreferenced. Started while closing it is an error.
pub fn keep_the_loop_unless_unreferenced<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let signal = Signal::new(&mut lp);
    assert!(!signal.is_active(&lp), "not before it is started");
    run_to_the_end(&mut lp);
    signal.start(&mut lp, signum::SIGHUP, |_, _, _| {}).expect("a signal");
    assert!(signal.is_active(&lp) && run(&mut lp, RunMode::NoWait), "it keeps the loop");
    signal.unreference(&mut lp).expect("an open handle");
    run_to_the_end(&mut lp);
    signal.reference(&mut lp).expect("an open handle");
    signal.stop(&mut lp).expect("an open handle");
    signal.stop(&mut lp).expect("a stopped handle may be stopped");
    assert!(!signal.is_active(&lp) && signal.signum(&lp).is_none(), "stopped");
    run_to_the_end(&mut lp);
    signal.close(&mut lp).expect("an open handle");
    let refused = signal.start(&mut lp, signum::SIGHUP, |_, _, _| {});
    assert_eq!(refused.map_err(|it| it.kind()), Err(ErrorKind::InvalidInput), "closing");
    run_to_the_end(&mut lp);
    let refused = signal.start(&mut lp, signum::SIGHUP, |_, _, _| {});
    assert_eq!(refused.map_err(|it| it.kind()), Err(ErrorKind::NotFound), "closed");
    Ok(())
}

/// The cases that need a process to send signals to itself.
#[cfg(not(unix))]
macro_rules! unix_alone {
    ($($name:ident)*) => { $(
        /// Needs a process that sends signals to itself alone.
        pub fn $name<T: Backend>(_lab: &Lab<T>) -> Verdict {
            let why = "Windows sends console events to every process of the console";
            Err(crate::Skip::because(why))
        }
    )* };
}

#[cfg(not(unix))]
unix_alone! {
    wake_a_loop_that_waits are_counted reach_every_handle reach_every_loop
    come_from_any_thread one_shots_end_with_the_first one_shots_and_others_mix
    one_shots_are_told_last starting_again_swaps_the_callback another_number_moves_the_handle
    the_last_stop_restores_what_was_before one_may_stop_or_close_itself
    a_closed_handle_is_not_told earlier_signals_are_not_told a_one_shot_may_start_anew
    one_shots_alone_let_the_second_through are_told_last_of_a_batch
    handlers_leave_system_calls_alone
}
