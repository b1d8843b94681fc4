//! Loops that another poller drives.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use poll_core::{Backend, RawSource};
use uv_core::{
    Async, AsyncSender, Datagram, Handle, Loop, Poll, PollEvents, RunMode, Stream, Udp, UdpError,
    fs,
};

use crate::support::datagrams;
use crate::support::loops::{ZERO, new_loop, run, timer_in};
use crate::support::observe::{SHORT, SOON};
use crate::support::sources::{drain, send, tcp_pair};
use crate::support::streams::{TOO_MUCH, bound, connected, echo};
use crate::support::trace::{Log, Trace};
use crate::{Lab, Skip, Verdict};

fn own_descriptor<T: Backend>(lp: &Loop<T>) -> Result<RawSource, Skip> {
    lp.raw_fd().ok_or_else(|| Skip::because("has no descriptor of its own"))
}

/// Sleeps in `poll(2)` on a loop's descriptor for as long as the loop says.
#[track_caller]
fn sleep_outside<T: Backend>(lp: &mut Loop<T>, source: RawSource) {
    // What wakes a poller that sleeps for ever comes soon.
    let timeout = lp.backend_timeout();
    // Rounded up: to wake too early is to wake twice.
    let limit = timeout.unwrap_or(SOON).as_nanos().div_ceil(1_000_000) as libc::c_int;
    let mut polled = libc::pollfd { fd: source.fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `polled` is one valid entry, and outlives the call.
    let count = unsafe { libc::poll(&mut polled, 1, limit) };
    assert!(count >= 0, "poll: {}", std::io::Error::last_os_error());
    assert!(count > 0 || timeout.is_some(), "the poller sleeps for ever");
}

/// Drives the loop from outside until `done` says so. It sleeps before it runs the loop, so
/// that it knows what is to be done from `backend_timeout` alone. Returns how often it ran.
#[track_caller]
fn drive<T: Backend>(
    lp: &mut Loop<T>,
    source: RawSource,
    what: &str,
    mut done: impl FnMut() -> bool,
) -> usize {
    let (mut runs, started) = (0, Instant::now());
    while !done() {
        assert!(started.elapsed() < SOON, "{what} does not happen");
        sleep_outside(lp, source);
        run(lp, RunMode::NoWait);
        runs += 1;
    }
    runs
}

/// An async that writes its name once, and closes itself.
fn noting_once<T: Backend>(lp: &mut Loop<T>, trace: &Trace, name: &'static str) -> AsyncSender {
    let close = |lp: &mut Loop<T>, handle: Async| handle.close(lp).expect("an open handle");
    Async::new(lp, trace.then(name, close)).1
}

/// Descriptor, timeout and runs that do not wait are all that another poller needs to
/// drive a loop: timers, sends and sources come through it, and it sleeps in between.
pub fn another_poller_drives_the_loop<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let own = own_descriptor(&lp)?;
    let trace = Trace::default();
    let (near, far) = tcp_pair();
    timer_in(&mut lp, SHORT / 2, trace.noting("timer"));
    let sender = noting_once(&mut lp, &trace, "async");
    let (poll, noted) = (Poll::new(&mut lp, near).expect("a poll"), trace.clone());
    let told = move |lp: &mut Loop<T>, poll: Poll, _| {
        noted.note("poll");
        poll.close(lp).expect("an open poll");
    };
    poll.start(&mut lp, PollEvents::READABLE, told).expect("a started poll");
    let thread = thread::spawn(move || {
        thread::sleep(2 * SHORT);
        sender.send().expect("a send");
        thread::sleep(2 * SHORT);
        send(&far, b"x");
        far
    });
    let (mut turns, started) = (0, Instant::now());
    while run(&mut lp, RunMode::NoWait) {
        assert!(started.elapsed() < SOON, "something is not told");
        turns += 1;
        sleep_outside(&mut lp, own);
    }
    thread.join().expect("the sender");
    trace.expect(&["timer", "async", "poll"], "each in its time");
    assert!(turns < 50, "{turns} turns for three events: the poller does not sleep");
    Ok(())
}

/// A loop's descriptor, for another loop to poll.
struct Inner(RawSource);

impl AsFd for Inner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the inner loop outlives the outer one, and keeps its descriptor.
        unsafe { BorrowedFd::borrow_raw(self.0.fd()) }
    }
}

