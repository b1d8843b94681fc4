//! The end of streams: closed, or dropped with their loop.

use std::cell::RefCell;
use std::io::{ErrorKind, Read as _};
use std::rc::Rc;
use std::time::Duration;

use uv_core::{Handle, Listener, RunMode, Stream, Tcp};

use crate::support::limits::need_descriptors;
use crate::support::loops::{new_loop, run, run_to_the_end, timer_in};
use crate::support::sources::send;
use crate::support::streams::{
    OVER_STREAM_BUFFERS, bound, connected, finish, outcome, run_a_moment, run_until,
};
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

/// A close completes the writes that were sent, cancels all other requests, and calls back last. No
/// callback runs inline.
pub fn closing_cancels_pending_requests(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    let callbacks = Log::default();
    tcp.write(&mut lp, vec![1], callbacks.written("small")).unwrap();
    tcp.write(&mut lp, vec![2; OVER_STREAM_BUFFERS], callbacks.written("large")).unwrap();
    tcp.write(&mut lp, vec![3], callbacks.written("behind")).unwrap();
    tcp.shutdown(&mut lp, callbacks.ended("shutdown")).unwrap();
    let read = callbacks.clone();
    tcp.read(&mut lp, vec![0], move |_, _, result, _| read.push(("read", outcome(&result))))
        .unwrap();
    tcp.close_with(&mut lp, callbacks.closed("close")).unwrap();
    assert!(tcp.is_closing(&lp) && !tcp.is_readable(&lp) && !tcp.is_writable(&lp));
    assert_eq!(callbacks.len(), 0, "no callback runs inline");
    finish(lp);
    let callbacks = callbacks.take();
    let mut reads = callbacks.iter().filter(|(name, _)| *name == "read");
    assert_eq!(reads.next(), Some(&("read", "cancelled")));
    let others: Vec<_> = callbacks.iter().copied().filter(|(name, _)| *name != "read").collect();
    let expected = [
        ("small", "done"),
        ("large", "cancelled"),
        ("behind", "cancelled"),
        ("shutdown", "cancelled"),
        ("close", "closed"),
    ];
    assert_eq!(others, expected);
    assert_eq!(callbacks.last(), Some(&("close", "closed")), "the last callback");
    Ok(())
}

/// A close outside of `run`, or in its last iteration, before or after the poll, reaches the peer
/// although the loop does not run again; a closed listener refuses connections.
pub fn a_close_reaches_the_peer_without_a_run(lab: &Lab) -> Verdict {
    for when in ["outside", "before the poll", "after the poll"] {
        let mut lp = new_loop(lab)?;
        let (tcp, mut peer) = connected(&mut lp);
        let (server, address) = bound(&mut lp);
        server.listen(&mut lp, 8, |_, _, _| {}).unwrap();
        tcp.read_start(&mut lp, |_, _, _| {}).unwrap();
        run_a_moment(&mut lp);
        let close = move |lp: &mut Loop| {
            tcp.close(lp).unwrap();
            server.close(lp).unwrap();
        };
        match when {
            "outside" => close(&mut lp),
            "before the poll" => lp.defer(close),
            _ => {
                timer_in(&mut lp, Duration::ZERO, move |lp, timer| {
                    timer.close(lp).unwrap();
                    close(lp);
                });
            }
        }
        if when != "outside" {
            run(&mut lp, RunMode::NoWait);
        }
        assert_eq!(peer.read(&mut [0; 8]).expect("the end of the stream"), 0, "{when}");
        let refused = std::net::TcpStream::connect(address).map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(ErrorKind::ConnectionRefused), "{when}");
        finish(lp);
    }
    Ok(())
}

