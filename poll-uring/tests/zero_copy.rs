//! Sends that are not copied: they end twice, and hold their memory until the second.
#![cfg(target_os = "linux")]

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use poll_core::{Backend, Event, Op, RawBuf, RawSource, Token};
use poll_uring::Uring;

const SIZE: usize = 1 << 20;

#[test]
fn large_sends_say_how_they_went_and_then_free_their_memory() {
    let mut uring = match Uring::new() {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            return eprintln!("skip: {error}");
        }
        other => other.unwrap(),
    };
    uring.set_zero_copy(Some(10_000));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        far.read_to_end(&mut all).map(|_| all).unwrap()
    });

    let memory: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
    let (mut sent, mut held, mut events, mut index) = (0, 0, Vec::new(), 0);
    while sent < SIZE {
        let token = Token::new(index % 3, index / 3);
        index += 1;
        let (source, buf) = (RawSource::of(&near), RawBuf::sending(&memory[sent..]));
        // SAFETY: the memory and the socket outlive the backend.
        unsafe { uring.submit(token, Op::Send { source, buf }) }.unwrap();
        let mut reports = Vec::new();
        while reports.last().is_none_or(|(_, more)| *more) {
            events.clear();
            uring.wait(None, &mut events).unwrap();
            for event in &events {
                let &Event::Done { token: of, result, more, lent: None } = event else {
                    panic!("{event:?}");
                };
                assert_eq!(of, token);
                reports.push((result.unwrap(), more));
            }
        }
        let small = SIZE - sent < 10_000;
        assert_eq!(reports.len(), if small { 1 } else { 2 }, "{reports:?}");
        held += reports.len() - 1;
        sent += reports[0].0;
    }
    assert!(held > 0, "nothing was sent without a copy");
    drop(uring);
    near.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(reader.join().unwrap() == memory, "as it was");
}

/// Unix domain sockets cannot send so: what they are sent is copied, and ends once.
#[test]
fn sockets_that_cannot_are_sent_copies() {
    let mut uring = match Uring::new() {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            return eprintln!("skip: {error}");
        }
        other => other.unwrap(),
    };
    uring.set_zero_copy(Some(1));
    let (near, mut far) = UnixStream::pair().unwrap();
    let (memory, mut events) = (vec![7; 1000], Vec::new());
    let (source, buf) = (RawSource::of(&near), RawBuf::sending(&memory));
    let [first, second] = [0, 1].map(|index| Token::new(index, 0));
    // SAFETY: the memory and the socket outlive the backend.
    unsafe { uring.submit(first, Op::Send { source, buf }) }.unwrap();
    uring.wait(None, &mut events).unwrap();
    let sent = Event::Done { token: first, result: Ok(1000), more: false, lent: None };
    assert_eq!(events, [sent]);
    far.read_exact(&mut [0; 1000]).unwrap();

    // The other end is full: a copy waits, and can be cancelled.
    near.set_nonblocking(true).unwrap();
    while std::io::Write::write(&mut &near, &memory).is_ok() {}
    // SAFETY: as above.
    unsafe { uring.submit(second, Op::Send { source, buf }) }.unwrap();
    events.clear();
    uring.wait(Some(Duration::from_millis(10)), &mut events).unwrap();
    assert_eq!(events, [], "it waits for room");
    uring.cancel(second).unwrap();
    uring.wait(None, &mut events).unwrap();
    let cancelled = Err(libc::ECANCELED);
    let end = Event::Done { token: second, result: cancelled, more: false, lent: None };
    assert_eq!(events, [end]);

    // One that goes with its backend.
    // SAFETY: as above.
    unsafe { uring.submit(first, Op::Send { source, buf }) }.unwrap();
    events.clear();
    uring.wait(Some(Duration::ZERO), &mut events).unwrap();
    drop(uring);
}
