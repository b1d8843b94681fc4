//! Why there is no ring, and what to do instead.

use std::error::Error;
use std::{fmt, io};

/// An explanation in front of the kernel's own error.
#[derive(Debug)]
struct Refusal {
    why: &'static str,
    cause: io::Error,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.why)
    }
}

impl Error for Refusal {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

/// Explains what `io_uring_setup` returned.
pub(crate) fn explain(cause: io::Error) -> io::Error {
    let (kind, why) = match cause.raw_os_error() {
        Some(libc::ENOSYS) => (
            io::ErrorKind::Unsupported,
            "there is no io_uring here (ENOSYS: a kernel before 5.1 or built without it, or a \
             filter that hides it); use the epoll backend or `Auto`",
        ),
        Some(libc::EPERM | libc::EACCES) => (
            io::ErrorKind::Unsupported,
            "io_uring is forbidden here (EPERM: the seccomp filter of a container, or the sysctl \
             kernel.io_uring_disabled); use the epoll backend or `Auto`",
        ),
        Some(libc::ENOMEM) => (
            io::ErrorKind::OutOfMemory,
            "no memory for a ring (ENOMEM: before Linux 5.12 rings count against RLIMIT_MEMLOCK); \
             raise `ulimit -l`, ask for fewer entries, or use the epoll backend or `Auto`",
        ),
        _ => return cause,
    };
    io::Error::new(kind, Refusal { why, cause })
}

/// What a kernel between 5.1 and 5.10 is told.
pub(crate) fn too_old() -> io::Error {
    let why = "this kernel's io_uring is too old (before 5.11, without EXT_ARG or NODROP); use \
               the epoll backend or `Auto`";
    io::Error::new(io::ErrorKind::Unsupported, why)
}

/// True if `io_uring_enter` or `io_uring_register` was called by a thread that the
/// ring does not belong to.
pub(crate) fn is_moved(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EEXIST)
}

/// What a backend with operations in flight says on a second thread.
pub(crate) fn moved() -> io::Error {
    let why = "this ring has operations in flight that belong to the thread that started them: \
               wait for their end there before moving the backend to another thread";
    io::Error::new(io::ErrorKind::ResourceBusy, why)
}

/// What a forked child is told.
pub(crate) fn forked() -> io::Error {
    io::Error::other("this ring belongs to the parent process: call `after_fork` first")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_cause_and_alternative_and_keep_the_error() {
        for (errno, name) in [(libc::ENOSYS, "ENOSYS"), (libc::EPERM, "EPERM")] {
            let error = explain(io::Error::from_raw_os_error(errno));
            assert_eq!(error.kind(), io::ErrorKind::Unsupported);
            assert!(error.to_string().contains(name));
            assert!(error.to_string().contains("use the epoll backend"));
            let refusal = error.get_ref().expect("a custom error");
            let source = refusal.source().and_then(|source| source.downcast_ref::<io::Error>());
            assert_eq!(source.expect("the kernel's error").raw_os_error(), Some(errno));
        }
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        let error = explain(io::Error::from_raw_os_error(libc::EMFILE));
        assert_eq!(error.raw_os_error(), Some(libc::EMFILE));
    }
}
