//! Zero-copy sends: they complete twice, and hold their memory until the second completion.
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
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::*;
use poll_core::{Backend, Event, Op, RawBuf, RawSource, Token};
use poll_uring::Uring;

const SIZE: usize = 1 << 20;

#[test]
fn large_sends_report_their_result_and_then_release_their_memory() {
    let Some(mut uring) = uring(256) else { return };
    uring.set_zero_copy(Some(10_000));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        far.read_to_end(&mut all).map(|_| all).unwrap()
    });

    let memory: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
    let (mut sent, mut zero_copy, mut events, mut index) = (0, 0, Vec::new(), 0);
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
                let &Event::Done { token: of, result, more, lease: None } = event else {
                    panic!("{event:?}");
                };
                assert_eq!(of, token);
                reports.push((result.unwrap(), more));
            }
        }
        let small = SIZE - sent < 10_000;
        assert_eq!(reports.len(), if small { 1 } else { 2 }, "{reports:?}");
        zero_copy += reports.len() - 1;
        sent += reports[0].0;
    }
    assert!(zero_copy > 0, "every send was copied");
    drop(uring);
    near.shutdown(Shutdown::Write).unwrap();
    assert!(reader.join().unwrap() == memory, "the peer received other bytes");
}

#[test]
fn sockets_without_zero_copy_copy_and_complete_once() {
    let Some(mut uring) = uring(256) else { return };
    uring.set_zero_copy(Some(1));
    let (near, mut far) = UnixStream::pair().unwrap();
    let (memory, mut events) = (vec![7; 1000], Vec::new());
    let (source, buf) = (RawSource::of(&near), RawBuf::sending(&memory));
    let [first, second] = [0, 1].map(|index| Token::new(index, 0));
    // SAFETY: the memory and the socket outlive the backend.
    unsafe { uring.submit(first, Op::Send { source, buf }) }.unwrap();
    uring.wait(None, &mut events).unwrap();
    let sent = Event::Done { token: first, result: Ok(1000), more: false, lease: None };
    assert_eq!(events, [sent]);
    far.read_exact(&mut [0; 1000]).unwrap();

    // The socket is full: a send waits, and can be cancelled.
    near.set_nonblocking(true).unwrap();
    while std::io::Write::write(&mut &near, &memory).is_ok() {}
    // SAFETY: the memory and the socket outlive the backend.
    unsafe { uring.submit(second, Op::Send { source, buf }) }.unwrap();
    events.clear();
    uring.wait(Some(Duration::from_millis(10)), &mut events).unwrap();
    assert_eq!(events, [], "the socket is full");
    uring.cancel(second).unwrap();
    uring.wait(None, &mut events).unwrap();
    let cancelled = Err(libc::ECANCELED);
    let end = Event::Done { token: second, result: cancelled, more: false, lease: None };
    assert_eq!(events, [end]);

    // A send in flight ends with the backend.
    // SAFETY: the memory and the socket outlive the backend.
    unsafe { uring.submit(first, Op::Send { source, buf }) }.unwrap();
    events.clear();
    uring.wait(Some(Duration::ZERO), &mut events).unwrap();
    drop(uring);
}

/// Sends 16 MiB to a peer that does not read. Returns when the kernel has taken the bytes, and
/// still uses the memory.
fn fill(uring: &mut Uring, near: &TcpStream, memory: &[u8]) {
    let (source, buf) = (RawSource::of(near), RawBuf::sending(memory));
    // SAFETY: the callers keep memory and socket until the backend is dropped.
    unsafe { uring.submit(TOKEN, Op::Send { source, buf }) }.unwrap();
    let mut events = Vec::new();
    while events.is_empty() {
        uring.wait(None, &mut events).unwrap();
    }
    let [Event::Done { result: Ok(sent), more: true, .. }] = events[..] else {
        panic!("{events:?}")
    };
    assert!(sent > 0);
    // If the peer could receive all bytes, the send would end in this time.
    assert_eq!(wait(uring, SHORT), [], "the kernel holds the memory");
}

#[test]
fn drop_is_not_delayed_by_a_peer_that_stops_reading() {
    for elsewhere in [false, true] {
        let (near, mut far) = tcp_pair();
        let memory = vec![b'A'; 16 << 20];
        let Some(mut uring) = uring(8) else { return };
        uring.set_zero_copy(Some(10_000));
        let (done, dropped) = mpsc::channel();
        thread::spawn(move || {
            fill(&mut uring, &near, &memory);
            let drops = move || {
                drop(uring);
                done.send((near, memory)).unwrap();
            };
            if elsewhere { thread::spawn(drops).join().unwrap() } else { drops() }
        });
        let Ok((near, mut memory)) = dropped.recv_timeout(Duration::from_secs(30)) else {
            panic!("elsewhere: {elsewhere}: the drop waits for the peer");
        };

        // The kernel does not use the memory any more: the peer gets nothing that is written to it.
        memory.fill(b'B');
        let mut received = vec![0; 1 << 16];
        far.set_read_timeout(SOON).unwrap();
        let end = loop {
            match far.read(&mut received) {
                Ok(0) => break None,
                Ok(len) => assert!(received[..len].iter().all(|&byte| byte == b'A')),
                Err(error) => break Some(error.kind()),
            }
        };
        assert_eq!(end, Some(ErrorKind::ConnectionReset), "elsewhere: {elsewhere}");
        drop(near);
    }
}

#[test]
fn drop_does_not_reset_a_peer_that_reads() {
    let (near, mut far) = tcp_pair();
    let memory = vec![b'A'; 16 << 20];
    let Some(mut uring) = uring(8) else { return };
    uring.set_zero_copy(Some(10_000));
    fill(&mut uring, &near, &memory);
    let reader = thread::spawn(move || {
        let mut all = Vec::new();
        far.read_to_end(&mut all).map(|_| all.len())
    });
    drop(uring);
    (&near).write_all(b"!").unwrap();
    near.shutdown(Shutdown::Write).unwrap();
    assert!(reader.join().unwrap().unwrap() > 1);
}
