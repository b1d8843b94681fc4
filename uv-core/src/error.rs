//! Constructors of the errors that this crate returns by itself: one per mistake.
//!
//! Every handle reports a mistake by the same constructor, and so with the same kind and number:
//! the table is on the page of the crate. The numbers are those of libuv. An error with a number has
//! no text of its own; the others have no number and name the cause.

use std::io::{Error, ErrorKind};

use crate::sys::{self, code};

/// The key's handle was closed, or belongs to another loop.
#[cold]
pub(crate) fn stale() -> Error {
    Error::new(
        ErrorKind::NotFound,
        "no such handle in this loop: it was closed, or is of another loop",
    )
}

/// The callback of the key's request has run.
pub(crate) fn stale_request() -> Error {
    Error::new(ErrorKind::NotFound, "no such request in this loop: it has called back")
}

/// The handle was closed and its close callback has not run.
#[cold]
pub(crate) fn closing() -> Error {
    Error::new(ErrorKind::InvalidInput, "the handle is closing")
}

/// `run` was called by a callback of the loop.
pub(crate) fn running() -> Error {
    Error::other("the loop is running: a callback cannot run it again")
}

/// True if an error reports that a request was cancelled or its handle was closed.
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
#[doc(alias = "UV_ECANCELED")]
pub fn is_cancelled(error: &Error) -> bool {
    error.raw_os_error() == Some(sys::CANCELLED)
}

/// The POSIX name of a system error, such as `ECONNREFUSED`, also on Windows.
///
/// `None` for an error without a number, or with one that has no POSIX name.
///
/// ```
/// use uv_core::error_name;
///
/// let error = std::fs::File::open("/no/such/file").unwrap_err();
/// assert_eq!(error_name(&error), Some("ENOENT"));
/// assert_eq!(error_name(&std::io::ErrorKind::NotFound.into()), None);
/// ```
#[doc(alias = "uv_err_name")]
#[doc(alias = "uv_err_name_r")]
pub fn error_name(error: &Error) -> Option<&'static str> {
    sys::error_name(error.raw_os_error()?)
}

/// The number of an error: the system's, or for an error without one that of the system's error
/// that fits its kind best, such as `EINVAL` for `InvalidInput`. `EIO` if none does.
///
/// Libraries that report numbers, as libuv does, have one for every error by this.
///
/// ```
/// use std::io::{Error, ErrorKind};
/// use uv_core::{error_name, error_number};
///
/// let missing = std::fs::File::open("/no/such/file").unwrap_err();
/// assert_eq!(Some(error_number(&missing)), missing.raw_os_error());
/// let wrong = error_number(&Error::new(ErrorKind::InvalidInput, "the handle is closing"));
/// assert_eq!(error_name(&Error::from_raw_os_error(wrong)), Some("EINVAL"));
/// ```
#[doc(alias = "uv_translate_sys_error")]
#[doc(alias = "errno")]
pub fn error_number(error: &Error) -> i32 {
    let of_kind = || sys::error_number(name_of(error.kind()));
    error.raw_os_error().or_else(of_kind).or_else(|| sys::error_number("EIO")).unwrap_or(-1)
}

