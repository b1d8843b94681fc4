//! Point 20: polls, which watch descriptors that other code reads and writes.

use std::cell::{Cell, RefCell};
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::rc::Rc;

use poll_core::RawSource;
use uv_core::{Handle, Poll, PollEvents, RunMode, Stream, Timer};

use crate::support::loops::{ZERO, keep_alive, new_loop, run, run_to_the_end};
use crate::support::observe::{SHORT, SOON};
use crate::support::sources::{
    arrived, drain, fill, half_close, reset, send, send_urgent, shrink_buffers, tcp_pair,
};
use crate::support::streams::{connected, run_until};
use crate::support::trace::{Count, Log, Trace};
use crate::support::wine;
use crate::{Lab, Loop, Skip, Verdict};

const READABLE: PollEvents = PollEvents::READABLE;
const WRITABLE: PollEvents = PollEvents::WRITABLE;

/// Both ends of a connection; the near one is shared with the poll that watches it.
fn pair() -> (Rc<TcpStream>, TcpStream) {
    let (near, far) = tcp_pair();
    (Rc::new(near), far)
}

fn watch(lp: &mut Loop, near: &Rc<TcpStream>) -> Poll {
    Poll::new(lp, Rc::clone(near)).unwrap_or_else(|error| panic!("a poll of a socket: {error}"))
}

fn start(
    poll: Poll,
    lp: &mut Loop,
    events: PollEvents,
    callback: impl FnMut(&mut Loop, Poll, io::Result<PollEvents>) + 'static,
) {
    poll.start(lp, events, callback).unwrap_or_else(|error| panic!("start {events:?}: {error}"));
}

/// The results that poll callbacks received.
#[derive(Clone, Debug, Default)]
struct Calls(Rc<RefCell<Vec<io::Result<PollEvents>>>>);

impl Calls {
    fn callback(&self) -> impl FnMut(&mut Loop, Poll, io::Result<PollEvents>) + 'static {
        let log = self.clone();
        move |_, _, events| log.0.borrow_mut().push(events)
    }

    /// The events since the last call; an error fails the case.
    #[track_caller]
    fn take(&self) -> Vec<PollEvents> {
        let log = self.0.take().into_iter();
        log.map(|events| events.unwrap_or_else(|error| panic!("the poll fails: {error}"))).collect()
    }
}

/// Runs blocking iterations until one reports at least `wanted`. Other events, earlier or spurious,
/// are ignored.
#[track_caller]
fn await_call(lp: &mut Loop, log: &Calls, wanted: PollEvents) -> PollEvents {
    let deadline = Timer::new(lp);
    deadline.start(lp, SOON, ZERO, |_, _| {}).expect("a timer");
    loop {
        run(lp, RunMode::Once);
        if let Some(events) = log.take().into_iter().find(|events| events.contains(wanted)) {
            deadline.close(lp).expect("an open timer");
            return events;
        }
        assert!(deadline.is_active(lp), "{wanted:?} is not reported");
    }
}

/// A poll reports requested events only, and both directions in one call.
pub fn report_requested_events_only(lab: &Lab) -> Verdict {
    let (near, far) = pair();
    let mut lp = new_loop(lab)?;
    let (poll, log) = (watch(&mut lp, &near), Calls::default());
    start(poll, &mut lp, WRITABLE, log.callback());
    assert_eq!(await_call(&mut lp, &log, WRITABLE), WRITABLE, "nothing was sent");
    send(&far, b"x");
    arrived(&near);
    assert_eq!(await_call(&mut lp, &log, WRITABLE), WRITABLE, "READABLE was not requested");
    start(poll, &mut lp, READABLE | WRITABLE, log.callback());
    assert_eq!(await_call(&mut lp, &log, READABLE), READABLE | WRITABLE, "in one call");
    start(poll, &mut lp, READABLE, log.callback());
    assert_eq!(await_call(&mut lp, &log, READABLE), READABLE, "WRITABLE was not requested");

    shrink_buffers(&near);
    shrink_buffers(&far);
    fill(&*near);
    drain(&*near);
    start(poll, &mut lp, READABLE | WRITABLE, log.callback());
    run(&mut lp, RunMode::NoWait);
    assert_eq!(log.take(), [], "neither a read nor a write would succeed");
    Ok(())
}

