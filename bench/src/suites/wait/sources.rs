//! Many sockets, one of them active.

use std::cell::OnceCell;
use std::io;

#[cfg(unix)]
pub(super) use std::os::unix::net::UnixDatagram as Socket;

#[cfg(not(unix))]
pub(super) use std::net::UdpSocket as Socket;

/// Sockets, opened by the first who needs them and closed with their scenario: the
/// others' descriptors must not stand in their way.
#[derive(Debug)]
pub(super) struct Sources {
    count: usize,
    opened: OnceCell<Opened>,
}

#[derive(Debug)]
struct Opened {
    sockets: Vec<Socket>,
    active: Active,
}

/// The socket that is made ready.
#[derive(Debug)]
pub(super) struct Active {
    sender: Socket,
    receiver: Socket,
}

impl Sources {
    pub(super) fn new(count: usize) -> Sources {
        Sources { count, opened: OnceCell::new() }
    }

    /// All sockets, and the one that is active among them.
    pub(super) fn open(&self) -> io::Result<(&[Socket], &Active)> {
        let opened = match self.opened.get() {
            Some(opened) => opened,
            None => {
                let opened = Opened::new(self.count)?;
                self.opened.get_or_init(|| opened)
            }
        };
        Ok((&opened.sockets, &opened.active))
    }
}

impl Opened {
    /// One descriptor a source, without gaps, so that `select` looks at no more bits than
    /// it has to.
    fn new(count: usize) -> io::Result<Opened> {
        let (sender, middle) = pair()?;
        let receiver = middle.try_clone()?;
        let mut sockets = Vec::with_capacity(count);
        let mut middle = Some(middle);
        for index in 0..count {
            let active = if index == count / 2 { middle.take() } else { None };
            sockets.push(active.map_or_else(quiet, Ok).map_err(|error| explained(error, count))?);
        }
        Ok(Opened { sockets, active: Active { sender, receiver } })
    }
}

/// Two connected sockets. The second does not block.
#[cfg(unix)]
fn pair() -> io::Result<(Socket, Socket)> {
    let (sender, receiver) = Socket::pair()?;
    receiver.set_nonblocking(true)?;
    Ok((sender, receiver))
}

#[cfg(not(unix))]
fn pair() -> io::Result<(Socket, Socket)> {
    let (sender, receiver) = (Socket::bind("127.0.0.1:0")?, Socket::bind("127.0.0.1:0")?);
    sender.connect(receiver.local_addr()?)?;
    receiver.set_nonblocking(true)?;
    Ok((sender, receiver))
}

/// A socket to which nobody can send.
#[cfg(unix)]
fn quiet() -> io::Result<Socket> {
    Socket::unbound()
}

#[cfg(not(unix))]
fn quiet() -> io::Result<Socket> {
    Socket::bind("127.0.0.1:0")
}

fn explained(error: io::Error, count: usize) -> io::Error {
    let why = format!("{count} sockets: {error} (see 'ulimit -n')");
    io::Error::new(error.kind(), why)
}

impl Active {
    pub(super) fn send(&self) -> io::Result<()> {
        self.sender.send(&[1]).map(drop)
    }

    pub(super) fn receive(&self) -> io::Result<()> {
        self.receiver.recv(&mut [0]).map(drop)
    }
}
