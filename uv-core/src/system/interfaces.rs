//! Network interfaces.

use std::io;
use std::net::IpAddr;

use crate::sys;

/// An address of a network interface: what [`interface_addresses`] gives.
///
/// ```
/// use uv_core::system::{InterfaceAddress, interface_addresses};
///
/// let leads_elsewhere = |interface: &InterfaceAddress| !interface.is_internal;
/// for InterfaceAddress { name, address, netmask, .. } in interface_addresses()?
///     .into_iter()
///     .filter(leads_elsewhere)
/// {
///     println!("{name} has {address} of {netmask}");
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct InterfaceAddress {
    /// The name of the interface. On Windows, the one that people see.
    pub name: String,
    /// Its hardware's address; zeros if it has none.
    pub physical: [u8; 6],
    /// True if it leads to this machine only.
    pub is_internal: bool,
    /// The address.
    pub address: IpAddr,
    /// Which part of it is the network's.
    pub netmask: IpAddr,
    /// In which network an IPv6 address is meant that exists in many; 0 otherwise.
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
/// The system's.
pub fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    sys::interfaces::addresses()
}

/// The name of the network interface with this number: what stands after the `%` of an IPv6
/// address.
///
/// ```
/// # #[cfg(target_os = "linux")]
/// assert_eq!(uv_core::system::interface_name(1)?, "lo");
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The system's, if there is no such interface.
pub fn interface_name(index: u32) -> io::Result<String> {
    sys::interfaces::name(index)
}
