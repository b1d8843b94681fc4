//! Network interfaces.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use socket2::{SockAddr, SockAddrStorage};
use windows_sys::Win32::Foundation::{ERROR_BUFFER_OVERFLOW, ERROR_NO_DATA};
use windows_sys::Win32::NetworkManagement::IpHelper::{
    ConvertInterfaceIndexToLuid, ConvertInterfaceLuidToNameW, GAA_FLAG_INCLUDE_PREFIX,
    GAA_FLAG_SKIP_ANYCAST, GAA_FLAG_SKIP_DNS_SERVER, GAA_FLAG_SKIP_MULTICAST, GetAdaptersAddresses,
    IF_TYPE_SOFTWARE_LOOPBACK, IP_ADAPTER_ADDRESSES_LH, IP_ADAPTER_UNICAST_ADDRESS_LH,
    if_nametoindex,
};
use windows_sys::Win32::NetworkManagement::Ndis::{IfOperStatusUp, NET_LUID_LH};
use windows_sys::Win32::Networking::WinSock::{AF_UNSPEC, SOCKET_ADDRESS};

use super::{text, text_at};
use crate::system::InterfaceAddress;

/// The list of adapters, in memory aligned for its structures.
fn adapters() -> io::Result<Vec<u64>> {
    let flags = GAA_FLAG_SKIP_ANYCAST
        | GAA_FLAG_SKIP_MULTICAST
        | GAA_FLAG_SKIP_DNS_SERVER
        | GAA_FLAG_INCLUDE_PREFIX;
    let mut size = 16 * 1024_u32;
    loop {
        let mut memory = vec![0_u64; size as usize / 8 + 1];
        let (family, to) = (u32::from(AF_UNSPEC), memory.as_mut_ptr().cast());
        // SAFETY: the call writes at most `size` bytes, the length of the local buffer.
        match unsafe { GetAdaptersAddresses(family, flags, ptr::null(), to, &mut size) } {
            0 => return Ok(memory),
            // The call has set `size` to the required size.
            ERROR_BUFFER_OVERFLOW => {}
            ERROR_NO_DATA => return Ok(Vec::new()),
            code => return Err(io::Error::from_raw_os_error(code as i32)),
        }
    }
}

pub(crate) fn addresses() -> io::Result<Vec<InterfaceAddress>> {
    let memory = adapters()?;
    let mut found = Vec::new();
    if memory.is_empty() {
        return Ok(found);
    }
    let mut next = memory.as_ptr().cast::<IP_ADAPTER_ADDRESSES_LH>().cast_mut();
    // SAFETY: null, or a pointer into `memory`, which lives until the end of the function.
    while let Some(adapter) = unsafe { next.as_ref() } {
        next = adapter.Next;
        if adapter.OperStatus == IfOperStatusUp {
            add_addresses(adapter, &mut found);
        }
    }
    Ok(found)
}

fn add_addresses(adapter: &IP_ADAPTER_ADDRESSES_LH, found: &mut Vec<InterfaceAddress>) {
    let mut physical = [0; 6];
    if adapter.PhysicalAddressLength as usize == physical.len() {
        physical.copy_from_slice(&adapter.PhysicalAddress[..6]);
    }
    // SAFETY: the system terminates the name with NUL.
    let name = unsafe { text_at(adapter.FriendlyName) };
    let mut next = adapter.FirstUnicastAddress;
    // SAFETY: null, or a pointer into the memory of the list, which the caller keeps.
    while let Some(unicast) = unsafe { next.as_ref() } {
        next = unicast.Next;
        let Some((address, scope_id)) = address_of(&unicast.Address) else { continue };
        found.push(InterfaceAddress {
            name: name.clone(),
            physical,
            is_internal: adapter.IfType == IF_TYPE_SOFTWARE_LOOPBACK,
            address,
            netmask: mask(address, prefix_length(unicast)),
            scope_id,
        });
    }
}

fn prefix_length(unicast: &IP_ADAPTER_UNICAST_ADDRESS_LH) -> u32 {
    unicast.OnLinkPrefixLength.into()
}

fn mask(address: IpAddr, ones: u32) -> IpAddr {
    match address {
        IpAddr::V4(_) => {
            let bits = u32::MAX.checked_shl(32 - ones.min(32)).unwrap_or(0);
            Ipv4Addr::from(bits).into()
        }
        IpAddr::V6(_) => {
            let bits = u128::MAX.checked_shl(128 - ones.min(128)).unwrap_or(0);
            Ipv6Addr::from(bits).into()
        }
    }
}

fn address_of(from: &SOCKET_ADDRESS) -> Option<(IpAddr, u32)> {
    let mut storage = SockAddrStorage::zeroed();
    let length = (from.iSockaddrLength as usize).min(storage.size_of() as usize);
    let to = (&raw mut storage).cast::<u8>();
    // SAFETY: both the address and the storage have at least `length` bytes.
    unsafe { ptr::copy_nonoverlapping(from.lpSockaddr.cast::<u8>(), to, length) };
    // SAFETY: the storage holds `length` bytes of an address.
    let address = unsafe { SockAddr::new(storage, length as i32) };
    let scope_id = address.as_socket_ipv6().map_or(0, |address| address.scope_id());
    Some((address.as_socket()?.ip(), scope_id))
}

/// The scope identifier after the `%` of an address: the index on Windows.
pub(crate) fn identifier(index: u32) -> io::Result<String> {
    name(index).map(|_| index.to_string())
}

pub(crate) fn index(name: &CStr) -> io::Result<u32> {
    // SAFETY: a `CStr` ends with NUL and lives across the call.
    match unsafe { if_nametoindex(name.as_ptr().cast()) } {
        0 => Err(io::ErrorKind::NotFound.into()),
        index => Ok(index),
    }
}

pub(crate) fn name(index: u32) -> io::Result<String> {
    // SAFETY: plain data, for which all zeros are a valid value.
    let mut luid: NET_LUID_LH = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes only the local variable.
    let code = unsafe { ConvertInterfaceIndexToLuid(index, &mut luid) };
    if code != 0 {
        return Err(io::Error::from_raw_os_error(code as i32));
    }
    let mut name = [0_u16; 257];
    // SAFETY: the call writes at most the length of the local buffer.
    let code = unsafe { ConvertInterfaceLuidToNameW(&luid, name.as_mut_ptr(), name.len()) };
    match code {
        0 => Ok(text(&name)),
        code => Err(io::Error::from_raw_os_error(code as i32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_have_as_many_ones() {
        let (v4, v6) = (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into());
        assert_eq!(mask(v4, 8), IpAddr::from([255, 0, 0, 0]));
        assert_eq!(mask(v4, 0), IpAddr::from([0, 0, 0, 0]));
        assert_eq!(mask(v4, 32), IpAddr::from([255; 4]));
        assert_eq!(mask(v6, 64), "ffff:ffff:ffff:ffff::".parse::<IpAddr>().unwrap());
    }
}
