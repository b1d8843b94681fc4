//! The transport of a stream: a socket, a console behind a socket, or a pipe.

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
    /// A console: reads come through the socket, writes go to the console.
    pub(super) console: Option<Box<Console>>,
    /// A pipe, instead of a socket: socket options fail.
    pipe: Option<NamedPipe>,
    socket: Held,
}

/// A socket.
#[derive(Debug)]
enum Held {
    Own(Socket),
    /// An unconnected socket, the placeholder for pipes.
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
    /// True if writes go to the socket.
    pub(crate) fn is_socket(&self) -> bool {
        self.console.is_none() && self.pipe.is_none()
    }

    /// Makes the transport of a pipe, which uses overlapped operations.
    pub(crate) fn of_pipe(pipe: NamedPipe) -> io::Result<Transport> {
        let socket = Held::Nobodys(nobodys_socket()?);
        Ok(Transport { console: None, pipe: Some(pipe), socket })
    }

    /// The pipe, if the transport is one.
    pub(crate) fn pipe(&self) -> Option<&NamedPipe> {
        self.pipe.as_ref()
    }

    /// The raw source.
    pub(crate) fn source(&self) -> io::Result<RawSource> {
        self.pipe.as_ref().map_or_else(|| Ok(RawSource::of(&**self)), NamedPipe::source)
    }

    /// The source to pass to another process.
    pub(crate) fn passable(&self) -> io::Result<RawSource> {
        self.pipe.as_ref().map_or_else(|| Ok(RawSource::of(&**self)), NamedPipe::passable)
    }

    /// True if it can pass handles.
    pub(crate) fn passes_handles(&self) -> bool {
        self.pipe.as_ref().is_some_and(NamedPipe::passes_handles)
    }

    /// Enables the passing of handles.
    pub(crate) fn pass_handles(&self) {
        if let Some(NamedPipe::End(channel)) = &self.pipe {
            channel.pass_handles();
        }
    }

    /// Sets the child process at the other end of a pipe. Windows reports this process instead,
    /// because it opened both ends.
    pub(crate) fn set_peer(&self, process: u32) {
        if let Some(NamedPipe::End(channel)) = &self.pipe {
            channel.set_peer(process);
        }
    }

    /// Starts to listen; a pipe uses its instances.
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

    /// Makes calls wait instead of failing with `WouldBlock`, or the reverse.
    pub(crate) fn set_blocking(&mut self, blocking: bool) -> io::Result<()> {
        if self.pipe.is_some() {
            let why =
                "a pipe cannot be made blocking on Windows: await the callbacks of its operations";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        self.set_nonblocking(!blocking)
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

    /// Writes once, possibly a part.
    pub(crate) fn send(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(console) = &self.console {
            return console.write(bufs);
        }
        if self.pipe.is_some() {
            // The stream writes pipes by operations, after this error.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        match bufs {
            [buf] => self.send_with_flags(buf, SEND_FLAGS),
            bufs => self.send_vectored_with_flags(bufs, SEND_FLAGS),
        }
    }

    /// Shuts the writing side down. Only sockets support it.
    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        if self.console.is_some() { Ok(()) } else { self.shutdown(Shutdown::Write) }
    }

    /// Called when the stream starts or stops reading.
    pub(crate) fn wait_to_read(&self, waits: bool) {
        if let Some(console) = &self.console {
            console.wait_to_read(waits);
        }
    }
}
