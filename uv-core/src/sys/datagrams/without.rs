//! What other systems than Linux do not have, or have in a form that is not used here.

use std::io;
use std::net::Ipv6Addr;

use socket2::Socket;

use super::{Incoming, Report};

fn unsupported<T>(why: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// No control messages are asked for.
pub(super) fn note_controls(_: &mut Incoming<'_>, _: &[u8], _: usize) {}

pub(crate) fn set_reported(_: &Socket, _: bool) -> io::Result<()> {
    unsupported("only Linux tells which datagram the network reports an error about")
}

pub(crate) fn next_report(_: &Socket) -> Option<Report> {
    None
}

pub(crate) fn set_gro(_: &Socket, _: bool) -> io::Result<()> {
    unsupported("only Linux puts datagrams together")
}

pub(crate) fn set_segment_size(_: &Socket, _: u16) -> io::Result<()> {
    unsupported("only Linux cuts what is sent in datagrams")
}

pub(crate) fn set_ecn(_: &Socket, _: bool, _: u8) -> io::Result<()> {
    unsupported("the congestion bits can be set on Linux only")
}

pub(crate) fn set_receive_ecn(_: &Socket, _: bool, _: bool) -> io::Result<()> {
    unsupported("the congestion bits are told on Linux only")
}

pub(crate) fn join_source_v6(_: &Socket, _: Ipv6Addr, _: Ipv6Addr, _: u32) -> io::Result<()> {
    unsupported("a source of an IPv6 group can be named on Linux only")
}

pub(crate) fn leave_source_v6(_: &Socket, _: Ipv6Addr, _: Ipv6Addr, _: u32) -> io::Result<()> {
    unsupported("a source of an IPv6 group can be named on Linux only")
}
