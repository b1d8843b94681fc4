//! What a stream reads and writes: a socket, or a console behind one.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::ops::Deref;

use socket2::Socket;

use super::SEND_FLAGS;
use super::tty::Console;

/// The socket of a stream.
#[derive(Debug)]
pub(crate) struct Transport {
    /// What is read comes through the socket; what is written goes here.
    pub(super) console: Option<Box<Console>>,
    socket: Socket,
}

impl From<Socket> for Transport {
    fn from(socket: Socket) -> Transport {
        Transport { console: None, socket }
    }
}

impl Deref for Transport {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        &self.socket
    }
}

impl Transport {
    /// True if what is written goes to the socket.
    pub(crate) fn is_socket(&self) -> bool {
        self.console.is_none()
    }

    pub(super) fn of_console(console: Console, socket: Socket) -> Transport {
        Transport { console: Some(Box::new(console)), socket }
    }

    /// Reads once.
    pub(crate) fn receive(&self, memory: &mut [u8]) -> io::Result<usize> {
        io::Read::read(&mut &self.socket, memory)
    }

    /// Writes once, what goes.
    pub(crate) fn send(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(console) = &self.console {
            return console.write(bufs);
        }
        match bufs {
            [buf] => self.socket.send_with_flags(buf, SEND_FLAGS),
            bufs => self.socket.send_vectored_with_flags(bufs, SEND_FLAGS),
        }
    }

    /// All is written. Only a socket can tell its peer so.
    pub(crate) fn end_writing(&self) -> io::Result<()> {
        if self.console.is_some() { Ok(()) } else { self.socket.shutdown(Shutdown::Write) }
    }

    /// The stream begins to wait for something to read, or ceases to.
    pub(crate) fn wait_to_read(&self, waits: bool) {
        if let Some(console) = &self.console {
            console.wait_to_read(waits);
        }
    }
}
