//! Addresses, options, and sockets that exist already.

use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use poll_core::Backend;
use socket2::SockRef;
use uv_core::system::interface_addresses;
use uv_core::{BindFlags, Handle, Keepalive, Stream, Tcp};

use crate::support::datagrams::code::EBADF;
use crate::support::datagrams::refused;
use crate::support::loops::{new_loop, run_to_the_end};
use crate::support::sources::{listener, tcp_pair};
use crate::support::streams::{
    TOO_MUCH, any_port, bound, connected, finish, outcome, refusal, run_until,
};
use crate::support::trace::Log;
use crate::support::wine;
use crate::{Lab, Skip, Verdict};

/// Both ends know their own address and the other's; what has no socket or no peer says so.
pub fn addresses_are_known<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let tcp = Tcp::new(&mut lp);
    assert_eq!(refusal(tcp.local_addr(&lp)), ErrorKind::NotConnected, "no socket");
    refused(tcp.descriptor(&lp), EBADF, "no socket");
    // Options do not make one, and are no obstacle to it.
    tcp.set_nodelay(&mut lp, true).unwrap();
    tcp.set_keepalive(&mut lp, Some(Keepalive::after(Duration::from_secs(60)))).unwrap();
    refused(tcp.descriptor(&lp), EBADF, "no socket");
    let (server, address) = bound(&mut lp);
    assert!(address.ip().is_loopback() && address.port() != 0, "{address}");
    assert_eq!(refusal(server.peer_addr(&lp)), ErrorKind::NotConnected, "no peer");
    server.listen_quietly(&mut lp, 8).unwrap();
    server.unreference(&mut lp).unwrap();
    let accepted = Log::default();
    let tell = accepted.clone();
    server.accept_with(&mut lp, move |_, _, peer| tell.push(peer.unwrap())).unwrap();
    tcp.connect(&mut lp, address, |_, _, result| result.unwrap()).unwrap();
    run_to_the_end(&mut lp);
    let peer = accepted.take()[0];
    assert_ne!(tcp.descriptor(&lp).unwrap(), peer.descriptor(&lp).unwrap());
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

/// An address that somebody has is no error of `bind`, but of what needs it: of `listen` and
/// `local_addr` at once, of `connect` by its callback.
pub fn an_address_in_use_is_told_where_it_matters<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let taken = listener();
    let (address, tcp) = (taken.local_addr().unwrap(), Tcp::new(&mut lp));
    tcp.bind(&mut lp, address, BindFlags::empty()).unwrap();
    assert_eq!(refusal(tcp.local_addr(&lp)), ErrorKind::AddrInUse);
    assert_eq!(refusal(tcp.listen(&mut lp, 1, |_, _, _| {})), ErrorKind::AddrInUse);
    assert!(!tcp.is_active(&lp), "it does not listen");
    let told = Log::default();
    let tell = told.clone();
    tcp.connect(&mut lp, address, move |_, _, result| tell.push(refusal(result))).unwrap();
    assert_eq!(told.len(), 0, "nothing is told inline");
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [ErrorKind::AddrInUse]);
    tcp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A socket has one address, of its own family, which this machine must have.
pub fn impossible_addresses_are_refused<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, _) = bound(&mut lp);
    let again = tcp.bind(&mut lp, any_port(), BindFlags::empty());
    assert_eq!(refusal(again), ErrorKind::InvalidInput, "bound already");
    let other = Tcp::new(&mut lp);
    let wrong = other.bind(&mut lp, any_port(), BindFlags::IPV6_ONLY);
    assert_eq!(refusal(wrong), ErrorKind::InvalidInput, "an IPv4 address for IPv6 only");
    // Reserved for documentation: nobody has it.
    let foreign = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 0));
    let foreign = other.bind(&mut lp, foreign, BindFlags::empty());
    assert_eq!(refusal(foreign), ErrorKind::AddrNotAvailable);
    other.bind(&mut lp, any_port(), BindFlags::empty()).unwrap();
    tcp.close(&mut lp).unwrap();
    let closing = tcp.bind(&mut lp, any_port(), BindFlags::empty());
    assert_eq!(refusal(closing), ErrorKind::InvalidInput, "closing");
    assert_eq!(refusal(tcp.listen_quietly(&mut lp, 1)), ErrorKind::InvalidInput, "closing");
    other.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A listener for IPv6 only leaves the port to IPv4; any other takes both.
