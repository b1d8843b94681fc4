//! Accept requests that are cancelled, and connections that go to existing handles.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use uv_core::{AcceptRequest, Handle, Listener, RunMode, Stream, Tcp, error_name};

use crate::support::loops::{new_loop, run};
use crate::support::observe::SOON;
use crate::support::streams::{
    bound, connected, finish, outcome, refusal, run_a_moment, run_until,
};
use crate::support::trace::Log;
use crate::{Lab, Loop, Skip, Verdict};

/// The reports of callbacks: a name, the outcome, and the address of the peer.
type Accepts = Log<(&'static str, &'static str, Option<SocketAddr>)>;

/// Asks for a connection, and logs and closes it.
fn ask(lp: &mut Loop, server: Tcp, name: &'static str, log: &Accepts) -> AcceptRequest {
    let log = log.clone();
    let request = server.accept_with(lp, move |lp, _, accepted| {
        let how = outcome(&accepted);
        log.push((name, how, accepted.ok().map(|accepted| end(lp, accepted))));
    });
    request.expect("a listener")
}

/// Closes a connection; returns the address of its peer.
fn end(lp: &mut Loop, accepted: Tcp) -> SocketAddr {
    let peer = accepted.peer_addr(lp).expect("a connection");
    accepted.close(lp).expect("an open handle");
    peer
}

/// A bound listener without a callback, which does not keep the loop alive.
fn quiet(lp: &mut Loop) -> (Tcp, SocketAddr) {
    let (server, address) = bound(lp);
    server.listen_without_callback(lp, 64).unwrap();
    server.unreference(lp).unwrap();
    (server, address)
}

fn run_often(lp: &mut Loop, times: usize) {
    for _ in 0..times {
        run(lp, RunMode::NoWait);
    }
}

/// A cancelled accept request calls back once, later, with `ECANCELED`. A connection that arrives
/// before, while or after it is cancelled goes to the next request.
pub fn a_cancelled_accept_loses_no_connection(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), log) = (quiet(&mut lp), Accepts::default());
    for round in 0..12 {
        let request = ask(&mut lp, server, "first", &log);
        run_often(&mut lp, round % 2);
        let peer = TcpStream::connect(address).unwrap();
        let from = Some(peer.local_addr().unwrap());
        run_often(&mut lp, round / 2 % 3);
        let before = log.len();
        if let Err(error) = request.cancel(&mut lp) {
            assert_eq!(error.kind(), ErrorKind::NotFound, "it has its connection");
            assert_eq!(log.take(), [("first", "done", from)]);
            continue;
        }
        assert_eq!(log.len(), before, "no callback runs inline");
        assert_eq!(refusal(request.cancel(&mut lp)), ErrorKind::NotFound, "once");
        run_often(&mut lp, round % 3);
        ask(&mut lp, server, "second", &log);
        run_until(&mut lp, "both callbacks", |_| log.len() >= 2);
        let mut callbacks = log.take();
        callbacks.sort_unstable();
        assert_eq!(callbacks, [("first", "cancelled", None), ("second", "done", from)]);
    }
    server.close(&mut lp).unwrap();
    finish(lp);
    assert_eq!(log.len(), 0, "each calls back once");
    Ok(())
}

