//! Named pipes.
//!
//! They cannot be polled: a stream uses overlapped operations to detect the readiness of its
//! pipe. `streams/named_pipe.rs` starts them.

mod access;
mod calls;
mod channel;
mod chunk;
mod frames;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::io::OwnedHandle;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use poll_core::{Backend, OpKind, RawSource, Token};

use super::Transport;

use calls::{Access, Opened};
pub(crate) use channel::Channel;
pub(crate) use chunk::Chunk;

/// An owned handle: the argument of [`Pipe::open`](crate::Pipe::open).
pub(crate) type OwnedPipe = OwnedHandle;

/// The default number of a listener's instances that wait for clients.
pub(crate) const INSTANCES: usize = 4;

/// The instances of a listener.
#[derive(Debug)]
pub(crate) struct Server {
    name: Arc<Path>,
    /// Created, and not waiting for a client yet.
    idle: RefCell<Vec<Rc<Channel>>>,
    /// Connected, and not accepted yet.
    pub(crate) ready: RefCell<VecDeque<Rc<Channel>>>,
    /// The operations in flight.
    pub(crate) connecting: RefCell<Vec<Token>>,
    /// The loop checks `ready` in its next pending phase.
    pub(crate) ready_scheduled: Cell<bool>,
}

impl Server {
    /// Returns an instance that can wait for a client.
    pub(crate) fn instance(&self) -> io::Result<Rc<Channel>> {
        if let Some(idle) = self.idle.borrow_mut().pop() {
            return Ok(idle);
        }
        let handle = calls::create(&self.name, Access::Both, calls::Instances::Another)?;
        Ok(Channel::new(handle, Some(Arc::clone(&self.name)), true))
    }
}

/// The pipe of a stream.
#[derive(Debug)]
pub(crate) enum NamedPipe {
    End(Rc<Channel>),
    Listener(Rc<Server>),
}

impl NamedPipe {
    pub(super) fn source(&self) -> io::Result<RawSource> {
        match self {
            NamedPipe::End(channel) => Ok(channel.source()),
            NamedPipe::Listener(_) => {
                let why = "a pipe listener has no single handle: use the handle of an accepted connection";
                Err(io::Error::new(io::ErrorKind::NotConnected, why))
            }
        }
    }

