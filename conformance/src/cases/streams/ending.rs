//! How streams end: closed, or dropped.

use std::cell::RefCell;
use std::io::{ErrorKind, Read as _};
use std::rc::Rc;

use poll_core::Backend;
use uv_core::{Handle, Loop, RunMode, Stream, Tcp};

use crate::support::limits::need_descriptors;
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::sources::send;
use crate::support::streams::{
    TOO_MUCH, bound, connected, finish, outcome, run_a_moment, run_until,
};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// A close tells those writes that have left that they have, cancels all other requests,
/// and calls back last. Nothing is told inline.
pub fn closing_cancels_what_waits<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    let told = Log::default();
    tcp.write(&mut lp, vec![1], told.written("small")).unwrap();
    tcp.write(&mut lp, vec![2; TOO_MUCH], told.written("large")).unwrap();
    tcp.write(&mut lp, vec![3], told.written("behind")).unwrap();
    tcp.shutdown(&mut lp, told.ended("shutdown")).unwrap();
    let read = told.clone();
    tcp.read(&mut lp, vec![0], move |_, _, result, _| read.push(("read", outcome(&result))))
        .unwrap();
    tcp.close_with(&mut lp, told.closed("close")).unwrap();
    assert!(tcp.is_closing(&lp) && !tcp.is_readable(&lp) && !tcp.is_writable(&lp));
    assert_eq!(told.len(), 0, "nothing is told inline");
    finish(lp);
    let told = told.take();
    let mut reads = told.iter().filter(|(name, _)| *name == "read");
    assert_eq!(reads.next(), Some(&("read", "cancelled")));
    let others: Vec<_> = told.iter().copied().filter(|(name, _)| *name != "read").collect();
    let expected = [
        ("small", "done"),
        ("large", "cancelled"),
        ("behind", "cancelled"),
        ("shutdown", "cancelled"),
        ("close", "closed"),
    ];
    assert_eq!(others, expected);
    assert_eq!(told.last(), Some(&("close", "closed")), "the last of all");
    Ok(())
}

/// Every callback of a stream may close it. Nothing but its close callback comes after
/// that, however much has arrived.
pub fn may_close_in_every_callback<T: Backend>(lab: &Lab<T>) -> Verdict {
    for how in ["read", "late", "pull", "write", "shutdown", "close"] {
        let mut lp = new_loop(lab)?;
        let (tcp, peer) = connected(&mut lp);
        let sender = std::thread::spawn(move || {
            // More than one read takes. The stream may be gone in mid-send.
            let _ = std::io::Write::write_all(&mut &peer, &[1; 300 * 1024]);
            peer
        });
        let told = Log::default();
        let (tell, closed) = (told.clone(), told.clone());
        let end = move |lp: &mut Loop<T>, tcp: Tcp| {
            tell.push("callback");
            let closed = closed.clone();
            tcp.close_with(lp, move |_, _| closed.push("close")).unwrap();
            assert!(!tcp.is_active(lp));
        };
        let lp_ = &mut lp;
        match how {
            "read" => tcp.read_start(lp_, move |lp, tcp, _| end(lp, tcp)).unwrap(),
            "late" => {
                let alloc = |_: &mut Loop<T>, _, _| vec![0; 1];
                tcp.read_start_with(lp_, alloc, move |lp, tcp, _, _| end(lp, tcp)).unwrap();
            }
            "pull" => drop(tcp.read(lp_, vec![0], move |lp, tcp, _, _| end(lp, tcp)).unwrap()),
            "write" => drop(tcp.write(lp_, "x", move |lp, tcp, _, _| end(lp, tcp)).unwrap()),
            "shutdown" => tcp.shutdown(lp_, move |lp, tcp, _| end(lp, tcp)).unwrap(),
            _ => {
                let (other, _) = Tcp::pair(lp_).unwrap();
                let close = move |lp: &mut Loop<T>, other: Tcp| {
                    assert!(other.close(lp).is_err(), "it is closed already");
                    end(lp, tcp);
                };
                other.close_with(lp_, close).unwrap();
            }
        }
        run_to_the_end(&mut lp);
        assert_eq!(told.take(), ["callback", "close"], "in the callback of a {how}");
        drop(sender.join().expect("a peer that sends"));
    }
    Ok(())
}

/// The callback of a listener, of a request to accept and of a connect may close both the
/// handle and what it was given.
pub fn may_close_while_connecting<T: Backend>(lab: &Lab<T>) -> Verdict {
    for how in ["listen", "accept", "connect"] {
        let mut lp = new_loop(lab)?;
        let (server, address) = bound(&mut lp);
        let client = Tcp::new(&mut lp);
        let told = Log::default();
        let (tell, closed) = (told.clone(), told.clone());
        let end = move |lp: &mut Loop<T>, accepted: Option<Tcp>| {
            tell.push("callback");
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
            "accept" => server.listen_quietly(&mut lp, 8).and_then(|()| {
                let end = end.clone();
                server.accept_with(&mut lp, move |lp, _, accepted| end(lp, accepted.ok()))
            }),
            _ => server.listen_quietly(&mut lp, 8),
        }
        .unwrap();
        let connects = (how == "connect").then_some(end);
        client
            .connect(&mut lp, address, move |lp, _, _| {
                // Otherwise it may come before the listener's callback, or be cancelled.
                if let Some(end) = connects {
                    end(lp, None);
                }
            })
            .unwrap();
        finish(lp);
        let expected = if how == "connect" { 2 } else { 3 };
        let told = told.take();
        assert_eq!(told[0], "callback", "{how}");
        assert_eq!(told[1..], vec!["close"; expected], "{how}");
    }
    Ok(())
}