/// A loop runs inside another of the same kind, which polls its descriptor: what
/// happens to the inner one wakes the outer one.
pub fn a_loop_runs_inside_another<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut inner, trace) = (new_loop(lab)?, Trace::default());
    let own = own_descriptor(&inner)?;
    let (near, far) = tcp_pair();
    let reads = near.try_clone().expect("a clone");
    let (poll, noted) = (Poll::new(&mut inner, near).expect("a poll"), trace.clone());
    let told = move |_: &mut Loop<T>, _, _| {
        drain(&reads);
        noted.note("poll inside");
    };
    poll.start(&mut inner, PollEvents::READABLE, told).expect("a started poll");
    let (_, sender) = Async::new(&mut inner, trace.noting("async inside"));
    run(&mut inner, RunMode::NoWait); // Tells the kernel of the sources.

    let inner = Rc::new(RefCell::new(inner));
    let mut outer = new_loop(lab)?;
    let poll = Poll::new(&mut outer, Inner(own))
        .unwrap_or_else(|error| panic!("a loop cannot be polled by another: {error}"));
    let (inside, noted) = (Rc::clone(&inner), trace.clone());
    let run_inside = move |_: &mut Loop<T>, _, events: std::io::Result<PollEvents>| {
        noted.note("outside");
        assert_eq!(events.expect("no error"), PollEvents::READABLE);
        let mut inner = inside.borrow_mut();
        run(&mut inner, RunMode::NoWait);
        while inner.backend_timeout() == Some(ZERO) {
            run(&mut inner, RunMode::NoWait); // The kernel has not been told all yet.
        }
    };
    poll.start(&mut outer, PollEvents::READABLE, run_inside).expect("a started poll");
    for _ in 0..3 {
        let thread = thread::spawn({
            let (sender, far) = (sender.clone(), far.try_clone().expect("a clone"));
            move || {
                thread::sleep(SHORT);
                sender.send().expect("a send");
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
        // The outer loop sleeps again, sooner or later: a nested kernel object may be
        // readable once more for what was read already.
        let quiet = (0..100).any(|_| {
            run(&mut outer, RunMode::NoWait);
            trace.take().is_empty()
        });
        assert!(quiet, "the outer loop spins");
    }
    Ok(())
}

/// A source that becomes ready again and again wakes another poller each time, which sleeps in
/// between.
pub fn each_event_wakes_another_poller<T: Backend>(lab: &Lab<T>) -> Verdict {
    const EVENTS: usize = 5;
    let mut lp = new_loop(lab)?;
    let (own, events) = (own_descriptor(&lp)?, Log::default());
    let (near, far) = tcp_pair();
    let reads = near.try_clone().expect("a clone");
    let (poll, log) = (Poll::new(&mut lp, near).expect("a poll"), events.clone());
    let told = move |_: &mut Loop<T>, _, events: std::io::Result<PollEvents>| {
        drain(&reads);
        log.push(events.expect("no error"));
    };
    poll.start(&mut lp, PollEvents::READABLE, told).expect("a started poll");
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
    assert!(runs < 10 * EVENTS, "{runs} runs for {EVENTS} events: the poller does not sleep");
    Ok(())
}

/// What a timer starts to watch wakes another poller, though nothing but time has passed since
/// the kernel was last told of anything.
pub fn what_a_timer_starts_wakes_another_poller<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (own, trace) = (own_descriptor(&lp)?, Trace::default());
    let (near, far) = tcp_pair();
    let poll = Poll::new(&mut lp, near).expect("a poll");
    // Watched before, for something else: so it is a change that the kernel is to be told of.
    let stop = |lp: &mut Loop<T>, poll: Poll, _| poll.stop(lp).expect("an open poll");
    poll.start(&mut lp, PollEvents::WRITABLE, stop).expect("a started poll");
    run(&mut lp, RunMode::Once);
    assert!(!run(&mut lp, RunMode::NoWait), "it was writable, and is stopped");
    let noted = trace.clone();
    timer_in(&mut lp, SHORT / 4, move |lp, _| {
        let noted = noted.clone();
        let told = move |lp: &mut Loop<T>, poll: Poll, _| {
            noted.note("ready");
            poll.close(lp).expect("an open poll");
        };
        poll.start(lp, PollEvents::READABLE, told).expect("a started poll");
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

/// Another poller is all that an echo needs, of a connection or of datagrams, whatever makes it:
/// what callbacks read and write is done before the poller sleeps.
pub fn an_echo_is_driven_from_outside<T: Backend>(lab: &Lab<T>) -> Verdict {
    const MESSAGES: usize = 200;
    let (mut lp, ends) = (new_loop(lab)?, Log::default());
    let own = own_descriptor(&lp)?;
    let (server, address) = bound(&mut lp);
    echo(&mut lp, server, &ends);
    let (udp, at) = datagrams::bound(&mut lp);
    let answer = |lp: &mut Loop<T>, udp: Udp, datagram: Result<Datagram<'_>, UdpError>| {
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
    assert!(runs < 20 * MESSAGES, "{runs} runs: the poller does not sleep");
    Ok(())
}

/// A write that does not fit is finished by another poller, when the peer reads; and so is an
/// operation on a file.
pub fn requests_end_outside<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, ended) = (new_loop(lab)?, Trace::default());
    let own = own_descriptor(&lp)?;
    let (tcp, mut far) = connected(&mut lp);
    let noted = ended.clone();
    let written = move |_: &mut Loop<T>, _, result: std::io::Result<()>, _| {
        result.expect("a write");
        noted.note("written");
    };
    tcp.write(&mut lp, vec![7; TOO_MUCH], written).expect("a write that waits");
    let reader = thread::spawn(move || {
        thread::sleep(SHORT);
        let (mut left, mut memory) = (TOO_MUCH, vec![0; 1 << 16]);
        while left > 0 {
            left -= far.read(&mut memory).expect("what was written");
        }
        far
    });
    drive(&mut lp, own, "the end of the write", || ended.take() == ["written"]);
    let _far = reader.join().expect("a reader");
    for _ in 0..3 {
        let noted = ended.clone();
        fs::stat(".").start(&mut lp, move |_, _| noted.note("told")).expect("it starts");
        drive(&mut lp, own, "the end of an operation", || ended.take() == ["told"]);
    }
    Ok(())
}
