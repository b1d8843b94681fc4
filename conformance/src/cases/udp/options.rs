//! Options, groups, and errors reported by the network.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use socket2::SockRef;
use uv_core::{Ecn, Handle, Udp, UdpBindFlags};

use crate::support::datagrams::code::EBADF;
use crate::support::datagrams::{bound, finish, outsider, refused, run_out, sent, unused_address};
use crate::support::loops::new_loop;
use crate::support::streams::{any_port, run_a_moment, run_until};
use crate::support::trace::Log;
use crate::support::wine;
use crate::{Lab, Loop, Skip, Verdict};

/// Skips where the system does not support an option.
fn supported(result: std::io::Result<()>) -> Verdict {
    match result {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            Err(Skip::because(error.to_string()))
        }
        result => {
            result.expect("a supported option works");
            Ok(())
        }
    }
}

/// A group that no other case uses, and a handle that can receive from it.
fn member(lp: &mut Loop, first: u8) -> (Udp, SocketAddr) {
    let udp = Udp::new(lp);
    let any = (Ipv4Addr::UNSPECIFIED, 0).into();
    udp.bind(lp, any, UdpBindFlags::REUSE_ADDRESS).expect("a port to bind");
    let port = udp.local_addr(lp).expect("its address").port();
    let [high, low] = port.to_be_bytes();
    (udp, (Ipv4Addr::new(first, 255, high, low), port).into())
}

/// A handle that sends to groups on the loopback interface.
fn group_sender(lp: &mut Loop) -> Udp {
    let (udp, _) = bound(lp);
    udp.set_multicast_interface_v4(lp, Ipv4Addr::LOCALHOST).expect("the loopback interface");
    udp
}

fn no_multicast(error: std::io::Error) -> Skip {
    Skip::because(format!("no multicast on the loopback interface: {error}"))
}

fn v4(address: SocketAddr) -> Ipv4Addr {
    match address.ip() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(ip) => panic!("{ip} is not of IPv4"),
    }
}

/// Logs the datagrams of `udp`, until it is closed.
fn receive_until_the_end(lp: &mut Loop, udp: Udp) -> Log<Vec<u8>> {
    let got = Log::default();
    let log = got.clone();
    udp.recv_start(lp, move |lp, udp, datagram| {
        let datagram = datagram.expect("a datagram");
        log.push(datagram.data.to_vec());
        if datagram.data == b"end" {
            udp.recv_stop(lp).unwrap();
        }
    })
    .expect("a handle that receives");
    got
}

/// Options of a handle without a socket are errors.
pub fn options_need_a_socket(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (udp, group, here) =
        (Udp::new(&mut lp), Ipv4Addr::new(239, 255, 0, 1), Ipv4Addr::LOCALHOST);
    for result in [
        udp.set_broadcast(&mut lp, true),
        udp.set_ttl(&mut lp, 32),
        udp.set_multicast_ttl(&mut lp, 32),
        udp.set_multicast_loop(&mut lp, true),
        udp.set_multicast_interface_v4(&mut lp, here),
        udp.set_multicast_interface_v6(&mut lp, 0),
        udp.leave_multicast_v4(&mut lp, group, here),
        udp.leave_source_v4(&mut lp, group, here, here),
        udp.leave_multicast_v6(&mut lp, Ipv6Addr::LOCALHOST, 0),
        udp.set_ecn(&mut lp, Ecn::Capable0),
        udp.set_receive_ecn(&mut lp, true),
        udp.set_coalescing(&mut lp, true),
        udp.set_segment_size(&mut lp, 100),
        udp.peer_addr(&lp).map(drop),
    ] {
        refused(result, EBADF, "there is no socket");
    }
    refused(udp.local_addr(&lp), EBADF, "none was made by asking");
    finish(lp);
    Ok(())
}

