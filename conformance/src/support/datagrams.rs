//! UDP handles of a loop, sockets outside of it, and what callbacks are told.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;

use poll_core::Backend;
use uv_core::{Handle, Loop, Timer, Udp, UdpBind};

use super::loops::{ZERO, run_to_the_end};
use super::observe::SOON;
use super::streams::any_port;
use super::trace::Log;

/// A handle that is bound, and its address.
pub(crate) fn bound<T: Backend>(lp: &mut Loop<T>) -> (Udp, SocketAddr) {
    let udp = Udp::new(lp);
    udp.bind(lp, any_port(), UdpBind::empty()).expect("a port to bind");
    (udp, udp.local_addr(lp).expect("the address that it is bound to"))
}

/// A socket outside of the loop, which waits for what it receives, and its address.
pub(crate) fn outsider() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(any_port()).expect("a port to bind");
    socket.set_read_timeout(Some(SOON)).expect("SO_RCVTIMEO");
    let address = socket.local_addr().expect("its address");
    (socket, address)
}

/// An address where nobody receives: a port that was bound a moment ago.
pub(crate) fn nobody() -> SocketAddr {
    outsider().1
}

/// Sends datagrams of one byte each, which wait in the receiver's buffer.
pub(crate) fn send_numbers(to: SocketAddr, numbers: Range<u8>) {
    let (socket, _) = outsider();
    for number in numbers {
        socket.send_to(&[number], to).expect("a datagram to this machine");
    }
}

/// The first byte of each of the next datagrams of a socket outside of the loop.
pub(crate) fn numbers_of(socket: &UdpSocket, count: usize) -> Vec<u8> {
    let next = || {
        let mut data = [0; 16];
        socket.recv(&mut data).map(|_| data[0])
    };
    (0..count).map(|_| next().expect("a datagram")).collect()
}

/// Notes the first byte of each datagram that `udp` receives, and closes it when there are
/// `count` of them.
pub(crate) fn receive_numbers<T: Backend>(lp: &mut Loop<T>, udp: Udp, log: &Log<u8>, count: usize) {
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
pub(crate) fn sent<T: Backend, B>(_: &mut Loop<T>, _: Udp, result: io::Result<()>, _: B) {
    result.expect("the datagram is sent");
}

/// Asserts that a call is refused with this error of the system.
#[track_caller]
pub(crate) fn refused<R>(result: io::Result<R>, code: i32, why: &str) {
    match result {
        Ok(_) => panic!("{why}: the call is not refused"),
        Err(error) => assert_eq!(error.raw_os_error(), Some(code), "{why}: {error}"),
    }
}

/// Runs the loop as long as it lives, which must not be for ever.
#[track_caller]
pub(crate) fn run_out<T: Backend>(lp: &mut Loop<T>) {
    let late = Timer::new(lp);
    late.start(lp, SOON, ZERO, |_, _| panic!("the loop does not end")).expect("a timer");
    late.unreference(lp).expect("an open timer");
    run_to_the_end(lp);
    late.close(lp).expect("an open timer");
    run_to_the_end(lp);
}

/// Runs the loop to its end, closes what is open, and the loop itself.
#[track_caller]
pub(crate) fn finish<T: Backend>(mut lp: Loop<T>) {
    run_out(&mut lp);
    for handle in lp.walk() {
        handle.close(&mut lp).expect("an open handle");
    }
    run_to_the_end(&mut lp);
    assert!(lp.close().is_ok(), "a loop with nothing left can be closed");
}

/// Errors by one name on every system.
pub(crate) mod code {
    #[cfg(unix)]
    pub(crate) use libc::{
        EALREADY, EBADF, EBUSY, ECANCELED, EDESTADDRREQ, EISCONN, EMSGSIZE, ENOTCONN,
    };

    #[cfg(windows)]
    mod winsock {
        pub(crate) const EALREADY: i32 = 10037;
        pub(crate) const EBADF: i32 = 10009;
        /// `ERROR_BUSY`: Winsock itself has no such error.
        pub(crate) const EBUSY: i32 = 170;
        pub(crate) const EDESTADDRREQ: i32 = 10039;
        pub(crate) const EISCONN: i32 = 10056;
        pub(crate) const EMSGSIZE: i32 = 10040;
        pub(crate) const ENOTCONN: i32 = 10057;
    }
    #[cfg(windows)]
    pub(crate) use winsock::*;
}
