//! System errors with a remedy.

use std::error::Error;
use std::fmt;
use std::io;

/// Returns an error whose text is `why`, which names cause and remedy, and whose source is the
/// system error.
pub(crate) fn with_remedy(kind: io::ErrorKind, why: &'static str, error: io::Error) -> io::Error {
    io::Error::new(kind, WithRemedy { why, error })
}

#[derive(Debug)]
struct WithRemedy {
    why: &'static str,
    error: io::Error,
}

impl fmt::Display for WithRemedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.why, self.error)
    }
}

impl Error for WithRemedy {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}
