//! Point 16: how handles end.

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use poll_core::Backend;
use uv_core::{
    Async, Check, Handle, Idle, Loop, Poll, PollEvents, Prepare, RunMode, Stream, Tcp, Timer, Udp,
};

use crate::support::datagrams;
use crate::support::loops::{AN_HOUR, ZERO, keep_alive, new_loop, run, run_to_the_end, timer_in};
use crate::support::sources::{arrived, send, tcp_pair, udp_pair};
use crate::support::streams::{bound, connected, fill_up, outcome};
use crate::support::trace::{Count, Log, Trace};
use crate::{Lab, Verdict};

/// Close callbacks of one iteration run in the reverse of the order of closing.
pub fn calls_back_in_reverse_order<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (timer, idle) = (Timer::new(&mut lp), Idle::new(&mut lp));
    let (check, handle) = (Check::new(&mut lp), Async::new(&mut lp, |_, _| {}).0);
    idle.close_with(&mut lp, trace.noting("first")).unwrap();
    handle.close_with(&mut lp, trace.noting("second")).unwrap();
    timer.close_with(&mut lp, trace.noting("third")).unwrap();
    check.close_with(&mut lp, trace.noting("fourth")).unwrap();
    run_to_the_end(&mut lp);
    trace.expect(&["fourth", "third", "second", "first"], "the last closed comes first");
    Ok(())
}

/// A close callback never runs inside `close_with`, but in the closing phase, even if
/// nothing has to be waited for.
pub fn never_calls_back_inline<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    Timer::new(&mut lp).close_with(&mut lp, trace.noting("closed")).unwrap();
    trace.expect(&[], "outside of a run");
    let note = trace.clone();
    lp.defer(move |lp| {
        Idle::new(lp).close_with(lp, note.noting("idle closed")).unwrap();
        note.expect(&[], "in a callback");
    });
    run_to_the_end(&mut lp);
    trace.expect(&["idle closed", "closed"], "both later");
    Ok(())
}

/// What is closed before or in an iteration is told at its end, after the check
/// watchers and before the timers.
pub fn comes_after_the_check_watchers<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let [before, polled, checked] = [(); 3].map(|()| Timer::new(&mut lp));
    before.close_with(&mut lp, trace.noting("closed before")).unwrap();
    let note = trace.clone();
    let (_, sender) = Async::new(&mut lp, move |lp, handle| {
        note.note("async");
        polled.close_with(lp, note.noting("closed in the poll")).unwrap();
        handle.close(lp).unwrap();
    });
    sender.send().unwrap();
    let note = trace.clone();
    let on_check = move |lp: &mut Loop<T>, check: Check| {
        note.note("check");
        checked.close_with(lp, note.noting("closed in check")).unwrap();
        check.close(lp).unwrap();
        timer_in(lp, ZERO, note.noting("timer"));
    };
    Check::new(&mut lp).start(&mut lp, on_check).unwrap();
    assert!(!run(&mut lp, RunMode::Once), "one iteration is enough");
    let expected =
        ["async", "check", "closed in check", "closed in the poll", "closed before", "timer"];
    trace.expect(&expected, "the closing phase comes after check and before the timers");
    Ok(())
}

/// A handle that is closed by a close callback is told of in the next iteration, which
/// does not block; so the closing phase always ends.
pub fn from_a_close_callback_waits_an_iteration<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    keep_alive(&mut lp).unreference(&mut lp).unwrap();
    let prepare = Prepare::new(&mut lp);
    prepare.start(&mut lp, trace.noting("prepare")).unwrap();
    prepare.unreference(&mut lp).unwrap();
    let (first, second) = (Timer::new(&mut lp), Timer::new(&mut lp));
    let note = trace.clone();
    let closed = move |lp: &mut Loop<T>, _| {
        note.note("first");
        second.close_with(lp, note.noting("second")).unwrap();
    };
    first.close_with(&mut lp, closed).unwrap();
    Timer::new(&mut lp).close_with(&mut lp, trace.noting("zeroth")).unwrap();
    run_to_the_end(&mut lp);
    trace.expect(&["prepare", "zeroth", "first", "prepare", "second"], "two iterations");
    Ok(())
}

