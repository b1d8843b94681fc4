//! Tests of behaviour that only this backend has; the conformance suite tests the rest.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use poll_core::Wake;

use super::*;

const TOKEN: Token = Token::new(0, 0);
const EDGE_READ: u32 = (EPOLLIN | EPOLLET) as u32;
const LEVEL_READ: u32 = EPOLLIN as u32;
const LEVEL_BOTH: u32 = (EPOLLIN | EPOLLOUT) as u32;
const ONESHOT_READ: u32 = (EPOLLIN | EPOLLONESHOT) as u32;

/// Returns the descriptors in the kernel's interest list, without the waker's.
fn interest_list(epoll: &Epoll) -> Vec<RawFd> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", epoll.instance.fd())).unwrap();
    let entries = info.lines().filter_map(|line| line.strip_prefix("tfd:"));
    let fds = entries.map(|entry| entry.split_whitespace().next().unwrap().parse().unwrap());
    fds.filter(|&fd| fd != epoll.waker.fd()).collect()
}

fn register(epoll: &mut Epoll, source: &UnixStream, interest: Interest, mode: Mode) {
    // SAFETY: the tests drop `source` after `deregister` or after the last use of `epoll`. The
    // tests of orphaned entries drop it before, which epoll tolerates.
    unsafe { epoll.register(TOKEN, RawSource::of(source), interest, mode) }.unwrap();
}

fn poll(epoll: &mut Epoll) -> Vec<Event> {
    let mut events = Vec::new();
    epoll.wait(Some(Duration::ZERO), &mut events).unwrap();
    events
}

fn readable() -> [Event; 1] {
    [Event::Ready { token: TOKEN, ready: Readiness::READ }]
}

#[test]
fn epoll_ctl_is_called_only_for_a_difference() {
    let all = [EDGE_READ, LEVEL_READ, LEVEL_BOTH, ONESHOT_READ];
    for wanted in all {
        assert_eq!(change(Armed::Absent, wanted), Some(EPOLL_CTL_ADD));
        assert_eq!(change(Armed::Spent, wanted), Some(EPOLL_CTL_MOD));
        for armed in all {
            let same = armed == wanted && armed != EDGE_READ;
            let expected = (!same).then_some(EPOLL_CTL_MOD);
            assert_eq!(change(Armed::For(armed), wanted), expected, "{armed:#x} {wanted:#x}");
        }
    }
    for armed in [Armed::Absent, Armed::Spent, Armed::For(LEVEL_READ), Armed::For(EDGE_READ)] {
        assert_eq!(change(armed, 0), None, "muting is lazy");
    }
}

#[test]
fn interests_and_modes_map_to_epoll_bits_and_back() {
    assert_eq!(to_epoll(Interest::READ | Interest::WRITE, Mode::Level), LEVEL_BOTH);
    assert_eq!(to_epoll(Interest::READ, Mode::Oneshot), ONESHOT_READ);
    assert_eq!(to_epoll(Interest::NONE, Mode::Edge), 0);
    assert_eq!(to_epoll(Interest::DISCONNECT, Mode::Level), bit(EPOLLRDHUP));
    assert_eq!(to_ready(bit(EPOLLPRI | EPOLLRDHUP)), Readiness::PRIORITY | Readiness::DISCONNECT);
    assert_eq!(to_ready(bit(EPOLLHUP | EPOLLERR | EPOLLET)), Readiness::HANGUP | Readiness::ERROR);
}

#[test]
fn a_muted_source_is_deleted_at_its_first_event() {
    let (source, mut peer) = UnixStream::pair().unwrap();
    let mut epoll = Epoll::new().unwrap();
    register(&mut epoll, &source, Interest::READ, Mode::Level);
    epoll.modify(TOKEN, Interest::NONE, Mode::Level).unwrap();
    assert_eq!(poll(&mut epoll), []);
    assert_eq!(interest_list(&epoll), [source.as_raw_fd()], "no event yet");

    peer.write_all(b"x").unwrap();
    assert_eq!(poll(&mut epoll), []);
    assert_eq!(interest_list(&epoll), []);
    epoll.modify(TOKEN, Interest::READ, Mode::Level).unwrap();
    assert_eq!(poll(&mut epoll), readable());
}

