//! What is epoll's own; the rest is the conformance suite's.

use std::fs;
use std::io::Write;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;

use poll_core::Wake;

use super::*;

const TOKEN: Token = Token::new(0, 0);
const EDGE_READ: u32 = (EPOLLIN | EPOLLET) as u32;
const LEVEL_READ: u32 = EPOLLIN as u32;
const LEVEL_BOTH: u32 = (EPOLLIN | EPOLLOUT) as u32;
const ONCE_READ: u32 = (EPOLLIN | EPOLLONESHOT) as u32;

/// The descriptors in the kernel's set, the waker's left out.
fn set(epoll: &Epoll) -> Vec<RawFd> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", epoll.instance.fd())).unwrap();
    let entries = info.lines().filter_map(|line| line.strip_prefix("tfd:"));
    let fds = entries.map(|entry| entry.split_whitespace().next().unwrap().parse().unwrap());
    fds.filter(|&fd| fd != epoll.waker.fd()).collect()
}

fn register(epoll: &mut Epoll, source: &UnixStream, interest: Ready, mode: Mode) {
    // SAFETY: each test closes its sources last, or says why not.
    unsafe { epoll.register(TOKEN, RawSource::of(source), interest, mode) }.unwrap();
}

fn poll(epoll: &mut Epoll) -> Vec<Event> {
    let mut events = Vec::new();
    epoll.wait(Some(Duration::ZERO), &mut events).unwrap();
    events
}

fn readable() -> [Event; 1] {
    [Event::Ready { token: TOKEN, ready: Ready::READ }]
}

#[test]
fn the_kernel_is_told_only_what_it_does_not_know() {
    let all = [EDGE_READ, LEVEL_READ, LEVEL_BOTH, ONCE_READ];
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
        assert_eq!(change(armed, 0), None, "silence is lazy");
    }
}

#[test]
fn interests_and_modes_become_bits_and_back() {
    assert_eq!(to_epoll(Ready::READ | Ready::WRITE, Mode::Level), LEVEL_BOTH);
    assert_eq!(to_epoll(Ready::READ | Ready::ERROR, Mode::Oneshot), ONCE_READ);
    assert_eq!(to_epoll(Ready::HANGUP | Ready::ERROR, Mode::Edge), 0);
    assert_eq!(to_epoll(Ready::DISCONNECT, Mode::Level), bit(EPOLLRDHUP));
    assert_eq!(to_ready(bit(EPOLLPRI | EPOLLRDHUP)), Ready::PRIORITY | Ready::DISCONNECT);
    assert_eq!(to_ready(bit(EPOLLHUP | EPOLLERR | EPOLLET)), Ready::HANGUP | Ready::ERROR);
}

#[test]
fn a_silent_source_leaves_the_set_when_it_is_first_heard() {
    let (source, mut peer) = UnixStream::pair().unwrap();
    let mut epoll = Epoll::new().unwrap();
    register(&mut epoll, &source, Ready::READ, Mode::Level);
    epoll.modify(TOKEN, Ready::NONE, Mode::Level).unwrap();
    assert_eq!(poll(&mut epoll), []);
    assert_eq!(set(&epoll), [source.as_raw_fd()], "nothing was heard yet");

    peer.write_all(b"x").unwrap();
    assert_eq!(poll(&mut epoll), []);
    assert_eq!(set(&epoll), []);
    epoll.modify(TOKEN, Ready::READ, Mode::Level).unwrap();
    assert_eq!(poll(&mut epoll), readable());
}

#[test]
fn a_silenced_oneshot_is_spent_by_what_is_swallowed() {
    let (source, mut peer) = UnixStream::pair().unwrap();
    let mut epoll = Epoll::new().unwrap();
    register(&mut epoll, &source, Ready::READ, Mode::Oneshot);
    epoll.modify(TOKEN, Ready::NONE, Mode::Oneshot).unwrap();
    peer.write_all(b"x").unwrap();
    assert_eq!(poll(&mut epoll), []);
    assert_eq!(epoll.sources.get_mut(TOKEN).unwrap().armed, Armed::Spent);
    epoll.modify(TOKEN, Ready::READ, Mode::Oneshot).unwrap();
    assert_eq!(poll(&mut epoll), readable());
    assert_eq!(poll(&mut epoll), []);
}

