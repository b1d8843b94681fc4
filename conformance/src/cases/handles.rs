//! Point 15: behaviour common to all handles, and the loop that owns them.

use std::io::{self, ErrorKind};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use uv_core::{
    AnyHandle, Async, Channel, Check, Handle, Idle, Listener, Poll, PollEvents, Pool, Prepare,
    RunMode, Stream, Tcp, TcpBindFlags, Timer, Udp, UdpBindFlags, WorkKind, fs,
};

use crate::support::datagrams::code::EBADF;
use crate::support::datagrams::refused;
use crate::support::gate::Gate;
use crate::support::kinds::{can_start, one_of_each, start, stop};
use crate::support::loops::{AN_HOUR, ZERO, keep_alive, new_loop, run, run_to_the_end, timer_in};
use crate::support::sources::{send, tcp_pair, udp_pair};
use crate::support::streams::{any_port, connected, refusal, run_until};
use crate::support::trace::{Log, Trace};
use crate::{Lab, Loop, Verdict};

#[track_caller]
fn assert_kind<V>(result: io::Result<V>, kind: ErrorKind, what: &str) {
    match result {
        Ok(_) => panic!("{what} works, but should be an error"),
        Err(error) => assert_eq!(error.kind(), kind, "{what}: {error}"),
    }
}

/// A new handle is inactive, not closing and referenced. An async is active from the start, since
/// it may receive sends.
pub fn begin_inactive_and_referenced(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    for handle in one_of_each(&mut lp) {
        assert!(!handle.is_active(&lp), "a new {handle} is active");
        assert!(handle.is_referenced(&lp), "a new {handle} is not referenced");
        assert!(!handle.is_closing(&lp), "a new {handle} is closing");
    }
    assert!(!lp.is_alive(), "nothing was started");
    let (handle, _sender) = Async::new(&mut lp, |_, _| {});
    assert!(handle.is_active(&lp) && handle.is_referenced(&lp) && !handle.is_closing(&lp));
    assert!(lp.is_alive(), "an async is active");
    Ok(())
}

/// A key is a number and back. A number of another loop, or that no key had, is stale.
pub fn keys_are_numbers_and_back(lab: &Lab) -> Verdict {
    let (mut lp, mut other) = (new_loop(lab)?, new_loop(lab)?);
    let (timer, foreign) = (Timer::new(&mut lp), Timer::new(&mut other));
    assert_eq!(Timer::from_bits(timer.to_bits()), timer);
    assert_ne!(timer.to_bits(), 0);
    for bits in [foreign.to_bits(), 0, 1, u64::MAX, timer.to_bits() + 1] {
        let key = Timer::from_bits(bits);
        assert_kind(key.stop(&mut lp), ErrorKind::NotFound, "a number without a timer");
    }
    timer.close(&mut lp).expect("an open handle");
    run_to_the_end(&mut lp);
    let stale = Timer::from_bits(timer.to_bits());
    assert_kind(stale.stop(&mut lp), ErrorKind::NotFound, "a closed handle");
    Ok(())
}

/// The number of active handles is that of those which keep the loop alive.
pub fn active_handles_are_counted(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let handles = [keep_alive(&mut lp), keep_alive(&mut lp), Timer::new(&mut lp)];
    assert_eq!(lp.active_handles(), 2, "one is not started");
    handles[0].unreference(&mut lp).expect("an open handle");
    assert_eq!(lp.active_handles(), 1);
    handles[1].close(&mut lp).expect("an open handle");
    assert!(lp.active_handles() == 0 && lp.is_alive(), "it is closing");
    run_to_the_end(&mut lp);
    Ok(())
}

/// The reference state is a flag, not a count: referencing twice equals once, whether the handle is
/// active or not.
pub fn reference_is_a_flag(lab: &Lab) -> Verdict {
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
                assert!(!handle.is_referenced(&lp) && !lp.is_alive(), "an unreferenced {handle}");
            }
            for _ in 0..3 {
                handle.reference(&mut lp).unwrap();
                assert!(handle.is_referenced(&lp), "a referenced {handle}");
                assert_eq!(lp.is_alive(), started, "a referenced {handle}, started: {started}");
            }
        }
        for _ in 0..2 {
            stop(handle, &mut lp).unwrap();
            assert!(!lp.is_alive() && handle.is_referenced(&lp), "a stopped {handle}");
        }
    }
    Ok(())
}

