//! Stream sockets: creation, accept, and the meaning of their errors.

use std::fs::File;
use std::io;

use poll_core::RawSource;
use socket2::{Domain, Socket, Type};

/// The owned descriptor that [`Tcp::open`](crate::Tcp::open) takes.
pub(crate) type OwnedSocket = std::os::fd::OwnedFd;

/// Turns `SIGPIPE` into `EPIPE` on a write to a closed connection. Apple's systems have a socket
/// option for that (`SO_NOSIGPIPE`), which `socket2` sets.
#[cfg(not(target_vendor = "apple"))]
pub(crate) const SEND_FLAGS: i32 = libc::MSG_NOSIGNAL;
#[cfg(target_vendor = "apple")]
pub(crate) const SEND_FLAGS: i32 = 0;

/// The kernel has no buffer space at the moment.
pub(crate) const NO_BUFFER: i32 = libc::ENOBUFS;

/// From this size on, streams are better read one after the other than in a batch: measured with
/// echoes of 16 KiB on io_uring.
pub(crate) const LARGE_READ: usize = 8 * 1024;

/// Up to this size, a write is better copied and submitted in a batch with those of other streams,
/// if the backend has send operations.
pub(crate) const COALESCE_MAX: Option<usize> = Some(8 * 1024);

/// The error of a request that was cancelled.
pub(crate) const CANCELLED: i32 = libc::ECANCELED;

/// The result of a backend operation that was cancelled.
pub(crate) const ABORTED: i32 = libc::ECANCELED;

/// True if an operation ended without a failure of its source: it may be submitted again.
pub(crate) fn is_transient(code: i32) -> bool {
    matches!(code, ABORTED | NO_BUFFER | libc::EINTR | libc::EAGAIN)
}

/// Creates a stream socket, non-blocking and close-on-exec.
pub(crate) fn stream_socket(domain: Domain) -> io::Result<Socket> {
    cfg_if::cfg_if! {
        if #[cfg(target_vendor = "apple")] {
            let socket = Socket::new(domain, Type::STREAM, None)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        } else {
            Socket::new(domain, Type::STREAM.nonblocking(), None)
        }
    }
}

/// Two connected non-blocking sockets.
pub(crate) fn socket_pair() -> io::Result<(Socket, Socket)> {
    let (one, other) = Socket::pair(Domain::UNIX, Type::STREAM, None)?;
    one.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    Ok((one, other))
}

/// Accepts a connection, non-blocking and close-on-exec.
pub(crate) fn accept(listener: &Socket) -> io::Result<Socket> {
    loop {
        match accept_once(listener) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

cfg_if::cfg_if! {
    if #[cfg(target_vendor = "apple")] {
        fn accept_once(listener: &Socket) -> io::Result<Socket> {
            let (socket, _) = listener.accept()?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        }
    } else {
        /// `accept4(2)` without the peer's address: one system call sets both flags.
        fn accept_once(listener: &Socket) -> io::Result<Socket> {
            use std::os::fd::{AsRawFd, FromRawFd};

            let (fd, null) = (listener.as_raw_fd(), std::ptr::null_mut());
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            // SAFETY: both pointers are null: the kernel writes no address.
            let accepted = unsafe { libc::accept4(fd, null, std::ptr::null_mut(), flags) };
            if accepted == -1 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the call has returned a new descriptor, which nothing else owns.
            Ok(unsafe { Socket::from_raw_fd(accepted) })
        }
    }
}

/// The connection of a completed accept operation, non-blocking and close-on-exec.
///
/// # Safety
///
/// `raw` is the result of a successful accept operation, and nothing else owns the descriptor.
pub(crate) unsafe fn accepted(raw: usize) -> io::Result<Socket> {
    use std::os::fd::FromRawFd;

    // SAFETY: an open descriptor without another owner, by the caller's contract.
    Ok(unsafe { Socket::from_raw_fd(raw as i32) })
}

/// True if a write would not wait: the socket is connected, or its connection has ended. An error
/// of the call counts as such.
pub(crate) fn is_writable(socket: &Socket) -> bool {
    let mut asked =
        libc::pollfd { fd: RawSource::of(socket).fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: `asked` is one `pollfd`, a local that outlives the call.
    unsafe { libc::poll(&raw mut asked, 1, 0) != 0 }
}

/// True if the connect is in progress.
pub(crate) fn is_connecting(error: &io::Error) -> bool {
    // An interrupted connect continues, and so does one that was started before.
    matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR | libc::EALREADY))
}

