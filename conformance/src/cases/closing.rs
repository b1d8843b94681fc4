//! Point 16: closing handles.

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use uv_core::{
    AnyHandle, Async, Check, Handle, Idle, Listener, Pipe, Poll, PollEvents, Prepare, Process,
    RunMode, Stream, Tcp, Timer, Udp,
};

use crate::support::children::spawn;
use crate::support::datagrams;
use crate::support::kinds::one_of_each;
use crate::support::loops::{AN_HOUR, ZERO, keep_alive, new_loop, run, run_to_the_end, timer_in};
use crate::support::program::child;
use crate::support::sources::{arrived, send, tcp_pair, udp_pair};
use crate::support::streams::{OVER_STREAM_BUFFERS, both_ends, bound, connected, fill_up, outcome};
use crate::support::trace::{Count, Log, Trace};
use crate::{Lab, Loop, Verdict};

/// Close callbacks of one iteration run in the reverse order of the close calls.
pub fn calls_back_in_reverse_order(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (timer, idle) = (Timer::new(&mut lp), Idle::new(&mut lp));
    let (check, handle) = (Check::new(&mut lp), Async::new(&mut lp, |_, _| {}).0);
    idle.close_with(&mut lp, trace.noting("first")).unwrap();
    handle.close_with(&mut lp, trace.noting("second")).unwrap();
    timer.close_with(&mut lp, trace.noting("third")).unwrap();
    check.close_with(&mut lp, trace.noting("fourth")).unwrap();
    run_to_the_end(&mut lp);
    trace.expect(&["fourth", "third", "second", "first"], "the last closed handle is first");
    Ok(())
}

/// A close callback never runs inside `close_with` but in the closing phase, even if nothing is
/// pending.
pub fn never_calls_back_inline(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    Timer::new(&mut lp).close_with(&mut lp, trace.noting("closed")).unwrap();
    trace.expect(&[], "outside of a run");
    let note = trace.clone();
    lp.defer(move |lp| {
        Idle::new(lp).close_with(lp, note.noting("idle closed")).unwrap();
        note.expect(&[], "in a callback");
    });
    run_to_the_end(&mut lp);
    trace.expect(&["idle closed", "closed"], "both in the closing phase");
    Ok(())
}

