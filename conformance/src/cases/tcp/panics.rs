//! Callbacks of listeners and connects that panic: the other requests still call back.

use std::io::Read as _;
use std::net::TcpStream;

use uv_core::{Handle, Listener, RunMode, Stream, Tcp};

use crate::support::loops::{new_loop, panic_on_purpose, run_to_the_end, unwinds};
use crate::support::observe::SOON;
use crate::support::sources::{listener, refused_address};
use crate::support::streams::{bound, finish, run_a_moment, run_until};
use crate::support::trace::Log;
use crate::{Lab, Loop, Verdict};

/// An accept request that panics leaves the later ones, which get the next connections.
pub fn a_panic_in_an_accept_keeps_later_accepts(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), callbacks) = (bound(&mut lp), Log::default());
    server.listen_without_callback(&mut lp, 16).unwrap();
    server.unreference(&mut lp).unwrap();
    for number in 0..5 {
        let log = callbacks.clone();
        let request = server.accept_with(&mut lp, move |lp, _, accepted| {
            log.push(number);
            accepted.unwrap().close(lp).unwrap();
            if number % 2 == 1 {
                panic_on_purpose();
            }
        });
        request.unwrap();
    }
    let _peers = [(); 5].map(|()| TcpStream::connect(address).unwrap());
    unwinds(&mut lp, RunMode::Default);
    unwinds(&mut lp, RunMode::Default);
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [0, 1, 2, 3, 4], "all call back in order");
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A listener whose callback panics is not called again, and loses no connection: it reports the
/// rest when it listens again.
pub fn a_panic_in_a_listener_loses_no_connection(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), callbacks) = (bound(&mut lp), Log::default());
    let listen = |lp: &mut Loop, panics: bool| {
        let log = callbacks.clone();
        let listening = server.listen(lp, 16, move |lp, server, result| {
            result.unwrap();
            let peer = server.accept(lp).unwrap();
            log.push(peer.peer_addr(lp).unwrap());
            peer.close(lp).unwrap();
            if panics {
                panic_on_purpose();
            }
        });
        listening.unwrap();
    };
    listen(&mut lp, true);
    let peers = [(); 5].map(|()| TcpStream::connect(address).unwrap());
    unwinds(&mut lp, RunMode::Default);
    listen(&mut lp, true);
    unwinds(&mut lp, RunMode::Default);
    run_a_moment(&mut lp);
    assert_eq!(callbacks.len(), 2, "one for each panic");
    listen(&mut lp, false);
    run_until(&mut lp, "the rest", |_| callbacks.len() == peers.len());
    assert_eq!(
        callbacks.take(),
        peers.map(|peer| peer.local_addr().unwrap()),
        "each once, in order"
    );
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A connect whose callback panics is still connected: the writes behind it follow. If it has
/// failed, they are cancelled.
pub fn a_panic_in_a_connect_keeps_the_writes(lab: &Lab) -> Verdict {
    for connects in [true, false] {
        let mut lp = new_loop(lab)?;
        let (listener, client, callbacks) = (listener(), Tcp::new(&mut lp), Log::default());
        listener.set_nonblocking(false).unwrap();
        let address = match connects {
            true => listener.local_addr().unwrap(),
            false => refused_address(),
        };
        client.connect(&mut lp, address, |_, _, _| panic_on_purpose()).unwrap();
        client.write(&mut lp, "hello ", callbacks.written("first")).unwrap();
        client.write(&mut lp, "world", callbacks.written("second")).unwrap();
        client.shutdown(&mut lp, callbacks.ended("shutdown")).unwrap();
        unwinds(&mut lp, RunMode::Default);
        assert_eq!(callbacks.len(), 0, "the connect calls back first");
        run_to_the_end(&mut lp);
        let how = if connects { "done" } else { "cancelled" };
        let callbacks = callbacks.take();
        assert_eq!(callbacks[..2], [("first", how), ("second", how)]);
        assert_eq!(callbacks.len(), 3, "the shutdown as well: {callbacks:?}");
        client.close(&mut lp).unwrap();
        finish(lp);
        if connects {
            let (mut peer, mut text) = (listener.accept().unwrap().0, String::new());
            peer.set_nonblocking(false).unwrap();
            peer.set_read_timeout(Some(SOON)).unwrap();
            peer.read_to_string(&mut text).unwrap();
            assert_eq!(text, "hello world");
        }
    }
    Ok(())
}
