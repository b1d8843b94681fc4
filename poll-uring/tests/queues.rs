//! Full queues lose nothing, and other pollers see what is inside.
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
use poll_core::{Backend, Event, Mode, Op, OpKind, RawSource, Ready, Token, Wake};

/// One submission entry and 32 completions for three hundred sources.
#[test]
fn more_events_than_the_queues_hold_are_all_reported() {
    for mode in [Mode::Level, Mode::Oneshot, Mode::Edge] {
        let Some(mut uring) = uring(1) else { return };
        let mut pairs: Vec<_> = (0..300).map(|_| tcp_pair()).collect();
        for (index, (near, _)) in pairs.iter().enumerate() {
            let (token, source) = (Token::new(index as u32, 0), RawSource::of(near));
            // SAFETY: the sources outlive the backend's interest in them.
            match unsafe { uring.register(token, source, Ready::READ, mode) } {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => return,
                other => other.expect("registered"),
            }
        }
        assert_eq!(wait(&mut uring, SHORT), []);
        for (near, far) in &mut pairs {
            far.write_all(b"x").expect("sent");
            let _ = near.peek(&mut [0]);
        }
        let mut seen = HashSet::new();
        while seen.len() < pairs.len() {
            let events = wait(&mut uring, SOON);
            assert!(!events.is_empty(), "{mode:?}: only {} sources were reported", seen.len());
            let tokens: HashSet<_> = events.iter().map(Event::token).collect();
            assert_eq!(tokens.len(), events.len(), "{mode:?}: twice in one wait");
            seen.extend(tokens);
        }
    }
}

#[test]
fn a_multishot_that_overflows_says_so_and_loses_nothing() {
    let Some(mut uring) = uring(1) else { return };
    if !uring.supports(OpKind::AcceptMulti) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let accept = Op::AcceptMulti { listener: RawSource::of(&listener) };
    let address = listener.local_addr().expect("an address");
    let clients: Vec<_> =
        (0..100).map(|_| TcpStream::connect(address).expect("connected")).collect();
    // SAFETY: the listener outlives the operation.
    unsafe { uring.submit(TOKEN, accept) }.expect("submitted");
    let mut accepted = Vec::new();
    while accepted.len() < clients.len() {
        for event in wait(&mut uring, SOON) {
            let Event::Done { result, more, .. } = event else { panic!("{event:?}") };
            let fd = result.expect("a connection") as i32;
            // SAFETY: accepted for this test, which is its only owner.
            accepted.push(unsafe { OwnedFd::from_raw_fd(fd) });
            if !more {
                // SAFETY: as above.
                unsafe { uring.submit(TOKEN, accept) }.expect("submitted again");
            }
        }
    }
}

/// The descriptor of a ring with deferred completions would stay silent here.
#[test]
fn an_epoll_that_sleeps_already_is_woken() {
    let Some(mut uring) = uring(8) else { return };
    let (mut near, far) = tcp_pair();
    let inside = uring.raw_fd().expect("a descriptor");
    watch(&mut uring, TOKEN, RawSource::of(&near), Mode::Level);
    // SAFETY: a call without pointers.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    assert!(epoll >= 0);
    // SAFETY: made just now, with no other owner.
    let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: both descriptors are open, and `event` outlives the call.
    let added =
        unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, inside.fd(), &mut event) };
    assert_eq!(added, 0);
    let waker = uring.waker();
    for round in 0..4 {
        assert_eq!(wait(&mut uring, Some(Duration::ZERO)), []);
        let sends = round % 2 == 0;
        let (mut sender, waker) = (far.try_clone().expect("a clone"), waker.clone());
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            if sends { sender.write_all(b"x") } else { waker.wake() }.expect("done");
        });
        let count = loop {
            // SAFETY: room for one event, which outlives the call.
            let count = unsafe { libc::epoll_wait(epoll.as_raw_fd(), &mut event, 1, 10_000) };
            // Before 6.1 the kernel interrupts whoever sleeps, to make the completion.
            if count >= 0 || io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                break count;
            }
        };
        assert_eq!(count, 1, "round {round}");
        later.join().expect("the other thread");
        let events = wait(&mut uring, SOON);
        assert_eq!(events, if sends { vec![readable(TOKEN)] } else { vec![] });
        let _ = near.read(&mut [0; 8]);
    }
}

/// The kernel reports what a socket says and not what it is, unless it is asked again.
#[test]
fn priority_is_never_ordinary_data() {
    for mode in [Mode::Level, Mode::Oneshot, Mode::Edge] {
        let Some(mut uring) = uring(8) else { return };
        let (near, mut far) = tcp_pair();
        let source = RawSource::of(&near);
        // SAFETY: the source outlives the backend's interest in it.
        match unsafe { uring.register(TOKEN, source, Ready::PRIORITY, mode) } {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => return,
            other => other.expect("registered"),
        }
        assert_eq!(wait(&mut uring, SHORT), []);
        far.write_all(b"ordinary").expect("sent");
        assert_eq!(wait(&mut uring, Some(Duration::ZERO)), [], "{mode:?}");
        assert_eq!(wait(&mut uring, SHORT), [], "{mode:?}");
        // SAFETY: the byte outlives the call.
        let sent = unsafe { libc::send(far.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
        assert_eq!(sent, 1);
        let mut polled = libc::pollfd { fd: near.as_raw_fd(), events: libc::POLLPRI, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        assert_eq!(unsafe { libc::poll(&mut polled, 1, 10_000) }, 1, "it arrives");
        let urgent = Event::Ready { token: TOKEN, ready: Ready::PRIORITY };
        assert_eq!(wait(&mut uring, Some(Duration::ZERO)), [urgent], "{mode:?}");
    }
}
