//! Addresses, options, and existing sockets.

use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use socket2::SockRef;
use uv_core::system::interface_addresses;
use uv_core::{Handle, Keepalive, Listener, Stream, Tcp, TcpBindFlags};

use crate::support::datagrams::code::EBADF;
use crate::support::datagrams::refused;
use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::sources::{listener, tcp_pair};
use crate::support::streams::{
    OVER_STREAM_BUFFERS, any_port, bound, connected, finish, outcome, refusal, run_until,
};
use crate::support::trace::Log;
use crate::support::wine;
use crate::{Lab, Skip, Verdict};

/// Both ends return their own and the peer's address. A handle without a socket or a peer returns
/// an error.
pub fn both_ends_have_both_addresses(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let tcp = Tcp::new(&mut lp);
    refused(tcp.local_addr(&lp), EBADF, "no socket");
    refused(tcp.raw_source(&lp), EBADF, "no socket");
    // Options neither create a socket nor prevent one.
    tcp.set_nodelay(&mut lp, true).unwrap();
    tcp.set_keepalive(&mut lp, Some(Keepalive::after(Duration::from_secs(60)))).unwrap();
    refused(tcp.raw_source(&lp), EBADF, "no socket");
    let (server, address) = bound(&mut lp);
    assert!(address.ip().is_loopback() && address.port() != 0, "{address}");
    assert_eq!(refusal(server.peer_addr(&lp)), ErrorKind::NotConnected, "no peer");
    server.listen_without_callback(&mut lp, 8).unwrap();
    server.unreference(&mut lp).unwrap();
    let accepted = Log::default();
    let log = accepted.clone();
    server.accept_with(&mut lp, move |_, _, peer| log.push(peer.unwrap())).unwrap();
    tcp.connect(&mut lp, address, |_, _, result| result.unwrap()).unwrap();
    run_to_the_end(&mut lp);
    let peer = accepted.take()[0];
    assert_ne!(tcp.raw_source(&lp).unwrap(), peer.raw_source(&lp).unwrap());
    assert_eq!(tcp.peer_addr(&lp).unwrap(), address);
    assert_eq!(peer.local_addr(&lp).unwrap(), address);
    assert_eq!(peer.peer_addr(&lp).unwrap(), tcp.local_addr(&lp).unwrap());
    for handle in [tcp, peer, server] {
        handle.close(&mut lp).unwrap();
    }
    run_to_the_end(&mut lp);
    assert_eq!(refusal(tcp.local_addr(&lp)), ErrorKind::NotFound, "closed");
    assert_eq!(refusal(tcp.peer_addr(&lp)), ErrorKind::NotFound, "closed");
    finish(lp);
    Ok(())
}

/// An address in use is not an error of `bind`, but of its users: immediately of `listen` and
/// `local_addr`, and in the callback of `connect`.
pub fn an_address_in_use_is_reported_by_listen_and_connect(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let taken = listener();
    let (address, tcp) = (taken.local_addr().unwrap(), Tcp::new(&mut lp));
    tcp.bind(&mut lp, address, TcpBindFlags::empty()).unwrap();
    assert_eq!(refusal(tcp.local_addr(&lp)), ErrorKind::AddrInUse);
    assert_eq!(refusal(tcp.listen(&mut lp, 1, |_, _, _| {})), ErrorKind::AddrInUse);
    assert!(!tcp.is_active(&lp), "it does not listen");
    let callbacks = Log::default();
    let log = callbacks.clone();
    tcp.connect(&mut lp, address, move |_, _, result| log.push(refusal(result))).unwrap();
    assert_eq!(callbacks.len(), 0, "no callback runs inline");
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [ErrorKind::AddrInUse]);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A socket has one address, of its own family, which must be an address of this machine.
pub fn invalid_addresses_are_refused(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _) = bound(&mut lp);
    let again = tcp.bind(&mut lp, any_port(), TcpBindFlags::empty());
    assert_eq!(refusal(again), ErrorKind::InvalidInput, "bound already");
    let other = Tcp::new(&mut lp);
    let wrong = other.bind(&mut lp, any_port(), TcpBindFlags::IPV6_ONLY);
    assert_eq!(refusal(wrong), ErrorKind::InvalidInput, "an IPv4 address for IPv6 only");
    // Reserved for documentation: no machine has it.
    let foreign = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 0));
    let foreign = other.bind(&mut lp, foreign, TcpBindFlags::empty());
    assert_eq!(refusal(foreign), ErrorKind::AddrNotAvailable);
    other.bind(&mut lp, any_port(), TcpBindFlags::empty()).unwrap();
    tcp.close(&mut lp).unwrap();
    let closing = tcp.bind(&mut lp, any_port(), TcpBindFlags::empty());
    assert_eq!(refusal(closing), ErrorKind::InvalidInput, "closing");
    assert_eq!(
        refusal(tcp.listen_without_callback(&mut lp, 1)),
        ErrorKind::InvalidInput,
        "closing"
    );
    other.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// An IPv6-only listener leaves the port to IPv4. Any other IPv6 listener accepts both.
