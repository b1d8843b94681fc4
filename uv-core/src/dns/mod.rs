//! Name resolution: lookups of hosts and services, on the pool or blocking.
//!
//! ```
//! use uv_core::dns::{Hints, SocketType};
//! use uv_core::{Loop, RunMode};
//!
//! let mut lp = Loop::with_default_backend()?;
//! let hints = Hints { socket_type: SocketType::Stream, ..Hints::default() };
//! lp.getaddrinfo(Some("127.0.0.1"), Some("80"), hints, |_, found| {
//!     assert_eq!(found.unwrap()[0].address, "127.0.0.1:80".parse().unwrap());
//! })?;
//! lp.run(RunMode::Default)?;
//! # std::io::Result::Ok(())
//! ```
//!
//! The system's resolver performs lookups, on a thread of the loop's [pool](crate::Pool) as
//! [slow I/O](crate::WorkKind::SlowIo). [`getaddrinfo`] and [`getnameinfo`] block the calling
//! thread instead.
//!
//! Names may be Unicode: they are converted to ASCII (RFC 3492) for the resolver. Labels end at `.`
//! or at one of `。．｡`. Letters keep their case, and there is no normalization.
//!
//! A failed lookup is an [`io::Error`]; [`LookupError::of`] returns the resolver's code in it.

mod error;
mod idna;

use std::ffi::CString;
use std::io;
use std::net::SocketAddr;

use bitflags::bitflags;
use poll_core::Backend;

use crate::requests::work;
use crate::{Loop, WorkKind, WorkRequest, sys};

pub use error::{Eai, LookupError};
pub use idna::to_ascii;

bitflags! {
    /// Options of [`getaddrinfo`]: the `AI_*` flags.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AddrFlags: u8 {
        /// Addresses for listening: without a host, the wildcard address instead of loopback.
        const PASSIVE = 1;
        /// Returns the canonical name of the host with the first address.
        const CANONNAME = 2;
        /// The host is a numeric address: no name is resolved.
        const NUMERICHOST = 4;
        /// The service is a port number: no name is resolved.
        const NUMERICSERV = 8;
        /// Only families for which this machine has an address.
        const ADDRCONFIG = 16;
        /// If there are no IPv6 addresses, IPv4-mapped ones. Not on NetBSD and OpenBSD.
        const V4MAPPED = 32;
        /// With `V4MAPPED`: IPv6 and IPv4-mapped addresses. Not on NetBSD and OpenBSD.
        const ALL = 64;
    }
}

bitflags! {
    /// Options of [`getnameinfo`]: the `NI_*` flags.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct NameFlags: u8 {
        /// Returns the numeric address instead of a name.
        const NUMERICHOST = 1;
        /// Returns the port number instead of a service name.
        const NUMERICSERV = 2;
        /// Omits the domain of local hosts.
        const NOFQDN = 4;
        /// Fails for an address without a name, instead of returning the numeric address.
        const NAMEREQD = 8;
        /// Looks up the service for datagrams.
        const DGRAM = 16;
    }
}

/// The address family of a lookup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// Both families.
    #[default]
    Any,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// The type of socket that an address is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SocketType {
    /// Any type. As a hint, each address is returned once per type.
    #[default]
    Any,
    /// A stream: TCP.
    Stream,
    /// Datagrams: UDP.
    Datagram,
    /// Raw packets.
    Raw,
    /// Another type, by the number of the system.
    Other(i32),
}

/// The criteria of [`getaddrinfo`].
///
/// ```
/// use uv_core::dns::{Family, Hints, getaddrinfo};
///
/// let hints = Hints { family: Family::Ipv4, ..Hints::default() };
/// let found = getaddrinfo(Some("127.0.0.1"), None, hints)?;
/// assert!(found.iter().all(|found| found.address.is_ipv4()));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
// Exhaustive: programs construct it, with `..Hints::default()` for what they leave open.
pub struct Hints {
    /// The address family.
    pub family: Family,
    /// The type of socket.
    pub socket_type: SocketType,
    /// The number of the protocol; 0 for any.
    pub protocol: i32,
    /// The flags.
    pub flags: AddrFlags,
}

