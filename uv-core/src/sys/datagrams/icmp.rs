//! The error queue of a socket: what routers and hosts have said about its datagrams.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use socket2::Socket;

use super::Report;
use super::names::address;
use super::options::set;
use crate::sys::control::{Control, messages};

/// Room for the error and its sender's address.
const CONTROL: usize = 512;

/// Asks the kernel to keep these reports.
pub(crate) fn set_reported(socket: &Socket, is_v6: bool) -> io::Result<()> {
    if is_v6 {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
    }
    // A socket of version 6 may send to addresses of version 4.
    set(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1)
}

/// Takes the next report out of the queue.
pub(crate) fn next_report(socket: &Socket) -> Option<Report> {
    let mut control = Control([0; CONTROL]);
    // SAFETY: all zeros are an address of no family.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    // SAFETY: all zeros are null pointers and no lengths.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = size_of_val(&name) as libc::socklen_t;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL as _;
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the header names memory of this frame only.
    if unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) } < 0 {
        return None;
    }
    let mut report = Report {
        error: io::Error::other("the network has reported an error that it does not name"),
        destination: address(&name),
        offender: None,
    };
    // SAFETY: the kernel has filled the header, and the control memory is in this frame.
    for (level, kind, data) in unsafe { messages(&header) } {
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

/// An extended error, and the address behind it.
fn parse(data: &[u8]) -> Option<(io::Error, Option<std::net::IpAddr>)> {
    const ERROR: usize = size_of::<libc::sock_extended_err>();
    let (error, offender) = data.split_first_chunk::<ERROR>()?;
    // SAFETY: the bytes are there, and all bytes are a valid error.
    let error: libc::sock_extended_err = unsafe { ptr::read_unaligned(error.as_ptr().cast()) };
    // SAFETY: all zeros are an address of no family.
    let mut name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let length = offender.len().min(size_of_val(&name));
    // SAFETY: both have this many bytes, and all bytes are a valid storage.
    unsafe { ptr::copy_nonoverlapping(offender.as_ptr(), (&raw mut name).cast(), length) };
    let offender = address(&name).map(|address| address.ip());
    Some((io::Error::from_raw_os_error(error.ee_errno as i32), offender))
}
