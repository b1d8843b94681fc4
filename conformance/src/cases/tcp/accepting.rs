//! Listening and accepting.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::time::Duration;

use poll_core::{Backend, Interest, Mode, OpKind, RawSource};
use uv_core::{Handle, Listener, Poll, PollEvents, RunMode, Tcp};

use crate::support::loops::{new_loop, panic_on_purpose, run_to_the_end, unwinds};
use crate::support::observe::{A, SOON, register, wait_once};
use crate::support::sources::{arrived, listener, send, tcp_pair};
use crate::support::streams::{bound, finish, outcome, refusal, run_a_moment, run_until};
use crate::support::trace::Log;
use crate::{Lab, Loop, Skip, Verdict};

/// Listens, and accepts and closes every connection; logs each.
fn accept_all(lp: &mut Loop, server: Tcp, callbacks: &Log<&'static str>, name: &'static str) {
    let log = callbacks.clone();
    let listening = server.listen(lp, 16, move |lp, server, result| {
        result.unwrap();
        server.accept(lp).unwrap().close(lp).unwrap();
        log.push(name);
    });
    listening.unwrap();
}

/// A listener is active, and calls back once for each connection, which its callback accepts.
pub fn each_connection_calls_back_once(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), callbacks) = (bound(&mut lp), Log::default());
    accept_all(&mut lp, server, &callbacks, "connection");
    assert!(server.is_active(&lp) && lp.is_alive());
    let peers: Vec<_> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
    run_until(&mut lp, "all connections", |_| callbacks.len() >= peers.len());
    run_a_moment(&mut lp);
    assert_eq!(callbacks.len(), peers.len(), "one call for each");
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Many pending connections are accepted in a few iterations instead of one each. Where the cost of
/// an iteration grows with the number of connections, one each would be quadratic.
pub fn pending_connections_are_accepted_in_batches(lab: &Lab) -> Verdict {
    const MANY: usize = 50;
    let mut lp = new_loop(lab)?;
    let polls = polls_to_accept(&mut lp, MANY)?;
    assert!(polls < MANY as u64 / 2, "{polls} polls for {MANY} connections that waited");
    finish(lp);
    Ok(())
}

/// The number of accepts per iteration grows with the number of other events: clients of a busy
/// server are not served last.
pub fn a_busy_loop_accepts_larger_batches(lab: &Lab) -> Verdict {
    const BUSY: usize = 200;
    let mut lp = new_loop(lab)?;
    let mut polls_beside = Vec::new();
    for _ in 0..BUSY {
        let (near, far) = tcp_pair();
        send(&far, b"never read");
        arrived(&near);
        let poll = Poll::new(&mut lp, near).unwrap();
        poll.start(&mut lp, PollEvents::READABLE, |_, _, _| {}).unwrap();
        polls_beside.push((poll, far));
    }
    let polls = polls_to_accept(&mut lp, BUSY)?;
    assert!(polls <= 3, "{polls} polls for {BUSY} connections, while {BUSY} polls are ready");
    polls_beside.iter().for_each(|(poll, _)| poll.close(&mut lp).unwrap());
    finish(lp);
    Ok(())
}

/// How many polls the loop needs to accept this many pending connections.
fn polls_to_accept(lp: &mut Loop, many: usize) -> Result<u64, Skip> {
    let performs = |kind| lp.backend().supports(kind);
    if performs(OpKind::Accept) || performs(OpKind::AcceptMulti) {
        return Err(Skip::because("its operations accept, and complete one by one"));
    }
    let ((server, address), callbacks) = (bound(lp), Log::default());
    let log = callbacks.clone();
    let listening = server.listen(lp, 256, move |lp, server, result| {
        result.unwrap();
        server.accept(lp).unwrap().close(lp).unwrap();
        log.push(());
    });
    listening.unwrap();
    let _peers: Vec<_> = (0..many).map(|_| TcpStream::connect(address).unwrap()).collect();
    let before = lp.metrics().loop_count();
    run_until(lp, "all connections", |_| callbacks.len() >= many);
    let polls = lp.metrics().loop_count() - before;
    server.close(lp).unwrap();
    Ok(polls)
}

