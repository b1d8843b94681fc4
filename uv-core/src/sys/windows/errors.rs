//! Unix names of Windows error codes.

use windows_sys::Win32::{Foundation, Networking::WinSock};

/// Winsock errors and their Unix names.
const SOCKET_ERRORS: &[(i32, &str)] = &[
    (WinSock::WSAEWOULDBLOCK, "EAGAIN"),
    (WinSock::WSAECANCELLED, "ECANCELED"),
    (WinSock::WSAEACCES, "EACCES"),
    (WinSock::WSAEADDRINUSE, "EADDRINUSE"),
    (WinSock::WSAEADDRNOTAVAIL, "EADDRNOTAVAIL"),
    (WinSock::WSAEAFNOSUPPORT, "EAFNOSUPPORT"),
    (WinSock::WSAEALREADY, "EALREADY"),
    (WinSock::WSAEBADF, "EBADF"),
    (WinSock::WSAECONNABORTED, "ECONNABORTED"),
    (WinSock::WSAECONNREFUSED, "ECONNREFUSED"),
    (WinSock::WSAECONNRESET, "ECONNRESET"),
    (WinSock::WSAEDESTADDRREQ, "EDESTADDRREQ"),
    (WinSock::WSAEFAULT, "EFAULT"),
    (WinSock::WSAEHOSTDOWN, "EHOSTDOWN"),
    (WinSock::WSAEHOSTUNREACH, "EHOSTUNREACH"),
    (WinSock::WSAEINPROGRESS, "EINPROGRESS"),
    (WinSock::WSAEINTR, "EINTR"),
    (WinSock::WSAEINVAL, "EINVAL"),
    (WinSock::WSAEISCONN, "EISCONN"),
    (WinSock::WSAELOOP, "ELOOP"),
    (WinSock::WSAEMFILE, "EMFILE"),
    (WinSock::WSAEMSGSIZE, "EMSGSIZE"),
    (WinSock::WSAENAMETOOLONG, "ENAMETOOLONG"),
    (WinSock::WSAENETDOWN, "ENETDOWN"),
    (WinSock::WSAENETRESET, "ENETRESET"),
    (WinSock::WSAENETUNREACH, "ENETUNREACH"),
    (WinSock::WSAENOBUFS, "ENOBUFS"),
    (WinSock::WSAENOPROTOOPT, "ENOPROTOOPT"),
    (WinSock::WSAENOTCONN, "ENOTCONN"),
    (WinSock::WSAENOTSOCK, "ENOTSOCK"),
    (WinSock::WSAEOPNOTSUPP, "EOPNOTSUPP"),
    (WinSock::WSAEPROTONOSUPPORT, "EPROTONOSUPPORT"),
    (WinSock::WSAEPROTOTYPE, "EPROTOTYPE"),
    (WinSock::WSAESHUTDOWN, "ESHUTDOWN"),
    (WinSock::WSAESOCKTNOSUPPORT, "ESOCKTNOSUPPORT"),
    (WinSock::WSAETIMEDOUT, "ETIMEDOUT"),
];

/// Win32 errors and the Unix names of their closest equivalents.
const WIN32_ERRORS: &[(u32, &str)] = &[
    (Foundation::ERROR_FILE_NOT_FOUND, "ENOENT"),
    (Foundation::ERROR_PATH_NOT_FOUND, "ENOENT"),
    (Foundation::ERROR_TOO_MANY_OPEN_FILES, "EMFILE"),
    (Foundation::ERROR_ACCESS_DENIED, "EPERM"),
    (Foundation::ERROR_INVALID_HANDLE, "EBADF"),
    (Foundation::ERROR_NOT_ENOUGH_MEMORY, "ENOMEM"),
    (Foundation::ERROR_OUTOFMEMORY, "ENOMEM"),
    (Foundation::ERROR_NOT_SAME_DEVICE, "EXDEV"),
    (Foundation::ERROR_WRITE_PROTECT, "EROFS"),
    (Foundation::ERROR_BUSY, "EBUSY"),
    (Foundation::ERROR_SHARING_VIOLATION, "EBUSY"),
    (Foundation::ERROR_FILE_EXISTS, "EEXIST"),
    (Foundation::ERROR_ALREADY_EXISTS, "EEXIST"),
    (Foundation::ERROR_INVALID_PARAMETER, "EINVAL"),
    (Foundation::ERROR_BROKEN_PIPE, "EPIPE"),
    (Foundation::ERROR_NO_DATA, "EPIPE"),
    (Foundation::ERROR_DISK_FULL, "ENOSPC"),
    (Foundation::ERROR_DIR_NOT_EMPTY, "ENOTEMPTY"),
    (Foundation::ERROR_DIRECTORY, "ENOTDIR"),
    (Foundation::ERROR_FILENAME_EXCED_RANGE, "ENAMETOOLONG"),
    (Foundation::ERROR_OPERATION_ABORTED, "ECANCELED"),
    (Foundation::ERROR_NOT_SUPPORTED, "ENOTSUP"),
    (Foundation::ERROR_IO_DEVICE, "EIO"),
];

pub(crate) fn error_name(code: i32) -> Option<&'static str> {
    let of_sockets =
        SOCKET_ERRORS.iter().find(|(number, _)| *number == code).map(|(_, name)| *name);
    let others =
        || WIN32_ERRORS.iter().find(|(number, _)| *number as i32 == code).map(|(_, name)| *name);
    of_sockets.or_else(others)
}

/// The reverse of [`error_name`]. Of several codes with one name, that of sockets, or the first.
pub(crate) fn error_number(name: &str) -> Option<i32> {
    let of_sockets = SOCKET_ERRORS.iter().find(|(_, known)| *known == name).map(|(code, _)| *code);
    let others =
        || WIN32_ERRORS.iter().find(|(_, known)| *known == name).map(|(code, _)| *code as i32);
    of_sockets.or_else(others)
}
