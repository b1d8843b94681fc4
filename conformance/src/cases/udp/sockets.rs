//! Creating, binding, connecting, closing.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use uv_core::{AnyHandle, Datagram, Handle, RunMode, Udp, UdpBindFlags};

use crate::support::datagrams::code::{EALREADY, EBADF, EBUSY, EDESTADDRREQ, EISCONN, ENOTCONN};
use crate::support::datagrams::{bound, finish, outsider, refused, run_out, sent, unused_address};
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::streams::any_port;
use crate::support::trace::Log;
use crate::{Lab, Loop, Skip, Verdict};

/// A handle has no socket until it is bound, or receives, sends or connects, which create one with
/// an address of the system's choice.
pub fn a_socket_is_created_on_demand(lab: &Lab) -> Verdict {
    let (mut lp, (_outside, to)) = (new_loop(lab)?, outsider());
    let [receiver, sender, trier, connected] = [(); 4].map(|()| Udp::new(&mut lp));
    for udp in [receiver, sender, trier, connected] {
        refused(udp.local_addr(&lp), EBADF, "there is no socket yet");
    }
    receiver.recv_start(&mut lp, |_, _, _| {}).unwrap();
    sender.send(&mut lp, "x", to, sent).unwrap();
    trier.try_send(&mut lp, b"x", to).unwrap();
    for udp in [receiver, sender, trier] {
        let address = udp.local_addr(&lp).unwrap();
        assert!(address.ip().is_unspecified() && address.port() != 0, "{address}");
    }
    connected.connect(&mut lp, to).unwrap();
    let address = connected.local_addr(&lp).unwrap();
    assert!(address.ip() == to.ip() && address.port() != 0, "{address}");
    receiver.recv_stop(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A bind uses the requested address. A failed bind leaves the handle without a socket, and another
/// bind may succeed. A bound handle cannot be bound again.
pub fn an_address_in_use_is_refused(lab: &Lab) -> Verdict {
    let (mut lp, (_outside, taken)) = (new_loop(lab)?, outsider());
    let udp = Udp::new(&mut lp);
    let error = udp.bind(&mut lp, taken, UdpBindFlags::empty()).expect_err("the address is in use");
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    refused(udp.local_addr(&lp), EBADF, "the bind has failed");
    let free = unused_address();
    udp.bind(&mut lp, free, UdpBindFlags::empty()).expect("a port that was free a moment ago");
    assert_eq!(udp.local_addr(&lp).unwrap(), free);
    let error = udp.bind(&mut lp, any_port(), UdpBindFlags::empty()).expect_err("it is bound");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(udp.local_addr(&lp).unwrap(), free, "its address is unchanged");
    finish(lp);
    Ok(())
}

/// Two sockets share an address if both set the flag.
pub fn an_address_can_be_shared(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let [one, two] = [(); 2].map(|()| Udp::new(&mut lp));
    one.bind(&mut lp, any_port(), UdpBindFlags::REUSE_ADDRESS).unwrap();
    let address = one.local_addr(&lp).unwrap();
    two.bind(&mut lp, address, UdpBindFlags::REUSE_ADDRESS).unwrap();
    assert_eq!(two.local_addr(&lp).unwrap(), address);
    // The system chooses which socket gets the datagram.
    let got = Log::default();
    for (name, udp) in [("one", one), ("two", two)] {
        let got = got.clone();
        let callback = move |lp: &mut Loop, _, datagram: Result<Datagram<'_>, _>| {
            assert_eq!(datagram.expect("a datagram").data, b"x", "{name}");
            got.push(name);
            one.recv_stop(lp).unwrap();
            two.recv_stop(lp).unwrap();
        };
        udp.recv_start(&mut lp, callback).unwrap();
    }
    outsider().0.send_to(b"x", address).unwrap();
    run_out(&mut lp);
    assert_eq!(got.len(), 1, "one of them gets it");
    finish(lp);
    Ok(())
}

/// The system distributes the datagrams of one port among the sockets with the flag: none is lost,
/// and none is delivered twice. Elsewhere the flag is an error.
pub fn a_port_can_be_load_balanced(lab: &Lab) -> Verdict {
    const SENDERS: u8 = 32;
    let mut lp = new_loop(lab)?;
    let sockets = [(); 4].map(|()| Udp::new(&mut lp));
    let mut address = any_port();
    let got = Log::default();
    for udp in sockets {
        match udp.bind(&mut lp, address, UdpBindFlags::REUSE_PORT) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                return Err(Skip::because(error.to_string()));
            }
            result => result.expect("a port to share"),
        }
        address = udp.local_addr(&lp).unwrap();
        let got = got.clone();
        let callback = move |lp: &mut Loop, _, datagram: Result<Datagram<'_>, _>| {
            got.push(datagram.expect("a datagram").data[0]);
            if got.len() == usize::from(SENDERS) {
                sockets.iter().for_each(|udp| udp.close(lp).unwrap());
            }
        };
        udp.recv_start(&mut lp, callback).unwrap();
    }
    for number in 0..SENDERS {
        outsider().0.send_to(&[number], address).unwrap();
    }
    run_out(&mut lp);
    let mut got = got.take();
    got.sort_unstable();
    assert_eq!(got, (0..SENDERS).collect::<Vec<_>>());
    finish(lp);
    Ok(())
}