#[test]
fn a_dropped_event_of_a_muted_oneshot_spends_it() {
    let (source, mut peer) = UnixStream::pair().unwrap();
    let mut epoll = Epoll::new().unwrap();
    register(&mut epoll, &source, Interest::READ, Mode::Oneshot);
    epoll.modify(TOKEN, Interest::NONE, Mode::Oneshot).unwrap();
    peer.write_all(b"x").unwrap();
    assert_eq!(poll(&mut epoll), []);
    assert_eq!(epoll.sources.get_mut(TOKEN).unwrap().armed, Armed::Spent);
    epoll.modify(TOKEN, Interest::READ, Mode::Oneshot).unwrap();
    assert_eq!(poll(&mut epoll), readable());
    assert_eq!(poll(&mut epoll), []);
}

#[test]
fn a_muted_source_does_not_shorten_a_wait() {
    let timeout = Duration::from_millis(5);
    for mode in [Mode::Level, Mode::Oneshot] {
        let (source, mut peer) = UnixStream::pair().unwrap();
        let mut epoll = Epoll::new().unwrap();
        register(&mut epoll, &source, Interest::READ, mode);
        epoll.modify(TOKEN, Interest::NONE, mode).unwrap();
        peer.write_all(b"x").unwrap();
        let (started, mut events) = (Instant::now(), Vec::new());
        epoll.wait(Some(timeout), &mut events).unwrap();
        assert!(started.elapsed() >= timeout && events.is_empty(), "{mode:?}: {events:?}");
        epoll.modify(TOKEN, Interest::READ, mode).unwrap();
        assert_eq!(poll(&mut epoll), readable(), "{mode:?}");
    }
}

/// A `wait` that returns for another reason may consume a wake before the waker has written to
/// the eventfd. The event of that write is spurious.
#[test]
fn an_eventfd_event_without_a_pending_wake_does_not_shorten_a_wait() {
    let (mut epoll, mut events) = (Epoll::new().unwrap(), Vec::new());
    epoll.waker.signal().unwrap();
    let (timeout, started) = (Duration::from_millis(5), Instant::now());
    epoll.wait(Some(timeout), &mut events).unwrap();
    assert!(started.elapsed() >= timeout && events.is_empty(), "{events:?}");
}

#[test]
fn each_timed_wait_counts_once_for_the_backoff() {
    let (source, _peer) = UnixStream::pair().unwrap();
    let mut epoll = Epoll::new().unwrap();
    register(&mut epoll, &source, Interest::READ, Mode::Level);
    let waits = |epoll: &mut Epoll, timeout, count| {
        for _ in 0..count {
            epoll.wait(Some(timeout), &mut Vec::new()).unwrap();
        }
    };
    let mut reference = Backoff::new(WAITS_BEFORE_POLL);
    waits(&mut epoll, Duration::ZERO, 100);
    assert_eq!(epoll.backoff, reference, "a zero timeout does not block");
    waits(&mut epoll, Duration::from_nanos(1), 16);
    assert!((0..15).all(|_| !reference.should_try()) && reference.should_try());
    reference.record(false);
    assert_eq!(epoll.backoff, reference);
}

