//! The resolver of Windows, which takes UTF-16.

use std::ffi::CStr;
use std::io;
use std::net::SocketAddr;
use std::ptr;
use std::sync::OnceLock;

use socket2::{SockAddr, SockAddrStorage};
use windows_sys::Win32::Networking::WinSock::{
    ADDRINFOW, AF_INET, AF_INET6, AF_UNSPEC, AI_ADDRCONFIG, AI_ALL, AI_CANONNAME, AI_NUMERICHOST,
    AI_NUMERICSERV, AI_PASSIVE, AI_V4MAPPED, FreeAddrInfoW, GetAddrInfoW, GetNameInfoW, NI_DGRAM,
    NI_NAMEREQD, NI_NOFQDN, NI_NUMERICHOST, NI_NUMERICSERV, SOCK_DGRAM, SOCK_RAW, SOCK_STREAM,
    WSA_NOT_ENOUGH_MEMORY, WSADATA, WSAEAFNOSUPPORT, WSAEINVAL, WSAESOCKTNOSUPPORT,
    WSAHOST_NOT_FOUND, WSANO_DATA, WSANO_RECOVERY, WSAStartup, WSATRY_AGAIN, WSATYPE_NOT_FOUND,
};

use crate::dns::{
    AddrFlags, AddrInfo, Eai, Family, Hints, LookupError, NameFlags, NameInfo, SocketType,
};

/// The maximum lengths of the names that the resolver returns.
const MAX_HOST: usize = 1025;
const MAX_SERVICE: usize = 32;

const ADDR_FLAGS: [(AddrFlags, u32); 7] = [
    (AddrFlags::PASSIVE, AI_PASSIVE),
    (AddrFlags::CANONNAME, AI_CANONNAME),
    (AddrFlags::NUMERICHOST, AI_NUMERICHOST),
    (AddrFlags::NUMERICSERV, AI_NUMERICSERV),
    (AddrFlags::ADDRCONFIG, AI_ADDRCONFIG),
    (AddrFlags::V4MAPPED, AI_V4MAPPED),
    (AddrFlags::ALL, AI_ALL),
];

const NAME_FLAGS: [(NameFlags, u32); 5] = [
    (NameFlags::NUMERICHOST, NI_NUMERICHOST),
    (NameFlags::NUMERICSERV, NI_NUMERICSERV),
    (NameFlags::NOFQDN, NI_NOFQDN),
    (NameFlags::NAMEREQD, NI_NAMEREQD),
    (NameFlags::DGRAM, NI_DGRAM),
];

/// Windows supports every flag.
pub(crate) fn check_flags(_flags: AddrFlags) -> io::Result<()> {
    Ok(())
}

/// Starts Winsock once. It runs until the process exits.
pub(crate) fn start_winsock() -> io::Result<()> {
    const VERSION_2_2: u16 = 0x202;
    static STARTED: OnceLock<i32> = OnceLock::new();
    let code = STARTED.get_or_init(|| {
        // SAFETY: plain data, for which all zeros are a valid value.
        let mut data: WSADATA = unsafe { std::mem::zeroed() };
        // SAFETY: the call writes only `data`.
        unsafe { WSAStartup(VERSION_2_2, &mut data) }
    });
    match *code {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// The list that the resolver returned, freed on drop.
struct List(*mut ADDRINFOW);

impl Drop for List {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: allocated by `GetAddrInfoW`, and freed once.
            unsafe { FreeAddrInfoW(self.0) };
        }
    }
}

