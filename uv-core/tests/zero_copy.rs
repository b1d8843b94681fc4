//! Closing a stream whose zero-copy sends the kernel has not finished: the close does not wait for
//! the peer.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::rc::Rc;
use std::time::Duration;

use uv_core::backends::Uring;
use uv_core::{Command, Handle, Loop, Process, RunMode, Stdio, Stream, Tcp, Timer, is_cancelled};

const SIZE: usize = 16 << 20;

/// A loop with a connection that sends without copying, and its peer.
fn connected() -> Option<(Loop<Uring>, Tcp, TcpStream)> {
    let mut uring = Uring::new().inspect_err(|error| eprintln!("skip: {error}")).ok()?;
    uring.set_zero_copy(Some(64 * 1024));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut lp = Loop::new(uring);
    let tcp = Tcp::new(&mut lp);
    tcp.open(&mut lp, listener.accept().unwrap().0).unwrap();
    Some((lp, tcp, peer))
}

/// Starts a write that is larger than the kernel's buffers, and runs until the kernel has begun
/// to send it. Returns how the write ends: what was sent, or that it was cancelled.
fn write(lp: &mut Loop<Uring>, tcp: Tcp, mut peer: &TcpStream) -> Rc<RefCell<Option<bool>>> {
    let result = Rc::new(RefCell::new(None));
    let ended = Rc::clone(&result);
    lp.defer(move |lp| {
        tcp.write(lp, vec![b'A'; SIZE], move |_, _, result, buffer| {
            assert_eq!(buffer.len(), SIZE, "the buffer comes back");
            assert!(buffer.iter().all(|byte| *byte == b'A'));
            assert!(result.as_ref().err().is_none_or(is_cancelled), "{result:?}");
            *ended.borrow_mut() = Some(result.is_ok());
        })
        .unwrap();
    });
    while peer_has_nothing(&mut peer) {
        lp.run(RunMode::NoWait).unwrap();
    }
    result
}

fn peer_has_nothing(peer: &mut &TcpStream) -> bool {
    peer.set_nonblocking(true).unwrap();
    let empty = peer.peek(&mut [0]).is_err();
    peer.set_nonblocking(false).unwrap();
    empty
}

/// Runs until the close callback has run. A peer that holds up the close makes this fail.
fn run_until_closed(lp: &mut Loop<Uring>, closed: &Cell<bool>) {
    let deadline = Timer::new(lp);
    deadline
        .start(lp, Duration::from_secs(30), Duration::ZERO, |_, _| {
            panic!("the peer holds up the close")
        })
        .unwrap();
    while !closed.get() {
        lp.run(RunMode::Once).unwrap();
    }
    deadline.close(lp).unwrap();
}

#[test]
fn a_close_does_not_wait_for_a_peer_that_does_not_read() {
    let Some((mut lp, tcp, mut peer)) = connected() else { return };
    let result = write(&mut lp, tcp, &peer);
    let closed = Rc::new(Cell::new(false));
    let close = Rc::clone(&closed);
    tcp.close_with(&mut lp, move |_, _| close.set(true)).unwrap();
    run_until_closed(&mut lp, &closed);
    assert!(lp.walk().iter().all(|handle| *handle != tcp.into()), "the handle is gone");

    // The connection ends after the bytes that the kernel has, and then the buffer comes back.
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        peer.read_to_end(&mut bytes).unwrap();
        bytes
    });
    lp.run(RunMode::Default).unwrap();
    let (bytes, whole) = (reader.join().unwrap(), result.take().expect("the write calls back"));
    assert!(bytes.iter().all(|byte| *byte == b'A'));
    assert!(!bytes.is_empty() && (bytes.len() == SIZE || !whole), "{} bytes", bytes.len());
}

#[test]
fn a_reset_releases_the_memory() {
    let Some((mut lp, tcp, mut peer)) = connected() else { return };
    let result = write(&mut lp, tcp, &peer);
    let closed = Rc::new(Cell::new(false));
    let close = Rc::clone(&closed);
    tcp.close_reset_with(&mut lp, move |_, _| close.set(true)).unwrap();
    run_until_closed(&mut lp, &closed);
    lp.run(RunMode::Default).unwrap();
    assert!(result.take().is_some(), "the write calls back without the peer");
    let error = peer.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[test]
fn a_dropped_loop_does_not_wait_for_the_peer() {
    let Some((mut lp, tcp, peer)) = connected() else { return };
    write(&mut lp, tcp, &peer);
    let closed = Rc::new(Cell::new(false));
    let close = Rc::clone(&closed);
    tcp.close_with(&mut lp, move |_, _| close.set(true)).unwrap();
    run_until_closed(&mut lp, &closed);
    drop(lp);
}

/// A connection that a child has as well does not end with its stream.
#[test]
fn a_close_leaves_the_connection_to_a_child() {
    let Some((mut lp, tcp, mut peer)) = connected() else { return };
    write(&mut lp, tcp, &peer);
    let stdio = [Stdio::stream(tcp), Stdio::stream(tcp)];
    let command = Command::new("sh").args(["-c", "read line; echo \"$line\""]).stdio(stdio);
    Process::spawn(&mut lp, &command, |lp, process, _| process.close(lp).unwrap()).unwrap();
    let closed = Rc::new(Cell::new(false));
    let close = Rc::clone(&closed);
    tcp.close_with(&mut lp, move |_, _| close.set(true)).unwrap();
    run_until_closed(&mut lp, &closed);

    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        peer.write_all(b"the child's\n").and_then(|()| peer.read_to_end(&mut bytes)).unwrap();
        bytes
    });
    lp.run(RunMode::Default).unwrap();
    let bytes = reader.join().unwrap();
    assert!(bytes.ends_with(b"Athe child's\n"), "the child writes behind the stream's bytes");
}
