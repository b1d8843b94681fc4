//! Connecting.

use std::io::{ErrorKind, Read as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use uv_core::{Handle, Listener, RunMode, Stream, Tcp};

use crate::support::datagrams::code::EALREADY;
use crate::support::datagrams::refused;
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::observe::SOON;
use crate::support::sources::{listener, refused_address};
use crate::support::streams::{bound, finish, outcome, refusal, run_a_moment};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// A connect is a request: it keeps the loop alive and does not make its handle active. It calls
/// back later, and only one may be in flight.
pub fn connecting_is_a_request(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (listener, client, callbacks) = (listener(), Tcp::new(&mut lp), Log::default());
    let address = listener.local_addr().unwrap();
    client.unreference(&mut lp).unwrap();
    client.connect(&mut lp, address, callbacks.ended("connect")).unwrap();
    let second =
        client.connect(&mut lp, address, |_, _, _| panic!("a refused call has called back"));
    refused(second, EALREADY, "a connect is pending");
    assert!(!client.is_active(&lp) && lp.is_alive());
    assert_eq!(callbacks.len(), 0, "no callback runs inline");
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("connect", "done")]);
    assert!(client.is_readable(&lp) && client.is_writable(&lp));
    let connected =
        client.connect(&mut lp, address, |_, _, _| panic!("a refused call has called back"));
    assert!(connected.is_err(), "a connection is not connected again");
    client.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A refused connect is reported by the callback, never inline. The handle is then unconnected and
/// can be closed.
pub fn a_refused_connect_is_reported_by_the_callback(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (client, callbacks) = (Tcp::new(&mut lp), Log::default());
    let log = callbacks.clone();
    let begun = client.connect(&mut lp, refused_address(), move |lp, client, result| {
        log.push(refusal(result));
        assert!(!client.is_readable(lp) && !client.is_writable(lp));
        client.close(lp).unwrap();
    });
    begun.unwrap();
    assert_eq!(callbacks.len(), 0, "no callback runs inline");
    finish(lp);
    assert_eq!(callbacks.take(), [ErrorKind::ConnectionRefused]);
    Ok(())
}

/// Writes and a shutdown during a connect wait for the connection, and follow it in order.
pub fn writes_wait_for_the_connection(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (listener, client, callbacks) = (listener(), Tcp::new(&mut lp), Log::default());
    listener.set_nonblocking(false).unwrap();
    let address = listener.local_addr().unwrap();
    client.connect(&mut lp, address, callbacks.ended("connect")).unwrap();
    assert_eq!(refusal(client.try_write(&mut lp, b"x")), ErrorKind::WouldBlock);
    client.write(&mut lp, "hello ", callbacks.written("first")).unwrap();
    client.write(&mut lp, "world", callbacks.written("second")).unwrap();
    client.shutdown(&mut lp, callbacks.ended("shutdown")).unwrap();
    assert_eq!(client.write_queue_size(&lp), 11);
    run_to_the_end(&mut lp);
    let order = ["connect", "first", "second", "shutdown"].map(|name| (name, "done"));
    assert_eq!(callbacks.take(), order);
    client.close(&mut lp).unwrap();
    finish(lp);
    let (mut peer, mut text) = (listener.accept().unwrap().0, String::new());
    peer.set_nonblocking(false).unwrap();
    peer.set_read_timeout(Some(SOON)).unwrap();
    peer.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello world");
    Ok(())
}