#[test]
fn a_change_that_fails_in_wait_is_one_error_event() {
    let (source, _peer) = UnixStream::pair().unwrap();
    let mut epoll = Epoll::new().unwrap();
    register(&mut epoll, &source, Interest::READ, Mode::Level);
    epoll.modify(TOKEN, Interest::WRITE, Mode::Level).unwrap();
    epoll.instance.ctl(EPOLL_CTL_DEL, source.as_raw_fd(), 0, 0).unwrap();
    assert_eq!(poll(&mut epoll), [Event::Ready { token: TOKEN, ready: Readiness::ERROR }]);
    assert_eq!(poll(&mut epoll), []);
    epoll.modify(TOKEN, Interest::WRITE, Mode::Level).unwrap();
    assert_eq!(poll(&mut epoll), [Event::Ready { token: TOKEN, ready: Readiness::WRITE }]);
}

/// Registers a source and closes its descriptor while a duplicate keeps the file open: a
/// mistake of the caller. The entry stays in the interest list, and no `epoll_ctl` reaches it.
fn orphan(epoll: &mut Epoll, deregisters: bool) -> (UnixStream, UnixStream) {
    let (source, mut peer) = UnixStream::pair().unwrap();
    let duplicate = source.try_clone().unwrap();
    register(epoll, &source, Interest::READ, Mode::Level);
    drop(source);
    if deregisters {
        epoll.deregister(TOKEN).unwrap();
    } else {
        epoll.modify(TOKEN, Interest::NONE, Mode::Level).unwrap();
    }
    peer.write_all(b"x").unwrap();
    (duplicate, peer)
}

#[test]
fn an_orphaned_entry_is_left_behind_with_the_old_instance() {
    for deregisters in [true, false] {
        let mut epoll = Epoll::new().unwrap();
        let fd = epoll.instance.fd();
        let (duplicate, _peer) = orphan(&mut epoll, deregisters);
        // A zero timeout makes no system call while no source is registered.
        let mut events = Vec::new();
        epoll.wait(Some(Duration::from_millis(1)), &mut events).unwrap();
        assert_eq!(events, []);
        assert_eq!(interest_list(&epoll), [], "deregistered: {deregisters}");
        assert_eq!(epoll.instance.fd(), fd);

        let other = Token::new(1, 0);
        // SAFETY: `duplicate` is not dropped before the end of the iteration.
        unsafe { epoll.register(other, RawSource::of(&duplicate), Interest::READ, Mode::Level) }
            .unwrap();
        assert_eq!(poll(&mut epoll), [Event::Ready { token: other, ready: Readiness::READ }]);
        epoll.waker().wake().unwrap();
        let mut events = Vec::new();
        epoll.deregister(other).unwrap();
        epoll.wait(None, &mut events).unwrap();
        assert_eq!(events, []);
    }
}

/// An exposed instance used to be kept, so that each system call reported the orphaned entry:
/// a timed wait never returned, and the other poller had no pause.
#[test]
fn an_orphaned_entry_keeps_neither_a_wait_nor_the_exposed_descriptor_busy() {
    for deregisters in [true, false] {
        let (mut outer, mut epoll) = (Epoll::new().unwrap(), Epoll::new().unwrap());
        let (source, mut peer) = UnixStream::pair().unwrap();
        let exposed = epoll.raw_source().unwrap();
        // SAFETY: `epoll` owns the descriptor and is not dropped before the last use of `outer`.
        unsafe { outer.register(TOKEN, exposed, Interest::READ, Mode::Level) }.unwrap();
        let (_duplicate, _peer) = orphan(&mut epoll, deregisters);
        assert_eq!(poll(&mut outer), readable());
        let (timeout, started) = (Duration::from_millis(5), Instant::now());
        let mut events = Vec::new();
        epoll.wait(Some(timeout), &mut events).unwrap();
        assert!(started.elapsed() >= timeout && events.is_empty(), "{events:?}");
        assert_eq!(poll(&mut outer), [], "deregistered: {deregisters}");

        let other = Token::new(1, 0);
        // SAFETY: `source` is not dropped before the end of the iteration.
        unsafe { epoll.register(other, RawSource::of(&source), Interest::READ, Mode::Level) }
            .unwrap();
        peer.write_all(b"x").unwrap();
        assert_eq!(poll(&mut outer), readable(), "the new instance is watched");
        assert_eq!(poll(&mut epoll), [Event::Ready { token: other, ready: Readiness::READ }]);
        assert_eq!(epoll.raw_source(), Some(exposed));
    }
}