/// A stream that reads or listens is active and keeps the loop alive unless it is
/// unreferenced. Requests keep it alive whatever their stream.
pub fn requests_keep_the_loop_alive<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    assert!(!lp.alive(), "a connection alone does nothing");
    tcp.read_start(&mut lp, |_, _, _| {}).unwrap();
    assert!(tcp.is_active(&lp) && lp.alive());
    tcp.unreference(&mut lp).unwrap();
    assert!(tcp.is_active(&lp) && !lp.alive(), "unreferenced");
    let told = Log::default();
    tcp.write(&mut lp, "x", told.written("write")).unwrap();
    assert!(lp.alive(), "the request counts");
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("write", "done")]);
    tcp.read_stop(&mut lp).unwrap();
    let pulled = Rc::new(RefCell::new(None));
    let tell = Rc::clone(&pulled);
    tcp.read(&mut lp, vec![0], move |_, _, result, _| *tell.borrow_mut() = Some(outcome(&result)))
        .unwrap();
    assert!(!tcp.is_active(&lp) && lp.alive());
    send(&peer, b"x");
    run_to_the_end(&mut lp);
    assert_eq!(pulled.take(), Some("done"));
    tcp.close(&mut lp).unwrap();
    assert!(lp.alive(), "a close is told");
    finish(lp);
    Ok(())
}

/// A stream that is closed in the iteration in which it became ready is not told of that.
pub fn a_closed_stream_is_not_told<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let streams: Rc<RefCell<Vec<Tcp>>> = Rc::default();
    let (told, mut peers) = (Log::default(), Vec::new());
    for _ in 0..4 {
        let (tcp, peer) = connected(&mut lp);
        send(&peer, b"x");
        let (tell, all) = (told.clone(), Rc::clone(&streams));
        tcp.read_start(&mut lp, move |lp, _, _| {
            tell.push(());
            for tcp in all.take() {
                tcp.close(lp).unwrap();
            }
        })
        .unwrap();
        streams.borrow_mut().push(tcp);
        peers.push(peer);
    }
    finish(lp);
    assert_eq!(told.len(), 1, "the first that was told has closed the others");
    Ok(())
}

/// A loop that is dropped calls nobody, and drops buffers and callbacks.
pub fn a_dropped_loop_drops_what_was_queued<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _peer) = connected(&mut lp);
    let held: Rc<[u8]> = vec![1; TOO_MUCH].into();
    let [one, two, three] = [(); 3].map(|()| Rc::clone(&held));
    tcp.write(&mut lp, Rc::clone(&held), |_, _, _, _| panic!("told of a write")).unwrap();
    let last = move |_: &mut Loop<T>, _, _, _| drop(one);
    tcp.write(&mut lp, "x", last).unwrap();
    tcp.read(&mut lp, vec![1], move |_, _, _, _| drop(two)).unwrap();
    tcp.shutdown(&mut lp, move |_, _, _| drop(three)).unwrap();
    assert_eq!(Rc::strong_count(&held), 5);
    drop(lp);
    assert_eq!(Rc::strong_count(&held), 1, "all is dropped");
    Ok(())
}

/// A loop with a thousand streams, each of which reads and writes, is dropped: no buffer is kept,
/// and every peer sees an end.
pub fn thousands_in_flight_end_with_their_loop<T: Backend>(lab: &Lab<T>) -> Verdict {
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
            0 => tcp.read_start(&mut lp, |_, _, _| panic!("nobody sends")).unwrap(),
            _ => drop(tcp.read(&mut lp, vec![0; 100], |_, _, _, _| panic!("nobody sends"))),
        }
    }
    // Some have left, some are on their way, and some wait.
    run(&mut lp, RunMode::NoWait);
    drop(lp);
    assert_eq!(Rc::strong_count(&held), 1, "no buffer is kept");
    for mut peer in peers {
        let end = peer.read_to_end(&mut Vec::new());
        assert!(!end.is_err_and(|error| error.kind() == ErrorKind::WouldBlock), "it never ends");
    }
    Ok(())
}

/// Streams that wait for nothing that happens let the loop sleep.
pub fn idle_streams_let_the_loop_sleep<T: Backend>(lab: &Lab<T>) -> Verdict {
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
    // Once for what is still under way.
    run(&mut lp, RunMode::NoWait);
    let polls = run_a_moment(&mut lp);
    assert!(polls < 6, "it polled {polls} times though nothing happens");
    for handle in lp.walk() {
        if !handle.is_closing(&lp) {
            handle.close(&mut lp).unwrap();
        }
    }
    finish(lp);
    Ok(())
}