/// Writes made during a connect that fails are cancelled after the callback of the connect.
pub fn writes_of_a_failed_connect_are_cancelled(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (client, callbacks) = (Tcp::new(&mut lp), Log::default());
    client.connect(&mut lp, refused_address(), callbacks.ended("connect")).unwrap();
    client.write(&mut lp, "first", callbacks.written("first")).unwrap();
    client.write(&mut lp, "second", callbacks.written("second")).unwrap();
    run_to_the_end(&mut lp);
    let expected = [("connect", "failed"), ("first", "cancelled"), ("second", "cancelled")];
    assert_eq!(callbacks.take(), expected);
    assert_eq!(client.write_queue_size(&lp), 0);
    client.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A close cancels a connect in flight, and the writes behind it. Its own callback is the last.
pub fn a_close_cancels_the_connect(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (listener, client, callbacks) = (listener(), Tcp::new(&mut lp), Log::default());
    let address = listener.local_addr().unwrap();
    client.connect(&mut lp, address, callbacks.ended("connect")).unwrap();
    client.write(&mut lp, "x", callbacks.written("write")).unwrap();
    client.close_with(&mut lp, callbacks.closed("close")).unwrap();
    assert_eq!(callbacks.len(), 0, "no callback runs inline");
    finish(lp);
    let callbacks = callbacks.take();
    assert_eq!(callbacks.len(), 3, "{callbacks:?}");
    // Some kernels connect to their own machine immediately.
    assert!(callbacks[0].0 == "connect" && callbacks[0].1 != "failed", "{callbacks:?}");
    assert_eq!(callbacks[1..], [("write", "cancelled"), ("close", "closed")]);
    Ok(())
}

/// An unanswered connect waits, and the loop blocks, until the handle is closed. A kernel without a
/// route fails the call, and the handle is unchanged.
pub fn an_unanswered_connect_can_be_cancelled(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (client, callbacks) = (Tcp::new(&mut lp), Log::default());
    // Reserved for documentation: no machine answers.
    let nowhere = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9));
    match client.connect(&mut lp, nowhere, callbacks.ended("connect")) {
        Err(_) => {
            assert!(!lp.is_alive(), "no request is left");
            let (server, address) = bound(&mut lp);
            server.listen_without_callback(&mut lp, 1).unwrap();
            server.unreference(&mut lp).unwrap();
            client.connect(&mut lp, address, callbacks.ended("here")).unwrap();
            run_to_the_end(&mut lp);
            assert_eq!(callbacks.take(), [("here", "done")], "the handle is unchanged");
            server.close(&mut lp).unwrap();
            client.close(&mut lp).unwrap();
        }
        Ok(()) => {
            let polls = run_a_moment(&mut lp);
            assert!(polls < 6, "{polls} polls without an event");
            // A network may answer for the address, but not with a connection.
            let answered = callbacks.take();
            assert!(answered.is_empty() || answered == [("connect", "failed")], "{answered:?}");
            client.close_with(&mut lp, callbacks.closed("close")).unwrap();
            run_to_the_end(&mut lp);
            let expected = [("connect", "cancelled"), ("close", "closed")];
            assert_eq!(callbacks.take(), expected[answered.len()..]);
        }
    }
    finish(lp);
    Ok(())
}

/// Hundreds of connects can be cancelled together, before or after they were submitted to the
/// kernel: each calls back with the cancellation, and then its close. The loop may be dropped
/// instead.
pub fn hundreds_of_connects_can_be_cancelled(lab: &Lab) -> Verdict {
    const EACH: usize = 200;
    let nowhere = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9));
    for drops in [false, true] {
        let (mut lp, callbacks) = (new_loop(lab)?, Log::default());
        for begun in [false, true] {
            let clients: Vec<_> = (0..EACH).map(|_| Tcp::new(&mut lp)).collect();
            // A kernel without a route may fail the call.
            let asked = clients.iter().filter(|client| {
                client.connect(&mut lp, nowhere, callbacks.ended("connect")).is_ok()
            });
            let asked = asked.count();
            if begun {
                run(&mut lp, RunMode::NoWait);
            }
            if drops {
                continue;
            }
            for client in clients {
                client.close_with(&mut lp, callbacks.closed("close")).unwrap();
            }
            run_to_the_end(&mut lp);
            let (callbacks, closed) = (callbacks.take(), ("close", "closed"));
            let count = |entry| callbacks.iter().filter(|call| **call == entry).count();
            // A network may answer for the address, but not with a connection.
            let connects = count(("connect", "cancelled")) + count(("connect", "failed"));
            assert_eq!((connects, count(closed), callbacks.len()), (asked, EACH, asked + EACH));
            assert_eq!(callbacks.last(), Some(&closed));
        }
        if drops {
            drop(lp);
            assert!(
                callbacks.take().iter().all(|it| *it == ("connect", "failed")),
                "after the loop"
            );
        } else {
            finish(lp);
        }
    }
    Ok(())
}

