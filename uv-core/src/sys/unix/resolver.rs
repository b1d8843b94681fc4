//! The system's resolver: `getaddrinfo(3)` and `getnameinfo(3)`.

use std::ffi::{CStr, CString};
use std::io;
use std::net::SocketAddr;
use std::ptr;

use socket2::{SockAddr, SockAddrStorage};

use crate::dns::{
    AddrFlags, AddrInfo, Eai, Family, Hints, LookupError, NameFlags, NameInfo, SocketType,
};

/// The longest results of `getnameinfo` (`NI_MAXHOST` and `NI_MAXSERV` of `netdb.h`).
const MAX_HOST: usize = 1025;
const MAX_SERVICE: usize = 32;

const ADDR_FLAGS: &[(AddrFlags, libc::c_int)] = &[
    (AddrFlags::PASSIVE, libc::AI_PASSIVE),
    (AddrFlags::CANONNAME, libc::AI_CANONNAME),
    (AddrFlags::NUMERICHOST, libc::AI_NUMERICHOST),
    (AddrFlags::NUMERICSERV, libc::AI_NUMERICSERV),
    (AddrFlags::ADDRCONFIG, libc::AI_ADDRCONFIG),
    #[cfg(not(any(target_os = "netbsd", target_os = "openbsd")))]
    (AddrFlags::V4MAPPED, libc::AI_V4MAPPED),
    #[cfg(not(any(target_os = "netbsd", target_os = "openbsd")))]
    (AddrFlags::ALL, libc::AI_ALL),
];

const NAME_FLAGS: [(NameFlags, libc::c_int); 5] = [
    (NameFlags::NUMERICHOST, libc::NI_NUMERICHOST),
    (NameFlags::NUMERICSERV, libc::NI_NUMERICSERV),
    (NameFlags::NOFQDN, libc::NI_NOFQDN),
    (NameFlags::NAMEREQD, libc::NI_NAMEREQD),
    (NameFlags::DGRAM, libc::NI_DGRAM),
];

/// Refuses flags that this system lacks.
pub(crate) fn check_flags(flags: AddrFlags) -> io::Result<()> {
    if ADDR_FLAGS.iter().map(|(flag, _)| *flag).collect::<AddrFlags>().contains(flags) {
        return Ok(());
    }
    let why = "this system's resolver does not map IPv4 addresses: leave V4MAPPED and ALL out";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// Owns the list that `getaddrinfo` has allocated.
struct List(*mut libc::addrinfo);

impl Drop for List {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: `getaddrinfo` below has allocated the list, and only this frees it.
            unsafe { libc::freeaddrinfo(self.0) };
        }
    }
}

pub(crate) fn getaddrinfo(
    host: Option<&CStr>,
    service: Option<&CStr>,
    hints: Hints,
) -> io::Result<Vec<AddrInfo>> {
    // SAFETY: a C structure of integers and raw pointers; zero is valid for each field.
    let mut raw: libc::addrinfo = unsafe { std::mem::zeroed() };
    raw.ai_family = match hints.family {
        Family::Any => libc::AF_UNSPEC,
        Family::Ipv4 => libc::AF_INET,
        Family::Ipv6 => libc::AF_INET6,
    };
    raw.ai_socktype = socket_type_number(hints.socket_type);
    raw.ai_protocol = hints.protocol;
    let wanted = ADDR_FLAGS.iter().filter(|(flag, _)| hints.flags.contains(*flag));
    raw.ai_flags = wanted.fold(0, |all, (_, bit)| all | bit);
    let as_ptr = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
    let mut list = List(ptr::null_mut());
    // SAFETY: the strings are null or NUL-terminated (`CStr`), the hints are a local, and the list
    // pointer is written to a local. All outlive the call.
    let code = unsafe { libc::getaddrinfo(as_ptr(host), as_ptr(service), &raw, &mut list.0) };
    if code != 0 {
        return Err(lookup_error(code));
    }
    let mut found = Vec::new();
    let mut next = list.0;
    // SAFETY: null or an entry of `list`, which stays allocated until it is dropped below.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ai_next;
        // Entries of other families than IPv4 and IPv6 are of no use to this crate.
        // SAFETY: `getaddrinfo` has made the entry.
        let Some(address) = (unsafe { address_of(entry) }) else { continue };
        found.push(AddrInfo {
            address,
            socket_type: socket_type(entry.ai_socktype),
            protocol: entry.ai_protocol,
            // SAFETY: null or a NUL-terminated string of the entry, which `list` keeps.
            canonical_name: unsafe { text(entry.ai_canonname) },
        });
    }
    Ok(found)
}

