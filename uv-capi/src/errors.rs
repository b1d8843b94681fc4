//! Error numbers, their names and messages.

use std::ffi::{CStr, c_char, c_int};
use std::io::{Error, ErrorKind, Result};

use crate::alloc::copy_string;
use crate::strings::write_truncated;

pub const UV_EOF: c_int = -4095;
pub const UV_UNKNOWN: c_int = -4094;
pub const UV_EAI_CANCELED: c_int = -3003;

/// The number of the error of the last system call, negative.
pub(crate) fn last_error() -> c_int {
    -Error::last_os_error().raw_os_error().unwrap_or(-UV_UNKNOWN)
}

/// The result of a system call that returns -1 for an error.
pub(crate) fn of_call(result: c_int) -> c_int {
    if result < 0 { last_error() } else { 0 }
}

/// 0, or libuv's number of the error.
pub(crate) fn status<T>(result: Result<T>) -> c_int {
    result.map_or_else(|error| code(&error), |_| 0)
}

/// libuv's number of an error.
pub(crate) fn code(error: &Error) -> c_int {
    if let Some(number) = error.raw_os_error() {
        return -number;
    }
    // An error with a text around one of the system's.
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    if let Some(number) = inner.and_then(Error::raw_os_error)
        && error.kind() != ErrorKind::InvalidInput
    {
        return -number;
    }
    -match error.kind() {
        ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::NotFound => libc::EINVAL,
        ErrorKind::WouldBlock => libc::EAGAIN,
        ErrorKind::AlreadyExists => libc::EEXIST,
        ErrorKind::NotConnected => libc::ENOTCONN,
        ErrorKind::ResourceBusy => libc::EBUSY,
        ErrorKind::Unsupported => libc::ENOTSUP,
        ErrorKind::BrokenPipe => libc::EPIPE,
        ErrorKind::TimedOut => libc::ETIMEDOUT,
        ErrorKind::PermissionDenied => libc::EACCES,
        ErrorKind::AddrInUse => libc::EADDRINUSE,
        ErrorKind::ConnectionRefused => libc::ECONNREFUSED,
        ErrorKind::OutOfMemory => libc::ENOMEM,
        ErrorKind::Interrupted => libc::EINTR,
        ErrorKind::ArgumentListTooLong => libc::E2BIG,
        ErrorKind::InvalidFilename => libc::ENAMETOOLONG,
        ErrorKind::UnexpectedEof => return UV_EOF,
        _ => return UV_UNKNOWN,
    }
}

macro_rules! c_name {
    ($name:ident) => {{
        const NAME: &CStr =
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("an identifier contains no NUL"),
            };
        NAME
    }};
}

/// Defines the table of `UV_ERRNO_MAP`.
macro_rules! errors {
    ($($name:ident $number:literal $message:literal)*) => {
        /// The name and the message of an error number.
        fn describe(number: c_int) -> Option<(&'static CStr, &'static CStr)> {
            Some(match number {
                $( $number => (c_name!($name), $message), )*
                _ => return None,
            })
        }
    };
}