/// Closing stops at once: no callback but the close callback runs afterwards, even if
/// it was due already.
pub fn stops_at_once<T: Backend>(lab: &Lab<T>) -> Verdict {
    fn never<T: Backend, H>(_: &mut Loop<T>, _: H) {
        panic!("a closed handle has called back");
    }
    let mut lp = new_loop(lab)?;
    let (near, far) = tcp_pair();
    send(&far, b"x");
    arrived(&near);
    let timer = timer_in(&mut lp, ZERO, never);
    let (idle, prepare) = (Idle::new(&mut lp), Prepare::new(&mut lp));
    idle.start(&mut lp, never).unwrap();
    prepare.start(&mut lp, never).unwrap();
    let check = Check::new(&mut lp);
    check.start(&mut lp, never).unwrap();
    let (handle, sender) = Async::new(&mut lp, never);
    sender.send().unwrap();
    let poll = Poll::new(&mut lp, near).expect("a poll");
    poll.start(&mut lp, PollEvents::READABLE, |lp, poll, _| never(lp, poll)).unwrap();
    let closed = Count::default();
    for handle in lp.walk() {
        assert!(handle.is_active(&lp));
        let count = closed.clone();
        handle.close_with(&mut lp, move |_, _| count.count()).unwrap();
        assert!(!handle.is_active(&lp), "{handle} is active after its close");
        assert!(handle.is_closing(&lp), "{handle} is not closing");
    }
    assert!(sender.send().is_err(), "nobody is there to be called");
    run_to_the_end(&mut lp);
    assert_eq!(closed.get(), 6, "each handle has told of its end");
    drop((timer, idle, prepare, check, handle, far));
    Ok(())
}

/// Closing a handle that is closing is an error, and its first callback stays.
pub fn twice_is_an_error<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let timer = Timer::new(&mut lp);
    timer.close_with(&mut lp, trace.noting("first")).unwrap();
    let held = Rc::new(());
    let keep = Rc::clone(&held);
    let again = timer.close_with(&mut lp, move |_, _| panic!("called, with {keep:?}"));
    assert_eq!(again.expect_err("closing twice").kind(), ErrorKind::InvalidInput);
    assert_eq!(Rc::strong_count(&held), 1, "the second callback was dropped");
    assert_eq!(timer.close(&mut lp).expect_err("thrice").kind(), ErrorKind::InvalidInput);
    run_to_the_end(&mut lp);
    trace.expect(&["first"], "the first close counts");
    assert_eq!(timer.close(&mut lp).expect_err("it is gone").kind(), ErrorKind::NotFound);
    Ok(())
}

/// A closing handle keeps the loop alive until its callback has run, even if it was
/// never active or is unreferenced, and keeps the poll from blocking.
pub fn keeps_the_loop_alive<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    for mode in [RunMode::Default, RunMode::Once, RunMode::NoWait] {
        let timer = Timer::new(&mut lp);
        timer.unreference(&mut lp).unwrap();
        assert!(!lp.alive());
        timer.close_with(&mut lp, trace.noting("closed")).unwrap();
        assert!(lp.alive(), "a handle is closing");
        assert!(!run(&mut lp, mode), "{mode:?}: it was closed");
        trace.expect(&["closed"], "one iteration is enough");
    }
    keep_alive(&mut lp);
    let timer = Timer::new(&mut lp);
    timer.close_with(&mut lp, trace.noting("closed")).unwrap();
    assert!(run(&mut lp, RunMode::Once), "a timer is left");
    trace.expect(&["closed"], "the poll does not block for an hour");
    Ok(())
}

