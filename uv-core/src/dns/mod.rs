//! Names of hosts and services, looked up on the pool or at once.
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
//! The system's resolver does the work, on a thread of the loop's [pool](crate::Pool) and in
//! its [slow lane](crate::Lane::Slow). [`getaddrinfo`] and [`getnameinfo`] do the same at
//! once, in the thread that calls.
//!
//! Names may be Unicode: they are turned into ASCII (RFC 3492) before the resolver sees them.
//! Labels end at `.` or at one of `。．｡`. Nothing else is done to them: letters keep their
//! case, and there is no normalization.
//!
//! A lookup that fails is an [`io::Error`] that says what happened;
//! [`LookupError::of`] finds the resolver's own code in it.

mod error;
mod idna;

use std::ffi::CString;
use std::io;
use std::net::SocketAddr;

use bitflags::bitflags;
use poll_core::Backend;

use crate::{Lane, Loop, Work, sys};

pub use error::{Eai, LookupError};

bitflags! {
    /// How [`getaddrinfo`] looks: the `AI_*` flags.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AddrFlags: u8 {
        /// Addresses to listen at: without a host, any address instead of this machine's own.
        const PASSIVE = 1;
        /// Tell the host's official name with the first address.
        const CANONNAME = 2;
        /// The host is an address in digits: nobody is asked.
        const NUMERICHOST = 4;
        /// The service is a number: nobody is asked.
        const NUMERICSERV = 8;
        /// Only families of which this machine has an address.
        const ADDRCONFIG = 16;
        /// If there are no IPv6 addresses, IPv4 ones in their form. Not on NetBSD and OpenBSD.
        const V4MAPPED = 32;
        /// With `V4MAPPED`: both. Not on NetBSD and OpenBSD.
        const ALL = 64;
    }
}

bitflags! {
    /// How [`getnameinfo`] looks: the `NI_*` flags.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct NameFlags: u8 {
        /// The address in digits: nobody is asked.
        const NUMERICHOST = 1;
        /// The port in digits: nobody is asked.
        const NUMERICSERV = 2;
        /// The name of this host's own domain is left out.
        const NOFQDN = 4;
        /// An address without a name is an error, instead of its digits.
        const NAMEREQD = 8;
        /// The service of this port for datagrams.
        const DGRAM = 16;
    }
}

/// Which addresses [`getaddrinfo`] finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// Of both families.
    #[default]
    Any,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// What kind of socket an address is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SocketType {
    /// Any kind. As a hint: each address is found once for each kind.
    #[default]
    Any,
    /// A stream: TCP.
    Stream,
    /// Datagrams: UDP.
    Datagram,
    /// Raw packets.
    Raw,
    /// Another, by the system's number.
    Other(i32),
}

/// What [`getaddrinfo`] looks for.
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
pub struct Hints {
    /// Of which family.
    pub family: Family,
    /// For what kind of socket.
    pub socket_type: SocketType,
    /// For which protocol, by number; 0 is any.
    pub protocol: i32,
    /// How.
    pub flags: AddrFlags,
}

/// An address that [`getaddrinfo`] has found.
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
pub struct AddrInfo {
    /// The address, with the port of the service, or 0.
    pub address: SocketAddr,
    /// What kind of socket it is for.
    pub socket_type: SocketType,
    /// For which protocol, by number.
    pub protocol: i32,
    /// The host's official name: with the first address, if it was
    /// [asked for](AddrFlags::CANONNAME).
    pub canonical_name: Option<String>,
}

/// What [`getnameinfo`] has found.
///
/// ```
/// use uv_core::dns::{NameFlags, NameInfo, getnameinfo};
///
/// let digits = NameFlags::NUMERICHOST | NameFlags::NUMERICSERV;
/// let NameInfo { host, service } = getnameinfo("[::1]:80".parse().unwrap(), digits)?;
/// assert_eq!((host, service), ("::1".to_string(), "80".to_string()));
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NameInfo {
    /// The name of the host, or its address in digits.
    pub host: String,
    /// The name of the service, or its port in digits.
    pub service: String,
}

/// Looks up the addresses of a host, of a service, or of a service of a host, and waits for
/// the answer.
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
/// bytes, and for NUL bytes; `Unsupported` for flags that this system lacks; else a
/// [`LookupError`], or the system's error.
pub fn getaddrinfo(
    host: Option<&str>,
    service: Option<&str>,
    hints: Hints,
) -> io::Result<Vec<AddrInfo>> {
    Question::new(host, service, hints)?.ask()
}

/// Looks up the names of an address and of its port, and waits for the answer.
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
/// A [`LookupError`], or the system's error.
pub fn getnameinfo(address: SocketAddr, flags: NameFlags) -> io::Result<NameInfo> {
    sys::names::getnameinfo(address, flags)
}

impl<B: Backend> Loop<B> {
    /// Looks up addresses as [`dns::getaddrinfo`](getaddrinfo) does, on the pool, then calls
    /// `done` in the loop.
    ///
    /// While it waits for a thread it can be [cancelled](Work::cancel), and ends with
    /// `ECANCELED` (`WSAECANCELLED`). The loop stays alive meanwhile.
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
    /// `InvalidInput` and `Unsupported` as there, at once; those of starting the pool.
    pub fn getaddrinfo(
        &mut self,
        host: Option<&str>,
        service: Option<&str>,
        hints: Hints,
        done: impl FnOnce(&mut Loop<B>, io::Result<Vec<AddrInfo>>) + 'static,
    ) -> io::Result<Work> {
        let question = Question::new(host, service, hints)?;
        self.queue_request(Lane::Slow, move || question.ask(), done)
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
    /// Those of starting the pool.
    pub fn getnameinfo(
        &mut self,
        address: SocketAddr,
        flags: NameFlags,
        done: impl FnOnce(&mut Loop<B>, io::Result<NameInfo>) + 'static,
    ) -> io::Result<Work> {
        self.queue_request(Lane::Slow, move || getnameinfo(address, flags), done)
    }
}

/// A lookup whose input is in order.
struct Question {
    host: Option<CString>,
    service: Option<CString>,
    hints: Hints,
}

impl Question {
    fn new(host: Option<&str>, service: Option<&str>, hints: Hints) -> io::Result<Question> {
        if host.is_none() && service.is_none() {
            return Err(invalid("a lookup needs a host or a service"));
        }
        sys::names::check_flags(hints.flags)?;
        let host = host.map(idna::to_ascii).transpose()?.map(with_nul).transpose()?;
        let service = service.map(with_nul).transpose()?;
        Ok(Question { host, service, hints })
    }

    fn ask(&self) -> io::Result<Vec<AddrInfo>> {
        sys::names::getaddrinfo(self.host.as_deref(), self.service.as_deref(), self.hints)
    }
}

fn with_nul(text: impl Into<Vec<u8>>) -> io::Result<CString> {
    CString::new(text).map_err(|_| invalid("names have no NUL bytes"))
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
