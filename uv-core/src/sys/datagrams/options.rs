//! Socket options of Linux that `socket2` does not have.

#![allow(unsafe_code)]

use std::io;
use std::net::{Ipv6Addr, SocketAddrV6};
use std::os::fd::AsRawFd;

use socket2::{SockAddr, Socket};

/// `setsockopt(2)`.
pub(super) fn set<T: Copy>(socket: &Socket, level: i32, name: i32, value: T) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    let value = (&raw const value).cast();
    // SAFETY: the pointer and the length are those of a local. The callers pass integers, or a
    // `repr(C)` structure whose padding the kernel ignores.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, length) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Lets the kernel coalesce datagrams of one sender (UDP GRO, Linux 5.0).
pub(crate) fn set_gro(socket: &Socket, on: bool) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_GRO, i32::from(on))
}

/// Lets the kernel split each send into datagrams of this size (UDP GSO, Linux 4.18). Zero disables
/// it.
pub(crate) fn set_segment_size(socket: &Socket, size: u16) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, i32::from(size))
}

/// Sets the ECN bits of the traffic class, and clears the others.
pub(crate) fn set_ecn(socket: &Socket, is_v6: bool, bits: u8) -> io::Result<()> {
    if is_v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, i32::from(bits))?;
    }
    // An IPv6 socket may send to IPv4-mapped addresses.
    set(socket, libc::IPPROTO_IP, libc::IP_TOS, i32::from(bits))
}

/// Receives the traffic class with each datagram.
pub(crate) fn set_receive_ecn(socket: &Socket, is_v6: bool, on: bool) -> io::Result<()> {
    if is_v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, i32::from(on))?;
    }
    set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, i32::from(on))
}

/// The kernel's `struct group_source_req`.
#[repr(C)]
#[derive(Clone, Copy)]
struct GroupSource {
    interface: u32,
    group: libc::sockaddr_storage,
    source: libc::sockaddr_storage,
}

fn storage(address: Ipv6Addr) -> libc::sockaddr_storage {
    let address = SockAddr::from(SocketAddrV6::new(address, 0, 0, 0));
    // SAFETY: `SockAddr` consists of a `sockaddr_storage`, which `as_ptr` points to, and a length;
    // the local outlives the read.
    unsafe { address.as_ptr().cast::<libc::sockaddr_storage>().read() }
}

fn set_source(
    socket: &Socket,
    name: i32,
    group: Ipv6Addr,
    source: Ipv6Addr,
    interface: u32,
) -> io::Result<()> {
    let value = GroupSource { interface, group: storage(group), source: storage(source) };
    set(socket, libc::IPPROTO_IPV6, name, value)
}

pub(crate) fn join_source_v6(
    socket: &Socket,
    group: Ipv6Addr,
    source: Ipv6Addr,
    interface: u32,
) -> io::Result<()> {
    set_source(socket, libc::MCAST_JOIN_SOURCE_GROUP, group, source, interface)
}

pub(crate) fn leave_source_v6(
    socket: &Socket,
    group: Ipv6Addr,
    source: Ipv6Addr,
    interface: u32,
) -> io::Result<()> {
    set_source(socket, libc::MCAST_LEAVE_SOURCE_GROUP, group, source, interface)
}
