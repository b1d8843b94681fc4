//! What only Linux has.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::time::Duration;

use uv_core::{Ecn, Handle, Timer, Udp, UdpBind};

use super::{Lp, bound, close_all, every, local, log, run};

#[test]
fn sources_of_a_group_can_be_named() {
    every(|lp| {
        let (group, here) = (Ipv4Addr::new(232, 255, 17, 3), Ipv4Addr::LOCALHOST);
        let udp = Udp::new(lp);
        match udp.join_source_v4(lp, group, here, here) {
            Ok(()) => udp.leave_source_v4(lp, group, here, here).unwrap(),
            Err(error) => eprintln!("skipped: no multicast here: {error}"),
        }
        let (group, here) = ("ff31::8000:1234".parse().unwrap(), Ipv6Addr::LOCALHOST);
        let udp = Udp::new(lp);
        match udp.join_source_v6(lp, group, here, 1) {
            Ok(()) => udp.leave_source_v6(lp, group, here, 1).unwrap(),
            Err(error) => eprintln!("skipped: no multicast of IPv6 here: {error}"),
        }
    });
}

#[test]
fn what_the_network_reports_reaches_the_receiver() {
    every(|lp| {
        let nobody = UdpSocket::bind(local()).unwrap().local_addr().unwrap();
        let client = Udp::new(lp);
        client.bind(lp, local(), UdpBind::REPORT_ERRORS).unwrap();
        let told = log();
        let seen = told.clone();
        client
            .recv_start(lp, move |lp, client, datagram| {
                let error = datagram.unwrap_err();
                assert_eq!(error.io_error().kind(), ErrorKind::ConnectionRefused);
                assert!(error.is_report());
                assert_eq!(error.destination(), Some(nobody));
                assert_eq!(error.offender(), Some(nobody.ip()));
                seen.push(error.to_string());
                match seen.len() {
                    // A second report, when nobody has read the first's error otherwise.
                    1 => drop(client.try_send(lp, b"x", nobody).unwrap()),
                    _ => client.close(lp).unwrap(),
                }
            })
            .unwrap();
        client.send(lp, "x", nobody, |_, _, result, _| result.unwrap()).unwrap();
        run(lp);
        assert_eq!(told.len(), 2);
    });
}

#[test]
fn a_report_that_nobody_wants_does_not_keep_the_loop_busy() {
    every(|lp| {
        let nobody = UdpSocket::bind(local()).unwrap().local_addr().unwrap();
        let client = Udp::new(lp);
        client.bind(lp, local(), UdpBind::REPORT_ERRORS).unwrap();
        client.recv_start(lp, |_, _, datagram| assert!(datagram.is_err())).unwrap();
        client.try_send(lp, b"x", nobody).unwrap();
        let timer = Timer::new(lp);
        let enough = |lp: &mut Lp, _| close_all(lp);
        timer.start(lp, Duration::from_millis(20), Duration::ZERO, enough).unwrap();
        let before = lp.metrics().loop_count();
        run(lp);
        assert!(lp.metrics().loop_count() - before < 10);
    });
}

#[test]
fn congestion_is_told_if_asked_for() {
    every(|lp| {
        for ip in [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()] {
            let ip: IpAddr = ip;
            let [server, client] = [Udp::new(lp), Udp::new(lp)];
            if server.bind(lp, (ip, 0).into(), UdpBind::empty()).is_err() {
                eprintln!("skipped: no {ip} here");
                continue;
            }
            client.bind(lp, (ip, 0).into(), UdpBind::empty()).unwrap();
            let to = server.local_addr(lp).unwrap();
            client.try_send(lp, b"not asked", to).unwrap();
            server.set_receive_ecn(lp, true).unwrap();
            for ecn in [Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1, Ecn::Congested] {
                client.set_ecn(lp, ecn).unwrap();
                client.try_send(lp, b"asked", to).unwrap();
            }
            let told = log();
            let seen = told.clone();
            server
                .recv_start(lp, move |lp, _, datagram| {
                    seen.push(datagram.unwrap().ecn);
                    if seen.len() == 5 {
                        close_all(lp);
                    }
                })
                .unwrap();
            run(lp);
            let told: Vec<_> = told.take().into_iter().skip(1).flatten().collect();
            let all = [Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1, Ecn::Congested];
            assert_eq!(told, all);
        }
    });
}

#[test]
fn a_kernel_cuts_and_puts_together() {
    every(|lp| {
        let (server, to) = bound(lp);
        let (client, _) = bound(lp);
        server.set_coalescing(lp, true).unwrap();
        client.set_segment_size(lp, 100).unwrap();
        client.send(lp, vec![7; 950], to, |_, _, result, _| result.unwrap()).unwrap();
        let told = log();
        let seen = told.clone();
        server
            .recv_start(lp, move |lp, server, datagram| {
                datagram.unwrap().segments().for_each(|segment| seen.push(segment.len()));
                if seen.len() == 10 {
                    server.close(lp).unwrap();
                }
            })
            .unwrap();
        run(lp);
        assert_eq!(told.take(), [100, 100, 100, 100, 100, 100, 100, 100, 100, 50]);
    });
}
