//! Sources that are closed while registered. The only test of its process, so that no other
//! test reuses the closed descriptors.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use poll_core::{Backend, Event, Interest, Mode, RawSource, Readiness, Token};
use poll_poll::Poll;

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn ready_now(poll: &mut Poll) -> Vec<Event> {
    let mut events = Vec::new();
    poll.wait(Some(Duration::ZERO), &mut events).unwrap();
    events
}

#[test]
fn a_closed_source_is_rejected_or_reported_once_and_affects_no_other() {
    let mut poll = Poll::new().unwrap();
    let (near, far) = tcp_pair();
    let (closing, _peer) = tcp_pair();
    let (one, two) = (Token::new(0, 0), Token::new(1, 0));
    // SAFETY: `near` is not dropped before the end of the test.
    unsafe { poll.register(one, RawSource::of(&near), Interest::READ, Mode::Level) }.unwrap();
    let closed = RawSource::of(&closing);
    // SAFETY: the socket is closed early, which is the subject of this test; no other file gets
    // its number.
    unsafe { poll.register(two, closed, Interest::READ, Mode::Level) }.unwrap();

    drop(closing);
    let ready = Readiness::READ | Readiness::ERROR;
    assert_eq!(ready_now(&mut poll), [Event::Ready { token: two, ready }]);
    assert_eq!(ready_now(&mut poll), [], "it is muted");

    (&far).write_all(b"x").unwrap();
    near.peek(&mut [0]).unwrap();
    assert_eq!(ready_now(&mut poll), [Event::Ready { token: one, ready: Readiness::READ }]);

    poll.deregister(two).unwrap();
    // SAFETY: a closed source is rejected, so no registration outlives it.
    let again = unsafe { poll.register(two, closed, Interest::READ, Mode::Level) };
    assert!(again.is_err());
    assert!(poll.deregister(two).is_err());
}