/// While a connection is not accepted, the listener reports no other, and the loop does not spin.
/// All are accepted in order of arrival.
pub fn connections_wait_until_they_are_accepted(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), callbacks) = (bound(&mut lp), Log::default());
    let log = callbacks.clone();
    server.listen(&mut lp, 16, move |_, _, result| log.push(outcome(&result))).unwrap();
    assert_eq!(refusal(server.accept(&mut lp)), ErrorKind::WouldBlock, "there is none");
    let peers: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    for peer in &peers {
        run_until(&mut lp, "a connection", |_| callbacks.len() > 0);
        let polls = run_a_moment(&mut lp);
        assert!(polls < 6, "{polls} polls while a connection waits to be accepted");
        assert_eq!(callbacks.take(), ["done"], "one at a time");
        let taken = server.accept(&mut lp).unwrap();
        assert_eq!(taken.peer_addr(&lp).unwrap(), peer.local_addr().unwrap(), "in order");
        assert_eq!(
            refusal(server.accept(&mut lp)),
            ErrorKind::WouldBlock,
            "it is accepted already"
        );
        taken.close(&mut lp).unwrap();
    }
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Accept requests complete in order, with one connection each. A close cancels them.
pub fn accept_requests_complete_in_order(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), callbacks) = (bound(&mut lp), Log::default());
    let early = server.accept_with(&mut lp, |_, _, _| {});
    assert_eq!(refusal(early), ErrorKind::InvalidInput, "it does not listen yet");
    server.listen_without_callback(&mut lp, 16).unwrap();
    server.unreference(&mut lp).unwrap();
    for name in ["first", "second", "third"] {
        let log = callbacks.clone();
        let request = server.accept_with(&mut lp, move |lp, server, accepted| {
            log.push((name, outcome(&accepted)));
            let Ok(accepted) = accepted else { return };
            accepted.close(lp).unwrap();
            if name == "second" {
                server.close_with(lp, log.closed("listener")).unwrap();
            }
        });
        request.unwrap();
    }
    assert!(lp.is_alive(), "requests keep the loop alive");
    let _peers = [(); 2].map(|()| TcpStream::connect(address).unwrap());
    finish(lp);
    let expected =
        [("first", "done"), ("second", "done"), ("third", "cancelled"), ("listener", "closed")];
    assert_eq!(callbacks.take(), expected);
    Ok(())
}

