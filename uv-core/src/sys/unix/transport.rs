//! What a stream reads and writes: a socket, or another descriptor.

use std::io::{self, IoSlice};
use std::mem::ManuallyDrop;
use std::net::Shutdown;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd};

use poll_core::RawSource;
use socket2::Socket;

use super::tty::{Saved, is_hung_up};
use super::{SEND_FLAGS, accept};

/// The descriptor of a stream. All have the verbs of [`Socket`]; those that only sockets
/// know fail on others.
#[derive(Debug)]
pub(crate) struct Transport {
    /// Closed when this is dropped, unless it is to be kept.
    socket: ManuallyDrop<Socket>,
    is_socket: bool,
    /// A standard stream that was taken over: the process's, so that it stays open.
    keep: bool,
    /// What a terminal was like before its mode was changed.
    pub(super) saved: Option<Saved>,
}

impl From<Socket> for Transport {
    fn from(socket: Socket) -> Transport {
        Transport { socket: ManuallyDrop::new(socket), is_socket: true, keep: false, saved: None }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        // Restored through the descriptor, and so before that is closed.
        drop(self.saved.take());
        if !self.keep {
            // SAFETY: nobody uses it afterwards.
            unsafe { ManuallyDrop::drop(&mut self.socket) };
        }
    }
}

impl Deref for Transport {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        &self.socket
    }
}

impl Transport {
    /// A terminal that was opened for the stream, which closes it whatever its number.
    pub(super) fn terminal(fd: OwnedFd) -> Transport {
        let mut transport = Transport::from(Socket::from(fd));
        transport.is_socket = false;
        transport
    }

    /// A descriptor that is no socket, and that somebody else has made: a pipe.
    pub(crate) fn plain(fd: OwnedFd) -> Transport {
        let mut transport = Transport::adopted(fd.into());
        transport.is_socket = false;
        transport
    }

    /// A socket that somebody else has made.
    pub(crate) fn adopted(socket: Socket) -> Transport {
        let mut transport = Transport::from(socket);
        transport.keep = transport.as_raw_fd() <= libc::STDERR_FILENO;
        transport
    }

    /// True if `recv` and `send` are for it.
    pub(crate) fn is_socket(&self) -> bool {
        self.is_socket
    }

    /// What others call it.
    pub(crate) fn source(&self) -> io::Result<RawSource> {
        Ok(RawSource::of(&*self.socket))
    }

    /// What another process can have of it.
    pub(crate) fn passable(&self) -> io::Result<RawSource> {
        self.source()
    }

    /// True if descriptors can go over it.
    pub(crate) fn passes_handles(&self) -> bool {
        self.is_socket
    }

    /// The kernel keeps what is passed, and closes it if nobody takes it.
    pub(crate) fn pass_handles(&self) {}

    /// The kernel knows who gets what is passed.
    pub(crate) fn set_peer(&self, _process: u32) {}

    /// Accepts a connection that does not block and is closed by `exec`.
    pub(crate) fn accept(&self) -> io::Result<Transport> {
        accept(&self.socket).map(Transport::from)
    }

    /// Reads once.
    #[inline]
    pub(crate) fn receive(&self, memory: &mut [u8]) -> io::Result<usize> {
        if self.is_socket {
            return io::Read::read(&mut &*self.socket, memory);
        }
        let fd = self.socket.as_raw_fd();
        // SAFETY: the kernel writes no more than the length of `memory`.
        let count = unsafe { libc::read(fd, memory.as_mut_ptr().cast(), memory.len()) };
        match usize::try_from(count) {
            Ok(count) => Ok(count),
            Err(_) => match io::Error::last_os_error() {
                // A pseudo-terminal that nobody is at any more: its end, whichever side it is.
                error if error.raw_os_error() == Some(libc::EIO) && is_hung_up(fd) => Ok(0),
                error => Err(error),
            },
        }
    }

    /// Writes once, what goes.
    #[inline]
    pub(crate) fn send(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.is_socket {
            return match bufs {
                [buf] => self.socket.send_with_flags(buf, SEND_FLAGS),
                bufs => self.socket.send_vectored_with_flags(bufs, SEND_FLAGS),
            };
        }
        // An `IoSlice` is laid out as an `iovec`.
        let (vectors, count) = (bufs.as_ptr().cast(), bufs.len() as libc::c_int);
        // SAFETY: the kernel reads the buffers, which live across the call.
        let count = unsafe { libc::writev(self.socket.as_raw_fd(), vectors, count) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// All is written. Only a socket can tell its peer so and be read on.
    pub(crate) fn end_writing(&self) -> io::Result<()> {
        if self.is_socket { self.socket.shutdown(Shutdown::Write) } else { Ok(()) }
    }

    /// The stream begins to wait for something to read, or ceases to.
    pub(crate) fn wait_to_read(&self, _waits: bool) {}
}
