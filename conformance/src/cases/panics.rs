//! Point 24: callbacks that panic.
//!
//! In every case something else is due beside the callback that panics: it is called when
//! the loop runs again. The panics are raised without a message on the standard error
//! stream.

use std::io::ErrorKind;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use poll_core::Backend;
use uv_core::{
    Async, AsyncSender, Channel, Check, Handle, Idle, Lane, Loop, Poll, PollEvents, Pool, Prepare,
    RunMode, Timer,
};

use crate::support::loops::{
    ZERO, new_loop, panic_on_purpose, run, run_to_the_end, spend, unwinds,
};
use crate::support::sources::{arrived, send, tcp_pair};
use crate::support::trace::Trace;
use crate::{Lab, Verdict};

const MS: Duration = Duration::from_millis(1);

/// Something that a callback captures, to see when it is dropped.
type Held = Rc<()>;

/// Panics, and drops what it was given by unwinding.
fn panic(_held: &Held) -> ! {
    panic_on_purpose()
}

/// A callback that panics, with something captured.
fn panics<T: Backend, H: Handle>(held: &Held) -> impl FnMut(&mut Loop<T>, H) + use<T, H> + 'static {
    let held = Rc::clone(held);
    move |_, _| panic(&held)
}

/// Asserts that what the callback captured is gone.
#[track_caller]
fn dropped(held: &Held) {
    assert_eq!(Rc::strong_count(held), 1, "what the callback captured is dropped");
}

/// An async that writes its name once, and closes itself.
fn noting_once<T: Backend>(lp: &mut Loop<T>, trace: &Trace, name: &'static str) -> AsyncSender {
    let close = |lp: &mut Loop<T>, handle: Async| handle.close(lp).expect("an open handle");
    Async::new(lp, trace.then(name, close)).1
}

/// A timer is stopped; timers that were due with it fire in the next run.
pub fn in_a_timer<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (trace, held) = (Trace::default(), Held::default());
    let [before, bad, after] = [(); 3].map(|()| Timer::new(&mut lp));
    before.start(&mut lp, MS, ZERO, trace.noting("before")).expect("a timer");
    bad.start(&mut lp, MS, MS, panics(&held)).expect("a timer");
    after.start(&mut lp, MS, ZERO, trace.noting("after")).expect("a timer");
    spend(&lp, 2 * MS);
    unwinds(&mut lp, RunMode::Default);
    trace.expect(&["before"], "until the panic");
    assert!(!bad.is_active(&lp) && after.is_active(&lp), "stopped, and due");
    dropped(&held);
    has_nothing_to_do_again(&mut lp, bad);
    assert_eq!(lp.backend_timeout(), Some(ZERO), "the rest is due");
    run_to_the_end(&mut lp);
    trace.expect(&["after"], "after the panic");
    bad.start(&mut lp, MS, ZERO, trace.noting("anew")).expect("a timer may start anew");
    run_to_the_end(&mut lp);
    trace.expect(&["anew"], "with a new callback");
    let captures_nothing = |_: &mut Loop<T>, _| panic(&Held::default());
    bad.start(&mut lp, MS, ZERO, captures_nothing).expect("a timer");
    unwinds(&mut lp, RunMode::Default);
    has_nothing_to_do_again(&mut lp, bad);
    bad.set_repeat(&mut lp, MS).expect("a timer");
    has_nothing_to_do_again(&mut lp, bad);
    run_to_the_end(&mut lp);
    Ok(())
}

/// Asserts that the timer has lost its callback.
#[track_caller]
fn has_nothing_to_do_again<T: Backend>(lp: &mut Loop<T>, timer: Timer) {
    let again = timer.again(lp).map_err(|error| error.kind());
    assert_eq!(again, Err(ErrorKind::InvalidInput), "there is nothing to do again");
}

