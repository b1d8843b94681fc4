//! Point 21: signals, delivered in the loop.
//!
//! Signals belong to the whole process: these cases run alone.

use std::io::ErrorKind;
use std::rc::Rc;

use uv_core::{Handle, RunMode, Signal, signum};

use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::{Lab, Verdict};

#[cfg(unix)]
mod delivery;
#[cfg(unix)]
mod order;
mod profiling;
#[cfg(unix)]
pub use delivery::*;
#[cfg(unix)]
pub use order::*;
pub use profiling::*;

/// Invalid signal numbers, and signals that cannot be caught, are errors that change nothing: an
/// active handle keeps its signal.
pub fn invalid_numbers_are_refused(lab: &Lab) -> Verdict {
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
        assert!(!idle.is_active(&lp) && started.is_active(&lp), "unchanged");
        assert_eq!((idle.signum(&lp), started.signum(&lp)), (None, Some(signum::SIGINT)));
        assert_eq!(Rc::strong_count(&held), 2, "the callback is kept");
    }
    Ok(())
}

/// A started signal handle is active and keeps the loop alive unless it is unreferenced. Starting a
/// closing handle is an error.
pub fn keep_the_loop_alive_unless_unreferenced(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let signal = Signal::new(&mut lp);
    assert!(!signal.is_active(&lp), "not before it is started");
    run_to_the_end(&mut lp);
    signal.start(&mut lp, signum::SIGHUP, |_, _, _| {}).expect("a signal");
    assert!(signal.is_active(&lp) && run(&mut lp, RunMode::NoWait), "it keeps the loop alive");
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
macro_rules! unix_only {
    ($($name:ident)*) => { $(
        /// Needs a process that sends signals to itself only.
        pub fn $name(_lab: &Lab) -> Verdict {
            let why = "Windows sends console events to every process of the console";
            Err(crate::Skip::because(why))
        }
    )* };
}

#[cfg(not(unix))]
unix_only! {
    wake_a_blocked_loop loops_may_come_and_go_meanwhile are_counted are_delivered_in_order_of_arrival reach_every_handle
    reach_every_loop
    are_counted_from_any_thread one_shots_stop_after_the_first_signal one_shots_and_regular_handles_mix
    one_shots_are_called_after_regular_handles starting_again_replaces_the_callback starting_with_another_number_moves_the_handle
    the_last_stop_restores_the_disposition a_handle_may_stop_or_close_itself
    a_closed_handle_gets_no_pending_signal signals_before_the_start_are_not_delivered a_one_shot_may_be_restarted
    one_shots_alone_restore_the_disposition_at_the_first_signal are_delivered_last_of_a_batch
    handlers_do_not_interrupt_system_calls
    follow_data_that_arrived_before_them follow_data_that_another_signal_sent
}
