//! Loops driven by another poller.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Instant;

use poll_core::RawSource;
use uv_core::{
    Async, Datagram, Handle, Poll, PollEvents, RunMode, Stream, Timer, Udp, UdpError, fs,
};

use crate::support::datagrams;
use crate::support::loops::{ZERO, new_loop, run, timer_in};
use crate::support::observe::{SHORT, SOON};
use crate::support::sources::{drain, send, tcp_pair};
use crate::support::streams::{OVER_STREAM_BUFFERS, bound, connected, echo};
use crate::support::trace::{Log, Trace};
use crate::{Lab, Loop, Skip, Verdict};

fn own_descriptor(lp: &Loop) -> Result<RawSource, Skip> {
    lp.raw_source().ok_or_else(|| Skip::because("has no own descriptor"))
}

/// Blocks in `poll(2)` on a loop's descriptor for the loop's own timeout.
#[track_caller]
fn poll_outside(lp: &mut Loop, source: RawSource) {
    // The event that ends an unlimited wait arrives within this time.
    let timeout = lp.backend_timeout();
    // Rounded up: an early wake costs a second one.
    let limit = timeout.unwrap_or(SOON).as_nanos().div_ceil(1_000_000) as libc::c_int;
    let mut polled = libc::pollfd { fd: source.fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `polled` is one valid entry, and outlives the call.
    let count = unsafe { libc::poll(&mut polled, 1, limit) };
    assert!(count >= 0, "poll: {}", std::io::Error::last_os_error());
    assert!(count > 0 || timeout.is_some(), "the poller is not woken");
}

/// Drives the loop from another poller until `done`. It polls before it runs the loop, so that
/// `backend_timeout` alone must cover all pending work. Returns the number of runs.
#[track_caller]
fn drive(lp: &mut Loop, source: RawSource, what: &str, mut done: impl FnMut() -> bool) -> usize {
    let (mut runs, started) = (0, Instant::now());
    while !done() {
        assert!(started.elapsed() < SOON, "timed out waiting for {what}");
        poll_outside(lp, source);
        run(lp, RunMode::NoWait);
        runs += 1;
    }
    runs
}

/// A descriptor, a timeout and runs with `NoWait` are enough for another poller to drive a loop: it
/// delivers timers, sends and sources, and blocks in between.
pub fn another_poller_drives_the_loop(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let own = own_descriptor(&lp)?;
    let trace = Trace::default();
    let (near, far) = tcp_pair();
    // Each callback triggers the next event, sent once the poller blocks. So the events are
    // ordered, however late the thread or the loop is.
    let (happened, next) = mpsc::channel();
    let (fired, sent) = (happened.clone(), happened);
    let fire = move |_: &mut Loop, _: Timer| fired.send(()).expect("a thread that waits");
    timer_in(&mut lp, SHORT / 2, trace.then("timer", fire));
    let answer = move |lp: &mut Loop, handle: Async| {
        handle.close(lp).expect("an open handle");
        sent.send(()).expect("a thread that waits");
    };
    let (_, sender) = Async::new(&mut lp, trace.then("async", answer));
    let (poll, noted) = (Poll::new(&mut lp, near).expect("a poll"), trace.clone());
    let callback = move |lp: &mut Loop, poll: Poll, _| {
        noted.note("poll");
        poll.close(lp).expect("an open poll");
    };
    poll.start(&mut lp, PollEvents::READABLE, callback).expect("a started poll");
    let thread = thread::spawn(move || {
        next.recv().expect("a timer that fires");
        thread::sleep(SHORT);
        sender.send().expect("a send");
        next.recv().expect("an async that is called");
        thread::sleep(SHORT);
        send(&far, b"x");
        far
    });
    let (mut iterations, started) = (0, Instant::now());
    while run(&mut lp, RunMode::NoWait) {
        assert!(started.elapsed() < SOON, "an event is not delivered");
        iterations += 1;
        poll_outside(&mut lp, own);
    }
    thread.join().expect("the sender");
    trace.expect(&["timer", "async", "poll"], "each in its time");
    assert!(iterations < 50, "{iterations} iterations for three events: the poller spins");
    Ok(())
}

/// A loop runs inside another loop of the same backend, which polls its descriptor: events of the
/// inner loop wake the outer one.
pub fn a_loop_runs_inside_another(lab: &Lab) -> Verdict {
    let (mut inner, trace) = (new_loop(lab)?, Trace::default());
    let own = own_descriptor(&inner)?;
    let (near, far) = tcp_pair();
    let reads = near.try_clone().expect("a clone");
    let (poll, noted) = (Poll::new(&mut inner, near).expect("a poll"), trace.clone());
    let callback = move |_: &mut Loop, _, _| {
        drain(&reads);
        noted.note("poll inside");
    };
    poll.start(&mut inner, PollEvents::READABLE, callback).expect("a started poll");
    let (happened, next) = mpsc::channel();
    let answer = move |_: &mut Loop, _: Async| happened.send(()).expect("a thread that waits");
    let (_, sender) = Async::new(&mut inner, trace.then("async inside", answer));
    run(&mut inner, RunMode::NoWait); // Submits the sources to the kernel.
    // The thread sends the data after the async was called, which orders the two.
    let next = Arc::new(Mutex::new(next));

    let inner = Rc::new(RefCell::new(inner));
    let mut outer = new_loop(lab)?;
    // SAFETY: the inner loop outlives the outer one, and keeps its descriptor.
    let poll = unsafe { Poll::from_raw_source(&mut outer, own) }
        .unwrap_or_else(|error| panic!("a loop cannot be polled by another: {error}"));
    let (inside, noted) = (Rc::clone(&inner), trace.clone());
    let run_inside = move |_: &mut Loop, _, events: std::io::Result<PollEvents>| {
        noted.note("outside");
        assert_eq!(events.expect("no error"), PollEvents::READABLE);
        let mut inner = inside.borrow_mut();
        run(&mut inner, RunMode::NoWait);
        while inner.backend_timeout() == Some(ZERO) {
            run(&mut inner, RunMode::NoWait); // Some changes are not submitted yet.
        }
    };
    poll.start(&mut outer, PollEvents::READABLE, run_inside).expect("a started poll");
    for _ in 0..3 {
        let thread = thread::spawn({
            let (sender, far) = (sender.clone(), far.try_clone().expect("a clone"));
            let next = Arc::clone(&next);
            move || {
                thread::sleep(SHORT);
                sender.send().expect("a send");
                let called = next.lock().expect("the only thread").recv();
                called.expect("an async that is called");
                thread::sleep(SHORT);
                send(&far, b"x");
            }
        });
        let mut seen = Vec::new();
        while seen.len() < 2 {
            run(&mut outer, RunMode::Once);
            seen.extend(trace.take().into_iter().filter(|name| *name != "outside"));
        }
        thread.join().expect("the sender");
        assert_eq!(seen, ["async inside", "poll inside"]);
        // The outer loop blocks again eventually: a nested kernel object may be readable once more
        // for an event that was already handled.
        let quiet = (0..100).any(|_| {
            run(&mut outer, RunMode::NoWait);
            trace.take().is_empty()
        });
        assert!(quiet, "the outer loop spins");
    }
    Ok(())
}

/// A source that becomes ready repeatedly wakes another poller each time. The poller blocks in
/// between.
pub fn each_event_wakes_another_poller(lab: &Lab) -> Verdict {
    const EVENTS: usize = 5;
    let mut lp = new_loop(lab)?;
    let (own, events) = (own_descriptor(&lp)?, Log::default());
    let (near, far) = tcp_pair();
    let reads = near.try_clone().expect("a clone");
    let (poll, log) = (Poll::new(&mut lp, near).expect("a poll"), events.clone());
    let callback = move |_: &mut Loop, _, events: std::io::Result<PollEvents>| {
        drain(&reads);
        log.push(events.expect("no error"));
    };
    poll.start(&mut lp, PollEvents::READABLE, callback).expect("a started poll");
    let mut runs = 0;
    for number in 1..=EVENTS {
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(SHORT);
                send(&far, b"x");
            });
            runs += drive(&mut lp, own, "an event", || events.len() >= number);
        });
    }
    assert!(runs < 10 * EVENTS, "{runs} runs for {EVENTS} events: the poller spins");
    Ok(())
}

