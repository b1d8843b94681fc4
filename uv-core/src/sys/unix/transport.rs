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

/// How much one call moves at the most. Apple's kernels refuse more.
const MOST: usize = i32::MAX as usize - 1;

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
        let (fd, place) = (self.socket.as_raw_fd(), memory.as_mut_ptr());
        let room = memory.len().min(MOST);
        let count = if self.is_socket {
            // SAFETY: the kernel writes no more than the length of `memory`.
            unsafe { libc::recv(fd, place.cast(), room, 0) }
        } else {
            // SAFETY: as above.
            unsafe { libc::read(fd, place.cast(), room) }
        };
        if count >= 0 { Ok(count as usize) } else { self.receive_failed() }
    }

    #[cold]
    fn receive_failed(&self) -> io::Result<usize> {
        let error = io::Error::last_os_error();
        // A pseudo-terminal that nobody is at any more: its end, whichever side it is.
        let ended = !self.is_socket
            && error.raw_os_error() == Some(libc::EIO)
            && is_hung_up(self.socket.as_raw_fd());
        if ended { Ok(0) } else { Err(error) }
    }

    /// Writes once, what goes.
    #[inline]
    pub(crate) fn send(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let fd = self.socket.as_raw_fd();
        let count = match bufs {
            // SAFETY: the kernel reads the buffer, which lives across the call.
            [buf] if self.is_socket => unsafe {
                libc::send(fd, buf.as_ptr().cast(), buf.len().min(MOST), SEND_FLAGS)
            },
            _ if self.is_socket => {
                return self.socket.send_vectored_with_flags(bufs, SEND_FLAGS);
            }
            // An `IoSlice` is laid out as an `iovec`.
            // SAFETY: as above.
            _ => unsafe { libc::writev(fd, bufs.as_ptr().cast(), bufs.len() as libc::c_int) },
        };
        if count >= 0 { Ok(count as usize) } else { Err(io::Error::last_os_error()) }
    }

    /// All is written. Only a socket can tell its peer so and be read on.
    pub(crate) fn end_writing(&self) -> io::Result<()> {
        if self.is_socket { self.socket.shutdown(Shutdown::Write) } else { Ok(()) }
    }

    /// The stream begins to wait for something to read, or ceases to.
    pub(crate) fn wait_to_read(&self, _waits: bool) {}
}
