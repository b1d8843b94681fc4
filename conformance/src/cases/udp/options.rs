//! Options, groups, and what the network says.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};

use poll_core::Backend;
use socket2::SockRef;
use uv_core::{Ecn, Handle, Loop, Udp, UdpBind};

use crate::support::datagrams::code::EBADF;
use crate::support::datagrams::{bound, finish, nobody, outsider, refused, run_out, sent};
use crate::support::loops::{new_loop, timer_in};
use crate::support::observe::SHORT;
use crate::support::streams::{any_port, run_until};
use crate::support::trace::Log;
use crate::support::wine;
use crate::{Lab, Skip, Verdict};

/// Skips where the system says that it does not have something.
fn supported(result: std::io::Result<()>) -> Verdict {
    match result {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            Err(Skip::because(error.to_string()))
        }
        result => {
            result.expect("what the system has works");
            Ok(())
        }
    }
}

/// A group that no other case is in, and a handle that can get what is sent to it.
fn member<T: Backend>(lp: &mut Loop<T>, first: u8) -> (Udp, SocketAddr) {
    let udp = Udp::new(lp);
    let any = (Ipv4Addr::UNSPECIFIED, 0).into();
    udp.bind(lp, any, UdpBind::REUSE_ADDRESS).expect("a port to bind");
    let port = udp.local_addr(lp).expect("its address").port();
    let [high, low] = port.to_be_bytes();
    (udp, (Ipv4Addr::new(first, 255, high, low), port).into())
}

/// A handle that sends to groups on the loopback interface.
fn group_sender<T: Backend>(lp: &mut Loop<T>) -> Udp {
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

/// Notes what `udp` receives, until it is told to end.
fn receive_until_the_end<T: Backend>(lp: &mut Loop<T>, udp: Udp) -> Log<Vec<u8>> {
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

/// A handle without a socket has no options to set.
pub fn options_want_a_socket<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// What is set reaches the kernel, and what is out of range does not.
pub fn options_reach_the_socket<T: Backend>(lab: &Lab<T>) -> Verdict {
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
    assert_eq!(ours.ttl_v4().unwrap(), 64, "as it was");
    for ttl in [0, 255, 1] {
        udp.set_multicast_ttl(&mut lp, ttl).unwrap();
        assert_eq!(ours.multicast_ttl_v4().unwrap(), u32::from(ttl));
    }
    udp.set_multicast_interface_v4(&mut lp, Ipv4Addr::LOCALHOST).unwrap();
    assert_eq!(ours.multicast_if_v4().unwrap(), Ipv4Addr::LOCALHOST);
    finish(lp);
    Ok(())
}

/// Options of a socket of IPv6 are those of IPv6.
pub fn options_of_ipv6_reach_the_socket<T: Backend>(lab: &Lab<T>) -> Verdict {
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

/// Who has joined a group gets what is sent to it, until he leaves.
pub fn members_of_a_group_get_its_datagrams<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, here) = (new_loop(lab)?, Ipv4Addr::LOCALHOST);
    let (udp, to) = member(&mut lp, 239);
    let sender = group_sender(&mut lp);
    udp.join_multicast_v4(&mut lp, v4(to), here).map_err(no_multicast)?;
    sender.try_send(&mut lp, b"joined", to).map_err(no_multicast)?;
    udp.leave_multicast_v4(&mut lp, v4(to), here).unwrap();
    assert!(udp.leave_multicast_v4(&mut lp, v4(to), here).is_err(), "it has left");
    // Nobody is there any more, which some systems say.
    let _ = sender.try_send(&mut lp, b"left", to);
    sender.try_send(&mut lp, b"end", SocketAddr::from((here, to.port()))).unwrap();
    let got = receive_until_the_end(&mut lp, udp);
    run_out(&mut lp);
    assert_eq!(got.take(), [&b"joined"[..], b"end"]);
    finish(lp);
    Ok(())
}

/// As for IPv4; joining makes a socket if there is none.
pub fn members_of_an_ipv6_group_get_its_datagrams<T: Backend>(lab: &Lab<T>) -> Verdict {
    // The number of the loopback interface on most systems.
    const LOOPBACK: u32 = 1;
    let mut lp = new_loop(lab)?;
    let (udp, sender) = (Udp::new(&mut lp), Udp::new(&mut lp));
    // A group of this machine only, of a number that another case is unlikely to have.
    let number = (nobody().port(), std::process::id() as u16);
    let group = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, number.0, number.1);
    udp.join_multicast_v6(&mut lp, group, LOOPBACK).map_err(no_multicast)?;
    let port = udp.local_addr(&lp).expect("a socket was made").port();
    sender.bind(&mut lp, (Ipv6Addr::LOCALHOST, 0).into(), UdpBind::empty()).unwrap();
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

/// Who has joined one source of a group gets nothing from others.
pub fn sources_of_a_group_are_told_apart<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, here) = (new_loop(lab)?, Ipv4Addr::LOCALHOST);
    let (udp, to) = member(&mut lp, 232);
    let (wanted, other) = (group_sender(&mut lp), Udp::new(&mut lp));
    let elsewhere = Ipv4Addr::new(127, 0, 0, 2);
    if let Err(error) = other.bind(&mut lp, (elsewhere, 0).into(), UdpBind::empty()) {
        return Err(Skip::because(format!("this machine has one address only: {error}")));
    }
    other.set_multicast_interface_v4(&mut lp, here).unwrap();
    let (outside, address) = outsider();
    other.try_send(&mut lp, b"x", address).unwrap();
    let (_, from) = outside.recv_from(&mut [0; 16]).expect("a datagram");
    if from.ip() != elsewhere {
        return Err(Skip::because(format!("what is bound to {elsewhere} sends from {from}")));
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

/// That nobody receives at its peer's address is told to a connected socket, which goes on
/// receiving.
pub fn a_refusal_reaches_a_connected_socket<T: Backend>(lab: &Lab<T>) -> Verdict {
    if wine::tells_no_refusals() {
        return Err(Skip::because("Wine does not tell of refused datagrams"));
    }
    let (mut lp, peer) = (new_loop(lab)?, nobody());
    let (udp, told) = (Udp::new(&mut lp), Log::default());
    udp.connect(&mut lp, peer).unwrap();
    let log = told.clone();
    udp.recv_start(&mut lp, move |lp, udp, datagram| {
        let error = datagram.expect_err("nobody sends anything");
        assert!(!error.is_report() && error.offender().is_none(), "not asked for: {error:?}");
        log.push(error.io_error().kind());
        match log.len() {
            1 => udp.send(lp, "again", None, |_: &mut Loop<T>, _, _, _| {}).unwrap(),
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
    assert_eq!(told.take(), [refusal; 2]);
    finish(lp);
    Ok(())
}

/// If asked for, what the network says about datagrams reaches the receiver: which one it is
/// about, and who says so. Receiving goes on.
pub fn reports_of_the_network_reach_the_receiver<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, dead) = (new_loop(lab)?, [nobody(), nobody()]);
    let (udp, told) = (Udp::new(&mut lp), Log::default());
    supported(udp.bind(&mut lp, any_port(), UdpBind::REPORT_ERRORS))?;
    let log = told.clone();
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
        udp.send(&mut lp, "x", to, |_: &mut Loop<T>, _, _, _| {}).unwrap();
        let (count, before) = (told.clone(), told.len());
        run_until(&mut lp, "a report", move |_| count.len() > before);
    }
    run_out(&mut lp);
    assert_eq!(told.take(), dead.map(Some));
    finish(lp);
    Ok(())
}

/// A report does not keep the loop busy, told or not.
pub fn reports_are_told_once<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (mut lp, dead) = (new_loop(lab)?, nobody());
    let (udp, told) = (Udp::new(&mut lp), Log::default());
    supported(udp.bind(&mut lp, any_port(), UdpBind::REPORT_ERRORS))?;
    let log = told.clone();
    udp.recv_start(&mut lp, move |_, _, datagram| log.push(datagram.is_err())).unwrap();
    udp.try_send(&mut lp, b"x", dead).unwrap();
    timer_in(&mut lp, SHORT, move |lp, _| udp.close(lp).unwrap());
    let before = lp.metrics().loop_count();
    run_out(&mut lp);
    let polls = lp.metrics().loop_count() - before;
    assert_eq!(told.take(), [true]);
    assert!(polls < 15, "{polls} polls for one report and one timer");
    finish(lp);
    Ok(())
}

