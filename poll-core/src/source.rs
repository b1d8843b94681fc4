//! Raw I/O sources: file descriptors, sockets and handles.

use std::fmt;

#[cfg(unix)]
use std::os::fd::{AsRawFd, RawFd};
#[cfg(windows)]
use std::os::windows::io::{AsRawHandle, AsRawSocket, RawHandle, RawSocket};

#[cfg(unix)]
type Raw = RawFd;
/// Sockets are kernel handles on Windows: one integer holds either.
#[cfg(windows)]
type Raw = usize;

/// A raw I/O source: a file descriptor on Unix, a `SOCKET` or a `HANDLE` on Windows.
///
/// It is a plain number without ownership: the code that registers it keeps it open.
///
#[cfg_attr(unix, doc = "```")]
#[cfg_attr(not(unix), doc = "```ignore")]
/// use std::os::fd::AsRawFd;
/// use poll_core::RawSource;
///
/// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
/// let source = RawSource::of(&socket);
/// assert_eq!(source.fd(), socket.as_raw_fd());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RawSource(Raw);

impl fmt::Debug for RawSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawSource({})", self.0)
    }
}

#[cfg(unix)]
impl RawSource {
    /// The source of an object with a descriptor: a socket, a pipe, a file.
    pub fn of(owner: &impl AsRawFd) -> RawSource {
        RawSource(owner.as_raw_fd())
    }

    /// The source with this descriptor.
    pub const fn from_fd(fd: RawFd) -> RawSource {
        RawSource(fd)
    }

    /// The descriptor.
    pub const fn fd(self) -> RawFd {
        self.0
    }
}

#[cfg(windows)]
impl RawSource {
    /// The source of an object with a socket.
    pub fn of(owner: &impl AsRawSocket) -> RawSource {
        RawSource::from_socket(owner.as_raw_socket())
    }

    /// The source of an object with a handle: a file or a named pipe.
    pub fn of_handle(owner: &impl AsRawHandle) -> RawSource {
        RawSource::from_handle(owner.as_raw_handle())
    }

    /// The source with this socket.
    pub const fn from_socket(socket: RawSocket) -> RawSource {
        RawSource(socket as usize)
    }

    /// The source with this handle.
    pub fn from_handle(handle: RawHandle) -> RawSource {
        RawSource(handle as usize)
    }

    /// The source as a socket.
    pub const fn socket(self) -> RawSocket {
        self.0 as RawSocket
    }

    /// The source as a handle.
    pub fn handle(self) -> RawHandle {
        self.0 as RawHandle
    }
}
