//! Connecting.

use std::io::{ErrorKind, Read as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use poll_core::Backend;
use uv_core::{Handle, RunMode, Stream, Tcp};

use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::observe::SOON;
use crate::support::sources::{listener, refused_address};
use crate::support::streams::{bound, finish, outcome, refusal, run_a_moment};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// A connect is a request: it keeps the loop alive and does not make its handle active. It
/// is told later, and one at a time.
pub fn connecting_is_a_request<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (listener, client, told) = (listener(), Tcp::new(&mut lp), Log::default());
    let address = listener.local_addr().unwrap();
    client.unreference(&mut lp).unwrap();
    client.connect(&mut lp, address, told.ended("connect")).unwrap();
    let second = client.connect(&mut lp, address, |_, _, _| panic!("told of a refused call"));
    assert_eq!(refusal(second), ErrorKind::AlreadyExists);
    assert!(!client.is_active(&lp) && lp.alive());
    assert_eq!(told.len(), 0, "nothing is told inline");
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("connect", "done")]);
    assert!(client.is_readable(&lp) && client.is_writable(&lp));
    let connected = client.connect(&mut lp, address, |_, _, _| panic!("told of a refused call"));
    assert!(connected.is_err(), "a connection is not connected again");
    client.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// That nobody listens is told by the callback, never inline. The handle is not connected
/// then, and can be closed.
pub fn nobody_listening_is_told_by_the_callback<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (client, told) = (Tcp::new(&mut lp), Log::default());
    let tell = told.clone();
    let begun = client.connect(&mut lp, refused_address(), move |lp, client, result| {
        tell.push(refusal(result));
        assert!(!client.is_readable(lp) && !client.is_writable(lp));
        client.close(lp).unwrap();
    });
    begun.unwrap();
    assert_eq!(told.len(), 0, "nothing is told inline");
    finish(lp);
    assert_eq!(told.take(), [ErrorKind::ConnectionRefused]);
    Ok(())
}

/// What is written and shut down while connecting waits for the connection, and follows it
/// in order.
pub fn writes_wait_for_the_connection<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (listener, client, told) = (listener(), Tcp::new(&mut lp), Log::default());
    listener.set_nonblocking(false).unwrap();
    let address = listener.local_addr().unwrap();
    client.connect(&mut lp, address, told.ended("connect")).unwrap();
    assert_eq!(refusal(client.try_write(&mut lp, b"x")), ErrorKind::WouldBlock);
    client.write(&mut lp, "hello ", told.written("first")).unwrap();
    client.write(&mut lp, "world", told.written("second")).unwrap();
    client.shutdown(&mut lp, told.ended("shutdown")).unwrap();
    assert_eq!(client.write_queue_size(&lp), 11);
    run_to_the_end(&mut lp);
    let order = ["connect", "first", "second", "shutdown"].map(|name| (name, "done"));
    assert_eq!(told.take(), order);
    client.close(&mut lp).unwrap();
    finish(lp);
    let (mut peer, mut text) = (listener.accept().unwrap().0, String::new());
    peer.set_nonblocking(false).unwrap();
    peer.set_read_timeout(Some(SOON)).unwrap();
    peer.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello world");
    Ok(())
}

/// What was written while connecting is cancelled if there is no connection, after the
/// connect has told so.
pub fn writes_without_a_connection_are_cancelled<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (client, told) = (Tcp::new(&mut lp), Log::default());
    client.connect(&mut lp, refused_address(), told.ended("connect")).unwrap();
    client.write(&mut lp, "first", told.written("first")).unwrap();
    client.write(&mut lp, "second", told.written("second")).unwrap();
    run_to_the_end(&mut lp);
    let expected = [("connect", "failed"), ("first", "cancelled"), ("second", "cancelled")];
    assert_eq!(told.take(), expected);
    assert_eq!(client.write_queue_size(&lp), 0);
    client.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A close cancels a connect that is under way, and what was written meanwhile; its own
/// callback is the last.
pub fn a_close_cancels_the_connect<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (listener, client, told) = (listener(), Tcp::new(&mut lp), Log::default());
    let address = listener.local_addr().unwrap();
    client.connect(&mut lp, address, told.ended("connect")).unwrap();
    client.write(&mut lp, "x", told.written("write")).unwrap();
    client.close_with(&mut lp, told.closed("close")).unwrap();
    assert_eq!(told.len(), 0, "nothing is told inline");
    finish(lp);
    let told = told.take();
    assert_eq!(told.len(), 3, "{told:?}");
    // Some kernels connect to their own machine at once.
    assert!(told[0].0 == "connect" && told[0].1 != "failed", "{told:?}");
    assert_eq!(told[1..], [("write", "cancelled"), ("close", "closed")]);
    Ok(())
}