macro_rules! watcher_cases {
    ($($(#[$doc:meta])* $name:ident $kind:ident;)*) => { $(
        $(#[$doc])*
        pub fn $name<T: Backend>(lab: &Lab<T>) -> Verdict {
            let mut lp = new_loop(lab)?;
            let (trace, held) = (Trace::default(), Held::default());
            let [after, bad, before] = [(); 3].map(|()| $kind::new(&mut lp));
            after.start(&mut lp, trace.noting("after")).expect("a watcher");
            bad.start(&mut lp, panics(&held)).expect("a watcher");
            before.start(&mut lp, trace.noting("before")).expect("a watcher");
            unwinds(&mut lp, RunMode::NoWait);
            trace.expect(&["before"], "until the panic");
            assert!(!bad.is_active(&lp), "stopped");
            dropped(&held);
            run(&mut lp, RunMode::NoWait);
            trace.expect(&["after", "before"], "the rest of the round comes first");
            bad.start(&mut lp, trace.noting("anew")).expect("a watcher");
            run(&mut lp, RunMode::NoWait);
            let mut seen = trace.take();
            seen.sort_unstable();
            assert_eq!(seen, ["after", "anew", "before"], "all three");
            Ok(())
        }
    )* };
}

watcher_cases! {
    /// An idle watcher is stopped; the rest of the phase runs in the next run.
    in_an_idle Idle;
    /// A prepare watcher is stopped; the rest of the phase runs in the next run.
    in_a_prepare Prepare;
    /// A check watcher is stopped; the rest of the phase runs in the next run.
    in_a_check Check;
}

/// An async is stopped, and its senders are told; asyncs that were due with it are called
/// in the next run.
pub fn in_an_async<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (trace, held) = (Trace::default(), Held::default());
    let before = noting_once(&mut lp, &trace, "before");
    let (bad, to_bad) = Async::new(&mut lp, panics(&held));
    let after = noting_once(&mut lp, &trace, "after");
    for sender in [&before, &to_bad, &after] {
        sender.send().expect("an open handle");
    }
    unwinds(&mut lp, RunMode::Default);
    trace.expect(&["before"], "until the panic");
    dropped(&held);
    assert!(!bad.is_active(&lp), "nothing is left to call");
    assert_eq!(to_bad.send().map_err(|it| it.kind()), Err(ErrorKind::BrokenPipe));
    run_to_the_end(&mut lp);
    trace.expect(&["after"], "without another send");
    bad.close(&mut lp).expect("it can be closed");
    run_to_the_end(&mut lp);
    assert!(lp.close().is_ok(), "nothing is open");
    Ok(())
}

/// A channel ends as an async does; the values that it has not delivered are dropped.
pub fn in_a_channel<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (held, value) = (Held::default(), Arc::new(()));
    let kept = Rc::clone(&held);
    let (bad, sender) = Channel::new(&mut lp, move |_: &mut Loop<T>, _, _: Arc<()>| panic(&kept));
    (0..5).for_each(|_| sender.send(Arc::clone(&value)).expect("an open channel"));
    unwinds(&mut lp, RunMode::Default);
    dropped(&held);
    assert_eq!(Arc::strong_count(&value), 1, "all five values are dropped");
    assert!(sender.send(Arc::clone(&value)).is_err(), "nobody takes it");
    assert!(!bad.handle().is_active(&lp), "nothing is left to call");
    run_to_the_end(&mut lp);
    Ok(())
}

/// A poll is stopped; the other sources of the batch are told of in the next run.
pub fn in_a_poll<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let pairs: [_; 3] = std::array::from_fn(|_| tcp_pair());
    for (near, far) in &pairs {
        send(far, b"x");
        arrived(near);
    }
    let (trace, held) = (Trace::default(), Held::default());
    let mut polls = Vec::new();
    for (near, _) in &pairs {
        let poll = Poll::new(&mut lp, near.try_clone().expect("a clone")).expect("a poll");
        let (noted, held) = (trace.clone(), Rc::clone(&held));
        // Which of them comes first is the backend's to choose: the first panics.
        let callback = move |lp: &mut Loop<T>, poll: Poll, _| {
            noted.note("called");
            if Rc::strong_count(&held) == 4 {
                panic(&held);
            }
            poll.close(lp).expect("an open poll");
        };
        poll.start(&mut lp, PollEvents::READABLE, callback).expect("a started poll");
        polls.push(poll);
    }
    unwinds(&mut lp, RunMode::Default);
    trace.expect(&["called"], "the first");
    assert_eq!(Rc::strong_count(&held), 3, "what it captured is dropped");
    let active = polls.iter().filter(|poll| poll.is_active(&lp)).count();
    assert_eq!(active, 2, "one is stopped");
    run_to_the_end(&mut lp);
    trace.expect(&["called", "called"], "the other two");
    dropped(&held);
    Ok(())
}

