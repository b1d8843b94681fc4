//! Network interfaces.

use std::ffi::CString;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddrV6};

use crate::sys;

/// An address of a network interface, as returned by [`interface_addresses`].
///
/// ```
/// use uv_core::system::{InterfaceAddress, interface_addresses};
///
/// let is_external = |interface: &InterfaceAddress| !interface.is_internal;
/// for InterfaceAddress { name, address, netmask, .. } in interface_addresses()?
///     .into_iter()
///     .filter(is_external)
/// {
///     println!("{name} has {address} of {netmask}");
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct InterfaceAddress {
    /// The name of the interface. On Windows, the friendly name.
    pub name: String,
    /// The hardware address; zeros if it has none.
    pub physical: [u8; 6],
    /// True for a loopback interface.
    pub is_internal: bool,
    /// The address.
    pub address: IpAddr,
    /// The network mask.
    pub netmask: IpAddr,
    /// The scope of a link-local IPv6 address; 0 otherwise.
    pub scope_id: u32,
}

/// The addresses of the network interfaces that are up and running.
///
/// ```
/// for interface in uv_core::system::interface_addresses()? {
///     println!("{}: {}", interface.name, interface.address);
/// }
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors.
#[doc(alias = "uv_interface_addresses")]
pub fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    sys::interfaces::addresses()
}

/// The name of the network interface with this index: the part after the `%` of an IPv6 address.
///
/// ```
/// # #[cfg(target_os = "linux")]
/// assert_eq!(uv_core::system::interface_name(1)?, "lo");
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors, if there is no such interface.
#[doc(alias = "uv_if_indextoname")]
pub fn interface_name(index: u32) -> io::Result<String> {
    sys::interfaces::name(index)
}

/// The index of the network interface with this name: the reverse of [`interface_name`].
///
/// ```
/// # #[cfg(target_os = "linux")]
/// assert_eq!(uv_core::system::interface_index("lo")?, 1);
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `InvalidInput` for a name with a NUL; the system's errors, if there is no such interface.
pub fn interface_index(name: &str) -> io::Result<u32> {
    sys::interfaces::index(&CString::new(name)?)
}

/// The part after the `%` of an IPv6 address for the network interface with this index: its name,
/// or on Windows the index.
///
/// ```
/// use uv_core::system::{interface_identifier, socket_addr_v6};
///
/// # #[cfg(unix)] {
/// let address = socket_addr_v6(&format!("fe80::1%{}", interface_identifier(1)?), 80)?;
/// assert_eq!(address.scope_id(), 1);
/// # }
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's errors, if there is no such interface.
#[doc(alias = "uv_if_indextoiid")]
pub fn interface_identifier(index: u32) -> io::Result<String> {
    sys::interfaces::identifier(index)
}

/// Parses an IPv6 address, which may end in `%` and the name or the index of a network interface.
/// The standard library parses indices only.
///
/// ```
/// use uv_core::system::socket_addr_v6;
///
/// assert_eq!(socket_addr_v6("::1", 80)?, "[::1]:80".parse().unwrap());
/// assert_eq!(socket_addr_v6("fe80::1%3", 80)?.scope_id(), 3);
/// # #[cfg(target_os = "linux")]
/// assert_eq!(socket_addr_v6("fe80::1%lo", 80)?.scope_id(), 1);
/// assert!(socket_addr_v6("fe80::1%", 80).is_err());
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `InvalidInput` for text that is no address, and those of [`interface_index`].
#[doc(alias = "uv_ip6_addr")]
pub fn socket_addr_v6(text: &str, port: u16) -> io::Result<SocketAddrV6> {
    let (address, interface) = match text.split_once('%') {
        Some((address, interface)) => (address, Some(interface)),
        None => (text, None),
    };
    let invalid = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
    let address: Ipv6Addr = address.parse().map_err(|_| invalid("not an IPv6 address"))?;
    let scope_id = match interface {
        None => 0,
        Some("") => return Err(invalid("no interface after the %: write its name or index")),
        Some(interface) => match interface.parse() {
            Ok(number) => number,
            Err(_) => interface_index(interface)?,
        },
    };
    Ok(SocketAddrV6::new(address, port, 0, scope_id))
}