/// True if the address family is not that of the socket.
pub(crate) fn is_wrong_family(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

/// True if no connection can be accepted until descriptors are closed.
pub(crate) fn out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// True for errors of `accept` that are not the listener's: no connection is pending any more, or
/// Linux passes on a network error of the new connection.
pub(crate) fn is_per_connection(error: &io::Error) -> bool {
    let code = error.raw_os_error().unwrap_or(libc::EAGAIN);
    let gone = [libc::EAGAIN, libc::EWOULDBLOCK, libc::ECONNABORTED, libc::EPROTO, libc::EPERM];
    let network = [libc::ENETDOWN, libc::ENOPROTOOPT, libc::EHOSTDOWN, libc::EHOSTUNREACH];
    let memory = [libc::EOPNOTSUPP, libc::ENETUNREACH, libc::ENOBUFS, libc::ENOMEM];
    gone.contains(&code) || network.contains(&code) || memory.contains(&code)
}

/// Lets several sockets bind one port; the kernel distributes connections over them.
pub(crate) fn reuse_port(socket: &Socket) -> io::Result<()> {
    cfg_if::cfg_if! {
        if #[cfg(any(target_os = "linux", target_os = "android"))] {
            socket.set_reuse_port(true)
        } else if #[cfg(target_os = "freebsd")] {
            socket.set_reuse_port_lb(true)
        } else {
            let _ = socket;
            let why = "this kernel does not distribute connections over the listeners of a port";
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
    }
}

/// The most connections that one event rejects.
const REJECTED_PER_EVENT: usize = 64;

/// A spare descriptor. When the process has none left, closing it makes accepting possible, so that
/// pending connections can be accepted and closed.
#[derive(Debug, Default)]
pub(crate) struct Reserve(Option<File>);

impl Reserve {
    /// Opens the spare descriptor if there is none and the process has one left.
    pub(crate) fn keep(&mut self) {
        if self.0.is_none() {
            self.0 = File::open("/dev/null").ok();
        }
    }

    /// Accepts and closes pending connections, a limited number of them: peers that connect without
    /// pause must not hold up the loop. If more are pending, the listener stays readable and the
    /// next iteration continues.
    pub(crate) fn reject_pending(&mut self, listener: &Socket) {
        self.0 = None;
        for _ in 0..REJECTED_PER_EVENT {
            let Ok(connection) = accept(listener) else { break };
            drop(connection);
        }
        self.keep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test can exhaust the descriptors of a process but not those of the system, so this checks
    /// that a listener handles both errors alike.
    #[test]
    fn process_and_system_descriptor_limits_are_handled_alike() {
        for code in [libc::EMFILE, libc::ENFILE] {
            let error = io::Error::from_raw_os_error(code);
            assert!(out_of_descriptors(&error), "{error}: peers are rejected");
            assert!(!is_per_connection(&error), "{error}: not an error of one connection");
        }
        for code in [libc::EAGAIN, libc::ECONNABORTED, libc::ENOBUFS, libc::ENOMEM] {
            let error = io::Error::from_raw_os_error(code);
            assert!(!out_of_descriptors(&error) && is_per_connection(&error), "{error}");
        }
        let broken = io::Error::from_raw_os_error(libc::EBADF);
        assert!(
            !out_of_descriptors(&broken) && !is_per_connection(&broken),
            "the listener reports it"
        );
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no TCP sockets")]
    fn one_event_rejects_a_limited_number_of_peers() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let more = 3;
        let peers: Vec<_> = (0..REJECTED_PER_EVENT + more)
            .map(|_| std::net::TcpStream::connect(address).unwrap())
            .collect();
        let (socket, mut reserve) = (Socket::from(listener), Reserve::default());
        reserve.reject_pending(&socket);
        let left = std::iter::from_fn(|| accept(&socket).ok()).count();
        assert_eq!(left, more, "the rest stay pending until the next event");
        assert!(reserve.0.is_some(), "the spare descriptor is open again");
        drop(peers);
    }
}
