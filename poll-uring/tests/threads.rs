//! A ring belongs to a thread; a backend does not.
#![cfg(all(
    target_os = "linux",
    any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        target_arch = "loongarch64",
        target_arch = "powerpc64"
    )
))]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::*;
use poll_core::{Backend, Event, Mode, Op, OpKind, RawBuf, RawSource, Token};

#[test]
fn a_backend_that_moves_between_threads_goes_on() {
    let Some(mut uring) = uring(8) else { return };
    let (near, mut far) = tcp_pair();
    watch(&mut uring, TOKEN, RawSource::of(&near), Mode::Level);
    assert_eq!(wait(&mut uring, SHORT), []);
    far.write_all(b"x").expect("sent");
    for _ in 0..3 {
        uring = thread::spawn(move || {
            assert_eq!(wait(&mut uring, SOON), [readable(TOKEN)]);
            uring
        })
        .join()
        .expect("the other thread");
        assert_eq!(wait(&mut uring, Some(Duration::ZERO)), [readable(TOKEN)]);
    }
    uring = thread::spawn(move || {
        uring.deregister(TOKEN).expect("deregistered");
        uring
    })
    .join()
    .expect("the other thread");
    assert_eq!(wait(&mut uring, Some(Duration::ZERO)), [], "moved, and nothing to report");
}

#[test]
fn operations_in_flight_stay_on_their_thread() {
    let Some(mut uring) = uring(8) else { return };
    let (near, mut far) = tcp_pair();
    let mut memory = vec![0u8; 8];
    let op = Op::Recv { source: RawSource::of(&near), buf: RawBuf::filling(&mut memory) };
    // SAFETY: memory and source outlive the operation.
    unsafe { uring.submit(TOKEN, op) }.expect("submitted");
    assert_eq!(wait(&mut uring, SHORT), []);

    let (sender, receiver) = mpsc::channel();
    let (giver, taker) = mpsc::channel();
    let other = thread::spawn(move || {
        let mut uring: poll_uring::Uring = receiver.recv().expect("the backend");
        // Before 6.1 a ring belongs to nobody.
        if let Err(error) = uring.wait(SHORT, &mut Vec::new()) {
            assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
        }
        giver.send(uring).expect("given back");
    });
    sender.send(uring).expect("handed over");
    uring = taker.recv().expect("the backend");
    other.join().expect("the other thread");

    far.write_all(b"hello").expect("sent");
    let done = Event::Done { token: TOKEN, result: Ok(5), more: false, lent: None };
    assert_eq!(wait(&mut uring, SOON), [done]);
    assert_eq!(&memory[..5], b"hello");
}

/// Closing a ring ends its requests in the kernel's own time. `drop` must outlast them
/// even on a thread that may not ask.
#[test]
fn dropped_elsewhere_it_still_outlasts_its_operations() {
    for owner_lives in [true, false] {
        for _ in 0..50 {
            let Some(mut uring) = uring(8) else { return };
            let (near, mut far) = tcp_pair();
            let mut memory = vec![0u8; 8];
            let op = Op::Recv { source: RawSource::of(&near), buf: RawBuf::filling(&mut memory) };
            let (giver, taker) = mpsc::channel();
            let (release, held) = mpsc::channel::<()>();
            // SAFETY: memory and source outlive the backend.
            unsafe { uring.submit(TOKEN, op) }.expect("submitted");
            let owner = thread::spawn(move || {
                assert_eq!(wait(&mut uring, Some(Duration::ZERO)), []);
                giver.send(uring).expect("given away");
                let _ = held.recv();
            });
            let uring = taker.recv().expect("the backend");
            if !owner_lives {
                drop(release);
                owner.join().expect("the owner");
                drop(uring);
            } else {
                drop(uring);
                drop(release);
                owner.join().expect("the owner");
            }
            far.write_all(b"late").expect("sent");
            assert_eq!(memory, [0; 8], "the kernel has written after the drop");
            // The kernel does not hold the socket either: its peer hears of the close.
            drop(near);
            far.set_read_timeout(SOON).expect("a timeout");
            let end = far.read(&mut [0; 8]).map_err(|error| error.kind());
            assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "{end:?}");
        }
    }
}

