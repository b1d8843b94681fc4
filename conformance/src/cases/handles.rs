//! Point 15: what all handles have in common, and the loop that owns them.

use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use poll_core::Backend;
use uv_core::{
    AnyHandle, Async, BindFlags, Channel, Check, Handle, Idle, Loop, Poll, PollEvents, Prepare,
    RunMode, Tcp, Timer, Udp, UdpBind,
};

use crate::support::datagrams::code::EBADF;
use crate::support::datagrams::refused;
use crate::support::kinds::{can_start, one_of_each, start, stop};
use crate::support::loops::{AN_HOUR, ZERO, keep_alive, new_loop, run, run_to_the_end, timer_in};
use crate::support::sources::{tcp_pair, udp_pair};
use crate::support::streams::{any_port, refusal};
use crate::support::trace::Trace;
use crate::{Lab, Verdict};

#[track_caller]
fn assert_kind<V>(result: io::Result<V>, kind: ErrorKind, what: &str) {
    match result {
        Ok(_) => panic!("{what} works, but should be an error"),
        Err(error) => assert_eq!(error.kind(), kind, "{what}: {error}"),
    }
}

/// A new handle does nothing, is not closing, and will keep the loop alive. An async is
/// active from the start, as it may be sent to.
pub fn begin_inactive_and_referenced<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    for handle in one_of_each(&mut lp) {
        assert!(!handle.is_active(&lp), "a new {handle} is active");
        assert!(handle.has_ref(&lp), "a new {handle} is not referenced");
        assert!(!handle.is_closing(&lp), "a new {handle} is closing");
    }
    assert!(!lp.alive(), "nothing was started");
    let (handle, _sender) = Async::new(&mut lp, |_, _| {});
    assert!(handle.is_active(&lp) && handle.has_ref(&lp) && !handle.is_closing(&lp));
    assert!(lp.alive(), "an async is active");
    Ok(())
}

/// Being referenced is a flag, not a count: twice is once, whether the handle is active
/// or not.
pub fn references_are_flags<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    for handle in one_of_each(&mut lp) {
        for started in [false, true] {
            if started {
                if !can_start(handle) {
                    continue;
                }
                start(handle, &mut lp).unwrap();
            }
            for _ in 0..3 {
                handle.unreference(&mut lp).unwrap();
                assert!(!handle.has_ref(&lp) && !lp.alive(), "an unreferenced {handle}");
            }
            for _ in 0..3 {
                handle.reference(&mut lp).unwrap();
                assert!(handle.has_ref(&lp), "a referenced {handle}");
                assert_eq!(lp.alive(), started, "a referenced {handle}, started: {started}");
            }
        }
        for _ in 0..2 {
            stop(handle, &mut lp).unwrap();
            assert!(!lp.alive() && handle.has_ref(&lp), "a stopped {handle}");
        }
    }
    Ok(())
}

/// A handle keeps the loop alive if it is active and referenced, not otherwise, in
/// whatever order it became so.
pub fn keep_the_loop_alive_if_active_and_referenced<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let mut handles = one_of_each(&mut lp);
    handles.retain(|handle| can_start(*handle));
    for handle in handles {
        for (active, referenced) in [(false, false), (false, true), (true, false), (true, true)] {
            for flag_first in [false, true] {
                let set_flag = |lp: &mut Loop<T>| match referenced {
                    true => handle.reference(lp).unwrap(),
                    false => handle.unreference(lp).unwrap(),
                };
                let set_active = |lp: &mut Loop<T>| match active {
                    // Some cannot be started twice.
                    true => assert!(start(handle, lp).is_ok() || handle.is_active(lp)),
                    false => stop(handle, lp).unwrap(),
                };
                if flag_first {
                    set_flag(&mut lp);
                    set_active(&mut lp);
                } else {
                    set_active(&mut lp);
                    set_flag(&mut lp);
                }
                assert_eq!(handle.is_active(&lp), active, "{handle}");
                let alive = active && referenced;
                assert_eq!(lp.alive(), alive, "{handle}: {active}, referenced: {referenced}");
            }
        }
        stop(handle, &mut lp).unwrap();
    }
    Ok(())
}