/// A result of [`getaddrinfo`].
///
/// ```
/// use uv_core::dns::{AddrInfo, Hints, SocketType, getaddrinfo};
///
/// let hints = Hints { socket_type: SocketType::Datagram, ..Hints::default() };
/// for AddrInfo { address, socket_type, .. } in getaddrinfo(Some("127.0.0.1"), Some("53"), hints)? {
///     assert_eq!((address.port(), socket_type), (53, SocketType::Datagram));
/// }
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AddrInfo {
    /// The address, with the port of the service, or 0.
    pub address: SocketAddr,
    /// The type of socket.
    pub socket_type: SocketType,
    /// The number of the protocol.
    pub protocol: i32,
    /// The canonical name of the host: in the first result, if [`AddrFlags::CANONNAME`] is set.
    pub canonical_name: Option<String>,
}

/// The result of [`getnameinfo`].
///
/// ```
/// use uv_core::dns::{NameFlags, NameInfo, getnameinfo};
///
/// let digits = NameFlags::NUMERICHOST | NameFlags::NUMERICSERV;
/// let NameInfo { host, service, .. } = getnameinfo("[::1]:80".parse().unwrap(), digits)?;
/// assert_eq!((host, service), ("::1".to_string(), "80".to_string()));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct NameInfo {
    /// The name of the host, or its numeric address.
    pub host: String,
    /// The name of the service, or its port number.
    pub service: String,
}

/// Looks up the addresses of a host, a service, or both, and blocks until the answer.
///
/// ```
/// use uv_core::dns::{AddrFlags, Hints, SocketType, getaddrinfo};
///
/// let hints = Hints {
///     socket_type: SocketType::Datagram,
///     flags: AddrFlags::NUMERICHOST,
///     ..Hints::default()
/// };
/// let found = getaddrinfo(Some("::1"), None, hints)?;
/// assert_eq!(found[0].address, "[::1]:0".parse().unwrap());
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `InvalidInput` for neither host nor service, for an empty host, one of more than 255
/// bytes, and for NUL bytes; `Unsupported` for flags that this system lacks; otherwise a
/// [`LookupError`] or the system's error.
#[doc(alias = "uv_getaddrinfo")]
pub fn getaddrinfo(
    host: Option<&str>,
    service: Option<&str>,
    hints: Hints,
) -> io::Result<Vec<AddrInfo>> {
    Query::new(host, service, hints)?.resolve()
}

/// Looks up the names of an address and its port, and blocks until the answer.
///
/// ```
/// use uv_core::dns::{NameFlags, getnameinfo};
///
/// let digits = NameFlags::NUMERICHOST | NameFlags::NUMERICSERV;
/// let names = getnameinfo("127.0.0.1:80".parse().unwrap(), digits)?;
/// assert_eq!((&*names.host, &*names.service), ("127.0.0.1", "80"));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// A [`LookupError`] or the system's error.
#[doc(alias = "uv_getnameinfo")]
pub fn getnameinfo(address: SocketAddr, flags: NameFlags) -> io::Result<NameInfo> {
    sys::resolver::getnameinfo(address, flags)
}