/// The POSIX name of the error that fits a kind.
fn name_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "ENOENT",
        ErrorKind::PermissionDenied => "EACCES",
        ErrorKind::ConnectionRefused => "ECONNREFUSED",
        ErrorKind::ConnectionReset => "ECONNRESET",
        ErrorKind::HostUnreachable => "EHOSTUNREACH",
        ErrorKind::NetworkUnreachable => "ENETUNREACH",
        ErrorKind::ConnectionAborted => "ECONNABORTED",
        ErrorKind::NotConnected => "ENOTCONN",
        ErrorKind::AddrInUse => "EADDRINUSE",
        ErrorKind::AddrNotAvailable => "EADDRNOTAVAIL",
        ErrorKind::NetworkDown => "ENETDOWN",
        ErrorKind::BrokenPipe | ErrorKind::WriteZero => "EPIPE",
        ErrorKind::AlreadyExists => "EEXIST",
        ErrorKind::WouldBlock => "EAGAIN",
        ErrorKind::NotADirectory => "ENOTDIR",
        ErrorKind::IsADirectory => "EISDIR",
        ErrorKind::DirectoryNotEmpty => "ENOTEMPTY",
        ErrorKind::ReadOnlyFilesystem => "EROFS",
        ErrorKind::InvalidInput | ErrorKind::InvalidData => "EINVAL",
        ErrorKind::TimedOut => "ETIMEDOUT",
        ErrorKind::StorageFull => "ENOSPC",
        ErrorKind::NotSeekable => "ESPIPE",
        ErrorKind::QuotaExceeded => "EDQUOT",
        ErrorKind::FileTooLarge => "EFBIG",
        ErrorKind::ResourceBusy => "EBUSY",
        ErrorKind::ExecutableFileBusy => "ETXTBSY",
        ErrorKind::Deadlock => "EDEADLK",
        ErrorKind::TooManyLinks => "EMLINK",
        ErrorKind::ArgumentListTooLong => "E2BIG",
        ErrorKind::Interrupted => "EINTR",
        ErrorKind::Unsupported => "ENOTSUP",
        ErrorKind::OutOfMemory => "ENOMEM",
        _ => "EIO",
    }
}

/// The request was cancelled, or its handle was closed.
pub(crate) fn cancelled() -> Error {
    Error::from_raw_os_error(sys::CANCELLED)
}

/// A copy of an error, for another request.
pub(crate) fn same(error: &Error) -> Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), Error::from_raw_os_error)
}

/// A read has no byte to fill.
#[cold]
pub(crate) fn empty_buffer() -> Error {
    Error::new(ErrorKind::InvalidInput, "a read needs a buffer that is not empty")
}

/// An allocation callback has given no memory.
pub(crate) fn no_buffer() -> Error {
    Error::from_raw_os_error(sys::NO_BUFFER)
}

/// The requested activity is under way: the handle is started, reads, receives or connects.
pub(crate) fn already() -> Error {
    Error::from_raw_os_error(code::EALREADY)
}

/// The handle has a socket or descriptor, so another cannot be opened.
pub(crate) fn busy() -> Error {
    Error::from_raw_os_error(code::EBUSY)
}

/// The handle has no socket or descriptor: not yet, or not after close.
pub(crate) fn no_socket() -> Error {
    Error::from_raw_os_error(code::EBADF)
}

/// The stream or socket has no peer, or its direction was shut down.
pub(crate) fn not_connected() -> Error {
    Error::from_raw_os_error(code::ENOTCONN)
}

/// The stream or socket is connected.
pub(crate) fn is_connected() -> Error {
    Error::from_raw_os_error(code::EISCONN)
}

/// The stream does not listen, so it has no connections to accept.
pub(crate) fn not_listening() -> Error {
    Error::new(ErrorKind::InvalidInput, "the stream does not listen: call `listen` first")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistake_has_the_kind_and_the_name_of_the_table() {
        let mistakes = [
            (already(), None, "EALREADY"),
            (busy(), Some(ErrorKind::ResourceBusy), "EBUSY"),
            (no_socket(), None, "EBADF"),
            (not_connected(), Some(ErrorKind::NotConnected), "ENOTCONN"),
            (is_connected(), None, "EISCONN"),
            (no_buffer(), None, "ENOBUFS"),
            (cancelled(), None, "ECANCELED"),
        ];
        for (error, kind, name) in mistakes {
            assert_eq!(error_name(&error), Some(name));
            assert!(kind.is_none_or(|kind| error.kind() == kind), "{error:?}");
        }
    }

    #[test]
    fn every_error_has_a_number() {
        for (error, name) in [
            (stale(), "ENOENT"),
            (closing(), "EINVAL"),
            (cancelled(), "ECANCELED"),
            (ErrorKind::WouldBlock.into(), "EAGAIN"),
            (ErrorKind::Unsupported.into(), "ENOTSUP"),
        ] {
            let number = Error::from_raw_os_error(error_number(&error));
            assert_eq!(error_name(&number), Some(name), "{error}");
        }
        assert_ne!(error_number(&running()), 0);
    }
}
