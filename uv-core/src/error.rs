//! The errors that a wrong call gets, in words that say what is wrong.

use std::io::{Error, ErrorKind};

use crate::sys;

/// The key's handle is gone.
#[cold]
pub(crate) fn stale() -> Error {
    Error::new(ErrorKind::NotFound, "no such handle in this loop: it was closed")
}

/// The key's request has called back.
pub(crate) fn stale_request() -> Error {
    Error::new(ErrorKind::NotFound, "no such request in this loop: it has called back")
}

/// The handle is on its way out.
#[cold]
pub(crate) fn closing() -> Error {
    Error::new(ErrorKind::InvalidInput, "the handle is closing")
}

/// `run` was called by a callback of the loop.
pub(crate) fn running() -> Error {
    Error::other("the loop is running: a callback cannot run it again")
}

/// True if an error says that a request was given up: it was cancelled, or its handle closed.
///
/// `std` has no kind for this error: it is `ECANCELED` on Unix, `WSAECANCELLED` on Windows.
///
/// ```
/// use uv_core::{Handle, Loop, RunMode, Stream, Tcp, is_cancelled};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (one, other) = Tcp::pair(&mut lp)?;
/// one.read(&mut lp, vec![0; 16], |_, _, result, _| {
///     assert!(is_cancelled(&result.unwrap_err()));
/// })?;
/// one.close(&mut lp)?;
/// other.close(&mut lp)?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
pub fn is_cancelled(error: &Error) -> bool {
    error.raw_os_error() == Some(sys::CANCELLED)
}

/// The request was given up, or its handle was closed.
pub(crate) fn cancelled() -> Error {
    Error::from_raw_os_error(sys::CANCELLED)
}

/// Another of an error, for another request.
pub(crate) fn same(error: &Error) -> Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), Error::from_raw_os_error)
}

/// There is no memory to read into.
pub(crate) fn no_buffer() -> Error {
    Error::from_raw_os_error(sys::NO_BUFFER)
}

/// What is asked for is under way.
pub(crate) fn already(why: &'static str) -> Error {
    Error::new(ErrorKind::AlreadyExists, why)
}

/// The stream has no connection, or none any more.
pub(crate) fn not_connected() -> Error {
    Error::new(ErrorKind::NotConnected, "the stream is not connected")
}

/// The stream has no connections to give.
pub(crate) fn not_listening() -> Error {
    Error::new(ErrorKind::InvalidInput, "the stream does not listen")
}
