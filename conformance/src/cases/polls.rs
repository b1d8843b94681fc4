//! Point 20: polls, which watch what somebody else reads and writes.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::rc::Rc;

use poll_core::Backend;
use uv_core::{Handle, Loop, Poll, PollEvents, RunMode, Timer};

use crate::support::loops::{ZERO, keep_alive, new_loop, run, run_to_the_end};
use crate::support::observe::{SHORT, SOON};
use crate::support::sources::{
    arrived, drain, fill, half_close, reset, send, send_urgent, shrink_buffers, tcp_pair,
};
use crate::support::trace::{Count, Trace};
use crate::support::wine;
use crate::{Lab, Skip, Verdict};

const READABLE: PollEvents = PollEvents::READABLE;
const WRITABLE: PollEvents = PollEvents::WRITABLE;

/// Both ends of a connection; the near one is shared with the poll that watches it.
fn pair() -> (Rc<TcpStream>, TcpStream) {
    let (near, far) = tcp_pair();
    (Rc::new(near), far)
}

fn watch<T: Backend>(lp: &mut Loop<T>, near: &Rc<TcpStream>) -> Poll {
    Poll::new(lp, Rc::clone(near)).unwrap_or_else(|error| panic!("a poll of a socket: {error}"))
}

fn start<T: Backend>(
    poll: Poll,
    lp: &mut Loop<T>,
    events: PollEvents,
    callback: impl FnMut(&mut Loop<T>, Poll, io::Result<PollEvents>) + 'static,
) {
    poll.start(lp, events, callback).unwrap_or_else(|error| panic!("start {events:?}: {error}"));
}

/// What polls were told, for a case to look at.
#[derive(Clone, Debug, Default)]
struct Told(Rc<RefCell<Vec<io::Result<PollEvents>>>>);

impl Told {
    fn callback<T: Backend>(
        &self,
    ) -> impl FnMut(&mut Loop<T>, Poll, io::Result<PollEvents>) + 'static {
        let told = self.clone();
        move |_, _, events| told.0.borrow_mut().push(events)
    }

    /// What was told since the last look; errors fail the case.
    #[track_caller]
    fn take(&self) -> Vec<PollEvents> {
        let told = self.0.take().into_iter();
        told.map(|events| events.unwrap_or_else(|error| panic!("told of {error}"))).collect()
    }
}

/// Runs iterations that wait until one of them tells `wanted`, at least. Other tellings,
/// earlier or spurious, are passed over.
#[track_caller]
fn await_told<T: Backend>(lp: &mut Loop<T>, told: &Told, wanted: PollEvents) -> PollEvents {
    let deadline = Timer::new(lp);
    deadline.start(lp, SOON, ZERO, |_, _| {}).expect("a timer");
    loop {
        run(lp, RunMode::Once);
        if let Some(events) = told.take().into_iter().find(|events| events.contains(wanted)) {
            deadline.close(lp).expect("an open timer");
            return events;
        }
        assert!(deadline.is_active(lp), "{wanted:?} is not told");
    }
}

/// A poll is told of what it asked for and of nothing else, and of both directions in one
/// call.
pub fn tell_what_was_asked_for<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = pair();
    let mut lp = new_loop(lab)?;
    let (poll, told) = (watch(&mut lp, &near), Told::default());
    start(poll, &mut lp, WRITABLE, told.callback());
    assert_eq!(await_told(&mut lp, &told, WRITABLE), WRITABLE, "nothing was sent");
    send(&far, b"x");
    arrived(&near);
    assert_eq!(await_told(&mut lp, &told, WRITABLE), WRITABLE, "nobody asked to read");
    start(poll, &mut lp, READABLE | WRITABLE, told.callback());
    assert_eq!(await_told(&mut lp, &told, READABLE), READABLE | WRITABLE, "in one call");
    start(poll, &mut lp, READABLE, told.callback());
    assert_eq!(await_told(&mut lp, &told, READABLE), READABLE, "nobody asked to write");

    shrink_buffers(&near);
    shrink_buffers(&far);
    fill(&*near);
    drain(&*near);
    start(poll, &mut lp, READABLE | WRITABLE, told.callback());
    run(&mut lp, RunMode::NoWait);
    assert_eq!(told.take(), [], "neither a read nor a write would succeed");
    Ok(())
}

