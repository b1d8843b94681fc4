//! UDP handles of a loop, plain sockets, and their callbacks.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;

use uv_core::{Handle, Udp, UdpBindFlags};

use super::loops::{run_to_the_end, watchdog};
use super::observe::SOON;
use super::streams::any_port;
use super::trace::Log;
use crate::Loop;

/// A bound handle and its address.
pub(crate) fn bound(lp: &mut Loop) -> (Udp, SocketAddr) {
    let udp = Udp::new(lp);
    udp.bind(lp, any_port(), UdpBindFlags::empty()).expect("a port to bind");
    (udp, udp.local_addr(lp).expect("the address that it is bound to"))
}

/// A blocking socket outside of the loop, and its address.
pub(crate) fn outsider() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(any_port()).expect("a port to bind");
    socket.set_read_timeout(Some(SOON)).expect("SO_RCVTIMEO");
    let address = socket.local_addr().expect("its address");
    (socket, address)
}

/// An address without a receiver: a port that was bound a moment ago.
pub(crate) fn unused_address() -> SocketAddr {
    outsider().1
}

/// Sends datagrams of one byte each, which stay in the receiver's buffer.
pub(crate) fn send_numbers(to: SocketAddr, numbers: Range<u8>) {
    let (socket, _) = outsider();
    for number in numbers {
        socket.send_to(&[number], to).expect("a datagram to this machine");
    }
}

/// The first byte of each of the next datagrams of a plain socket.
pub(crate) fn numbers_of(socket: &UdpSocket, count: usize) -> Vec<u8> {
    let next = || {
        let mut data = [0; 16];
        socket.recv(&mut data).map(|_| data[0])
    };
    (0..count).map(|_| next().expect("a datagram")).collect()
}

/// Logs the first byte of each datagram that `udp` receives, and closes it after `count` of them.
pub(crate) fn receive_numbers(lp: &mut Loop, udp: Udp, log: &Log<u8>, count: usize) {
    let log = log.clone();
    udp.recv_start(lp, move |lp, udp, datagram| {
        log.push(datagram.expect("a datagram").data[0]);
        if log.len() == count {
            udp.close(lp).expect("an open handle");
        }
    })
    .expect("a handle that receives");
}

/// A callback of a send that must succeed.
pub(crate) fn sent<B>(_: &mut Loop, _: Udp, result: io::Result<()>, _: B) {
    result.expect("the datagram is sent");
}

/// Asserts that a call fails with this system error.
#[track_caller]
pub(crate) fn refused<R>(result: io::Result<R>, code: i32, why: &str) {
    match result {
        Ok(_) => panic!("{why}: the call succeeds"),
        Err(error) => assert_eq!(error.raw_os_error(), Some(code), "{why}: {error}"),
    }
}

/// Runs the loop until it is not alive. Fails if it stays alive without events; a busy machine may
/// take as long as it needs for many of them.
#[track_caller]
pub(crate) fn run_out(lp: &mut Loop) {
    let watchdog = watchdog(lp, || panic!("the loop does not end"));
    watchdog.unreference(lp).expect("an open timer");
    run_to_the_end(lp);
    watchdog.close(lp).expect("an open timer");
    run_to_the_end(lp);
}

/// Runs the loop until it is not alive, then closes all handles and the loop.
#[track_caller]
pub(crate) fn finish(mut lp: Loop) {
    run_out(&mut lp);
    for handle in lp.walk() {
        handle.close(&mut lp).expect("an open handle");
    }
    run_to_the_end(&mut lp);
    assert!(lp.close().is_ok(), "a loop without handles can be closed");
}

/// Error codes under one name on every system.
pub(crate) mod code {
    #[cfg(unix)]
    pub(crate) use libc::{
        EALREADY, EBADF, EBUSY, ECANCELED, EDESTADDRREQ, EISCONN, EMSGSIZE, ENOTCONN,
    };

    #[cfg(windows)]
    mod winsock {
        pub(crate) const EALREADY: i32 = 10037;
        pub(crate) const EBADF: i32 = 10009;
        /// `ERROR_BUSY`: Winsock has no such error.
        pub(crate) const EBUSY: i32 = 170;
        pub(crate) const EDESTADDRREQ: i32 = 10039;
        pub(crate) const EISCONN: i32 = 10056;
        pub(crate) const EMSGSIZE: i32 = 10040;
        pub(crate) const ENOTCONN: i32 = 10057;
    }
    #[cfg(windows)]
    pub(crate) use winsock::*;
}
