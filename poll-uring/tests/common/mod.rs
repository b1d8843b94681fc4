//! Helpers of the tests.
#![allow(dead_code)]

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use poll_core::{Backend, Event, Interest, Mode, RawSource, Readiness, Token};
use poll_uring::Uring;

pub(crate) const TOKEN: Token = Token::new(0, 0);
pub(crate) const SOON: Option<Duration> = Some(Duration::from_secs(10));
pub(crate) const SHORT: Option<Duration> = Some(Duration::from_millis(20));

/// A backend. `None`, with a message, where io_uring is missing or forbidden.
pub(crate) fn uring(entries: u32) -> Option<Uring> {
    match Uring::with_entries(entries) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            eprintln!("skipped: {error}");
            None
        }
        other => Some(other.expect("create a ring")),
    }
}

pub(crate) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let far = TcpStream::connect(listener.local_addr().expect("local address")).expect("connect");
    let (near, _) = listener.accept().expect("accept");
    near.set_nonblocking(true).expect("set non-blocking");
    (near, far)
}

pub(crate) fn watch(uring: &mut Uring, token: Token, source: RawSource, mode: Mode) {
    // SAFETY: the callers keep their sources open until they are deregistered or `uring` is
    // dropped.
    unsafe { uring.register(token, source, Interest::READ, mode) }.expect("register");
}

pub(crate) fn wait(uring: &mut Uring, timeout: Option<Duration>) -> Vec<Event> {
    let mut events = Vec::new();
    uring.wait(timeout, &mut events).expect("wait");
    events
}

pub(crate) fn readable(token: Token) -> Event {
    Event::Ready { token, ready: Readiness::READ }
}
