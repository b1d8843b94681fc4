//! Stream sockets.

use std::fs::File;
use std::io;

use socket2::{Domain, Socket, Type};

/// A socket that is nobody else's: what [`Tcp::open`](crate::Tcp::open) takes over.
pub(crate) type OwnedSocket = std::os::fd::OwnedFd;

/// Writing to a connection that is gone is an error, not a signal. Apple's systems have an
/// option of the socket for that, which `socket2` sets.
#[cfg(not(target_vendor = "apple"))]
pub(crate) const SEND_FLAGS: i32 = libc::MSG_NOSIGNAL;
#[cfg(target_vendor = "apple")]
pub(crate) const SEND_FLAGS: i32 = 0;

/// The kernel has no memory for it at this moment.
pub(crate) const NO_BUFFER: i32 = libc::ENOBUFS;

/// So many bytes at once are better received one stream after the other, as was measured with
/// echoes of 16 KiB over io_uring.
pub(crate) const MUCH_AT_ONCE: usize = 8 * 1024;

/// So few bytes are better copied and sent together with those of other streams, where the
/// backend does that.
pub(crate) const LITTLE: Option<usize> = Some(8 * 1024);

/// What a request is told that was given up.
pub(crate) const CANCELLED: i32 = libc::ECANCELED;

/// What an operation says that was cancelled.
pub(crate) const ABORTED: i32 = libc::ECANCELED;

/// True if an operation ended without having failed: it may be started again.
pub(crate) fn is_passing(code: i32) -> bool {
    matches!(code, ABORTED | NO_BUFFER | libc::EINTR | libc::EAGAIN)
}

/// A stream socket that does not block and is closed by `exec`.
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

/// Two connected sockets that do not block.
pub(crate) fn socket_pair() -> io::Result<(Socket, Socket)> {
    let (one, other) = Socket::pair(Domain::UNIX, Type::STREAM, None)?;
    one.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    Ok((one, other))
}

/// Accepts a connection that does not block and is closed by `exec`.
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
        /// One system call for all of it, which does not ask for the address.
        fn accept_once(listener: &Socket) -> io::Result<Socket> {
            use std::os::fd::{AsRawFd, FromRawFd};

            let (fd, null) = (listener.as_raw_fd(), std::ptr::null_mut());
            let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
            // SAFETY: no memory is passed.
            let accepted = unsafe { libc::accept4(fd, null, std::ptr::null_mut(), flags) };
            if accepted == -1 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: the kernel has just given it to us.
            Ok(unsafe { Socket::from_raw_fd(accepted) })
        }
    }
}

/// The connection that an operation has accepted, which nobody else has. It does not block
/// and is closed by `exec`.
pub(crate) fn accepted(raw: usize) -> io::Result<Socket> {
    use std::os::fd::FromRawFd;

    // SAFETY: the kernel has just given it to us.
    Ok(unsafe { Socket::from_raw_fd(raw as i32) })
}

/// True if `connect` has begun and goes on.
pub(crate) fn is_connecting(error: &io::Error) -> bool {
    // Interrupted, it goes on all the same; so does one that was begun before.
    matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR | libc::EALREADY))
}

/// True if the address is of a family that the socket is not.
pub(crate) fn is_wrong_family(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAFNOSUPPORT)
}

/// True if no connection can be accepted until descriptors are closed.
pub(crate) fn out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// True for errors of `accept` that say nothing of the listener: there is no connection
/// after all, or its own network errors were passed on, as Linux does.
pub(crate) fn is_ones_own(error: &io::Error) -> bool {
    let code = error.raw_os_error().unwrap_or(libc::EAGAIN);
    let gone = [libc::EAGAIN, libc::EWOULDBLOCK, libc::ECONNABORTED, libc::EPROTO, libc::EPERM];
    let network = [libc::ENETDOWN, libc::ENOPROTOOPT, libc::EHOSTDOWN, libc::EHOSTUNREACH];
    let memory = [libc::EOPNOTSUPP, libc::ENETUNREACH, libc::ENOBUFS, libc::ENOMEM];
    gone.contains(&code) || network.contains(&code) || memory.contains(&code)
}

/// Lets others bind the same port, and the kernel spread connections over them.
pub(crate) fn reuse_port(socket: &Socket) -> io::Result<()> {
    cfg_if::cfg_if! {
        if #[cfg(any(target_os = "linux", target_os = "android"))] {
            socket.set_reuse_port(true)
        } else if #[cfg(target_os = "freebsd")] {
            socket.set_reuse_port_lb(true)
        } else {
            let _ = socket;
            let why = "this kernel does not spread connections over the listeners of a port";
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
    }
}

/// A descriptor that is kept to be closed when there are no more, so that those who connect
/// can be turned away.
#[derive(Debug, Default)]
pub(crate) struct Reserve(Option<File>);

impl Reserve {
    /// Makes sure that there is one, if that is possible.
    pub(crate) fn keep(&mut self) {
        if self.0.is_none() {
            self.0 = File::open("/dev/null").ok();
        }
    }

    /// Closes the connections that wait.
    pub(crate) fn turn_away(&mut self, listener: &Socket) {
        self.0 = None;
        while let Ok(connection) = accept(listener) {
            drop(connection);
        }
        self.keep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that is out of descriptors can be made; a whole machine that is, cannot. Both
    /// are one to a listener.
    #[test]
    fn the_machine_may_be_out_of_descriptors_too() {
        for code in [libc::EMFILE, libc::ENFILE] {
            let error = io::Error::from_raw_os_error(code);
            assert!(out_of_descriptors(&error), "{error}: peers are turned away");
            assert!(!is_ones_own(&error), "{error}: not one connection's");
        }
        for code in [libc::EAGAIN, libc::ECONNABORTED, libc::ENOBUFS, libc::ENOMEM] {
            let error = io::Error::from_raw_os_error(code);
            assert!(!out_of_descriptors(&error) && is_ones_own(&error), "{error}");
        }
        let broken = io::Error::from_raw_os_error(libc::EBADF);
        assert!(!out_of_descriptors(&broken) && !is_ones_own(&broken), "the listener is told");
    }
}