/// Polls are level-triggered: readiness is reported in every iteration until the data is read.
pub fn are_level_triggered(lab: &Lab) -> Verdict {
    let (near, far) = pair();
    let mut lp = new_loop(lab)?;
    let (poll, log) = (watch(&mut lp, &near), Calls::default());
    start(poll, &mut lp, READABLE, log.callback());
    send(&far, b"xyz");
    arrived(&near);
    for iteration in 0..3 {
        run(&mut lp, RunMode::Once);
        assert_eq!(log.take(), [READABLE], "in iteration {iteration}");
        (&*near).read_exact(&mut [0]).expect("one of three bytes");
    }
    run(&mut lp, RunMode::NoWait);
    assert_eq!(log.take(), [], "all is read");
    Ok(())
}

/// Restarting a poll replaces its events and its callback; the old callback's captures are dropped.
pub fn start_replaces_events_and_callback(lab: &Lab) -> Verdict {
    let (near, far) = pair();
    let mut lp = new_loop(lab)?;
    let (poll, old, new) = (watch(&mut lp, &near), Calls::default(), Calls::default());
    start(poll, &mut lp, WRITABLE, old.callback());
    start(poll, &mut lp, READABLE, new.callback());
    assert_eq!(Rc::strong_count(&old.0), 1, "the old callback is dropped");
    run(&mut lp, RunMode::NoWait);
    assert_eq!(new.take(), [], "no data to read");
    send(&far, b"x");
    assert_eq!(await_call(&mut lp, &new, READABLE), READABLE);
    assert_eq!(old.take(), []);

    // The same from inside the callback.
    let again = old.clone();
    start(poll, &mut lp, READABLE, move |lp, poll, _| {
        start(poll, lp, WRITABLE, again.callback());
    });
    run(&mut lp, RunMode::Once);
    assert_eq!(await_call(&mut lp, &old, WRITABLE), WRITABLE, "restarted by its callback");
    Ok(())
}

/// Starting for no events stops the poll: it is inactive and silent, and its callback is dropped.
pub fn start_without_events_stops(lab: &Lab) -> Verdict {
    let (near, _far) = pair();
    let mut lp = new_loop(lab)?;
    let (poll, log) = (watch(&mut lp, &near), Calls::default());
    assert!(!poll.is_active(&lp), "not before it is started");
    run_to_the_end(&mut lp);
    start(poll, &mut lp, WRITABLE, log.callback());
    assert!(poll.is_active(&lp) && lp.is_alive(), "a started poll keeps the loop alive");
    start(poll, &mut lp, PollEvents::empty(), log.callback());
    assert!(!poll.is_active(&lp), "started for no events");
    assert_eq!(Rc::strong_count(&log.0), 1, "both callbacks are dropped");
    run_to_the_end(&mut lp);
    poll.stop(&mut lp).expect("a poll may be stopped twice");
    start(poll, &mut lp, WRITABLE, log.callback());
    poll.unreference(&mut lp).expect("an open poll");
    run_to_the_end(&mut lp);
    assert_eq!(log.take(), [], "the loop did not wait for it");
    Ok(())
}

