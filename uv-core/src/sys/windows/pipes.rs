//! Named pipes.
//!
//! They cannot be polled: a stream learns by operations what its pipe is ready for. See
//! `streams/overlapped.rs`, which is the only one that looks inside.

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

/// A handle that is nobody else's: what [`Pipe::open`](crate::Pipe::open) takes over.
pub(crate) type OwnedPipe = OwnedHandle;

/// Instances of a listener that wait for clients, unless said otherwise.
pub(crate) const INSTANCES: usize = 4;

/// The instances of a listener.
#[derive(Debug)]
pub(crate) struct Server {
    name: Arc<Path>,
    /// Made, and not waiting for a client yet.
    idle: RefCell<Vec<Rc<Channel>>>,
    /// Connected, and not accepted yet.
    pub(crate) ready: RefCell<VecDeque<Rc<Channel>>>,
    /// The operations in flight.
    pub(crate) connecting: RefCell<Vec<Token>>,
    /// The loop looks at `ready` in its next pending phase.
    pub(crate) fed: Cell<bool>,
}

impl Server {
    /// An instance that can wait for a client.
    pub(crate) fn instance(&self) -> io::Result<Rc<Channel>> {
        if let Some(idle) = self.idle.borrow_mut().pop() {
            return Ok(idle);
        }
        let handle = calls::create(&self.name, Access::Both, calls::Instances::Another)?;
        Ok(Channel::new(handle, Some(Arc::clone(&self.name)), true))
    }
}

/// A stream's pipe.
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
                let why = "a listener has many handles, one for each client";
                Err(io::Error::new(io::ErrorKind::NotConnected, why))
            }
        }
    }

    /// A handle that another process can have.
    pub(super) fn passable(&self) -> io::Result<RawSource> {
        match self {
            NamedPipe::End(channel) => channel.passable(),
            NamedPipe::Listener(_) => {
                let why = "a listener of Windows is its name: bind to it in the other process";
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
        }
    }

    /// True if handles can go over it, or over what it will be.
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

    /// The connection that waits.
    pub(super) fn accept(&self) -> io::Result<Transport> {
        let ready = match self {
            NamedPipe::End(_) => None,
            NamedPipe::Listener(server) => server.ready.borrow_mut().pop_front(),
        };
        Transport::of_pipe(NamedPipe::End(ready.ok_or(io::ErrorKind::WouldBlock)?))
    }
}

/// What a handle that was made elsewhere can do.
pub(crate) struct Adopted {
    pub(crate) transport: Transport,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

/// Finds out about a handle.
pub(crate) fn adopt(pipe: OwnedPipe) -> io::Result<Adopted> {
    let pipe = calls::keep_standard(pipe)?;
    let (readable, writable) = calls::access_of(&pipe)?;
    let transport = Transport::of_pipe(NamedPipe::End(Channel::new(pipe, None, false)))?;
    Ok(Adopted { transport, readable, writable })
}

/// True if this backend can do what pipes need.
pub(crate) fn pipes_work_on<B: Backend>(backend: &B) -> io::Result<()> {
    if backend.supports(OpKind::ConnectNamedPipe) {
        return Ok(());
    }
    let why = "the pipes of Windows need operations, which this backend does not perform: \
               use the iocp backend";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

/// Pipes leave no file behind.
#[derive(Debug)]
pub(crate) struct BoundPath(());

/// Makes the first instance, which has the name to itself.
pub(crate) fn bind_pipe(
    bound: Option<&Transport>,
    name: &Path,
) -> io::Result<(Option<Transport>, Option<BoundPath>)> {
    check_name(name)?;
    if bound.is_some() {
        let why = "the pipe has a name, or a peer, already";
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
        fed: Cell::new(false),
    };
    Ok((Some(Transport::of_pipe(NamedPipe::Listener(Rc::new(server)))?), None))
}

/// How far a connect came.
pub(crate) enum Connecting {
    /// How it went.
    Known(io::Result<()>),
    /// The kernel goes on by itself.
    #[allow(dead_code, reason = "sockets do that, not pipes")]
    UnderWay,
    /// Somebody has to wait for an instance that is free.
    Busy(Wait),
}

pub(crate) fn connect_pipe(pipe: &mut Option<Transport>, name: &Path) -> io::Result<Connecting> {
    check_name(name)?;
    if pipe.is_some() {
        let why = "the pipe has a name, and is no client";
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

/// Waits for an instance that is free, on another thread.
pub(crate) struct Wait {
    name: PathBuf,
}

/// A pipe that was waited for.
pub(crate) struct Waited {
    name: PathBuf,
    opened: io::Result<Opened>,
}

impl Wait {
    /// Waits until there is one, or `given_up`.
    pub(crate) fn wait(self, given_up: &AtomicBool) -> Waited {
        let opened = loop {
            match calls::open(&self.name, Access::Both, true) {
                Err(error) if calls::is_busy(&error) && !given_up.load(Ordering::Relaxed) => {
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

/// A name must be one of a pipe.
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
        0 => invalid("a pipe's name is not empty"),
        257.. => invalid("the name is too long for a pipe: 256 units fit"),
        _ if units.contains(&0) => invalid("a pipe's name has no NUL in it"),
        _ if is_prefix(r"\\.\pipe\") || is_prefix(r"\\?\pipe\") => Ok(()),
        _ => invalid(r"a pipe's name begins with \\.\pipe\"),
    }
}

/// True if the pipe has a name to listen at.
pub(crate) fn can_listen(transport: &Transport) -> io::Result<bool> {
    Ok(matches!(transport.pipe(), Some(NamedPipe::Listener(_))))
}

/// The name of this side: that of a listener, or of what it has accepted.
pub(crate) fn local_name(transport: &Transport) -> io::Result<PathBuf> {
    Ok(match transport.pipe() {
        Some(NamedPipe::Listener(server)) => server.name.to_path_buf(),
        Some(NamedPipe::End(channel)) if channel.is_server => path_of(channel),
        _ => PathBuf::new(),
    })
}

/// The name of the other side.
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

/// Lets everybody read or write a pipe, besides those who may already. All instances of a name
/// have the same access, those that are to come included.
pub(crate) fn let_everybody(
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

/// The two ends of a pipe, which are not inherited: what is written to the second is read from
/// the first. One that does not block takes overlapped calls.
pub(crate) fn plain_pipe(blocking: [bool; 2]) -> io::Result<(OwnedPipe, OwnedPipe)> {
    pair(Access::Read, blocking)
}

/// Two ends of one connection.
pub(crate) fn pipe_sockets() -> io::Result<(Transport, Transport)> {
    let (one, other) = pair(Access::Both, [false; 2])?;
    let end = |handle| Transport::of_pipe(NamedPipe::End(Channel::new(handle, None, false)));
    Ok((end(one)?, end(other)?))
}

/// The server's end has `access`, the other what goes with it.
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
            // Somebody else has that name, or was quicker to connect to it.
            Err(_) if tries < 8 => {}
            both => return both,
        }
    }
}
