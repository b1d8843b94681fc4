//! Symbolic names of `errno` values.

macro_rules! names {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

/// The errors of POSIX, and others that all supported systems have. If two names have one number,
/// the first is used.
const NAMES: &[(i32, &str)] = names! {
    E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EALREADY EBADF EBUSY ECANCELED
    ECHILD ECONNABORTED ECONNREFUSED ECONNRESET EDEADLK EDESTADDRREQ EDOM EDQUOT EEXIST
    EFAULT EFBIG EHOSTDOWN EHOSTUNREACH EILSEQ EINPROGRESS EINTR EINVAL EIO EISCONN EISDIR
    ELOOP EMFILE EMLINK EMSGSIZE ENAMETOOLONG ENETDOWN ENETRESET ENETUNREACH ENFILE ENOBUFS
    ENODEV ENOENT ENOEXEC ENOLCK ENOMEM ENOPROTOOPT ENOSPC ENOSYS ENOTCONN ENOTDIR ENOTEMPTY
    ENOTSOCK ENOTSUP ENOTTY ENXIO EOPNOTSUPP EOVERFLOW EPERM EPIPE EPROTO EPROTONOSUPPORT
    EPROTOTYPE ERANGE EROFS ESHUTDOWN ESOCKTNOSUPPORT ESPIPE ESRCH ESTALE ETIMEDOUT ETXTBSY
    EXDEV
};

pub(crate) fn error_name(code: i32) -> Option<&'static str> {
    NAMES.iter().find(|(number, _)| *number == code).map(|(_, name)| *name)
}

/// The reverse of [`error_name`].
pub(crate) fn error_number(name: &str) -> Option<i32> {
    NAMES.iter().find(|(_, known)| *known == name).map(|(number, _)| *number)
}
