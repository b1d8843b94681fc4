//! Listening and accepting.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::time::Duration;

use poll_core::{Backend, Mode, OpKind, RawSource, Ready};
use uv_core::{Handle, Loop, Poll, PollEvents, RunMode, Stream, Tcp};

use crate::support::loops::{new_loop, panic_on_purpose, run_to_the_end, unwinds};
use crate::support::observe::{A, SOON, register, wait_once};
use crate::support::sources::{arrived, listener, send, tcp_pair};
use crate::support::streams::{bound, finish, outcome, refusal, run_a_moment, run_until};
use crate::support::trace::Log;
use crate::{Lab, Skip, Verdict};

/// Listens and accepts everything, closing it at once; notes each.
fn take_all<T: Backend>(
    lp: &mut Loop<T>,
    server: Tcp,
    told: &Log<&'static str>,
    name: &'static str,
) {
    let tell = told.clone();
    let listening = server.listen(lp, 16, move |lp, server, result| {
        result.unwrap();
        server.accept(lp).unwrap().close(lp).unwrap();
        tell.push(name);
    });
    listening.unwrap();
}

/// A listener is active, and calls back once for each connection, which its callback takes.
pub fn each_connection_calls_back_once<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), told) = (bound(&mut lp), Log::default());
    take_all(&mut lp, server, &told, "connection");
    assert!(server.is_active(&lp) && lp.alive());
    let peers: Vec<_> = (0..10).map(|_| TcpStream::connect(address).unwrap()).collect();
    run_until(&mut lp, "all connections", |_| told.len() >= peers.len());
    run_a_moment(&mut lp);
    assert_eq!(told.len(), peers.len(), "one call for each");
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Many who wait are accepted in a few turns of the loop, and not in one each: where a turn costs
/// more the more connections there are, that would be quadratic.
pub fn many_who_wait_are_accepted_together<T: Backend>(lab: &Lab<T>) -> Verdict {
    const MANY: usize = 50;
    let mut lp = new_loop(lab)?;
    let polls = polls_to_accept(&mut lp, MANY)?;
    assert!(polls < MANY as u64 / 2, "{polls} polls for {MANY} connections that waited");
    finish(lp);
    Ok(())
}

/// The more there is to do for others in a turn, the more are accepted in it: those who connect to
/// a busy server are not served last.
pub fn a_busy_loop_accepts_as_much_as_it_serves<T: Backend>(lab: &Lab<T>) -> Verdict {
    const BUSY: usize = 200;
    let mut lp = new_loop(lab)?;
    let mut others = Vec::new();
    for _ in 0..BUSY {
        let (near, far) = tcp_pair();
        send(&far, b"never read");
        arrived(&near);
        let poll = Poll::new(&mut lp, near).unwrap();
        poll.start(&mut lp, PollEvents::READABLE, |_, _, _| {}).unwrap();
        others.push((poll, far));
    }
    let polls = polls_to_accept(&mut lp, BUSY)?;
    assert!(polls <= 3, "{polls} polls for {BUSY} connections, while {BUSY} others are ready");
    others.iter().for_each(|(poll, _)| poll.close(&mut lp).unwrap());
    finish(lp);
    Ok(())
}

/// How often the loop polls until so many were accepted who wait for it.
fn polls_to_accept<T: Backend>(lp: &mut Loop<T>, many: usize) -> Result<u64, Skip> {
    let performs = |kind| lp.backend().supports(kind);
    if performs(OpKind::Accept) || performs(OpKind::AcceptMulti) {
        return Err(Skip::because("its operations accept, and are told of as they are over"));
    }
    let ((server, address), told) = (bound(lp), Log::default());
    let tell = told.clone();
    let listening = server.listen(lp, 256, move |lp, server, result| {
        result.unwrap();
        server.accept(lp).unwrap().close(lp).unwrap();
        tell.push(());
    });
    listening.unwrap();
    let _peers: Vec<_> = (0..many).map(|_| TcpStream::connect(address).unwrap()).collect();
    let before = lp.metrics().loop_count();
    run_until(lp, "all connections", |_| told.len() >= many);
    let polls = lp.metrics().loop_count() - before;
    server.close(lp).unwrap();
    Ok(polls)
}

/// While a connection waits to be taken the listener tells of no other, and the loop does
/// not spin. All are taken in the order they came.
pub fn connections_wait_until_they_are_taken<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), told) = (bound(&mut lp), Log::default());
    let tell = told.clone();
    server.listen(&mut lp, 16, move |_, _, result| tell.push(outcome(&result))).unwrap();
    assert_eq!(refusal(server.accept(&mut lp)), ErrorKind::WouldBlock, "there is none");
    let peers: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    for peer in &peers {
        run_until(&mut lp, "a connection", |_| told.len() > 0);
        let polls = run_a_moment(&mut lp);
        assert!(polls < 6, "it polled {polls} times while the callback's turn is over");
        assert_eq!(told.take(), ["done"], "of one at a time");
        let taken = server.accept(&mut lp).unwrap();
        assert_eq!(taken.peer_addr(&lp).unwrap(), peer.local_addr().unwrap(), "in order");
        assert_eq!(refusal(server.accept(&mut lp)), ErrorKind::WouldBlock, "taken");
        taken.close(&mut lp).unwrap();
    }
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Requests to accept are served in order, a connection each, and cancelled by a close.
pub fn requests_to_accept_are_served_in_order<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), told) = (bound(&mut lp), Log::default());
    let early = server.accept_with(&mut lp, |_, _, _| {});
    assert_eq!(refusal(early), ErrorKind::InvalidInput, "it does not listen yet");
    server.listen_quietly(&mut lp, 16).unwrap();
    server.unreference(&mut lp).unwrap();
    for name in ["first", "second", "third"] {
        let tell = told.clone();
        let request = server.accept_with(&mut lp, move |lp, server, accepted| {
            tell.push((name, outcome(&accepted)));
            let Ok(accepted) = accepted else { return };
            accepted.close(lp).unwrap();
            if name == "second" {
                server.close_with(lp, tell.closed("listener")).unwrap();
            }
        });
        request.unwrap();
    }
    assert!(lp.alive(), "requests keep the loop alive");
    let _peers = [(); 2].map(|()| TcpStream::connect(address).unwrap());
    finish(lp);
    let expected =
        [("first", "done"), ("second", "done"), ("third", "cancelled"), ("listener", "closed")];
    assert_eq!(told.take(), expected);
    Ok(())
}

