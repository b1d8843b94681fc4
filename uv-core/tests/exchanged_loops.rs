//! A callback may exchange its loop for another one with `mem::swap`. No buffer returns to the
//! program while the kernel has it, and both loops continue: every request is reported exactly
//! once.
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use uv_core::backends::{Epoll, Uring};
use uv_core::poll_core::Backend;
use uv_core::{
    Async, Check, Handle, Idle, Listener, Loop, Prepare, RunMode, Signal, Stream, Tcp,
    TcpBindFlags, Timer, Udp, UdpBindFlags, fs, kill, signum,
};

/// Longer than anything here takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
const AN_HOUR: Duration = Duration::from_secs(3600);

fn anywhere() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// The state that the callbacks of two loops share: the reports, and the loop that is not running.
struct Shared<B: Backend> {
    reports: RefCell<Vec<String>>,
    other: RefCell<Option<Loop<B>>>,
    exchanged: Cell<usize>,
    /// How many callbacks exchange the loops.
    limit: usize,
    /// The first loop is dropped instead, in its own callback.
    drops: bool,
}

impl<B: Backend> Shared<B> {
    fn new(limit: usize, drops: bool) -> Rc<Shared<B>> {
        let (reports, other, exchanged) = Default::default();
        Rc::new(Shared { reports, other, exchanged, limit, drops })
    }
}

/// One of the two loops, as its callbacks see it.
struct Side<B: Backend> {
    name: &'static str,
    shared: Rc<Shared<B>>,
}

impl<B: Backend> Clone for Side<B> {
    fn clone(&self) -> Self {
        Side { name: self.name, shared: Rc::clone(&self.shared) }
    }
}

impl<B: Backend> Side<B> {
    /// Reports an event. The first events exchange the loops.
    fn report(&self, lp: &mut Loop<B>, what: &str) {
        self.shared.reports.borrow_mut().push(format!("{} {what}", self.name));
        if self.shared.exchanged.get() == self.shared.limit {
            return;
        }
        let Some(mut other) = self.shared.other.borrow_mut().take() else { return };
        self.shared.exchanged.set(self.shared.exchanged.get() + 1);
        std::mem::swap(lp, &mut other);
        if self.shared.drops {
            drop(other);
        } else {
            *self.shared.other.borrow_mut() = Some(other);
        }
    }
}

/// Arranges the same in two loops, whose first callbacks exchange them, and runs both until each of
/// `expected` was reported by each. Then all handles close, and both loops end.
fn exchange<B: Backend>(
    new: impl Fn() -> Loop<B>,
    arrange: impl Fn(&mut Loop<B>, Side<B>),
    expected: &[&str],
) {
    for limit in [1, 2] {
        let (mut a, mut b) = (new(), new());
        let shared = Shared::new(limit, false);
        arrange(&mut a, Side { name: "a", shared: Rc::clone(&shared) });
        arrange(&mut b, Side { name: "b", shared: Rc::clone(&shared) });
        *shared.other.borrow_mut() = Some(b);
        let mut all: Vec<_> = expected.iter().map(|what| format!("a {what}")).collect();
        all.extend(expected.iter().map(|what| format!("b {what}")));
        all.sort_unstable();

        let begun = Instant::now();
        let mut b = loop {
            a.run(RunMode::NoWait).unwrap();
            let mut other = shared.other.borrow_mut().take().unwrap();
            if shared.exchanged.get() == limit {
                // No more exchanges: the slot is empty from now on.
                other.run(RunMode::NoWait).unwrap();
            }
            let mut reports = shared.reports.borrow().clone();
            reports.sort_unstable();
            if reports == all && shared.exchanged.get() == limit {
                break other;
            }
            assert!(begun.elapsed() < LIMIT, "{reports:?}, expected {all:?}");
            std::mem::swap(&mut a, &mut other);
            *shared.other.borrow_mut() = Some(other);
        };
        for lp in [&mut a, &mut b] {
            for handle in lp.walk() {
                if !handle.is_closing(lp) {
                    handle.close(lp).unwrap();
                }
            }
            while lp.run(RunMode::NoWait).unwrap() {
                assert!(begun.elapsed() < LIMIT, "the loop does not end: {lp:?}");
            }
        }
        let mut reports = shared.reports.take();
        reports.sort_unstable();
        assert_eq!(reports, all, "after the end");
        for lp in [a, b] {
            assert!(lp.close().is_ok(), "no handle is left");
        }
    }
}