/// Skips a case where there is no IPv6.
fn need_ipv6() -> Verdict {
    match UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => Ok(()),
        Err(error) => Err(Skip::because(format!("no IPv6 on this machine: {error}"))),
    }
}

/// An IPv6 socket also receives IPv4 datagrams, and can respond to them.
pub fn an_ipv6_socket_exchanges_ipv4_datagrams(lab: &Lab) -> Verdict {
    need_ipv6()?;
    let (mut lp, (outside, from)) = (new_loop(lab)?, outsider());
    let udp = Udp::new(&mut lp);
    udp.bind(&mut lp, (Ipv6Addr::UNSPECIFIED, 0).into(), UdpBindFlags::empty()).unwrap();
    let port = udp.local_addr(&lp).unwrap().port();
    outside.send_to(b"four", (Ipv4Addr::LOCALHOST, port)).unwrap();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        let datagram = datagram.expect("a datagram");
        assert_eq!(datagram.data, b"four");
        assert!(datagram.from.is_ipv6(), "as IPv6 writes it: {}", datagram.from);
        assert_eq!(
            (datagram.from.ip().to_canonical(), datagram.from.port()),
            (from.ip(), from.port())
        );
        let close = |lp: &mut Loop, udp: Udp, result: std::io::Result<()>, _| {
            result.expect("an answer");
            udp.close(lp).unwrap();
        };
        udp.send(lp, "answer", datagram.from, close).unwrap();
    })
    .unwrap();
    run_out(&mut lp);
    let mut answer = [0; 16];
    assert_eq!(outside.recv(&mut answer).expect("the answer"), 6);
    finish(lp);
    Ok(())
}

/// An IPv6-only socket receives no IPv4 datagram, and cannot be bound to an IPv4 address.
pub fn an_ipv6_only_socket_gets_no_ipv4(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let udp = Udp::new(&mut lp);
    let error = udp.bind(&mut lp, any_port(), UdpBindFlags::IPV6_ONLY).expect_err("that is IPv4");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    need_ipv6()?;
    udp.bind(&mut lp, (Ipv6Addr::UNSPECIFIED, 0).into(), UdpBindFlags::IPV6_ONLY).unwrap();
    let port = udp.local_addr(&lp).unwrap().port();
    let got = Log::default();
    let log = got.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        log.push(datagram.expect("a datagram").data.to_vec());
        udp.close(lp).unwrap();
    })
    .unwrap();
    // Another socket may have the port for IPv4, and ignores this datagram.
    outsider().0.send_to(b"four", (Ipv4Addr::LOCALHOST, port)).unwrap();
    let client = Udp::new(&mut lp);
    let to = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
    client.send(&mut lp, "six", to, sent).unwrap();
    assert!(client.local_addr(&lp).unwrap().is_ipv6(), "made for where it sends to");
    run_out(&mut lp);
    assert_eq!(got.take(), [b"six"]);
    finish(lp);
    Ok(())
}

/// A connected socket sends to its peer, and receives from no other address.
pub fn a_connected_socket_has_one_peer(lab: &Lab) -> Verdict {
    let (mut lp, (peer, to)) = (new_loop(lab)?, outsider());
    let (udp, address) = bound(&mut lp);
    udp.connect(&mut lp, to).unwrap();
    assert_eq!(udp.peer_addr(&lp).unwrap(), to);
    assert_eq!(udp.local_addr(&lp).unwrap(), address);
    udp.send(&mut lp, "to the peer", None, sent).unwrap();
    assert_eq!(udp.try_send(&mut lp, b"again", None).unwrap(), 5);
    assert_eq!(udp.try_send_many(&mut lp, &[(b"and", None), (b"again", None)]).unwrap(), 2);
    let mut data = [0; 16];
    let received = [(); 4].map(|()| peer.recv_from(&mut data).expect("a datagram"));
    assert_eq!(received, [(11, address), (5, address), (3, address), (5, address)]);
    // The first datagram is dropped or refused, depending on the system.
    let _ = outsider().0.send_to(b"from elsewhere", address);
    peer.send_to(b"from the peer", address).unwrap();
    let got = Log::default();
    let log = got.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        let datagram = datagram.expect("a datagram");
        log.push((datagram.data.to_vec(), datagram.from));
        udp.close(lp).unwrap();
    })
    .unwrap();
    run_out(&mut lp);
    assert_eq!(got.take(), [(b"from the peer".to_vec(), to)]);
    finish(lp);
    Ok(())
}