/// Where no answer comes from, a connect waits, and the loop sleeps, until it is closed. A
/// kernel that knows no way there says so at once, and the handle is as it was.
pub fn a_connect_to_nowhere_can_be_given_up<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (client, told) = (Tcp::new(&mut lp), Log::default());
    // Reserved for documentation: nobody is there.
    let nowhere = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9));
    match client.connect(&mut lp, nowhere, told.ended("connect")) {
        Err(_) => {
            assert!(!lp.alive(), "no request is left");
            let (server, address) = bound(&mut lp);
            server.listen_quietly(&mut lp, 1).unwrap();
            server.unreference(&mut lp).unwrap();
            client.connect(&mut lp, address, told.ended("here")).unwrap();
            run_to_the_end(&mut lp);
            assert_eq!(told.take(), [("here", "done")], "the handle is as it was");
            server.close(&mut lp).unwrap();
            client.close(&mut lp).unwrap();
        }
        Ok(()) => {
            let polls = run_a_moment(&mut lp);
            assert!(polls < 6, "it polled {polls} times though nothing happens");
            // A network may answer for the address, but not by a connection.
            let answered = told.take();
            assert!(answered.is_empty() || answered == [("connect", "failed")], "{answered:?}");
            client.close_with(&mut lp, told.closed("close")).unwrap();
            run_to_the_end(&mut lp);
            let expected = [("connect", "cancelled"), ("close", "closed")];
            assert_eq!(told.take(), expected[answered.len()..]);
        }
    }
    finish(lp);
    Ok(())
}

/// Hundreds of connects can be given up together, before the kernel has heard of them or after:
/// each is told that it was cancelled, then that it is closed. A loop may be dropped instead.
pub fn connects_are_given_up_by_the_hundred<T: Backend>(lab: &Lab<T>) -> Verdict {
    const EACH: usize = 200;
    let nowhere = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 9));
    for drops in [false, true] {
        let (mut lp, told) = (new_loop(lab)?, Log::default());
        for begun in [false, true] {
            let clients: Vec<_> = (0..EACH).map(|_| Tcp::new(&mut lp)).collect();
            // A kernel that knows no way there may say so now.
            let asked = clients
                .iter()
                .filter(|client| client.connect(&mut lp, nowhere, told.ended("connect")).is_ok());
            let asked = asked.count();
            if begun {
                run(&mut lp, RunMode::NoWait);
            }
            if drops {
                continue;
            }
            for client in clients {
                client.close_with(&mut lp, told.closed("close")).unwrap();
            }
            run_to_the_end(&mut lp);
            let (told, closed) = (told.take(), ("close", "closed"));
            let count = |entry| told.iter().filter(|told| **told == entry).count();
            // A network may answer for the address, but not by a connection.
            let connects = count(("connect", "cancelled")) + count(("connect", "failed"));
            assert_eq!((connects, count(closed), told.len()), (asked, EACH, asked + EACH));
            assert_eq!(told.last(), Some(&closed));
        }
        if drops {
            drop(lp);
            assert!(told.take().iter().all(|it| *it == ("connect", "failed")), "after the loop");
        } else {
            finish(lp);
        }
    }
    Ok(())
}

/// An address that the socket cannot reach is an error: of the call, or of the callback.
pub fn an_address_of_another_family_is_an_error<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((client, _), told) = (bound(&mut lp), Log::default());
    let other = SocketAddr::from((Ipv6Addr::LOCALHOST, 9));
    match client.connect(&mut lp, other, told.ended("connect")) {
        Err(_) => assert!(!lp.alive(), "no request is left"),
        Ok(()) => {
            run_to_the_end(&mut lp);
            assert_eq!(told.take(), [("connect", "failed")]);
        }
    }
    assert!(!client.is_readable(&lp) && !client.is_writable(&lp));
    client.close(&mut lp).unwrap();
    finish(lp);
    assert_eq!(told.len(), 0, "told once at the most");
    Ok(())
}

/// Connecting to no address in particular means this machine.
pub fn no_address_in_particular_is_this_machine<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (server, address) = bound(&mut lp);
    server.listen_quietly(&mut lp, 8).unwrap();
    server.unreference(&mut lp).unwrap();
    let (client, told) = (Tcp::new(&mut lp), Log::default());
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
    client.connect(&mut lp, any, told.ended("connect")).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("connect", "done")]);
    server.close(&mut lp).unwrap();
    client.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Many connects and accepts at once, by callbacks and by requests, on two listeners: each
/// client meets one server, and only one.
pub fn connects_and_accepts_meet<T: Backend>(lab: &Lab<T>) -> Verdict {
    const CLIENTS: u8 = 40;
    let mut lp = new_loop(lab)?;
    let got = Log::default();
    let greet = got.clone();
    let serve = move |lp: &mut uv_core::Loop<T>, peer: Tcp| {
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
    other.listen_quietly(&mut lp, 64).unwrap();
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
