//! Connecting and accepting.

use std::io::ErrorKind;

use uv_core::{Handle, Listener, Pipe, Stream};

use crate::support::datagrams::code::EALREADY;
use crate::support::datagrams::refused;
use crate::support::loops::run_to_the_end;
use crate::support::pipes::{Name, bound_to, one_echo, piping_loop, read_all};
use crate::support::streams::{echo, finish, outcome, refusal, run_until};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// A connect is a request: it keeps the loop alive, does not make its handle active, calls back
/// later, and only one may be in flight. A connected pipe cannot be connected again.
pub fn connecting_is_a_request(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (name, callbacks) = (Name::new(), Log::default());
    let (server, client) = (bound_to(&mut lp, &name), Pipe::new(&mut lp));
    server.listen_without_callback(&mut lp, 8).unwrap();
    server.unreference(&mut lp).unwrap();
    client.unreference(&mut lp).unwrap();
    client.connect(&mut lp, &name, callbacks.ended("connect")).unwrap();
    let second = client.connect(&mut lp, &name, |_, _, _| panic!("a refused call has called back"));
    refused(second, EALREADY, "a connect is pending");
    assert!(!client.is_active(&lp) && lp.is_alive());
    assert_eq!(callbacks.len(), 0, "no callback runs inline");
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("connect", "done")]);
    assert!(client.is_readable(&lp) && client.is_writable(&lp));
    let again = client.connect(&mut lp, &name, |_, _, _| panic!("a refused call has called back"));
    assert!(again.is_err(), "a connection is not connected again");
    client.close(&mut lp).unwrap();
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A failed connect is reported by the callback, never inline, for an unknown name and for a path
/// without a listener. The handle can try again.
pub fn a_failed_connect_is_reported_by_the_callback(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (name, client, callbacks) = (Name::new(), Pipe::new(&mut lp), Log::default());
    let attempt = |lp: &mut crate::Loop| {
        let log = callbacks.clone();
        let begun = client.connect(lp, &name, move |lp, client, result| {
            log.push(result.map_err(|error| error.kind()));
            assert_eq!(client.is_writable(lp), client.is_readable(lp));
        });
        begun.expect("every error is reported by the callback");
        assert_eq!(callbacks.len(), 0, "no callback runs inline");
        run_to_the_end(lp);
        callbacks.take().pop().expect("a callback")
    };
    assert_eq!(attempt(&mut lp), Err(ErrorKind::NotFound));
    assert!(!client.is_readable(&lp) && !client.is_writable(&lp));
    if cfg!(unix) {
        // A socket without a listener.
        let (lazy, file) = (bound_to(&mut lp, &name), name.as_ref());
        assert_eq!(attempt(&mut lp), Err(ErrorKind::ConnectionRefused));
        lazy.close(&mut lp).unwrap();
        std::fs::write(file, "no socket").unwrap();
        assert!(attempt(&mut lp).is_err());
        std::fs::remove_file(file).unwrap();
    }
    let server = bound_to(&mut lp, &name);
    server.listen_without_callback(&mut lp, 8).unwrap();
    server.unreference(&mut lp).unwrap();
    assert_eq!(attempt(&mut lp), Ok(()), "it can try again");
    server.close(&mut lp).unwrap();
    client.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Writes and a shutdown during a connect wait for the connection and follow it in order. If the
/// connect fails, they are cancelled.
pub fn writes_wait_for_the_connection(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (name, callbacks, all) = (Name::new(), Log::default(), Log::default());
    let server = bound_to(&mut lp, &name);
    let read = all.clone();
    server.listen_without_callback(&mut lp, 8).unwrap();
    server
        .accept_with(&mut lp, move |lp, server, peer| {
            read_all(lp, peer.unwrap(), &read);
            server.close(lp).unwrap();
        })
        .unwrap();
    let client = Pipe::new(&mut lp);
    client.connect(&mut lp, &name, callbacks.ended("connect")).unwrap();
    assert_eq!(refusal(client.try_write(&mut lp, b"x")), ErrorKind::WouldBlock);
    client.write(&mut lp, "hello ", callbacks.written("one")).unwrap();
    client.write(&mut lp, "world", callbacks.written("two")).unwrap();
    client.shutdown(&mut lp, callbacks.ended("shutdown")).unwrap();
    assert_eq!(client.write_queue_size(&lp), 11);
    run_until(&mut lp, "the shutdown", |_| callbacks.len() == 4);
    let expected = ["connect", "one", "two", "shutdown"].map(|name| (name, "done"));
    assert_eq!(callbacks.take(), expected);
    run_until(&mut lp, "all of it", |_| all.len() == 1);
    assert_eq!(all.take(), [b"hello world"]);
    client.close(&mut lp).unwrap();

    let lonely = Pipe::new(&mut lp);
    lonely.connect(&mut lp, Name::new(), callbacks.ended("connect")).unwrap();
    lonely.write(&mut lp, "lost", callbacks.written("write")).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("connect", "failed"), ("write", "cancelled")]);
    lonely.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A close during a connect cancels the connect, and the writes behind it, before its own callback.
