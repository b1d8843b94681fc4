//! Tests of behaviour that only this backend has; the conformance suite tests the rest.

mod operations;
mod receives;

use std::net::UdpSocket;
use std::time::Instant;

use super::*;

#[test]
fn an_empty_interest_has_no_poll_conditions() {
    assert_eq!(to_afd(Interest::NONE), 0);
}

#[test]
fn every_interest_includes_failures() {
    for wanted in [Interest::READ, Interest::WRITE, Interest::PRIORITY, Interest::DISCONNECT] {
        for failure in [afd::ABORT, afd::CONNECT_FAIL, afd::LOCAL_CLOSE] {
            assert_ne!(to_afd(wanted) & failure, 0);
            let ready = wanted.report(to_ready(failure));
            assert!(ready.contains(Readiness::ERROR));
            assert!(ready.contains((wanted & (Interest::READ | Interest::WRITE)).to_readiness()));
        }
    }
}

#[test]
fn every_poll_condition_leads_to_a_report() {
    for wanted in (1..=Interest::all().bits()).map(Interest::from_bits_truncate) {
        let flags = to_afd(wanted);
        for flag in (0..u32::BITS).map(|bit| 1 << bit).filter(|flag| flags & flag != 0) {
            assert!(!wanted.report(to_ready(flag)).is_empty(), "{wanted:?} and {flag:#x}");
        }
    }
}

#[test]
fn a_peer_shutdown_is_readable_and_a_disconnect_only_in_the_interest() {
    let ready = to_ready(afd::DISCONNECT);
    assert_eq!(Interest::READ.report(ready), Readiness::READ);
    assert_eq!(Interest::DISCONNECT.report(ready), Readiness::DISCONNECT);
    assert_eq!(Interest::WRITE.report(ready), Readiness::NONE);
}

#[test]
fn a_file_is_rejected_with_a_remedy() {
    let path = std::env::current_exe().unwrap();
    let file = std::fs::File::open(path).unwrap();
    let mut iocp = Iocp::new().unwrap();
    let source = RawSource::of_handle(&file);
    // SAFETY: `file` is dropped after the backend.
    let result = unsafe { iocp.register(Token::new(0, 0), source, Interest::READ, Mode::Level) };
    let error = result.unwrap_err();
    assert!(error.to_string().contains("only sockets have readiness"), "{error}");
    assert!(error.get_ref().unwrap().source().is_some());
}

/// Creates a backend and a socket.
fn pair() -> (Iocp, UdpSocket) {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_nonblocking(true).unwrap();
    (Iocp::new().unwrap(), socket)
}

fn register(iocp: &mut Iocp, index: u32, socket: &UdpSocket, interest: Interest) {
    let token = Token::new(index, 0);
    // SAFETY: the tests drop their sockets after the last wait of the backend, except the test of
    // a socket that is closed while watched, which AFD reports.
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
        register(&mut iocp, round, &socket, Interest::READ);
        assert_eq!(poll(&mut iocp, Some(Duration::ZERO)), []);
        iocp.deregister(Token::new(round, 0)).unwrap();
    }
    send(&socket);
    register(&mut iocp, 0, &socket, Interest::READ);
    let ready = Readiness::READ;
    assert_eq!(poll(&mut iocp, None), [Event::Ready { token: Token::new(0, 0), ready }]);
    poll(&mut iocp, Some(Duration::from_millis(10)));
    assert!(iocp.polls.in_flight() <= 1, "{:?}", iocp.polls);
}

#[test]
fn a_changed_interest_replaces_the_poll_in_flight() {
    let (mut iocp, socket) = pair();
    register(&mut iocp, 0, &socket, Interest::READ);
    assert_eq!(poll(&mut iocp, Some(Duration::ZERO)), []);
    let token = Token::new(0, 0);
    iocp.modify(token, Interest::READ | Interest::WRITE, Mode::Level).unwrap();
    let ready = Readiness::WRITE;
    assert_eq!(poll(&mut iocp, Some(Duration::ZERO)), [Event::Ready { token, ready }]);
}

#[test]
fn changes_back_to_the_old_interest_keep_the_poll_in_flight() {
    let (mut iocp, socket) = pair();
    register(&mut iocp, 0, &socket, Interest::READ);
    poll(&mut iocp, Some(Duration::ZERO));
    let token = Token::new(0, 0);
    let armed = iocp.sources.get_mut(token).unwrap().armed;
    assert!(armed.is_some());
    for interest in [Interest::WRITE, Interest::NONE, Interest::READ] {
        iocp.modify(token, interest, Mode::Oneshot).unwrap();
    }
    poll(&mut iocp, Some(Duration::ZERO));
    assert_eq!(iocp.sources.get_mut(token).unwrap().armed, armed);
    iocp.modify(token, Interest::NONE, Mode::Level).unwrap();
    poll(&mut iocp, Some(Duration::ZERO));
    assert_eq!(iocp.sources.get_mut(token).unwrap().armed, armed, "muting is lazy");
}

#[test]
fn a_drop_waits_for_all_polls() {
    let (mut iocp, _) = pair();
    let sockets: Vec<_> = (0..100).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for (index, socket) in sockets.iter().enumerate() {
        register(&mut iocp, index as u32, socket, Interest::READ);
    }
    poll(&mut iocp, Some(Duration::ZERO));
    assert_eq!(iocp.polls.in_flight(), 100);
    let started = Instant::now();
    drop(iocp);
    assert!(started.elapsed() < DROP_POLL_INTERVAL, "a poll did not end");
}

#[test]
fn polls_outlive_the_thread_that_started_them() {
    let (mut iocp, socket) = pair();
    register(&mut iocp, 0, &socket, Interest::READ);
    let mut iocp = std::thread::spawn(move || {
        poll(&mut iocp, Some(Duration::ZERO));
        iocp
    })
    .join()
    .unwrap();
    assert_eq!(poll(&mut iocp, Some(Duration::from_millis(20))), []);
    send(&socket);
    let (token, ready) = (Token::new(0, 0), Readiness::READ);
    assert_eq!(poll(&mut iocp, None), [Event::Ready { token, ready }]);
}

#[test]
fn a_socket_closed_while_watched_is_an_error_once() {
    let (mut iocp, socket) = pair();
    register(&mut iocp, 0, &socket, Interest::READ);
    poll(&mut iocp, Some(Duration::ZERO));
    drop(socket);
    let (token, ready) = (Token::new(0, 0), Readiness::READ | Readiness::ERROR);
    assert_eq!(poll(&mut iocp, None), [Event::Ready { token, ready }]);
    assert_eq!(poll(&mut iocp, Some(Duration::from_millis(5))), []);
    iocp.deregister(token).unwrap();
}
