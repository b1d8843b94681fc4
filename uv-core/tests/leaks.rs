//! No memory leaks, however streams and datagrams end.
//!
//! The test counts the bytes of the whole process, so it is the only test of this program.

#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering};

use uv_core::backends::Auto;
use uv_core::{Handle, Listener, Loop, RunMode, Stream, Tcp, TcpBindFlags, Udp, UdpBindFlags};

/// Counts the bytes that are allocated and not freed.
struct Counting;

static BYTES: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call is forwarded to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as isize, Ordering::SeqCst);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as isize, Ordering::SeqCst);
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// More bytes than a kernel buffers for one connection.
const OVERFULL: usize = 16 << 20;

fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// Connections and datagrams that end in every way, and some that do not end.
fn round(backend: Auto, close: bool) {
    let lp = &mut Loop::new(backend);
    let server = Tcp::new(lp);
    server.bind(lp, any_port(), TcpBindFlags::empty()).unwrap();
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
    let _idle = TcpStream::connect(address).unwrap();
    let mut closed = TcpStream::connect(address).unwrap();
    closed.write_all(&[1; 1000]).unwrap();
    drop(closed);

    let client = Tcp::new(lp);
    client
        .connect(lp, address, |lp, client, result| {
            result.unwrap();
            client.write(lp, vec![1; 100_000], |_, _, _, _| {}).unwrap();
            let cancelled = client.write(lp, vec![2; OVERFULL], |_, _, _, _| {}).unwrap();
            cancelled.cancel(lp).unwrap();
            client.read(lp, vec![0; 10_000], |_, _, _, _| {}).unwrap();
            client.shutdown(lp, |_, _, _| {}).unwrap();
        })
        .unwrap();
    let (one, other) = Tcp::pair(lp).unwrap();
    one.write(lp, vec![3; OVERFULL], |_, _, _, _| {}).unwrap();
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
    udp.bind(lp, any_port(), UdpBindFlags::empty()).unwrap();
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
        assert!(lp.walk().is_empty(), "all handles are closed");
    }
}

/// A loop with a listener that accepts and reads every connection.
fn listening(backend: Auto) -> (Loop<Auto>, Tcp, SocketAddr) {
    let mut lp = Loop::new(backend);
    let server = Tcp::new(&mut lp);
    server.bind(&mut lp, any_port(), TcpBindFlags::empty()).unwrap();
    let listening = server.listen(&mut lp, 1024, |lp, server, result| {
        result.unwrap();
        let peer = server.accept(lp).unwrap();
        let reading = peer.read_start(lp, |lp, peer, bytes| {
            if !matches!(bytes, Ok([_, ..])) {
                peer.close(lp).unwrap();
            }
        });
        reading.unwrap();
    });
    listening.unwrap();
    let address = server.local_addr(&lp).unwrap();
    (lp, server, address)
}

/// Runs the loop until only `handles` handles are left.
fn run_down_to(lp: &mut Loop<Auto>, handles: usize) {
    while lp.walk().len() > handles {
        lp.run(RunMode::Once).unwrap();
    }
}

/// Peers that reset their connections, some before they are accepted.
fn resets(backend: Auto) {
    let (mut lp, server, address) = listening(backend);
    for number in 0..10 {
        let peer = socket2::Socket::from(TcpStream::connect(address).unwrap());
        if number % 2 == 0 {
            lp.run(RunMode::NoWait).unwrap();
        }
        peer.set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }
    for _ in 0..20 {
        lp.run(RunMode::NoWait).unwrap();
    }
    run_down_to(&mut lp, 1);
    server.close(&mut lp).unwrap();
    lp.run(RunMode::Default).unwrap();
}

/// Peers that never read: one write is cancelled, one ends with its stream, one with the loop.
fn never_reads(backend: Auto) {
    let mut lp = Loop::new(backend);
    for number in 0..3 {
        let (one, _other) = Tcp::pair(&mut lp).unwrap();
        let write = one.write(&mut lp, vec![1; OVERFULL], |_, _, _, _| {}).unwrap();
        lp.run(RunMode::NoWait).unwrap();
        match number {
            0 => drop(write.cancel(&mut lp).unwrap()),
            1 => one.close(&mut lp).unwrap(),
            _ => {}
        }
        lp.run(RunMode::NoWait).unwrap();
    }
}

/// A large write in pieces, which arrives.
fn pieces(backend: Auto) {
    let (mut lp, server, address) = listening(backend);
    let client = Tcp::new(&mut lp);
    let pieces = vec![Arc::<[u8]>::from(vec![1; OVERFULL / 16]); 64];
    let connected = move |lp: &mut Loop<Auto>, client: Tcp, result: std::io::Result<()>| {
        result.unwrap();
        let written = client.write(lp, pieces, |lp, client, result, _| {
            result.unwrap();
            client.close(lp).unwrap();
        });
        written.unwrap();
    };
    client.connect(&mut lp, address, connected).unwrap();
    run_down_to(&mut lp, 1);
    server.close(&mut lp).unwrap();
    lp.run(RunMode::Default).unwrap();
}

