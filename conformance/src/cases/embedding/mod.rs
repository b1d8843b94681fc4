//! Point 25: loops in loops of others, in many threads, in forked children.

#[cfg(unix)]
mod forks;
#[cfg(unix)]
mod outside;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use poll_core::Backend;
use uv_core::{Async, Channel, Handle, Idle, Loop, Poll, PollEvents, RunMode, Timer};

#[cfg(not(unix))]
use crate::Skip;
use crate::support::limits::leaves_no_descriptor;
use crate::support::loops::{ZERO, new_loop, run, run_to_the_end, timer_in};
use crate::support::sources::tcp_pair;
use crate::{Lab, Verdict};

#[cfg(unix)]
pub use forks::*;
#[cfg(unix)]
pub use outside::*;

/// `backend_timeout` is how long another poller may sleep before it runs the loop: for
/// ever, until the next timer, or not at all.
pub fn the_timeout_says_how_long<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    assert_eq!(lp.backend_timeout(), Some(ZERO), "a loop with nothing to do does not wait");
    let (handle, _) = Async::new(&mut lp, |_: &mut Loop<T>, _| {});
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
    assert_eq!(lp.backend_timeout(), None, "the stop is used up");
    handle.unreference(&mut lp).expect("an open handle");
    assert_eq!(lp.backend_timeout(), Some(ZERO), "nothing that keeps the loop");
    Ok(())
}

/// A ring of loops in as many threads, and a token that goes around: each loop is its
/// thread's own, and they reach each other through what is handed out.
pub fn loops_in_many_threads<T: Backend>(lab: &Lab<T>) -> Verdict {
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
                    Channel::new(&mut lp, move |lp: &mut Loop<T>, channel, hops: u32| {
                        let to = to.get_or_insert_with(|| next.recv().expect("a neighbour"));
                        // The last rounds tell everyone to end.
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

/// A loop that is dropped, its handles in whatever state, leaves no descriptor behind.
pub fn no_descriptor_is_left_behind<T: Backend>(lab: &Lab<T>) -> Verdict {
    leaves_no_descriptor(|| {
        let mut lp = new_loop(lab)?;
        let (near, far) = tcp_pair();
        let poll = Poll::new(&mut lp, near).expect("a poll");
        poll.start(&mut lp, PollEvents::WRITABLE, |_, _, _| {}).expect("a started poll");
        Poll::new(&mut lp, far).expect("a poll that is never started");
        let (closed, peer) = tcp_pair();
        let closed = Poll::new(&mut lp, closed).expect("a poll");
        let (_, sender) = Async::new(&mut lp, |_: &mut Loop<T>, _| {});
        run(&mut lp, RunMode::NoWait);
        closed.close(&mut lp).expect("an open poll");
        sender.send().expect("an open handle");
        drop((lp, peer));
        Ok(())
    })
}

/// The cases that need a descriptor of the loop's own, or a fork.
#[cfg(not(unix))]
macro_rules! unix_alone {
    ($($name:ident: $why:literal;)*) => { $(
        /// Needs what Windows has not.
        pub fn $name<T: Backend>(_lab: &Lab<T>) -> Verdict {
            Err(Skip::because($why))
        }
    )* };
}

#[cfg(not(unix))]
unix_alone! {
    another_poller_drives_the_loop: "no backend has a descriptor of its own on Windows";
    a_loop_runs_inside_another: "no backend has a descriptor of its own on Windows";
    each_event_wakes_another_poller: "no backend has a descriptor of its own on Windows";
    what_a_timer_starts_wakes_another_poller: "no backend has a descriptor of its own on Windows";
    an_echo_is_driven_from_outside: "no backend has a descriptor of its own on Windows";
    requests_end_outside: "no backend has a descriptor of its own on Windows";
    a_forked_child_carries_on: "Windows has no fork";
    what_came_before_a_fork_is_the_parents: "Windows has no fork";
    work_in_flight_is_cancelled_in_a_child: "Windows has no fork";
    a_connect_goes_on_in_a_child: "Windows has no fork";
    reads_go_on_in_a_child: "Windows has no fork";
    listeners_and_receivers_go_on_in_a_child: "Windows has no fork";
    writes_go_on_in_a_child: "Windows has no fork";
    files_in_flight_are_cancelled_in_a_child: "Windows has no fork";
    a_parent_survives_careless_children: "Windows has no fork";
}