/// Options reach the kernel, and values out of range are refused.
pub fn options_reach_the_socket(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let (socket, _) = outsider();
    let ours = socket.try_clone().expect("another name for the socket");
    let (ours, udp) = (SockRef::from(&ours), Udp::new(&mut lp));
    udp.open(&mut lp, socket).unwrap();
    for on in [true, false] {
        udp.set_broadcast(&mut lp, on).unwrap();
        assert_eq!(ours.broadcast().unwrap(), on);
        udp.set_multicast_loop(&mut lp, on).unwrap();
        assert_eq!(ours.multicast_loop_v4().unwrap(), on);
    }
    for ttl in [1, 255, 64] {
        udp.set_ttl(&mut lp, ttl).unwrap();
        assert_eq!(ours.ttl_v4().unwrap(), u32::from(ttl));
    }
    let error = udp.set_ttl(&mut lp, 0).expect_err("nothing lives so short");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert_eq!(ours.ttl_v4().unwrap(), 64, "unchanged");
    for ttl in [0, 255, 1] {
        udp.set_multicast_ttl(&mut lp, ttl).unwrap();
        assert_eq!(ours.multicast_ttl_v4().unwrap(), u32::from(ttl));
    }
    udp.set_multicast_interface_v4(&mut lp, Ipv4Addr::LOCALHOST).unwrap();
    assert_eq!(ours.multicast_if_v4().unwrap(), Ipv4Addr::LOCALHOST);
    finish(lp);
    Ok(())
}

/// The options of an IPv6 socket are set at the IPv6 level.
pub fn ipv6_options_reach_the_socket(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let socket = UdpSocket::bind((Ipv6Addr::LOCALHOST, 0));
    let socket =
        socket.map_err(|error| Skip::because(format!("no IPv6 on this machine: {error}")))?;
    let ours = socket.try_clone().expect("another name for the socket");
    let (ours, udp) = (SockRef::from(&ours), Udp::new(&mut lp));
    udp.open(&mut lp, socket).unwrap();
    for (hops, on) in [(1, true), (255, false)] {
        udp.set_ttl(&mut lp, hops).unwrap();
        assert_eq!(ours.unicast_hops_v6().unwrap(), u32::from(hops));
        udp.set_multicast_ttl(&mut lp, hops).unwrap();
        assert_eq!(ours.multicast_hops_v6().unwrap(), u32::from(hops));
        udp.set_multicast_loop(&mut lp, on).unwrap();
        assert_eq!(ours.multicast_loop_v6().unwrap(), on);
    }
    finish(lp);
    Ok(())
}

/// A member of a group receives its datagrams until it leaves.
pub fn members_of_a_group_get_its_datagrams(lab: &Lab) -> Verdict {
    let (mut lp, here) = (new_loop(lab)?, Ipv4Addr::LOCALHOST);
    let (udp, to) = member(&mut lp, 239);
    let sender = group_sender(&mut lp);
    udp.join_multicast_v4(&mut lp, v4(to), here).map_err(no_multicast)?;
    sender.try_send(&mut lp, b"joined", to).map_err(no_multicast)?;
    udp.leave_multicast_v4(&mut lp, v4(to), here).unwrap();
    assert!(udp.leave_multicast_v4(&mut lp, v4(to), here).is_err(), "it is not a member");
    // The group has no member any more, which some systems report.
    let _ = sender.try_send(&mut lp, b"left", to);
    sender.try_send(&mut lp, b"end", SocketAddr::from((here, to.port()))).unwrap();
    let got = receive_until_the_end(&mut lp, udp);
    run_out(&mut lp);
    assert_eq!(got.take(), [&b"joined"[..], b"end"]);
    finish(lp);
    Ok(())
}

/// A member of an IPv6 group receives its datagrams until it leaves. Joining creates the socket if
/// there is none.
pub fn members_of_an_ipv6_group_get_its_datagrams(lab: &Lab) -> Verdict {
    // The index of the loopback interface on most systems.
    const LOOPBACK: u32 = 1;
    let mut lp = new_loop(lab)?;
    let (udp, sender) = (Udp::new(&mut lp), Udp::new(&mut lp));
    // An interface-local group, with a number that another case is unlikely to use.
    let number = (unused_address().port(), std::process::id() as u16);
    let group = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, number.0, number.1);
    udp.join_multicast_v6(&mut lp, group, LOOPBACK).map_err(no_multicast)?;
    let port = udp.local_addr(&lp).expect("a socket was made").port();
    sender.bind(&mut lp, (Ipv6Addr::LOCALHOST, 0).into(), UdpBindFlags::empty()).unwrap();
    sender.set_multicast_interface_v6(&mut lp, LOOPBACK).map_err(no_multicast)?;
    let to = SocketAddr::from(SocketAddrV6::new(group, port, 0, LOOPBACK));
    sender.try_send(&mut lp, b"joined", to).map_err(no_multicast)?;
    udp.leave_multicast_v6(&mut lp, group, LOOPBACK).unwrap();
    let _ = sender.try_send(&mut lp, b"left", to);
    sender.try_send(&mut lp, b"end", SocketAddr::from((Ipv6Addr::LOCALHOST, port))).unwrap();
    let got = receive_until_the_end(&mut lp, udp);
    run_out(&mut lp);
    assert_eq!(got.take(), [&b"joined"[..], b"end"]);
    finish(lp);
    Ok(())
}

