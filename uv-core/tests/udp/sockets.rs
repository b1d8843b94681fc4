//! Making, binding, connecting, closing.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use uv_core::{AnyHandle, Handle, RunMode, Udp, UdpBind};

use super::code::{EBADF, EBUSY, EDESTADDRREQ, EISCONN, ENOTCONN};
use super::{Lp, bound, close_all, every, is, local, log, run};

#[test]
fn a_socket_is_made_when_it_is_needed() {
    every(|lp| {
        let receiver = Udp::new(lp);
        assert!(is(&receiver.local_addr(lp).unwrap_err(), EBADF));
        receiver.recv_start(lp, |_, _, _| {}).unwrap();
        let address = receiver.local_addr(lp).unwrap();
        assert!(address.ip().is_unspecified() && address.port() != 0);

        let sender = Udp::new(lp);
        sender.send(lp, "x", SocketAddr::from((Ipv4Addr::LOCALHOST, 9)), |_, _, _, _| {}).unwrap();
        assert_ne!(sender.local_addr(lp).unwrap().port(), 0);

        let connected = Udp::new(lp);
        connected.connect(lp, (Ipv4Addr::LOCALHOST, 9).into()).unwrap();
        assert_eq!(connected.local_addr(lp).unwrap().ip(), Ipv4Addr::LOCALHOST);
        close_all(lp);
        run(lp);
    });
}

#[test]
fn ipv6_works_and_ipv6_only_wants_ipv6() {
    every(|lp| {
        let udp = Udp::new(lp);
        let wrong = udp.bind(lp, local(), UdpBind::IPV6_ONLY).unwrap_err();
        assert_eq!(wrong.kind(), ErrorKind::InvalidInput);
        if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
            return eprintln!("skipped: no IPv6 here");
        }
        udp.bind(lp, (Ipv6Addr::UNSPECIFIED, 0).into(), UdpBind::IPV6_ONLY).unwrap();
        let port = udp.local_addr(lp).unwrap().port();
        udp.set_ttl(lp, 64).unwrap();
        udp.set_multicast_ttl(lp, 2).unwrap();
        udp.set_multicast_loop(lp, true).unwrap();
        let told = log();
        let seen = told.clone();
        udp.recv_start(lp, move |lp, udp, datagram| {
            seen.push(datagram.unwrap().data.to_vec());
            udp.close(lp).unwrap();
        })
        .unwrap();
        // Nobody else has the port for IPv4, so nobody gets this.
        let client = UdpSocket::bind(local()).unwrap();
        client.send_to(b"four", (Ipv4Addr::LOCALHOST, port)).unwrap();
        let client = Udp::new(lp);
        let to = SocketAddr::from((Ipv6Addr::LOCALHOST, port));
        client.send(lp, "six", to, |_, _, result, _| result.unwrap()).unwrap();
        assert!(client.local_addr(lp).unwrap().is_ipv6());
        run(lp);
        assert_eq!(told.take(), [b"six"]);
    });
}

#[test]
fn an_address_in_use_is_an_error_unless_it_is_shared() {
    every(|lp| {
        let (_, address) = bound(lp);
        let other = Udp::new(lp);
        let refused = other.bind(lp, address, UdpBind::empty()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AddrInUse);

        let [one, two] = [Udp::new(lp), Udp::new(lp)];
        one.bind(lp, local(), UdpBind::REUSE_ADDRESS).unwrap();
        let address = one.local_addr(lp).unwrap();
        two.bind(lp, address, UdpBind::REUSE_ADDRESS).unwrap();

        let [one, two] = [Udp::new(lp), Udp::new(lp)];
        match one.bind(lp, local(), UdpBind::REUSE_PORT) {
            Ok(()) => {
                let address = one.local_addr(lp).unwrap();
                two.bind(lp, address, UdpBind::REUSE_PORT).unwrap();
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported),
        }
    });
}

#[test]
fn an_open_socket_can_be_used() {
    every(|lp| {
        let (server, to) = bound(lp);
        let socket = UdpSocket::bind(local()).unwrap();
        socket.connect(to).unwrap();
        let from = socket.local_addr().unwrap();
        let client = Udp::new(lp);
        client.open(lp, socket).unwrap();
        let other = UdpSocket::bind(local()).unwrap();
        assert!(is(&client.open(lp, other).unwrap_err(), EBUSY));
        assert_eq!((client.local_addr(lp).unwrap(), client.peer_addr(lp).unwrap()), (from, to));
        server
            .recv_start(lp, move |lp, server, datagram| {
                assert_eq!(datagram.unwrap().from, from);
                server.close(lp).unwrap();
            })
            .unwrap();
        client.send(lp, "x", None, |_, _, result, _| result.unwrap()).unwrap();
        run(lp);
    });
}