    /// The handle to pass to another process.
    pub(super) fn passable(&self) -> io::Result<RawSource> {
        match self {
            NamedPipe::End(channel) => channel.passable(),
            NamedPipe::Listener(_) => {
                let why = "a pipe listener cannot be passed on Windows: bind to its name in the other process";
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
        }
    }

    /// True if the pipe, or the connections of the listener, can pass handles.
    pub(super) fn passes_handles(&self) -> bool {
        match self {
            NamedPipe::End(channel) => calls::goes_both_ways(&channel.handle),
            NamedPipe::Listener(_) => true,
        }
    }

    pub(super) fn receive(&self, memory: &mut [u8]) -> io::Result<usize> {
        match self {
            NamedPipe::End(channel) => channel.receive(memory),
            NamedPipe::Listener(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Accepts a connected instance.
    pub(super) fn accept(&self) -> io::Result<Transport> {
        let ready = match self {
            NamedPipe::End(_) => None,
            NamedPipe::Listener(server) => server.ready.borrow_mut().pop_front(),
        };
        Transport::of_pipe(NamedPipe::End(ready.ok_or(io::ErrorKind::WouldBlock)?))
    }
}

/// A transport made from a foreign handle, and its directions.
pub(crate) struct Adopted {
    pub(crate) transport: Transport,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

/// Makes a transport from a foreign handle.
pub(crate) fn adopt(pipe: OwnedPipe) -> io::Result<Adopted> {
    let pipe = calls::keep_standard(pipe)?;
    let (readable, writable) = calls::access_of(&pipe)?;
    let transport = Transport::of_pipe(NamedPipe::End(Channel::new(pipe, None, false)))?;
    Ok(Adopted { transport, readable, writable })
}

/// Checks that the backend performs the operations that pipes need.
pub(crate) fn pipes_work_on<B: Backend>(backend: &B) -> io::Result<()> {
    if backend.supports(OpKind::ConnectNamedPipe) {
        return Ok(());
    }
    let why = "Windows pipes need overlapped operations, which this backend does not perform: \
               use the iocp backend";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// Nothing to do: Windows pipes have no file to remove.
#[derive(Debug)]
pub(crate) struct BoundPath(());

/// Creates the first instance; fails if the name exists.
pub(crate) fn bind_pipe(
    bound: Option<&Transport>,
    name: &Path,
) -> io::Result<(Option<Transport>, Option<BoundPath>)> {
    check_name(name)?;
    if bound.is_some() {
        let why = "the pipe is bound or connected already: use a new one";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let handle = calls::create(name, Access::Both, calls::Instances::First)?;
    let name: Arc<Path> = name.into();
    let first = Channel::new(handle, Some(Arc::clone(&name)), true);
    let server = Server {
        name,
        idle: RefCell::new(vec![first]),
        ready: RefCell::default(),
        connecting: RefCell::default(),
        ready_scheduled: Cell::new(false),
    };
    Ok((Some(Transport::of_pipe(NamedPipe::Listener(Rc::new(server)))?), None))
}

/// The progress of a connect.
pub(crate) enum Connecting {
    /// It has completed, with this result.
    Known(io::Result<()>),
    /// The kernel completes it.
    #[allow(dead_code, reason = "only the sockets of Unix use it")]
    UnderWay,
    /// A pool thread must wait for a free instance.
    Busy(Wait),
}

pub(crate) fn connect_pipe(pipe: &mut Option<Transport>, name: &Path) -> io::Result<Connecting> {
    check_name(name)?;
    if pipe.is_some() {
        let why = "the pipe is bound or connected already: connect a new one";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(match calls::open(name, Access::Both, true) {
        Ok(opened) => {
            *pipe = Some(connected(opened, name)?);
            Connecting::Known(Ok(()))
        }
        Err(error) if calls::is_busy(&error) => Connecting::Busy(Wait { name: name.into() }),
        Err(error) => Connecting::Known(Err(error)),
    })
}

fn connected(opened: Opened, name: &Path) -> io::Result<Transport> {
    Transport::of_pipe(NamedPipe::End(Channel::new(opened.handle, Some(name.into()), false)))
}

/// A wait for a free instance, for a pool thread.
pub(crate) struct Wait {
    name: PathBuf,
}

/// The result of a [`Wait`].
pub(crate) struct Waited {
    name: PathBuf,
    opened: io::Result<Opened>,
}

impl Wait {
    /// Waits until an instance is free, or the request is cancelled.
    pub(crate) fn wait(self, cancelled: &AtomicBool) -> Waited {
        let opened = loop {
            match calls::open(&self.name, Access::Both, true) {
                Err(error) if calls::is_busy(&error) && !cancelled.load(Ordering::Relaxed) => {
                    calls::wait_for_instance(&self.name);
                }
                result => break result,
            }
        };
        Waited { name: self.name, opened }
    }
}

impl Waited {
    pub(crate) fn transport(self) -> io::Result<Transport> {
        connected(self.opened?, &self.name)
    }
}

/// Checks that a name is a pipe name.
fn check_name(name: &Path) -> io::Result<()> {
    let units: Vec<u16> = name.as_os_str().encode_wide().collect();
    let invalid = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let slashes = |unit: &u16| if *unit == u16::from(b'/') { u16::from(b'\\') } else { *unit };
    let prefix: Vec<u16> = units.iter().take(9).map(slashes).collect();
    let is_prefix = |expected: &str| {
        let expected = expected.encode_utf16();
        String::from_utf16_lossy(&prefix).to_lowercase().encode_utf16().eq(expected)
    };
    match units.len() {
        0 => invalid("the pipe name is empty"),
        257.. => invalid("the pipe name is too long: at most 256 UTF-16 units"),
        _ if units.contains(&0) => invalid("the pipe name contains NUL"),
        _ if is_prefix(r"\\.\pipe\") || is_prefix(r"\\?\pipe\") => Ok(()),
        _ => invalid(r"the pipe name must begin with \\.\pipe\"),
    }
}

/// True if the pipe is bound to a name.
pub(crate) fn can_listen(transport: &Transport) -> io::Result<bool> {
    Ok(matches!(transport.pipe(), Some(NamedPipe::Listener(_))))
}

/// The local name: that of a listener or of an accepted connection.
pub(crate) fn local_name(transport: &Transport) -> io::Result<PathBuf> {
    Ok(match transport.pipe() {
        Some(NamedPipe::Listener(server)) => server.name.to_path_buf(),
        Some(NamedPipe::End(channel)) if channel.is_server => path_of(channel),
        _ => PathBuf::new(),
    })
}

/// The name that a client is connected to.
pub(crate) fn peer_name(transport: &Transport) -> io::Result<PathBuf> {
    match transport.pipe() {
        Some(NamedPipe::Listener(_)) => Err(io::ErrorKind::NotConnected.into()),
        Some(NamedPipe::End(channel)) if !channel.is_server => Ok(path_of(channel)),
        _ => Ok(PathBuf::new()),
    }
}

fn path_of(channel: &Channel) -> PathBuf {
    channel.name.as_ref().map_or_else(PathBuf::new, |name| name.to_path_buf())
}

/// Grants the group Everyone read or write access to a pipe, in addition to existing rights. All
/// instances of a name share the rights, also future ones.
pub(crate) fn set_permissions(
    transport: &Transport,
    _name: &Path,
    read: bool,
    write: bool,
) -> io::Result<()> {
    match transport.pipe() {
        Some(NamedPipe::End(channel)) => access::widen(&channel.handle, read, write),
        Some(NamedPipe::Listener(server)) => {
            let instance = server.instance()?;
            let widened = access::widen(&instance.handle, read, write);
            server.idle.borrow_mut().push(instance);
            widened
        }
        None => Err(io::ErrorKind::NotConnected.into()),
    }
}

/// Creates a pipe whose ends are not inherited: the first end reads what the second writes. A
/// non-blocking end is overlapped.
pub(crate) fn plain_pipe(blocking: [bool; 2]) -> io::Result<(OwnedPipe, OwnedPipe)> {
    pair(Access::Read, blocking)
}

/// Creates the two ends of a connection.
pub(crate) fn pipe_sockets() -> io::Result<(Transport, Transport)> {
    let (one, other) = pair(Access::Both, [false; 2])?;
    let end = |handle| Transport::of_pipe(NamedPipe::End(Channel::new(handle, None, false)));
    Ok((end(one)?, end(other)?))
}

/// Creates a pair; the server's end has `access`, the client's the opposite.
fn pair(access: Access, blocking: [bool; 2]) -> io::Result<(OwnedHandle, OwnedHandle)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mut tries = 0;
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!(r"\\.\pipe\uv-core-{}-{count}", std::process::id());
        let name = Path::new(&name);
        let only = calls::Instances::Only { overlapped: !blocking[0] };
        let both = calls::create(name, access, only).and_then(|server| {
            let client = calls::open(name, access.opposite(), !blocking[1])?;
            Ok((server, client.handle))
        });
        tries += 1;
        match both {
            // Another process has created that name, or connected to it first.
            Err(_) if tries < 8 => {}
            both => return both,
        }
    }
}