/// After a request is cancelled, a call of `accept` or the listener's callback gets the connection
/// that was meant for it. The requests behind it keep their order.
pub fn a_cancelled_accept_leaves_the_connection_to_others(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), log) = (quiet(&mut lp), Accepts::default());
    let request = ask(&mut lp, server, "first", &log);
    run_often(&mut lp, 2);
    let peer = TcpStream::connect(address).unwrap();
    request.cancel(&mut lp).unwrap();
    let mut taken = server.accept(&mut lp);
    run_until(&mut lp, "the connection", |lp| {
        if taken.is_err() {
            taken = server.accept(lp);
        }
        taken.is_ok() && log.len() > 0
    });
    assert_eq!(end(&mut lp, taken.unwrap()), peer.local_addr().unwrap());
    assert_eq!(log.take(), [("first", "cancelled", None)]);

    let requests = ["first", "second", "third"].map(|name| ask(&mut lp, server, name, &log));
    run_often(&mut lp, 2);
    requests[1].cancel(&mut lp).unwrap();
    let peers = [(); 2].map(|()| TcpStream::connect(address).unwrap());
    run_until(&mut lp, "three callbacks", |_| log.len() >= 3);
    let [one, two] = peers.each_ref().map(|peer| Some(peer.local_addr().unwrap()));
    let mut callbacks = log.take();
    callbacks.sort_unstable();
    let expected = [("first", "done", one), ("second", "cancelled", None), ("third", "done", two)];
    assert_eq!(callbacks, expected);

    let notified = log.clone();
    let listening = server.listen(&mut lp, 64, move |lp, server, result| {
        result.unwrap();
        let accepted = server.accept(lp).unwrap();
        notified.push(("callback", "done", Some(end(lp, accepted))));
    });
    listening.unwrap();
    ask(&mut lp, server, "first", &log).cancel(&mut lp).unwrap();
    let peer = TcpStream::connect(address).unwrap();
    run_until(&mut lp, "two callbacks", |_| log.len() >= 2);
    let from = Some(peer.local_addr().unwrap());
    assert_eq!(log.take(), [("first", "cancelled", None), ("callback", "done", from)]);
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A connection that a cancelled request has accepted is returned before those that arrive later.
pub fn a_cancelled_accept_keeps_the_order(lab: &Lab) -> Verdict {
    if cfg!(windows) {
        return Err(Skip::because("not verified on Windows, where AcceptEx completes by itself"));
    }
    let mut lp = new_loop(lab)?;
    let ((server, address), log) = (quiet(&mut lp), Accepts::default());
    for _ in 0..4 {
        let request = ask(&mut lp, server, "first", &log);
        run_often(&mut lp, 2);
        let early = TcpStream::connect(address).unwrap();
        request.cancel(&mut lp).unwrap();
        let late = TcpStream::connect(address).unwrap();
        for peer in [early, late] {
            let mut taken = server.accept(&mut lp);
            run_until(&mut lp, "a connection", |lp| {
                if taken.is_err() {
                    taken = server.accept(lp);
                }
                taken.is_ok()
            });
            assert_eq!(end(&mut lp, taken.unwrap()), peer.local_addr().unwrap());
        }
        run_until(&mut lp, "the callback", |_| log.len() > 0);
        assert_eq!(log.take(), [("first", "cancelled", None)]);
    }
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// The same for a connection whose event was fetched by a `try_read` of a stream.
pub fn a_fetched_connection_keeps_the_order(lab: &Lab) -> Verdict {
    if cfg!(windows) {
        return Err(Skip::because("not verified on Windows, where AcceptEx completes by itself"));
    }
    let mut lp = new_loop(lab)?;
    let ((server, address), log) = (quiet(&mut lp), Accepts::default());
    let (tried, _peer) = connected(&mut lp);
    // An operation that receives goes on after the stop.
    tried.read_start(&mut lp, |_, _, _| {}).unwrap();
    run_often(&mut lp, 2);
    tried.read_stop(&mut lp).unwrap();
    let request = ask(&mut lp, server, "first", &log);
    run_often(&mut lp, 2);
    let early = TcpStream::connect(address).unwrap();
    // The connection may be in the loop after this, in an event that no callback has seen.
    assert_eq!(refusal(tried.try_read(&mut lp, &mut [0])), ErrorKind::WouldBlock);
    request.cancel(&mut lp).unwrap();
    let late = TcpStream::connect(address).unwrap();
    for peer in [early, late] {
        let deadline = Instant::now() + SOON;
        let taken = loop {
            match server.accept(&mut lp) {
                Ok(taken) => break taken,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            assert!(Instant::now() < deadline, "no connection without a run");
        };
        assert_eq!(end(&mut lp, taken), peer.local_addr().unwrap());
    }
    run_until(&mut lp, "the callback", |_| log.len() > 0);
    assert_eq!(log.take(), [("first", "cancelled", None)]);
    [tried, server].into_iter().for_each(|it| it.close(&mut lp).unwrap());
    finish(lp);
    Ok(())
}

/// A cancelled accept request keeps the loop alive until it has called back, which is before the
/// close callback of the listener.
pub fn a_cancelled_accept_calls_back_before_the_close(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, _), log) = (quiet(&mut lp), Log::default());
    for closes in [false, true] {
        let [cancelled, kept] = ["cancelled", "kept"].map(|name| {
            let log = log.clone();
            server.accept_with(&mut lp, move |_, _, accepted| log.push((name, outcome(&accepted))))
        });
        run_a_moment_unless(&mut lp, closes);
        cancelled.unwrap().cancel(&mut lp).unwrap();
        assert!(lp.is_alive(), "a callback is due");
        if closes {
            server.close_with(&mut lp, log.closed("close")).unwrap();
            drop(kept); // Cancelled by the close.
        } else {
            kept.unwrap().cancel(&mut lp).unwrap();
        }
        assert!(!run(&mut lp, RunMode::Default), "only requests keep it alive");
    }
    let cancelled = ["cancelled", "kept"].map(|name| (name, "cancelled"));
    let mut callbacks = log.take();
    assert_eq!(callbacks.pop(), Some(("close", "closed")), "the last");
    assert_eq!(callbacks, [cancelled, cancelled].concat());
    finish(lp);
    Ok(())
}

