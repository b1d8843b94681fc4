//! Binding and connecting.

use std::io::{self, ErrorKind, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use uv_core::{BindFlags, Handle, Keepalive, RunMode, Stream, Tcp};

use super::{Lp, any_port, connected, every, is_cancelled, log};

#[test]
fn nobody_listening_is_told_by_the_callback() {
    every(|lp| {
        let address = TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
        let (client, told) = (Tcp::new(lp), log());
        let tell = told.clone();
        let begun = client.connect(lp, address, move |lp, client, result| {
            tell.push(result.unwrap_err().kind());
            assert!(!client.is_readable(lp) && !client.is_writable(lp));
            client.close(lp).unwrap();
        });
        begun.unwrap();
        assert!(told.is_empty(), "not inline");
        lp.run(RunMode::Default).unwrap();
        assert_eq!(told.take(), [ErrorKind::ConnectionRefused]);
    });
}

#[test]
fn connecting_is_a_request_and_a_second_one_is_refused() {
    every(|lp| {
        let listener = TcpListener::bind(any_port()).unwrap();
        let address = listener.local_addr().unwrap();
        let client = Tcp::new(lp);
        client.unreference(lp).unwrap();
        client.connect(lp, address, |lp, client, _| client.close(lp).unwrap()).unwrap();
        let again = client.connect(lp, address, |_, _, _| unreachable!()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        assert!(!client.is_active(lp), "the request keeps the loop alive, not the handle");
        assert!(lp.alive());
        lp.run(RunMode::Default).unwrap();
    });
}

#[test]
fn an_address_in_use_is_told_where_it_matters() {
    every(|lp| {
        let taken = TcpListener::bind(any_port()).unwrap();
        let address = taken.local_addr().unwrap();
        let tcp = Tcp::new(lp);
        tcp.bind(lp, address, BindFlags::empty()).unwrap();
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(tcp.local_addr(lp).map(drop)), ErrorKind::AddrInUse);
        assert_eq!(kind(tcp.listen(lp, 1, |_, _, _| {})), ErrorKind::AddrInUse);
        let told = log();
        let tell = told.clone();
        let begun = tcp.connect(lp, address, move |lp, tcp, result| {
            tell.push(result.unwrap_err().kind());
            tcp.close(lp).unwrap();
        });
        begun.unwrap();
        assert!(told.is_empty());
        lp.run(RunMode::Default).unwrap();
        assert_eq!(told.take(), [ErrorKind::AddrInUse]);
    });
}

#[test]
fn writes_wait_for_the_connection() {
    every(|lp| {
        let listener = TcpListener::bind(any_port()).unwrap();
        let (client, order) = (Tcp::new(lp), log());
        let (one, two, three) = (order.clone(), order.clone(), order.clone());
        let address = listener.local_addr().unwrap();
        let connected = move |_: &mut Lp, _, result: io::Result<()>| {
            result.unwrap();
            one.push("connected");
        };
        client.connect(lp, address, connected).unwrap();
        assert_eq!(client.try_write(lp, b"x").unwrap_err().kind(), ErrorKind::WouldBlock);
        let written = move |_: &mut Lp, _, result: io::Result<()>, _| {
            result.unwrap();
            two.push("written");
        };
        client.write(lp, "hello", written).unwrap();
        assert_eq!(client.write_queue_size(lp), 5);
        let ended = move |lp: &mut Lp, client: Tcp, result: io::Result<()>| {
            result.unwrap();
            three.push("shut down");
            client.close(lp).unwrap();
        };
        client.shutdown(lp, ended).unwrap();
        assert!(!client.is_writable(lp));
        lp.run(RunMode::Default).unwrap();
        assert_eq!(order.take(), ["connected", "written", "shut down"]);
        let mut text = String::new();
        listener.accept().unwrap().0.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
    });
}

#[test]
fn writes_without_a_connection_are_cancelled_after_it_failed() {
    every(|lp| {
        let address = TcpListener::bind(any_port()).unwrap().local_addr().unwrap();
        let (client, order) = (Tcp::new(lp), log());
        let (one, two) = (order.clone(), order.clone());
        client.connect(lp, address, move |_, _, result| one.push(result.is_err())).unwrap();
        let written = move |lp: &mut Lp, client: Tcp, result: io::Result<()>, buf| {
            two.push(is_cancelled(&result) && buf == "hello");
            assert_eq!(client.write_queue_size(lp), 0);
            client.close(lp).unwrap();
        };
        client.write(lp, "hello", written).unwrap();
        lp.run(RunMode::Default).unwrap();
        assert_eq!(order.take(), [true, true]);
    });
}

#[test]
fn ipv6_and_ipv4_share_a_port_if_told_so() {
    every(|lp| {
        let server = Tcp::new(lp);
        let any = "[::]:0".parse().unwrap();
        if server.bind(lp, any, BindFlags::IPV6_ONLY).is_err() {
            eprintln!("skip: no IPv6");
            server.close(lp).unwrap();
            lp.run(RunMode::Default).unwrap();
            return;
        }
        server.listen_quietly(lp, 1).unwrap();
        let port = server.local_addr(lp).unwrap().port();
        assert!(TcpListener::bind(("0.0.0.0", port)).is_ok(), "IPv4 is free");
        let wrong = Tcp::new(lp);
        let refused = wrong.bind(lp, any_port(), BindFlags::IPV6_ONLY).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        wrong.close(lp).unwrap();
        let client = Tcp::new(lp);
        let address = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port));
        client
            .connect(lp, address, move |lp, client, result| {
                result.unwrap();
                assert_eq!(client.peer_addr(lp).unwrap(), address);
                client.close(lp).unwrap();
                server.close(lp).unwrap();
            })
            .unwrap();
        lp.run(RunMode::Default).unwrap();
    });
}

