//! Errors of creating and using a ring: each names its cause and a remedy.

use std::borrow::Cow;
use std::error::Error;
use std::{fmt, io};

use crate::setup;

/// An explanation of an error of the kernel, which is the source.
#[derive(Debug)]
struct SetupError {
    explanation: Cow<'static, str>,
    source: io::Error,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.explanation)
    }
}

impl Error for SetupError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// Explains an error of `io_uring_setup`, or of the first registrations.
pub(crate) fn explain(source: io::Error) -> io::Error {
    let (kind, explanation) = match source.raw_os_error() {
        Some(libc::ENOSYS) => (
            io::ErrorKind::Unsupported,
            "io_uring is missing (ENOSYS: a kernel before 5.1 or built without it, or a seccomp \
             filter that hides it); use the epoll backend or `Auto`"
                .into(),
        ),
        Some(libc::EPERM | libc::EACCES) => (
            io::ErrorKind::Unsupported,
            "io_uring is forbidden (EPERM: the seccomp filter of a container, or the sysctl \
             kernel.io_uring_disabled); use the epoll backend or `Auto`"
                .into(),
        ),
        Some(libc::ENOMEM) => (io::ErrorKind::OutOfMemory, no_memory().into()),
        _ => return source,
    };
    io::Error::new(kind, SetupError { explanation, source })
}

/// The explanation of `ENOMEM`.
fn no_memory() -> String {
    let limit = match setup::locked_memory_limit() {
        Some(limit) => format!("{} KiB", limit / 1024),
        None => "not limited".into(),
    };
    format!(
        "no memory for a ring (ENOMEM: the rings of a user count against RLIMIT_MEMLOCK, {limit} \
         here); raise `ulimit -l` or LimitMEMLOCK=, drop other rings, ask for fewer entries, or \
         use the epoll backend or `Auto`",
    )
}

/// The error on kernels from 5.1 to 5.10.
pub(crate) fn too_old() -> io::Error {
    let why = "this kernel's io_uring is too old (before 5.11, without EXT_ARG or NODROP); use \
               the epoll backend or `Auto`";
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// The error where restrictions refuse what the backend cannot do without.
pub(crate) fn restricted() -> io::Error {
    let explanation = "io_uring is restricted (EACCES: io_uring restrictions or filters of this \
                       process refuse POLL_ADD, POLL_REMOVE, ASYNC_CANCEL or registered files); \
                       allow them, or use the epoll backend or `Auto`";
    let source = io::Error::from_raw_os_error(libc::EACCES);
    let error = SetupError { explanation: explanation.into(), source };
    io::Error::new(io::ErrorKind::Unsupported, error)
}

/// True if `io_uring_enter` or `io_uring_register` was called by a thread that does not own the
/// ring.
pub(crate) fn is_wrong_thread(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EEXIST)
}

/// The error of a backend that is used on a second thread with operations in flight.
pub(crate) fn wrong_thread() -> io::Error {
    let why = "this ring has operations in flight that belong to the thread that started them: \
               wait for their end there before moving the backend to another thread";
    io::Error::new(io::ErrorKind::ResourceBusy, why)
}

/// The error in a forked child.
pub(crate) fn forked() -> io::Error {
    io::Error::other("this ring belongs to the parent process: call `after_fork` first")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explanations_name_cause_and_alternative_and_keep_the_source() {
        let unsupported = io::ErrorKind::Unsupported;
        for (errno, name, kind) in [
            (libc::ENOSYS, "ENOSYS", unsupported),
            (libc::EPERM, "EPERM", unsupported),
            (libc::ENOMEM, "RLIMIT_MEMLOCK", io::ErrorKind::OutOfMemory),
        ] {
            let error = explain(io::Error::from_raw_os_error(errno));
            assert_eq!(error.kind(), kind);
            assert!(error.to_string().contains(name));
            assert!(error.to_string().contains("use the epoll backend"));
            let custom = error.get_ref().expect("a custom error");
            let source = custom.source().and_then(|source| source.downcast_ref::<io::Error>());
            assert_eq!(source.expect("the kernel's error").raw_os_error(), Some(errno));
        }
    }

    #[test]
    fn other_errors_are_not_changed() {
        let error = explain(io::Error::from_raw_os_error(libc::EMFILE));
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    }
}
