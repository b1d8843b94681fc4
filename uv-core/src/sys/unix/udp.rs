//! UDP socket options and disconnecting.

use std::io;
use std::net::Ipv4Addr;

use socket2::{SockAddr, SockAddrStorage, Socket};

/// Error numbers by their POSIX names.
pub(crate) mod code {
    pub(crate) use libc::{
        EALREADY, EBADF, EBUSY, ECONNRESET, EDESTADDRREQ, EISCONN, ENETRESET, ENOBUFS, ENOTCONN,
    };
}

/// Lets several sockets bind one address, if each of them has this option.
pub(crate) fn share_address(socket: &Socket) -> io::Result<()> {
    cfg_if::cfg_if! {
        if #[cfg(any(target_os = "linux", target_os = "android"))] {
            socket.set_reuse_address(true)
        } else {
            // On the BSDs only this option shares unicast addresses.
            socket.set_reuse_port(true)
        }
    }
}

/// Dissolves the association of a connected socket, by a connect to an `AF_UNSPEC` address.
pub(crate) fn disconnect(socket: &Socket) -> io::Result<()> {
    let storage = SockAddrStorage::zeroed();
    let length = storage.size_of();
    // SAFETY: the storage is initialised, and `length` is its size. All zeros is an address of
    // family `AF_UNSPEC`.
    let unspecified = unsafe { SockAddr::new(storage, length) };
    match socket.connect(&unspecified) {
        // The BSDs disconnect, and then fail because the address cannot be connected to.
        Err(error)
            if !cfg!(any(target_os = "linux", target_os = "android"))
                && matches!(error.raw_os_error(), Some(libc::EAFNOSUPPORT | libc::EINVAL)) =>
        {
            Ok(())
        }
        result => result,
    }
}

cfg_if::cfg_if! {
    if #[cfg(any(
        target_os = "dragonfly", target_os = "haiku", target_os = "hurd",
        target_os = "netbsd", target_os = "openbsd", target_os = "nto",
    ))] {
        pub(crate) fn join_source_v4(
            _: &Socket, _: Ipv4Addr, _: Ipv4Addr, _: Ipv4Addr,
        ) -> io::Result<()> {
            let why = "this system has no source-specific multicast";
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }

        pub(crate) use join_source_v4 as leave_source_v4;
    } else {
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
    }
}