/// Two polls are ready in one batch, and the one called first applies `act` to the other. Returns
/// the number of calls in a few iterations.
fn first_acts_on_the_other(lp: &mut Loop, act: impl Fn(&mut Loop, Poll) + 'static) -> u64 {
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

/// An event of a poll that was stopped by an earlier callback of the same batch is dropped.
pub fn stopped_poll_is_not_called(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let calls = first_acts_on_the_other(&mut lp, |lp, other| other.stop(lp).expect("open"));
    assert_eq!(calls, 1, "the first callback stopped the other poll");
    Ok(())
}

/// An event of a poll that an earlier callback of the same batch restarted for other events is
/// dropped too: the new callback gets only the events requested with it.
pub fn restarted_poll_gets_no_earlier_event(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let log = Calls::default();
    let restarted = log.clone();
    first_acts_on_the_other(&mut lp, move |lp, other| {
        start(other, lp, WRITABLE, restarted.callback());
    });
    let mut events = log.take();
    while events.is_empty() {
        run(&mut lp, RunMode::Once);
        events = log.take();
    }
    assert!(
        events.iter().all(|one| *one == WRITABLE),
        "{events:?}, though only WRITABLE was requested"
    );
    Ok(())
}

/// An event of a poll that was closed by an earlier callback is dropped: its slot may be in use by
/// another handle.
pub fn closed_poll_is_not_called(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (near, _far) = pair();
    let calls = first_acts_on_the_other(&mut lp, move |lp, other| {
        other.close(lp).expect("open");
        // A new poll that may reuse the slot must not get the event.
        let next = watch(lp, &near);
        start(next, lp, READABLE, |_, _, events| panic!("got {events:?} of another poll"));
    });
    assert_eq!(calls, 1, "the first callback closed the other poll");
    Ok(())
}

/// A descriptor number that is closed and immediately reused by another file is a new source: an
/// event of the old one in the same batch is not reported for the new one.
#[cfg(unix)]
pub fn reused_descriptor_is_a_new_source(lab: &Lab) -> Verdict {
    use std::os::fd::AsRawFd;

    let ((one, one_far), (two, two_far), (quiet, quiet_far)) = (pair(), pair(), pair());
    let mut lp = new_loop(lab)?;
    let (first, second) = (watch(&mut lp, &one), watch(&mut lp, &two));
    for far in [&one_far, &two_far] {
        send(far, b"x");
    }
    arrived(&one);
    arrived(&two);
    let (calls, log) = (Count::default(), Calls::default());
    for (poll, other, number) in [(first, second, &two), (second, first, &one)] {
        let (calls, log) = (calls.clone(), log.clone());
        let (number, quiet) = (Rc::clone(number), Rc::clone(&quiet));
        start(poll, &mut lp, READABLE, move |lp, poll, _| {
            calls.add();
            other.close(lp).expect("an open poll");
            // SAFETY: both descriptors are open, and no poll watches the number any more.
            let made = unsafe { libc::dup2(quiet.as_raw_fd(), number.as_raw_fd()) };
            assert_eq!(made, number.as_raw_fd(), "dup2: {}", io::Error::last_os_error());
            let again = watch(lp, &number);
            start(again, lp, READABLE, log.callback());
            poll.close(lp).expect("an open poll");
        });
    }
    run(&mut lp, RunMode::Once);
    run(&mut lp, RunMode::NoWait);
    assert_eq!(calls.get(), 1, "the other was closed");
    assert_eq!(log.take(), [], "nothing was sent to the file that now has the number");
    send(&quiet_far, b"y");
    assert_eq!(await_call(&mut lp, &log, READABLE), READABLE, "data was sent");
    Ok(())
}

/// A reused descriptor number is a new source.
#[cfg(not(unix))]
pub fn reused_descriptor_is_a_new_source(_lab: &Lab) -> Verdict {
    Err(Skip::because("Windows cannot give a socket the number of another"))
}

/// A descriptor has one poll at a time; it can be polled again immediately after the close.
pub fn second_poll_of_a_descriptor_is_refused(lab: &Lab) -> Verdict {
    let (near, far) = pair();
    let mut lp = new_loop(lab)?;
    let (poll, log) = (watch(&mut lp, &near), Calls::default());
    start(poll, &mut lp, READABLE, log.callback());
    let twice = Poll::new(&mut lp, Rc::clone(&near)).map_err(|error| error.kind());
    assert_eq!(twice, Err(ErrorKind::AlreadyExists), "a second poll");
    assert_eq!(Rc::strong_count(&near), 2, "the refused owner is dropped");
    assert_eq!(lp.walk().len(), 1, "a refused poll is no handle");
    send(&far, b"x");
    assert_eq!(await_call(&mut lp, &log, READABLE), READABLE, "the first poll continues");

    poll.close(&mut lp).expect("an open poll");
    let next = watch(&mut lp, &near);
    start(next, &mut lp, READABLE, log.callback());
    assert_eq!(await_call(&mut lp, &log, READABLE), READABLE, "the new poll");
    let refused = poll.start(&mut lp, READABLE, |_, _, _| {}).map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::NotFound), "the key of the closed one is stale");
    Ok(())
}

/// Files and directories are always ready, so polling one is a mistake: it is refused without
/// leaving a handle.
#[cfg(unix)]
pub fn regular_file_is_refused(lab: &Lab) -> Verdict {
    use crate::support::files::Directory;

    let directory = Directory::new();
    let mut lp = new_loop(lab)?;
    for path in [directory.file("file", "not empty"), directory.path(".")] {
        let file = std::fs::File::open(&path).expect("a readable path");
        let refused = Poll::new(&mut lp, file).map_err(|error| error.raw_os_error());
        assert_eq!(refused, Err(Some(libc::EPERM)), "{}", path.display());
        assert!(lp.walk().is_empty(), "a refused poll is no handle");
    }
    run_to_the_end(&mut lp);
    Ok(())
}