/// A closing handle is not active, so its references count for nothing; the closing
/// itself keeps the loop alive, referenced or not.
pub fn references_of_closing_ones_do_not_count<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    for handle in one_of_each(&mut lp) {
        let _ = start(handle, &mut lp);
        handle.close(&mut lp).unwrap();
        handle.unreference(&mut lp).unwrap();
        handle.unreference(&mut lp).unwrap();
        assert!(lp.alive(), "{handle} is closing");
        handle.reference(&mut lp).unwrap();
        run_to_the_end(&mut lp);
        assert!(!lp.alive(), "{handle} was closed");
    }
    let timer = keep_alive(&mut lp);
    assert!(lp.alive(), "the count of the others is right after all that");
    timer.stop(&mut lp).unwrap();
    assert!(!lp.alive());
    Ok(())
}

/// A request keeps the loop alive until it has called back, without any handle.
pub fn requests_keep_the_loop_alive<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (finish, finished) = mpsc::channel::<()>();
    let note = trace.clone();
    lp.queue_work(move || finished.recv().is_ok(), move |_, _| note.note("done")).expect("a pool");
    assert!(lp.alive());
    assert!(run(&mut lp, RunMode::NoWait), "the work goes on");
    finish.send(()).expect("the work waits");
    run_to_the_end(&mut lp);
    trace.expect(&["done"], "the loop has waited for the request");
    Ok(())
}

/// A walk gives all handles in the order they were made, whatever their kind, and also
/// after some have gone.
pub fn a_walk_goes_in_order_of_making<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    assert_eq!(lp.walk(), []);
    let mut made = one_of_each(&mut lp);
    made.push(Async::new(&mut lp, |_, _| {}).0.into());
    made.extend(one_of_each(&mut lp));
    assert_eq!(lp.walk(), made);
    for gone in (0..made.len()).rev().step_by(2) {
        made.remove(gone).close(&mut lp).unwrap();
    }
    run(&mut lp, RunMode::NoWait);
    made.push(Timer::new(&mut lp).into());
    made.push(Check::new(&mut lp).into());
    assert_eq!(lp.walk(), made, "slots that are used again do not change the order");
    Ok(())
}

/// A walk gives closing handles too, until their close callbacks have run.
pub fn a_walk_includes_closing_ones<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let handles = one_of_each(&mut lp);
    let last = handles[0];
    for handle in &handles {
        let check = |lp: &mut Loop<T>, handle: AnyHandle| {
            assert!(lp.walk().contains(&handle), "its close callback is running");
        };
        handle.close_with(&mut lp, check).unwrap();
    }
    assert_eq!(lp.walk(), handles);
    assert!(last.is_closing(&lp));
    run_to_the_end(&mut lp);
    assert_eq!(lp.walk(), [], "all were closed");
    Ok(())
}

/// Handles may be made and closed while a walk goes on, which shows those that there
/// were at its start.
pub fn a_walk_tolerates_changes<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let made = one_of_each(&mut lp);
    let mut seen = Vec::new();
    for handle in lp.walk() {
        seen.push(handle);
        if !handle.is_closing(&lp) {
            handle.close(&mut lp).unwrap();
        }
        Timer::new(&mut lp);
        run(&mut lp, RunMode::NoWait);
    }
    assert_eq!(seen, made);
    assert_eq!(lp.walk().len(), made.len(), "the timers that were made meanwhile");
    Ok(())
}

/// A key whose handle is gone is `NotFound` in every verb and nothing in every question.
pub fn stale_keys_are_errors<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let timer = Timer::new(&mut lp);
    let (asynchronous, _sender) = Async::new(&mut lp, |_, _| {});
    let mut handles = one_of_each(&mut lp);
    handles.push(timer.into());
    handles.push(asynchronous.into());
    for handle in &handles {
        handle.close(&mut lp).unwrap();
    }
    run_to_the_end(&mut lp);
    let lp = &mut lp;
    let stale = |result, what| assert_kind(result, ErrorKind::NotFound, what);
    for handle in handles {
        if handle.kind() != "async" {
            stale(stop(handle, lp), "stop");
        }
        if !["async", "signal"].contains(&handle.kind()) {
            stale(start(handle, lp), "start");
        }
        stale(handle.reference(lp), "reference");
        stale(handle.unreference(lp), "unreference");
        stale(handle.close(lp), "close");
        stale(handle.close_with(lp, |_, _| panic!("called back")), "close_with");
        assert!(!handle.is_active(lp) && !handle.has_ref(lp) && handle.is_closing(lp));
    }
    stale(timer.again(lp), "again");
    stale(timer.set_repeat(lp, AN_HOUR), "set_repeat");
    assert_eq!((timer.repeat(lp), timer.due_in(lp)), (ZERO, None));
    assert_kind(asynchronous.sender(lp), ErrorKind::NotFound, "sender");
    assert!(!lp.alive(), "none of this does anything");
    Ok(())
}