#[test]
fn deregister_removes_the_queued_change() {
    let mut epoll = Epoll::new().unwrap();
    let pairs = [(); 4].map(|()| UnixStream::pair().unwrap());
    let tokens = [0, 1, 2, 3].map(|index| Token::new(index, 0));
    for ((source, _), token) in pairs.iter().zip(tokens) {
        // SAFETY: `pairs` is not dropped before the end of the test.
        unsafe { epoll.register(token, RawSource::of(source), Interest::READ, Mode::Level) }
            .unwrap();
        epoll.modify(token, Interest::WRITE, Mode::Level).unwrap();
    }
    for (token, left) in [(tokens[0], 3), (tokens[3], 2), (tokens[2], 1)] {
        epoll.deregister(token).unwrap();
        assert_eq!(epoll.changed.len(), left);
    }
    assert_eq!(poll(&mut epoll), [Event::Ready { token: tokens[1], ready: Readiness::WRITE }]);
    assert!(epoll.changed.is_empty());
}

#[test]
fn a_poll_before_blocking_changes_no_result() {
    let (mut source, mut peer) = UnixStream::pair().unwrap();
    let (mut epoll, mut events) = (Epoll::new().unwrap(), Vec::new());
    let timeout = Duration::from_millis(5);
    register(&mut epoll, &source, Interest::READ, Mode::Level);
    let mut wait = |epoll: &mut Epoll| {
        let started = Instant::now();
        epoll.backoff = Backoff::new(0);
        events.clear();
        epoll.wait(Some(timeout), &mut events).unwrap();
        (std::mem::take(&mut events), started.elapsed() >= timeout)
    };
    peer.write_all(b"x").unwrap();
    assert_eq!(wait(&mut epoll).0, readable());
    source.read_exact(&mut [0]).unwrap();
    assert_eq!(wait(&mut epoll), (vec![], true));
    epoll.waker().wake().unwrap();
    assert_eq!(wait(&mut epoll).0, []);
    assert_eq!(wait(&mut epoll), (vec![], true), "a wake ends one wait");

    peer.write_all(b"x").unwrap();
    epoll.waker().wake().unwrap();
    assert_eq!(wait(&mut epoll).0, readable());
    source.read_exact(&mut [0]).unwrap();
    assert_eq!(wait(&mut epoll), (vec![], true), "the event and the wake end one wait");
    epoll.modify(TOKEN, Interest::NONE, Mode::Level).unwrap();
    peer.write_all(b"x").unwrap();
    assert_eq!(wait(&mut epoll), (vec![], true), "the source is muted");
}

/// Called without a fork, `after_fork` does the same to the kernel objects.
#[test]
fn after_fork_exposes_the_new_instance_under_the_old_number() {
    let (mut outer, mut epoll) = (Epoll::new().unwrap(), Epoll::new().unwrap());
    let (source, mut peer) = UnixStream::pair().unwrap();
    register(&mut epoll, &source, Interest::READ, Mode::Level);
    let exposed = epoll.raw_source().unwrap();
    epoll.after_fork().unwrap();
    assert!(epoll.has_unflushed_changes());
    assert_eq!(epoll.raw_source(), Some(exposed));
    // SAFETY: `epoll` owns the descriptor and is dropped after `outer`'s last use.
    unsafe { outer.register(TOKEN, exposed, Interest::READ, Mode::Level) }.unwrap();
    assert_eq!(poll(&mut epoll), []);
    assert_eq!(poll(&mut outer), []);
    peer.write_all(b"x").unwrap();
    assert_eq!(poll(&mut outer), readable());
    assert_eq!(poll(&mut epoll), readable());
}
