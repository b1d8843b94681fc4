//! What is peculiar to this backend; the rest is in the suite.

use std::net::UdpSocket;
use std::time::Instant;

use super::*;

#[test]
fn nothing_wanted_polls_for_nothing() {
    assert_eq!(flags_of(Ready::NONE), 0);
}

#[test]
fn every_interest_sees_failures() {
    for wanted in [Ready::READ, Ready::WRITE, Ready::PRIORITY, Ready::DISCONNECT] {
        for failure in [afd::ABORT, afd::CONNECT_FAIL, afd::LOCAL_CLOSE] {
            assert_ne!(flags_of(wanted) & failure, 0);
            let ready = wanted.report(seen(failure));
            assert!(ready.contains(Ready::ERROR));
            assert!(ready.contains(wanted & (Ready::READ | Ready::WRITE)));
        }
    }
}

#[test]
fn whatever_a_poll_asks_for_is_worth_a_report() {
    for wanted in (1..=Ready::INTEREST.bits()).map(Ready::from_bits_truncate) {
        let flags = flags_of(wanted);
        for flag in (0..u32::BITS).map(|bit| 1 << bit).filter(|flag| flags & flag != 0) {
            assert!(!wanted.report(seen(flag)).is_empty(), "{wanted:?} and {flag:#x}");
        }
    }
}

#[test]
fn a_shut_down_peer_is_readable_and_a_disconnect_only_if_asked_for() {
    let ready = seen(afd::DISCONNECT);
    assert_eq!(Ready::READ.report(ready), Ready::READ);
    assert_eq!(Ready::DISCONNECT.report(ready), Ready::DISCONNECT);
    assert_eq!(Ready::WRITE.report(ready), Ready::NONE);
}

#[test]
fn a_file_is_refused_with_advice() {
    let path = std::env::current_exe().unwrap();
    let file = std::fs::File::open(path).unwrap();
    let mut iocp = Iocp::new().unwrap();
    let source = RawSource::of_handle(&file);
    // SAFETY: `file` outlives the registration.
    let result = unsafe { iocp.register(Token::new(0, 0), source, Ready::READ, Mode::Level) };
    let error = result.unwrap_err();
    assert!(error.to_string().contains("only sockets have readiness"), "{error}");
    assert!(error.get_ref().unwrap().source().is_some());
}

/// A socket with a datagram to receive, and its backend.
fn pair() -> (Iocp, UdpSocket) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    (Iocp::new().unwrap(), socket)
}

fn register(iocp: &mut Iocp, index: u32, socket: &UdpSocket, interest: Ready) {
    let token = Token::new(index, 0);
    // SAFETY: the sockets of these tests outlive their backends' interest.
    unsafe { iocp.register(token, RawSource::of(socket), interest, Mode::Level) }.unwrap();
}

fn poll(iocp: &mut Iocp, timeout: Option<Duration>) -> Vec<Event> {
    let mut events = Vec::new();
    iocp.wait(timeout, &mut events).unwrap();
    events
}

fn send(socket: &UdpSocket) {
    socket.send_to(b"hello", socket.local_addr().unwrap()).unwrap();
}

#[test]
fn abandoned_polls_keep_their_slots_until_they_end() {
    let (mut iocp, socket) = pair();
    for round in 0..100 {
        register(&mut iocp, round, &socket, Ready::READ);
        assert_eq!(poll(&mut iocp, Some(Duration::ZERO)), []);
        iocp.deregister(Token::new(round, 0)).unwrap();
    }
    send(&socket);
    register(&mut iocp, 0, &socket, Ready::READ);
    let ready = Ready::READ;
    assert_eq!(poll(&mut iocp, None), [Event::Ready { token: Token::new(0, 0), ready }]);
    poll(&mut iocp, Some(Duration::from_millis(10)));
    assert!(iocp.polls.in_flight() <= 1, "{:?}", iocp.polls);
}

#[test]
fn a_wider_interest_does_not_wait_for_the_old_poll() {
    let (mut iocp, socket) = pair();
    register(&mut iocp, 0, &socket, Ready::READ);
    assert_eq!(poll(&mut iocp, Some(Duration::ZERO)), []);
    let token = Token::new(0, 0);
    iocp.modify(token, Ready::READ | Ready::WRITE, Mode::Level).unwrap();
    let ready = Ready::WRITE;
    assert_eq!(poll(&mut iocp, Some(Duration::ZERO)), [Event::Ready { token, ready }]);
}

#[test]
fn changes_that_come_to_nothing_leave_the_poll_alone() {
    let (mut iocp, socket) = pair();
    register(&mut iocp, 0, &socket, Ready::READ);
    poll(&mut iocp, Some(Duration::ZERO));
    let token = Token::new(0, 0);
    let armed = iocp.sources.get_mut(token).unwrap().armed;
    assert!(armed.is_some());
    for interest in [Ready::WRITE, Ready::NONE, Ready::READ] {
        iocp.modify(token, interest, Mode::Oneshot).unwrap();
    }
    poll(&mut iocp, Some(Duration::ZERO));
    assert_eq!(iocp.sources.get_mut(token).unwrap().armed, armed);
    iocp.modify(token, Ready::NONE, Mode::Level).unwrap();
    poll(&mut iocp, Some(Duration::ZERO));
    assert_eq!(iocp.sources.get_mut(token).unwrap().armed, armed, "silence is lazy");
}

#[test]
fn a_drop_waits_for_all_polls() {
    let (mut iocp, _) = pair();
    let sockets: Vec<_> = (0..100).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for (index, socket) in sockets.iter().enumerate() {
        register(&mut iocp, index as u32, socket, Ready::READ);
    }
    poll(&mut iocp, Some(Duration::ZERO));
    assert_eq!(iocp.polls.in_flight(), 100);
    let started = Instant::now();
    drop(iocp);
    assert!(started.elapsed() < PATIENCE, "a poll did not end");
}

#[test]
fn polls_outlive_the_thread_that_started_them() {
    let (mut iocp, socket) = pair();
    register(&mut iocp, 0, &socket, Ready::READ);
    let mut iocp = std::thread::spawn(move || {
        poll(&mut iocp, Some(Duration::ZERO));
        iocp
    })
    .join()
    .unwrap();
    assert_eq!(poll(&mut iocp, Some(Duration::from_millis(20))), []);
    send(&socket);
    let (token, ready) = (Token::new(0, 0), Ready::READ);
    assert_eq!(poll(&mut iocp, None), [Event::Ready { token, ready }]);
}

#[test]
fn a_socket_closed_while_watched_is_an_error_once() {
    let (mut iocp, socket) = pair();
    register(&mut iocp, 0, &socket, Ready::READ);
    poll(&mut iocp, Some(Duration::ZERO));
    drop(socket);
    let (token, ready) = (Token::new(0, 0), Ready::READ | Ready::ERROR);
    assert_eq!(poll(&mut iocp, None), [Event::Ready { token, ready }]);
    assert_eq!(poll(&mut iocp, Some(Duration::from_millis(5))), []);
    iocp.deregister(token).unwrap();
}