fn run_a_moment_unless(lp: &mut Loop, skip: bool) {
    if !skip {
        run_a_moment(lp);
    }
}

/// A connection goes to a handle that exists already and has no socket, with the options of that
/// handle. A handle in use is refused, and the connection stays.
pub fn a_connection_goes_to_an_existing_handle(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), ready) = (bound(&mut lp), Log::default());
    let log = ready.clone();
    server.listen(&mut lp, 16, move |_, _, result| log.push(outcome(&result))).unwrap();
    let client = Tcp::new(&mut lp);
    client.set_nodelay(&mut lp, true).unwrap();
    assert_eq!(refusal(server.accept_into(&mut lp, client)), ErrorKind::WouldBlock);
    assert!(!client.is_readable(&lp), "there is no connection");
    let mut peer = TcpStream::connect(address).unwrap();
    peer.set_read_timeout(Some(SOON)).unwrap();
    run_until(&mut lp, "a connection", |_| ready.len() > 0);
    for used in [server, bound(&mut lp).0] {
        let error = server.accept_into(&mut lp, used).unwrap_err();
        assert_eq!(error_name(&error), Some("EBUSY"), "a handle that has a socket");
    }
    server.accept_into(&mut lp, client).unwrap();
    assert_eq!(client.peer_addr(&lp).unwrap(), peer.local_addr().unwrap());
    assert!(client.is_readable(&lp) && client.is_writable(&lp));
    assert!(has_nodelay(&lp, client), "an option that was set before");
    let error = server.accept_into(&mut lp, client).unwrap_err();
    assert_eq!(error_name(&error), Some("EBUSY"), "it has a socket now");
    client.try_write(&mut lp, b"hello").unwrap();
    let mut buffer = [0; 5];
    std::io::Read::read_exact(&mut peer, &mut buffer).unwrap();
    assert_eq!(&buffer, b"hello");
    client.close(&mut lp).unwrap();
    let error = server.accept_into(&mut lp, client).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "it is closing");
    lp.walk().into_iter().for_each(|handle| drop(handle.close(&mut lp)));
    finish(lp);
    Ok(())
}

#[cfg(unix)]
fn has_nodelay(lp: &Loop, tcp: Tcp) -> bool {
    let raw = tcp.raw_source(lp).unwrap().fd();
    // SAFETY: the handle keeps the descriptor open for longer than this borrow.
    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(raw) };
    socket2::SockRef::from(&fd).tcp_nodelay().unwrap()
}

#[cfg(not(unix))]
fn has_nodelay(_: &Loop, _: Tcp) -> bool {
    true // Cases of options check it.
}