#[test]
#[cfg(target_os = "linux")]
fn several_share_a_port_that_is_reused() {
    every(|lp| {
        let (one, other) = (Tcp::new(lp), Tcp::new(lp));
        one.bind(lp, any_port(), BindFlags::REUSE_PORT).unwrap();
        one.listen_quietly(lp, 1).unwrap();
        let address = one.local_addr(lp).unwrap();
        other.bind(lp, address, BindFlags::REUSE_PORT).unwrap();
        other.listen_quietly(lp, 1).unwrap();
        one.close(lp).unwrap();
        other.close(lp).unwrap();
        lp.run(RunMode::Default).unwrap();
    });
}

#[test]
fn options_may_come_before_the_socket() {
    every(|lp| {
        let listener = TcpListener::bind(any_port()).unwrap();
        let tcp = Tcp::new(lp);
        tcp.set_nodelay(lp, true).unwrap();
        tcp.set_keepalive(lp, Some(Keepalive::after(Duration::from_secs(60)))).unwrap();
        let zero = Some(Keepalive::after(Duration::ZERO));
        assert_eq!(tcp.set_keepalive(lp, zero).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(tcp.local_addr(lp).unwrap_err().kind(), ErrorKind::NotConnected);
        tcp.connect(lp, listener.local_addr().unwrap(), |lp, tcp, result| {
            result.unwrap();
            tcp.set_nodelay(lp, false).unwrap();
            tcp.set_keepalive(lp, None).unwrap();
            tcp.set_simultaneous_accepts(lp, true).unwrap();
            tcp.close(lp).unwrap();
        })
        .unwrap();
        lp.run(RunMode::Default).unwrap();
    });
}

#[test]
fn what_is_no_connection_can_neither_be_read_nor_written() {
    every(|lp| {
        let tcp = Tcp::new(lp);
        let kind = |result: io::Result<()>| result.unwrap_err().kind();
        assert_eq!(kind(tcp.read_start(lp, |_, _, _| {})), ErrorKind::NotConnected);
        assert_eq!(kind(tcp.write(lp, "x", |_, _, _, _| {}).map(drop)), ErrorKind::NotConnected);
        assert_eq!(kind(tcp.shutdown(lp, |_, _, _| {})), ErrorKind::NotConnected);
        assert_eq!(kind(tcp.accept(lp).map(drop)), ErrorKind::InvalidInput);
        assert_eq!(kind(tcp.set_blocking(lp, true)), ErrorKind::NotConnected);
        assert_eq!(kind(tcp.try_write(lp, b"x").map(drop)), ErrorKind::NotConnected);
        tcp.close(lp).unwrap();
        assert_eq!(kind(tcp.read_start(lp, |_, _, _| {})), ErrorKind::InvalidInput);
        assert_eq!(kind(tcp.bind(lp, any_port(), BindFlags::empty())), ErrorKind::InvalidInput);
        assert_eq!(kind(tcp.listen(lp, 1, |_, _, _| {})), ErrorKind::InvalidInput);
        assert!(!tcp.is_readable(lp) && !tcp.is_writable(lp));
        lp.run(RunMode::Default).unwrap();
        assert_eq!(kind(tcp.read_stop(lp)), ErrorKind::NotFound);
        assert_eq!(kind(tcp.local_addr(lp).map(drop)), ErrorKind::NotFound);
        assert_eq!(kind(tcp.write(lp, "x", |_, _, _, _| {}).map(drop)), ErrorKind::NotFound);
    });
}

#[test]
fn a_handle_takes_one_socket() {
    every(|lp| {
        let (tcp, _peer) = connected(lp);
        let other = TcpListener::bind(any_port()).unwrap();
        assert_eq!(tcp.open(lp, other).unwrap_err().kind(), ErrorKind::ResourceBusy);
        tcp.close(lp).unwrap();
        lp.run(RunMode::Default).unwrap();
    });
}
