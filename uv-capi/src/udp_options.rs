//! Options of UDP handles, and multicast groups.

use std::ffi::{c_char, c_int, c_uint};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{EBADF, EINVAL};
use uv_core::{Udp, UdpBindFlags};

use crate::errors::status;
use crate::handle::{core_of, descriptor, key};
use crate::layout::uv_udp_t;
use crate::network::{parse_ip, scope_of};

/// The values of `uv_membership`.
const LEAVE_GROUP: c_int = 0;
const JOIN_GROUP: c_int = 1;

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_set_broadcast(udp: *mut uv_udp_t, on: c_int) -> c_int {
    status(key::<Udp, _>(udp).set_broadcast(core_of(udp), on != 0))
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_set_ttl(udp: *mut uv_udp_t, ttl: c_int) -> c_int {
    match u8::try_from(ttl) {
        Ok(ttl @ 1..) => status(key::<Udp, _>(udp).set_ttl(core_of(udp), ttl)),
        _ => -EINVAL,
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_set_multicast_ttl(udp: *mut uv_udp_t, ttl: c_int) -> c_int {
    match u8::try_from(ttl) {
        Ok(ttl) => status(key::<Udp, _>(udp).set_multicast_ttl(core_of(udp), ttl)),
        _ => -EINVAL,
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_set_multicast_loop(udp: *mut uv_udp_t, on: c_int) -> c_int {
    match u8::try_from(on) {
        Ok(on) => status(key::<Udp, _>(udp).set_multicast_loop(core_of(udp), on != 0)),
        _ => -EINVAL,
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_set_multicast_interface(
    udp: *mut uv_udp_t,
    interface: *const c_char,
) -> c_int {
    let (lp, key) = (core_of(udp), key::<Udp, _>(udp));
    if descriptor(udp).is_none() {
        return -EBADF;
    }
    if interface.is_null() {
        let is_v6 = key.local_addr(lp).is_ok_and(|address| address.is_ipv6());
        return status(if is_v6 {
            key.set_multicast_interface_v6(lp, 0)
        } else {
            key.set_multicast_interface_v4(lp, Ipv4Addr::UNSPECIFIED)
        });
    }
    match parse_ip(interface) {
        Some(IpAddr::V4(address)) => status(key.set_multicast_interface_v4(lp, address)),
        Some(IpAddr::V6(_)) => status(key.set_multicast_interface_v6(lp, scope_of(interface))),
        None => -EINVAL,
    }
}

/// The interface of an IPv4 group: any if it is null.
unsafe fn interface_v4(interface: *const c_char) -> Result<Ipv4Addr, c_int> {
    if interface.is_null() {
        return Ok(Ipv4Addr::UNSPECIFIED);
    }
    match parse_ip(interface) {
        Some(IpAddr::V4(address)) => Ok(address),
        _ => Err(-EINVAL),
    }
}

/// The interface of an IPv6 group: the scope of the address, or any if it is null.
unsafe fn interface_v6(interface: *const c_char) -> Result<c_uint, c_int> {
    if interface.is_null() {
        return Ok(0);
    }
    match parse_ip(interface) {
        Some(IpAddr::V6(_)) => Ok(scope_of(interface)),
        _ => Err(-EINVAL),
    }
}

/// Binds a handle without a socket, so that it can join a group.
unsafe fn bind_to_any(udp: *mut uv_udp_t, any: SocketAddr) -> Result<(), c_int> {
    if descriptor(udp).is_some() {
        return Ok(());
    }
    match status(key::<Udp, _>(udp).bind(core_of(udp), any, UdpBindFlags::REUSE_ADDRESS)) {
        0 => Ok(()),
        error => Err(error),
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_set_membership(
    udp: *mut uv_udp_t,
    group: *const c_char,
    interface: *const c_char,
    join: c_int,
) -> c_int {
    if join != LEAVE_GROUP && join != JOIN_GROUP {
        return -EINVAL;
    }
    let (lp, key) = (core_of(udp), key::<Udp, _>(udp));
    let result = match parse_ip(group) {
        Some(IpAddr::V4(group)) => bind_to_any(udp, (Ipv4Addr::UNSPECIFIED, 0).into())
            .and_then(|()| interface_v4(interface))
            .map(|interface| match join {
                0 => key.leave_multicast_v4(lp, group, interface),
                _ => key.join_multicast_v4(lp, group, interface),
            }),
        Some(IpAddr::V6(group)) => bind_to_any(udp, (Ipv6Addr::UNSPECIFIED, 0).into())
            .and_then(|()| interface_v6(interface))
            .map(|interface| match join {
                0 => key.leave_multicast_v6(lp, group, interface),
                _ => key.join_multicast_v6(lp, group, interface),
            }),
        None => Err(-EINVAL),
    };
    result.map_or_else(|error| error, status)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_udp_set_source_membership(
    udp: *mut uv_udp_t,
    group: *const c_char,
    interface: *const c_char,
    source: *const c_char,
    join: c_int,
) -> c_int {
    if join != LEAVE_GROUP && join != JOIN_GROUP {
        return -EINVAL;
    }
    let (lp, key) = (core_of(udp), key::<Udp, _>(udp));
    let result = match (parse_ip(group), parse_ip(source)) {
        (Some(IpAddr::V4(group)), Some(IpAddr::V4(source))) => {
            bind_to_any(udp, (Ipv4Addr::UNSPECIFIED, 0).into())
                .and_then(|()| interface_v4(interface))
                .map(|interface| match join {
                    0 => key.leave_source_v4(lp, group, source, interface),
                    _ => key.join_source_v4(lp, group, source, interface),
                })
        }
        (Some(IpAddr::V6(group)), Some(IpAddr::V6(source))) => {
            bind_to_any(udp, (Ipv6Addr::UNSPECIFIED, 0).into())
                .and_then(|()| interface_v6(interface))
                .map(|interface| match join {
                    0 => key.leave_source_v6(lp, group, source, interface),
                    _ => key.join_source_v6(lp, group, source, interface),
                })
        }
        _ => Err(-EINVAL),
    };
    result.map_or_else(|error| error, status)
}
