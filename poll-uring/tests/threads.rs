//! Backends that move between threads, and are dropped on another thread than the ring's.
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
fn backend_can_move_between_threads() {
    let Some(mut uring) = uring(8) else { return };
    let (near, mut far) = tcp_pair();
    watch(&mut uring, TOKEN, RawSource::of(&near), Mode::Level);
    assert_eq!(wait(&mut uring, SHORT), []);
    far.write_all(b"x").expect("send");
    for _ in 0..3 {
        uring = thread::spawn(move || {
            assert_eq!(wait(&mut uring, SOON), [readable(TOKEN)]);
            uring
        })
        .join()
        .expect("join");
        assert_eq!(wait(&mut uring, Some(Duration::ZERO)), [readable(TOKEN)]);
    }
    uring = thread::spawn(move || {
        uring.deregister(TOKEN).expect("deregister");
        uring
    })
    .join()
    .expect("join");
    assert_eq!(wait(&mut uring, Some(Duration::ZERO)), [], "nothing is registered");
}

#[test]
fn moving_with_operations_in_flight_is_an_error() {
    let Some(mut uring) = uring(8) else { return };
    let (near, mut far) = tcp_pair();
    let mut memory = vec![0u8; 8];
    let op = Op::Recv { source: RawSource::of(&near), buf: RawBuf::filling(&mut memory) };
    // SAFETY: memory and source outlive the backend.
    unsafe { uring.submit(TOKEN, op) }.expect("submit");
    assert_eq!(wait(&mut uring, SHORT), []);

    let (sender, receiver) = mpsc::channel();
    let (giver, taker) = mpsc::channel();
    let other = thread::spawn(move || {
        let mut uring: poll_uring::Uring = receiver.recv().expect("receive the backend");
        // Before 6.1 a ring has no owner.
        if let Err(error) = uring.wait(SHORT, &mut Vec::new()) {
            assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
        }
        giver.send(uring).expect("return the backend");
    });
    sender.send(uring).expect("hand over the backend");
    uring = taker.recv().expect("receive the backend");
    other.join().expect("join");

    far.write_all(b"hello").expect("send");
    let done = Event::Done { token: TOKEN, result: Ok(5), more: false, lease: None };
    assert_eq!(wait(&mut uring, SOON), [done]);
    assert_eq!(&memory[..5], b"hello");
}

/// The kernel ends the requests of a closed ring asynchronously. `drop` must wait for that, also on
/// a thread that may not enter the ring.
#[test]
fn drop_on_another_thread_waits_for_operations() {
    for owner_lives in [true, false] {
        for _ in 0..50 {
            let Some(mut uring) = uring(8) else { return };
            let (near, mut far) = tcp_pair();
            let mut memory = vec![0u8; 8];
            let op = Op::Recv { source: RawSource::of(&near), buf: RawBuf::filling(&mut memory) };
            let (giver, taker) = mpsc::channel();
            let (release, held) = mpsc::channel::<()>();
            // SAFETY: memory and source outlive the backend.
            unsafe { uring.submit(TOKEN, op) }.expect("submit");
            let owner = thread::spawn(move || {
                assert_eq!(wait(&mut uring, Some(Duration::ZERO)), []);
                giver.send(uring).expect("hand over the backend");
                let _ = held.recv();
            });
            let uring = taker.recv().expect("receive the backend");
            if !owner_lives {
                drop(release);
                owner.join().expect("join the owner");
                drop(uring);
            } else {
                drop(uring);
                drop(release);
                owner.join().expect("join the owner");
            }
            far.write_all(b"late").expect("send");
            assert_eq!(memory, [0; 8], "the kernel wrote to memory after the drop");
            // The kernel does not hold the socket open either: its peer gets the end of file.
            drop(near);
            far.set_read_timeout(SOON).expect("set a timeout");
            let end = far.read(&mut [0; 8]).map_err(|error| error.kind());
            assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "{end:?}");
        }
    }
}

