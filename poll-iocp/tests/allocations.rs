//! In a steady state, submitting and completing operations allocates nothing.
//!
//! Allocations are counted for the whole process, whose only test this is.

#![cfg(windows)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::UnsafeCell;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::windows::io::{FromRawSocket, OwnedSocket, RawSocket};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use poll_core::{Backend, Event, Interest, Op, RawBuf, RawSource, Token};
use poll_iocp::Iocp;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are forwarded to the system allocator, which upholds the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of `GlobalAlloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const SIZE: u32 = 64;
const COUNT: u16 = 8;
const SEND: Token = Token::new(0, 0);
const RECEIVE: Token = Token::new(1, 0);
const MULTI: Token = Token::new(2, 0);
const ACCEPT: Token = Token::new(3, 0);
const POLL: Token = Token::new(4, 0);

/// A backend, and its events that no `report` has taken yet.
struct Driver {
    iocp: Iocp,
    events: Vec<Event>,
}

impl Driver {
    fn submit(&mut self, token: Token, op: Op) {
        // SAFETY: the test declares all memory of `op` before the driver, which is dropped first.
        unsafe { self.iocp.submit(token, op) }.expect("an operation that is supported");
    }

    /// Waits for an event of `token`, and returns its result.
    fn report(&mut self, token: Token) -> usize {
        loop {
            let about = |event: &Event| event.token() == token;
            if let Some(index) = self.events.iter().position(about) {
                let Event::Done { result, lease, .. } = self.events.remove(index) else {
                    unreachable!("no source is registered")
                };
                lease.into_iter().for_each(|lease| self.iocp.release_buffer(lease));
                return result.expect("an operation that succeeds");
            }
            self.iocp.wait(None, &mut self.events).expect("a wait");
        }
    }
}

#[test]
fn a_steady_state_of_operations_allocates_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let address = listener.local_addr().expect("its address");
    let near = TcpStream::connect(address).expect("a connection");
    let (far, _) = listener.accept().expect("its other end");
    let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    datagrams.connect(datagrams.local_addr().expect("its address")).expect("itself as its peer");
    let (mut received, sent) = (vec![0u8; 16], b"some bytes".to_vec());
    let group: Vec<UnsafeCell<u8>> = (0..SIZE * u32::from(COUNT)).map(|_| 0.into()).collect();
    let start = NonNull::from(&group[..]).cast();
    let [near_end, far_end, messages] =
        [RawSource::of(&near), RawSource::of(&far), RawSource::of(&datagrams)];
    let filling = RawBuf::filling(&mut received);
    let sending = RawBuf::sending(&sent);

    let mut driver = Driver { iocp: Iocp::new().expect("a backend"), events: Vec::new() };
    // SAFETY: `group` is declared before the driver, which is dropped first.
    unsafe { driver.iocp.register_buffers(1, start, SIZE, COUNT) }.expect("a group");
    let many = Op::RecvMsgMulti { source: messages, group: 1, address_len: 16, control_len: 0 };
    driver.submit(MULTI, many);

    let mut round = || {
        driver.submit(SEND, Op::Send { source: near_end, buf: sending });
        driver.submit(POLL, Op::Poll { source: far_end, interest: Interest::READ });
        driver.report(POLL);
        driver.submit(RECEIVE, Op::Recv { source: far_end, buf: filling });
        assert_eq!(driver.report(RECEIVE), sent.len());
        driver.report(SEND);

        driver.submit(ACCEPT, Op::Accept { listener: RawSource::of(&listener) });
        let client = TcpStream::connect(address).expect("a connection");
        let accepted = driver.report(ACCEPT) as RawSocket;
        // SAFETY: the accept operation passes ownership of the socket to its caller.
        drop((client, unsafe { OwnedSocket::from_raw_socket(accepted) }));

        driver.submit(SEND, Op::Send { source: messages, buf: sending });
        assert_eq!(driver.report(MULTI), 16 + 16 + sent.len());
        driver.report(SEND);

        // A cancelled operation.
        driver.submit(RECEIVE, Op::Recv { source: near_end, buf: filling });
        driver.iocp.cancel(RECEIVE).expect("an operation in flight");
        while !driver.events.iter().any(|event| event.token() == RECEIVE) {
            driver.iocp.wait(None, &mut driver.events).expect("a wait");
        }
        driver.events.clear();
    };
    (0..20).for_each(|_| round());
    let before = ALLOCATIONS.load(Ordering::SeqCst);
    assert_ne!(before, 0, "the counting allocator is in use");
    (0..200).for_each(|_| round());
    assert_eq!(ALLOCATIONS.load(Ordering::SeqCst) - before, 0, "allocations in 200 rounds");
}