errors! {
    E2BIG -7 c"argument list too long"
    EACCES -13 c"permission denied"
    EADDRINUSE -98 c"address already in use"
    EADDRNOTAVAIL -99 c"address not available"
    EAFNOSUPPORT -97 c"address family not supported"
    EAGAIN -11 c"resource temporarily unavailable"
    EAI_ADDRFAMILY -3000 c"address family not supported"
    EAI_AGAIN -3001 c"temporary failure"
    EAI_BADFLAGS -3002 c"bad ai_flags value"
    EAI_BADHINTS -3013 c"invalid value for hints"
    EAI_CANCELED -3003 c"request canceled"
    EAI_FAIL -3004 c"permanent failure"
    EAI_FAMILY -3005 c"ai_family not supported"
    EAI_MEMORY -3006 c"out of memory"
    EAI_NODATA -3007 c"no address"
    EAI_NONAME -3008 c"unknown node or service"
    EAI_OVERFLOW -3009 c"argument buffer overflow"
    EAI_PROTOCOL -3014 c"resolved protocol is unknown"
    EAI_SERVICE -3010 c"service not available for socket type"
    EAI_SOCKTYPE -3011 c"socket type not supported"
    EALREADY -114 c"connection already in progress"
    EBADF -9 c"bad file descriptor"
    EBUSY -16 c"resource busy or locked"
    ECANCELED -125 c"operation canceled"
    ECHARSET -4080 c"invalid Unicode character"
    ECONNABORTED -103 c"software caused connection abort"
    ECONNREFUSED -111 c"connection refused"
    ECONNRESET -104 c"connection reset by peer"
    EDESTADDRREQ -89 c"destination address required"
    EEXIST -17 c"file already exists"
    EFAULT -14 c"bad address in system call argument"
    EFBIG -27 c"file too large"
    EHOSTUNREACH -113 c"host is unreachable"
    EINTR -4 c"interrupted system call"
    EINVAL -22 c"invalid argument"
    EIO -5 c"i/o error"
    EISCONN -106 c"socket is already connected"
    EISDIR -21 c"illegal operation on a directory"
    ELOOP -40 c"too many symbolic links encountered"
    EMFILE -24 c"too many open files"
    EMSGSIZE -90 c"message too long"
    ENAMETOOLONG -36 c"name too long"
    ENETDOWN -100 c"network is down"
    ENETUNREACH -101 c"network is unreachable"
    ENFILE -23 c"file table overflow"
    ENOBUFS -105 c"no buffer space available"
    ENODEV -19 c"no such device"
    ENOENT -2 c"no such file or directory"
    ENOMEM -12 c"not enough memory"
    ENONET -64 c"machine is not on the network"
    ENOPROTOOPT -92 c"protocol not available"
    ENOSPC -28 c"no space left on device"
    ENOSYS -38 c"function not implemented"
    ENOTCONN -107 c"socket is not connected"
    ENOTDIR -20 c"not a directory"
    ENOTEMPTY -39 c"directory not empty"
    ENOTSOCK -88 c"socket operation on non-socket"
    ENOTSUP -95 c"operation not supported on socket"
    EOVERFLOW -75 c"value too large for defined data type"
    EPERM -1 c"operation not permitted"
    EPIPE -32 c"broken pipe"
    EPROTO -71 c"protocol error"
    EPROTONOSUPPORT -93 c"protocol not supported"
    EPROTOTYPE -91 c"protocol wrong type for socket"
    ERANGE -34 c"result too large"
    EROFS -30 c"read-only file system"
    ESHUTDOWN -108 c"cannot send after transport endpoint shutdown"
    ESPIPE -29 c"invalid seek"
    ESRCH -3 c"no such process"
    ETIMEDOUT -110 c"connection timed out"
    ETXTBSY -26 c"text file is busy"
    EXDEV -18 c"cross-device link not permitted"
    UNKNOWN -4094 c"unknown error"
    EOF -4095 c"end of file"
    ENXIO -6 c"no such device or address"
    EMLINK -31 c"too many links"
    EHOSTDOWN -112 c"host is down"
    EREMOTEIO -121 c"remote I/O error"
    ENOTTY -25 c"inappropriate ioctl for device"
    EFTYPE -4028 c"inappropriate file type or format"
    EILSEQ -84 c"illegal byte sequence"
    ESOCKTNOSUPPORT -94 c"socket type not supported"
    ENODATA -61 c"no data available"
    EUNATCH -49 c"protocol driver not attached"
    ENOEXEC -8 c"exec format error"
}

/// As libuv, the text of an unknown error is allocated and never freed.
unsafe fn unknown(number: c_int) -> *const c_char {
    copy_string(format!("Unknown system error {number}").as_bytes())
}

unsafe fn write_or_unknown(
    known: Option<&CStr>,
    number: c_int,
    buffer: *mut c_char,
    size: usize,
) -> *mut c_char {
    match known {
        Some(text) => write_truncated(text.to_bytes(), buffer, size),
        None => {
            write_truncated(format!("Unknown system error {number}").as_bytes(), buffer, size);
        }
    }
    buffer
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_strerror(number: c_int) -> *const c_char {
    match describe(number) {
        Some((_, message)) => message.as_ptr(),
        None => unknown(number),
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_err_name(number: c_int) -> *const c_char {
    match describe(number) {
        Some((name, _)) => name.as_ptr(),
        None => unknown(number),
    }
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_strerror_r(
    number: c_int,
    buffer: *mut c_char,
    size: usize,
) -> *mut c_char {
    write_or_unknown(describe(number).map(|(_, message)| message), number, buffer, size)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub unsafe extern "C" fn uv_err_name_r(
    number: c_int,
    buffer: *mut c_char,
    size: usize,
) -> *mut c_char {
    write_or_unknown(describe(number).map(|(name, _)| name), number, buffer, size)
}

#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn uv_translate_sys_error(number: c_int) -> c_int {
    if number <= 0 { number } else { -number }
}