/// A source started by a timer wakes another poller, although no event has occurred since the last
/// change was submitted to the kernel.
pub fn sources_started_by_a_timer_wake_another_poller(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (own, trace) = (own_descriptor(&lp)?, Trace::default());
    let (near, far) = tcp_pair();
    let poll = Poll::new(&mut lp, near).expect("a poll");
    // Polled before for another event, so that this start is a change to submit to the kernel.
    let stop = |lp: &mut Loop, poll: Poll, _| poll.stop(lp).expect("an open poll");
    poll.start(&mut lp, PollEvents::WRITABLE, stop).expect("a started poll");
    run(&mut lp, RunMode::Once);
    assert!(!run(&mut lp, RunMode::NoWait), "it was writable, and is stopped");
    let noted = trace.clone();
    timer_in(&mut lp, SHORT / 4, move |lp, _| {
        let noted = noted.clone();
        let callback = move |lp: &mut Loop, poll: Poll, _| {
            noted.note("ready");
            poll.close(lp).expect("an open poll");
        };
        poll.start(lp, PollEvents::READABLE, callback).expect("a started poll");
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(2 * SHORT);
            send(&far, b"x");
        });
        drive(&mut lp, own, "an event", || !trace.take().is_empty());
    });
    Ok(())
}

/// Another poller drives an echo of a connection or of datagrams, with readiness and with
/// operations: reads and writes of callbacks are submitted before the poller blocks.
pub fn another_poller_drives_an_echo(lab: &Lab) -> Verdict {
    const MESSAGES: usize = 200;
    let (mut lp, ends) = (new_loop(lab)?, Log::default());
    let own = own_descriptor(&lp)?;
    let (server, address) = bound(&mut lp);
    echo(&mut lp, server, &ends);
    let (udp, at) = datagrams::bound(&mut lp);
    let answer = |lp: &mut Loop, udp: Udp, datagram: Result<Datagram<'_>, UdpError>| {
        let Datagram { data, from, .. } = datagram.expect("a datagram");
        udp.send(lp, data.to_vec(), from, datagrams::sent).expect("an answer");
    };
    udp.recv_start(&mut lp, answer).expect("a handle that receives");
    let client = thread::spawn(move || {
        let (socket, _) = datagrams::outsider();
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.set_read_timeout(Some(SOON)).expect("SO_RCVTIMEO");
        for number in 0..MESSAGES {
            let (message, mut echoed) = ([number as u8; 100], [0; 100]);
            stream.write_all(&message).expect("a message");
            stream.read_exact(&mut echoed).expect("its echo");
            assert_eq!(echoed, message);
            socket.send_to(&message, at).expect("a datagram");
            socket.recv(&mut echoed).expect("its echo");
            assert_eq!(echoed, message);
        }
    });
    let runs = drive(&mut lp, own, "the end of the connection", || ends.len() > 0);
    client.join().expect("a client that is answered");
    assert!(runs < 20 * MESSAGES, "{runs} runs: the poller spins");
    Ok(())
}

