//! Point 25: loops driven by other pollers, in many threads, and in forked children.

#[cfg(unix)]
mod forks;
#[cfg(unix)]
mod pollers;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use uv_core::{Async, Channel, Handle, Idle, Poll, PollEvents, RunMode, Timer};

#[cfg(not(unix))]
use crate::Skip;
use crate::support::limits::leaks_no_descriptor;
use crate::support::loops::{ZERO, new_loop, run, run_to_the_end, timer_in};
use crate::support::sources::tcp_pair;
use crate::{Lab, Loop, Verdict};

#[cfg(unix)]
pub use forks::*;
#[cfg(unix)]
pub use pollers::*;

/// `backend_timeout` is how long another poller may block before it runs the loop: without a limit,
/// until the next timer, or not at all.
pub fn the_backend_timeout_covers_pending_work(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    assert_eq!(lp.backend_timeout(), Some(ZERO), "an idle loop does not wait");
    let (handle, _) = Async::new(&mut lp, |_: &mut Loop, _| {});
    assert_eq!(lp.backend_timeout(), None, "until a send");
    let hour = Duration::from_secs(3600);
    let timer = timer_in(&mut lp, hour, |_, _| {});
    assert_eq!(lp.backend_timeout(), Some(hour), "until the timer, from the loop's time on");
    timer.stop(&mut lp).expect("an open timer");
    assert_eq!(lp.backend_timeout(), None, "it was stopped");

    let idle = Idle::new(&mut lp);
    idle.start(&mut lp, |_, _| {}).expect("an idle");
    assert_eq!(lp.backend_timeout(), Some(ZERO), "an idle watcher");
    idle.stop(&mut lp).expect("an open idle");
    lp.defer(|_| {});
    assert_eq!(lp.backend_timeout(), Some(ZERO), "a deferred callback");
    run(&mut lp, RunMode::NoWait);
    idle.close(&mut lp).expect("an open idle");
    assert_eq!(lp.backend_timeout(), Some(ZERO), "a handle that closes");
    run(&mut lp, RunMode::NoWait);
    lp.stop();
    assert_eq!(lp.backend_timeout(), Some(ZERO), "a stop");
    run(&mut lp, RunMode::NoWait);
    assert_eq!(lp.backend_timeout(), None, "the run consumed the stop");
    handle.unreference(&mut lp).expect("an open handle");
    assert_eq!(lp.backend_timeout(), Some(ZERO), "no handle keeps the loop alive");
    Ok(())
}

/// A ring of loops, one per thread, passes a token around through channels. Each loop belongs to
/// its thread.
pub fn loops_in_threads_are_independent(lab: &Lab) -> Verdict {
    const LOOPS: usize = 4;
    const HOPS: u32 = 2_000;
    drop(lab.backend()?);
    thread::scope(|scope| {
        let (made, senders) = mpsc::channel();
        let mut neighbours = Vec::new();
        for index in 0..LOOPS {
            let made = made.clone();
            let (neighbour, next) = mpsc::channel::<uv_core::Sender<u32>>();
            neighbours.push(neighbour);
            scope.spawn(move || {
                let mut lp = Loop::new(lab.backend().expect("a backend, as before"));
                let mut to = None;
                let (_, sender) =
                    Channel::new(&mut lp, move |lp: &mut Loop, channel, hops: u32| {
                        let to = to.get_or_insert_with(|| next.recv().expect("a neighbour"));
                        // The last round closes every channel.
                        if hops + LOOPS as u32 > HOPS {
                            channel.handle().close(lp).expect("an open channel");
                        }
                        if hops < HOPS {
                            to.send(hops + 1).expect("an open channel");
                        }
                    });
                let tick = Duration::from_micros(100);
                let timer = Timer::new(&mut lp);
                timer.start(&mut lp, tick, tick, |_, _| {}).expect("a timer");
                timer.unreference(&mut lp).expect("an open timer");
                made.send((index, sender)).expect("a case that listens");
                run_to_the_end(&mut lp);
            });
        }
        let mut ring: Vec<_> = senders.iter().take(LOOPS).collect();
        ring.sort_by_key(|(index, _)| *index);
        for (index, neighbour) in neighbours.iter().enumerate() {
            let (_, sender) = &ring[(index + 1) % LOOPS];
            neighbour.send(sender.clone()).expect("a loop that listens");
        }
        ring[0].1.send(1).expect("an open channel");
    });
    Ok(())
}

/// A dropped loop leaks no descriptor, whatever the state of its handles.
pub fn no_descriptor_leaks(lab: &Lab) -> Verdict {
    leaks_no_descriptor(|| {
        let mut lp = new_loop(lab)?;
        let (near, far) = tcp_pair();
        let poll = Poll::new(&mut lp, near).expect("a poll");
        poll.start(&mut lp, PollEvents::WRITABLE, |_, _, _| {}).expect("a started poll");
        Poll::new(&mut lp, far).expect("a poll that is never started");
        let (closed, peer) = tcp_pair();
        let closed = Poll::new(&mut lp, closed).expect("a poll");
        let (_, sender) = Async::new(&mut lp, |_: &mut Loop, _| {});
        run(&mut lp, RunMode::NoWait);
        closed.close(&mut lp).expect("an open poll");
        sender.send().expect("an open handle");
        drop((lp, peer));
        Ok(())
    })
}

/// The cases that need the loop's own descriptor, or a fork.
#[cfg(not(unix))]
macro_rules! unix_only {
    ($($name:ident: $why:literal;)*) => { $(
        /// Needs a facility that Windows lacks.
        pub fn $name(_lab: &Lab) -> Verdict {
            Err(Skip::because($why))
        }
    )* };
}

#[cfg(not(unix))]
unix_only! {
    another_poller_drives_the_loop: "no backend on Windows has its own descriptor";
    a_loop_runs_inside_another: "no backend on Windows has its own descriptor";
    each_event_wakes_another_poller: "no backend on Windows has its own descriptor";
    sources_started_by_a_timer_wake_another_poller: "no backend on Windows has its own descriptor";
    another_poller_drives_an_echo: "no backend on Windows has its own descriptor";
    another_poller_completes_requests: "no backend on Windows has its own descriptor";
    a_forked_child_continues_the_loop: "Windows has no fork";
    sends_and_signals_before_a_fork_stay_in_the_parent: "Windows has no fork";
    work_in_flight_is_cancelled_in_a_child: "Windows has no fork";
    a_connect_continues_in_a_child: "Windows has no fork";
    reads_continue_in_a_child: "Windows has no fork";
    listeners_and_receivers_continue_in_a_child: "Windows has no fork";
    writes_continue_in_a_child: "Windows has no fork";
    file_operations_in_flight_are_cancelled_in_a_child: "Windows has no fork";
    a_child_does_not_remove_a_bound_path: "Windows has no fork";
    a_parent_is_unaffected_by_its_children: "Windows has no fork";
    a_fork_call_without_a_fork_changes_nothing: "Windows has no fork";
}