#[test]
fn a_connected_socket_sends_without_an_address() {
    every(|lp| {
        let (server, to) = bound(lp);
        let client = Udp::new(lp);
        client.connect(lp, to).unwrap();
        assert_eq!(client.peer_addr(lp).unwrap(), to);
        server
            .recv_start(lp, |lp, server, datagram| {
                let datagram = datagram.unwrap();
                let (data, from) = (datagram.data.to_vec(), datagram.from);
                server.send(lp, data, from, |lp, server, _, _| server.close(lp).unwrap()).unwrap();
                server.recv_stop(lp).unwrap();
            })
            .unwrap();
        let told = log();
        let seen = told.clone();
        client
            .recv_start(lp, move |lp, client, datagram| {
                let datagram = datagram.unwrap();
                seen.push((datagram.data.to_vec(), datagram.from));
                client.close(lp).unwrap();
            })
            .unwrap();
        client.send(lp, "echo", None, |_, _, result, _| result.unwrap()).unwrap();
        run(lp);
        assert_eq!(told.take(), [(b"echo".to_vec(), to)]);
    });
}

#[test]
fn connecting_has_its_errors() {
    every(|lp| {
        let (_, to) = bound(lp);
        let (client, _) = bound(lp);
        assert!(is(&client.disconnect(lp).unwrap_err(), ENOTCONN));
        assert!(is(&client.peer_addr(lp).unwrap_err(), ENOTCONN));
        assert!(is(&client.send(lp, "x", None, |_, _, _, _| {}).unwrap_err(), EDESTADDRREQ));
        assert!(is(&client.try_send(lp, b"x", None).unwrap_err(), EDESTADDRREQ));
        client.connect(lp, to).unwrap();
        assert!(is(&client.connect(lp, to).unwrap_err(), EISCONN));
        assert!(is(&client.send(lp, "x", to, |_, _, _, _| {}).unwrap_err(), EISCONN));
        assert!(is(&client.try_send_many(lp, &[(b"x", Some(to))]).unwrap_err(), EISCONN));
        assert_eq!(client.send_queue_count(lp), 0);
        assert_eq!(client.try_send(lp, b"four", None).unwrap(), 4);
    });
}

#[test]
fn disconnecting_lets_others_in_again() {
    every(|lp| {
        let (server, to) = bound(lp);
        let (client, _) = bound(lp);
        client.connect(lp, to).unwrap();
        client.disconnect(lp).unwrap();
        assert!(client.peer_addr(lp).is_err());
        server
            .recv_start(lp, |lp, server, datagram| {
                assert_eq!(datagram.unwrap().data, b"x");
                server.close(lp).unwrap();
            })
            .unwrap();
        client.send(lp, "x", to, |_, _, result, _| result.unwrap()).unwrap();
        run(lp);
    });
}

#[test]
fn active_while_receiving_or_sending() {
    every(|lp| {
        let (udp, to) = bound(lp);
        assert!(!udp.is_active(lp));
        udp.recv_start(lp, |_, _, _| {}).unwrap();
        assert!(udp.is_active(lp));
        udp.recv_stop(lp).unwrap();
        assert!(!udp.is_active(lp));
        udp.send(lp, "x", to, |lp, udp, _, _| assert!(!udp.is_active(lp))).unwrap();
        assert!(udp.is_active(lp));
        run(lp);
        assert_eq!(AnyHandle::from(udp).kind(), "udp");
    });
}

#[test]
fn an_unreferenced_receiver_does_not() {
    every(|lp| {
        let (udp, _) = bound(lp);
        udp.recv_start(lp, |_, _, _| {}).unwrap();
        assert!(lp.alive());
        udp.unreference(lp).unwrap();
        assert!(!lp.run(RunMode::Default).unwrap());
    });
}

#[test]
fn a_closed_handle_frees_its_port() {
    every(|lp| {
        let (udp, address) = bound(lp);
        udp.recv_start(lp, |_, _, _| {}).unwrap();
        lp.run(RunMode::NoWait).unwrap();
        udp.close(lp).unwrap();
        drop(UdpSocket::bind(address).expect("the socket is closed at once"));
        run(lp);
    });
}

#[test]
fn stale_and_closing_keys_are_errors() {
    every(|lp| {
        let (udp, to) = bound(lp);
        let closing = |lp: &mut Lp| {
            vec![
                udp.bind(lp, local(), UdpBind::empty()).unwrap_err().kind(),
                udp.connect(lp, to).unwrap_err().kind(),
                udp.disconnect(lp).unwrap_err().kind(),
                udp.send(lp, "x", to, |_, _, _, _| {}).unwrap_err().kind(),
                udp.try_send(lp, b"x", to).unwrap_err().kind(),
                udp.try_send_many(lp, &[(b"x", Some(to))]).unwrap_err().kind(),
                udp.recv_start(lp, |_, _, _| {}).unwrap_err().kind(),
                udp.open(lp, UdpSocket::bind(local()).unwrap()).unwrap_err().kind(),
            ]
        };
        udp.close(lp).unwrap();
        assert_eq!(closing(lp), [ErrorKind::InvalidInput; 8]);
        assert!(is(&udp.local_addr(lp).unwrap_err(), EBADF));
        run(lp);
        assert_eq!(closing(lp), [ErrorKind::NotFound; 8]);
        assert_eq!(udp.recv_stop(lp).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(udp.set_broadcast(lp, true).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!((udp.send_queue_size(lp), udp.send_queue_count(lp)), (0, 0));
    });
}