impl<B: Backend> Loop<B> {
    /// Looks up addresses as [`dns::getaddrinfo`](getaddrinfo) does, on the pool, then calls
    /// `done` in the loop.
    ///
    /// It can be [cancelled](WorkRequest::cancel) while it waits for a thread; its callback then
    /// gets `ECANCELED` (`WSAECANCELLED` on Windows). The loop stays alive until the callback.
    ///
    /// ```
    /// use uv_core::dns::Hints;
    /// use uv_core::{Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.getaddrinfo(Some("localhost"), None, Hints::default(), |_, found| match found {
    ///     Ok(found) => println!("{} addresses", found.len()),
    ///     Err(error) => println!("{error}"),
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidInput` and `Unsupported` as for the function; the error of starting the pool. They drop
    /// `done`: see [`getaddrinfo_with`](Loop::getaddrinfo_with).
    #[doc(alias = "uv_getaddrinfo")]
    pub fn getaddrinfo(
        &mut self,
        host: Option<&str>,
        service: Option<&str>,
        hints: Hints,
        done: impl FnOnce(&mut Loop<B>, io::Result<Vec<AddrInfo>>) + 'static,
    ) -> io::Result<WorkRequest> {
        let query = Query::new(host, service, hints)?;
        work::queue_request(self, WorkKind::SlowIo, move || query.resolve(), done)
    }

    /// As [`getaddrinfo`](Loop::getaddrinfo), but `done` gets every error: a name that users have
    /// typed may be none.
    ///
    /// ```
    /// use uv_core::dns::Hints;
    /// use uv_core::{Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.getaddrinfo_with(Some("no\0name"), None, Hints::default(), |_, found| {
    ///     assert_eq!(found.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    /// });
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_getaddrinfo")]
    pub fn getaddrinfo_with(
        &mut self,
        host: Option<&str>,
        service: Option<&str>,
        hints: Hints,
        done: impl FnOnce(&mut Loop<B>, io::Result<Vec<AddrInfo>>) + 'static,
    ) {
        let query = Query::new(host, service, hints);
        match query.and_then(|query| self.works.pool().map(|_| query)) {
            Err(error) => self.defer(move |lp| done(lp, Err(error))),
            Ok(query) => {
                let resolve = move || query.resolve();
                let queued = work::queue_request(self, WorkKind::SlowIo, resolve, done);
                debug_assert!(queued.is_ok(), "the pool has started");
            }
        }
    }

    /// Looks up names as [`dns::getnameinfo`](getnameinfo) does, on the pool, then calls
    /// `done` in the loop. It can be cancelled as [`getaddrinfo`](Loop::getaddrinfo) can.
    ///
    /// ```
    /// use uv_core::dns::NameFlags;
    /// use uv_core::{Loop, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let digits = NameFlags::NUMERICHOST | NameFlags::NUMERICSERV;
    /// lp.getnameinfo("[::1]:443".parse().unwrap(), digits, |_, names| {
    ///     assert_eq!(names.unwrap().host, "::1");
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error of starting the pool.
    #[doc(alias = "uv_getnameinfo")]
    pub fn getnameinfo(
        &mut self,
        address: SocketAddr,
        flags: NameFlags,
        done: impl FnOnce(&mut Loop<B>, io::Result<NameInfo>) + 'static,
    ) -> io::Result<WorkRequest> {
        work::queue_request(self, WorkKind::SlowIo, move || getnameinfo(address, flags), done)
    }
}

/// A lookup with valid input.
struct Query {
    host: Option<CString>,
    service: Option<CString>,
    hints: Hints,
}

impl Query {
    fn new(host: Option<&str>, service: Option<&str>, hints: Hints) -> io::Result<Query> {
        if host.is_none() && service.is_none() {
            return Err(invalid("a lookup needs a host or a service"));
        }
        sys::resolver::check_flags(hints.flags)?;
        let host = host.map(idna::to_ascii).transpose()?.map(with_nul).transpose()?;
        let service = service.map(with_nul).transpose()?;
        Ok(Query { host, service, hints })
    }

    fn resolve(&self) -> io::Result<Vec<AddrInfo>> {
        sys::resolver::getaddrinfo(self.host.as_deref(), self.service.as_deref(), self.hints)
    }
}

fn with_nul(text: impl Into<Vec<u8>>) -> io::Result<CString> {
    CString::new(text).map_err(|_| invalid("the name contains a NUL byte"))
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
