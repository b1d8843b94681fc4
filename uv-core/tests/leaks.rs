//! However streams and datagrams end, no memory is left behind.
//!
//! Bytes are counted for the whole process, whose only test this is.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicIsize, Ordering};

use uv_core::backends::Auto;
use uv_core::{BindFlags, Handle, Loop, RunMode, Stream, Tcp, Udp, UdpBind};

/// Counts the bytes that are allocated and not freed.
struct Counting;

static BYTES: AtomicIsize = AtomicIsize::new(0);

// SAFETY: the system's allocator does it all; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as isize, Ordering::SeqCst);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Ordering::SeqCst);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// More than any kernel keeps for one connection.
const TOO_MUCH: usize = 16 << 20;

fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// Connections and datagrams that end in all ways there are, and some that do not end.
fn round(backend: Auto, close: bool) {
    let lp = &mut Loop::new(backend);
    let server = Tcp::new(lp);
    server.bind(lp, any_port(), BindFlags::empty()).unwrap();
    server
        .listen(lp, 16, |lp, server, _| {
            let peer = server.accept(lp).unwrap();
            let echo = |lp: &mut Loop<Auto>, peer: Tcp, bytes: std::io::Result<&[u8]>| match bytes {
                Ok([]) | Err(_) => peer.close(lp).unwrap(),
                Ok(bytes) => drop(peer.write(lp, bytes.to_vec(), |_, _, _, _| {})),
            };
            peer.read_start(lp, echo).unwrap();
        })
        .unwrap();
    let address = server.local_addr(lp).unwrap();
    let _silent = TcpStream::connect(address).unwrap();
    let mut gone = TcpStream::connect(address).unwrap();
    gone.write_all(&[1; 1000]).unwrap();
    drop(gone);

    let client = Tcp::new(lp);
    client
        .connect(lp, address, |lp, client, result| {
            result.unwrap();
            client.write(lp, vec![1; 100_000], |_, _, _, _| {}).unwrap();
            let given_up = client.write(lp, vec![2; TOO_MUCH], |_, _, _, _| {}).unwrap();
            given_up.cancel(lp).unwrap();
            client.read(lp, vec![0; 10_000], |_, _, _, _| {}).unwrap();
            client.shutdown(lp, |_, _, _| {}).unwrap();
        })
        .unwrap();
    let (one, other) = Tcp::pair(lp).unwrap();
    one.write(lp, vec![3; TOO_MUCH], |_, _, _, _| {}).unwrap();
    one.write(lp, vec![3; 1000], |_, _, _, _| {}).unwrap();
    let held = vec![4_u8; 100_000];
    other
        .read_start_with(
            lp,
            |_, _, size| vec![0; size.min(16)],
            move |_, _, _, _| assert!(!held.is_empty()),
        )
        .unwrap();
    let udp = Udp::new(lp);
    udp.bind(lp, any_port(), UdpBind::empty()).unwrap();
    let own = udp.local_addr(lp).unwrap();
    udp.recv_start(lp, |_, _, _| {}).unwrap();
    for _ in 0..50 {
        udp.send(lp, vec![5; 1000], own, |_, _, _, _| {}).unwrap();
    }
    for _ in 0..20 {
        lp.run(RunMode::NoWait).unwrap();
    }
    if close {
        for handle in lp.walk() {
            if !handle.is_closing(lp) {
                handle.close(lp).unwrap();
            }
        }
        lp.run(RunMode::Default).unwrap();
        assert!(lp.walk().is_empty(), "all is closed");
    }
}

#[test]
fn no_memory_is_left_behind() {
    for name in Auto::NAMES {
        match Auto::named(name) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                eprintln!("skip {name}: {error}");
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        }
        // What is made once and kept for the whole process is made now.
        for close in [true, false, true] {
            round(Auto::named(name).unwrap(), close);
        }
        let before = BYTES.load(Ordering::SeqCst);
        for number in 0..10 {
            round(Auto::named(name).unwrap(), number % 2 == 0);
        }
        let left = BYTES.load(Ordering::SeqCst) - before;
        assert!(before > 0, "whoever gets here has allocated something");
        assert_eq!(left, 0, "{name}: bytes are left after 10 loops came and went");
    }
}
