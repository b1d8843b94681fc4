//! UDP sockets.

use std::io;
use std::net::Ipv4Addr;

use socket2::{SockAddr, SockAddrStorage, Socket};

/// Errors by the names that the documentation uses.
pub(crate) mod code {
    pub(crate) use libc::{
        EALREADY, EBADF, EBUSY, ECONNRESET, EDESTADDRREQ, EISCONN, ENETRESET, ENOBUFS, ENOTCONN,
    };
}

/// Lets others bind the same address who say so too.
pub(crate) fn share_address(socket: &Socket) -> io::Result<()> {
    cfg_if::cfg_if! {
        if #[cfg(any(target_os = "linux", target_os = "android"))] {
            socket.set_reuse_address(true)
        } else {
            // The BSDs share what is not multicast by this option only.
            socket.set_reuse_port(true)
        }
    }
}

/// Lets the socket talk to everybody again.
pub(crate) fn disconnect(socket: &Socket) -> io::Result<()> {
    let storage = SockAddrStorage::zeroed();
    let length = storage.size_of();
    // SAFETY: all zeros are an address of no family, which is of any length.
    let nobody = unsafe { SockAddr::new(storage, length) };
    match socket.connect(&nobody) {
        // The BSDs disconnect, then say that they cannot connect to such an address.
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
            let why = "this system does not tell the sources of a group apart";
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
