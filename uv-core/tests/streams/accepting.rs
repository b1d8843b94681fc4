//! Listening and accepting.

use std::io::ErrorKind;
use std::net::TcpStream;

use uv_core::{Handle, RunMode, Stream, Tcp};

use super::{bound, every, is_cancelled, log};

#[test]
fn a_connection_that_is_not_accepted_holds_the_others_back() {
    every(|lp| {
        let (server, address) = bound(lp);
        let told = log();
        let tell = told.clone();
        server.listen(lp, 16, move |_, _, _| tell.push(())).unwrap();
        assert_eq!(server.accept(lp).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(server.is_active(lp));
        let peers: Vec<_> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
        while told.is_empty() {
            lp.run(RunMode::Once).unwrap();
        }
        for _ in 0..5 {
            lp.run(RunMode::NoWait).unwrap();
        }
        assert_eq!(told.len(), 1, "the listener waits for `accept`");
        for accepted in 1..=3 {
            let peer = server.accept(lp).unwrap();
            assert_eq!(peer.peer_addr(lp).unwrap(), peers[accepted - 1].local_addr().unwrap());
            peer.close(lp).unwrap();
            while accepted < 3 && told.len() == accepted {
                lp.run(RunMode::Once).unwrap();
            }
        }
        server.close(lp).unwrap();
        lp.run(RunMode::Default).unwrap();
    });
}

#[test]
fn requests_to_accept_are_served_in_order_and_cancelled_by_a_close() {
    every(|lp| {
        let (server, address) = bound(lp);
        server.listen_quietly(lp, 16).unwrap();
        let told = log();
        for number in 0..3 {
            let tell = told.clone();
            let request = server.accept_with(lp, move |lp, server, accepted| match accepted {
                Ok(peer) => {
                    tell.push((number, false));
                    peer.close(lp).unwrap();
                    if number == 1 {
                        server.close(lp).unwrap();
                    }
                }
                Err(error) => tell.push((number, is_cancelled(&Err::<(), _>(error)))),
            });
            request.unwrap();
        }
        let _peers = [TcpStream::connect(address).unwrap(), TcpStream::connect(address).unwrap()];
        lp.run(RunMode::Default).unwrap();
        assert_eq!(told.take(), [(0, false), (1, false), (2, true)]);
    });
}

#[test]
fn a_request_takes_the_connection_that_waits() {
    every(|lp| {
        let (server, address) = bound(lp);
        let told = log();
        let tell = told.clone();
        server.listen(lp, 16, move |_, _, _| tell.push("callback")).unwrap();
        let _peer = TcpStream::connect(address).unwrap();
        while told.is_empty() {
            lp.run(RunMode::Once).unwrap();
        }
        let tell = told.clone();
        let request = server.accept_with(lp, move |lp, server, accepted| {
            tell.push("request");
            accepted.unwrap().close(lp).unwrap();
            server.close(lp).unwrap();
        });
        request.unwrap();
        lp.run(RunMode::Default).unwrap();
        assert_eq!(told.take(), ["callback", "request"]);
    });
}

#[test]
fn a_second_listen_changes_the_callback() {
    every(|lp| {
        let (server, address) = bound(lp);
        server.listen(lp, 1, |_, _, _| unreachable!()).unwrap();
        server
            .listen(lp, 16, |lp, server, _| {
                server.accept(lp).unwrap().close(lp).unwrap();
                server.close(lp).unwrap();
            })
            .unwrap();
        let _peer = TcpStream::connect(address).unwrap();
        lp.run(RunMode::Default).unwrap();
    });
}

#[test]
fn listening_needs_no_address() {
    every(|lp| {
        let server = Tcp::new(lp);
        server.listen(lp, 1, |_, _, _| {}).unwrap();
        assert_ne!(server.local_addr(lp).unwrap().port(), 0);
        server.close(lp).unwrap();
        lp.run(RunMode::Default).unwrap();
    });
}