/// Many connections, of which half are closed and half are dropped with the loop.
fn many(backend: Auto) {
    const MANY: usize = 200;
    let (mut lp, _, address) = listening(backend);
    let clients: Vec<_> = (0..MANY).map(|_| Tcp::new(&mut lp)).collect();
    for client in &clients {
        let send = |lp: &mut Loop<Auto>, client: Tcp, result: std::io::Result<()>| {
            // Some are closed before the callback.
            if result.is_ok() {
                client.write(lp, "hello", |_, _, _, _| {}).unwrap();
            }
        };
        client.connect(&mut lp, address, send).unwrap();
    }
    while lp.walk().len() < 2 * MANY + 1 {
        lp.run(RunMode::Once).unwrap();
    }
    clients.iter().step_by(2).for_each(|client| client.close(&mut lp).unwrap());
    run_down_to(&mut lp, MANY + 1);
}

/// A connect without an answer that is cancelled, one that is in flight when the loop is dropped,
/// and one that is refused.
fn unreachable(backend: Auto) {
    let mut lp = Loop::new(backend);
    let refused = std::net::TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
    // Reserved for documentation (RFC 5737): no host answers.
    let documented = SocketAddr::from(([192, 0, 2, 1], 9));
    for (number, to) in [documented, refused, documented].into_iter().enumerate() {
        let client = Tcp::new(&mut lp);
        // Without a network the call itself fails.
        let started = client.connect(&mut lp, to, |_, _, _| {}).is_ok();
        if started {
            client.write(&mut lp, vec![1; 1000], |_, _, _, _| {}).unwrap();
        }
        lp.run(RunMode::NoWait).unwrap();
        if number == 0 {
            client.close(&mut lp).unwrap();
            lp.run(RunMode::NoWait).unwrap();
        }
    }
}

/// Streams that are closed in each of their callbacks.
fn closes(backend: Auto) {
    let mut lp = Loop::new(backend);
    for number in 0..5 {
        let (one, other) = Tcp::pair(&mut lp).unwrap();
        other.try_write(&mut lp, &[1; 1000]).unwrap();
        let held = vec![1_u8; 1000];
        let end = move |lp: &mut Loop<Auto>, one: Tcp| {
            assert!(!held.is_empty());
            one.close(lp).unwrap();
            other.close(lp).unwrap();
        };
        match number {
            0 => one.read_start(&mut lp, move |lp, one, _| end(lp, one)).unwrap(),
            1 => {
                let alloc = |_: &mut Loop<Auto>, _, _| vec![0; 10];
                one.read_start_with(&mut lp, alloc, move |lp, one, _, _| end(lp, one)).unwrap();
            }
            2 => drop(one.read(&mut lp, vec![0; 10], move |lp, one, _, _| end(lp, one))),
            3 => drop(one.write(&mut lp, vec![0; 10], move |lp, one, _, _| end(lp, one))),
            _ => one.shutdown(&mut lp, move |lp, one, _| end(lp, one)).unwrap(),
        }
    }
    lp.run(RunMode::Default).unwrap();
    assert!(lp.walk().is_empty(), "all handles are closed");
}

/// Without free descriptors, pending connections are refused.
#[cfg(unix)]
fn exhausted(backend: Auto) {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a local variable.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut before) }, 0);
    let few = libc::rlimit { rlim_cur: 100, ..before };
    // SAFETY: the pointer is to a local variable, which the kernel only reads.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &few) }, 0);
    // The kernel applies the limit that holds when an operation starts.
    let (mut lp, server, address) = listening(backend);
    lp.run(RunMode::NoWait).unwrap();
    let _peers = [(); 3].map(|()| TcpStream::connect(address).unwrap());
    let some = std::net::UdpSocket::bind(any_port()).unwrap();
    let all: Vec<_> = std::iter::from_fn(|| some.try_clone().ok()).collect();
    for _ in 0..20 {
        lp.run(RunMode::NoWait).unwrap();
    }
    assert_eq!(lp.walk().len(), 1, "no connection was accepted");
    drop(all);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &before) }, 0);
    server.close(&mut lp).unwrap();
    lp.run(RunMode::Default).unwrap();
}

type Scenario = (&'static str, fn(Auto));

/// The scenarios, by name.
const SCENARIOS: &[Scenario] = &[
    ("endings, all closed", |backend| round(backend, true)),
    ("endings, dropped", |backend| round(backend, false)),
    ("resets", resets),
    ("peers that never read", never_reads),
    ("a write in pieces", pieces),
    ("many connections", many),
    ("connects that fail", unreachable),
    ("closing in callbacks", closes),
    #[cfg(unix)]
    ("no descriptors", exhausted),
];

#[test]
fn dropped_loops_leak_no_memory() {
    for name in Auto::NAMES {
        match Auto::named(name) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                eprintln!("skip {name}: {error}");
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        }
        for (scenario, run) in SCENARIOS {
            // Allocates what the process keeps, before counting.
            (0..2).for_each(|_| run(Auto::named(name).unwrap()));
            let before = BYTES.load(Ordering::SeqCst);
            (0..5).for_each(|_| run(Auto::named(name).unwrap()));
            let left = BYTES.load(Ordering::SeqCst) - before;
            assert!(before > 0, "the counter does not work");
            assert_eq!(left, 0, "{name}, {scenario}: bytes leaked by 5 loops");
        }
    }
}