/// The key of a handle that is gone is never that of a later one, though its place may
/// be used again.
pub fn keys_are_not_confused<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let mut keys = Vec::new();
    for _ in 0..100 {
        let timer = Timer::new(&mut lp);
        assert!(!keys.contains(&timer), "{timer:?} was given out before");
        for old in &keys {
            assert_kind(old.stop(&mut lp), ErrorKind::NotFound, "an old key");
            assert_kind(old.close(&mut lp), ErrorKind::NotFound, "an old key");
        }
        keys.push(timer);
        timer.start(&mut lp, ZERO, ZERO, trace.noting("timer")).unwrap();
        run_to_the_end(&mut lp);
        trace.expect(&["timer"], "the new one alone");
        timer.close(&mut lp).unwrap();
        run_to_the_end(&mut lp);
    }
    Ok(())
}

/// Each kind of handle has a name.
pub fn kinds_have_names<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    one_of_each(&mut lp);
    Async::new(&mut lp, |_, _| {});
    Channel::new(&mut lp, |_, _, ()| {});
    let mut kinds: Vec<_> = lp.walk().into_iter().map(AnyHandle::kind).collect();
    // Not everywhere is a terminal to be had.
    kinds.retain(|kind| *kind != "tty");
    let names = [
        "timer", "idle", "prepare", "check", "poll", "signal", "tcp", "pipe", "udp", "fs_event",
        "fs_poll", "async", "async",
    ];
    assert_eq!(kinds, names);
    Ok(())
}

/// The lists for people who debug show every handle, or every active one, and its flags.
pub fn lists_show_flags<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    assert_eq!(lp.list_handles().to_string(), "");
    Timer::new(&mut lp);
    let timer = keep_alive(&mut lp);
    timer.unreference(&mut lp).unwrap();
    let idle = Idle::new(&mut lp);
    idle.start(&mut lp, |_, _| {}).unwrap();
    let prepare = Prepare::new(&mut lp);
    prepare.start(&mut lp, |_, _| {}).unwrap();
    prepare.close(&mut lp).unwrap();
    let all = "[R--] timer 0\n[-A-] timer 1\n[RA-] idle 0\n[R-C] prepare 0\n";
    assert_eq!(lp.list_handles().to_string(), all);
    assert_eq!(lp.list_active_handles().to_string(), "[-A-] timer 1\n[RA-] idle 0\n");

    let mut lp = new_loop(lab)?;
    let handles = one_of_each(&mut lp);
    let list = |flags: &str, handles: &[AnyHandle]| -> String {
        handles.iter().map(|handle| format!("[{flags}] {handle}\n")).collect()
    };
    assert_eq!(lp.list_handles().to_string(), list("R--", &handles));
    let started: Vec<_> = handles.iter().copied().filter(|handle| can_start(*handle)).collect();
    for handle in &started {
        start(*handle, &mut lp).unwrap();
    }
    assert_eq!(lp.list_active_handles().to_string(), list("RA-", &started));
    for handle in &handles {
        handle.unreference(&mut lp).unwrap();
    }
    assert_eq!(lp.list_active_handles().to_string(), list("-A-", &started));
    for handle in &handles {
        handle.close(&mut lp).unwrap();
    }
    assert_eq!(lp.list_handles().to_string(), list("--C", &handles));
    Ok(())
}

/// Fails to close the loop, and gives it back.
#[track_caller]
fn still_busy<T: Backend>(lp: Loop<T>, why: &str) -> Loop<T> {
    match lp.close() {
        Ok(_) => panic!("the loop was closed though {why}"),
        Err(busy) => busy.into_loop(),
    }
}

