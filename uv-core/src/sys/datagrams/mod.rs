//! Sending and receiving datagrams, in batches where the system has calls for them.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::Path;

use socket2::{SockAddr, Socket};

pub(crate) mod recvmsg_layout;

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        mod error_queue;
        mod mmsg;
        pub(crate) mod sockaddr;
        mod options;
        pub(crate) use error_queue::{next_report, set_reported};
        pub(crate) use mmsg::{Datagrams, send_batch, send_piece};
        use mmsg::apply_controls;
        pub(crate) use options::{
            join_source_v6, leave_source_v6, set_ecn, set_gro, set_receive_ecn, set_segment_size,
        };
    } else {
        mod single;
        mod unsupported;
        pub(crate) use single::{Datagrams, send_batch, send_piece};
        pub(crate) use unsupported::{
            join_source_v6, leave_source_v6, next_report, set_ecn, set_gro, set_receive_ecn,
            set_reported, set_segment_size,
        };
        use unsupported::apply_controls;
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

/// True if send operations are submitted by the system call that waits, as on io_uring. Windows
/// starts each operation with a call of its own, so a direct send costs no more.
pub(crate) const SENT_BY_WAIT: bool = cfg!(unix);

/// The most datagrams that one call receives or sends.
pub(crate) const BATCH: usize = 32;
/// An upper bound of a datagram's length: UDP has a length field of 16 bits.
pub(crate) const MAX_DATAGRAM: usize = 65_536;
/// The most pieces that are gathered by the kernel; a datagram of more is copied first.
const MAX_PIECES: usize = 16;

/// Where a datagram goes.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    /// To the peer of a connected socket.
    Peer,
    Inet(SocketAddr),
    /// Of a Unix datagram socket. Boxed, because it is rare and long.
    #[cfg_attr(windows, allow(dead_code, reason = "there are no such sockets"))]
    Unix(Box<SockAddr>),
}

impl Address {
    #[inline]
    pub(crate) fn target(&self) -> Target<'_> {
        match self {
            Address::Peer => Target::Peer,
            Address::Inet(address) => Target::Inet(*address),
            Address::Unix(address) => Target::Unix(address),
        }
    }
}

/// A borrowed [`Address`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target<'a> {
    Peer,
    Inet(SocketAddr),
    Unix(&'a SockAddr),
}

impl Target<'_> {
    pub(crate) fn of(to: Option<SocketAddr>) -> Target<'static> {
        to.map_or(Target::Peer, Target::Inet)
    }

    pub(crate) fn is_peer(&self) -> bool {
        matches!(self, Target::Peer)
    }

    /// The address for the kernel; `None` for the peer.
    pub(crate) fn to_sockaddr(self) -> Option<SockAddr> {
        match self {
            Target::Peer => None,
            Target::Inet(address) => Some(reachable(address).into()),
            Target::Unix(address) => Some(address.clone()),
        }
    }
}

/// A datagram to send.
pub(crate) trait Outgoing {
    fn to(&self) -> Target<'_>;
    fn pieces(&self) -> usize;
    fn piece(&self, index: usize) -> &[u8];
}

impl Outgoing for (&[IoSlice<'_>], Option<SocketAddr>) {
    fn to(&self) -> Target<'_> {
        Target::of(self.1)
    }

    fn pieces(&self) -> usize {
        self.0.len()
    }

    fn piece(&self, index: usize) -> &[u8] {
        &self.0[index]
    }
}

impl Outgoing for (&[IoSlice<'_>], Target<'_>) {
    fn to(&self) -> Target<'_> {
        self.1
    }

    fn pieces(&self) -> usize {
        self.0.len()
    }

    fn piece(&self, index: usize) -> &[u8] {
        &self.0[index]
    }
}

impl Outgoing for (&[u8], Option<SocketAddr>) {
    fn to(&self) -> Target<'_> {
        Target::of(self.1)
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
    /// The name of the sender, if its socket is a Unix datagram socket and bound.
    pub(crate) from_path: Option<&'a Path>,
    pub(crate) truncated: bool,
    /// The ECN bits of the IP header's traffic class, if the socket has them enabled.
    pub(crate) ecn: Option<u8>,
    /// The length of each datagram that the kernel has coalesced into this one (UDP GRO).
    pub(crate) segment_size: Option<usize>,
}

/// An ICMP error about a datagram that was sent.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) error: io::Error,
    /// Where the datagram was sent to.
    pub(crate) destination: Option<SocketAddr>,
    /// The router or host that sent the error.
    pub(crate) offender: Option<std::net::IpAddr>,
}

/// Sends one datagram.
#[inline]
pub(crate) fn send(socket: &Socket, datagram: &impl Outgoing) -> io::Result<usize> {
    match datagram.pieces() {
        1 => send_piece(socket, datagram.piece(0), datagram.to()),
        _ => send_pieces(socket, datagram),
    }
}

fn send_pieces(socket: &Socket, datagram: &impl Outgoing) -> io::Result<usize> {
    let pieces = (0..datagram.pieces()).map(|index| datagram.piece(index));
    if datagram.pieces() > MAX_PIECES {
        let together = pieces.collect::<Vec<_>>().concat();
        return send_piece(socket, &together, datagram.to());
    }
    let mut slices = [IoSlice::new(&[]); MAX_PIECES];
    slices.iter_mut().zip(pieces).for_each(|(slice, piece)| *slice = IoSlice::new(piece));
    let slices = &slices[..datagram.pieces()];
    match datagram.to().to_sockaddr() {
        Some(to) => socket.send_to_vectored(slices, &to),
        None => socket.send_vectored(slices),
    }
}

/// Replaces the unspecified address by the loopback address on Windows, which refuses to send to
/// the former; the other systems deliver to this host.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if cfg!(windows) && address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}
