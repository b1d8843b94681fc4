//! IPv6, lost peers, and sockets that other code has shut down.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv6Addr, Shutdown, TcpListener};
use std::time::Instant;

use uv_core::{Handle, Stream, Tcp, TcpBindFlags};

use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::observe::SOON;
use crate::support::sources::{reset, tcp_pair};
use crate::support::streams::{connected, echo, finish, one_echo, opened};
use crate::support::trace::Log;
use crate::{Lab, Skip, Verdict};

/// A listener and a client over IPv6 exchange bytes, and know each other's addresses.
pub fn bytes_are_echoed_over_ipv6(lab: &Lab) -> Verdict {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        return Err(Skip::because("this machine has no IPv6"));
    }
    let (mut lp, server_ends) = (new_loop(lab)?, Log::default());
    let server = Tcp::new(&mut lp);
    let any = (Ipv6Addr::LOCALHOST, 0).into();
    server.bind(&mut lp, any, TcpBindFlags::empty()).expect("a port to bind");
    let address = server.local_addr(&lp).expect("its address");
    assert!(address.is_ipv6() && address.port() > 0);
    echo(&mut lp, server, &server_ends);
    one_echo::<Tcp>(&mut lp, "over IPv6", |lp, asks| Tcp::new(lp).connect(lp, address, asks));
    server.close(&mut lp).expect("an open handle");
    finish(lp);
    Ok(())
}

/// `try_write` to a peer that has reset the connection fails without a `SIGPIPE`, and the handle can
/// be closed.
pub fn try_write_to_a_lost_peer_fails(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, peer) = connected(&mut lp);
    assert_eq!(tcp.try_write(&mut lp, b"unread").expect("room"), 6);
    reset(peer);
    #[cfg(unix)]
    let signals = crate::support::signals::BrokenPipes::watch();
    let started = Instant::now();
    let error = loop {
        match tcp.try_write(&mut lp, b"more") {
            Ok(_) => assert!(started.elapsed() < SOON, "the reset arrives"),
            Err(error) => break error,
        }
    };
    let kind = error.kind();
    let lost = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::ConnectionAborted];
    assert!(lost.contains(&kind), "{error}");
    assert!(tcp.try_write(&mut lp, b"again").is_err(), "it stays lost");
    let two = [b"two".as_slice(), b"pieces"].map(std::io::IoSlice::new);
    assert!(tcp.try_write_vectored(&mut lp, &two).is_err(), "of any kind");
    #[cfg(unix)]
    assert!(!signals.seen(), "SIGPIPE");
    tcp.close(&mut lp).expect("an open handle");
    finish(lp);
    Ok(())
}

/// `close_reset` closes a socket that other code has shut down, in either direction.
pub fn close_reset_after_a_shutdown_of_the_socket(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        let (near, mut far) = tcp_pair();
        far.set_nonblocking(false).expect("a blocking stream");
        far.set_read_timeout(Some(SOON)).expect("SO_RCVTIMEO");
        let other = near.try_clone().expect("another descriptor");
        let (tcp, callbacks) = (opened(&mut lp, near), Log::default());
        other.shutdown(how).expect("a shutdown");
        drop(other);
        tcp.close_reset_with(&mut lp, callbacks.closed("close")).expect("a connected socket");
        run_to_the_end(&mut lp);
        assert_eq!(callbacks.take(), [("close", "closed")], "after {how:?}");
        // The end of file of the shutdown, or the reset.
        let end = far.read(&mut [0]);
        assert!(!matches!(end, Ok(1..)), "{end:?} after {how:?}");
        let _ = far.write(b"x");
    }
    finish(lp);
    Ok(())
}

/// `close_reset` resets the connection after a shutdown that has called back as well: the peer, which
/// has read the end of file, gets an error though it sends nothing.
pub fn close_reset_after_a_shutdown_sends_a_reset(lab: &Lab) -> Verdict {
    if cfg!(windows) {
        return Err(Skip::because("Windows reports the reset to the next send only"));
    }
    let mut lp = new_loop(lab)?;
    let ((tcp, mut peer), callbacks) = (connected(&mut lp), Log::default());
    tcp.shutdown(&mut lp, callbacks.ended("shutdown")).expect("a connection");
    run_to_the_end(&mut lp);
    assert_eq!(peer.read(&mut [0]).expect("the end of file"), 0);
    tcp.close_reset_with(&mut lp, callbacks.closed("close")).expect("a connected socket");
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("shutdown", "done"), ("close", "closed")]);
    let started = Instant::now();
    while peer.take_error().expect("SO_ERROR").is_none() {
        assert!(started.elapsed() < SOON, "the connection was closed without a reset");
        std::thread::yield_now();
    }
    finish(lp);
    Ok(())
}