/// Handles closed before or in an iteration get their close callback at its end, after the check
/// watchers and before the timers.
pub fn runs_after_check_watchers(lab: &Lab) -> Verdict {
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
    let on_check = move |lp: &mut Loop, check: Check| {
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

/// The close callback of a handle that is closed by a close callback runs in the next iteration,
/// which does not block, so that the closing phase always ends.
pub fn in_a_close_callback_takes_another_iteration(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    keep_alive(&mut lp).unreference(&mut lp).unwrap();
    let prepare = Prepare::new(&mut lp);
    prepare.start(&mut lp, trace.noting("prepare")).unwrap();
    prepare.unreference(&mut lp).unwrap();
    let (first, second) = (Timer::new(&mut lp), Timer::new(&mut lp));
    let note = trace.clone();
    let closed = move |lp: &mut Loop, _| {
        note.note("first");
        second.close_with(lp, note.noting("second")).unwrap();
    };
    first.close_with(&mut lp, closed).unwrap();
    Timer::new(&mut lp).close_with(&mut lp, trace.noting("zeroth")).unwrap();
    run_to_the_end(&mut lp);
    trace.expect(&["prepare", "zeroth", "first", "prepare", "second"], "two iterations");
    Ok(())
}

/// Closing stops a handle immediately: only its close callback runs afterwards, even if another was
/// due.
pub fn stops_callbacks_immediately(lab: &Lab) -> Verdict {
    fn never<H>(_: &mut Loop, _: H) {
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
    assert!(sender.send().is_err(), "the handle is closed");
    run_to_the_end(&mut lp);
    assert_eq!(closed.get(), 6, "each close callback ran");
    drop((timer, idle, prepare, check, handle, far));
    Ok(())
}

/// Closing a closing handle is an error, and its first close callback stays.
pub fn twice_is_an_error(lab: &Lab) -> Verdict {
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
    trace.expect(&["first"], "the first close callback runs");
    assert_eq!(timer.close(&mut lp).expect_err("its key is stale").kind(), ErrorKind::NotFound);
    Ok(())
}

/// A closing handle keeps the loop alive until its callback has run, even if it was never active or
/// is unreferenced, and the poll does not block.
pub fn keeps_the_loop_alive(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    for mode in [RunMode::Default, RunMode::Once, RunMode::NoWait] {
        let timer = Timer::new(&mut lp);
        timer.unreference(&mut lp).unwrap();
        assert!(!lp.is_alive());
        timer.close_with(&mut lp, trace.noting("closed")).unwrap();
        assert!(lp.is_alive(), "a handle is closing");
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

/// A handle may be closed by its own callback, which is then its last.
pub fn works_in_own_callback(lab: &Lab) -> Verdict {
    fn close<H: Handle>(count: &Count, held: &Rc<()>) -> impl FnMut(&mut Loop, H) + use<H> {
        let (count, held) = (count.clone(), Rc::clone(held));
        move |lp, handle| {
            count.add();
            let count = count.clone();
            handle.close_with(lp, move |_, _| count.count()).unwrap();
            assert!(!handle.is_active(lp) && handle.is_closing(lp));
            assert!(Rc::strong_count(&held) > 1, "its captures are still alive");
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

/// A handle may be closed without a callback; its own callback and captures are dropped.
pub fn callback_is_optional(lab: &Lab) -> Verdict {
    let (mut lp, held) = (new_loop(lab)?, Rc::new(()));
    let keep = Rc::clone(&held);
    let timer = timer_in(&mut lp, AN_HOUR, move |_, _| drop(Rc::clone(&keep)));
    assert_eq!(Rc::strong_count(&held), 2);
    timer.close(&mut lp).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(Rc::strong_count(&held), 1, "the callback was dropped");
    assert!(lp.walk().is_empty(), "the handle is closed");
    Ok(())
}

/// A closing handle can be queried and stopped, but starting it is `InvalidInput`, also in its
/// close callback; afterwards its key is stale.
pub fn starting_a_closing_handle_is_an_error(lab: &Lab) -> Verdict {
    fn refuse(lp: &mut Loop, timer: Timer, idle: Idle, poll: Poll) {
        let never = |_: &mut Loop, _| panic!("started while it was closing");
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
        assert!(timer.is_closing(lp) && timer.is_referenced(lp) && timer.due_in(lp).is_none());
    }
    let (mut lp, closed) = (new_loop(lab)?, Count::default());
    let timer = Timer::new(&mut lp);
    timer.start(&mut lp, AN_HOUR, AN_HOUR, |_, _| {}).unwrap();
    let idle = Idle::new(&mut lp);
    let poll = Poll::new(&mut lp, udp_pair().0).expect("a poll");
    idle.close(&mut lp).unwrap();
    poll.close(&mut lp).unwrap();
    let count = closed.clone();
    let callback = move |lp: &mut Loop, timer| {
        count.add();
        refuse(lp, timer, idle, poll);
    };
    // Closed last, so that its callback runs while the others are closing.
    timer.close_with(&mut lp, callback).unwrap();
    refuse(&mut lp, timer, idle, poll);
    run_to_the_end(&mut lp);
    assert_eq!(closed.get(), 1, "the close callback");
    assert_eq!(timer.stop(&mut lp).expect_err("its key is stale").kind(), ErrorKind::NotFound);
    Ok(())
}

/// The close callback of a stream or a socket runs once, after the callbacks of all its pending
/// requests. Handles without requests get theirs in the reverse order of the close calls.
pub fn completes_requests_first(lab: &Lab) -> Verdict {
    fn close(lp: &mut Loop, handle: impl Handle, name: &'static str, log: &Ends) {
        let log = log.clone();
        handle.close_with(lp, move |_, _| log.push((name, "closed"))).unwrap();
    }
    type Ends = Log<(&'static str, &'static str)>;
    let (mut lp, log) = (new_loop(lab)?, Ends::default());
    let (reader, _far) = connected(&mut lp);
    reader.read_start(&mut lp, |_, _, _| panic!("a closed stream is read")).unwrap();
    let (writer, _peer) = connected(&mut lp);
    fill_up(&mut lp, writer);
    // Too large for room that a late acknowledgement makes.
    writer.write(&mut lp, vec![1; OVER_STREAM_BUFFERS], log.written("writer")).unwrap();
    let ends = log.clone();
    let pulled = move |_: &mut Loop, _, result, _| ends.push(("writer", outcome(&result)));
    writer.read(&mut lp, vec![0; 16], pulled).unwrap();
    let (server, _) = bound(&mut lp);
    server.listen(&mut lp, 16, |_, _, _| panic!("a closed listener accepts")).unwrap();
    let ends = log.clone();
    let accepts = move |_: &mut Loop, _, result| ends.push(("server", outcome(&result)));
    server.accept_with(&mut lp, accepts).unwrap();
    let (udp, _) = datagrams::bound(&mut lp);
    udp.recv_start(&mut lp, |_, _, _| panic!("a closed socket receives")).unwrap();
    run(&mut lp, RunMode::NoWait); // Submits all of it to the kernel.

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
    assert_eq!(log.len(), 0, "no callback runs inline");
    run_to_the_end(&mut lp);

    let ends = log.take();
    let of = |name| -> Vec<_> {
        ends.iter().filter(|(of, _)| *of == name).map(|(_, what)| *what).collect()
    };
    for name in ["reader", "socket"] {
        assert_eq!(of(name), ["closed"], "{name}");
    }
    assert_eq!(of("writer"), ["cancelled", "cancelled", "closed"], "both requests complete first");
    assert_eq!(of("server"), ["cancelled", "closed"], "the request completes first");
    let idle_ones = ["timer", "unused stream", "unused socket", "idle"];
    let order: Vec<_> =
        ends.iter().map(|(name, _)| *name).filter(|name| idle_ones.contains(name)).collect();
    assert_eq!(order, ["idle", "unused socket", "unused stream", "timer"], "in reverse order");
    assert!(lp.close().is_ok(), "nothing is left");
    Ok(())
}

/// A handle of any kind calls back when it is closed, whatever closes it: once, in the closing
/// phase, with a key that is valid and afterwards stale.
pub fn is_noticed_for_every_kind(lab: &Lab) -> Verdict {
    let (mut lp, log) = (new_loop(lab)?, Log::default());
    let begin = |lp: &mut Loop| {
        let mut handles = one_of_each(lp);
        handles.push(Async::new(lp, |_, _| {}).0.into());
        let (stream, far) = connected(lp);
        handles.push(stream.into());
        (handles, far)
    };
    for way in 0..4 {
        let (handles, _far) = begin(&mut lp);
        let on_error = log.clone();
        lp.on_error(move |_, handle, _| on_error.push((handle, "failed")));
        for &handle in &handles {
            let replaced = handle.on_close(&mut lp, |_, _| panic!("it was replaced"));
            replaced.expect("an open handle");
            let noted = log.clone();
            let on_close = move |lp: &mut Loop, closed: AnyHandle| {
                assert!(closed == handle && closed.is_closing(lp) && lp.walk().contains(&closed));
                let again = closed.on_close(lp, |_, _| panic!("it is closing"));
                assert_eq!(again.expect_err("it is closing").kind(), ErrorKind::InvalidInput);
                noted.push((closed, "noticed"));
            };
            handle.on_close(&mut lp, on_close).expect("an open handle");
            let closed = log.clone();
            match way {
                0 => handle.close(&mut lp).expect("an open handle"),
                1 => handle.fail(&mut lp, ErrorKind::TimedOut.into()),
                2 => handle.attempt(&mut lp, |_| Err(ErrorKind::TimedOut.into())),
                _ => handle
                    .close_with(&mut lp, move |_, handle| closed.push((handle, "closed")))
                    .expect("an open handle"),
            }
            let late = handle.on_close(&mut lp, |_, _| panic!("it is closing"));
            assert_eq!(late.expect_err("it is closing").kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(log.len(), 0, "nothing runs inline");
        run_to_the_end(&mut lp);
        let all = log.take();
        for handle in handles {
            let of: Vec<_> =
                all.iter().filter(|(of, _)| *of == handle).map(|(_, what)| *what).collect();
            let expected: &[&str] = match way {
                0 => &["noticed"],
                1 | 2 => &["failed", "noticed"],
                _ => &["noticed", "closed"],
            };
            assert_eq!(of, expected, "{handle}, closed in way {way}");
            let stale = handle.on_close(&mut lp, |_, _| panic!("it is closed"));
            assert_eq!(stale.expect_err("its key is stale").kind(), ErrorKind::NotFound);
        }
    }
    let (ends, noted) = (Log::default(), log.clone());
    let process = spawn(&mut lp, &child(&["exit", "0"]), &ends);
    let on_close = move |_: &mut Loop, process: Process| noted.push((process.into(), "noticed"));
    process.on_close(&mut lp, on_close).expect("an open handle");
    run_to_the_end(&mut lp);
    assert_eq!((log.take(), ends.len()), (vec![(process.into(), "noticed")], 1), "a child exits");
    assert!(lp.close().is_ok(), "nothing is left");
    Ok(())
}

/// What notices the end of a stream runs after the callbacks of its cancelled requests. It runs
/// for a stream that finishes too, and for a key of another kind that is made of the same number.
pub fn is_noticed_after_requests(lab: &Lab) -> Verdict {
    let (mut lp, log) = (new_loop(lab)?, Log::default());
    let (writer, far) = connected(&mut lp);
    fill_up(&mut lp, writer);
    let noted = log.clone();
    let written = move |_: &mut Loop, _, _, _| noted.push("write");
    writer.write(&mut lp, vec![1; OVER_STREAM_BUFFERS], written).expect("a write");
    let noted = log.clone();
    writer.on_close(&mut lp, move |_, _| noted.push("noticed")).expect("an open stream");
    run(&mut lp, RunMode::NoWait);
    writer.close(&mut lp).expect("an open stream");
    drop(far);
    run_to_the_end(&mut lp);
    assert_eq!(log.take(), ["write", "noticed"]);

    let (near, far) = both_ends(&mut lp);
    let noted = log.clone();
    let pipe = Pipe::from_bits(near.to_bits());
    let on_close = move |_: &mut Loop, closed| {
        assert_eq!(closed, pipe);
        noted.push("noticed");
    };
    pipe.on_close(&mut lp, on_close).expect("an open stream");
    near.finish(&mut lp);
    far.finish(&mut lp);
    run_to_the_end(&mut lp);
    assert_eq!(log.take(), ["noticed"], "both ends have finished");

    let held = Rc::new(());
    for closes in [false, true] {
        let mut lp = new_loop(lab)?;
        let (timer, kept) = (Timer::new(&mut lp), Rc::clone(&held));
        timer.on_close(&mut lp, move |_, _| drop(kept)).expect("an open timer");
        if closes {
            timer.close(&mut lp).expect("an open timer");
        }
        drop(lp);
        assert_eq!(Rc::strong_count(&held), 1, "it is dropped with the loop");
    }
    Ok(())
}