pub(crate) fn getaddrinfo(
    host: Option<&CStr>,
    service: Option<&CStr>,
    hints: Hints,
) -> io::Result<Vec<AddrInfo>> {
    start_winsock()?;
    // SAFETY: plain data; all zeros are hints without restrictions.
    let mut raw: ADDRINFOW = unsafe { std::mem::zeroed() };
    raw.ai_family = i32::from(match hints.family {
        Family::Any => AF_UNSPEC,
        Family::Ipv4 => AF_INET,
        Family::Ipv6 => AF_INET6,
    });
    raw.ai_socktype = socket_type_number(hints.socket_type);
    raw.ai_protocol = hints.protocol;
    let asked = ADDR_FLAGS.iter().filter(|(flag, _)| hints.flags.contains(*flag));
    raw.ai_flags = asked.fold(0, |all, (_, bit)| all | *bit as i32);
    let (host, service) = (host.map(wide), service.map(wide));
    let as_ptr = |text: &Option<Vec<u16>>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    let mut list = List(ptr::null_mut());
    // SAFETY: the strings end with NUL, and all arguments live across the call.
    let code = unsafe { GetAddrInfoW(as_ptr(&host), as_ptr(&service), &raw, &mut list.0) };
    if code != 0 {
        return Err(lookup_error(code));
    }
    let mut found = Vec::new();
    let mut next = list.0;
    // SAFETY: null, or an entry of the list, which lives until it is dropped.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ai_next;
        // Addresses of other families than IPv4 and IPv6 are skipped.
        let Some(address) = address_of(entry) else { continue };
        found.push(AddrInfo {
            address,
            socket_type: socket_type(entry.ai_socktype),
            protocol: entry.ai_protocol,
            canonical_name: name_of(entry),
        });
    }
    Ok(found)
}

pub(crate) fn getnameinfo(address: SocketAddr, flags: NameFlags) -> io::Result<NameInfo> {
    start_winsock()?;
    let address = SockAddr::from(address);
    let asked = NAME_FLAGS.iter().filter(|(flag, _)| flags.contains(*flag));
    let bits = asked.fold(0, |all, (_, bit)| all | bit);
    let (mut host, mut service) = ([0; MAX_HOST], [0; MAX_SERVICE]);
    // SAFETY: pointers and lengths describe the address and two local buffers.
    let code = unsafe {
        GetNameInfoW(
            address.as_ptr().cast(),
            address.len(),
            host.as_mut_ptr(),
            host.len() as u32,
            service.as_mut_ptr(),
            service.len() as u32,
            bits as i32,
        )
    };
    if code != 0 {
        return Err(lookup_error(code));
    }
    Ok(NameInfo { host: super::text(&host), service: super::text(&service) })
}

fn wide(text: &CStr) -> Vec<u16> {
    super::wide(&text.to_string_lossy())
}

fn name_of(entry: &ADDRINFOW) -> Option<String> {
    if entry.ai_canonname.is_null() {
        return None;
    }
    // SAFETY: the resolver terminates its strings with NUL.
    Some(unsafe { super::text_at(entry.ai_canonname) })
}

fn address_of(entry: &ADDRINFOW) -> Option<SocketAddr> {
    let mut storage = SockAddrStorage::zeroed();
    let length = entry.ai_addrlen.min(storage.size_of() as usize);
    let to = (&raw mut storage).cast::<u8>();
    // SAFETY: both the entry's address and the storage have at least `length` bytes.
    unsafe { ptr::copy_nonoverlapping(entry.ai_addr.cast::<u8>(), to, length) };
    // SAFETY: the storage holds `length` bytes of an address.
    unsafe { SockAddr::new(storage, length as i32) }.as_socket()
}

fn socket_type_number(socket_type: SocketType) -> i32 {
    match socket_type {
        SocketType::Any => 0,
        SocketType::Stream => SOCK_STREAM,
        SocketType::Datagram => SOCK_DGRAM,
        SocketType::Raw => SOCK_RAW,
        SocketType::Other(number) => number,
    }
}

fn socket_type(number: i32) -> SocketType {
    match number {
        0 => SocketType::Any,
        SOCK_STREAM => SocketType::Stream,
        SOCK_DGRAM => SocketType::Datagram,
        SOCK_RAW => SocketType::Raw,
        number => SocketType::Other(number),
    }
}

fn lookup_error(code: i32) -> io::Error {
    let eai = match code {
        WSATRY_AGAIN => Eai::Again,
        WSAEINVAL => Eai::BadFlags,
        WSANO_RECOVERY => Eai::Fail,
        WSAEAFNOSUPPORT => Eai::Family,
        WSA_NOT_ENOUGH_MEMORY => Eai::Memory,
        WSANO_DATA => Eai::NoData,
        WSAHOST_NOT_FOUND => Eai::NoName,
        WSATYPE_NOT_FOUND => Eai::Service,
        WSAESOCKTNOSUPPORT => Eai::SocketType,
        _ => return io::Error::from_raw_os_error(code),
    };
    LookupError::new(eai, code).into()
}