/// A handle may be closed by its own callback, which is the last.
pub fn works_in_the_handles_own_callback<T: Backend>(lab: &Lab<T>) -> Verdict {
    fn close<T: Backend, H: Handle>(
        count: &Count,
        held: &Rc<()>,
    ) -> impl FnMut(&mut Loop<T>, H) + use<T, H> {
        let (count, held) = (count.clone(), Rc::clone(held));
        move |lp, handle| {
            count.add();
            let count = count.clone();
            handle.close_with(lp, move |_, _| count.count()).unwrap();
            assert!(!handle.is_active(lp) && handle.is_closing(lp));
            assert!(Rc::strong_count(&held) > 1, "what it captured is still there");
        }
    }
    let (mut lp, count, held) = (new_loop(lab)?, Count::default(), Rc::new(()));
    let repeat = Duration::from_nanos(1);
    Timer::new(&mut lp).start(&mut lp, ZERO, repeat, close(&count, &held)).unwrap();
    Idle::new(&mut lp).start(&mut lp, close(&count, &held)).unwrap();
    Prepare::new(&mut lp).start(&mut lp, close(&count, &held)).unwrap();
    Check::new(&mut lp).start(&mut lp, close(&count, &held)).unwrap();
    let (_, sender) = Async::new(&mut lp, close(&count, &held));
    sender.send().unwrap();
    let poll = Poll::new(&mut lp, udp_pair().0).expect("a poll");
    let mut on_writable = close(&count, &held);
    poll.start(&mut lp, PollEvents::WRITABLE, move |lp, poll, _| on_writable(lp, poll)).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(count.get(), 6 * 2, "each of six was called once and closed once");
    assert_eq!(Rc::strong_count(&held), 1, "every callback was dropped");
    assert!(lp.close().is_ok(), "nothing is left");
    Ok(())
}

/// A handle may be closed without a callback; it goes all the same, and what its own
/// callback captured with it.
pub fn needs_no_callback<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, held) = (new_loop(lab)?, Rc::new(()));
    let keep = Rc::clone(&held);
    let timer = timer_in(&mut lp, AN_HOUR, move |_, _| drop(Rc::clone(&keep)));
    assert_eq!(Rc::strong_count(&held), 2);
    timer.close(&mut lp).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(Rc::strong_count(&held), 1, "the callback was dropped");
    assert!(lp.walk().is_empty(), "the handle is gone");
    Ok(())
}

/// A handle that is closing can be asked and stopped, but not started: that is
/// `InvalidInput`. So it is in its close callback; afterwards the key is stale.
pub fn starting_a_closing_handle_is_an_error<T: Backend>(lab: &Lab<T>) -> Verdict {
    fn refuse<T: Backend>(lp: &mut Loop<T>, timer: Timer, idle: Idle, poll: Poll) {
        let never = |_: &mut Loop<T>, _| panic!("started while it was closing");
        let refused = [
            timer.start(lp, ZERO, ZERO, never),
            timer.again(lp),
            idle.start(lp, |_, _| panic!("started while it was closing")),
            poll.start(lp, PollEvents::WRITABLE, |_, _, _| panic!("started while closing")),
        ];
        for result in refused {
            assert_eq!(result.expect_err("it is closing").kind(), ErrorKind::InvalidInput);
        }
        timer.stop(lp).expect("a stop changes nothing");
        idle.stop(lp).expect("a stop changes nothing");
        poll.stop(lp).expect("a stop changes nothing");
        assert!(timer.is_closing(lp) && timer.has_ref(lp) && timer.due_in(lp).is_none());
    }
    let (mut lp, closed) = (new_loop(lab)?, Count::default());
    let timer = Timer::new(&mut lp);
    timer.start(&mut lp, AN_HOUR, AN_HOUR, |_, _| {}).unwrap();
    let idle = Idle::new(&mut lp);
    let poll = Poll::new(&mut lp, udp_pair().0).expect("a poll");
    idle.close(&mut lp).unwrap();
    poll.close(&mut lp).unwrap();
    let count = closed.clone();
    let callback = move |lp: &mut Loop<T>, timer| {
        count.add();
        refuse(lp, timer, idle, poll);
    };
    // Closed last, so that its callback runs while the others are closing.
    timer.close_with(&mut lp, callback).unwrap();
    refuse(&mut lp, timer, idle, poll);
    run_to_the_end(&mut lp);
    assert_eq!(closed.get(), 1, "the close callback");
    assert_eq!(timer.stop(&mut lp).expect_err("it is gone").kind(), ErrorKind::NotFound);
    Ok(())
}

