//! What a stream reads and writes: a socket, a console behind one, or a pipe.

use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::ops::Deref;
use std::sync::OnceLock;

use poll_core::RawSource;
use socket2::{Domain, Socket};

use super::pipes::NamedPipe;
use super::tty::Console;
use super::{SEND_FLAGS, accept, stream_socket};

/// The socket of a stream.
#[derive(Debug)]
pub(crate) struct Transport {
    /// What is read comes through the socket; what is written goes here.
    pub(super) console: Option<Box<Console>>,
    /// Instead of a socket: what only sockets know fails.
    pipe: Option<NamedPipe>,
    socket: Held,
}

/// A socket.
#[derive(Debug)]
enum Held {
    Own(Socket),
    /// One that is never connected, for those who have none.
    Nobodys(&'static Socket),
}

fn nobodys_socket() -> io::Result<&'static Socket> {
    static SOCKET: OnceLock<Socket> = OnceLock::new();
    if let Some(socket) = SOCKET.get() {
        return Ok(socket);
    }
    let made = stream_socket(Domain::IPV4)?;
    Ok(SOCKET.get_or_init(|| made))
}

impl From<Socket> for Transport {
    fn from(socket: Socket) -> Transport {
        Transport { console: None, pipe: None, socket: Held::Own(socket) }
    }
}

impl Deref for Transport {
    type Target = Socket;

    fn deref(&self) -> &Socket {
        match &self.socket {
            Held::Own(socket) => socket,
            Held::Nobodys(socket) => socket,
        }
    }
}

impl Transport {
    /// True if what is written goes to the socket.
    pub(crate) fn is_socket(&self) -> bool {
        self.console.is_none() && self.pipe.is_none()
    }

    /// A pipe, which works by operations.
    pub(crate) fn of_pipe(pipe: NamedPipe) -> io::Result<Transport> {
        let socket = Held::Nobodys(nobodys_socket()?);
        Ok(Transport { console: None, pipe: Some(pipe), socket })
    }

    /// The pipe, if that is what it is.
    pub(crate) fn pipe(&self) -> Option<&NamedPipe> {
        self.pipe.as_ref()
    }

    /// What others call it.
    pub(crate) fn source(&self) -> io::Result<RawSource> {
        self.pipe.as_ref().map_or_else(|| Ok(RawSource::of(&**self)), NamedPipe::source)
    }

    /// What another process can have of it.
    pub(crate) fn passable(&self) -> io::Result<RawSource> {
        self.pipe.as_ref().map_or_else(|| Ok(RawSource::of(&**self)), NamedPipe::passable)
    }

    /// True if handles can go over it.
    pub(crate) fn passes_handles(&self) -> bool {
        self.pipe.as_ref().is_some_and(NamedPipe::passes_handles)
    }

    /// From now on handles go over it.
    pub(crate) fn pass_handles(&self) {
        if let Some(NamedPipe::End(channel)) = &self.pipe {
            channel.pass_handles();
        }
    }

    /// The other end of a pipe is a child's. Nothing else tells which process that is, as both
    /// were opened here.
    pub(crate) fn set_peer(&self, process: u32) {
        if let Some(NamedPipe::End(channel)) = &self.pipe {
            channel.set_peer(process);
        }
    }

    /// Listens; a pipe does so by its instances.
    pub(crate) fn listen(&self, backlog: i32) -> io::Result<()> {
        if self.pipe.is_some() { Ok(()) } else { Socket::listen(self, backlog) }
    }

    /// Accepts a connection.
    pub(crate) fn accept(&self) -> io::Result<Transport> {
        match &self.pipe {
            Some(pipe) => pipe.accept(),
            None => accept(self).map(Transport::from),
        }
    }

    /// Makes its calls wait or not.
    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        if self.pipe.is_some() {
            let why = "the pipes of Windows do not wait in their calls";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        Socket::set_nonblocking(self, nonblocking)
    }

    pub(super) fn of_console(console: Console, socket: Socket) -> Transport {
        Transport { console: Some(Box::new(console)), pipe: None, socket: Held::Own(socket) }
    }

    /// Reads once.
    pub(crate) fn receive(&self, memory: &mut [u8]) -> io::Result<usize> {
        match &self.pipe {
            Some(pipe) => pipe.receive(memory),
            None => io::Read::read(&mut &**self, memory),
        }
    }

    /// Writes once, what goes.
    pub(crate) fn send(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(console) = &self.console {
            return console.write(bufs);
        }
        if self.pipe.is_some() {
            // It is written by operations, when the stream waits for that.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match bufs {
            [buf] => self.send_with_flags(buf, SEND_FLAGS),
            bufs => self.send_vectored_with_flags(bufs, SEND_FLAGS),
        }
    }

    /// All is written. Only a socket can tell its peer so.
    pub(crate) fn end_writing(&self) -> io::Result<()> {
        if self.console.is_some() { Ok(()) } else { self.shutdown(Shutdown::Write) }
    }

    /// The stream begins to wait for something to read, or ceases to.
    pub(crate) fn wait_to_read(&self, waits: bool) {
        if let Some(console) = &self.console {
            console.wait_to_read(waits);
        }
    }
}
