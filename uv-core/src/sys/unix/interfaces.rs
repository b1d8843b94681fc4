//! Network interfaces by `getifaddrs(3)`.

use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use crate::system::InterfaceAddress;

/// Owns the list that `getifaddrs` has allocated.
struct List(*mut libc::ifaddrs);

impl Drop for List {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: `List::new` got the list from `getifaddrs`, and only this frees it. The
            // references that `entries` returns borrow `self`.
            unsafe { libc::freeifaddrs(self.0) };
        }
    }
}

impl List {
    fn new() -> io::Result<List> {
        let mut list = List(ptr::null_mut());
        // SAFETY: writes one pointer, to a field that is borrowed exclusively.
        match unsafe { libc::getifaddrs(&mut list.0) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(list),
        }
    }

    /// The entries of interfaces that are up and running, with their addresses.
    fn entries(&self) -> impl Iterator<Item = (&libc::ifaddrs, Address)> {
        let mut next = self.0;
        let all = std::iter::from_fn(move || {
            // SAFETY: null or an entry of the list, which `self` keeps allocated and unchanged.
            let entry = unsafe { next.as_ref() }?;
            next = entry.ifa_next;
            Some(entry)
        });
        let runs = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_uint;
        all.filter(move |entry| entry.ifa_flags as libc::c_uint & runs == runs)
            // SAFETY: the pointer is the entry's, so null or an address in the list.
            .filter_map(|entry| Some((entry, unsafe { Address::read(entry.ifa_addr) }?)))
    }
}

/// The first bytes of an address of any family; the rest are zero.
struct Address {
    family: libc::c_int,
    bytes: [u8; Self::SIZE],
}

impl Address {
    const SIZE: usize = 64;

    /// Copies an address; `None` if the pointer is null.
    ///
    /// # Safety
    ///
    /// `from` is null or points to an address of its family's length, as `getifaddrs` returns it.
    unsafe fn read(from: *const libc::sockaddr) -> Option<Address> {
        // SAFETY: null or a valid address, by the caller's contract.
        let address = unsafe { from.as_ref() }?;
        let family = libc::c_int::from(address.sa_family);
        let mut bytes = [0; Self::SIZE];
        let length = length_of(address, family).min(Self::SIZE);
        // SAFETY: the address has `length_of` bytes, by the caller's contract, and `length` is at
        // most the size of `bytes`, a local that does not overlap.
        unsafe { ptr::copy_nonoverlapping(from.cast::<u8>(), bytes.as_mut_ptr(), length) };
        Some(Address { family, bytes })
    }

    fn array<const N: usize>(&self, from: usize) -> [u8; N] {
        std::array::from_fn(|index| self.bytes.get(from + index).copied().unwrap_or(0))
    }

    /// The address as one of `family`: netmasks do not always have their own family set. The
    /// offsets are the same on every system.
    fn ip(&self, family: libc::c_int) -> Option<IpAddr> {
        match family {
            libc::AF_INET => Some(Ipv4Addr::from(self.array::<4>(4)).into()),
            libc::AF_INET6 => Some(Ipv6Addr::from(self.array::<16>(8)).into()),
            _ => None,
        }
    }

    fn scope_id(&self) -> u32 {
        match self.family {
            libc::AF_INET6 => u32::from_ne_bytes(self.array(24)),
            _ => 0,
        }
    }

    /// The MAC address; `None` if this is an address of another family.
    fn physical(&self) -> Option<[u8; 6]> {
        cfg_if::cfg_if! {
            if #[cfg(any(target_os = "linux", target_os = "android"))] {
                // `sockaddr_ll`: after the family, protocol, index, types and length.
                (self.family == libc::AF_PACKET).then(|| self.array(12))
            } else {
                // `sockaddr_dl`: after the interface's name, whose length is in the sixth byte.
                (self.family == libc::AF_LINK).then(|| self.array(8 + usize::from(self.bytes[5])))
            }
        }
    }
}

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        fn length_of(_: &libc::sockaddr, family: libc::c_int) -> usize {
            match family {
                libc::AF_INET => size_of::<libc::sockaddr_in>(),
                libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
                libc::AF_PACKET => size_of::<libc::sockaddr_ll>(),
                _ => size_of::<libc::sockaddr>(),
            }
        }
    } else {
        fn length_of(address: &libc::sockaddr, _: libc::c_int) -> usize {
            usize::from(address.sa_len)
        }
    }
}

pub(crate) fn addresses() -> io::Result<Vec<InterfaceAddress>> {
    let list = List::new()?;
    let name_of = |entry: &libc::ifaddrs| {
        // SAFETY: `getifaddrs` sets a NUL-terminated name in each entry, which lives in `list`.
        unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned()
    };
    let hardware: HashMap<String, [u8; 6]> = list
        .entries()
        .filter_map(|(entry, address)| Some((name_of(entry), address.physical()?)))
        .collect();
    let found = list.entries().filter_map(|(entry, address)| {
        let ip = address.ip(address.family)?;
        // SAFETY: the pointer is the entry's, so null or an address in the list.
        let mask = unsafe { Address::read(entry.ifa_netmask) };
        let mask = mask.and_then(|mask| mask.ip(address.family));
        let any: IpAddr = match ip {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let name = name_of(entry);
        Some(InterfaceAddress {
            physical: hardware.get(&name).copied().unwrap_or_default(),
            name,
            is_internal: entry.ifa_flags as libc::c_int & libc::IFF_LOOPBACK != 0,
            address: ip,
            netmask: mask.unwrap_or(any),
            scope_id: address.scope_id(),
        })
    });
    Ok(found.collect())
}

/// The zone identifier after the `%` of an IPv6 address.
pub(crate) fn identifier(index: u32) -> io::Result<String> {
    name(index)
}

pub(crate) fn index(name: &CStr) -> io::Result<u32> {
    // SAFETY: reads a NUL-terminated string, which `CStr` guarantees.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

pub(crate) fn name(index: u32) -> io::Result<String> {
    let mut name = [0_u8; libc::IF_NAMESIZE];
    // SAFETY: writes at most `IF_NAMESIZE` bytes, the size of `name`.
    match unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) } {
        to if to.is_null() => Err(io::Error::last_os_error()),
        _ => Ok(super::system::text(&name)),
    }
}
