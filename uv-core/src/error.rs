//! The errors that a wrong call gets, in words that say what is wrong.

use std::io::{Error, ErrorKind};

/// The key's handle is gone.
pub(crate) fn stale() -> Error {
    Error::new(ErrorKind::NotFound, "no such handle in this loop: it was closed")
}

/// The key's request has called back.
pub(crate) fn stale_request() -> Error {
    Error::new(ErrorKind::NotFound, "no such request in this loop: it has called back")
}

/// The handle is on its way out.
pub(crate) fn closing() -> Error {
    Error::new(ErrorKind::InvalidInput, "the handle is closing")
}

/// `run` was called by a callback of the loop.
pub(crate) fn running() -> Error {
    Error::other("the loop is running: a callback cannot run it again")
}
