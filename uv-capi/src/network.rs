//! Addresses and interfaces.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ptr::null_mut;

use libc::{
    AF_INET, AF_INET6, EAFNOSUPPORT, EINVAL, ENOMEM, ENOSPC, sockaddr, sockaddr_in, sockaddr_in6,
    sockaddr_storage,
};

use crate::alloc::{allocate_array, copy_string, release};
use crate::errors::{code, last_error};
use crate::layout::uv_interface_address_t;
use crate::strings::{bytes, is_buffer, write_string};

/// An internet address of the caller.
pub(crate) unsafe fn to_address(address: *const sockaddr) -> Result<SocketAddr, c_int> {
    if address.is_null() {
        return Err(-EINVAL);
    }
    match c_int::from((*address).sa_family) {
        AF_INET => {
            let v4 = &*address.cast::<sockaddr_in>();
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        AF_INET6 => {
            let v6 = &*address.cast::<sockaddr_in6>();
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Ok(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => Err(-EINVAL),
    }
}

/// An address and its size.
pub(crate) fn from_address(address: SocketAddr) -> (sockaddr_storage, usize) {
    // SAFETY: zeros are a valid value of the struct.
    let mut storage: sockaddr_storage = unsafe { std::mem::zeroed() };
    match address {
        SocketAddr::V4(v4) => {
            let out = (&raw mut storage).cast::<sockaddr_in>();
            // SAFETY: the storage has the size and the alignment of every address.
            unsafe {
                (*out).sin_family = AF_INET as u16;
                (*out).sin_port = v4.port().to_be();
                (*out).sin_addr.s_addr = u32::from(*v4.ip()).to_be();
            }
            (storage, size_of::<sockaddr_in>())
        }
        SocketAddr::V6(v6) => {
            let out = (&raw mut storage).cast::<sockaddr_in6>();
            // SAFETY: as above.
            unsafe {
                (*out).sin6_family = AF_INET6 as u16;
                (*out).sin6_port = v6.port().to_be();
                (*out).sin6_addr.s6_addr = v6.ip().octets();
                (*out).sin6_flowinfo = v6.flowinfo();
                (*out).sin6_scope_id = v6.scope_id();
            }
            (storage, size_of::<sockaddr_in6>())
        }
    }
}

/// Writes as much of an address as fits, and its whole size.
pub(crate) unsafe fn write_address(
    address: io::Result<SocketAddr>,
    to: *mut sockaddr,
    size: *mut c_int,
) -> c_int {
    match address {
        Ok(address) => {
            let (storage, length) = from_address(address);
            let Ok(room) = usize::try_from(*size) else { return -EINVAL };
            std::ptr::copy_nonoverlapping(
                (&raw const storage).cast::<u8>(),
                to.cast(),
                length.min(room),
            );
            *size = length as c_int;
            0
        }
        Err(error) => code(&error),
    }
}

/// The index of the interface after the `%` of an IPv6 address; 0 if there is none.
pub(crate) unsafe fn scope_of(text: *const c_char) -> c_uint {
    let percent = libc::strchr(text, c_int::from(b'%'));
    if percent.is_null() { 0 } else { libc::if_nametoindex(percent.add(1)) }
}

/// An IP address in text, without its scope.
pub(crate) unsafe fn parse_ip(text: *const c_char) -> Option<IpAddr> {
    if text.is_null() {
        return None;
    }
    let text = std::str::from_utf8(bytes(text)).ok()?;
    text.split('%').next()?.parse().ok()
}

unsafe extern "C" {
    fn inet_pton(family: c_int, text: *const c_char, address: *mut c_void) -> c_int;
    fn inet_ntop(
        family: c_int,
        address: *const c_void,
        text: *mut c_char,
        size: libc::socklen_t,
    ) -> *const c_char;
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_inet_pton(
    family: c_int,
    text: *const c_char,
    address: *mut c_void,
) -> c_int {
    if text.is_null() || address.is_null() {
        return -EINVAL;
    }
    let text = match family {
        AF_INET => bytes(text),
        AF_INET6 => bytes(text).split(|&byte| byte == b'%').next().unwrap_or_default(),
        _ => return -EAFNOSUPPORT,
    };
    let Ok(text) = CString::new(text) else { return -EINVAL };
    if inet_pton(family, text.as_ptr(), address) == 1 { 0 } else { -EINVAL }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_inet_ntop(
    family: c_int,
    address: *const c_void,
    text: *mut c_char,
    size: usize,
) -> c_int {
    if family != AF_INET && family != AF_INET6 {
        return -EAFNOSUPPORT;
    }
    let size = size.min(u32::MAX as usize) as u32;
    if inet_ntop(family, address, text, size).is_null() { -ENOSPC } else { 0 }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_ip4_addr(
    text: *const c_char,
    port: c_int,
    address: *mut sockaddr_in,
) -> c_int {
    *address = std::mem::zeroed();
    (*address).sin_family = AF_INET as u16;
    (*address).sin_port = (port as u16).to_be();
    uv_inet_pton(AF_INET, text, (&raw mut (*address).sin_addr).cast())
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_ip6_addr(
    text: *const c_char,
    port: c_int,
    address: *mut sockaddr_in6,
) -> c_int {
    *address = std::mem::zeroed();
    (*address).sin6_family = AF_INET6 as u16;
    (*address).sin6_port = (port as u16).to_be();
    (*address).sin6_scope_id = scope_of(text);
    uv_inet_pton(AF_INET6, text, (&raw mut (*address).sin6_addr).cast())
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_ip4_name(
    address: *const sockaddr_in,
    text: *mut c_char,
    size: usize,
) -> c_int {
    uv_inet_ntop(AF_INET, (&raw const (*address).sin_addr).cast(), text, size)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_ip6_name(
    address: *const sockaddr_in6,
    text: *mut c_char,
    size: usize,
) -> c_int {
    uv_inet_ntop(AF_INET6, (&raw const (*address).sin6_addr).cast(), text, size)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_ip_name(
    address: *const sockaddr,
    text: *mut c_char,
    size: usize,
) -> c_int {
    match c_int::from((*address).sa_family) {
        AF_INET => uv_ip4_name(address.cast(), text, size),
        AF_INET6 => uv_ip6_name(address.cast(), text, size),
        _ => -EAFNOSUPPORT,
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_if_indextoname(
    index: c_uint,
    buffer: *mut c_char,
    size: *mut usize,
) -> c_int {
    if !is_buffer(buffer, size) {
        return -EINVAL;
    }
    let mut name = [0; libc::IF_NAMESIZE + 1];
    if libc::if_indextoname(index, name.as_mut_ptr()).is_null() {
        return last_error();
    }
    write_string(bytes(name.as_ptr()), buffer, size)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_if_indextoiid(
    index: c_uint,
    buffer: *mut c_char,
    size: *mut usize,
) -> c_int {
    uv_if_indextoname(index, buffer, size)
}

/// The size of an internet address; `None` for another family.
unsafe fn internet_size(address: *const sockaddr) -> Option<usize> {
    match c_int::from((*address).sa_family) {
        AF_INET => Some(size_of::<sockaddr_in>()),
        AF_INET6 => Some(size_of::<sockaddr_in6>()),
        _ => None,
    }
}

/// The interfaces that are up and have an address.
struct Interfaces(*mut libc::ifaddrs);

impl Interfaces {
    unsafe fn each(&self) -> impl Iterator<Item = &libc::ifaddrs> {
        let mut next = self.0;
        let all = std::iter::from_fn(move || {
            // SAFETY: the list of getifaddrs(3) lives as long as `self`.
            let entry = unsafe { next.as_ref() }?;
            next = entry.ifa_next;
            Some(entry)
        });
        let up = (libc::IFF_UP | libc::IFF_RUNNING) as c_uint;
        all.filter(move |entry| entry.ifa_flags & up == up && !entry.ifa_addr.is_null())
    }
}

impl Drop for Interfaces {
    fn drop(&mut self) {
        // SAFETY: the list is getifaddrs(3)'s, and freed once.
        unsafe { libc::freeifaddrs(self.0) };
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_interface_addresses(
    addresses: *mut *mut uv_interface_address_t,
    count: *mut c_int,
) -> c_int {
    (*addresses, *count) = (null_mut(), 0);
    let mut first = null_mut();
    if libc::getifaddrs(&mut first) != 0 {
        return last_error();
    }
    let interfaces = Interfaces(first);
    let internet = || interfaces.each().filter(|entry| internet_size(entry.ifa_addr).is_some());
    let total = internet().count();
    if total == 0 {
        return 0;
    }
    let list = allocate_array::<uv_interface_address_t>(total);
    if list.is_null() {
        return -ENOMEM;
    }
    for (index, entry) in internet().enumerate() {
        let out = &mut *list.add(index);
        out.name = copy_string(bytes(entry.ifa_name));
        out.is_internal = c_int::from(entry.ifa_flags & libc::IFF_LOOPBACK as c_uint != 0);
        let size = internet_size(entry.ifa_addr).unwrap_or(0);
        std::ptr::copy_nonoverlapping(entry.ifa_addr.cast(), out.address.as_mut_ptr(), size);
        if !entry.ifa_netmask.is_null() {
            std::ptr::copy_nonoverlapping(entry.ifa_netmask.cast(), out.netmask.as_mut_ptr(), size);
        }
        let is_hardware = |other: &&libc::ifaddrs| {
            c_int::from((*other.ifa_addr).sa_family) == libc::AF_PACKET
                && bytes(other.ifa_name) == bytes(entry.ifa_name)
        };
        if let Some(hardware) = interfaces.each().find(is_hardware) {
            let link = &*hardware.ifa_addr.cast::<libc::sockaddr_ll>();
            out.phys_addr.copy_from_slice(&link.sll_addr[..6]);
        }
    }
    (*addresses, *count) = (list, total as c_int);
    0
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_free_interface_addresses(
    addresses: *mut uv_interface_address_t,
    count: c_int,
) {
    for index in 0..count.max(0) as usize {
        release((*addresses.add(index)).name.cast());
    }
    release(addresses.cast());
}
