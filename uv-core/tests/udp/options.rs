//! Options.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};

use uv_core::{Handle, Udp, UdpBind};

use super::code::EBADF;
use super::{bound, every, is, log, run};

#[test]
fn options_want_a_socket() {
    every(|lp| {
        let udp = Udp::new(lp);
        for result in [
            udp.set_broadcast(lp, true),
            udp.set_ttl(lp, 32),
            udp.set_multicast_ttl(lp, 32),
            udp.set_multicast_loop(lp, true),
            udp.set_multicast_interface_v4(lp, Ipv4Addr::LOCALHOST),
            udp.leave_multicast_v4(lp, Ipv4Addr::new(239, 255, 0, 1), Ipv4Addr::LOCALHOST),
            udp.peer_addr(lp).map(drop),
        ] {
            assert!(is(&result.unwrap_err(), EBADF));
        }
        assert!(udp.set_ttl(lp, 0).is_err());
    });
}

#[test]
fn broadcast_ttl_and_multicast_options_are_taken() {
    every(|lp| {
        let (udp, _) = bound(lp);
        udp.set_broadcast(lp, true).unwrap();
        udp.set_ttl(lp, 255).unwrap();
        udp.set_ttl(lp, 1).unwrap();
        assert_eq!(udp.set_ttl(lp, 0).unwrap_err().kind(), ErrorKind::InvalidInput);
        udp.set_multicast_ttl(lp, 0).unwrap();
        udp.set_multicast_loop(lp, false).unwrap();
        udp.set_multicast_interface_v4(lp, Ipv4Addr::LOCALHOST).unwrap();
    });
}

#[test]
fn multicast_reaches_those_who_joined() {
    every(|lp| {
        let group = Ipv4Addr::new(239, 255, 17, 3);
        let udp = Udp::new(lp);
        udp.bind(lp, (Ipv4Addr::UNSPECIFIED, 0).into(), UdpBind::REUSE_ADDRESS).unwrap();
        let port = udp.local_addr(lp).unwrap().port();
        if let Err(error) = udp.join_multicast_v4(lp, group, Ipv4Addr::LOCALHOST) {
            return eprintln!("skipped: no multicast here: {error}");
        }
        let (client, _) = bound(lp);
        client.set_multicast_interface_v4(lp, Ipv4Addr::LOCALHOST).unwrap();
        client.set_multicast_loop(lp, true).unwrap();
        let told = log();
        let seen = told.clone();
        udp.recv_start(lp, move |lp, udp, datagram| {
            seen.push(datagram.unwrap().data.to_vec());
            udp.leave_multicast_v4(lp, group, Ipv4Addr::LOCALHOST).unwrap();
            udp.close(lp).unwrap();
        })
        .unwrap();
        let to = SocketAddr::from((group, port));
        if let Err(error) = client.try_send(lp, b"all", to) {
            return eprintln!("skipped: no multicast here: {error}");
        }
        run(lp);
        assert_eq!(told.take(), [b"all"]);
    });
}