/// An address that the socket cannot reach is an error of the call or of the callback.
pub fn an_address_of_another_family_is_an_error(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((client, _), callbacks) = (bound(&mut lp), Log::default());
    let other = SocketAddr::from((Ipv6Addr::LOCALHOST, 9));
    match client.connect(&mut lp, other, callbacks.ended("connect")) {
        Err(_) => assert!(!lp.is_alive(), "no request is left"),
        Ok(()) => {
            run_to_the_end(&mut lp);
            assert_eq!(callbacks.take(), [("connect", "failed")]);
        }
    }
    assert!(!client.is_readable(&lp) && !client.is_writable(&lp));
    client.close(&mut lp).unwrap();
    finish(lp);
    assert_eq!(callbacks.len(), 0, "one error only");
    Ok(())
}

/// Connecting to the unspecified address connects to this machine.
pub fn the_unspecified_address_is_this_machine(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (server, address) = bound(&mut lp);
    server.listen_without_callback(&mut lp, 8).unwrap();
    server.unreference(&mut lp).unwrap();
    let (client, callbacks) = (Tcp::new(&mut lp), Log::default());
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
    client.connect(&mut lp, any, callbacks.ended("connect")).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("connect", "done")]);
    server.close(&mut lp).unwrap();
    client.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Many concurrent connects and accepts, by callbacks and by requests, on two listeners: each
/// client gets exactly one server.
pub fn every_connect_meets_one_accept(lab: &Lab) -> Verdict {
    const CLIENTS: u8 = 40;
    let mut lp = new_loop(lab)?;
    let got = Log::default();
    let greet = got.clone();
    let serve = move |lp: &mut crate::Loop, peer: Tcp| {
        let got = greet.clone();
        peer.read(lp, vec![0; 8], move |lp, peer, count, buffer| {
            got.extend(buffer[..count.unwrap()].iter().copied());
            peer.close(lp).unwrap();
        })
        .unwrap();
    };
    let (one, first) = bound(&mut lp);
    let called = serve.clone();
    one.listen(&mut lp, 64, move |lp, one, _| {
        let peer = one.accept(lp).unwrap();
        called(lp, peer);
    })
    .unwrap();
    let (other, second) = bound(&mut lp);
    other.listen_without_callback(&mut lp, 64).unwrap();
    for _ in 0..CLIENTS / 2 {
        let serve = serve.clone();
        other.accept_with(&mut lp, move |lp, _, peer| serve(lp, peer.unwrap())).unwrap();
    }
    for number in 0..CLIENTS {
        let client = Tcp::new(&mut lp);
        let address = if number % 2 == 0 { first } else { second };
        client
            .connect(&mut lp, address, move |lp, client, result| {
                result.unwrap();
                let end = |lp: &mut _, client: Tcp, result, _| {
                    assert_eq!(outcome(&result), "done");
                    client.close(lp).unwrap();
                };
                client.write(lp, vec![number], end).unwrap();
            })
            .unwrap();
    }
    while got.len() < usize::from(CLIENTS) {
        run(&mut lp, RunMode::Once);
    }
    one.close(&mut lp).unwrap();
    other.close(&mut lp).unwrap();
    finish(lp);
    let mut got = got.take();
    got.sort_unstable();
    assert_eq!(got, (0..CLIENTS).collect::<Vec<_>>(), "each once");
    Ok(())
}