/// Level-triggered: told again in every iteration until somebody reads.
pub fn repeat_while_it_holds<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = pair();
    let mut lp = new_loop(lab)?;
    let (poll, told) = (watch(&mut lp, &near), Told::default());
    start(poll, &mut lp, READABLE, told.callback());
    send(&far, b"xyz");
    arrived(&near);
    for turn in 0..3 {
        run(&mut lp, RunMode::Once);
        assert_eq!(told.take(), [READABLE], "in turn {turn}");
        (&*near).read_exact(&mut [0]).expect("one of three bytes");
    }
    run(&mut lp, RunMode::NoWait);
    assert_eq!(told.take(), [], "all is read");
    Ok(())
}

/// Started again, a poll watches for the new events and calls the new callback alone; what
/// the old one captured is dropped.
pub fn starting_again_replaces_all<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = pair();
    let mut lp = new_loop(lab)?;
    let (poll, old, new) = (watch(&mut lp, &near), Told::default(), Told::default());
    start(poll, &mut lp, WRITABLE, old.callback());
    start(poll, &mut lp, READABLE, new.callback());
    assert_eq!(Rc::strong_count(&old.0), 1, "the old callback is dropped");
    run(&mut lp, RunMode::NoWait);
    assert_eq!(new.take(), [], "nothing to read");
    send(&far, b"x");
    assert_eq!(await_told(&mut lp, &new, READABLE), READABLE);
    assert_eq!(old.take(), []);

    // From inside the callback, too.
    let again = old.clone();
    start(poll, &mut lp, READABLE, move |lp, poll, _| {
        start(poll, lp, WRITABLE, again.callback());
    });
    run(&mut lp, RunMode::Once);
    assert_eq!(await_told(&mut lp, &old, WRITABLE), WRITABLE, "as its callback wished");
    Ok(())
}

/// To start for no events is to stop: inactive, silent, and the callback is dropped.
pub fn starting_for_nothing_stops<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, _far) = pair();
    let mut lp = new_loop(lab)?;
    let (poll, told) = (watch(&mut lp, &near), Told::default());
    assert!(!poll.is_active(&lp), "not before it is started");
    run_to_the_end(&mut lp);
    start(poll, &mut lp, WRITABLE, told.callback());
    assert!(poll.is_active(&lp) && lp.alive(), "a started poll keeps the loop");
    start(poll, &mut lp, PollEvents::empty(), told.callback());
    assert!(!poll.is_active(&lp), "started for nothing");
    assert_eq!(Rc::strong_count(&told.0), 1, "both callbacks are dropped");
    run_to_the_end(&mut lp);
    poll.stop(&mut lp).expect("a poll may be stopped twice");
    start(poll, &mut lp, WRITABLE, told.callback());
    poll.unreference(&mut lp).expect("an open poll");
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [], "the loop did not wait for it");
    Ok(())
}

/// Two polls that are ready in one batch: `act` is what the first that is called does to
/// the other. Gives the trace of a few iterations.
fn first_acts_on_the_other<T: Backend>(
    lp: &mut Loop<T>,
    act: impl Fn(&mut Loop<T>, Poll) + 'static,
) -> u64 {
    let ((one, one_far), (two, two_far)) = (pair(), pair());
    let (first, second) = (watch(lp, &one), watch(lp, &two));
    for far in [&one_far, &two_far] {
        send(far, b"x");
    }
    arrived(&one);
    arrived(&two);
    let (calls, act) = (Count::default(), Rc::new(act));
    for (poll, other) in [(first, second), (second, first)] {
        let (calls, act) = (calls.clone(), Rc::clone(&act));
        start(poll, lp, READABLE, move |lp, poll, events| {
            assert_eq!(events.expect("no error"), READABLE);
            calls.add();
            act(lp, other);
            poll.stop(lp).expect("an open poll");
        });
    }
    keep_alive(lp);
    run(lp, RunMode::Once);
    for _ in 0..3 {
        run(lp, RunMode::NoWait);
    }
    calls.get()
}

/// An event of a poll that was stopped by an earlier callback of the same batch is
/// dropped.
pub fn a_stopped_poll_is_not_called<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let calls = first_acts_on_the_other(&mut lp, |lp, other| other.stop(lp).expect("open"));
    assert_eq!(calls, 1, "the first to be called stopped the other");
    Ok(())
}