#[test]
fn what_was_accepted_unseen_is_closed_with_the_backend() {
    let Some(mut uring) = uring(8) else { return };
    if !uring.supports(OpKind::AcceptMulti) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("an address");
    // SAFETY: the listener outlives the backend.
    unsafe { uring.submit(TOKEN, Op::AcceptMulti { listener: RawSource::of(&listener) }) }
        .expect("submitted");
    assert_eq!(wait(&mut uring, SHORT), []);
    let mut clients: Vec<_> =
        (0..5).map(|_| std::net::TcpStream::connect(address).expect("connected")).collect();
    // Whatever enters the kernel lets it accept; nobody is told.
    let (near, _far) = tcp_pair();
    let other = Token::new(1, 0);
    watch(&mut uring, other, RawSource::of(&near), Mode::Level);
    drop(uring);
    drop(listener);
    for client in &mut clients {
        client.set_read_timeout(SOON).expect("a timeout");
        // The end of file or a reset: anything but a connection that nobody has.
        let end = client.read(&mut [0; 1]).map_err(|error| error.kind());
        assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "{end:?}");
    }
}

/// A peer that hears of the end of its connection knows that no descriptor of it is left.
fn assert_closed(mut far: std::net::TcpStream) {
    far.set_read_timeout(SOON).expect("a timeout");
    let end = far.read(&mut [0; 1]).map_err(|error| error.kind());
    assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "{end:?}");
}

/// Submits a close of one end of a connection, whose other end it returns.
fn submit_close(uring: &mut poll_uring::Uring, token: Token) -> std::net::TcpStream {
    let (near, far) = tcp_pair();
    // SAFETY: a close names no memory, and the descriptor is the operation's alone.
    unsafe { uring.submit(token, Op::Close { source: RawSource::of(&near) }) }.expect("submitted");
    std::mem::forget(near);
    far
}

#[test]
fn what_was_to_be_closed_is_closed_with_the_backend() {
    for waits in [false, true] {
        let Some(mut uring) = uring(8) else { return };
        if waits {
            assert_eq!(wait(&mut uring, Some(Duration::ZERO)), []);
        }
        let far = submit_close(&mut uring, TOKEN);
        drop(uring);
        assert_closed(far);
    }
}

#[test]
fn what_was_to_be_closed_is_closed_with_the_backend_elsewhere() {
    // With more than the submission queue holds, the kernel has performed some.
    for count in [1, 20] {
        let Some(mut uring) = uring(8) else { return };
        let owner = thread::spawn(move || {
            assert_eq!(wait(&mut uring, Some(Duration::ZERO)), []);
            let closes = (0..count).map(|index| submit_close(&mut uring, Token::new(index, 0)));
            let peers: Vec<_> = closes.collect();
            (uring, peers)
        });
        let (uring, peers) = owner.join().expect("the owner");
        drop(uring);
        peers.into_iter().for_each(assert_closed);
    }
}

/// A message queue is flushed when it is closed. That waits for another thread of the kernel's,
/// and until then it can be cancelled, as everything is when a backend is dropped.
#[test]
fn a_close_that_was_cancelled_by_the_drop_is_a_close() {
    for round in 0..300 {
        let Some(mut uring) = uring(8) else { return };
        let name = format!("/poll-uring-{}-{round}\0", std::process::id());
        let (flags, attributes) = (libc::O_CREAT | libc::O_RDWR, std::ptr::null::<libc::mq_attr>());
        // SAFETY: the name ends with NUL, and no attributes are the usual ones.
        let queue = unsafe { libc::mq_open(name.as_ptr().cast(), flags, 0o600, attributes) };
        if queue < 0 {
            return eprintln!("skipped: {}", std::io::Error::last_os_error());
        }
        // SAFETY: the name ends with NUL.
        unsafe { libc::mq_unlink(name.as_ptr().cast()) };
        if round % 2 == 0 {
            assert_eq!(wait(&mut uring, Some(Duration::ZERO)), []);
        }
        // SAFETY: a close names no memory, and the descriptor is the operation's alone.
        unsafe { uring.submit(TOKEN, Op::Close { source: RawSource::from_fd(queue) }) }
            .expect("submitted");
        drop(uring);
        // SAFETY: plain numbers, which may be zero.
        let mut found: libc::mq_attr = unsafe { std::mem::zeroed() };
        // Whatever has the number by now, no other test has message queues.
        // SAFETY: the attributes go where there is room for them.
        assert_eq!(unsafe { libc::mq_getattr(queue, &mut found) }, -1, "open, in round {round}");
    }
}