/// The clock is read for such waits only, so that they must be known beforehand.
#[test]
fn a_wait_goes_on_for_the_time_left_after_a_silent_source() {
    let timeout = Duration::from_millis(5);
    for mode in [Mode::Level, Mode::Oneshot] {
        let (source, mut peer) = UnixStream::pair().unwrap();
        let mut epoll = Epoll::new().unwrap();
        register(&mut epoll, &source, Ready::READ, mode);
        assert!(!epoll.may_go_on(Some(timeout)));
        epoll.modify(TOKEN, Ready::NONE, mode).unwrap();
        epoll.modify(TOKEN, Ready::NONE, mode).unwrap();
        peer.write_all(b"x").unwrap();
        assert!(epoll.may_go_on(Some(timeout)), "{mode:?}");
        let (begun, mut events) = (std::time::Instant::now(), Vec::new());
        epoll.wait(Some(timeout), &mut events).unwrap();
        assert!(begun.elapsed() >= timeout && events.is_empty(), "{mode:?}: {events:?}");
        assert!(!epoll.may_go_on(Some(timeout)), "{mode:?}: the kernel does not watch it");
        epoll.modify(TOKEN, Ready::READ, mode).unwrap();
        assert_eq!(poll(&mut epoll).len(), 1, "{mode:?}");
        epoll.modify(TOKEN, Ready::NONE, mode).unwrap();
        epoll.deregister(TOKEN).unwrap();
        assert_eq!(epoll.silent, 0, "{mode:?}");
    }
}

/// A wake that is found before its bell rings is one, and the ring behind it none.
#[test]
fn a_late_ring_does_not_end_the_next_wait() {
    let (mut epoll, mut events) = (Epoll::new().unwrap(), Vec::new());
    let (mut source, mut peer) = UnixStream::pair().unwrap();
    register(&mut epoll, &source, Ready::READ, Mode::Level);
    while !epoll.rings_late {
        let waker = epoll.waker();
        std::thread::scope(|scope| {
            // Knocks while the other sleeps, most likely, and wakes it in another way.
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(2));
                let _ = waker.bell().knock();
                peer.write_all(b"x").unwrap();
            });
            epoll.wait(None, &mut events).unwrap();
        });
        std::io::Read::read_exact(&mut source, &mut [0]).unwrap();
        events.clear();
    }
    epoll.waker.ring().unwrap();
    let (timeout, begun) = (Duration::from_millis(5), std::time::Instant::now());
    epoll.wait(Some(timeout), &mut events).unwrap();
    assert!(begun.elapsed() >= timeout && events.is_empty(), "{events:?}");
    assert!(!epoll.rings_late);
}

/// Nobody rings who finds the other awake, so no ring is waited for.
#[test]
fn a_knock_while_awake_leaves_nothing_behind() {
    let (mut epoll, mut events) = (Epoll::new().unwrap(), Vec::new());
    let (source, mut peer) = UnixStream::pair().unwrap();
    register(&mut epoll, &source, Ready::READ, Mode::Level);
    peer.write_all(b"x").unwrap();
    for looks in [false, true] {
        epoll.rush = if looks { Rush::under_way() } else { Rush::new() };
        epoll.waker().wake().unwrap();
        events.clear();
        epoll.wait(Some(Duration::from_secs(1)), &mut events).unwrap();
        assert_eq!(events, readable());
        assert!(!epoll.rings_late && !epoll.may_go_on(None), "looks first: {looks}");
    }
    epoll.raw_fd();
    epoll.waker().wake().unwrap();
    epoll.rush = Rush::under_way();
    epoll.wait(Some(Duration::from_secs(1)), &mut events).unwrap();
    assert!(!epoll.rings_late, "who watches the instance is rung, and that was found");
}

/// A new backend waits fifteen times before it looks first, whatever it waits for.
#[test]
fn a_wait_asks_once_whether_to_look() {
    for silent in [false, true] {
        let (source, _peer) = UnixStream::pair().unwrap();
        let mut epoll = Epoll::new().unwrap();
        register(&mut epoll, &source, Ready::READ, Mode::Level);
        if silent {
            epoll.modify(TOKEN, Ready::NONE, Mode::Level).unwrap();
        }
        let mut left = 15;
        while left > 0 {
            assert_eq!(epoll.rush.left(), left, "silent: {silent}");
            epoll.wait(Some(Duration::from_nanos(1)), &mut Vec::new()).unwrap();
            left -= 1;
        }
        assert_eq!(epoll.rush.left(), 0);
        epoll.wait(Some(Duration::from_nanos(1)), &mut Vec::new()).unwrap();
        assert_eq!(epoll.rush.left(), 31, "it has looked for nothing");
    }
}

#[test]
fn a_change_that_fails_late_is_an_error_event_and_sleep() {
    let (source, _peer) = UnixStream::pair().unwrap();
    let mut epoll = Epoll::new().unwrap();
    register(&mut epoll, &source, Ready::READ, Mode::Level);
    epoll.modify(TOKEN, Ready::WRITE, Mode::Level).unwrap();
    epoll.instance.ctl(EPOLL_CTL_DEL, source.as_raw_fd(), 0, 0).unwrap();
    assert_eq!(poll(&mut epoll), [Event::Ready { token: TOKEN, ready: Ready::ERROR }]);
    assert_eq!(poll(&mut epoll), []);
    epoll.modify(TOKEN, Ready::WRITE, Mode::Level).unwrap();
    assert_eq!(poll(&mut epoll), [Event::Ready { token: TOKEN, ready: Ready::WRITE }]);
}

