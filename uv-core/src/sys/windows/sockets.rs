//! Stream sockets on Windows.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};
use windows_sys::Win32::Networking::WinSock::{
    WSA_OPERATION_ABORTED, WSAEAFNOSUPPORT, WSAECANCELLED, WSAECONNABORTED, WSAECONNRESET,
    WSAEFAULT, WSAEMFILE, WSAENOBUFS, WSAENOTCONN, WSAEWOULDBLOCK,
};

/// An owned socket: the argument of [`Tcp::open`](crate::Tcp::open).
pub(crate) type OwnedSocket = std::os::windows::io::OwnedSocket;

/// No flags: Windows has no `SIGPIPE`.
pub(crate) const SEND_FLAGS: i32 = 0;

/// The kernel has no buffer space at the moment.
pub(crate) const NO_BUFFER: i32 = WSAENOBUFS;

/// Operations are preferred for any size: a wait for readiness is an operation as well.
pub(crate) const LARGE_READ: usize = isize::MAX as usize;

/// Never coalesce: each operation needs its own system call, so a direct write costs no more.
pub(crate) const COALESCE_MAX: Option<usize> = None;

/// The error of a request that was cancelled.
pub(crate) const CANCELLED: i32 = WSAECANCELLED;

/// The result of a cancelled operation: `ERROR_OPERATION_ABORTED`.
pub(crate) const ABORTED: i32 = WSA_OPERATION_ABORTED;

/// True if an operation ended without a real failure and may be restarted.
pub(crate) fn is_transient(code: i32) -> bool {
    matches!(code, ABORTED | NO_BUFFER | WSAEWOULDBLOCK)
}

/// Creates a non-blocking stream socket that is not inherited.
pub(crate) fn stream_socket(domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Creates a pair of connected non-blocking sockets.
pub(crate) fn socket_pair() -> io::Result<(Socket, Socket)> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    listener.listen(1)?;
    let one = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    one.connect(&listener.local_addr()?)?;
    let ours = one.local_addr()?.as_socket();
    loop {
        // Any local process may connect to the port: compare the peer address with our own socket.
        let (other, peer) = listener.accept()?;
        if peer.as_socket() == ours {
            one.set_nonblocking(true)?;
            other.set_nonblocking(true)?;
            return Ok((one, other));
        }
    }
}

/// Accepts a connection as a non-blocking socket that is not inherited.
pub(crate) fn accept(listener: &Socket) -> io::Result<Socket> {
    let (socket, _) = listener.accept()?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Takes ownership of the connection that an accept operation returned.
///
/// # Safety
///
/// `raw` is the result of an accept operation, and no other code owns it.
pub(crate) unsafe fn accepted(raw: usize) -> io::Result<Socket> {
    use std::os::windows::io::{FromRawSocket, RawSocket};

    // SAFETY: the caller guarantees that no other code owns `raw`.
    let socket = unsafe { Socket::from_raw_socket(raw as RawSocket) };
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// True: on Windows the readiness that a backend reports is not checked.
pub(crate) fn is_writable(_socket: &Socket) -> bool {
    true
}

/// True if `connect` is in progress.
pub(crate) fn is_connecting(error: &io::Error) -> bool {
    error.raw_os_error() == Some(WSAEWOULDBLOCK)
}

/// True if the address family does not match the socket.
pub(crate) fn is_wrong_family(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(WSAEAFNOSUPPORT | WSAEFAULT))
}

/// True if `accept` fails until sockets are closed.
pub(crate) fn out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error() == Some(WSAEMFILE)
}

/// True for errors of `accept` that concern one connection and not the listener.
pub(crate) fn is_per_connection(error: &io::Error) -> bool {
    // Wine returns the last one for a peer that has closed already.
    let own = [WSAEWOULDBLOCK, WSAECONNRESET, WSAECONNABORTED, WSAENOBUFS, WSAENOTCONN];
    error.raw_os_error().is_none_or(|code| own.contains(&code))
}

/// Unsupported: with `SO_REUSEADDR` only one of several listeners on a port gets connections.
pub(crate) fn reuse_port(_socket: &Socket) -> io::Result<()> {
    let why =
        "Windows does not balance connections over several listeners on a port: use one listener";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// Empty: the number of sockets is limited by memory only, so no descriptor is kept in reserve.
#[derive(Debug, Default)]
pub(crate) struct Reserve(());

impl Reserve {
    pub(crate) fn keep(&mut self) {}

    pub(crate) fn reject_pending(&mut self, _listener: &Socket) {}
}
