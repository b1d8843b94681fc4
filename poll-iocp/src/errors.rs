//! Errors of the system that come with advice.

use std::error::Error;
use std::fmt;
use std::io;

/// An error of the system with advice; the system's own is its source.
pub(crate) fn explained(kind: io::ErrorKind, why: &'static str, error: io::Error) -> io::Error {
    io::Error::new(kind, Explained { why, error })
}

#[derive(Debug)]
struct Explained {
    why: &'static str,
    error: io::Error,
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.why, self.error)
    }
}

impl Error for Explained {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}
