//! Datagrams, as many as the system takes or gives by one call.

use std::io::{self, IoSlice};
use std::net::SocketAddr;

use socket2::Socket;

pub(crate) mod lent;

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        mod icmp;
        mod mmsg;
        mod names;
        mod options;
        pub(crate) use icmp::{next_report, set_reported};
        pub(crate) use mmsg::{Datagrams, send_batch, send_piece};
        use mmsg::note_controls;
        pub(crate) use options::{
            join_source_v6, leave_source_v6, set_ecn, set_gro, set_receive_ecn, set_segment_size,
        };
    } else {
        mod one_by_one;
        mod without;
        pub(crate) use one_by_one::{Datagrams, send_batch, send_piece};
        pub(crate) use without::{
            join_source_v6, leave_source_v6, next_report, set_ecn, set_gro, set_receive_ecn,
            set_reported, set_segment_size,
        };
        use without::note_controls;
    }
}

cfg_if::cfg_if! {
    if #[cfg(unix)] {
        use libc::{AF_INET, AF_INET6, MSG_TRUNC};
    } else {
        use windows_sys::Win32::Networking::WinSock as winsock;
        const AF_INET: i32 = winsock::AF_INET as i32;
        const AF_INET6: i32 = winsock::AF_INET6 as i32;
        const MSG_TRUNC: i32 = winsock::MSG_TRUNC as i32;
    }
}

/// Whether an operation is a way to send a datagram in the system call that waits. Windows
/// starts each by a call of its own, and that can as well be the call that sends.
pub(crate) const SENT_BY_WAIT: bool = cfg!(unix);

/// How many are received or sent by one call at most.
pub(crate) const BATCH: usize = 32;
/// Longer than any datagram.
pub(crate) const LARGEST: usize = 65_536;
/// How many pieces of a datagram are sent from where they are; more are copied together.
const PIECES: usize = 16;

/// A datagram to send.
pub(crate) trait Outgoing {
    /// `None` on a connected socket.
    fn to(&self) -> Option<SocketAddr>;
    fn pieces(&self) -> usize;
    fn piece(&self, index: usize) -> &[u8];
}

impl Outgoing for (&[u8], Option<SocketAddr>) {
    fn to(&self) -> Option<SocketAddr> {
        self.1
    }

    fn pieces(&self) -> usize {
        1
    }

    fn piece(&self, _: usize) -> &[u8] {
        self.0
    }
}

/// A datagram that was received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) from: SocketAddr,
    pub(crate) truncated: bool,
    /// The last two bits of the IP header's traffic class, if they were asked for.
    pub(crate) ecn: Option<u8>,
    /// The length of the datagrams that the kernel has put together, if it has.
    pub(crate) segment_size: Option<usize>,
}

/// What the network has said about a datagram that was sent.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) error: io::Error,
    /// Where the datagram was sent to.
    pub(crate) destination: Option<SocketAddr>,
    /// Who says so.
    pub(crate) offender: Option<std::net::IpAddr>,
}

/// Sends one datagram.
#[inline]
pub(crate) fn send(socket: &Socket, datagram: &impl Outgoing) -> io::Result<usize> {
    match datagram.pieces() {
        1 => send_piece(socket, datagram.piece(0), &datagram.to()),
        _ => send_pieces(socket, datagram),
    }
}

fn send_pieces(socket: &Socket, datagram: &impl Outgoing) -> io::Result<usize> {
    let pieces = (0..datagram.pieces()).map(|index| datagram.piece(index));
    if datagram.pieces() > PIECES {
        let together = pieces.collect::<Vec<_>>().concat();
        return send_piece(socket, &together, &datagram.to());
    }
    let mut slices = [IoSlice::new(&[]); PIECES];
    slices.iter_mut().zip(pieces).for_each(|(slice, piece)| *slice = IoSlice::new(piece));
    let slices = &slices[..datagram.pieces()];
    match datagram.to() {
        Some(to) => socket.send_to_vectored(slices, &reachable(to).into()),
        None => socket.send_vectored(slices),
    }
}

/// Where to send what is meant for nobody in particular. Windows refuses such an address;
/// elsewhere it means this machine, and so it does there.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if cfg!(windows) && address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