/// Connecting twice, disconnecting an unconnected socket, an extra address and a missing address
/// are distinct immediate errors that change nothing.
pub fn connection_state_errors_are_immediate(lab: &Lab) -> Verdict {
    let (mut lp, (_peer, to)) = (new_loop(lab)?, outsider());
    let (udp, _) = bound(&mut lp);
    refused(udp.disconnect(&mut lp), ENOTCONN, "a disconnect without a connect");
    refused(udp.peer_addr(&lp), ENOTCONN, "no peer");
    let never = |_: &mut Loop, _, _, _| panic!("a refused send does not call back");
    refused(udp.send(&mut lp, "x", None, never), EDESTADDRREQ, "a send without an address");
    refused(udp.try_send(&mut lp, b"x", None), EDESTADDRREQ, "a send without an address");
    refused(udp.try_send_many(&mut lp, &[(b"x", None)]), EDESTADDRREQ, "a send without an address");
    udp.connect(&mut lp, to).unwrap();
    refused(udp.connect(&mut lp, to), EISCONN, "a second connect");
    refused(udp.send(&mut lp, "x", to, never), EISCONN, "a send elsewhere");
    refused(udp.try_send(&mut lp, b"x", to), EISCONN, "a send elsewhere");
    refused(udp.try_send_many(&mut lp, &[(b"x", Some(to))]), EISCONN, "a send elsewhere");
    assert_eq!(udp.send_queue_count(&lp), 0, "nothing was queued");
    assert!(!udp.is_active(&lp));
    assert_eq!(udp.try_send(&mut lp, b"x", None).unwrap(), 1, "it is connected");
    finish(lp);
    Ok(())
}

/// A disconnected socket sends to and receives from any address again, and can be connected to
/// another peer.
pub fn disconnecting_undoes_connecting(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((_one, first), (two, second)) = (outsider(), outsider());
    let udp = Udp::new(&mut lp);
    udp.bind(&mut lp, any_port(), UdpBindFlags::empty()).unwrap();
    udp.connect(&mut lp, first).unwrap();
    udp.disconnect(&mut lp).unwrap();
    refused(udp.peer_addr(&lp), ENOTCONN, "disconnected");
    refused(udp.disconnect(&mut lp), ENOTCONN, "disconnected");
    udp.send(&mut lp, "x", second, sent).unwrap();
    let mut data = [0; 16];
    let (_, address) = two.recv_from(&mut data).expect("a datagram");
    two.send_to(b"answer", address).unwrap();
    let got = Log::default();
    let log = got.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        log.push(datagram.expect("a datagram").from);
        udp.recv_stop(lp).unwrap();
    })
    .unwrap();
    run_out(&mut lp);
    assert_eq!(got.take(), [second]);
    udp.connect(&mut lp, second).unwrap();
    assert_eq!(udp.peer_addr(&lp).unwrap(), second);
    finish(lp);
    Ok(())
}

