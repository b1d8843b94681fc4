//! The order of signals and of what arrived before them.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use libc::{SIGUSR1, SIGUSR2};
use uv_core::{Pipe, Poll, PollEvents, RunMode, Signal, Stream};

use super::delivery::ignored;
use crate::support::dispositions::raise;
use crate::support::loops::{ZERO, new_loop, run};
use crate::support::sources::{drain, send};
use crate::support::trace::Trace;
use crate::{Lab, Loop, Verdict};

/// Data that arrived before a signal is delivered before it, also if both arrived after the wait had
/// returned whose events the loop is handling: the loop polls once more, and does not block for it.
/// A server that closes its connections at `SIGTERM` has read all that was sent before.
pub fn follow_data_that_arrived_before_them(lab: &Lab) -> Verdict {
    let _ignored = ignored();
    // Starting a handle collects the signals for those that were started before.
    for starts_another in [false, true] {
        let mut lp = new_loop(lab)?;
        let trace = Trace::default();
        let (_, data) = read_by(&mut lp, &trace);
        let (signal, noted) = (Signal::new(&mut lp), trace.clone());
        signal.start(&mut lp, SIGUSR1, move |_, _, _| noted.note("signal")).expect("a signal");

        let (event, trigger) = pair();
        let event = Rc::new(event);
        let poll = Poll::new(&mut lp, Rc::clone(&event)).expect("a poll");
        let (noted, drained) = (trace.clone(), Rc::clone(&event));
        let react = move |lp: &mut Loop, _, _| {
            noted.note("event");
            drain(&*drained);
            send(&data, b"x");
            raise(SIGUSR1);
            if starts_another {
                Signal::new(lp).start(lp, SIGUSR1, |_, _, _| panic!("not watched yet")).unwrap();
            }
        };
        poll.start(&mut lp, PollEvents::READABLE, react).expect("a started poll");
        run(&mut lp, RunMode::NoWait);
        trace.expect(&[], "nothing has happened");

        send(&trigger, b"x");
        run(&mut lp, RunMode::Once);
        trace.expect(&["event"], "the loop has not polled since the signal");
        assert_eq!(lp.backend_timeout(), Some(ZERO), "nor may another poller block");
        run(&mut lp, RunMode::Once);
        trace.expect(&["read", "signal"], "in the order of their arrival");
    }
    Ok(())
}

/// The same for a signal and data that arrive while another signal is delivered, and for those that
/// arrive before a run, which delivers both in its first iteration.
pub fn follow_data_that_another_signal_sent(lab: &Lab) -> Verdict {
    let _ignored = ignored();
    let mut lp = new_loop(lab)?;
    let trace = Trace::default();
    let (_, data) = read_by(&mut lp, &trace);
    let data = Rc::new(data);
    let (first, noted, sender) = (Signal::new(&mut lp), trace.clone(), Rc::clone(&data));
    let react = move |_: &mut Loop, _, _| {
        noted.note("first");
        send(&*sender, b"x");
        raise(SIGUSR2);
    };
    first.start(&mut lp, SIGUSR1, react).expect("a signal");
    let (second, noted) = (Signal::new(&mut lp), trace.clone());
    second.start(&mut lp, SIGUSR2, move |_, _, _| noted.note("second")).expect("a signal");
    run(&mut lp, RunMode::NoWait);

    send(&*data, b"x");
    raise(SIGUSR1);
    run(&mut lp, RunMode::NoWait);
    trace.expect(&["read", "first"], "the second signal came after the poll");
    run(&mut lp, RunMode::NoWait);
    trace.expect(&["read", "second"], "in the order of their arrival");
    Ok(())
}

/// A stream that notes its reads, and its peer.
fn read_by(lp: &mut Loop, trace: &Trace) -> (Pipe, UnixStream) {
    let (near, far) = pair();
    let (pipe, noted) = (Pipe::new(lp), trace.clone());
    pipe.open(lp, OwnedFd::from(near)).expect("a free handle");
    pipe.read_start(lp, move |_, _, result| {
        assert_eq!(result.expect("data"), b"x");
        noted.note("read");
    })
    .expect("a connected stream");
    (pipe, far)
}

/// Local sockets: what is written to one is readable at the other when the write returns.
fn pair() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().expect("a pair of local sockets");
    for end in [&near, &far] {
        end.set_nonblocking(true).expect("a non-blocking socket");
    }
    (near, far)
}