/// Files and directories are always ready, so polling one is a mistake.
#[cfg(not(unix))]
pub fn regular_file_is_refused(_lab: &Lab) -> Verdict {
    Err(Skip::because("on Windows only sockets can be given to a poll"))
}

/// Readiness may be spurious, so the descriptor is made non-blocking: a read without data must not
/// block the loop.
pub fn descriptors_become_non_blocking(lab: &Lab) -> Verdict {
    let (near, _far) = pair();
    near.set_nonblocking(false).expect("a blocking socket");
    let mut lp = new_loop(lab)?;
    watch(&mut lp, &near);
    let read = (&*near).read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(read, Err(ErrorKind::WouldBlock));
    Ok(())
}

/// Starts a poll for events that not every backend supports.
fn start_if_supported(poll: Poll, lp: &mut Loop, events: PollEvents, log: &Calls) -> Verdict {
    poll.start(lp, events, log.callback()).map_err(|error| {
        assert_eq!(error.kind(), ErrorKind::Unsupported, "start {events:?}: {error}");
        assert!(!poll.is_active(lp), "a failed start leaves the poll inactive");
        Skip::because(error.to_string())
    })
}

/// `DISCONNECT` reports that the peer has shut down its writing side, without a read.
pub fn half_close_is_disconnect(lab: &Lab) -> Verdict {
    let (near, far) = pair();
    let mut lp = new_loop(lab)?;
    keep_alive(&mut lp);
    let (poll, log) = (watch(&mut lp, &near), Calls::default());
    start_if_supported(poll, &mut lp, PollEvents::DISCONNECT, &log)?;
    send(&far, b"x");
    arrived(&near);
    run(&mut lp, RunMode::NoWait);
    assert_eq!(log.take(), [], "data is no disconnect");
    if wine::delays_end_of_file() {
        drain(&*near);
    }
    half_close(&far);
    let events = await_call(&mut lp, &log, PollEvents::DISCONNECT);
    assert_eq!(events, PollEvents::DISCONNECT, "READABLE was not requested");
    Ok(())
}

/// `PRIORITIZED` reports urgent data.
pub fn urgent_data_is_prioritized(lab: &Lab) -> Verdict {
    let (near, far) = pair();
    let mut lp = new_loop(lab)?;
    keep_alive(&mut lp);
    let (poll, log) = (watch(&mut lp, &near), Calls::default());
    start_if_supported(poll, &mut lp, PollEvents::PRIORITIZED, &log)?;
    send(&far, b"x");
    arrived(&near);
    run(&mut lp, RunMode::NoWait);
    assert_eq!(log.take(), [], "ordinary data");
    send_urgent(&far);
    let events = await_call(&mut lp, &log, PollEvents::PRIORITIZED);
    assert_eq!(events, PollEvents::PRIORITIZED, "no other event was requested");
    Ok(())
}

/// The end of a connection reports all requested events, so that a reader or a writer learns of it.
pub fn hang_up_reports_all_requested_events(lab: &Lab) -> Verdict {
    for asked in [READABLE | WRITABLE, READABLE, WRITABLE] {
        let (near, far) = pair();
        let mut lp = new_loop(lab)?;
        let (poll, log) = (watch(&mut lp, &near), Calls::default());
        half_close(&near);
        drop(far);
        arrived(&near);
        start(poll, &mut lp, asked, log.callback());
        assert_eq!(await_call(&mut lp, &log, asked), asked);
    }
    Ok(())
}

/// Where a backend distinguishes errors from readiness, an error stops the poll and is reported
/// once with the system's error code: a loop must not spin on a broken socket.
pub fn error_stops_the_poll(lab: &Lab) -> Verdict {
    let (near, far) = pair();
    let mut lp = new_loop(lab)?;
    let (poll, log) = (watch(&mut lp, &near), Calls::default());
    start(poll, &mut lp, READABLE, log.callback());
    reset(far);
    run(&mut lp, RunMode::Once);
    let first = log.0.take().pop().expect("a reset is reported");
    let Err(error) = first else {
        assert!(poll.is_active(&lp), "reported as readiness, the poll stays active");
        return Err(Skip::because("reports a reset as readiness"));
    };
    assert!(!poll.is_active(&lp), "stopped");
    assert!(error.raw_os_error().is_some(), "the system's own error: {error}");
    assert_eq!(Rc::strong_count(&log.0), 1, "the callback is dropped");
    run_to_the_end(&mut lp);
    assert!(log.take().is_empty(), "reported once");
    Ok(())
}