/// A handle takes one existing socket, connected or not.
pub fn an_existing_socket_can_be_used(lab: &Lab) -> Verdict {
    let (mut lp, (peer, to)) = (new_loop(lab)?, outsider());
    let (socket, address) = outsider();
    socket.connect(to).unwrap();
    let udp = Udp::new(&mut lp);
    udp.open(&mut lp, socket).unwrap();
    refused(udp.open(&mut lp, outsider().0), EBUSY, "it has a socket");
    assert_eq!((udp.local_addr(&lp).unwrap(), udp.peer_addr(&lp).unwrap()), (address, to));
    refused(udp.connect(&mut lp, to), EISCONN, "it came connected");
    udp.send(&mut lp, "x", None, sent).unwrap();
    let mut data = [0; 16];
    assert_eq!(peer.recv_from(&mut data).expect("a datagram"), (1, address));
    // It was blocking before; the loop needs it non-blocking.
    udp.recv_start(&mut lp, |_, _, datagram| panic!("nothing was sent: {datagram:?}")).unwrap();
    for _ in 0..3 {
        run(&mut lp, RunMode::NoWait);
    }
    udp.recv_stop(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A handle is active while it receives, and while a send has not called back. A receiver keeps the
/// loop alive unless it is unreferenced; a send always does.
pub fn are_active_while_receiving_or_sending(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, to) = bound(&mut lp);
    assert_eq!(AnyHandle::from(udp).kind(), "udp");
    assert!(!udp.is_active(&lp) && !lp.is_alive(), "a socket does not keep the loop alive");
    udp.recv_start(&mut lp, |_, _, _| {}).unwrap();
    assert!(udp.is_active(&lp) && lp.is_alive(), "it receives");
    udp.unreference(&mut lp).unwrap();
    run_to_the_end(&mut lp);
    udp.recv_stop(&mut lp).unwrap();
    assert!(!udp.is_active(&lp), "stopped");
    let callbacks = Log::default();
    let log = callbacks.clone();
    udp.send(&mut lp, "x", to, move |lp: &mut Loop, udp, _, _| log.push(udp.is_active(lp)))
        .unwrap();
    assert!(udp.is_active(&lp) && lp.is_alive(), "it sends, unreferenced or not");
    run_to_the_end(&mut lp);
    assert_eq!(callbacks.take(), [false], "the send is complete in its callback");
    finish(lp);
    Ok(())
}

/// Receiving twice is an error, and the first callback stays. Stopping twice, or stopping a handle
/// that never received, is not an error.
pub fn receiving_twice_is_refused(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, to) = bound(&mut lp);
    udp.recv_stop(&mut lp).unwrap();
    let got = Log::default();
    let log = got.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        log.push(datagram.expect("a datagram").data.to_vec());
        udp.recv_stop(lp).unwrap();
        udp.recv_stop(lp).unwrap();
    })
    .unwrap();
    let second = |_: &mut Loop, _, _: Result<Datagram<'_>, _>| panic!("not started");
    refused(udp.recv_start(&mut lp, second), EALREADY, "it receives");
    outsider().0.send_to(b"x", to).unwrap();
    run_out(&mut lp);
    assert_eq!(got.take(), [b"x"]);
    udp.recv_start(&mut lp, |_, _, _| {}).expect("it does not receive");
    udp.recv_stop(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A close frees the port immediately, before its callback.
pub fn closing_frees_the_port(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, address) = bound(&mut lp);
    udp.recv_start(&mut lp, |_, _, _| panic!("closed before anything comes")).unwrap();
    run(&mut lp, RunMode::NoWait);
    outsider().0.send_to(b"x", address).unwrap();
    udp.close(&mut lp).unwrap();
    drop(UdpSocket::bind(address).expect("the port is free"));
    finish(lp);
    Ok(())
}

/// Every method of a closing or closed handle returns an error.
pub fn closed_handles_are_errors(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, to) = bound(&mut lp);
    let every_verb = |lp: &mut Loop| {
        [
            udp.bind(lp, any_port(), UdpBindFlags::empty()),
            udp.open(lp, outsider().0),
            udp.connect(lp, to),
            udp.disconnect(lp),
            udp.send(lp, "x", to, |_, _, _, _| panic!("a refused send does not call back")),
            udp.try_send(lp, b"x", to).map(drop),
            udp.try_send_many(lp, &[(b"x", Some(to))]).map(drop),
            udp.recv_start(lp, |_, _, _| panic!("a closed handle receives nothing")),
            udp.set_largest_datagram(lp, 100),
        ]
        .map(|result| result.expect_err("a closed handle").kind())
    };
    udp.close(&mut lp).unwrap();
    assert_eq!(every_verb(&mut lp), [ErrorKind::InvalidInput; 9], "closing");
    udp.recv_stop(&mut lp).expect("it does not receive");
    refused(udp.local_addr(&lp), EBADF, "the socket is gone");
    run_to_the_end(&mut lp);
    assert_eq!(every_verb(&mut lp), [ErrorKind::NotFound; 9], "gone");
    let gone = [udp.recv_stop(&mut lp), udp.set_broadcast(&mut lp, true), udp.set_ttl(&mut lp, 1)];
    assert_eq!(gone.map(|result| result.expect_err("gone").kind()), [ErrorKind::NotFound; 3]);
    assert_eq!(udp.local_addr(&lp).expect_err("gone").kind(), ErrorKind::NotFound);
    assert_eq!((udp.send_queue_size(&lp), udp.send_queue_count(&lp)), (0, 0));
    finish(lp);
    Ok(())
}
