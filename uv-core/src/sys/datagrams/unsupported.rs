//! Datagram options that this crate implements for Linux only.

use std::io;
use std::net::Ipv6Addr;

use socket2::Socket;

use super::{Incoming, Report};

fn unsupported<T>(why: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// Without the options below there are no control messages.
pub(super) fn apply_controls(_: &mut Incoming<'_>, _: &[u8], _: usize) {}

pub(crate) fn set_reported(_: &Socket, _: bool) -> io::Result<()> {
    unsupported("network errors are reported per datagram on Linux only")
}

pub(crate) fn next_report(_: &Socket) -> Option<Report> {
    None
}

pub(crate) fn set_gro(_: &Socket, _: bool) -> io::Result<()> {
    unsupported("UDP GRO exists on Linux only: receive single datagrams")
}

pub(crate) fn set_segment_size(_: &Socket, _: u16) -> io::Result<()> {
    unsupported("UDP GSO exists on Linux only: send each datagram by itself")
}

pub(crate) fn set_ecn(_: &Socket, _: bool, _: u8) -> io::Result<()> {
    unsupported("the ECN bits can be set on Linux only")
}

pub(crate) fn set_receive_ecn(_: &Socket, _: bool, _: bool) -> io::Result<()> {
    unsupported("the ECN bits can be received on Linux only")
}

pub(crate) fn join_source_v6(_: &Socket, _: Ipv6Addr, _: Ipv6Addr, _: u32) -> io::Result<()> {
    unsupported("source-specific IPv6 multicast is implemented for Linux only")
}

pub(crate) fn leave_source_v6(_: &Socket, _: Ipv6Addr, _: Ipv6Addr, _: u32) -> io::Result<()> {
    unsupported("source-specific IPv6 multicast is implemented for Linux only")
}
