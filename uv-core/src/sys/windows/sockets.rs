//! Stream sockets.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};
use windows_sys::Win32::Networking::WinSock::{
    WSA_OPERATION_ABORTED, WSAEAFNOSUPPORT, WSAECANCELLED, WSAECONNABORTED, WSAECONNRESET,
    WSAEFAULT, WSAEMFILE, WSAENOBUFS, WSAENOTCONN, WSAEWOULDBLOCK,
};

/// A socket that is nobody else's: what [`Tcp::open`](crate::Tcp::open) takes over.
pub(crate) type OwnedSocket = std::os::windows::io::OwnedSocket;

/// Windows has no signals to be spared.
pub(crate) const SEND_FLAGS: i32 = 0;

/// The kernel has no memory for it at this moment.
pub(crate) const NO_BUFFER: i32 = WSAENOBUFS;

/// Operations are better for any number of bytes: to wait for readiness is one as well.
pub(crate) const MUCH_AT_ONCE: usize = isize::MAX as usize;

/// Operations are started by a call each: to write at once is as good for any number of bytes.
pub(crate) const LITTLE: Option<usize> = None;

/// What a request is told that was given up.
pub(crate) const CANCELLED: i32 = WSAECANCELLED;

/// What an operation says that was cancelled: `ERROR_OPERATION_ABORTED`.
pub(crate) const ABORTED: i32 = WSA_OPERATION_ABORTED;

/// True if an operation ended without having failed: it may be started again.
pub(crate) fn is_passing(code: i32) -> bool {
    matches!(code, ABORTED | NO_BUFFER | WSAEWOULDBLOCK)
}

/// A stream socket that does not block and is not inherited.
pub(crate) fn stream_socket(domain: Domain) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Two connected sockets that do not block.
pub(crate) fn socket_pair() -> io::Result<(Socket, Socket)> {
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into())?;
    listener.listen(1)?;
    let one = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    one.connect(&listener.local_addr()?)?;
    let ours = one.local_addr()?.as_socket();
    loop {
        // Anybody may connect to a port of this machine: ours is the one that we know.
        let (other, peer) = listener.accept()?;
        if peer.as_socket() == ours {
            one.set_nonblocking(true)?;
            other.set_nonblocking(true)?;
            return Ok((one, other));
        }
    }
}

/// Accepts a connection that does not block and is not inherited.
pub(crate) fn accept(listener: &Socket) -> io::Result<Socket> {
    let (socket, _) = listener.accept()?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// The connection that an operation has accepted, which nobody else has.
pub(crate) fn accepted(raw: usize) -> io::Result<Socket> {
    use std::os::windows::io::{FromRawSocket, RawSocket};

    // SAFETY: the system has just given it to us.
    let socket = unsafe { Socket::from_raw_socket(raw as RawSocket) };
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// True if `connect` has begun and goes on.
pub(crate) fn is_connecting(error: &io::Error) -> bool {
    error.raw_os_error() == Some(WSAEWOULDBLOCK)
}

/// True if the address is of a family that the socket is not.
pub(crate) fn is_wrong_family(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(WSAEAFNOSUPPORT | WSAEFAULT))
}

/// True if no connection can be accepted until sockets are closed.
pub(crate) fn out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error() == Some(WSAEMFILE)
}

/// True for errors of `accept` that say nothing of the listener.
pub(crate) fn is_ones_own(error: &io::Error) -> bool {
    // The last is Wine's word for a peer that is gone already.
    let own = [WSAEWOULDBLOCK, WSAECONNRESET, WSAECONNABORTED, WSAENOBUFS, WSAENOTCONN];
    error.raw_os_error().is_none_or(|code| own.contains(&code))
}

/// Windows lets several bind one port, but only one of them gets connections.
pub(crate) fn reuse_port(_socket: &Socket) -> io::Result<()> {
    let why = "Windows does not spread connections over the listeners of a port";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// Sockets are limited by memory only: there is nothing to keep for when they run out.
#[derive(Debug, Default)]
pub(crate) struct Reserve(());

impl Reserve {
    pub(crate) fn keep(&mut self) {}

    pub(crate) fn turn_away(&mut self, _listener: &Socket) {}
}