/// A stream or a socket is told of its end once, after all that it was asked for, whatever it has
/// in flight; handles that have nothing in flight are told in the reverse of the order of
/// closing.
pub fn operations_in_flight_end_before_it<T: Backend>(lab: &Lab<T>) -> Verdict {
    fn close<T: Backend>(lp: &mut Loop<T>, handle: impl Handle, name: &'static str, log: &Told) {
        let log = log.clone();
        handle.close_with(lp, move |_, _| log.push((name, "closed"))).unwrap();
    }
    type Told = Log<(&'static str, &'static str)>;
    let (mut lp, log) = (new_loop(lab)?, Told::default());
    let (reader, _far) = connected(&mut lp);
    reader.read_start(&mut lp, |_, _, _| panic!("a closed stream is read")).unwrap();
    let (writer, _peer) = connected(&mut lp);
    fill_up(&mut lp, writer);
    writer.write(&mut lp, "waits", log.written("writer")).unwrap();
    let told = log.clone();
    let pulled = move |_: &mut Loop<T>, _, result, _| told.push(("writer", outcome(&result)));
    writer.read(&mut lp, vec![0; 16], pulled).unwrap();
    let (server, _) = bound(&mut lp);
    server.listen(&mut lp, 16, |_, _, _| panic!("a closed listener accepts")).unwrap();
    let told = log.clone();
    let accepts = move |_: &mut Loop<T>, _, result| told.push(("server", outcome(&result)));
    server.accept_with(&mut lp, accepts).unwrap();
    let (udp, _) = datagrams::bound(&mut lp);
    udp.recv_start(&mut lp, |_, _, _| panic!("a closed socket receives")).unwrap();
    run(&mut lp, RunMode::NoWait); // The kernel has all of it.

    let (timer, tcp) = (keep_alive(&mut lp), Tcp::new(&mut lp));
    close(&mut lp, timer, "timer", &log);
    close(&mut lp, reader, "reader", &log);
    close(&mut lp, tcp, "unused stream", &log);
    close(&mut lp, writer, "writer", &log);
    let unused = Udp::new(&mut lp);
    close(&mut lp, unused, "unused socket", &log);
    close(&mut lp, server, "server", &log);
    close(&mut lp, udp, "socket", &log);
    let idle = Idle::new(&mut lp);
    close(&mut lp, idle, "idle", &log);
    assert_eq!(log.len(), 0, "nothing is told inline");
    run_to_the_end(&mut lp);

    let told = log.take();
    let of = |name| -> Vec<_> {
        told.iter().filter(|(of, _)| *of == name).map(|(_, what)| *what).collect()
    };
    for name in ["reader", "socket"] {
        assert_eq!(of(name), ["closed"], "{name}");
    }
    assert_eq!(of("writer"), ["cancelled", "cancelled", "closed"], "both requests first");
    assert_eq!(of("server"), ["cancelled", "closed"], "the request first");
    let idle_ones = ["timer", "unused stream", "unused socket", "idle"];
    let order: Vec<_> =
        told.iter().map(|(name, _)| *name).filter(|name| idle_ones.contains(name)).collect();
    assert_eq!(order, ["idle", "unused socket", "unused stream", "timer"], "the last first");
    assert!(lp.close().is_ok(), "nothing is left");
    Ok(())
}