/// A listener that fails for good tells every request and the callback, even if one of them
/// panics, and does not make the loop spin.
pub fn a_listener_that_fails_tells_everybody<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (broken, mut backend) = (listener(), lab.backend()?);
    break_listener(RawSource::of(&broken))?;
    register(&mut backend, A, &broken, Ready::READ, Mode::Level);
    if wait_once(&mut backend, Some(Duration::from_millis(100))).is_empty() {
        return Err(Skip::because("it does not tell of a listener that was shut down"));
    }
    let mut lp = new_loop(lab)?;
    let ((server, _), told) = (bound(&mut lp), Log::default());
    let tell = told.clone();
    let listening = server.listen(&mut lp, 16, move |_, _, result| {
        tell.push(("callback", result.is_err()));
    });
    listening.unwrap();
    for name in ["first", "second", "third"] {
        let tell = told.clone();
        let request = server.accept_with(&mut lp, move |_, _, accepted| {
            tell.push((name, accepted.is_err()));
            if name == "second" {
                panic_on_purpose();
            }
        });
        request.unwrap();
    }
    lp.run(RunMode::NoWait).unwrap();
    break_listener(server.descriptor(&lp).unwrap())?;
    unwinds(&mut lp, RunMode::Default);
    run_until(&mut lp, "the rest", |_| told.len() == 4);
    let expected = ["first", "second", "third", "callback"].map(|name| (name, true));
    assert_eq!(told.take(), expected);
    let polls = run_a_moment(&mut lp);
    assert!(polls < 6, "it polled {polls} times though nothing will come");
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Takes from a listener what makes it one.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn break_listener(descriptor: RawSource) -> Verdict {
    // SAFETY: it takes no pointer.
    let failed = unsafe { libc::shutdown(descriptor.fd(), libc::SHUT_RDWR) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    Ok(())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn break_listener(_: RawSource) -> Verdict {
    Err(Skip::because("a listener cannot be shut down here"))
}

/// A request to accept takes the connection that the callback has left, later and not
/// inline; requests come before the callback.
pub fn a_request_takes_the_connection_that_waits<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), told) = (bound(&mut lp), Log::default());
    let tell = told.clone();
    server.listen(&mut lp, 16, move |_, _, _| tell.push("callback")).unwrap();
    let _peers = [(); 2].map(|()| TcpStream::connect(address).unwrap());
    run_until(&mut lp, "a connection", |_| told.len() > 0);
    for name in ["first", "second"] {
        let tell = told.clone();
        let request = server.accept_with(&mut lp, move |lp, _, accepted| {
            accepted.unwrap().close(lp).unwrap();
            tell.push(name);
        });
        request.unwrap();
    }
    assert_eq!(told.take(), ["callback"], "nothing is told inline");
    run_until(&mut lp, "both requests", |_| told.len() == 2);
    assert_eq!(told.take(), ["first", "second"]);
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Without a callback the connections stay in the kernel until somebody asks for one.
pub fn a_quiet_listener_takes_nothing_unasked<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (server, address) = bound(&mut lp);
    server.listen_quietly(&mut lp, 16).unwrap();
    assert_eq!(refusal(server.accept(&mut lp)), ErrorKind::WouldBlock);
    let peer = TcpStream::connect(address).unwrap();
    let polls = run_a_moment(&mut lp);
    assert!(polls < 6, "it polled {polls} times though nobody asks");
    let taken = server.accept(&mut lp).unwrap();
    assert_eq!(taken.peer_addr(&lp).unwrap(), peer.local_addr().unwrap());
    taken.close(&mut lp).unwrap();
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Listening needs no address: it is on any port then. Listening again changes the callback.
pub fn listening_again_changes_the_callback<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (server, told) = (Tcp::new(&mut lp), Log::default());
    take_all(&mut lp, server, &told, "old");
    let address = server.local_addr(&lp).unwrap();
    assert_ne!(address.port(), 0, "some port");
    take_all(&mut lp, server, &told, "new");
    let _peer = TcpStream::connect(("127.0.0.1", address.port())).unwrap();
    run_until(&mut lp, "a connection", |_| told.len() > 0);
    assert_eq!(told.take(), ["new"]);
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A listener that is closed turns away the connection that nobody has taken, and frees its
/// port at once.
pub fn a_closed_listener_turns_its_peers_away<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), told) = (bound(&mut lp), Log::default());
    let tell = told.clone();
    server.listen(&mut lp, 16, move |_, _, _| tell.push(())).unwrap();
    let mut peer = TcpStream::connect(address).unwrap();
    peer.set_read_timeout(Some(SOON)).unwrap();
    run_until(&mut lp, "a connection", |_| told.len() > 0);
    server.close(&mut lp).unwrap();
    run_to_the_end(&mut lp);
    match peer.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("the peer of a closed listener reads {other:?}"),
    }
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
    finish(lp);
    Ok(())
}