pub fn ipv6_takes_ipv4_unless_told_not_to<T: Backend>(lab: &Lab<T>) -> Verdict {
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
    if TcpListener::bind(any).is_err() {
        return Err(Skip::because("this machine has no IPv6"));
    }
    let mut lp = new_loop(lab)?;
    for flags in [BindFlags::IPV6_ONLY, BindFlags::empty()] {
        let server = Tcp::new(&mut lp);
        server.bind(&mut lp, any, flags).unwrap();
        server.listen_quietly(&mut lp, 8).unwrap();
        server.unreference(&mut lp).unwrap();
        let port = server.local_addr(&lp).unwrap().port();
        let four = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        assert_eq!(four.is_ok(), flags.is_empty(), "IPv4 to a listener with {flags:?}");
        let (client, told) = (Tcp::new(&mut lp), Log::default());
        let address = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
        client.connect(&mut lp, address, told.ended("IPv6")).unwrap();
        run_to_the_end(&mut lp);
        assert_eq!(told.take(), [("IPv6", "done")], "with {flags:?}");
        assert_eq!(client.peer_addr(&lp).unwrap(), address);
        server.close(&mut lp).unwrap();
        client.close(&mut lp).unwrap();
    }
    finish(lp);
    Ok(())
}

/// An address can be bound again at once, though connections of its last listener, which has closed
/// them first, linger in the kernel.
pub fn an_address_is_free_after_its_connections<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (server, address) = bound(&mut lp);
    let mut bound = Some(server);
    for round in 0..3 {
        let server = bound.take().unwrap_or_else(|| {
            let server = Tcp::new(&mut lp);
            server.bind(&mut lp, address, BindFlags::empty()).unwrap();
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

/// Listeners that say so share a port, and each connection reaches one of them.
pub fn several_share_a_reused_port<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (one, other) = (Tcp::new(&mut lp), Tcp::new(&mut lp));
    match one.bind(&mut lp, any_port(), BindFlags::REUSE_PORT) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return Err(Skip::because(error.to_string()));
        }
        result => result.unwrap(),
    }
    let address = one.local_addr(&lp).unwrap();
    other.bind(&mut lp, address, BindFlags::REUSE_PORT).unwrap();
    let accepted = Log::default();
    for server in [one, other] {
        let tell = accepted.clone();
        server
            .listen(&mut lp, 64, move |lp, server, _| {
                server.accept(lp).unwrap().close(lp).unwrap();
                tell.push(server);
            })
            .unwrap();
    }
    let peers: Vec<_> = (0..32).map(|_| TcpStream::connect(address).unwrap()).collect();
    run_until(&mut lp, "all connections", |_| accepted.len() == peers.len());
    let accepted = accepted.take();
    assert!(accepted.contains(&one) && accepted.contains(&other), "the kernel spreads them");
    one.close(&mut lp).unwrap();
    other.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Options reach the socket, whether they are said before or after there is one.
pub fn options_reach_the_socket<T: Backend>(lab: &Lab<T>) -> Verdict {
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
    assert!(same.nodelay().unwrap(), "said before");
    assert!(seen.keepalive().unwrap(), "said before");
    #[cfg(target_os = "linux")]
    {
        assert_eq!(seen.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
        assert_eq!(seen.tcp_keepalive_interval().unwrap(), Duration::from_secs(1));
        assert_eq!(seen.tcp_keepalive_retries().unwrap(), 10);
    }
    tcp.set_nodelay(lp, false).unwrap();
    tcp.set_keepalive(lp, None).unwrap();
    assert!(!same.nodelay().unwrap(), "said later");
    assert!(!seen.keepalive().unwrap(), "said later");
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
pub fn a_handle_takes_one_socket<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let existing = TcpListener::bind(any_port()).unwrap();
    let address = existing.local_addr().unwrap();
    let server = Tcp::new(&mut lp);
    server.open(&mut lp, existing).unwrap();
    assert_eq!(server.local_addr(&lp).unwrap(), address);
    let (second, mut peer) = tcp_pair();
    assert_eq!(refusal(server.open(&mut lp, second)), ErrorKind::ResourceBusy);
    assert_eq!(peer.read(&mut [0]).ok(), Some(0), "the socket is closed then");
    server.listen_quietly(&mut lp, 8).unwrap();
    // Were it blocking, this would not return.
    assert_eq!(refusal(server.accept(&mut lp)), ErrorKind::WouldBlock);
    let _client = TcpStream::connect(address).unwrap();
    let told = Log::default();
    let tell = told.clone();
    let accept = server.accept_with(&mut lp, move |lp, server, peer| {
        tell.push(outcome(&peer));
        peer.unwrap().close(lp).unwrap();
        server.close(lp).unwrap();
    });
    accept.unwrap();
    finish(lp);
    assert_eq!(told.take(), ["done"]);
    Ok(())
}

/// A pair is two connections that read what the other writes.
pub fn pairs_are_connected<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (one, other) = Tcp::pair(&mut lp).unwrap();
    let told = Log::default();
    for (from, to, name) in [(one, other, "there"), (other, one, "back")] {
        let tell = told.clone();
        to.read(&mut lp, vec![0; 8], move |_, _, count, buffer| {
            tell.push((name, buffer[..count.unwrap()].to_vec()));
        })
        .unwrap();
        from.write(&mut lp, name, |_, _, result, _| result.unwrap()).unwrap();
        run_to_the_end(&mut lp);
        assert_eq!(told.take(), [(name, name.as_bytes().to_vec())]);
    }
    one.close(&mut lp).unwrap();
    other.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// `close_reset` ends a connection so that the peer sees a reset. It cancels what is queued
/// before its callback, and is refused while the connection is being shut down.
pub fn a_reset_is_no_orderly_end<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (tcp, mut peer) = connected(&mut lp);
    let told = Log::default();
    tcp.write(&mut lp, vec![1; TOO_MUCH], told.written("write")).unwrap();
    tcp.close_reset_with(&mut lp, told.closed("close")).unwrap();
    assert_eq!(refusal(tcp.close_reset(&mut lp)), ErrorKind::InvalidInput, "closing");
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("write", "cancelled"), ("close", "closed")]);
    let end = peer.read_to_end(&mut Vec::new());
    let wine = wine::collects_errors() && end.is_ok();
    assert!(wine || refusal(end) == ErrorKind::ConnectionReset);

    let (tcp, _peer) = connected(&mut lp);
    tcp.shutdown(&mut lp, told.ended("shutdown")).unwrap();
    assert_eq!(refusal(tcp.close_reset(&mut lp)), ErrorKind::InvalidInput, "shutting down");
    assert!(!tcp.is_closing(&lp));
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("shutdown", "done")]);
    tcp.close_reset(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A link-local address that does not say on which link is on the first that has one: it can
/// be bound, listened on and connected to.
pub fn link_local_addresses_find_their_link<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let own = interface_addresses().unwrap().into_iter().find_map(|own| match own.address {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(ip),
        _ => None,
    });
    let ip = own.ok_or_else(|| Skip::because("this machine has no link-local address"))?;
    let (server, client) = (Tcp::new(&mut lp), Tcp::new(&mut lp));
    server.bind(&mut lp, (ip, 0).into(), BindFlags::empty()).unwrap();
    let bound = server.local_addr(&lp).unwrap();
    assert!(matches!(bound, SocketAddr::V6(bound) if bound.scope_id() != 0), "{bound}");
    server.listen_quietly(&mut lp, 1).unwrap();
    server.unreference(&mut lp).unwrap();
    let told = Log::default();
    client.connect(&mut lp, (ip, bound.port()).into(), told.ended("connect")).unwrap();
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [("connect", "done")]);
    assert_eq!(client.peer_addr(&lp).unwrap(), bound);
    server.close(&mut lp).unwrap();
    client.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}
