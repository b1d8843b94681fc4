//! What the resolver says when it finds nothing.

use std::error::Error;
use std::fmt;
use std::io;

/// Why a lookup found nothing: what an [`io::Error`] of this crate's lookups carries, unless
/// it is the system's own.
///
/// ```
/// use uv_core::dns::{AddrFlags, Eai, Hints, LookupError, getaddrinfo};
///
/// let hints = Hints { flags: AddrFlags::NUMERICHOST, ..Hints::default() };
/// let error = getaddrinfo(Some("no address"), None, hints).unwrap_err();
/// let lookup = LookupError::of(&error).unwrap();
/// assert_eq!(lookup.eai(), Eai::NoName);
/// assert_ne!(lookup.code(), 0); // Which number it has is up to the system.
/// assert_eq!(error.to_string(), "no such host or service (EAI_NONAME)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupError {
    eai: Eai,
    code: i32,
}

/// The reasons that resolvers give, by their names without `EAI_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Eai {
    /// The host has no addresses of the family.
    AddrFamily,
    /// The name server failed for now: try again later.
    Again,
    /// The flags contradict each other or the host.
    BadFlags,
    /// The hints make no sense.
    BadHints,
    /// The name server failed for good.
    Fail,
    /// The family is not supported.
    Family,
    /// There is no memory.
    Memory,
    /// The host exists and has no addresses.
    NoData,
    /// There is no such host or service.
    NoName,
    /// The answer is too long.
    Overflow,
    /// There is no such protocol.
    Protocol,
    /// The service is not there for this kind of socket.
    Service,
    /// The kind of socket is not supported.
    SocketType,
    /// One that has no name here.
    Other,
}

impl LookupError {
    /// An error that the resolver reported with its number `code`.
    pub(crate) fn new(eai: Eai, code: i32) -> LookupError {
        LookupError { eai, code }
    }

    /// The lookup error in an [`io::Error`], if that is what it is.
    pub fn of(error: &io::Error) -> Option<&LookupError> {
        error.get_ref()?.downcast_ref()
    }

    /// The reason.
    pub fn eai(&self) -> Eai {
        self.eai
    }

    /// The reason by the system's number: `EAI_*` on Unix, `WSA*` on Windows.
    pub fn code(&self) -> i32 {
        self.code
    }
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.eai {
            Eai::AddrFamily => "the host has no addresses of this family (EAI_ADDRFAMILY)",
            Eai::Again => "the name server has failed for now: try again later (EAI_AGAIN)",
            Eai::BadFlags => "the flags do not go together (EAI_BADFLAGS)",
            Eai::BadHints => "the hints make no sense (EAI_BADHINTS)",
            Eai::Fail => "the name server has failed (EAI_FAIL)",
            Eai::Family => "this system does not know the family (EAI_FAMILY)",
            Eai::Memory => "the resolver has no memory (EAI_MEMORY)",
            Eai::NoData => "the host has no addresses (EAI_NODATA)",
            Eai::NoName => "no such host or service (EAI_NONAME)",
            Eai::Overflow => "the answer is too long (EAI_OVERFLOW)",
            Eai::Protocol => "this system does not know the protocol (EAI_PROTOCOL)",
            Eai::Service => "no such service for this kind of socket (EAI_SERVICE)",
            Eai::SocketType => "this system does not know the kind of socket (EAI_SOCKTYPE)",
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