pub fn ipv6_accepts_ipv4_unless_ipv6_only(lab: &Lab) -> Verdict {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    if TcpListener::bind(any).is_err() {
        return Err(Skip::because("this machine has no IPv6"));
    }
    let mut lp = new_loop(lab)?;
    for flags in [TcpBindFlags::IPV6_ONLY, TcpBindFlags::empty()] {
        let server = Tcp::new(&mut lp);
        server.bind(&mut lp, any, flags).unwrap();
        server.listen_without_callback(&mut lp, 8).unwrap();
        server.unreference(&mut lp).unwrap();
        let port = server.local_addr(&lp).unwrap().port();
        let four = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        assert_eq!(four.is_ok(), flags.is_empty(), "IPv4 to a listener with {flags:?}");
        let (client, callbacks) = (Tcp::new(&mut lp), Log::default());
        let address = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
        client.connect(&mut lp, address, callbacks.ended("IPv6")).unwrap();
        run_to_the_end(&mut lp);
        assert_eq!(callbacks.take(), [("IPv6", "done")], "with {flags:?}");
        assert_eq!(client.peer_addr(&lp).unwrap(), address);
        server.close(&mut lp).unwrap();
        client.close(&mut lp).unwrap();
    }
    finish(lp);
    Ok(())
}

/// An address can be bound again although connections of its last listener, which closed them
/// first, are in TIME_WAIT.
pub fn an_address_can_be_rebound_immediately(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (server, address) = bound(&mut lp);
    let mut bound = Some(server);
    for round in 0..3 {
        let server = bound.take().unwrap_or_else(|| {
            let server = Tcp::new(&mut lp);
            server.bind(&mut lp, address, TcpBindFlags::empty()).unwrap();
            server
        });
        let listening = server.listen(&mut lp, 8, |lp, server, result| {
            result.unwrap();
            server.accept(lp).unwrap().close(lp).unwrap();
            server.close(lp).unwrap();
        });
        listening.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let mut peer = TcpStream::connect(address).unwrap();
        run_to_the_end(&mut lp);
        assert_eq!(peer.read(&mut [0]).unwrap(), 0, "the server ends it first");
    }
    finish(lp);
    Ok(())
}

/// Listeners that all set the flag share a port, and each connection reaches one of them.
pub fn listeners_can_share_a_port(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (one, other) = (Tcp::new(&mut lp), Tcp::new(&mut lp));
    match one.bind(&mut lp, any_port(), TcpBindFlags::REUSE_PORT) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return Err(Skip::because(error.to_string()));
        }
        result => result.unwrap(),
    }
    let address = one.local_addr(&lp).unwrap();
    other.bind(&mut lp, address, TcpBindFlags::REUSE_PORT).unwrap();
    let accepted = Log::default();
    for server in [one, other] {
        let log = accepted.clone();
        server
            .listen(&mut lp, 64, move |lp, server, _| {
                server.accept(lp).unwrap().close(lp).unwrap();
                log.push(server);
            })
            .unwrap();
    }
    let peers: Vec<_> = (0..32).map(|_| TcpStream::connect(address).unwrap()).collect();
    run_until(&mut lp, "all connections", |_| accepted.len() == peers.len());
    let accepted = accepted.take();
    assert!(accepted.contains(&one) && accepted.contains(&other), "the kernel distributes them");
    one.close(&mut lp).unwrap();
    other.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Options reach the socket, whether they are set before or after its creation.
