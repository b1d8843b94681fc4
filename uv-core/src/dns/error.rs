//! Errors of the resolver.

use std::error::Error;
use std::fmt;
use std::io;

/// The reason why a lookup failed, inside an [`io::Error`] of a lookup that is not an error of the
/// operating system.
///
/// ```
/// use uv_core::dns::{AddrFlags, Eai, Hints, LookupError, getaddrinfo};
///
/// let hints = Hints { flags: AddrFlags::NUMERICHOST, ..Hints::default() };
/// let error = getaddrinfo(Some("no address"), None, hints).unwrap_err();
/// let lookup = LookupError::of(&error).unwrap();
/// assert_eq!(lookup.eai(), Eai::NoName);
/// assert_ne!(lookup.code(), 0); // The number depends on the system.
/// assert_eq!(error.to_string(), "no such host or service (EAI_NONAME)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupError {
    eai: Eai,
    code: i32,
}

/// The `EAI_*` codes of resolvers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Eai {
    /// The host has no addresses of the family.
    AddrFamily,
    /// The name server failed temporarily: retry later.
    Again,
    /// The flags are invalid, or conflict with the host.
    BadFlags,
    /// The hints are inconsistent.
    BadHints,
    /// The name server failed permanently.
    Fail,
    /// The family is not supported.
    Family,
    /// Out of memory.
    Memory,
    /// The host exists but has no addresses.
    NoData,
    /// The host or the service does not exist.
    NoName,
    /// The answer is too long.
    Overflow,
    /// The protocol is unknown.
    Protocol,
    /// The service does not exist for this type of socket.
    Service,
    /// The type of socket is not supported.
    SocketType,
    /// Another code.
    Other,
}

impl LookupError {
    /// An error that the resolver reported with its number `code`.
    pub(crate) fn new(eai: Eai, code: i32) -> LookupError {
        LookupError { eai, code }
    }

    /// The lookup error inside an [`io::Error`], if there is one.
    pub fn of(error: &io::Error) -> Option<&LookupError> {
        error.get_ref()?.downcast_ref()
    }

    /// The reason.
    pub fn eai(&self) -> Eai {
        self.eai
    }

    /// The number that the system has for the reason: `EAI_*` on Unix, `WSA*` on Windows.
    pub fn code(&self) -> i32 {
        self.code
    }
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.eai {
            Eai::AddrFamily => "the host has no addresses of this family (EAI_ADDRFAMILY)",
            Eai::Again => "the name server failed temporarily: retry later (EAI_AGAIN)",
            Eai::BadFlags => "the flags are invalid or conflict (EAI_BADFLAGS)",
            Eai::BadHints => "the hints are inconsistent (EAI_BADHINTS)",
            Eai::Fail => "the name server failed permanently (EAI_FAIL)",
            Eai::Family => "the address family is not supported (EAI_FAMILY)",
            Eai::Memory => "the resolver is out of memory (EAI_MEMORY)",
            Eai::NoData => "the host has no addresses (EAI_NODATA)",
            Eai::NoName => "no such host or service (EAI_NONAME)",
            Eai::Overflow => "the answer is too long (EAI_OVERFLOW)",
            Eai::Protocol => "the protocol is not supported (EAI_PROTOCOL)",
            Eai::Service => "no such service for this type of socket (EAI_SERVICE)",
            Eai::SocketType => "the type of socket is not supported (EAI_SOCKTYPE)",
            Eai::Other => return write!(f, "the resolver failed with code {}", self.code),
        })
    }
}

impl Error for LookupError {}

impl From<LookupError> for io::Error {
    fn from(error: LookupError) -> io::Error {
        let kind = match error.eai {
            Eai::NoName | Eai::NoData | Eai::AddrFamily | Eai::Service => io::ErrorKind::NotFound,
            Eai::BadFlags | Eai::BadHints | Eai::Family | Eai::Protocol | Eai::SocketType => {
                io::ErrorKind::InvalidInput
            }
            Eai::Memory => io::ErrorKind::OutOfMemory,
            Eai::Again | Eai::Fail | Eai::Overflow | Eai::Other => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