/// A member of one source of a group receives nothing from other sources.
pub fn source_membership_filters_senders(lab: &Lab) -> Verdict {
    let (mut lp, here) = (new_loop(lab)?, Ipv4Addr::LOCALHOST);
    let (udp, to) = member(&mut lp, 232);
    let (wanted, other) = (group_sender(&mut lp), Udp::new(&mut lp));
    let elsewhere = Ipv4Addr::new(127, 0, 0, 2);
    if let Err(error) = other.bind(&mut lp, (elsewhere, 0).into(), UdpBindFlags::empty()) {
        return Err(Skip::because(format!("this machine has one address only: {error}")));
    }
    other.set_multicast_interface_v4(&mut lp, here).unwrap();
    let (outside, address) = outsider();
    other.try_send(&mut lp, b"x", address).unwrap();
    let (_, from) = outside.recv_from(&mut [0; 16]).expect("a datagram");
    if from.ip() != elsewhere {
        return Err(Skip::because(format!("a socket bound to {elsewhere} sends from {from}")));
    }
    match udp.join_source_v4(&mut lp, v4(to), here, here) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return Err(Skip::because(error.to_string()));
        }
        joined => joined.map_err(no_multicast)?,
    }
    other.try_send(&mut lp, b"other", to).map_err(no_multicast)?;
    wanted.try_send(&mut lp, b"wanted", to).map_err(no_multicast)?;
    udp.leave_source_v4(&mut lp, v4(to), here, here).unwrap();
    let _ = wanted.try_send(&mut lp, b"left", to);
    wanted.try_send(&mut lp, b"end", SocketAddr::from((here, to.port()))).unwrap();
    let got = receive_until_the_end(&mut lp, udp);
    run_out(&mut lp);
    assert_eq!(got.take(), [&b"wanted"[..], b"end"]);
    finish(lp);
    Ok(())
}

/// A refusal at the peer's address is reported to a connected socket, which continues to receive.
pub fn a_refusal_reaches_a_connected_socket(lab: &Lab) -> Verdict {
    if wine::reports_no_refused_datagrams() {
        return Err(Skip::because("Wine does not report refused datagrams"));
    }
    let (mut lp, peer) = (new_loop(lab)?, unused_address());
    let (udp, callbacks) = (Udp::new(&mut lp), Log::default());
    udp.connect(&mut lp, peer).unwrap();
    let log = callbacks.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        let error = datagram.expect_err("no peer sends");
        assert!(!error.is_report() && error.offender().is_none(), "not asked for: {error:?}");
        log.push(error.io_error().kind());
        match log.len() {
            1 => udp.send(lp, "again", None, |_: &mut Loop, _, _, _| {}).unwrap(),
            _ => udp.close(lp).unwrap(),
        }
    })
    .unwrap();
    udp.send(&mut lp, "x", None, sent).unwrap();
    run_out(&mut lp);
    let refusal = match cfg!(windows) {
        true => ErrorKind::ConnectionReset,
        false => ErrorKind::ConnectionRefused,
    };
    assert_eq!(callbacks.take(), [refusal; 2]);
    finish(lp);
    Ok(())
}

/// Extended errors, if enabled, reach the receiver with the destination of the datagram and the
/// reporting host. Receiving continues.
pub fn extended_errors_reach_the_receiver(lab: &Lab) -> Verdict {
    let bind = |lp: &mut Loop, udp: Udp, flags| udp.bind(lp, any_port(), flags);
    let open = |lp: &mut Loop, udp: Udp, flags| udp.open_with(lp, outsider().0, flags);
    report_errors(new_loop(lab)?, bind)?;
    report_errors(new_loop(lab)?, open)
}

