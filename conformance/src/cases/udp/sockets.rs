//! Making, binding, connecting, closing.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use poll_core::Backend;
use uv_core::{AnyHandle, Datagram, Handle, Loop, RunMode, Udp, UdpBind};

use crate::support::datagrams::code::{EALREADY, EBADF, EBUSY, EDESTADDRREQ, EISCONN, ENOTCONN};
use crate::support::datagrams::{bound, finish, nobody, outsider, refused, run_out, sent};
use crate::support::loops::{new_loop, run, run_to_the_end};
use crate::support::streams::any_port;
use crate::support::trace::Log;
use crate::{Lab, Skip, Verdict};

/// A handle has no socket until it is bound, or receives, sends or connects: then it gets
/// one with an address of the system's choice.
pub fn a_socket_is_made_when_it_is_needed<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// A bind reaches the address that was asked for. One that fails leaves the handle without
/// a socket: another may succeed. A handle that is bound is not bound again.
pub fn an_address_in_use_is_refused<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, (_outside, taken)) = (new_loop(lab)?, outsider());
    let udp = Udp::new(&mut lp);
    let error = udp.bind(&mut lp, taken, UdpBind::empty()).expect_err("the address is in use");
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    refused(udp.local_addr(&lp), EBADF, "the bind has failed");
    let free = nobody();
    udp.bind(&mut lp, free, UdpBind::empty()).expect("a port that was free a moment ago");
    assert_eq!(udp.local_addr(&lp).unwrap(), free);
    let error = udp.bind(&mut lp, any_port(), UdpBind::empty()).expect_err("it is bound");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(udp.local_addr(&lp).unwrap(), free, "it stays where it was");
    finish(lp);
    Ok(())
}

