//! What a stream reads and writes: a socket.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::ops::Deref;

use socket2::Socket;

use super::SEND_FLAGS;

/// The socket of a stream.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: Socket,
}

impl From<Socket> for Transport {
    fn from(socket: Socket) -> Transport {
        Transport { socket }
    }
}

impl Deref for Transport {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        &self.socket
    }
}

impl Transport {
    /// It is a socket, always.
    pub(crate) fn is_socket(&self) -> bool {
        true
    }

    /// Reads once.
    pub(crate) fn receive(&self, memory: &mut [u8]) -> io::Result<usize> {
        io::Read::read(&mut &self.socket, memory)
    }

    /// Writes once, what goes.
    pub(crate) fn send(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match bufs {
            [buf] => self.socket.send_with_flags(buf, SEND_FLAGS),
            bufs => self.socket.send_vectored_with_flags(bufs, SEND_FLAGS),
        }
    }

    /// All is written.
    pub(crate) fn end_writing(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// The stream begins to wait for something to read, or ceases to.
    pub(crate) fn wait_to_read(&self, _waits: bool) {}
}