/// The same of one that was closed: its memory may be somebody else's by then.
pub fn a_closed_poll_is_not_called<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (near, _far) = pair();
    let calls = first_acts_on_the_other(&mut lp, move |lp, other| {
        other.close(lp).expect("open");
        // Whoever comes next has nothing to do with it.
        let next = watch(lp, &near);
        start(next, lp, READABLE, |_, _, events| panic!("told of {events:?} of another"));
    });
    assert_eq!(calls, 1, "the first to be called closed the other");
    Ok(())
}

/// A descriptor number that is free after a close, and taken at once by another file, is
/// another source: the event of the old one in the same batch is not told to the new.
#[cfg(unix)]
pub fn a_reused_number_is_another_source<T: Backend>(lab: &Lab<T>) -> Verdict {
    use std::os::fd::AsRawFd;

    let ((one, one_far), (two, two_far), (quiet, quiet_far)) = (pair(), pair(), pair());
    let mut lp = new_loop(lab)?;
    let (first, second) = (watch(&mut lp, &one), watch(&mut lp, &two));
    for far in [&one_far, &two_far] {
        send(far, b"x");
    }
    arrived(&one);
    arrived(&two);
    let (calls, told) = (Count::default(), Told::default());
    for (poll, other, number) in [(first, second, &two), (second, first, &one)] {
        let (calls, told) = (calls.clone(), told.clone());
        let (number, quiet) = (Rc::clone(number), Rc::clone(&quiet));
        start(poll, &mut lp, READABLE, move |lp, poll, _| {
            calls.add();
            other.close(lp).expect("an open poll");
            // SAFETY: both are open; the number is watched by nobody any more.
            let made = unsafe { libc::dup2(quiet.as_raw_fd(), number.as_raw_fd()) };
            assert_eq!(made, number.as_raw_fd(), "dup2: {}", io::Error::last_os_error());
            let again = watch(lp, &number);
            start(again, lp, READABLE, told.callback());
            poll.close(lp).expect("an open poll");
        });
    }
    run(&mut lp, RunMode::Once);
    run(&mut lp, RunMode::NoWait);
    assert_eq!(calls.get(), 1, "the other was closed");
    assert_eq!(told.take(), [], "nothing was sent to the file that has the number now");
    send(&quiet_far, b"y");
    assert_eq!(await_told(&mut lp, &told, READABLE), READABLE, "now there is something");
    Ok(())
}

/// A descriptor number that is free after a close is another source when it comes again.
#[cfg(not(unix))]
pub fn a_reused_number_is_another_source<T: Backend>(_lab: &Lab<T>) -> Verdict {
    Err(Skip::because("Windows cannot give a socket the number of another"))
}

/// One handle for one descriptor, until it is closed; from then on, at once, another.
pub fn a_descriptor_has_one_poll<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = pair();
    let mut lp = new_loop(lab)?;
    let (poll, told) = (watch(&mut lp, &near), Told::default());
    start(poll, &mut lp, READABLE, told.callback());
    let twice = Poll::new(&mut lp, Rc::clone(&near)).map_err(|error| error.kind());
    assert_eq!(twice, Err(ErrorKind::AlreadyExists), "a second poll");
    assert_eq!(Rc::strong_count(&near), 2, "the refused owner is dropped");
    assert_eq!(lp.walk().len(), 1, "a refused poll is no handle");
    send(&far, b"x");
    assert_eq!(await_told(&mut lp, &told, READABLE), READABLE, "the first goes on");

    poll.close(&mut lp).expect("an open poll");
    let next = watch(&mut lp, &near);
    start(next, &mut lp, READABLE, told.callback());
    assert_eq!(await_told(&mut lp, &told, READABLE), READABLE, "the next");
    let refused = poll.start(&mut lp, READABLE, |_, _, _| {}).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::NotFound), "the key of the closed one is stale");
    Ok(())
}

/// Files and directories are always ready, so that to poll one is a mistake. It is refused, and
/// nothing is left of it.
#[cfg(unix)]
pub fn a_regular_file_is_refused<T: Backend>(lab: &Lab<T>) -> Verdict {
    use crate::support::files::Directory;

    let directory = Directory::new();
    let mut lp = new_loop(lab)?;
    for path in [directory.file("file", "not empty"), directory.path(".")] {
        let file = std::fs::File::open(&path).expect("what can be read");
        let refused = Poll::new(&mut lp, file).map_err(|error| error.raw_os_error());
        assert_eq!(refused, Err(Some(libc::EPERM)), "{}", path.display());
        assert!(lp.walk().is_empty(), "a refused poll is no handle");
    }
    run_to_the_end(&mut lp);
    Ok(())
}

