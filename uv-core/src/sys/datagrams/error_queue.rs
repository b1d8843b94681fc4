//! The error queue of a socket (`MSG_ERRQUEUE`): ICMP errors about datagrams that it sent.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use socket2::Socket;

use super::Report;
use super::options::set;
use super::sockaddr::address;
use crate::sys::cmsg::{Control, messages, written};

/// Control space for `sock_extended_err` and the address of its sender.
const CONTROL: usize = 512;

/// Makes the kernel queue ICMP errors.
pub(crate) fn set_reported(socket: &Socket, is_v6: bool) -> io::Result<()> {
    if is_v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
    }
    // An IPv6 socket may send to IPv4-mapped addresses.
    set(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1)
}

/// Takes the next error out of the queue.
pub(crate) fn next_report(socket: &Socket) -> Option<Report> {
    let mut control = Control([0; CONTROL]);
    // SAFETY: an address structure of integers; zero is valid for each (family `AF_UNSPEC`).
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    // SAFETY: a C structure of integers and raw pointers; zero is valid for each field.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of_val(&name) as libc::socklen_t;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header has no iovec, and its name and control pointers are those of locals that
    // outlive the call, with their lengths.
    if unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) } < 0 {
        return None;
    }
    let mut report = Report {
        error: io::Error::other("the error queue has an entry without an IP_RECVERR message"),
        destination: address(&name),
        offender: None,
    };
    for (level, kind, data) in messages(written(&control.0, &header)) {
        let is_error = matches!(
            (level, kind),
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        );
        if is_error && let Some((error, offender)) = parse(data) {
            report.error = error;
            report.offender = offender;
        }
    }
    Some(report)
}

/// Parses `sock_extended_err` and the offender's address, which follows it.
fn parse(data: &[u8]) -> Option<(io::Error, Option<std::net::IpAddr>)> {
    const ERROR: usize = size_of::<libc::sock_extended_err>();
    let (error, offender) = data.split_first_chunk::<ERROR>()?;
    // SAFETY: `error` is an array of the structure's size, the read is unaligned, and the
    // structure has only integers: every bit pattern is valid.
    let error: libc::sock_extended_err = unsafe { ptr::read_unaligned(error.as_ptr().cast()) };
    // SAFETY: an address structure of integers; zero is valid for each (family `AF_UNSPEC`).
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let length = offender.len().min(size_of_val(&name));
    // SAFETY: `length` is at most the size of either; `name` is a local, so they do not overlap;
    // every bit pattern is a valid `sockaddr_storage`.
    unsafe { ptr::copy_nonoverlapping(offender.as_ptr(), (&raw mut name).cast(), length) };
    let offender = address(&name).map(|address| address.ip());
    Some((io::Error::from_raw_os_error(error.ee_errno as i32), offender))
}