/// An owner that names another descriptor on each query, which safe code can do.
#[derive(Debug)]
struct ChangingOwner {
    sockets: [TcpStream; 2],
    asked: Rc<Cell<usize>>,
}

impl ChangingOwner {
    fn socket(&self) -> &TcpStream {
        self.asked.set(self.asked.get() + 1);
        &self.sockets[(self.asked.get() - 1) % 2]
    }
}

#[cfg(unix)]
impl std::os::fd::AsFd for ChangingOwner {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

#[cfg(windows)]
impl std::os::windows::io::AsSocket for ChangingOwner {
    fn as_socket(&self) -> std::os::windows::io::BorrowedSocket<'_> {
        self.socket().as_socket()
    }
}

/// The descriptor that the owner names at creation is watched, made non-blocking and returned,
/// whatever the owner names later.
pub fn owner_is_queried_once(lab: &Lab) -> Verdict {
    let ((near, far), (other, _other_far)) = (tcp_pair(), tcp_pair());
    let (raw, asked) = (RawSource::of(&near), Rc::new(Cell::new(0)));
    let owner = ChangingOwner { sockets: [near, other], asked: Rc::clone(&asked) };
    let mut lp = new_loop(lab)?;
    let (poll, log) = (Poll::new(&mut lp, owner).expect("a poll of a socket"), Calls::default());
    assert_eq!(poll.raw_source(&lp).expect("an open poll"), raw, "the descriptor named first");
    start(poll, &mut lp, READABLE, log.callback());
    send(&far, b"x");
    assert_eq!(await_call(&mut lp, &log, READABLE), READABLE);
    assert_eq!(poll.raw_source(&lp).expect("an open poll"), raw, "unchanged");
    poll.close(&mut lp).expect("an open poll");
    run_to_the_end(&mut lp);
    assert_eq!(asked.get(), 1, "the number of queries");
    Ok(())
}

/// A handle that is stopped leaves its descriptor to another handle, and starts again when that one
/// is stopped. A descriptor that is in use has no second handle.
pub fn idle_handle_releases_its_descriptor(lab: &Lab) -> Verdict {
    let (near, far) = pair();
    let (mut lp, log) = (new_loop(lab)?, Calls::default());
    let polls = [watch(&mut lp, &near), watch(&mut lp, &near)];
    for poll in [polls[0], polls[1], polls[0]] {
        start(poll, &mut lp, READABLE, log.callback());
        let other = if poll == polls[0] { polls[1] } else { polls[0] };
        let refused = other.start(&mut lp, READABLE, |_, _, _| {}).map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::AlreadyExists), "the descriptor is in use");
        send(&far, b"x");
        assert_eq!(await_call(&mut lp, &log, READABLE), READABLE);
        drain(&*near);
        poll.stop(&mut lp).expect("an open poll");
        log.take();
    }
    for poll in polls {
        poll.close(&mut lp).expect("an open poll");
    }
    run_to_the_end(&mut lp);
    Ok(())
}

/// As [`idle_handle_releases_its_descriptor`], of a stream and a poll of its descriptor.
pub fn idle_stream_releases_its_descriptor(lab: &Lab) -> Verdict {
    let (mut lp, log, read) = (new_loop(lab)?, Calls::default(), Log::default());
    let (tcp, peer) = connected(&mut lp);
    let raw = tcp.raw_source(&lp).expect("a socket");
    for _ in 0..2 {
        let reads = read.clone();
        tcp.read_start(&mut lp, move |_, _, bytes| reads.push(bytes.expect("bytes").to_vec()))
            .expect("reading");
        send(&peer, b"to the stream");
        run_until(&mut lp, "reading", |_| read.len() > 0);
        assert_eq!(read.take(), [b"to the stream"]);
        // SAFETY: the stream is closed at the end of this function, after the poll.
        let twice = unsafe { Poll::from_raw_source(&mut lp, raw) };
        let twice = twice.map_err(|error| error.kind());
        assert_eq!(twice, Err(ErrorKind::AlreadyExists), "the stream is reading");

        tcp.read_stop(&mut lp).expect("an open stream");
        // SAFETY: as above.
        let poll = unsafe { Poll::from_raw_source(&mut lp, raw) }.expect("a poll of a socket");
        start(poll, &mut lp, READABLE, log.callback());
        send(&peer, b"x");
        assert_eq!(await_call(&mut lp, &log, READABLE), READABLE);
        poll.close(&mut lp).expect("an open poll");
        run(&mut lp, RunMode::NoWait);
        log.take();
        // The bytes that the poll has reported are read from the descriptor.
        let reads = read.clone();
        tcp.read(&mut lp, vec![0; 8], move |_, _, count, _| {
            reads.push(vec![0; count.expect("bytes")])
        })
        .expect("a read");
        run_until(&mut lp, "a read", |_| read.len() > 0);
        assert_eq!(read.take(), [[0]]);
    }
    tcp.close(&mut lp).expect("an open stream");
    run_to_the_end(&mut lp);
    Ok(())
}