/// Every callback of a stream may close it. Only the close callback runs after that, whatever has
/// arrived.
pub fn may_close_in_every_callback(lab: &Lab) -> Verdict {
    for how in ["read", "alloc", "pull", "write", "shutdown", "close"] {
        let mut lp = new_loop(lab)?;
        let (tcp, peer) = connected(&mut lp);
        let sender = std::thread::spawn(move || {
            // More data than one read takes. The stream may be closed in the middle of the send.
            let _ = std::io::Write::write_all(&mut &peer, &[1; 300 * 1024]);
            peer
        });
        let callbacks = Log::default();
        let (log, closed) = (callbacks.clone(), callbacks.clone());
        let end = move |lp: &mut Loop, tcp: Tcp| {
            log.push("callback");
            let closed = closed.clone();
            tcp.close_with(lp, move |_, _| closed.push("close")).unwrap();
            assert!(!tcp.is_active(lp));
        };
        let lp_ = &mut lp;
        match how {
            "read" => tcp.read_start(lp_, move |lp, tcp, _| end(lp, tcp)).unwrap(),
            "alloc" => {
                let alloc = |_: &mut Loop, _, _| vec![0; 1];
                tcp.read_start_with(lp_, alloc, move |lp, tcp, _, _| end(lp, tcp)).unwrap();
            }
            "pull" => drop(tcp.read(lp_, vec![0], move |lp, tcp, _, _| end(lp, tcp)).unwrap()),
            "write" => drop(tcp.write(lp_, "x", move |lp, tcp, _, _| end(lp, tcp)).unwrap()),
            "shutdown" => tcp.shutdown(lp_, move |lp, tcp, _| end(lp, tcp)).unwrap(),
            _ => {
                let (other, _) = Tcp::pair(lp_).unwrap();
                let close = move |lp: &mut Loop, other: Tcp| {
                    assert!(other.close(lp).is_err(), "it is closed already");
                    end(lp, tcp);
                };
                other.close_with(lp_, close).unwrap();
            }
        }
        run_to_the_end(&mut lp);
        assert_eq!(callbacks.take(), ["callback", "close"], "in the callback of a {how}");
        drop(sender.join().expect("a peer that sends"));
    }
    Ok(())
}

/// The callbacks of a listener, of an accept request and of a connect may close both the handle and
/// the accepted stream.
pub fn may_close_while_connecting(lab: &Lab) -> Verdict {
    for how in ["listen", "accept", "connect"] {
        let mut lp = new_loop(lab)?;
        let (server, address) = bound(&mut lp);
        let client = Tcp::new(&mut lp);
        let callbacks = Log::default();
        let (log, closed) = (callbacks.clone(), callbacks.clone());
        let end = move |lp: &mut Loop, accepted: Option<Tcp>| {
            log.push("callback");
            for tcp in [Some(server), Some(client), accepted].into_iter().flatten() {
                let closed = closed.clone();
                tcp.close_with(lp, move |_, _| closed.push("close")).unwrap();
            }
        };
        let mut listens = Some(end.clone());
        match how {
            "listen" => server.listen(&mut lp, 8, move |lp, server, _| {
                let accepted = server.accept(lp).unwrap();
                listens.take().expect("one connection")(lp, Some(accepted));
            }),
            "accept" => server.listen_without_callback(&mut lp, 8).and_then(|()| {
                let end = end.clone();
                server.accept_with(&mut lp, move |lp, _, accepted| end(lp, accepted.ok())).map(drop)
            }),
            _ => server.listen_without_callback(&mut lp, 8),
        }
        .unwrap();
        let connects = (how == "connect").then_some(end);
        client
            .connect(&mut lp, address, move |lp, _, _| {
                // Otherwise the connect may complete before the listener's callback, or be
                // cancelled.
                if let Some(end) = connects {
                    end(lp, None);
                }
            })
            .unwrap();
        finish(lp);
        let expected = if how == "connect" { 2 } else { 3 };
        let callbacks = callbacks.take();
        assert_eq!(callbacks[0], "callback", "{how}");
        assert_eq!(callbacks[1..], vec!["close"; expected], "{how}");
    }
    Ok(())
}

/// A stream that reads or listens is active and keeps the loop alive unless it is unreferenced.
/// Requests always keep it alive.
pub fn requests_keep_the_loop_alive(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    assert!(!lp.is_alive(), "a connection does not keep the loop alive");
    tcp.read_start(&mut lp, |_, _, _| {}).unwrap();
    assert!(tcp.is_active(&lp) && lp.is_alive());
    tcp.unreference(&mut lp).unwrap();
    assert!(tcp.is_active(&lp) && !lp.is_alive(), "unreferenced");
    let callbacks = Log::default();
    tcp.write(&mut lp, "x", callbacks.written("write")).unwrap();
    assert!(lp.is_alive(), "the request counts");
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("write", "done")]);
    tcp.read_stop(&mut lp).unwrap();
    let pulled = Rc::new(RefCell::new(None));
    let log = Rc::clone(&pulled);
    tcp.read(&mut lp, vec![0], move |_, _, result, _| *log.borrow_mut() = Some(outcome(&result)))
        .unwrap();
    assert!(!tcp.is_active(&lp) && lp.is_alive());
    send(&peer, b"x");
    run_to_the_end(&mut lp);
    assert_eq!(pulled.take(), Some("done"));
    tcp.close(&mut lp).unwrap();
    assert!(lp.is_alive(), "a close calls back");
    finish(lp);
    Ok(())
}