pub fn a_close_cancels_the_connect(lab: &Lab) -> Verdict {
    let mut lp = piping_loop(lab)?;
    let (name, callbacks) = (Name::new(), Log::default());
    let server = bound_to(&mut lp, &name);
    server.listen_without_callback(&mut lp, 8).unwrap();
    let client = Pipe::new(&mut lp);
    client.connect(&mut lp, &name, callbacks.ended("connect")).unwrap();
    client.write(&mut lp, "never", callbacks.written("write")).unwrap();
    client.close_with(&mut lp, callbacks.closed("close")).unwrap();
    server.close(&mut lp).unwrap();
    finish(lp);
    let expected = [("connect", "cancelled"), ("write", "cancelled"), ("close", "closed")];
    assert_eq!(callbacks.take(), expected);
    Ok(())
}

/// Connections reach the callback one at a time, and accept requests in order, before the callback.
pub fn connections_are_accepted_in_order(lab: &Lab) -> Verdict {
    const CLIENTS: u8 = 12;
    let mut lp = piping_loop(lab)?;
    let (name, got) = (Name::new(), Log::default());
    let server = bound_to(&mut lp, &name);
    let greet = |how: &'static str, lp: &mut crate::Loop, peer: Pipe, got: &Log<_>| {
        let got = got.clone();
        peer.read(lp, vec![0; 8], move |lp, peer, count, buffer| {
            got.push((how, buffer[..count.unwrap()].to_vec()));
            peer.close(lp).unwrap();
        })
        .unwrap();
    };
    let note = got.clone();
    server
        .listen(&mut lp, 64, move |lp, server, result| {
            assert_eq!(outcome(&result), "done");
            let peer = server.accept(lp).unwrap();
            assert_eq!(refusal(server.accept(lp)), ErrorKind::WouldBlock, "one at a time");
            greet("called", lp, peer, &note);
        })
        .unwrap();
    for _ in 0..2 {
        let note = got.clone();
        server
            .accept_with(&mut lp, move |lp, _, peer| greet("asked", lp, peer.unwrap(), &note))
            .unwrap();
    }
    for number in 0..CLIENTS {
        let client = Pipe::new(&mut lp);
        client.connect(&mut lp, &name, |_, _, result| result.unwrap()).unwrap();
        let sent = client.write(&mut lp, vec![number], |lp, client, result, _| {
            result.unwrap();
            client.read_start(lp, |lp, client, _| client.close(lp).unwrap()).unwrap();
        });
        sent.unwrap();
    }
    run_until(&mut lp, "all clients", |_| got.len() == usize::from(CLIENTS));
    let got = got.take();
    assert_eq!(got.iter().filter(|(how, _)| *how == "asked").count(), 2);
    let mut numbers: Vec<_> = got.into_iter().flat_map(|(_, bytes)| bytes).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..CLIENTS).collect::<Vec<_>>(), "each once");
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// With a full backlog a connect fails or waits, and affects no other client: earlier ones are
/// served.
pub fn a_full_backlog_is_reported(lab: &Lab) -> Verdict {
    const CLIENTS: usize = 20;
    let mut lp = piping_loop(lab)?;
    let (name, callbacks) = (Name::new(), Log::default());
    let server = bound_to(&mut lp, &name);
    server.listen_without_callback(&mut lp, 2).unwrap();
    server.unreference(&mut lp).unwrap();
    let clients: Vec<_> = (0..CLIENTS).map(|_| Pipe::new(&mut lp)).collect();
    for client in &clients {
        client.connect(&mut lp, &name, callbacks.ended("connect")).unwrap();
    }
    // Connects pending in the kernel stay so until they are accepted, or closed.
    run_until(&mut lp, "a connection", |_| callbacks.len() > 0);
    let before = callbacks.take();
    assert!(before.contains(&("connect", "done")), "{before:?}");
    let ends = Log::default();
    echo(&mut lp, server, &ends);
    for client in clients {
        client.close(&mut lp).unwrap();
    }
    one_echo(&mut lp, name.as_ref(), "still there");
    assert!(before.len() + callbacks.len() == CLIENTS, "each calls back once");
    server.close(&mut lp).unwrap();
    run_until(&mut lp, "the end of all connections", |lp| lp.walk().len() == 1);
    finish(lp);
    Ok(())
}

/// As many clients as the backlog allows may be pending, all of them connected. The default on
/// Windows is four; zero is refused.
pub fn the_backlog_limits_pending_clients(lab: &Lab) -> Verdict {
    const CLIENTS: usize = 8;
    let mut lp = piping_loop(lab)?;
    let (name, callbacks) = (Name::new(), Log::default());
    let server = bound_to(&mut lp, &name);
    assert_eq!(refusal(server.set_pending_instances(&mut lp, 0)), ErrorKind::InvalidInput);
    server.set_pending_instances(&mut lp, CLIENTS).unwrap();
    server.listen(&mut lp, CLIENTS as u32, |_, _, result| result.unwrap()).unwrap();
    let clients: Vec<_> = (0..CLIENTS).map(|_| Pipe::new(&mut lp)).collect();
    for client in &clients {
        client.connect(&mut lp, &name, callbacks.ended("connect")).unwrap();
    }
    run_until(&mut lp, "all clients", |_| callbacks.len() == CLIENTS);
    assert_eq!(callbacks.take(), [("connect", "done"); CLIENTS]);
    for handle in clients.into_iter().chain([server]) {
        handle.close(&mut lp).unwrap();
    }
    let closing = refusal(server.set_pending_instances(&mut lp, CLIENTS));
    assert_eq!(closing, ErrorKind::InvalidInput);
    finish(lp);
    Ok(())
}