/// Files and directories are always ready, so that to poll one is a mistake.
#[cfg(not(unix))]
pub fn a_regular_file_is_refused<T: Backend>(_lab: &Lab<T>) -> Verdict {
    Err(Skip::because("on Windows only sockets can be given to a poll"))
}

/// Readiness may be spurious, so the descriptor is made non-blocking: a read of nothing
/// must not hang the loop.
pub fn descriptors_become_non_blocking<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, _far) = pair();
    near.set_nonblocking(false).expect("a blocking socket");
    let mut lp = new_loop(lab)?;
    watch(&mut lp, &near);
    let read = (&*near).read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(read, Err(ErrorKind::WouldBlock));
    Ok(())
}

/// Starts a poll for events that not every backend sees.
fn start_if_seen<T: Backend>(
    poll: Poll,
    lp: &mut Loop<T>,
    events: PollEvents,
    told: &Told,
) -> Verdict {
    poll.start(lp, events, told.callback()).map_err(|error| {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "start {events:?}: {error}");
        assert!(!poll.is_active(lp), "nothing is started after an error");
        Skip::because(error.to_string())
    })
}

/// `DISCONNECT` tells that the peer has ended its writing side, without a read.
pub fn a_half_close_is_a_disconnect<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = pair();
    let mut lp = new_loop(lab)?;
    keep_alive(&mut lp);
    let (poll, told) = (watch(&mut lp, &near), Told::default());
    start_if_seen(poll, &mut lp, PollEvents::DISCONNECT, &told)?;
    send(&far, b"x");
    arrived(&near);
    run(&mut lp, RunMode::NoWait);
    assert_eq!(told.take(), [], "data is no disconnect");
    if wine::hides_ends_behind_data() {
        drain(&*near);
    }
    half_close(&far);
    let events = await_told(&mut lp, &told, PollEvents::DISCONNECT);
    assert_eq!(events, PollEvents::DISCONNECT, "nobody asked to read");
    Ok(())
}

/// `PRIORITIZED` tells of urgent data.
pub fn urgent_data_is_prioritized<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = pair();
    let mut lp = new_loop(lab)?;
    keep_alive(&mut lp);
    let (poll, told) = (watch(&mut lp, &near), Told::default());
    start_if_seen(poll, &mut lp, PollEvents::PRIORITIZED, &told)?;
    send(&far, b"x");
    arrived(&near);
    run(&mut lp, RunMode::NoWait);
    assert_eq!(told.take(), [], "ordinary data");
    send_urgent(&far);
    let events = await_told(&mut lp, &told, PollEvents::PRIORITIZED);
    assert_eq!(events, PollEvents::PRIORITIZED, "nobody asked for anything else");
    Ok(())
}

/// At the end of a connection all is told that was asked for: whoever reads or writes
/// learns of it.
pub fn a_hang_up_is_all_that_was_asked_for<T: Backend>(lab: &Lab<T>) -> Verdict {
    for asked in [READABLE | WRITABLE, READABLE, WRITABLE] {
        let (near, far) = pair();
        let mut lp = new_loop(lab)?;
        let (poll, told) = (watch(&mut lp, &near), Told::default());
        half_close(&near);
        drop(far);
        arrived(&near);
        start(poll, &mut lp, asked, told.callback());
        assert_eq!(await_told(&mut lp, &told, asked), asked);
    }
    Ok(())
}

/// Where a backend tells errors from readiness, an error stops the poll and is told as a
/// bad descriptor: a loop must not spin over a socket that nobody repairs.
pub fn an_error_stops_the_poll<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = pair();
    let mut lp = new_loop(lab)?;
    let (poll, told) = (watch(&mut lp, &near), Told::default());
    start(poll, &mut lp, READABLE, told.callback());
    reset(far);
    run(&mut lp, RunMode::Once);
    let first = told.0.take().pop().expect("a reset is told of");
    let Err(error) = first else {
        assert!(poll.is_active(&lp), "told as readiness, it goes on");
        return Err(Skip::because("tells a reset as readiness"));
    };
    assert!(!poll.is_active(&lp), "stopped");
    assert!(error.raw_os_error().is_some(), "the system's own error: {error}");
    assert_eq!(Rc::strong_count(&told.0), 1, "the callback is dropped");
    run_to_the_end(&mut lp);
    assert!(told.take().is_empty(), "told once");
    Ok(())
}