/// The first callback puts another loop in the place of its own, which is dropped there.
fn replace<B: Backend>(
    new: impl Fn() -> Loop<B>,
    arrange: impl Fn(&mut Loop<B>, Side<B>),
    expected: &[&str],
) {
    let (mut lp, mut b) = (new(), new());
    let shared = Shared::new(1, true);
    arrange(&mut lp, Side { name: "a", shared: Rc::clone(&shared) });
    arrange(&mut b, Side { name: "b", shared: Rc::clone(&shared) });
    *shared.other.borrow_mut() = Some(b);
    let begun = Instant::now();
    let count = || shared.reports.borrow().iter().filter(|what| what.starts_with('b')).count();
    while shared.exchanged.get() == 0 || count() < expected.len() {
        lp.run(RunMode::NoWait).unwrap();
        assert!(begun.elapsed() < LIMIT, "{:?}, expected {expected:?}", shared.reports);
    }
    for handle in lp.walk() {
        if !handle.is_closing(&lp) {
            handle.close(&mut lp).unwrap();
        }
    }
    while lp.run(RunMode::NoWait).unwrap() {
        assert!(begun.elapsed() < LIMIT, "the loop does not end: {lp:?}");
    }
    assert_eq!(count(), expected.len());
    assert_eq!(shared.reports.borrow().len(), expected.len() + 1, "one of the dropped loop");
    assert!(lp.close().is_ok(), "no handle is left");
}