/// If asked for, each datagram says whether the network was congested.
pub fn congestion_is_told_if_asked_for<T: Backend>(lab: &Lab<T>) -> Verdict {
    const ALL: [Ecn; 4] = [Ecn::NotCapable, Ecn::Capable0, Ecn::Capable1, Ecn::Congested];
    let mut lp = new_loop(lab)?;
    for ip in [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        let [udp, sender] = [(); 2].map(|()| Udp::new(&mut lp));
        if udp.bind(&mut lp, (ip, 0).into(), UdpBind::empty()).is_err() && ip.is_ipv6() {
            continue; // There is no IPv6 here.
        }
        sender.bind(&mut lp, (ip, 0).into(), UdpBind::empty()).unwrap();
        let to = udp.local_addr(&lp).unwrap();
        supported(udp.set_receive_ecn(&mut lp, true))?;
        for ecn in ALL {
            sender.set_ecn(&mut lp, ecn).unwrap();
            sender.try_send(&mut lp, b"x", to).unwrap();
        }
        let told = Log::default();
        let log = told.clone();
        udp.recv_start(&mut lp, move |lp, udp, datagram| {
            log.push(datagram.expect("a datagram").ecn);
            if log.len() == ALL.len() {
                udp.recv_stop(lp).unwrap();
            }
        })
        .unwrap();
        run_out(&mut lp);
        assert_eq!(told.take(), ALL.map(Some), "on {ip}");
    }
    finish(lp);
    Ok(())
}

/// The kernel can cut what is sent in datagrams, and put them together again; they can be
/// taken apart.
pub fn segments_are_cut_and_put_together<T: Backend>(lab: &Lab<T>) -> Verdict {
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