/// Sends to two closed ports by a socket that `set` has given the flag.
fn report_errors(
    mut lp: Loop,
    set: impl Fn(&mut Loop, Udp, UdpBindFlags) -> std::io::Result<()>,
) -> Verdict {
    let dead = [unused_address(), unused_address()];
    let (udp, callbacks) = (Udp::new(&mut lp), Log::default());
    supported(set(&mut lp, udp, UdpBindFlags::REPORT_ERRORS))?;
    let log = callbacks.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| match datagram {
        Ok(datagram) => {
            assert_eq!(datagram.data, b"end");
            udp.close(lp).unwrap();
        }
        Err(error) => {
            assert!(error.is_report(), "{error:?}");
            assert_eq!(error.io_error().kind(), ErrorKind::ConnectionRefused, "{error}");
            assert_eq!(error.offender(), Some(Ipv4Addr::LOCALHOST.into()));
            log.push(error.destination());
            if log.len() == 2 {
                let own = udp.local_addr(lp).unwrap();
                outsider().0.send_to(b"end", own).unwrap();
            }
        }
    })
    .unwrap();
    for to in dead {
        udp.send(&mut lp, "x", to, |_: &mut Loop, _, _, _| {}).unwrap();
        let (count, before) = (callbacks.clone(), callbacks.len());
        run_until(&mut lp, "a report", move |_| count.len() > before);
    }
    run_out(&mut lp);
    assert_eq!(callbacks.take(), dead.map(Some));
    finish(lp);
    Ok(())
}

/// An extended error does not keep the loop busy, delivered or not.
pub fn extended_errors_are_delivered_once(lab: &Lab) -> Verdict {
    let (mut lp, dead) = (new_loop(lab)?, unused_address());
    let (udp, callbacks) = (Udp::new(&mut lp), Log::default());
    supported(udp.bind(&mut lp, any_port(), UdpBindFlags::REPORT_ERRORS))?;
    let log = callbacks.clone();
    udp.recv_start(&mut lp, move |_, _, datagram| log.push(datagram.is_err())).unwrap();
    udp.try_send(&mut lp, b"x", dead).unwrap();
    // A busy kernel may delay the report.
    run_until(&mut lp, "a report", |_| callbacks.len() > 0);
    let polls = run_a_moment(&mut lp);
    assert_eq!(callbacks.take(), [true], "one report of one datagram");
    assert!(polls < 15, "{polls} polls after the report");
    udp.close(&mut lp).unwrap();
    finish(lp);
    Ok(())
}

/// Each datagram carries its congestion mark (ECN), if that is enabled.
pub fn congestion_marks_are_delivered_if_enabled(lab: &Lab) -> Verdict {
    const ALL: [Ecn; 4] = [Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1, Ecn::Congested];
    let mut lp = new_loop(lab)?;
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let [udp, sender] = [(); 2].map(|()| Udp::new(&mut lp));
        if udp.bind(&mut lp, (ip, 0).into(), UdpBindFlags::empty()).is_err() && ip.is_ipv6() {
            continue; // No IPv6 on this machine.
        }
        sender.bind(&mut lp, (ip, 0).into(), UdpBindFlags::empty()).unwrap();
        let to = udp.local_addr(&lp).unwrap();
        supported(udp.set_receive_ecn(&mut lp, true))?;
        for ecn in ALL {
            sender.set_ecn(&mut lp, ecn).unwrap();
            sender.try_send(&mut lp, b"x", to).unwrap();
        }
        let callbacks = Log::default();
        let log = callbacks.clone();
        udp.recv_start(&mut lp, move |lp, udp, datagram| {
            log.push(datagram.expect("a datagram").ecn);
            if log.len() == ALL.len() {
                udp.recv_stop(lp).unwrap();
            }
        })
        .unwrap();
        run_out(&mut lp);
        assert_eq!(callbacks.take(), ALL.map(Some), "on {ip}");
    }
    finish(lp);
    Ok(())
}

/// The kernel splits a send into datagrams, and coalesces received ones, which can be iterated.
pub fn segmentation_offload_splits_and_coalesces(lab: &Lab) -> Verdict {
    let mut lp = new_loop(lab)?;
    let ((plain, to_plain), (udp, to)) = (bound(&mut lp), bound(&mut lp));
    let (sender, _) = bound(&mut lp);
    supported(udp.set_coalescing(&mut lp, true))?;
    supported(sender.set_segment_size(&mut lp, 100))?;
    for (receiver, to) in [(plain, to_plain), (udp, to)] {
        sender.send(&mut lp, vec![7; 950], to, sent).unwrap();
        let got = Log::default();
        let log = got.clone();
        receiver
            .recv_start(&mut lp, move |lp, udp, datagram| {
                let datagram = datagram.expect("a datagram");
                datagram.segments().for_each(|segment| log.push(segment.len()));
                if log.len() == 10 {
                    udp.recv_stop(lp).unwrap();
                }
            })
            .unwrap();
        run_out(&mut lp);
        assert_eq!(got.take(), [100, 100, 100, 100, 100, 100, 100, 100, 100, 50]);
    }
    finish(lp);
    Ok(())
}