macro_rules! on_epoll_and_uring {
    ($($(#[$doc:meta])* $name:ident: [$($expected:literal),*] = $arrange:expr;)*) => { $(
        $(#[$doc])*
        mod $name {
            use super::*;

            fn arrange<B: Backend>(lp: &mut Loop<B>, side: Side<B>) {
                let arrange: fn(&mut Loop<B>, Side<B>) = $arrange;
                arrange(lp, side);
            }

            #[test]
            fn on_epoll() {
                exchange(|| Loop::new(Epoll::new().unwrap()), arrange, &[$($expected),*]);
                replace(|| Loop::new(Epoll::new().unwrap()), arrange, &[$($expected),*]);
            }

            #[test]
            fn on_uring() {
                let Ok(_) = Uring::new().inspect_err(|error| eprintln!("skip: {error}")) else {
                    return;
                };
                exchange(|| Loop::new(Uring::new().unwrap()), arrange, &[$($expected),*]);
                replace(|| Loop::new(Uring::new().unwrap()), arrange, &[$($expected),*]);
            }
        }
    )* };
}

/// The callback of a request that reports its end.
fn ended<B: Backend, S, T>(
    side: &Side<B>,
    what: &'static str,
) -> impl FnOnce(&mut Loop<B>, S, io::Result<()>, T) + 'static {
    let side = side.clone();
    move |lp, _, result, _| {
        result.unwrap();
        side.report(lp, what);
    }
}

fn bound<B: Backend>(lp: &mut Loop<B>) -> (Udp, SocketAddr) {
    let udp = Udp::new(lp);
    udp.bind(lp, anywhere(), UdpBindFlags::empty()).unwrap();
    let address = udp.local_addr(lp).unwrap();
    (udp, address)
}

on_epoll_and_uring! {
    timers: ["first", "second", "third"] = |lp, side| {
        for what in ["first", "second", "third"] {
            let side = side.clone();
            Timer::after(lp, Duration::from_millis(1), move |lp, _| side.report(lp, what));
        }
    };
    watchers: ["idle", "prepare", "check"] = |lp, side| {
        let (idle, prepare, check) = (Idle::new(lp), Prepare::new(lp), Check::new(lp));
        let sides = [side.clone(), side.clone(), side];
        let [one, two, three] = sides;
        idle.start(lp, move |lp, idle| { idle.stop(lp).unwrap(); one.report(lp, "idle") }).unwrap();
        prepare
            .start(lp, move |lp, it| { it.stop(lp).unwrap(); two.report(lp, "prepare") })
            .unwrap();
        check.start(lp, move |lp, it| { it.stop(lp).unwrap(); three.report(lp, "check") }).unwrap();
    };
    asyncs: ["first", "second", "third"] = |lp, side| {
        for what in ["first", "second", "third"] {
            let side = side.clone();
            let (_, sender) = Async::new(lp, move |lp, _| side.report(lp, what));
            sender.send().unwrap();
        }
    };
    deferred_callbacks: ["first", "second"] = |lp, side| {
        for what in ["first", "second"] {
            let side = side.clone();
            lp.defer(move |lp| side.report(lp, what));
        }
    };
    close_callbacks: ["first", "second", "write", "third"] = |lp, side| {
        for what in ["first", "second"] {
            let side = side.clone();
            Timer::new(lp).close_with(lp, move |lp, _| side.report(lp, what)).unwrap();
        }
        // A request of a handle that closes is reported before the close callback.
        let (one, _) = Tcp::pair(lp).unwrap();
        let writing = side.clone();
        one.write(lp, vec![0; 64 << 20], move |lp, _, _, _| writing.report(lp, "write")).unwrap();
        one.close_with(lp, move |lp, _| side.report(lp, "third")).unwrap();
    };
    work: ["first", "second", "third"] = |lp, side| {
        for what in ["first", "second", "third"] {
            let side = side.clone();
            lp.queue_work(|| (), move |lp, end| { end.unwrap(); side.report(lp, what) }).unwrap();
        }
    };
    file_requests: ["first", "second", "third"] = |lp, side| {
        for what in ["first", "second", "third"] {
            let side = side.clone();
            let done = move |lp: &mut Loop<B>, end: io::Result<_>| {
                end.unwrap();
                side.report(lp, what);
            };
            fs::stat(".").start(lp, done).unwrap();
        }
    };
    pushed_reads: ["read"] = |lp, side| {
        let (one, other) = Tcp::pair(lp).unwrap();
        let read = move |lp: &mut Loop<B>, _, bytes: io::Result<&[u8]>| {
            assert_eq!(bytes.unwrap(), b"bytes");
            side.report(lp, "read");
        };
        one.read_start(lp, read).unwrap();
        other.try_write(lp, b"bytes").unwrap();
    };
    pulled_reads: ["first", "second", "third"] = |lp, side| {
        let (one, other) = Tcp::pair(lp).unwrap();
        for what in ["first", "second", "third"] {
            let side = side.clone();
            let read = move |lp: &mut Loop<B>, _, count: io::Result<usize>, _: Vec<u8>| {
                assert_eq!(count.unwrap(), 4);
                side.report(lp, what);
            };
            one.read(lp, vec![0; 4], read).unwrap();
        }
        other.try_write(lp, b"4444").unwrap();
        other.try_write(lp, b"44444444").unwrap();
    };
    writes: ["first", "second", "third", "shutdown"] = |lp, side| {
        let (one, other) = Tcp::pair(lp).unwrap();
        other.read_start(lp, |_, _, _| {}).unwrap();
        lp.defer(move |lp| {
            for what in ["first", "second", "third"] {
                one.write(lp, vec![0; 1 << 20], ended(&side, what)).unwrap();
            }
            let end = move |lp: &mut Loop<B>, _, result: io::Result<()>| {
                result.unwrap();
                side.report(lp, "shutdown");
            };
            one.shutdown(lp, end).unwrap();
        });
    };
    connects: ["first", "second", "write"] = |lp, side| {
        let listener = TcpListener::bind(anywhere()).unwrap();
        let address = listener.local_addr().unwrap();
        for what in ["first", "second"] {
            let (side, tcp) = (side.clone(), Tcp::new(lp));
            let connected = side.clone();
            let done = move |lp: &mut Loop<B>, _, result: io::Result<()>| {
                result.unwrap();
                connected.report(lp, what);
            };
            tcp.connect(lp, address, done).unwrap();
            if what == "first" {
                tcp.write(lp, vec![0; 8], ended(&side, "write")).unwrap();
            }
        }
        // The connections wait in the backlog until the loop is gone.
        lp.defer(move |_| std::mem::forget(listener));
    };
    listeners: ["peer"] = |lp, side| {
        let server = Tcp::new(lp);
        server.bind(lp, anywhere(), TcpBindFlags::empty()).unwrap();
        let peer = move |lp: &mut Loop<B>, server: Tcp, result: io::Result<()>| {
            result.unwrap();
            server.accept(lp).unwrap();
            side.report(lp, "peer");
        };
        server.listen(lp, 8, peer).unwrap();
        let client = Tcp::new(lp);
        client.connect(lp, server.local_addr(lp).unwrap(), |_, _, _| {}).unwrap();
    };
    received_datagrams: ["datagram"] = |lp, side| {
        let (udp, address) = bound(lp);
        udp.recv_start(lp, move |lp, _, datagram| {
            assert_eq!(datagram.unwrap().data, b"bytes");
            side.report(lp, "datagram");
        })
        .unwrap();
        udp.try_send(lp, b"bytes", address).unwrap();
    };
    sent_datagrams: ["first", "second", "third"] = |lp, side| {
        let (udp, address) = bound(lp);
        lp.defer(move |lp| {
            for what in ["first", "second", "third"] {
                let side = side.clone();
                let sent = move |lp: &mut Loop<B>, _, result: io::Result<()>, _: Vec<u8>| {
                    result.unwrap();
                    side.report(lp, what);
                };
                udp.send(lp, vec![0; 16], address, sent).unwrap();
            }
        });
    };
    signals: ["first", "second"] = |lp, side| {
        for what in ["first", "second"] {
            let (side, signal) = (side.clone(), Signal::new(lp));
            let caught = move |lp: &mut Loop<B>, _, _| side.report(lp, what);
            signal.start_oneshot(lp, signum::SIGWINCH, caught).unwrap();
        }
        lp.defer(|_| {});
        if side.name == "b" {
            kill(std::process::id() as i32, signum::SIGWINCH).unwrap();
        }
    };
}

/// A write whose buffer the kernel sends from is not reported, though the loop that runs behind a
/// callback is not the loop that called it.
#[test]
fn a_buffer_that_the_kernel_sends_stays_lent() {
    let Ok(backend) = Uring::new().inspect_err(|error| eprintln!("skip: {error}")) else { return };
    const SIZE: usize = 16 << 20;
    let listener = TcpListener::bind(anywhere()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut peer = TcpStream::connect(address).unwrap();
    let (server, _) = listener.accept().unwrap();
    let mut b = Loop::new(backend);
    let writer = Tcp::new(&mut b);
    writer.open(&mut b, server).unwrap();
    let returned = Rc::new(RefCell::new(None));
    let stored = Rc::clone(&returned);
    let written = move |_: &mut Loop<Uring>, _, result: io::Result<()>, mut buffer: Vec<u8>| {
        buffer.fill(b'S');
        *stored.borrow_mut() = Some((result, buffer));
    };
    writer.write(&mut b, vec![b'A'; SIZE], written).unwrap();
    Timer::after(&mut b, AN_HOUR, |_, _| {});
    b.run(RunMode::NoWait).unwrap();
    b.run(RunMode::NoWait).unwrap();

    // The first stream of another loop: its connect is cancelled by a close.
    let mut a = Loop::new(Uring::new().unwrap());
    let slot = Rc::new(RefCell::new(Some(b)));
    let (client, other) = (Tcp::new(&mut a), Rc::clone(&slot));
    let connected = move |lp: &mut Loop<Uring>, _, _| {
        std::mem::swap(lp, other.borrow_mut().as_mut().unwrap());
    };
    client.connect(&mut a, address, connected).unwrap();
    client.close(&mut a).unwrap();
    a.run(RunMode::Once).unwrap();
    assert!(returned.borrow().is_none(), "the buffer is back while the kernel sends from it");

    let (mut count, mut buffer) = (0, vec![0; 1 << 20]);
    peer.set_nonblocking(true).unwrap();
    let begun = Instant::now();
    while count < SIZE {
        assert!(begun.elapsed() < LIMIT, "the peer has {count} bytes of {SIZE}");
        match peer.read(&mut buffer) {
            Ok(0) => panic!("the connection ended after {count} bytes"),
            Ok(read) => {
                assert!(buffer[..read].iter().all(|byte| *byte == b'A'), "bytes of later");
                count += read;
            }
            Err(_) => {
                a.run(RunMode::NoWait).unwrap();
            }
        }
    }
    while returned.borrow().is_none() {
        assert!(begun.elapsed() < LIMIT, "the write is not reported");
        a.run(RunMode::NoWait).unwrap();
    }
    assert!(returned.take().unwrap().0.is_ok());
    // The loop with the cancelled connect ends, too.
    let mut a = slot.borrow_mut().take().unwrap();
    while a.run(RunMode::NoWait).unwrap() {
        assert!(begun.elapsed() < LIMIT, "the other loop does not end");
    }
    assert!(a.close().is_ok());
}
