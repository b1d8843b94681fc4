//! Named pipes, which need overlapped operations.

use std::io;
use std::path::{Path, PathBuf};

use socket2::{SockAddr, Socket};

use super::Transport;

/// A handle that is nobody else's: what [`Pipe::open`](crate::Pipe::open) takes over.
pub(crate) type OwnedPipe = std::os::windows::io::OwnedHandle;

fn missing<R>() -> io::Result<R> {
    let why = "named pipes are not here yet: use a TCP connection of this machine";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// What a handle that was made elsewhere can do.
pub(crate) struct Adopted {
    pub(crate) transport: Transport,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

pub(crate) fn adopt(_pipe: OwnedPipe) -> io::Result<Adopted> {
    missing()
}

pub(crate) fn pipe_address(_name: &Path) -> io::Result<SockAddr> {
    missing()
}

pub(crate) fn pipe_name(_address: &SockAddr) -> PathBuf {
    PathBuf::new()
}

pub(crate) fn pipe_socket() -> io::Result<Socket> {
    missing()
}

/// Pipes leave no file behind.
#[derive(Debug)]
pub(crate) struct BoundPath(());

impl BoundPath {
    pub(crate) fn of(_name: &Path) -> Option<BoundPath> {
        None
    }
}

pub(crate) fn let_everybody(_path: &Path, _read: bool, _write: bool) -> io::Result<()> {
    missing()
}

pub(crate) fn bind_error(error: io::Error) -> io::Error {
    error
}

pub(crate) fn plain_pipe(_blocking: [bool; 2]) -> io::Result<(OwnedPipe, OwnedPipe)> {
    let (reader, writer) = io::pipe()?;
    Ok((reader.into(), writer.into()))
}

pub(crate) fn pipe_sockets() -> io::Result<(Socket, Socket)> {
    missing()
}