/// A poll of a raw source owns nothing: it watches until it is closed and leaves the descriptor
/// open for its owner.
pub fn raw_source_is_watched_until_closed(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut lp = new_loop(lab)?;
    // SAFETY: `near` is dropped at the end of this function, after the close callback has run.
    let poll = unsafe { Poll::from_raw_source(&mut lp, RawSource::of(&near)) };
    let (poll, log) = (poll.expect("a poll of a socket"), Calls::default());
    start(poll, &mut lp, READABLE, log.callback());
    // SAFETY: as above.
    let twice = unsafe { Poll::from_raw_source(&mut lp, RawSource::of(&near)) };
    assert_eq!(twice.map_err(|error| error.kind()), Err(ErrorKind::AlreadyExists), "a second");
    send(&far, b"x");
    assert_eq!(await_call(&mut lp, &log, READABLE), READABLE);
    poll.close(&mut lp).expect("an open poll");
    run_to_the_end(&mut lp);
    assert_eq!((&near).read(&mut [0; 8]).expect("the socket is open"), 1);
    assert_eq!(log.take(), [], "nothing after the close");
    Ok(())
}

/// A stopped poll of a raw source has no registration: its owner may close the descriptor, and the
/// number may be that of another one by the next start.
pub fn stopped_raw_source_can_be_closed(lab: &Lab) -> Verdict {
    let (near, _far) = tcp_pair();
    let mut lp = new_loop(lab)?;
    // SAFETY: `near` is open while the poll is started.
    let poll = unsafe { Poll::from_raw_source(&mut lp, RawSource::of(&near)) };
    let (poll, log) = (poll.expect("a poll of a socket"), Calls::default());
    start(poll, &mut lp, WRITABLE, log.callback());
    assert_eq!(await_call(&mut lp, &log, WRITABLE), WRITABLE);
    poll.stop(&mut lp).expect("an open poll");
    log.take();
    drop(near);
    // The system gives the lowest free number.
    let (reused, far) = pair();
    let other = watch(&mut lp, &reused);
    start(other, &mut lp, READABLE, log.callback());
    send(&far, b"x");
    assert_eq!(await_call(&mut lp, &log, READABLE), READABLE);
    poll.close(&mut lp).expect("an open poll");
    other.close(&mut lp).expect("an open poll");
    run_to_the_end(&mut lp);
    Ok(())
}

/// The poll keeps its owner from `new` until its close callback has run; a dropped loop drops it
/// too.
pub fn owner_is_kept_until_closed(lab: &Lab) -> Verdict {
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
    assert_eq!(Rc::strong_count(&near), 1, "after the loop was dropped");
    Ok(())
}

/// A poll may close itself in its callback and is not called again; its captures live until the
/// callback returns.
pub fn may_close_itself(lab: &Lab) -> Verdict {
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

/// A thousand polls, each of which reports its own data only.
pub fn a_thousand_polls(lab: &Lab) -> Verdict {
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
    late.start(&mut lp, SOON, ZERO, |_, _| panic!("not every poll was called")).expect("a timer");
    late.unreference(&mut lp).expect("an open timer");
    run_to_the_end(&mut lp);
    assert!(seen.borrow().iter().all(|&times| times == 1), "each once");
    Ok(())
}

/// Idle polls do not end a wait: a due timer is on time, and nothing else is called.
pub fn idle_polls_do_not_disturb_timers(lab: &Lab) -> Verdict {
    let (near, _far) = pair();
    let mut lp = new_loop(lab)?;
    let poll = watch(&mut lp, &near);
    start(poll, &mut lp, READABLE, |_, _, events| panic!("called with {events:?}"));
    let (timer, before) = (Timer::new(&mut lp), lp.now());
    timer.start(&mut lp, SHORT, ZERO, |lp, _| lp.stop()).expect("a timer");
    run(&mut lp, RunMode::Default);
    assert!(lp.now() - before >= SHORT, "not early");
    Ok(())
}
