//! Ways to name a server's addresses: numbers, or a name that is looked up.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use crate::dns::{self, Hints, SocketType};

/// The addresses to connect to or to listen on: the argument of
/// [`Tcp::connect_to`](crate::Tcp::connect_to), [`Tcp::listen_on`](crate::Tcp::listen_on),
/// [`Udp::bind_to`](crate::Udp::bind_to) and [`Udp::connect_to`](crate::Udp::connect_to).
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
    /// A text without a port, or with a number that is none.
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

    /// The addresses, for code that binds or connects sockets of its own. A name is looked up, and
    /// the call blocks meanwhile; numbers never block.
    ///
    /// ```
    /// use uv_core::{Addresses, dns::SocketType};
    ///
    /// let addresses = Addresses::from("[::1]:80").resolve(SocketType::Stream)?;
    /// assert_eq!(addresses, ["[::1]:80".parse().unwrap()]);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of the lookup, and `InvalidInput` for a text that names no address.
    pub fn resolve(self, socket_type: SocketType) -> io::Result<Vec<SocketAddr>> {
        match self.0 {
            Named::Known(addresses) => Ok(addresses),
            Named::Name(host, service) => {
                let hints = Hints { socket_type, ..Self::HINTS };
                let found = dns::getaddrinfo(Some(&host), Some(&service), hints)?;
                Ok(found.into_iter().map(|found| found.address).collect())
            }
            Named::Invalid(text) => Err(invalid(&text)),
        }
    }
}

/// The text has no port, or a number that is none.
pub(crate) fn invalid(text: &str) -> io::Error {
    let why = match text.rsplit_once(':') {
        Some((_, port)) if is_no_port(port) => format!("ports are 0 to 65535, not {port}"),
        _ => "write it as \"host:port\"".into(),
    };
    io::Error::new(io::ErrorKind::InvalidInput, format!("{text:?} names no address: {why}"))
}

/// True for a number that is no port. A lookup would take its lower 16 bits.
fn is_no_port(service: &str) -> bool {
    let digits = service.trim().trim_start_matches(['+', '-']);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number && service.parse::<u16>().is_err()
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
            Named::Name(host, service) if host.contains(':') => write!(f, "[{host}]:{service}"),
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
            Some((host, service))
                if !(host.is_empty() || service.is_empty() || is_no_port(service)) =>
            {
                // With a service or a scope, as in `[fe80::1%eth0]:https`, it is looked up.
                let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
                Named::Name(inside.unwrap_or(host).into(), service.into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_no_port_is_an_error() {
        let texts = ["127.0.0.1:65536", "[::1]:123456789012", "localhost:-1", "localhost: 80"];
        for text in texts {
            let error = Addresses::from(text).resolve(SocketType::Stream).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{text}");
            assert!(error.to_string().contains("ports are 0 to 65535"), "{error}");
        }
        let last = Addresses::from("127.0.0.1:65535").resolve(SocketType::Stream).unwrap();
        assert_eq!(last, ["127.0.0.1:65535".parse().unwrap()]);
    }

    #[test]
    fn a_number_in_brackets_may_have_a_service() {
        let named = Addresses::from("[::1]:https");
        assert_eq!(named, Addresses(Named::Name("::1".into(), "https".into())));
        assert_eq!(named.to_string(), "[::1]:https");
    }

    #[test]
    fn a_text_without_a_port_is_an_error() {
        for text in ["127.0.0.1", "localhost:", ":80", ""] {
            let error = Addresses::from(text).resolve(SocketType::Stream).unwrap_err();
            assert!(error.to_string().ends_with("write it as \"host:port\""), "{error}");
        }
    }
}