/// Another poller completes a partial write when the peer reads, and a file operation.
pub fn another_poller_completes_requests(lab: &Lab) -> Verdict {
    let (mut lp, ended) = (new_loop(lab)?, Trace::default());
    let own = own_descriptor(&lp)?;
    let (tcp, mut far) = connected(&mut lp);
    let noted = ended.clone();
    let written = move |_: &mut Loop, _, result: std::io::Result<()>, _| {
        result.expect("a write");
        noted.note("written");
    };
    tcp.write(&mut lp, vec![7; OVER_STREAM_BUFFERS], written).expect("a write that waits");
    let reader = thread::spawn(move || {
        thread::sleep(SHORT);
        let (mut left, mut memory) = (OVER_STREAM_BUFFERS, vec![0; 1 << 16]);
        while left > 0 {
            left -= far.read(&mut memory).expect("what was written");
        }
        far
    });
    drive(&mut lp, own, "the end of the write", || ended.take() == ["written"]);
    let _far = reader.join().expect("a reader");
    for _ in 0..3 {
        let noted = ended.clone();
        fs::stat(".").start(&mut lp, move |_, _| noted.note("done")).expect("it starts");
        drive(&mut lp, own, "the completion of an operation", || ended.take() == ["done"]);
    }
    Ok(())
}