/// Those who both say so share an address.
pub fn an_address_can_be_shared<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let [one, two] = [(); 2].map(|()| Udp::new(&mut lp));
    one.bind(&mut lp, any_port(), UdpBind::REUSE_ADDRESS).unwrap();
    let address = one.local_addr(&lp).unwrap();
    two.bind(&mut lp, address, UdpBind::REUSE_ADDRESS).unwrap();
    assert_eq!(two.local_addr(&lp).unwrap(), address);
    // Which of the two gets it is the system's choice.
    let got = Log::default();
    for (name, udp) in [("one", one), ("two", two)] {
        let got = got.clone();
        let callback = move |lp: &mut Loop<T>, _, datagram: Result<Datagram<'_>, _>| {
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

/// The system shares the datagrams for one port out among those who asked for that; none
/// gets lost, and none comes twice. Where it cannot, it says so.
pub fn a_port_can_be_spread_over_sockets<T: Backend>(lab: &Lab<T>) -> Verdict {
    const SENDERS: u8 = 32;
    let mut lp = new_loop(lab)?;
    let sockets = [(); 4].map(|()| Udp::new(&mut lp));
    let mut address = any_port();
    let got = Log::default();
    for udp in sockets {
        match udp.bind(&mut lp, address, UdpBind::REUSE_PORT) {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                return Err(Skip::because(error.to_string()));
            }
            result => result.expect("a port to share"),
        }
        address = udp.local_addr(&lp).unwrap();
        let got = got.clone();
        let callback = move |lp: &mut Loop<T>, _, datagram: Result<Datagram<'_>, _>| {
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

/// A socket of IPv6 gets datagrams of IPv4 as well, and can answer them.
pub fn an_ipv6_socket_talks_ipv4<T: Backend>(lab: &Lab<T>) -> Verdict {
    need_ipv6()?;
    let (mut lp, (outside, from)) = (new_loop(lab)?, outsider());
    let udp = Udp::new(&mut lp);
    udp.bind(&mut lp, (Ipv6Addr::UNSPECIFIED, 0).into(), UdpBind::empty()).unwrap();
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
        let close = |lp: &mut Loop<T>, udp: Udp, result: std::io::Result<()>, _| {
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

/// A socket that is for IPv6 only does not get datagrams of IPv4, and is not bound to an
/// address of IPv4.
pub fn ipv6_only_is_ipv6_only<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let udp = Udp::new(&mut lp);
    let error = udp.bind(&mut lp, any_port(), UdpBind::IPV6_ONLY).expect_err("that is IPv4");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    need_ipv6()?;
    udp.bind(&mut lp, (Ipv6Addr::UNSPECIFIED, 0).into(), UdpBind::IPV6_ONLY).unwrap();
    let port = udp.local_addr(&lp).unwrap().port();
    let got = Log::default();
    let log = got.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        log.push(datagram.expect("a datagram").data.to_vec());
        udp.close(lp).unwrap();
    })
    .unwrap();
    // Some other socket may have the port for IPv4, and ignores this.
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

/// A connected socket sends to its peer, and gets nothing from elsewhere.
pub fn a_connected_socket_has_one_peer<T: Backend>(lab: &Lab<T>) -> Verdict {
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
    // The first does not get through: it is dropped or refused, whatever the system does.
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

/// Twice connected, never connected, an address too many, an address too few: each is an
/// error of its own, at once, and nothing has changed.
pub fn connecting_has_rules<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, (_peer, to)) = (new_loop(lab)?, outsider());
    let (udp, _) = bound(&mut lp);
    refused(udp.disconnect(&mut lp), ENOTCONN, "a disconnect without a connect");
    refused(udp.peer_addr(&lp), ENOTCONN, "no peer");
    let never = |_: &mut Loop<T>, _, _, _| panic!("a refused send does not call back");
    refused(udp.send(&mut lp, "x", None, never), EDESTADDRREQ, "a send to nobody");
    refused(udp.try_send(&mut lp, b"x", None), EDESTADDRREQ, "a send to nobody");
    refused(udp.try_send_many(&mut lp, &[(b"x", None)]), EDESTADDRREQ, "a send to nobody");
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

/// A disconnected socket sends to anybody and gets datagrams from anybody again; it can be
/// connected again, to somebody else.
pub fn disconnecting_undoes_connecting<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((_one, first), (two, second)) = (outsider(), outsider());
    let udp = Udp::new(&mut lp);
    udp.bind(&mut lp, any_port(), UdpBind::empty()).unwrap();
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

/// A socket that exists can be used, connected or not; one handle takes one socket.
pub fn an_existing_socket_can_be_used<T: Backend>(lab: &Lab<T>) -> Verdict {
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
    // It blocked before; a loop must not.
    udp.recv_start(&mut lp, |_, _, datagram| panic!("nothing was sent: {datagram:?}")).unwrap();
    for _ in 0..3 {
        run(&mut lp, RunMode::NoWait);
    }
    udp.recv_stop(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A handle is active while it receives, and while a send has not called back. A receiver
/// keeps the loop alive unless it is unreferenced; a send always does.
pub fn are_active_while_there_is_work<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, to) = bound(&mut lp);
    assert_eq!(AnyHandle::from(udp).kind(), "udp");
    assert!(!udp.is_active(&lp) && !lp.alive(), "a socket alone waits for nothing");
    udp.recv_start(&mut lp, |_, _, _| {}).unwrap();
    assert!(udp.is_active(&lp) && lp.alive(), "it receives");
    udp.unreference(&mut lp).unwrap();
    run_to_the_end(&mut lp);
    udp.recv_stop(&mut lp).unwrap();
    assert!(!udp.is_active(&lp), "stopped");
    let told = Log::default();
    let log = told.clone();
    udp.send(&mut lp, "x", to, move |lp: &mut Loop<T>, udp, _, _| log.push(udp.is_active(lp)))
        .unwrap();
    assert!(udp.is_active(&lp) && lp.alive(), "it sends, unreferenced or not");
    run_to_the_end(&mut lp);
    assert_eq!(told.take(), [false], "the send that calls back is over");
    finish(lp);
    Ok(())
}

/// Receiving twice is an error, and the first callback stays. Stopping twice is none, nor is
/// stopping what never received.
pub fn receiving_twice_is_refused<T: Backend>(lab: &Lab<T>) -> Verdict {
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
    let second = |_: &mut Loop<T>, _, _: Result<Datagram<'_>, _>| panic!("not started");
    refused(udp.recv_start(&mut lp, second), EALREADY, "it receives");
    outsider().0.send_to(b"x", to).unwrap();
    run_out(&mut lp);
    assert_eq!(got.take(), [b"x"]);
    udp.recv_start(&mut lp, |_, _, _| {}).expect("it does not receive");
    udp.recv_stop(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// A close frees the port at once, before its callback.
pub fn closing_frees_the_port<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// Every verb on a handle that is closing or gone is an error.
pub fn closed_handles_do_nothing<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, to) = bound(&mut lp);
    let every_verb = |lp: &mut Loop<T>| {
        [
            udp.bind(lp, any_port(), UdpBind::empty()),
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