/// Closing a descriptor while its file lives on in a duplicate leaves an entry
/// in the set that no `epoll_ctl` reaches: it would be reported for ever.
#[test]
fn orphans_are_left_behind_with_the_old_instance() {
    for told in [true, false] {
        let (source, mut peer) = UnixStream::pair().unwrap();
        let duplicate = source.try_clone().unwrap();
        let mut epoll = Epoll::new().unwrap();
        let fd = epoll.instance.fd();
        register(&mut epoll, &source, Ready::READ, Mode::Level);
        // This is the mistake in question.
        drop(source);
        if told {
            epoll.deregister(TOKEN).unwrap();
        } else {
            epoll.modify(TOKEN, Ready::NONE, Mode::Level).unwrap();
        }
        peer.write_all(b"x").unwrap();
        // Not a zero wait, which has nothing to ask for when nothing is registered.
        let mut events = Vec::new();
        epoll.wait(Some(Duration::from_millis(1)), &mut events).unwrap();
        assert_eq!(events, []);
        assert_eq!(set(&epoll), [], "deregistered: {told}");
        assert_eq!(epoll.instance.fd(), fd);

        let other = Token::new(1, 0);
        // SAFETY: `duplicate` outlives the backend's interest in it.
        unsafe { epoll.register(other, RawSource::of(&duplicate), Ready::READ, Mode::Level) }
            .unwrap();
        assert_eq!(poll(&mut epoll), [Event::Ready { token: other, ready: Ready::READ }]);
        epoll.waker().wake().unwrap();
        let mut events = Vec::new();
        epoll.deregister(other).unwrap();
        epoll.wait(None, &mut events).unwrap();
        assert_eq!(events, []);
    }
}

#[test]
fn deregistering_takes_a_change_out_of_the_queue() {
    let mut epoll = Epoll::new().unwrap();
    let pairs = [(); 4].map(|()| UnixStream::pair().unwrap());
    let tokens = [0, 1, 2, 3].map(|index| Token::new(index, 0));
    for ((source, _), token) in pairs.iter().zip(tokens) {
        // SAFETY: `pairs` outlive `epoll`'s interest in them.
        unsafe { epoll.register(token, RawSource::of(source), Ready::READ, Mode::Level) }.unwrap();
        epoll.modify(token, Ready::WRITE, Mode::Level).unwrap();
    }
    for (token, left) in [(tokens[0], 3), (tokens[3], 2), (tokens[2], 1)] {
        epoll.deregister(token).unwrap();
        assert_eq!(epoll.changed.len(), left);
    }
    assert_eq!(poll(&mut epoll), [Event::Ready { token: tokens[1], ready: Ready::WRITE }]);
    assert!(epoll.changed.is_empty());
}

/// Who is busy looks before it waits, and that changes nothing else.
#[test]
fn a_wait_that_looks_first_waits_all_the_same() {
    let (mut source, mut peer) = UnixStream::pair().unwrap();
    let (mut epoll, mut events) = (Epoll::new().unwrap(), Vec::new());
    let timeout = Duration::from_millis(5);
    register(&mut epoll, &source, Ready::READ, Mode::Level);
    let mut wait = |epoll: &mut Epoll| {
        let begun = std::time::Instant::now();
        epoll.rush = Rush::under_way();
        events.clear();
        epoll.wait(Some(timeout), &mut events).unwrap();
        (std::mem::take(&mut events), begun.elapsed() >= timeout)
    };
    peer.write_all(b"x").unwrap();
    assert_eq!(wait(&mut epoll).0, readable());
    std::io::Read::read_exact(&mut source, &mut [0]).unwrap();
    assert_eq!(wait(&mut epoll), (vec![], true));
    epoll.waker().wake().unwrap();
    assert_eq!(wait(&mut epoll).0, []);
    assert_eq!(wait(&mut epoll), (vec![], true), "a wake is answered once");

    peer.write_all(b"x").unwrap();
    epoll.waker().wake().unwrap();
    assert_eq!(wait(&mut epoll).0, readable());
    std::io::Read::read_exact(&mut source, &mut [0]).unwrap();
    assert_eq!(wait(&mut epoll), (vec![], true), "so it is if something came with it");
    epoll.modify(TOKEN, Ready::NONE, Mode::Level).unwrap();
    peer.write_all(b"x").unwrap();
    assert_eq!(wait(&mut epoll), (vec![], true), "the source is silent");
}
