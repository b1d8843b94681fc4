//! UDP sockets on Windows.

use std::io;
use std::net::Ipv4Addr;

use socket2::{SockAddr, SockAddrStorage, Socket};

/// Error codes by their Unix names, which the documentation uses.
pub(crate) mod code {
    pub(crate) use windows_sys::Win32::Networking::WinSock::{
        WSAEALREADY as EALREADY, WSAEBADF as EBADF, WSAECONNRESET as ECONNRESET,
        WSAEDESTADDRREQ as EDESTADDRREQ, WSAEISCONN as EISCONN, WSAENETRESET as ENETRESET,
        WSAENOBUFS as ENOBUFS, WSAENOTCONN as ENOTCONN,
    };

    /// `ERROR_BUSY`: Winsock itself has no such error.
    pub(crate) const EBUSY: i32 = 170;
}

/// Lets other sockets bind the same address.
pub(crate) fn share_address(socket: &Socket) -> io::Result<()> {
    socket.set_reuse_address(true)
}

/// Removes the peer address of the socket.
pub(crate) fn disconnect(socket: &Socket) -> io::Result<()> {
    let storage = SockAddrStorage::zeroed();
    let length = storage.size_of();
    // SAFETY: a zeroed address has the family `AF_UNSPEC`, which is valid with any length.
    socket.connect(&unsafe { SockAddr::new(storage, length) })
}

pub(crate) fn join_source_v4(
    socket: &Socket,
    group: Ipv4Addr,
    source: Ipv4Addr,
    interface: Ipv4Addr,
) -> io::Result<()> {
    socket.join_ssm_v4(&source, &group, &interface)
}

pub(crate) fn leave_source_v4(
    socket: &Socket,
    group: Ipv4Addr,
    source: Ipv4Addr,
    interface: Ipv4Addr,
) -> io::Result<()> {
    socket.leave_ssm_v4(&source, &group, &interface)
}
