//! Conversion between `SocketAddr` and the kernel's `sockaddr` structures.

#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The address as a `sockaddr_in`.
#[inline]
pub(crate) fn name_v4(address: &SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: address.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
        sin_zero: [0; 8],
    }
}

/// The address as a `sockaddr_in6`.
pub(crate) fn name_v6(address: &SocketAddrV6) -> libc::sockaddr_in6 {
    libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as libc::sa_family_t,
        sin6_port: address.port().to_be(),
        sin6_flowinfo: address.flowinfo(),
        sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
        sin6_scope_id: address.scope_id(),
    }
}

/// The address that the kernel has written; `None` unless its family is IPv4 or IPv6.
#[inline]
pub(crate) fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let name = std::ptr::from_ref(name);
    // SAFETY: the pointer comes from a reference to an initialised `sockaddr_storage`.
    match i32::from(unsafe { (*name).ss_family }) {
        libc::AF_INET => {
            // SAFETY: a `sockaddr_storage` is at least as large and aligned as a `sockaddr_in` and
            // is initialised; every bit pattern of the integers is valid.
            let v4 = unsafe { &*name.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: a `sockaddr_storage` is at least as large and aligned as a `sockaddr_in6` and
            // is initialised; every bit pattern of the integers is valid.
            let v6 = unsafe { &*name.cast::<libc::sockaddr_in6>() };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// The name of a Unix domain socket, of which the kernel has written `length` bytes: a path, or an
/// abstract name with a leading NUL. `None` for other families, and without a name.
#[inline]
pub(crate) fn path(name: &libc::sockaddr_storage, length: libc::socklen_t) -> Option<&Path> {
    if i32::from(name.ss_family) == libc::AF_UNIX { unix_path(name, length) } else { None }
}

#[cold]
fn unix_path(name: &libc::sockaddr_storage, length: libc::socklen_t) -> Option<&Path> {
    const FAMILY: usize = std::mem::offset_of!(libc::sockaddr_un, sun_path);
    let length = (length as usize).min(size_of_val(name)).checked_sub(FAMILY)?;
    let start = std::ptr::from_ref(name).cast::<u8>();
    // SAFETY: within the structure, which is larger than the offset of a path.
    let start = unsafe { start.add(FAMILY) };
    // SAFETY: `length` bytes from there on are inside of the initialised structure, which is
    // borrowed for as long as the result.
    let bytes = unsafe { std::slice::from_raw_parts(start, length) };
    let bytes = match bytes {
        // An abstract name has a length; a path ends with a NUL.
        [0, ..] => bytes,
        _ => bytes.split(|&byte| byte == 0).next()?,
    };
    (!bytes.is_empty()).then(|| Path::new(OsStr::from_bytes(bytes)))
}
