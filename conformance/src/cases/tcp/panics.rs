//! Callbacks of listeners and connects that panic: what else was asked for is told all the same.

use std::io::Read as _;
use std::net::TcpStream;

use poll_core::Backend;
use uv_core::{Handle, Loop, RunMode, Stream, Tcp};

use crate::support::loops::{new_loop, panic_on_purpose, run_to_the_end, unwinds};
use crate::support::observe::SOON;
use crate::support::sources::{listener, refused_address};
use crate::support::streams::{bound, finish, run_a_moment, run_until};
use crate::support::trace::Log;
use crate::{Lab, Verdict};

/// A request to accept that panics leaves those behind it, which get the next connections.
pub fn a_panic_in_accepting_leaves_the_next<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), told) = (bound(&mut lp), Log::default());
    server.listen_quietly(&mut lp, 16).unwrap();
    server.unreference(&mut lp).unwrap();
    for number in 0..5 {
        let tell = told.clone();
        let request = server.accept_with(&mut lp, move |lp, _, accepted| {
            tell.push(number);
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
    assert_eq!(told.take(), [0, 1, 2, 3, 4], "all are told, in order");
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A listener whose callback panics is told of no more, and loses nobody: the rest is told of
/// when it listens again.
pub fn a_panic_in_listening_loses_nobody<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((server, address), told) = (bound(&mut lp), Log::default());
    let listen = |lp: &mut Loop<T>, panics: bool| {
        let tell = told.clone();
        let listening = server.listen(lp, 16, move |lp, server, result| {
            result.unwrap();
            let peer = server.accept(lp).unwrap();
            tell.push(peer.peer_addr(lp).unwrap());
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
    assert_eq!(told.len(), 2, "one for each panic");
    listen(&mut lp, false);
    run_until(&mut lp, "the rest", |_| told.len() == peers.len());
    assert_eq!(told.take(), peers.map(|peer| peer.local_addr().unwrap()), "each once, in order");
    server.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A connect that panics has connected all the same: what was written meanwhile follows. If it
/// has failed, that is cancelled.
pub fn a_panic_in_a_connect_leaves_the_writes<T: Backend>(lab: &Lab<T>) -> Verdict {
    for connects in [true, false] {
        let mut lp = new_loop(lab)?;
        let (listener, client, told) = (listener(), Tcp::new(&mut lp), Log::default());
        listener.set_nonblocking(false).unwrap();
        let address = match connects {
            true => listener.local_addr().unwrap(),
            false => refused_address(),
        };
        client.connect(&mut lp, address, |_, _, _| panic_on_purpose()).unwrap();
        client.write(&mut lp, "hello ", told.written("first")).unwrap();
        client.write(&mut lp, "world", told.written("second")).unwrap();
        client.shutdown(&mut lp, told.ended("shutdown")).unwrap();
        unwinds(&mut lp, RunMode::Default);
        assert_eq!(told.len(), 0, "the connect is told first");
        run_to_the_end(&mut lp);
        let how = if connects { "done" } else { "cancelled" };
        let told = told.take();
        assert_eq!(told[..2], [("first", how), ("second", how)]);
        assert_eq!(told.len(), 3, "the shutdown as well: {told:?}");
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
