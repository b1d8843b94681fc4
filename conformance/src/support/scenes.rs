//! Loops with work in every phase.

use uv_core::{Async, Check, Handle, Idle, Poll, PollEvents, Prepare, Timer};

use super::loops::{ZERO, timer_in};
use super::trace::Trace;
use crate::Loop;

/// Starts a prepare and a check watcher that record their names and do not keep the loop alive:
/// they mark the begin and the end of an iteration.
pub(crate) fn mark_iterations(lp: &mut Loop, trace: &Trace) -> (Prepare, Check) {
    let (prepare, check) = (Prepare::new(lp), Check::new(lp));
    prepare.start(lp, trace.noting("prepare")).unwrap();
    check.start(lp, trace.noting("check")).unwrap();
    prepare.unreference(lp).unwrap();
    check.unreference(lp).unwrap();
    (prepare, check)
}

/// Schedules a callback in every phase of one iteration.
pub(crate) fn every_phase(lp: &mut Loop, trace: &Trace) {
    // Started in the reverse of the expected order, as far as possible.
    let check = Check::new(lp);
    check.start(lp, trace.then("check", |lp, check: Check| check.close(lp).unwrap())).unwrap();
    let closing = trace.clone();
    let closing = move |lp: &mut Loop, _: Async| {
        closing.note("closing");
        timer_in(lp, ZERO, closing.noting("timer again"));
    };
    let (pending, mut closing) = (trace.clone(), Some(closing));
    let polled = trace.then("poll", move |lp: &mut Loop, handle: Async| {
        lp.defer(pending.once("pending again"));
        handle.close_with(lp, closing.take().expect("sent to once")).unwrap();
    });
    let (_, sender) = Async::new(lp, polled);
    sender.send().unwrap();
    let prepare = Prepare::new(lp);
    let stop = |lp: &mut Loop, prepare: Prepare| prepare.close(lp).unwrap();
    prepare.start(lp, trace.then("prepare", stop)).unwrap();
    let idle = Idle::new(lp);
    idle.start(lp, trace.then("idle", |lp, idle: Idle| idle.close(lp).unwrap())).unwrap();
    lp.defer(trace.once("pending"));
    timer_in(lp, ZERO, trace.noting("timer"));
}

/// Starts one of each source of callbacks, which call `called` nine times in total.
pub(crate) fn call_everything(
    lp: &mut Loop,
    timer: Timer,
    readable: std::net::TcpStream,
    called: impl Fn() + Clone + 'static,
) {
    fn one_call<H: Handle>(called: impl Fn()) -> impl FnMut(&mut Loop, H) {
        move |lp, handle| {
            called();
            handle.close(lp).unwrap();
        }
    }
    timer.start(lp, ZERO, ZERO, one_call(called.clone())).unwrap();
    Idle::new(lp).start(lp, one_call(called.clone())).unwrap();
    Prepare::new(lp).start(lp, one_call(called.clone())).unwrap();
    Check::new(lp).start(lp, one_call(called.clone())).unwrap();
    let (_, sender) = Async::new(lp, one_call(called.clone()));
    sender.send().unwrap();
    let (poll, mut close) = (Poll::new(lp, readable).expect("a poll"), one_call(called.clone()));
    poll.start(lp, PollEvents::READABLE, move |lp, poll, _| close(lp, poll)).unwrap();
    let deferred = called.clone();
    lp.defer(move |_| deferred());
    let closed = called.clone();
    Timer::new(lp).close_with(lp, move |_, _| closed()).unwrap();
    lp.queue_work(|| {}, move |_, _| called()).expect("a pool");
}