/// A loop does not close while a handle is open, be it inactive, or while a handle is
/// closing, a request is under way or a callback is deferred. It can be used on.
pub fn a_busy_loop_does_not_close<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let timer = Timer::new(&mut lp);
    let mut lp = still_busy(lp, "an inactive timer is open");
    timer.close(&mut lp).unwrap();
    let mut lp = still_busy(lp, "a timer is closing");
    run_to_the_end(&mut lp);

    let (finish, finished) = mpsc::channel::<()>();
    lp.queue_work(move || finished.recv().is_ok(), |_, _| {}).expect("a pool");
    let mut lp = still_busy(lp, "work is under way");
    finish.send(()).expect("the work waits");
    run_to_the_end(&mut lp);

    lp.defer(|_| {});
    let mut lp = still_busy(lp, "a callback is deferred");
    run_to_the_end(&mut lp);
    assert!(lp.close().is_ok(), "nothing is left");
    Ok(())
}

/// Closing a loop gives its backend back, which serves another loop.
pub fn a_closed_loop_gives_its_backend_back<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut backend = lab.backend()?;
    let (near, far) = tcp_pair();
    let (near, far) = (Arc::new(near), Arc::new(far));
    for _ in 0..3 {
        let (mut lp, trace) = (Loop::new(backend), Trace::default());
        let poll = Poll::new(&mut lp, Arc::clone(&near)).expect("the descriptor is free again");
        let note = trace.clone();
        let close = move |lp: &mut Loop<T>, poll: Poll, _| {
            note.note("writable");
            poll.close(lp).unwrap();
        };
        poll.start(&mut lp, PollEvents::WRITABLE, close).unwrap();
        timer_in(&mut lp, ZERO, trace.then("timer", |lp, timer: Timer| timer.close(lp).unwrap()));
        run_to_the_end(&mut lp);
        trace.expect(&["timer", "writable"], "a loop that works");
        backend = lp.close().expect("nothing is left");
        assert_eq!(Arc::strong_count(&near), 1, "the poll has let go of its owner");
    }
    drop(far);
    Ok(())
}

/// Dropping a loop drops everything in it, callbacks and what they capture, without
/// calling back.
pub fn a_dropped_loop_drops_everything<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (held, source) = (Rc::new(()), Arc::new(udp_pair().0));
    let hold = |_: &str| {
        let held = Rc::clone(&held);
        move || panic!("called back while it is dropped, holding {held:?}")
    };
    let (a, b, c, d) = (hold("timer"), hold("idle"), hold("prepare"), hold("check"));
    timer_in(&mut lp, ZERO, move |_, _| a());
    Idle::new(&mut lp).start(&mut lp, move |_, _| b()).unwrap();
    Prepare::new(&mut lp).start(&mut lp, move |_, _| c()).unwrap();
    Check::new(&mut lp).start(&mut lp, move |_, _| d()).unwrap();
    let (e, f, g) = (hold("async"), hold("poll"), hold("channel"));
    let (_, sender) = Async::new(&mut lp, move |_, _| e());
    sender.send().unwrap();
    let poll = Poll::new(&mut lp, Arc::clone(&source)).expect("a poll");
    poll.start(&mut lp, PollEvents::WRITABLE, move |_, _, _| f()).unwrap();
    let (_, letters) = Channel::new(&mut lp, move |_, _, _: Arc<std::net::UdpSocket>| g());
    letters.send(Arc::clone(&source)).unwrap();
    let (h, i, j) = (hold("deferred"), hold("closing"), hold("work"));
    lp.defer(move |_| h());
    Timer::new(&mut lp).close_with(&mut lp, move |_, _| i()).unwrap();
    lp.queue_work(|| std::thread::sleep(Duration::from_millis(1)), move |_, _| j())
        .expect("a pool");
    assert_eq!(Rc::strong_count(&held), 1 + 10, "one for each callback");
    drop(lp);
    assert_eq!(Rc::strong_count(&held), 1, "every callback was dropped");
    drop((sender, letters));
    assert_eq!(Arc::strong_count(&source), 1, "so were the poll's owner and the message");
    Ok(())
}