pub(crate) fn getnameinfo(address: SocketAddr, flags: NameFlags) -> io::Result<NameInfo> {
    let address = SockAddr::from(address);
    let wanted = NAME_FLAGS.iter().filter(|(flag, _)| flags.contains(*flag));
    let bits = wanted.fold(0, |all, (_, bit)| all | bit);
    let (mut host, mut service) = ([0; MAX_HOST], [0; MAX_SERVICE]);
    // SAFETY: the address has the length passed, and the call writes at most the lengths passed to
    // the two arrays. All three are locals.
    let code = unsafe {
        libc::getnameinfo(
            address.as_ptr().cast(),
            address.len(),
            host.as_mut_ptr(),
            host.len() as _,
            service.as_mut_ptr(),
            service.len() as _,
            bits,
        )
    };
    if code != 0 {
        return Err(lookup_error(code));
    }
    // SAFETY: `getnameinfo` has succeeded, so the array holds a NUL-terminated string.
    let host = unsafe { text(host.as_ptr()) };
    // SAFETY: as for the host.
    let service = unsafe { text(service.as_ptr()) };
    Ok(NameInfo { host: host.unwrap_or_default(), service: service.unwrap_or_default() })
}

/// Copies a string of the resolver; `None` for null.
///
/// # Safety
///
/// `from` is null or points to a NUL-terminated string that is not written during the call.
unsafe fn text(from: *const libc::c_char) -> Option<String> {
    if from.is_null() {
        return None;
    }
    // SAFETY: not null, hence a NUL-terminated string by the caller's contract.
    let text = CString::from(unsafe { CStr::from_ptr(from) });
    Some(text.to_string_lossy().into_owned())
}

/// The address of an entry, if it is IPv4 or IPv6.
///
/// # Safety
///
/// `entry.ai_addr` points to `entry.ai_addrlen` bytes of an address, as `getaddrinfo` sets them.
unsafe fn address_of(entry: &libc::addrinfo) -> Option<SocketAddr> {
    let mut storage = SockAddrStorage::zeroed();
    let length = entry.ai_addrlen.min(storage.size_of());
    let to = (&raw mut storage).cast::<u8>();
    // SAFETY: `length` is at most the entry's `ai_addrlen`, by the caller's contract, and the size
    // of `storage`, a local that does not overlap.
    unsafe { ptr::copy_nonoverlapping(entry.ai_addr.cast::<u8>(), to, length as usize) };
    // SAFETY: the storage holds `length` bytes of an address that the resolver has made.
    unsafe { SockAddr::new(storage, length) }.as_socket()
}

fn socket_type_number(socket_type: SocketType) -> libc::c_int {
    match socket_type {
        SocketType::Any => 0,
        SocketType::Stream => libc::SOCK_STREAM,
        SocketType::Datagram => libc::SOCK_DGRAM,
        SocketType::Raw => libc::SOCK_RAW,
        SocketType::Other(number) => number,
    }
}

fn socket_type(number: libc::c_int) -> SocketType {
    match number {
        0 => SocketType::Any,
        libc::SOCK_STREAM => SocketType::Stream,
        libc::SOCK_DGRAM => SocketType::Datagram,
        libc::SOCK_RAW => SocketType::Raw,
        number => SocketType::Other(number),
    }
}

/// `EAI_` numbers that the `libc` crate does not define for every system.
mod eai_numbers {
    cfg_if::cfg_if! {
        if #[cfg(any(target_os = "linux", target_os = "openbsd"))] {
            pub(super) const ADDRFAMILY: i32 = -9;
            pub(super) const NODATA: i32 = -5;
        } else {
            pub(super) const ADDRFAMILY: i32 = 1;
            pub(super) const NODATA: i32 = 7;
        }
    }
    cfg_if::cfg_if! {
        if #[cfg(target_os = "linux")] {
            /// Linux has no such error: no result is equal to these.
            pub(super) const BADHINTS: i32 = i32::MIN;
            pub(super) const PROTOCOL: i32 = i32::MAX;
        } else if #[cfg(target_os = "openbsd")] {
            pub(super) const BADHINTS: i32 = -12;
            pub(super) const PROTOCOL: i32 = -13;
        } else {
            pub(super) const BADHINTS: i32 = 12;
            pub(super) const PROTOCOL: i32 = 13;
        }
    }
}

/// The error of a result code. To be called before any other call changes `errno`.
fn lookup_error(code: libc::c_int) -> io::Error {
    let eai = match code {
        libc::EAI_SYSTEM => return io::Error::last_os_error(),
        libc::EAI_AGAIN => Eai::Again,
        libc::EAI_BADFLAGS => Eai::BadFlags,
        libc::EAI_FAIL => Eai::Fail,
        libc::EAI_FAMILY => Eai::Family,
        libc::EAI_MEMORY => Eai::Memory,
        libc::EAI_NONAME => Eai::NoName,
        libc::EAI_OVERFLOW => Eai::Overflow,
        libc::EAI_SERVICE => Eai::Service,
        libc::EAI_SOCKTYPE => Eai::SocketType,
        eai_numbers::ADDRFAMILY => Eai::AddrFamily,
        eai_numbers::NODATA => Eai::NoData,
        eai_numbers::BADHINTS => Eai::BadHints,
        eai_numbers::PROTOCOL => Eai::Protocol,
        _ => Eai::Other,
    };
    LookupError::new(eai, code).into()
}