/// A stream closed in the iteration in which it became ready gets no event.
pub fn a_closed_stream_gets_no_event(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let streams: Rc<RefCell<Vec<Tcp>>> = Rc::default();
    let (callbacks, mut peers) = (Log::default(), Vec::new());
    for _ in 0..4 {
        let (tcp, peer) = connected(&mut lp);
        send(&peer, b"x");
        let (log, all) = (callbacks.clone(), Rc::clone(&streams));
        tcp.read_start(&mut lp, move |lp, _, _| {
            log.push(());
            for tcp in all.take() {
                tcp.close(lp).unwrap();
            }
        })
        .unwrap();
        streams.borrow_mut().push(tcp);
        peers.push(peer);
    }
    finish(lp);
    assert_eq!(callbacks.len(), 1, "the first callback has closed the others");
    Ok(())
}

/// A dropped loop runs no callback, and drops buffers and callbacks.
pub fn a_dropped_loop_drops_queued_buffers(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    let held: Rc<[u8]> = vec![1; OVER_STREAM_BUFFERS].into();
    let [one, two, three] = [(); 3].map(|()| Rc::clone(&held));
    tcp.write(&mut lp, Rc::clone(&held), |_, _, _, _| panic!("a write callback ran")).unwrap();
    let last = move |_: &mut Loop, _, _, _| drop(one);
    tcp.write(&mut lp, "x", last).unwrap();
    tcp.read(&mut lp, vec![1], move |_, _, _, _| drop(two)).unwrap();
    tcp.shutdown(&mut lp, move |_, _, _| drop(three)).unwrap();
    assert_eq!(Rc::strong_count(&held), 5);
    drop(lp);
    assert_eq!(Rc::strong_count(&held), 1, "all is dropped");
    Ok(())
}

/// A loop with a thousand streams that read and write is dropped: no buffer leaks, and every peer
/// sees an end.
pub fn a_dropped_loop_ends_thousands_in_flight(lab: &Lab) -> Verdict {
    const STREAMS: usize = 1_000;
    need_descriptors(2 * STREAMS as u64)?;
    let mut lp = new_loop(lab)?;
    let held: Rc<[u8]> = vec![1; 64 * 1024].into();
    let mut peers = Vec::new();
    for number in 0..STREAMS {
        let (tcp, peer) = connected(&mut lp);
        peers.push(peer);
        for _ in 0..2 {
            tcp.write(&mut lp, Rc::clone(&held), |_, _, _, _| {}).unwrap();
        }
        match number % 2 {
            0 => tcp.read_start(&mut lp, |_, _, _| panic!("no peer sends")).unwrap(),
            _ => drop(tcp.read(&mut lp, vec![0; 100], |_, _, _, _| panic!("no peer sends"))),
        }
    }
    // Some writes are sent, some in flight, and some queued.
    run(&mut lp, RunMode::NoWait);
    drop(lp);
    assert_eq!(Rc::strong_count(&held), 1, "no buffer is kept");
    for mut peer in peers {
        let end = peer.read_to_end(&mut Vec::new());
        assert!(!end.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "it never ends");
    }
    Ok(())
}

/// Streams without events let the loop block.
pub fn idle_streams_let_the_loop_sleep(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (server, address) = bound(&mut lp);
    server
        .listen(&mut lp, 8, |lp, server, _| {
            server.accept(lp).unwrap();
        })
        .unwrap();
    let client = Tcp::new(&mut lp);
    client.connect(&mut lp, address, |_, _, result| result.unwrap()).unwrap();
    run_until(&mut lp, "a connection", |lp| lp.walk().len() == 4);
    client.read_start(&mut lp, |_, _, _| panic!("nothing was sent")).unwrap();
    // One poll for what is still in flight.
    run(&mut lp, RunMode::NoWait);
    let polls = run_a_moment(&mut lp);
    assert!(polls < 6, "{polls} polls without an event");
    for handle in lp.walk() {
        if !handle.is_closing(&lp) {
            handle.close(&mut lp).unwrap();
        }
    }
    finish(lp);
    Ok(())
}
