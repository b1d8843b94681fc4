//! The descriptor of a stream: a socket, a pipe or a terminal.

use std::io::{self, IoSlice};
use std::mem::ManuallyDrop;
use std::net::Shutdown;
use std::ops::Deref;
use std::os::fd::{AsRawFd, OwnedFd};

use poll_core::RawSource;
use socket2::Socket;

use super::tty::{Saved, is_hung_up};
use super::{SEND_FLAGS, accept};

/// The bytes of one call. Apple's kernels refuse more than 2 GiB; Linux transfers a part of them.
#[inline]
fn transferable(length: usize) -> usize {
    if cfg!(target_os = "linux") { length } else { length.min(i32::MAX as usize - 1) }
}

/// `MSG_DONTWAIT` in one byte, so that the transport is no larger.
const DO_NOT_WAIT: u8 = libc::MSG_DONTWAIT as u8;
const _: () = assert!(DO_NOT_WAIT as libc::c_int == libc::MSG_DONTWAIT);

/// The descriptor of a stream. It dereferences to [`Socket`]; on other descriptors the calls that
/// need a socket fail (`ENOTSOCK`).
#[derive(Debug)]
pub(crate) struct Transport {
    /// Closed on drop unless `keep` is set.
    socket: ManuallyDrop<Socket>,
    is_socket: bool,
    /// The flag of `send` and `recv` that keeps a call from waiting: the open file description may
    /// be shared with a process that makes it block. 0 if the program has asked for calls that block.
    wait_flag: u8,
    /// True for an adopted standard stream, which stays open because it belongs to the process.
    keep: bool,
    /// The terminal mode before this stream changed it.
    pub(super) saved: Option<Saved>,
}

impl From<Socket> for Transport {
    fn from(socket: Socket) -> Transport {
        let socket = ManuallyDrop::new(socket);
        Transport { socket, is_socket: true, wait_flag: DO_NOT_WAIT, keep: false, saved: None }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        // Restores the terminal mode through the descriptor, so it goes first.
        drop(self.saved.take());
        if !self.keep {
            // SAFETY: this is the only drop of the field, and nothing uses the field after it: the
            // transport is being dropped.
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
    /// A terminal that was opened for the stream, which closes it whatever its descriptor number.
    pub(super) fn terminal(fd: OwnedFd) -> Transport {
        let mut transport = Transport::from(Socket::from(fd));
        transport.is_socket = false;
        transport
    }

    /// A descriptor that is not a socket and was opened elsewhere, such as a FIFO.
    pub(crate) fn plain(fd: OwnedFd) -> Transport {
        let mut transport = Transport::adopted(fd.into());
        transport.is_socket = false;
        transport
    }

    /// A socket that was opened elsewhere.
    pub(crate) fn adopted(socket: Socket) -> Transport {
        let mut transport = Transport::from(socket);
        transport.keep = transport.as_raw_fd() <= libc::STDERR_FILENO;
        transport
    }

    /// True if `recv` and `send` work on it.
    pub(crate) fn is_socket(&self) -> bool {
        self.is_socket
    }

    /// Makes calls wait instead of failing with `WouldBlock`, or the reverse.
    pub(crate) fn set_blocking(&mut self, blocking: bool) -> io::Result<()> {
        self.socket.set_nonblocking(!blocking)?;
        self.wait_flag = if blocking { 0 } else { DO_NOT_WAIT };
        Ok(())
    }

    /// The flag of `send` and `recv` that keeps a call from waiting.
    #[inline]
    pub(super) fn wait_flag(&self) -> libc::c_int {
        self.wait_flag.into()
    }

    /// The descriptor as a source for the backend.
    pub(crate) fn source(&self) -> io::Result<RawSource> {
        Ok(RawSource::of(&*self.socket))
    }

    /// The descriptor as a source that can be passed to another process.
    pub(crate) fn passable(&self) -> io::Result<RawSource> {
        self.source()
    }

    /// True if descriptors can be passed over it.
    pub(crate) fn passes_handles(&self) -> bool {
        self.is_socket
    }

    /// Does nothing: the kernel keeps passed descriptors in flight and closes unreceived ones.
    pub(crate) fn pass_handles(&self) {}

    /// Does nothing: the kernel passes descriptors without knowing the peer's process.
    pub(crate) fn set_peer(&self, _process: u32) {}

    /// Accepts a connection, non-blocking and close-on-exec.
    pub(crate) fn accept(&self) -> io::Result<Transport> {
        accept(&self.socket).map(Transport::from)
    }

    /// Reads with one system call.
    #[inline]
    pub(crate) fn receive(&self, memory: &mut [u8]) -> io::Result<usize> {
        let (fd, place) = (self.socket.as_raw_fd(), memory.as_mut_ptr());
        let capacity = transferable(memory.len());
        let count = if self.is_socket {
            // SAFETY: writes at most `capacity` bytes, which `memory` has and lends exclusively.
            unsafe { libc::recv(fd, place.cast(), capacity, self.wait_flag()) }
        } else {
            // SAFETY: writes at most `capacity` bytes, which `memory` has and lends exclusively.
            unsafe { libc::read(fd, place.cast(), capacity) }
        };
        if count > 0 { Ok(count as usize) } else { self.received_nothing(count) }
    }

    #[cold]
    fn received_nothing(&self, count: isize) -> io::Result<usize> {
        if count == 0 {
            return Ok(0);
        }
        let error = io::Error::last_os_error();
        // The other side of the pseudo-terminal is closed: EIO means end of file, on the master and
        // on the slave.
        let ended = !self.is_socket
            && error.raw_os_error() == Some(libc::EIO)
            && is_hung_up(self.socket.as_raw_fd());
        if ended { Ok(0) } else { Err(error) }
    }

    /// Writes with one system call, which may be partial.
    #[inline]
    pub(crate) fn send(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let fd = self.socket.as_raw_fd();
        let count = match bufs {
            // SAFETY: reads at most `buf.len()` bytes of `buf`, which is borrowed for the call.
            [buf] if self.is_socket => unsafe {
                let flags = SEND_FLAGS | self.wait_flag();
                libc::send(fd, buf.as_ptr().cast(), transferable(buf.len()), flags)
            },
            _ if self.is_socket => {
                let flags = SEND_FLAGS | self.wait_flag();
                return self.socket.send_vectored_with_flags(bufs, flags);
            }
            // SAFETY: reads the list and the buffers, all borrowed for the call. `IoSlice` has the
            // layout of `iovec`, as `std` documents.
            _ => unsafe { libc::writev(fd, bufs.as_ptr().cast(), bufs.len() as libc::c_int) },
        };
        if count >= 0 { Ok(count as usize) } else { Err(io::Error::last_os_error()) }
    }

    /// Ends the write side. Only a socket can do that and stay readable; elsewhere the peer sees
    /// the end when the descriptor is closed.
    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        if self.is_socket { self.socket.shutdown(Shutdown::Write) } else { Ok(()) }
    }

    /// Does nothing: the backend polls the descriptor. Other systems start or stop a read here.
    pub(crate) fn wait_to_read(&self, _waits: bool) {}
}