#[test]
fn unreported_accepted_connections_are_closed_with_the_backend() {
    let Some(mut uring) = uring(8) else { return };
    if !uring.supports(OpKind::AcceptMulti) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let address = listener.local_addr().expect("local address");
    // SAFETY: the listener stays open until the backend is dropped.
    unsafe { uring.submit(TOKEN, Op::AcceptMulti { listener: RawSource::of(&listener) }) }
        .expect("submit");
    assert_eq!(wait(&mut uring, SHORT), []);
    let mut clients: Vec<_> =
        (0..5).map(|_| std::net::TcpStream::connect(address).expect("connect")).collect();
    // The next call that enters the kernel accepts; no wait reports that.
    let (near, _far) = tcp_pair();
    let other = Token::new(1, 0);
    watch(&mut uring, other, RawSource::of(&near), Mode::Level);
    drop(uring);
    drop(listener);
    for client in &mut clients {
        client.set_read_timeout(SOON).expect("set a timeout");
        // The end of file or a reset: the connection has no open descriptor left.
        let end = client.read(&mut [0; 1]).map_err(|error| error.kind());
        assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "{end:?}");
    }
}

/// Checks that the other end of a connection is closed.
fn assert_closed(mut far: std::net::TcpStream) {
    far.set_read_timeout(SOON).expect("set a timeout");
    let end = far.read(&mut [0; 1]).map_err(|error| error.kind());
    assert!(matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset)), "{end:?}");
}

/// Submits a close of one end of a connection, and returns the other end.
fn submit_close(uring: &mut poll_uring::Uring, token: Token) -> std::net::TcpStream {
    let (near, far) = tcp_pair();
    // SAFETY: a close uses no memory, and the operation becomes the only owner of the descriptor.
    unsafe { uring.submit(token, Op::Close { source: RawSource::of(&near) }) }.expect("submit");
    std::mem::forget(near);
    far
}

#[test]
fn pending_closes_are_performed_by_the_drop() {
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
fn pending_closes_are_performed_by_the_drop_on_another_thread() {
    // With more closes than submission entries, the kernel has performed some.
    for count in [1, 20] {
        let Some(mut uring) = uring(8) else { return };
        let owner = thread::spawn(move || {
            assert_eq!(wait(&mut uring, Some(Duration::ZERO)), []);
            let closes = (0..count).map(|index| submit_close(&mut uring, Token::new(index, 0)));
            let peers: Vec<_> = closes.collect();
            (uring, peers)
        });
        let (uring, peers) = owner.join().expect("join the owner");
        drop(uring);
        peers.into_iter().for_each(assert_closed);
    }
}

/// Closing a message queue flushes it, in a kernel thread. Until that thread starts, the drop of
/// the backend can cancel the close, and must then close the descriptor itself.
#[test]
fn closes_that_the_drop_cancels_are_performed() {
    for round in 0..300 {
        let Some(mut uring) = uring(8) else { return };
        let name = format!("/poll-uring-{}-{round}\0", std::process::id());
        let (flags, attributes) = (libc::O_CREAT | libc::O_RDWR, std::ptr::null::<libc::mq_attr>());
        // SAFETY: the name ends with NUL, and null attributes are the default.
        let queue = unsafe { libc::mq_open(name.as_ptr().cast(), flags, 0o600, attributes) };
        if queue < 0 {
            return eprintln!("skipped: {}", std::io::Error::last_os_error());
        }
        // SAFETY: the name ends with NUL.
        unsafe { libc::mq_unlink(name.as_ptr().cast()) };
        if round % 2 == 0 {
            assert_eq!(wait(&mut uring, Some(Duration::ZERO)), []);
        }
        // SAFETY: a close uses no memory, and the operation becomes the only owner of the
        // descriptor.
        unsafe { uring.submit(TOKEN, Op::Close { source: RawSource::from_fd(queue) }) }
            .expect("submit");
        drop(uring);
        // SAFETY: the structure has only numbers, for which zero is valid.
        let mut found: libc::mq_attr = unsafe { std::mem::zeroed() };
        // If the number has been reused, it is not a message queue: no other test has one.
        // SAFETY: `found` has the size of the structure that the call writes.
        let result = unsafe { libc::mq_getattr(queue, &mut found) };
        assert_eq!(result, -1, "round {round}: the queue is open");
    }
}
