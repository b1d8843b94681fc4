//! Sources that are closed too early. Alone in its process, so that no other test
//! takes the numbers it frees.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use poll_core::{Backend, Event, Mode, RawSource, Ready, Token};
use poll_select::Select;

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

fn ready_now(select: &mut Select) -> Vec<Event> {
    let mut events = Vec::new();
    select.wait(Some(Duration::ZERO), &mut events).unwrap();
    events
}

#[test]
fn a_closed_source_is_refused_or_reported_and_harms_no_other() {
    let mut select = Select::new().unwrap();
    let (near, far) = tcp_pair();
    let (doomed, _peer) = tcp_pair();
    let (one, two) = (Token::new(0, 0), Token::new(1, 0));
    // SAFETY: `near` stays open to the end.
    unsafe { select.register(one, RawSource::of(&near), Ready::READ, Mode::Level) }.unwrap();
    let closed = RawSource::of(&doomed);
    // SAFETY: it is closed too early, but its number is not used again.
    unsafe { select.register(two, closed, Ready::READ, Mode::Level) }.unwrap();

    drop(doomed);
    let ready = Ready::READ | Ready::ERROR;
    assert_eq!(ready_now(&mut select), [Event::Ready { token: two, ready }]);
    assert_eq!(ready_now(&mut select), [], "it sleeps now");

    (&far).write_all(b"x").unwrap();
    near.peek(&mut [0]).unwrap();
    assert_eq!(ready_now(&mut select), [Event::Ready { token: one, ready: Ready::READ }]);

    select.deregister(two).unwrap();
    // SAFETY: nothing is registered.
    let again = unsafe { select.register(two, closed, Ready::READ, Mode::Level) };
    assert!(again.is_err());
    assert!(select.deregister(two).is_err());
}