/// A panic in the callback of work comes out of `run`; what has ended with it is called
/// back in the next run.
pub fn in_a_work_callback<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, pool) = (new_loop(lab)?, Pool::new(1).expect("a pool"));
    let (trace, held) = (Trace::default(), Held::default());
    let names = ["one", "bad", "three", "four"];
    for name in names {
        let (noted, held) = (trace.clone(), Rc::clone(&held));
        let done = move |_: &mut Loop<T>, result: Result<(), _>| {
            result.expect("a result");
            noted.note(name);
            if name == "bad" {
                panic(&held);
            }
        };
        lp.queue_work_on(&pool, Lane::Cpu, || {}, done).expect("queued work");
    }
    while pool.queued() + pool.active() > 0 {
        thread::yield_now();
    }
    unwinds(&mut lp, RunMode::Default);
    trace.expect(&["one", "bad"], "until the panic");
    assert!(lp.alive(), "two are due");
    run_to_the_end(&mut lp);
    trace.expect(&["three", "four"], "after the panic");
    dropped(&held);
    Ok(())
}

/// A handle whose close callback panics is closed; the others of the phase are told in the
/// next run, which does not wait for anything else.
pub fn in_a_close_callback<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (trace, held) = (Trace::default(), Held::default());
    // Keeps the loop, which would wait for ever if it forgot the rest of the phase.
    let (_, _sender) = Async::new(&mut lp, |_: &mut Loop<T>, _| {});
    let [after, bad, before] = [(); 3].map(|()| Timer::new(&mut lp));
    after.close_with(&mut lp, trace.noting("after")).expect("an open handle");
    bad.close_with(&mut lp, panics(&held)).expect("an open handle");
    before.close_with(&mut lp, trace.noting("before")).expect("an open handle");
    unwinds(&mut lp, RunMode::NoWait);
    trace.expect(&["before"], "until the panic");
    dropped(&held);
    assert!(bad.stop(&mut lp).is_err(), "its key is stale");
    assert_eq!(lp.backend_timeout(), Some(ZERO), "the rest is due");
    run(&mut lp, RunMode::Once);
    trace.expect(&["after"], "after the panic");
    Ok(())
}

/// A deferred callback that panics is gone; those deferred with it are called.
pub fn in_a_deferred_callback<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (trace, held) = (Trace::default(), Held::default());
    let kept = Rc::clone(&held);
    lp.defer(trace.once("before"));
    lp.defer(move |_| panic(&kept));
    lp.defer(trace.once("after"));
    unwinds(&mut lp, RunMode::Default);
    trace.expect(&["before"], "until the panic");
    dropped(&held);
    assert!(lp.alive(), "one is left");
    run_to_the_end(&mut lp);
    trace.expect(&["after"], "after the panic");
    Ok(())
}

/// What came with the event whose callback panics is not lost: work that ended and a send,
/// whose wake was used up by that wait, are told of in the next run without waiting.
pub fn leave_the_rest_of_a_wait<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, pool) = (new_loop(lab)?, Pool::new(1).expect("a pool"));
    let (near, far) = tcp_pair();
    send(&far, b"x");
    arrived(&near);
    let (trace, held) = (Trace::default(), Held::default());
    let (poll, kept) = (Poll::new(&mut lp, near).expect("a poll"), Rc::clone(&held));
    let bad = move |_: &mut Loop<T>, _, _| panic(&kept);
    poll.start(&mut lp, PollEvents::READABLE, bad).expect("a started poll");
    let sender = noting_once(&mut lp, &trace, "async");
    sender.send().expect("an open handle");
    let (noted, kept) = (trace.clone(), Rc::clone(&held));
    let done = move |_: &mut Loop<T>, _| {
        noted.note("work");
        panic(&kept);
    };
    lp.queue_work_on(&pool, Lane::Cpu, || {}, done).expect("queued work");
    while pool.queued() + pool.active() > 0 {
        thread::yield_now();
    }
    unwinds(&mut lp, RunMode::Default);
    trace.expect(&[], "the poll came first");
    unwinds(&mut lp, RunMode::Default);
    trace.expect(&["work"], "which panics too");
    dropped(&held);
    run_to_the_end(&mut lp);
    trace.expect(&["async"], "and was sent to before");
    Ok(())
}