/// The poll keeps what it watches from `new` until its close callback has run, and not
/// longer; a loop that is dropped lets go of it too.
pub fn the_owner_is_kept_until_closed<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, _far) = pair();
    let mut lp = new_loop(lab)?;
    let poll = watch(&mut lp, &near);
    start(poll, &mut lp, WRITABLE, |_, _, _| {});
    run(&mut lp, RunMode::Once);
    assert_eq!(Rc::strong_count(&near), 2, "while it is watched");
    let (seen, held) = (Rc::new(Cell::new(0)), Rc::downgrade(&near));
    let count = Rc::clone(&seen);
    poll.close_with(&mut lp, move |_, _| count.set(held.strong_count())).expect("an open poll");
    run_to_the_end(&mut lp);
    assert_eq!(seen.get(), 2, "in the close callback");
    assert_eq!(Rc::strong_count(&near), 1, "after it");
    watch(&mut lp, &near);
    drop(lp);
    assert_eq!(Rc::strong_count(&near), 1, "after the loop");
    Ok(())
}

/// A poll may close itself in its callback, and is not called again; what it captured
/// lives until the callback returns.
pub fn one_may_close_itself<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, _far) = pair();
    let mut lp = new_loop(lab)?;
    let (poll, trace) = (watch(&mut lp, &near), Trace::default());
    let (noted, held) = (trace.clone(), Rc::new("held"));
    start(poll, &mut lp, WRITABLE, move |lp, poll, _| {
        noted.note("called");
        let closed = noted.clone();
        poll.close_with(lp, move |_, _| closed.note("closed")).expect("an open poll");
        noted.note(*held);
    });
    run_to_the_end(&mut lp);
    trace.expect(&["called", "held", "closed"], "once");
    assert!(lp.close().is_ok(), "nothing is open");
    Ok(())
}

/// A thousand polls, each told of its own data and of nobody else's.
pub fn a_thousand_at_once<T: Backend>(lab: &Lab<T>) -> Verdict {
    use crate::support::limits::need_descriptors;
    use std::net::UdpSocket;

    const POLLS: usize = 1_000;
    need_descriptors(POLLS as u64 + 100)?;
    let mut lp = new_loop(lab)?;
    let seen = Rc::new(RefCell::new(vec![0_u32; POLLS]));
    let mut sockets = Vec::new();
    for index in 0..POLLS {
        let socket = Rc::new(UdpSocket::bind(("127.0.0.1", 0)).expect("a socket"));
        let poll = match Poll::new(&mut lp, Rc::clone(&socket)) {
            Ok(poll) => poll,
            Err(error) if index > 0 && error.kind() == ErrorKind::Unsupported => {
                return Err(Skip::because(error.to_string()));
            }
            Err(error) => panic!("poll {index}: {error}"),
        };
        let (seen, own) = (Rc::clone(&seen), Rc::clone(&socket));
        start(poll, &mut lp, READABLE, move |lp, poll, _| {
            // Spurious readiness is allowed.
            if own.recv(&mut [0; 8]).is_ok() {
                seen.borrow_mut()[index] += 1;
                poll.close(lp).expect("an open poll");
            }
        });
        sockets.push(socket);
    }
    run(&mut lp, RunMode::NoWait);
    for socket in &sockets {
        let own = socket.local_addr().expect("an address");
        socket.send_to(b"x", own).expect("a datagram to oneself");
    }
    let late = Timer::new(&mut lp);
    late.start(&mut lp, SOON, ZERO, |_, _| panic!("not all are told")).expect("a timer");
    late.unreference(&mut lp).expect("an open timer");
    run_to_the_end(&mut lp);
    assert!(seen.borrow().iter().all(|&times| times == 1), "each once");
    Ok(())
}

/// What is not ready does not end a wait: a timer that is due meanwhile is on time, and
/// nothing else is called.
pub fn silent_polls_do_not_disturb_timers<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, _far) = pair();
    let mut lp = new_loop(lab)?;
    let poll = watch(&mut lp, &near);
    start(poll, &mut lp, READABLE, |_, _, events| panic!("told of {events:?}"));
    let (timer, before) = (Timer::new(&mut lp), lp.now());
    timer.start(&mut lp, SHORT, ZERO, |lp, _| lp.stop()).expect("a timer");
    run(&mut lp, RunMode::Default);
    assert!(lp.now() - before >= SHORT, "not early");
    Ok(())
}