/// The descriptor behind a handle can be asked for, once there is one and until it is closed.
/// Handles of other kinds have none.
pub fn descriptors_are_those_behind_them<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (watched, _peer) = udp_pair();
    let raw = poll_core::RawSource::of(&watched);
    let poll = Poll::new(&mut lp, watched).expect("a poll");
    assert_eq!(poll.descriptor(&lp).expect("what it watches"), raw);
    let (tcp, udp) = (Tcp::new(&mut lp), Udp::new(&mut lp));
    let (near, _far) = tcp_pair();
    let raw = poll_core::RawSource::of(&near);
    refused(tcp.descriptor(&lp), EBADF, "no socket yet");
    refused(udp.descriptor(&lp), EBADF, "no socket yet");
    tcp.open(&mut lp, near).expect("a new handle takes a socket");
    udp.bind(&mut lp, any_port(), UdpBind::empty()).expect("a port");
    assert_eq!(tcp.descriptor(&lp).expect("a socket"), raw);
    assert_ne!(udp.descriptor(&lp).expect("a socket"), raw);
    for handle in [AnyHandle::from(poll), tcp.into(), udp.into()] {
        assert!(handle.descriptor(&lp).is_ok(), "as any handle, too");
        handle.close(&mut lp).expect("an open handle");
        refused(handle.descriptor(&lp), EBADF, "closing");
    }
    for other in one_of_each(&mut lp) {
        if !["poll", "tcp", "pipe", "udp", "tty"].contains(&other.kind()) {
            assert_eq!(refusal(other.descriptor(&lp)), ErrorKind::InvalidInput, "{other}");
        }
        other.close(&mut lp).expect("an open handle");
    }
    run_to_the_end(&mut lp);
    assert_eq!(refusal(tcp.descriptor(&lp)), ErrorKind::NotFound, "closed");
    assert_eq!(refusal(poll.descriptor(&lp)), ErrorKind::NotFound, "closed");
    Ok(())
}

/// The kernel's buffers of a socket have sizes that can be changed, in both directions.
pub fn buffers_have_sizes<T: Backend>(lab: &Lab<T>) -> Verdict {
    const SIZE: usize = 40_000;
    let mut lp = new_loop(lab)?;
    let (tcp, udp) = (Tcp::new(&mut lp), Udp::new(&mut lp));
    for handle in [AnyHandle::from(tcp), udp.into()] {
        refused(handle.send_buffer_size(&lp), EBADF, "no socket yet");
        refused(handle.set_recv_buffer_size(&mut lp, SIZE), EBADF, "no socket yet");
    }
    tcp.bind(&mut lp, any_port(), BindFlags::empty()).expect("a port");
    udp.bind(&mut lp, any_port(), UdpBind::empty()).expect("a port");
    for handle in [AnyHandle::from(tcp), udp.into()] {
        assert!(handle.send_buffer_size(&lp).expect("a size") > 0);
        assert!(handle.recv_buffer_size(&lp).expect("a size") > 0);
        handle.set_send_buffer_size(&mut lp, SIZE).expect("a change");
        handle.set_recv_buffer_size(&mut lp, 2 * SIZE).expect("a change");
        // Linux makes it twice as large.
        let sent = handle.send_buffer_size(&lp).expect("a size");
        let got = handle.recv_buffer_size(&lp).expect("a size");
        assert!(sent == SIZE || sent == 2 * SIZE, "{handle} sends {sent}");
        assert!(got == 2 * SIZE || got == 4 * SIZE, "{handle} receives {got}");
        assert_eq!(refusal(handle.set_send_buffer_size(&mut lp, 0)), ErrorKind::InvalidInput);
        handle.close(&mut lp).expect("an open handle");
        refused(handle.send_buffer_size(&lp), EBADF, "closing");
    }
    let timer = Timer::new(&mut lp);
    assert_eq!(refusal(timer.send_buffer_size(&lp)), ErrorKind::Unsupported);
    timer.close(&mut lp).expect("an open handle");
    run_to_the_end(&mut lp);
    assert_eq!(refusal(tcp.recv_buffer_size(&lp)), ErrorKind::NotFound, "closed");
    assert_eq!(refusal(timer.recv_buffer_size(&lp)), ErrorKind::NotFound, "closed");
    Ok(())
}