/// A handle keeps the loop alive if it is active and referenced, in whatever order these states are
/// set.
pub fn keep_the_loop_alive_if_active_and_referenced(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let mut handles = one_of_each(&mut lp);
    handles.retain(|handle| can_start(*handle));
    for handle in handles {
        for (active, referenced) in [(false, false), (false, true), (true, false), (true, true)] {
            for flag_first in [false, true] {
                let set_flag = |lp: &mut Loop| match referenced {
                    true => handle.reference(lp).unwrap(),
                    false => handle.unreference(lp).unwrap(),
                };
                let set_active = |lp: &mut Loop| match active {
                    // Some kinds cannot be started twice.
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
                assert_eq!(lp.is_alive(), alive, "{handle}: {active}, referenced: {referenced}");
            }
        }
        stop(handle, &mut lp).unwrap();
    }
    Ok(())
}

/// A closing handle is inactive, so its reference flag has no effect; the pending close keeps the
/// loop alive, referenced or not.
pub fn references_of_closing_handles_do_not_count(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    for handle in one_of_each(&mut lp) {
        let _ = start(handle, &mut lp);
        handle.close(&mut lp).unwrap();
        handle.unreference(&mut lp).unwrap();
        handle.unreference(&mut lp).unwrap();
        assert!(lp.is_alive(), "{handle} is closing");
        handle.reference(&mut lp).unwrap();
        run_to_the_end(&mut lp);
        assert!(!lp.is_alive(), "{handle} was closed");
    }
    let timer = keep_alive(&mut lp);
    assert!(lp.is_alive(), "the count of active handles is correct afterwards");
    timer.stop(&mut lp).unwrap();
    assert!(!lp.is_alive());
    Ok(())
}

/// A request keeps the loop alive until its callback has run, without any handle.
pub fn requests_keep_the_loop_alive(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let (finish, finished) = mpsc::channel::<()>();
    let note = trace.clone();
    lp.queue_work(move || finished.recv().is_ok(), move |_, _| note.note("done")).expect("a pool");
    assert!(lp.is_alive());
    assert!(run(&mut lp, RunMode::NoWait), "the work is running");
    finish.send(()).expect("the work waits");
    run_to_the_end(&mut lp);
    trace.expect(&["done"], "the loop has waited for the request");
    Ok(())
}

/// A walk returns all handles in creation order, whatever their kind, also after some were closed.
pub fn walk_is_in_creation_order(lab: &Lab) -> Verdict {
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
    assert_eq!(lp.walk(), made, "reused slots do not change the order");
    Ok(())
}

/// A walk includes closing handles until their close callbacks have run.
pub fn walk_includes_closing_handles(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let handles = one_of_each(&mut lp);
    let last = handles[0];
    for handle in &handles {
        let check = |lp: &mut Loop, handle: AnyHandle| {
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

/// Handles may be created and closed during a walk, which returns the handles that existed at its
/// start.
pub fn walk_tolerates_changes(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let made = one_of_each(&mut lp);
    let mut seen = Vec::new();
    for handle in lp.walk() {
        seen.push(handle);
        if !handle.is_closing(&lp) {
            handle.close(&mut lp).unwrap();
        }
        let _ = Timer::new(&mut lp);
        run(&mut lp, RunMode::NoWait);
    }
    assert_eq!(seen, made);
    assert_eq!(lp.walk().len(), made.len(), "the timers created meanwhile");
    Ok(())
}

/// A key whose handle is closed is `NotFound` in every operation and `false` or `None` in every
/// query.
pub fn stale_keys_are_errors(lab: &Lab) -> Verdict {
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
        assert!(!handle.is_active(lp) && !handle.is_referenced(lp) && handle.is_closing(lp));
    }
    stale(timer.again(lp), "again");
    stale(timer.set_repeat(lp, AN_HOUR), "set_repeat");
    assert_eq!((timer.repeat(lp), timer.due_in(lp)), (ZERO, None));
    assert_kind(asynchronous.sender(lp), ErrorKind::NotFound, "sender");
    assert!(!lp.is_alive(), "stale keys have no effect");
    Ok(())
}

/// The key of a closed handle never equals that of a later one, though its slot may be reused.
pub fn keys_are_never_reused(lab: &Lab) -> Verdict {
    let (mut lp, trace) = (new_loop(lab)?, Trace::default());
    let mut keys = Vec::new();
    for _ in 0..100 {
        let timer = Timer::new(&mut lp);
        assert!(!keys.contains(&timer), "{timer:?} was used before");
        for old in &keys {
            assert_kind(old.stop(&mut lp), ErrorKind::NotFound, "an old key");
            assert_kind(old.close(&mut lp), ErrorKind::NotFound, "an old key");
        }
        keys.push(timer);
        timer.start(&mut lp, ZERO, ZERO, trace.noting("timer")).unwrap();
        run_to_the_end(&mut lp);
        trace.expect(&["timer"], "the new timer only");
        timer.close(&mut lp).unwrap();
        run_to_the_end(&mut lp);
    }
    Ok(())
}

/// A key of another loop is `NotFound` for every kind of handle, and this loop's handle with the
/// same index keeps its state.
pub fn keys_of_another_loop_are_errors(lab: &Lab) -> Verdict {
    let (mut mine, mut other) = (new_loop(lab)?, new_loop(lab)?);
    let (near, _far) = connected(&mut mine);
    let made = |lp: &mut Loop| {
        let mut handles = one_of_each(lp);
        handles.push(Async::new(lp, |_, _| panic!("called back")).0.into());
        handles
    };
    let (foreign, owned) = (made(&mut other), made(&mut mine));
    for handle in owned.iter().filter(|handle| can_start(**handle) && handle.kind() != "async") {
        start(*handle, &mut mine).expect("a handle of this loop");
    }
    let flags = |lp: &Loop| lp.debug_handles().to_string();
    let (before, lp) = (flags(&mine), &mut mine);
    let refused = |result, what: &str| assert_kind(result, ErrorKind::NotFound, what);
    for handle in foreign {
        if handle.kind() != "async" {
            refused(stop(handle, lp), "stop");
        }
        if !["async", "signal"].contains(&handle.kind()) {
            refused(start(handle, lp), "start");
        }
        refused(handle.reference(lp), "reference");
        refused(handle.unreference(lp), "unreference");
        refused(handle.close(lp), "close");
        refused(handle.close_with(lp, |_, _| panic!("called back")), "close_with");
        assert!(!handle.is_active(lp) && !handle.is_referenced(lp) && handle.is_closing(lp));
        assert!(!owned.contains(&handle), "{handle} is a key of both loops");
        if let AnyHandle::Async(handle) = handle {
            assert_kind(handle.sender(lp), ErrorKind::NotFound, "sender");
        }
    }
    let (tcp, _peer) = connected(&mut other);
    refused(tcp.write(lp, "x", |_, _, _, _| {}).map(drop), "write");
    refused(tcp.read(lp, vec![0; 8], |_, _, _, _| {}).map(drop), "read");
    refused(tcp.shutdown(lp, |_, _, _| {}), "shutdown");
    refused(tcp.listen(lp, 1, |_, _, _| {}), "listen");
    refused(tcp.connect(lp, any_port(), |_, _, _| {}), "connect");
    refused(tcp.try_write(lp, b"x").map(drop), "try_write");
    let udp = Udp::new(&mut other);
    refused(udp.send(lp, "x", any_port(), |_, _, _, _| {}), "send");
    assert_eq!(flags(lp), before, "the handles of this loop are unchanged");
    near.close(lp).expect("a handle of this loop");
    Ok(())
}

/// A request of another loop is `NotFound`, and the requests of this loop continue.
pub fn requests_of_another_loop_are_errors(lab: &Lab) -> Verdict {
    let (mut mine, mut other) = (new_loop(lab)?, new_loop(lab)?);
    let (pool, gate, ends) = (Pool::new(1).expect("a pool"), Gate::default(), Log::default());
    let at = gate.clone();
    mine.queue_work_on(&pool, WorkKind::Cpu, move || at.pass(), |_, _| {}).expect("queued work");
    gate.await_waiting(1);
    let make = |lp: &mut Loop| {
        let (tcp, far) = connected(lp);
        let ends = ends.clone();
        let note = move |name: &'static str, ended: bool| {
            assert!(ended, "{name} was cancelled");
            ends.push(name);
        };
        let (read, write, work, file) = (note.clone(), note.clone(), note.clone(), note);
        let read = tcp.read(lp, vec![0; 8], move |_, _, end, _| read("read", end.is_ok()));
        let large = vec![0; 64 << 20];
        let write = tcp.write(lp, large, move |_, _, end, _| write("write", end.is_ok()));
        let done = move |_: &mut Loop, end: Result<(), _>| work("work", end.is_ok());
        let work = lp.queue_work_on(&pool, WorkKind::Cpu, || {}, done);
        let stat = fs::stat(".").start_on(lp, &pool, move |_, end| file("stat", end.is_ok()));
        let requests = (read.unwrap(), write.unwrap(), work.unwrap(), stat.unwrap());
        (tcp, far, requests)
    };
    let (tcp, far, _) = make(&mut mine);
    let (_, _far, (read, write, work, stat)) = make(&mut other);
    let lp = &mut mine;
    assert_kind(read.cancel(lp), ErrorKind::NotFound, "cancel of a read");
    assert_kind(write.cancel(lp), ErrorKind::NotFound, "cancel of a write");
    assert_kind(work.cancel(lp), ErrorKind::NotFound, "cancel of work");
    assert_kind(stat.cancel(lp), ErrorKind::NotFound, "cancel of a stat");

    gate.open();
    drop(other);
    let draining = std::thread::spawn(move || {
        send(&far, b"x");
        std::io::copy(&mut &far, &mut std::io::sink()).expect("what was written");
    });
    run_until(lp, "the requests of this loop", |_| ends.len() == 4);
    tcp.close(lp).expect("a handle of this loop");
    run_to_the_end(lp);
    draining.join().expect("the peer reads to the end");
    let mut seen = ends.take();
    seen.sort_unstable();
    assert_eq!(seen, ["read", "stat", "work", "write"]);
    Ok(())
}

/// Each kind of handle has a name.
pub fn kinds_have_names(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    one_of_each(&mut lp);
    Async::new(&mut lp, |_, _| {});
    Channel::new(&mut lp, |_, _, ()| {});
    let mut kinds: Vec<_> = lp.walk().into_iter().map(AnyHandle::kind).collect();
    // Not every system provides a terminal.
    kinds.retain(|kind| *kind != "tty");
    let names = [
        "timer", "idle", "prepare", "check", "poll", "signal", "tcp", "pipe", "udp", "fs_event",
        "fs_poll", "async", "async",
    ];
    assert_eq!(kinds, names);
    Ok(())
}

/// The debug lists show every handle, or every active one, with its flags.
pub fn debug_lists_show_flags(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    assert_eq!(lp.debug_handles().to_string(), "");
    let _ = Timer::new(&mut lp);
    let timer = keep_alive(&mut lp);
    timer.unreference(&mut lp).unwrap();
    let idle = Idle::new(&mut lp);
    idle.start(&mut lp, |_, _| {}).unwrap();
    let prepare = Prepare::new(&mut lp);
    prepare.start(&mut lp, |_, _| {}).unwrap();
    prepare.close(&mut lp).unwrap();
    let all = "[R--] timer 0\n[-A-] timer 1\n[RA-] idle 0\n[R-C] prepare 0\n";
    assert_eq!(lp.debug_handles().to_string(), all);
    assert_eq!(lp.debug_active_handles().to_string(), "[-A-] timer 1\n[RA-] idle 0\n");

    let mut lp = new_loop(lab)?;
    let handles = one_of_each(&mut lp);
    let list = |flags: &str, handles: &[AnyHandle]| -> String {
        handles.iter().map(|handle| format!("[{flags}] {handle}\n")).collect()
    };
    // Without what streams add.
    let short = |listed: String| -> String {
        listed.lines().map(|line| format!("{}\n", line.split(',').next().unwrap_or(line))).collect()
    };
    assert_eq!(short(lp.debug_handles().to_string()), list("R--", &handles));
    let started: Vec<_> = handles.iter().copied().filter(|handle| can_start(*handle)).collect();
    for handle in &started {
        start(*handle, &mut lp).unwrap();
    }
    assert_eq!(short(lp.debug_active_handles().to_string()), list("RA-", &started));
    for handle in &handles {
        handle.unreference(&mut lp).unwrap();
    }
    assert_eq!(short(lp.debug_active_handles().to_string()), list("-A-", &started));
    for handle in &handles {
        handle.close(&mut lp).unwrap();
    }
    assert_eq!(short(lp.debug_handles().to_string()), list("--C", &handles));
    Ok(())
}

/// A loop says what keeps it alive, and the error of its close names the open handles.
pub fn a_busy_loop_names_its_handles(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    assert_eq!(lp.debug_alive().to_string(), "");
    let (idle, alive) = (Timer::new(&mut lp), keep_alive(&mut lp));
    let (tcp, _peer) = connected(&mut lp);
    let to = tcp.peer_addr(&lp).unwrap();
    tcp.read(&mut lp, vec![0; 8], |_, _, _, _| {}).unwrap();
    lp.defer(|_| {});
    let expected = "[RA-] timer 1\n1 request of handles\n1 deferred callback to run\n";
    assert_eq!(lp.debug_alive().to_string(), expected);
    let busy = lp.close().unwrap_err();
    let expected = format!(
        "the loop is busy: 3 handles are open\n  [R--] timer 0\n  [RA-] timer 1\n  \
         [R--] tcp 0, connected to {to}"
    );
    assert_eq!(busy.to_string(), expected);
    let mut lp = busy.into_loop();
    for handle in lp.walk() {
        handle.close(&mut lp).unwrap();
    }
    assert!(idle.is_closing(&lp) && alive.is_closing(&lp));
    assert!(lp.debug_alive().to_string().starts_with("[R-C] timer 0\n[R-C] timer 1\n"));
    run_to_the_end(&mut lp);
    for _ in 0..20 {
        let _ = Timer::new(&mut lp);
    }
    let many = lp.close().unwrap_err().to_string();
    assert!(many.ends_with("timer 9\n  and 10 more"), "{many}");
    Ok(())
}

/// Asserts that the loop refuses to close, and returns it.
#[track_caller]
fn still_busy(lp: Loop, why: &str) -> Loop {
    match lp.close() {
        Ok(_) => panic!("the loop was closed though {why}"),
        Err(busy) => busy.into_loop(),
    }
}

/// A loop does not close while a handle is open, even an inactive one, while a handle is closing, a
/// request is in flight or a callback is deferred. It stays usable.
pub fn busy_loop_does_not_close(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let timer = Timer::new(&mut lp);
    let mut lp = still_busy(lp, "an inactive timer is open");
    timer.close(&mut lp).unwrap();
    let mut lp = still_busy(lp, "a timer is closing");
    run_to_the_end(&mut lp);

    let (finish, finished) = mpsc::channel::<()>();
    lp.queue_work(move || finished.recv().is_ok(), |_, _| {}).expect("a pool");
    let mut lp = still_busy(lp, "work is in flight");
    finish.send(()).expect("the work waits");
    run_to_the_end(&mut lp);

    lp.defer(|_| {});
    let mut lp = still_busy(lp, "a callback is deferred");
    run_to_the_end(&mut lp);
    assert!(lp.close().is_ok(), "nothing is left");
    Ok(())
}

/// Closing a loop returns its backend, which can serve another loop.
pub fn closed_loop_returns_its_backend(lab: &Lab) -> Verdict {
    let mut backend = lab.backend()?;
    let (near, far) = tcp_pair();
    let (near, far) = (Arc::new(near), Arc::new(far));
    for _ in 0..3 {
        let (mut lp, trace) = (Loop::new(backend), Trace::default());
        let poll = Poll::new(&mut lp, Arc::clone(&near)).expect("the descriptor is free again");
        let note = trace.clone();
        let close = move |lp: &mut Loop, poll: Poll, _| {
            note.note("writable");
            poll.close(lp).unwrap();
        };
        poll.start(&mut lp, PollEvents::WRITABLE, close).unwrap();
        timer_in(&mut lp, ZERO, trace.then("timer", |lp, timer: Timer| timer.close(lp).unwrap()));
        run_to_the_end(&mut lp);
        trace.expect(&["timer", "writable"], "the loop works");
        backend = lp.close().expect("nothing is left");
        assert_eq!(Arc::strong_count(&near), 1, "the poll has dropped its owner");
    }
    drop(far);
    Ok(())
}

/// Dropping a loop drops all callbacks and their captures without calling them.
pub fn dropped_loop_drops_callbacks(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (held, source) = (Rc::new(()), Arc::new(udp_pair().0));
    let hold = |_: &str| {
        let held = Rc::clone(&held);
        move || panic!("called back during the drop, holding {held:?}")
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
    assert_eq!(Arc::strong_count(&source), 1, "the poll's owner and the message were dropped");
    Ok(())
}

/// `raw_source` returns a handle's descriptor from when it exists until the handle is closed.
/// Handles of other kinds have none.
pub fn raw_source_is_the_descriptor(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (watched, _peer) = udp_pair();
    let raw = poll_core::RawSource::of(&watched);
    let poll = Poll::new(&mut lp, watched).expect("a poll");
    assert_eq!(poll.raw_source(&lp).expect("the watched descriptor"), raw);
    let (tcp, udp) = (Tcp::new(&mut lp), Udp::new(&mut lp));
    let (near, _far) = tcp_pair();
    let raw = poll_core::RawSource::of(&near);
    refused(tcp.raw_source(&lp), EBADF, "no socket yet");
    refused(udp.raw_source(&lp), EBADF, "no socket yet");
    tcp.open(&mut lp, near).expect("a new handle takes a socket");
    udp.bind(&mut lp, any_port(), UdpBindFlags::empty()).expect("a port");
    assert_eq!(tcp.raw_source(&lp).expect("a socket"), raw);
    assert_ne!(udp.raw_source(&lp).expect("a socket"), raw);
    for handle in [AnyHandle::from(poll), tcp.into(), udp.into()] {
        assert!(handle.raw_source(&lp).is_ok(), "through `AnyHandle`, too");
        handle.close(&mut lp).expect("an open handle");
        refused(handle.raw_source(&lp), EBADF, "closing");
    }
    for other in one_of_each(&mut lp) {
        if !["poll", "tcp", "pipe", "udp", "tty"].contains(&other.kind()) {
            assert_eq!(refusal(other.raw_source(&lp)), ErrorKind::InvalidInput, "{other}");
        }
        other.close(&mut lp).expect("an open handle");
    }
    run_to_the_end(&mut lp);
    assert_eq!(refusal(tcp.raw_source(&lp)), ErrorKind::NotFound, "closed");
    assert_eq!(refusal(poll.raw_source(&lp)), ErrorKind::NotFound, "closed");
    Ok(())
}

/// The kernel's socket buffer sizes can be queried and set in both directions.
pub fn socket_buffer_sizes_can_be_set(lab: &Lab) -> Verdict {
    const SIZE: usize = 40_000;
    let mut lp = new_loop(lab)?;
    let (tcp, udp) = (Tcp::new(&mut lp), Udp::new(&mut lp));
    for handle in [AnyHandle::from(tcp), udp.into()] {
        refused(handle.send_buffer_size(&lp), EBADF, "no socket yet");
        refused(handle.set_recv_buffer_size(&mut lp, SIZE), EBADF, "no socket yet");
    }
    tcp.bind(&mut lp, any_port(), TcpBindFlags::empty()).expect("a port");
    udp.bind(&mut lp, any_port(), UdpBindFlags::empty()).expect("a port");
    for handle in [AnyHandle::from(tcp), udp.into()] {
        assert!(handle.send_buffer_size(&lp).expect("a size") > 0);
        assert!(handle.recv_buffer_size(&lp).expect("a size") > 0);
        handle.set_send_buffer_size(&mut lp, SIZE).expect("a change");
        handle.set_recv_buffer_size(&mut lp, 2 * SIZE).expect("a change");
        // Linux doubles the requested size.
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
