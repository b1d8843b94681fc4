//! Full queues, external pollers, and the verification of urgent data.
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

use std::collections::HashSet;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use common::*;
use poll_core::{Backend, Event, Interest, Mode, Op, OpKind, RawSource, Readiness, Token, Wake};

/// One submission entry and 32 completions for three hundred sources.
#[test]
fn events_beyond_the_queue_sizes_are_all_reported() {
    for mode in [Mode::Level, Mode::Oneshot, Mode::Edge] {
        let Some(mut uring) = uring(1) else { return };
        let mut pairs: Vec<_> = (0..300).map(|_| tcp_pair()).collect();
        for (index, (near, _)) in pairs.iter().enumerate() {
            let (token, source) = (Token::new(index as u32, 0), RawSource::of(near));
            // SAFETY: `pairs` keeps the sources open until the backend is dropped.
            match unsafe { uring.register(token, source, Interest::READ, mode) } {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => return,
                other => other.expect("register"),
            }
        }
        assert_eq!(wait(&mut uring, SHORT), []);
        for (near, far) in &mut pairs {
            far.write_all(b"x").expect("send");
            let _ = near.peek(&mut [0]);
        }
        let mut seen = HashSet::new();
        while seen.len() < pairs.len() {
            let events = wait(&mut uring, SOON);
            assert!(!events.is_empty(), "{mode:?}: only {} sources were reported", seen.len());
            let tokens: HashSet<_> = events.iter().map(Event::token).collect();
            assert_eq!(tokens.len(), events.len(), "{mode:?}: two events of a source in one wait");
            seen.extend(tokens);
        }
    }
}

#[test]
fn overflowing_multishot_accept_ends_and_loses_no_connection() {
    let Some(mut uring) = uring(1) else { return };
    if !uring.supports(OpKind::AcceptMulti) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let accept = Op::AcceptMulti { listener: RawSource::of(&listener) };
    let address = listener.local_addr().expect("local address");
    let clients: Vec<_> = (0..100).map(|_| TcpStream::connect(address).expect("connect")).collect();
    // SAFETY: the listener stays open until the backend is dropped.
    unsafe { uring.submit(TOKEN, accept) }.expect("submit");
    let mut accepted = Vec::new();
    while accepted.len() < clients.len() {
        for event in wait(&mut uring, SOON) {
            let Event::Done { result, more, .. } = event else { panic!("{event:?}") };
            let fd = result.expect("accept") as i32;
            // SAFETY: the operation has created the descriptor, and the event reports it once.
            accepted.push(unsafe { OwnedFd::from_raw_fd(fd) });
            if !more {
                // SAFETY: the listener stays open until the backend is dropped.
                unsafe { uring.submit(TOKEN, accept) }.expect("submit again");
            }
        }
    }
}

/// The descriptor of a ring with deferred completions would not become readable here.
#[test]
fn sleeping_external_epoll_is_woken() {
    let Some(mut uring) = uring(8) else { return };
    let (mut near, far) = tcp_pair();
    let raw_source = uring.raw_source().expect("raw_source");
    watch(&mut uring, TOKEN, RawSource::of(&near), Mode::Level);
    // SAFETY: the call takes no pointer.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    assert!(epoll >= 0);
    // SAFETY: the call has created the descriptor, so it has no other owner.
    let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: `event` outlives the call.
    let added = unsafe {
        libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, raw_source.fd(), &mut event)
    };
    assert_eq!(added, 0);
    let waker = uring.waker();
    for round in 0..4 {
        assert_eq!(wait(&mut uring, Some(Duration::ZERO)), []);
        let sends = round % 2 == 0;
        let (mut sender, waker) = (far.try_clone().expect("clone"), waker.clone());
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            if sends { sender.write_all(b"x") } else { waker.wake() }.expect("send or wake");
        });
        let count = loop {
            // SAFETY: `event` holds one event and outlives the call.
            let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, 10_000) };
            // Before 6.1 the kernel interrupts the sleeping thread to post the completion.
            if count >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break count;
            }
        };
        assert_eq!(count, 1, "round {round}");
        later.join().expect("join");
        let events = wait(&mut uring, SOON);
        assert_eq!(events, if sends { vec![readable(TOKEN)] } else { vec![] });
        let _ = near.read(&mut [0; 8]);
    }
}

/// The kernel takes a result from the wake-up, which does not distinguish urgent data.
#[test]
fn ordinary_data_is_never_reported_as_priority() {
    for mode in [Mode::Level, Mode::Oneshot, Mode::Edge] {
        let Some(mut uring) = uring(8) else { return };
        let (near, mut far) = tcp_pair();
        let source = RawSource::of(&near);
        // SAFETY: `near` stays open until the backend is dropped.
        match unsafe { uring.register(TOKEN, source, Interest::PRIORITY, mode) } {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return,
            other => other.expect("register"),
        }
        assert_eq!(wait(&mut uring, SHORT), []);
        far.write_all(b"ordinary").expect("send");
        assert_eq!(wait(&mut uring, Some(Duration::ZERO)), [], "{mode:?}");
        assert_eq!(wait(&mut uring, SHORT), [], "{mode:?}");
        // SAFETY: the byte outlives the call.
        let sent = unsafe { libc::send(far.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
        assert_eq!(sent, 1);
        let mut polled = libc::pollfd { fd: near.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        assert_eq!(unsafe { libc::poll(&mut polled, 1, 10_000) }, 1, "the urgent byte arrives");
        let urgent = Event::Ready { token: TOKEN, ready: Readiness::PRIORITY };
        assert_eq!(wait(&mut uring, Some(Duration::ZERO)), [urgent], "{mode:?}");
    }
}
