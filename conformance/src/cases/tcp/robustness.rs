//! Misbehaving peers and exhausted limits, which must affect no other connection and leak nothing.

#[cfg(unix)]
use std::io::Write as _;
use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use poll_core::{Backend, OpKind};
use uv_core::{Handle, Listener, RunMode, Stream, Tcp};
#[cfg(unix)]
use uv_core::{Poll, PollEvents};

use crate::cases::streams::{may_close_in_every_callback, may_close_while_connecting};
use crate::support::limits::{
    exhaust_descriptors, leaks_no_descriptor, leaks_no_descriptor_once, need_descriptors,
    with_few_descriptors,
};
use crate::support::loops::{new_loop, run};
use crate::support::observe::SOON;
use crate::support::sources::{refused_address, reset};
#[cfg(unix)]
use crate::support::streams::echo_one;
use crate::support::streams::{
    self, OVER_STREAM_BUFFERS, bound, connected, echo, fill_up, finish, outcome, run_a_moment,
    run_until,
};
use crate::support::trace::Log;
use crate::{Lab, Loop, Skip, Verdict};

/// As [`echo`], for a listener that accepts all pending connections.
#[cfg(unix)]
fn echo_many(lp: &mut Loop, server: Tcp, ends: &Log<&'static str>) {
    let ends = ends.clone();
    let waiting = server.accept_with(lp, move |lp, server, first| {
        // Closed at the end.
        let Ok(first) = first else { return };
        echo_one(lp, first, &ends);
        while let Ok(peer) = server.accept(lp) {
            echo_one(lp, peer, &ends);
        }
        echo_many(lp, server, &ends);
    });
    waiting.unwrap();
}

/// Checks one echo of `server` over another connection.
fn one_echo(lp: &mut Loop, server: Tcp) {
    let address = server.local_addr(lp).unwrap();
    streams::one_echo::<Tcp>(lp, "ping", |lp, asks| Tcp::new(lp).connect(lp, address, asks));
}

/// A reset ends its own connection and affects no other.
pub fn a_reset_affects_one_connection_only(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), ends) = (bound(&mut lp), Log::default());
    echo(&mut lp, server, &ends);
    one_echo(&mut lp, server);
    run_until(&mut lp, "an orderly end", |_| ends.len() == 1);
    assert_eq!(ends.take(), ["done"]);
    for _ in 0..5 {
        let mut peer = TcpStream::connect(address).unwrap();
        std::io::Write::write_all(&mut peer, b"x").unwrap();
        run(&mut lp, RunMode::NoWait);
        reset(peer);
    }
    run_until(&mut lp, "all ends", |_| ends.len() == 5);
    one_echo(&mut lp, server);
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A peer that disconnects before it is accepted is not an error of the listener.
pub fn a_peer_may_be_gone_before_it_is_accepted(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), ends) = (bound(&mut lp), Log::default());
    echo(&mut lp, server, &ends);
    for _ in 0..5 {
        reset(TcpStream::connect(address).unwrap());
    }
    one_echo(&mut lp, server);
    assert!(server.is_active(&lp), "it still listens");
    server.close(&mut lp).unwrap();
    run_until(&mut lp, "the end of all connections", |lp| lp.walk().len() == 1);
    finish(lp);
    Ok(())
}