/// A loop that a panic has left in the middle of everything drops cleanly, and all that it
/// held goes with it.
pub fn leave_a_loop_that_drops<T: Backend>(lab: &Lab<T>) -> Verdict {
    let held = Held::default();
    let mut lp = new_loop(lab)?;
    let keep = |_: &Loop<T>| {
        let kept = Rc::clone(&held);
        move || drop(Rc::clone(&kept))
    };
    for _ in 0..3 {
        let callback = keep(&lp);
        Timer::new(&mut lp).start(&mut lp, ZERO, ZERO, move |_, _| callback()).expect("a timer");
        let callback = keep(&lp);
        Idle::new(&mut lp).start(&mut lp, move |_, _| callback()).expect("an idle");
        let callback = keep(&lp);
        let (_, sender) = Async::new(&mut lp, move |_: &mut Loop<T>, _| callback());
        sender.send().expect("an open handle");
        let callback = keep(&lp);
        lp.queue_work(|| {}, move |_, _| callback()).expect("queued work");
        let callback = keep(&lp);
        lp.defer(move |_| callback());
        let callback = keep(&lp);
        let closed = Check::new(&mut lp);
        closed.close_with(&mut lp, move |_, _| callback()).expect("an open handle");
    }
    let bad = Prepare::new(&mut lp);
    bad.start(&mut lp, panics(&held)).expect("a prepare");
    unwinds(&mut lp, RunMode::Default);
    lp.defer(|_| panic_on_purpose());
    unwinds(&mut lp, RunMode::NoWait);
    drop(lp);
    dropped(&held);
    Ok(())
}

/// A signal handle is stopped; the other handles of the signal are told in the next run,
/// and of the signals after it.
#[cfg(unix)]
pub fn in_a_signal<T: Backend>(lab: &Lab<T>) -> Verdict {
    use crate::support::dispositions::{Changed, Disposition, raise};
    use uv_core::Signal;

    const SIGNUM: i32 = libc::SIGUSR1;
    let _ignored = Changed::to(SIGNUM, Disposition::Ignored);
    let mut lp = new_loop(lab)?;
    let (trace, held) = (Trace::default(), Held::default());
    let [before, bad, after] = [(); 3].map(|()| Signal::new(&mut lp));
    let noting = |name: &'static str| {
        let noted = trace.clone();
        move |_: &mut Loop<T>, _: Signal, _: i32| noted.note(name)
    };
    let kept = Rc::clone(&held);
    before.start(&mut lp, SIGNUM, noting("before")).expect("a signal");
    bad.start(&mut lp, SIGNUM, move |_, _, _| panic(&kept)).expect("a signal");
    after.start_oneshot(&mut lp, SIGNUM, noting("after")).expect("a signal");
    raise(SIGNUM);
    raise(SIGNUM);
    unwinds(&mut lp, RunMode::Once);
    trace.expect(&["before"], "until the panic");
    assert!(!bad.is_active(&lp), "stopped");
    dropped(&held);
    run(&mut lp, RunMode::Once);
    trace.expect(&["after", "before"], "the rest of the first signal, and the second");
    drop(lp);
    assert_eq!(Disposition::of(SIGNUM), Disposition::Ignored, "as before");
    Ok(())
}

/// A signal handle is stopped; the other handles of the signal are told in the next run.
#[cfg(not(unix))]
pub fn in_a_signal<T: Backend>(_lab: &Lab<T>) -> Verdict {
    let why = "Windows sends console events to every process of the console";
    Err(crate::Skip::because(why))
}