pub fn options_reach_the_socket(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (near, _far) = tcp_pair();
    near.set_nodelay(false).unwrap();
    let same = near.try_clone().unwrap();
    let seen = SockRef::from(&same);
    let (tcp, lp) = (Tcp::new(&mut lp), &mut lp);
    let minute = Some(Keepalive::after(Duration::from_secs(60)));
    tcp.set_nodelay(lp, true).unwrap();
    tcp.set_keepalive(lp, minute).unwrap();
    tcp.set_simultaneous_accepts(lp, true).unwrap();
    tcp.open(lp, near).unwrap();
    assert!(same.nodelay().unwrap(), "set before");
    assert!(seen.keepalive().unwrap(), "set before");
    #[cfg(target_os = "linux")]
    {
        assert_eq!(seen.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
        assert_eq!(seen.tcp_keepalive_interval().unwrap(), Duration::from_secs(1));
        assert_eq!(seen.tcp_keepalive_retries().unwrap(), 10);
    }
    tcp.set_nodelay(lp, false).unwrap();
    tcp.set_keepalive(lp, None).unwrap();
    assert!(!same.nodelay().unwrap(), "set later");
    assert!(!seen.keepalive().unwrap(), "set later");
    let zero = Some(Keepalive::after(Duration::ZERO));
    assert_eq!(refusal(tcp.set_keepalive(lp, zero)), ErrorKind::InvalidInput);
    tcp.close(lp).unwrap();
    assert_eq!(refusal(tcp.set_nodelay(lp, true)), ErrorKind::InvalidInput);
    run_to_the_end(lp);
    assert_eq!(refusal(tcp.set_keepalive(lp, minute)), ErrorKind::NotFound);
    assert_eq!(refusal(tcp.set_simultaneous_accepts(lp, true)), ErrorKind::NotFound);
    Ok(())
}

/// A handle takes one socket, connected or listening, which becomes non-blocking.
pub fn a_handle_takes_one_socket(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let existing = TcpListener::bind(any_port()).unwrap();
    let address = existing.local_addr().unwrap();
    let server = Tcp::new(&mut lp);
    server.open(&mut lp, existing).unwrap();
    assert_eq!(server.local_addr(&lp).unwrap(), address);
    let (second, mut peer) = tcp_pair();
    assert_eq!(refusal(server.open(&mut lp, second)), ErrorKind::ResourceBusy);
    assert_eq!(peer.read(&mut [0]).ok(), Some(0), "the socket is closed then");
    server.listen_without_callback(&mut lp, 8).unwrap();
    // A blocking socket would not return here.
    assert_eq!(refusal(server.accept(&mut lp)), ErrorKind::WouldBlock);
    let _client = TcpStream::connect(address).unwrap();
    let callbacks = Log::default();
    let log = callbacks.clone();
    let accept = server.accept_with(&mut lp, move |lp, server, peer| {
        log.push(outcome(&peer));
        peer.unwrap().close(lp).unwrap();
        server.close(lp).unwrap();
    });
    accept.unwrap();
    finish(lp);
    assert_eq!(callbacks.take(), ["done"]);
    Ok(())
}

/// A pair is two streams connected to each other.
pub fn pairs_are_connected(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (one, other) = Tcp::pair(&mut lp).unwrap();
    let callbacks = Log::default();
    for (from, to, name) in [(one, other, "there"), (other, one, "back")] {
        let log = callbacks.clone();
        to.read_start(&mut lp, move |lp, to, bytes| {
            log.extend(bytes.unwrap().iter().copied());
            if log.len() == name.len() {
                to.read_stop(lp).unwrap();
            }
        })
        .unwrap();
        from.write(&mut lp, name, |_, _, result, _| result.unwrap()).unwrap();
        run_to_the_end(&mut lp);
        assert_eq!(callbacks.take(), name.as_bytes(), "from one end to the other");
    }
    one.close(&mut lp).unwrap();
    other.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// `close_reset` sends a reset to the peer. It cancels queued requests before its callback, and is
/// refused during a shutdown and without a socket.
pub fn close_reset_sends_a_reset(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    let callbacks = Log::default();
    tcp.write(&mut lp, vec![1; OVER_STREAM_BUFFERS], callbacks.written("write")).unwrap();
    tcp.close_reset_with(&mut lp, callbacks.closed("close")).unwrap();
    assert_eq!(refusal(tcp.close_reset(&mut lp)), ErrorKind::InvalidInput, "closing");
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("write", "cancelled"), ("close", "closed")]);
    let end = peer.read_to_end(&mut Vec::new());
    let wine = wine::collects_errors() && end.is_ok();
    assert!(wine || refusal(end) == ErrorKind::ConnectionReset);

    let (tcp, _peer) = connected(&mut lp);
    tcp.shutdown(&mut lp, callbacks.ended("shutdown")).unwrap();
    assert_eq!(refusal(tcp.close_reset(&mut lp)), ErrorKind::InvalidInput, "shutting down");
    assert!(!tcp.is_closing(&lp));
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("shutdown", "done")]);
    tcp.close_reset(&mut lp).unwrap();
    let fresh = Tcp::new(&mut lp);
    let error = fresh.close_reset(&mut lp).expect_err("there is nothing to reset");
    assert_eq!(error.raw_os_error(), Some(EBADF), "{error}");
    assert!(!fresh.is_closing(&lp));
    fresh.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A link-local address without a scope gets the first interface with such an address: it can be
/// bound, listened on and connected to.
pub fn link_local_addresses_get_a_default_scope(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let own = interface_addresses().unwrap().into_iter().find_map(|own| match own.address {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(ip),
        _ => None,
    });
    let ip = own.ok_or_else(|| Skip::because("this machine has no link-local address"))?;
    let (server, client) = (Tcp::new(&mut lp), Tcp::new(&mut lp));
    server.bind(&mut lp, (ip, 0).into(), TcpBindFlags::empty()).unwrap();
    let bound = server.local_addr(&lp).unwrap();
    assert!(matches!(bound, SocketAddr::V6(bound) if bound.scope_id() != 0), "{bound}");
    server.listen_without_callback(&mut lp, 1).unwrap();
    server.unreference(&mut lp).unwrap();
    let callbacks = Log::default();
    client.connect(&mut lp, (ip, bound.port()).into(), callbacks.ended("connect")).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [("connect", "done")]);
    assert_eq!(client.peer_addr(&lp).unwrap(), bound);
    server.close(&mut lp).unwrap();
    client.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}