/// Data for a peer that does not read is kept and delays no other connection: the loop blocks. When
/// the peer reads, it gets all data.
pub fn a_peer_that_never_reads_delays_no_other(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    let filled = fill_up(&mut lp, tcp);
    let callbacks = Log::default();
    tcp.write(&mut lp, vec![1; OVER_STREAM_BUFFERS], callbacks.written("write")).unwrap();
    run_a_moment(&mut lp);
    let polls = run_a_moment(&mut lp);
    assert!(polls < 6, "{polls} polls although the peer does not read");
    let (server, _) = bound(&mut lp);
    echo(&mut lp, server, &Log::default());
    one_echo(&mut lp, server);
    assert!(callbacks.len() == 0 && tcp.write_queue_size(&lp) > 0, "the write stays queued");
    server.close(&mut lp).unwrap();
    let reader = thread::spawn(move || {
        peer.read_exact(&mut vec![0; filled + OVER_STREAM_BUFFERS]).expect("all of it");
        peer
    });
    run_until(&mut lp, "the write", |_| callbacks.len() > 0);
    assert_eq!(callbacks.take(), [("write", "done")]);
    drop(reader.join().expect("a peer that reads"));
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A write of 64 MiB is sent in parts, as the peer reads, while the loop continues. The queue only
/// shrinks.
pub fn a_large_write_is_sent_in_parts(lab: &Lab) -> Verdict {
    const SIZE: usize = 64 << 20;
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    // No period of a buffer: a piece at the wrong place is another.
    let pattern: Vec<u8> = (0..251).collect();
    let sent: Arc<[u8]> = pattern.repeat(SIZE / pattern.len() + 1)[..SIZE].into();
    let expected = Arc::clone(&sent);
    let callbacks = Log::default();
    tcp.write(&mut lp, sent, callbacks.written("write")).unwrap();
    tcp.shutdown(&mut lp, callbacks.ended("shutdown")).unwrap();
    // An operation may complete only when all bytes are sent.
    let whole = lp.backend().supports(OpKind::Send);
    // Else the peer reads a quarter and waits until the queue has shrunk: a peer that reads as fast
    // as the loop writes lets the kernel accept the rest in one call.
    let (shrunk, may_go_on) = mpsc::channel();
    let reader = thread::spawn(move || {
        let (mut buffer, mut at, mut waits) = (vec![0; 1 << 20], 0, !whole);
        loop {
            if waits && at >= SIZE / 4 {
                may_go_on.recv().expect("a queue that shrinks");
                waits = false;
            }
            match peer.read(&mut buffer).expect("more of it, or the end") {
                0 => return at,
                count => {
                    assert!(buffer[..count] == expected[at..at + count], "as sent");
                    at += count;
                }
            }
        }
    });
    let (mut last, mut steps) = (tcp.write_queue_size(&lp), 0);
    assert!(last > 0, "no kernel accepts everything immediately");
    while callbacks.len() < 2 {
        run(&mut lp, RunMode::Once);
        let now = tcp.write_queue_size(&lp);
        assert!(now <= last, "the queue has grown from {last} to {now}");
        if now < last {
            steps += 1;
            let _ = shrunk.send(()); // A peer that has read everything hears no more.
        }
        last = now;
    }
    assert!(steps > 1 || whole, "it was sent in one part");
    assert_eq!(callbacks.take(), [("write", "done"), ("shutdown", "done")]);
    assert_eq!(reader.join().expect("a peer that reads"), SIZE);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A write of one GiB made of a thousand slices of the same memory is sent in parts, without a
/// copy.
pub fn a_write_of_a_gibibyte_is_not_copied(lab: &Lab) -> Verdict {
    leaks_no_descriptor_once(lab, || write_a_gibibyte(lab))
}

fn write_a_gibibyte(lab: &Lab) -> Verdict {
    const PIECE: usize = 1 << 20;
    const PIECES: usize = 1024;
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    let piece: Arc<[u8]> = (0..PIECE).map(|at| (at % 251) as u8).collect();
    let (callbacks, expected) = (Log::default(), Arc::clone(&piece));
    let log = callbacks.clone();
    let pieces = vec![Arc::clone(&piece); PIECES];
    tcp.write(&mut lp, pieces, move |lp, tcp, result, pieces| {
        assert_eq!(pieces.len(), PIECES, "they are returned");
        log.push(outcome(&result));
        tcp.close(lp).unwrap();
    })
    .unwrap();
    let reader = thread::spawn(move || {
        let (mut buffer, mut at) = (vec![0; PIECE], 0);
        loop {
            let from = at % PIECE;
            match peer.read(&mut buffer[from..]).expect("more of it, or the end") {
                0 => return at,
                count => at += count,
            }
            if at % PIECE == 0 {
                assert!(*buffer == *expected, "as it was sent, up to {at}");
                buffer.fill(0);
            }
        }
    });
    let (mut last, mut steps) = (tcp.write_queue_size(&lp), 0);
    assert!(last > PIECE * PIECES / 2, "no kernel accepts this many bytes immediately");
    while callbacks.len() == 0 {
        run(&mut lp, RunMode::Once);
        let now = tcp.write_queue_size(&lp);
        assert!(now <= last, "the queue has grown from {last} to {now}");
        steps += u32::from(now < last);
        last = now;
    }
    assert!(steps > 10, "it was sent in {steps} parts");
    finish(lp);
    assert_eq!(callbacks.take(), ["done"]);
    assert_eq!(reader.join().expect("a peer that reads"), PIECE * PIECES);
    assert_eq!(Arc::strong_count(&piece), 1, "all is returned");
    Ok(())
}

/// A thousand concurrent connections of a loop with itself: each is echoed to.
pub fn a_thousand_concurrent_connections(lab: &Lab) -> Verdict {
    leaks_no_descriptor_once(lab, || connect_a_thousand(lab))
}

fn connect_a_thousand(lab: &Lab) -> Verdict {
    const CONNECTIONS: usize = 1_000;
    need_descriptors(2 * CONNECTIONS as u64 + 100)?;
    let mut lp = new_loop(lab)?;
    let ((server, address), ends) = (bound(&mut lp), Log::default());
    echo(&mut lp, server, &ends);
    let (echoed, refused) = (Arc::new(AtomicUsize::new(0)), Log::default());
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS {
        let client = Tcp::new(&mut lp);
        let echoed = Arc::clone(&echoed);
        let begun = client.connect(&mut lp, address, move |lp, client, result| {
            result.unwrap_or_else(|error| panic!("connection {number}: {error}"));
            let message = (number as u32).to_le_bytes();
            let mut left = message.to_vec();
            client.write(lp, message.to_vec(), |_, _, result, _| result.unwrap()).unwrap();
            let reading = client.read_start(lp, move |_, _, bytes| {
                let bytes = bytes.unwrap();
                assert!(left.starts_with(bytes), "{bytes:?} for {message:?}");
                left.drain(..bytes.len());
                if left.is_empty() {
                    echoed.fetch_add(1, Ordering::Relaxed);
                }
            });
            reading.unwrap();
        });
        match begun {
            Err(error) if number > 0 && error.kind() == ErrorKind::Unsupported => {
                refused.push(error.to_string());
                break;
            }
            begun => begun.unwrap(),
        }
        clients.push(client);
    }
    if let Some(why) = refused.take().pop() {
        return Err(Skip::because(why));
    }
    while echoed.load(Ordering::Relaxed) < CONNECTIONS {
        run(&mut lp, RunMode::Once);
    }
    assert_eq!(lp.walk().len(), 2 * CONNECTIONS + 1, "all are open concurrently");
    for client in clients {
        client.close(&mut lp).unwrap();
    }
    run_until(&mut lp, "the end of all", |_| ends.len() == CONNECTIONS);
    assert_eq!(ends.take(), vec!["done"; CONNECTIONS]);
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Ten thousand concurrent connections with another process: each is echoed to.
#[cfg(unix)]
pub fn ten_thousand_concurrent_connections(lab: &Lab) -> Verdict {
    leaks_no_descriptor_once(lab, || connect_ten_thousand(lab))
}

#[cfg(unix)]
fn connect_ten_thousand(lab: &Lab) -> Verdict {
    use crate::support::child::Child;

    const CONNECTIONS: usize = 10_000;
    // Fewer than the listener's backlog.
    const AT_A_TIME: usize = 500;
    need_descriptors(CONNECTIONS as u64 + 100)?;
    let mut lp = new_loop(lab)?;
    let ((server, address), ends) = (bound(&mut lp), Log::default());
    let ((all_open, report_open), (may_close, tell_close)) =
        (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    server.listen_without_callback(&mut lp, 1024).unwrap();
    // The other ends: one process cannot have this many descriptors everywhere.
    let peers = Child::fork(|| {
        let mut peers = Vec::with_capacity(CONNECTIONS);
        while peers.len() < CONNECTIONS {
            let from = peers.len();
            for number in from..from + AT_A_TIME {
                let mut peer = TcpStream::connect(address).expect("a connection");
                peer.write_all(&(number as u32).to_le_bytes()).expect("a message");
                peers.push(peer);
            }
            for (number, peer) in peers.iter_mut().enumerate().skip(from) {
                let mut echo = [0; 4];
                peer.read_exact(&mut echo).expect("an echo");
                assert_eq!(u32::from_le_bytes(echo), number as u32, "its own echo");
            }
        }
        (&report_open).write_all(b"x").expect("a pipe");
        (&may_close).read_exact(&mut [0]).expect("a pipe");
        Ok(())
    });
    drop(report_open); // So that the exit of the child is visible, too.
    echo_many(&mut lp, server, &ends);
    let open = Poll::new(&mut lp, all_open).unwrap();
    let callbacks = Log::default();
    let log = callbacks.clone();
    open.start(&mut lp, PollEvents::READABLE, move |lp, open, _| {
        log.push(());
        open.close(lp).unwrap();
    })
    .unwrap();
    while callbacks.len() == 0 {
        run(&mut lp, RunMode::Once);
    }
    assert_eq!(lp.walk().len(), CONNECTIONS + 1, "all are open concurrently");
    (&tell_close).write_all(b"x").unwrap();
    run_until(&mut lp, "the end of all", |_| ends.len() == CONNECTIONS);
    peers.join(SOON)?;
    assert_eq!(ends.take(), vec!["done"; CONNECTIONS]);
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Ten thousand concurrent connections with another process: each is echoed to.
#[cfg(not(unix))]
pub fn ten_thousand_concurrent_connections(_lab: &Lab) -> Verdict {
    Err(Skip::because("the other ends are in a forked process, which Windows does not have"))
}

/// A listener without free descriptors closes pending connections, so that their peers get an error
/// and the loop does not spin. It accepts again when descriptors are free, and closes again when
/// they run out.
pub fn out_of_descriptors_closes_pending_connections(lab: &Lab) -> Verdict {
    leaks_no_descriptor_once(lab, || with_few_descriptors(64, || turning_away(lab))?)
}

fn turning_away(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), callbacks) = (bound(&mut lp), Log::default());
    let log = callbacks.clone();
    server
        .listen(&mut lp, 16, move |lp, server, result| {
            log.push(outcome(&result));
            server.accept(lp).unwrap().close(lp).unwrap();
        })
        .unwrap();
    run(&mut lp, RunMode::NoWait);
    for round in ["first", "second"] {
        let mut peers = [(); 3].map(|()| TcpStream::connect(address).unwrap());
        let all = exhaust_descriptors();
        run_a_moment(&mut lp);
        let polls = run_a_moment(&mut lp);
        drop(all);
        assert!(polls < 6, "{round} round: {polls} polls, though no connection waits");
        assert_eq!(callbacks.len(), 0, "{round} round: no connection was accepted");
        for peer in &mut peers {
            peer.set_read_timeout(Some(SOON)).unwrap();
            match peer.read(&mut [0]) {
                Ok(0) => {}
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
                other => panic!("{round} round: a peer that is turned away reads {other:?}"),
            }
        }
        let _peer = TcpStream::connect(address).unwrap();
        run_until(&mut lp, "a connection", |_| callbacks.len() > 0);
        assert_eq!(callbacks.take(), ["done"], "{round} round: it accepts again");
    }
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Misbehaving peers, unanswered connects and closes in every callback leak no descriptor.
pub fn errors_leak_no_descriptor(lab: &Lab) -> Verdict {
    let cases: [fn(&Lab) -> Verdict; 7] = [
        a_reset_affects_one_connection_only,
        a_peer_may_be_gone_before_it_is_accepted,
        a_peer_that_never_reads_delays_no_other,
        a_large_write_is_sent_in_parts,
        super::an_unanswered_connect_can_be_cancelled,
        may_close_in_every_callback,
        may_close_while_connecting,
    ];
    cases.iter().try_for_each(|case| leaks_no_descriptor_once(lab, || case(lab)))
}

/// However connections and their loop end, no descriptor leaks.
pub fn no_descriptor_leaks(lab: &Lab) -> Verdict {
    leaks_no_descriptor(|| {
        let mut lp = new_loop(lab)?;
        let ((server, address), ends) = (bound(&mut lp), Log::default());
        echo(&mut lp, server, &ends);
        one_echo(&mut lp, server);
        run_until(&mut lp, "an end", |_| ends.len() == 1);
        let refused = Tcp::new(&mut lp);
        refused.connect(&mut lp, refused_address(), |_, _, _| {}).unwrap();
        let given_up = Tcp::new(&mut lp);
        given_up.connect(&mut lp, address, |_, _, _| {}).unwrap();
        given_up.close(&mut lp).unwrap();
        // One connection that is reported and not accepted, and one behind it.
        let (lazy, address) = bound(&mut lp);
        let callbacks = Log::default();
        let log = callbacks.clone();
        lazy.listen(&mut lp, 8, move |_, _, _| log.push(())).unwrap();
        let _peers = [(); 2].map(|()| TcpStream::connect(address).unwrap());
        run_until(&mut lp, "a connection", |_| callbacks.len() > 0);
        let (busy, _peer) = connected(&mut lp);
        busy.write(&mut lp, vec![1; OVER_STREAM_BUFFERS], |_, _, _, _| {}).unwrap();
        let (closed, _peer) = connected(&mut lp);
        closed.close_reset(&mut lp).unwrap();
        Tcp::pair(&mut lp).unwrap();
        run(&mut lp, RunMode::NoWait);
        Ok(())
    })
}
