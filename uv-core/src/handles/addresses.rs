//! What names the addresses of a server: numbers, or a name that is looked up.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::dns::{self, Hints, SocketType};

/// The addresses to connect to or to listen on: the argument of
/// [`Tcp::connect_to`](crate::Tcp::connect_to) and [`Tcp::listen_on`](crate::Tcp::listen_on).
///
/// It is made from a `SocketAddr`, a list of them, a pair of host and port, or a text
/// `"host:port"`, whose host is a number or a name and whose port is a number or the name of a
/// service.
///
/// ```
/// use uv_core::Addresses;
///
/// let numbers = Addresses::from("[::1]:80");
/// let name = Addresses::from(("example.org", 443));
/// let service = Addresses::from("example.org:https");
/// assert_eq!(format!("{numbers} {name} {service}"), "[::1]:80 example.org:443 example.org:https");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses(pub(crate) Named);

/// The forms of [`Addresses`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    Known(Vec<SocketAddr>),
    /// A host and a service.
    Name(String, String),
    /// A text without a port.
    Invalid(String),
}

impl Addresses {
    /// The hints of a lookup.
    pub(crate) const HINTS: Hints = Hints {
        family: dns::Family::Any,
        socket_type: SocketType::Stream,
        protocol: 0,
        flags: dns::AddrFlags::empty(),
    };

    /// Looks the addresses up and blocks until they are known.
    pub(crate) fn resolve(self) -> io::Result<Vec<SocketAddr>> {
        match self.0 {
            Named::Known(addresses) => Ok(addresses),
            Named::Name(host, service) => {
                let found = dns::getaddrinfo(Some(&host), Some(&service), Self::HINTS)?;
                Ok(found.into_iter().map(|found| found.address).collect())
            }
            Named::Invalid(text) => Err(invalid(&text)),
        }
    }
}

/// The text has no port.
pub(crate) fn invalid(text: &str) -> io::Error {
    let why = format!("{text:?} names no address: write it as \"host:port\"");
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

/// There was no address to try.
pub(crate) fn none() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the list of addresses is empty")
}

impl std::fmt::Display for Addresses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Named::Known(addresses) => {
                for (index, address) in addresses.iter().enumerate() {
                    write!(f, "{}{address}", if index > 0 { ", " } else { "" })?;
                }
                Ok(())
            }
            Named::Name(host, service) => write!(f, "{host}:{service}"),
            Named::Invalid(text) => f.write_str(text),
        }
    }
}

impl From<&str> for Addresses {
    fn from(text: &str) -> Addresses {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return address.into();
        }
        Addresses(match text.rsplit_once(':') {
            Some((host, service)) if !host.is_empty() && !service.is_empty() => {
                Named::Name(host.into(), service.into())
            }
            _ => Named::Invalid(text.into()),
        })
    }
}

impl From<(&str, u16)> for Addresses {
    fn from((host, port): (&str, u16)) -> Addresses {
        match host.parse::<IpAddr>() {
            Ok(address) => (address, port).into(),
            Err(_) => Addresses(Named::Name(host.into(), port.to_string())),
        }
    }
}

impl From<Vec<SocketAddr>> for Addresses {
    fn from(addresses: Vec<SocketAddr>) -> Addresses {
        Addresses(Named::Known(addresses))
    }
}

impl From<&[SocketAddr]> for Addresses {
    fn from(addresses: &[SocketAddr]) -> Addresses {
        addresses.to_vec().into()
    }
}

macro_rules! from {
    ($($type:ty: |$it:ident| $into:expr;)*) => {$(
        impl From<$type> for Addresses {
            fn from($it: $type) -> Addresses {
                $into.into()
            }
        }
    )*};
}

from! {
    SocketAddr: |address| vec![address];
    SocketAddrV4: |address| SocketAddr::from(address);
    SocketAddrV6: |address| SocketAddr::from(address);
    (IpAddr, u16): |pair| SocketAddr::from(pair);
    (Ipv4Addr, u16): |pair| SocketAddr::from(pair);
    (Ipv6Addr, u16): |pair| SocketAddr::from(pair);
    String: |text| text.as_str();
    &String: |text| text.as_str();
    (String, u16): |pair| (pair.0.as_str(), pair.1);
}