/// A fatal error of a listener is reported to every request and to the callback, even if one of
/// them panics, and does not make the loop spin.
pub fn a_listener_error_fails_all_requests(lab: &Lab) -> Verdict {
    let (broken, mut backend) = (listener(), lab.backend()?);
    break_listener(RawSource::of(&broken))?;
    register(&mut backend, A, &broken, Interest::READ, Mode::Level);
    if wait_once(&mut backend, Some(Duration::from_millis(100))).is_empty() {
        return Err(Skip::because("it does not report a listener that was shut down"));
    }
    let mut lp = new_loop(lab)?;
    let ((server, _), callbacks) = (bound(&mut lp), Log::default());
    let log = callbacks.clone();
    let listening = server.listen(&mut lp, 16, move |_, _, result| {
        log.push(("callback", result.is_err()));
    });
    listening.unwrap();
    for name in ["first", "second", "third"] {
        let log = callbacks.clone();
        let request = server.accept_with(&mut lp, move |_, _, accepted| {
            log.push((name, accepted.is_err()));
            if name == "second" {
                panic_on_purpose();
            }
        });
        request.unwrap();
    }
    lp.run(RunMode::NoWait).unwrap();
    break_listener(server.raw_source(&lp).unwrap())?;
    unwinds(&mut lp, RunMode::Default);
    run_until(&mut lp, "the rest", |_| callbacks.len() == 4);
    let expected = ["first", "second", "third", "callback"].map(|name| (name, true));
    assert_eq!(callbacks.take(), expected);
    let polls = run_a_moment(&mut lp);
    assert!(polls < 6, "{polls} polls without a possible event");
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Makes a listening socket fail.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn break_listener(descriptor: RawSource) -> Verdict {
    // SAFETY: the call takes no pointer.
    let failed = unsafe { libc::shutdown(descriptor.fd(), libc::SHUT_RDWR) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    Ok(())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn break_listener(_: RawSource) -> Verdict {
    Err(Skip::because("a listener cannot be shut down here"))
}

/// An accept request takes the connection that the callback has not accepted, later and not inline.
/// Requests are served before the callback.
pub fn an_accept_request_takes_the_pending_connection(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), callbacks) = (bound(&mut lp), Log::default());
    let log = callbacks.clone();
    server.listen(&mut lp, 16, move |_, _, _| log.push("callback")).unwrap();
    let _peers = [(); 2].map(|()| TcpStream::connect(address).unwrap());
    run_until(&mut lp, "a connection", |_| callbacks.len() > 0);
    for name in ["first", "second"] {
        let log = callbacks.clone();
        let request = server.accept_with(&mut lp, move |lp, _, accepted| {
            accepted.unwrap().close(lp).unwrap();
            log.push(name);
        });
        request.unwrap();
    }
    assert_eq!(callbacks.take(), ["callback"], "no callback runs inline");
    run_until(&mut lp, "both requests", |_| callbacks.len() == 2);
    assert_eq!(callbacks.take(), ["first", "second"]);
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Without a callback, connections stay in the kernel's backlog until an accept request.
pub fn a_listener_without_callback_accepts_only_on_request(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (server, address) = bound(&mut lp);
    server.listen_without_callback(&mut lp, 16).unwrap();
    assert_eq!(refusal(server.accept(&mut lp)), ErrorKind::WouldBlock);
    let peer = TcpStream::connect(address).unwrap();
    let polls = run_a_moment(&mut lp);
    assert!(polls < 6, "{polls} polls without an accept request");
    let taken = server.accept(&mut lp).unwrap();
    assert_eq!(taken.peer_addr(&lp).unwrap(), peer.local_addr().unwrap());
    taken.close(&mut lp).unwrap();
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Listening needs no address: it selects any port. Listening again replaces the callback.
pub fn listening_again_replaces_the_callback(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (server, callbacks) = (Tcp::new(&mut lp), Log::default());
    accept_all(&mut lp, server, &callbacks, "old");
    let address = server.local_addr(&lp).unwrap();
    assert_ne!(address.port(), 0, "some port");
    accept_all(&mut lp, server, &callbacks, "new");
    let _peer = TcpStream::connect(("127.0.0.1", address.port())).unwrap();
    run_until(&mut lp, "a connection", |_| callbacks.len() > 0);
    assert_eq!(callbacks.take(), ["new"]);
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A closed listener closes the connection that was not accepted, and frees its port immediately.
pub fn a_closed_listener_closes_pending_connections(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), callbacks) = (bound(&mut lp), Log::default());
    let log = callbacks.clone();
    server.listen(&mut lp, 16, move |_, _, _| log.push(())).unwrap();
    let mut peer = TcpStream::connect(address).unwrap();
    peer.set_read_timeout(Some(SOON)).unwrap();
    run_until(&mut lp, "a connection", |_| callbacks.len() > 0);
    server.close(&mut lp).unwrap();
    run_to_the_end(&mut lp);
    match peer.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("the peer of a closed listener reads {other:?}"),
    }
    assert!(TcpStream::connect(address).is_err(), "the port is free");
    finish(lp);
    Ok(())
}
