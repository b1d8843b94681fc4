//! Unix domain sockets by name, and descriptors that are no sockets.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use poll_core::{Backend, RawSource};
use socket2::{Domain, SockAddr};

use super::sockets::{is_connecting, socket_pair, stream_socket};
use super::{Transport, set_nonblocking};

/// A descriptor that is nobody else's: what [`Pipe::open`](crate::Pipe::open) takes over.
pub(crate) type OwnedPipe = OwnedFd;

/// What a descriptor that was made elsewhere can do.
pub(crate) struct Adopted {
    pub(crate) transport: Transport,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

/// Finds out about a descriptor, and makes it non-blocking.
pub(crate) fn adopt(fd: OwnedPipe) -> io::Result<Adopted> {
    let is_socket = match file_type(fd.as_raw_fd())? {
        libc::S_IFSOCK => true,
        libc::S_IFIFO | libc::S_IFCHR => false,
        _ => {
            let why = "neither a pipe nor a socket: files are read and written by other means";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
    };
    // SAFETY: the descriptor is open, and the call takes no pointer.
    let mode = match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) } {
        -1 => return Err(io::Error::last_os_error()),
        flags => flags & libc::O_ACCMODE,
    };
    let transport = match is_socket {
        true => Transport::adopted(fd.into()),
        false => Transport::plain(fd),
    };
    transport.set_nonblocking(true)?;
    #[cfg(target_vendor = "apple")]
    if is_socket {
        transport.set_nosigpipe(true)?;
    }
    let (readable, writable) = (mode != libc::O_WRONLY, mode != libc::O_RDONLY);
    Ok(Adopted { transport, readable, writable })
}

/// Which kind of file a descriptor is of.
pub(super) fn file_type(fd: RawFd) -> io::Result<libc::mode_t> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel writes one structure.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: written by the call above.
    Ok(unsafe { stat.assume_init() }.st_mode & libc::S_IFMT)
}

/// The address of a name; never a part of it.
fn pipe_address(name: &Path) -> io::Result<SockAddr> {
    let invalid = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    match name.as_os_str().as_bytes() {
        [] => invalid("a pipe's name is not empty"),
        [0, ..] if !cfg!(any(target_os = "linux", target_os = "android")) => {
            let why = "abstract names, which begin with a NUL, are Linux's: use a path";
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
        [first, rest @ ..] if *first != 0 && rest.contains(&0) => {
            invalid("a path has no NUL in it")
        }
        _ => SockAddr::unix(name).or_else(|_| {
            invalid("the name is too long for a Unix domain socket: about a hundred bytes fit")
        }),
    }
}

/// The name in an address: empty if it has none, with a leading NUL if it is abstract.
fn pipe_name(address: &SockAddr) -> PathBuf {
    if let Some(path) = address.as_pathname() {
        return path.into();
    }
    let name = address.as_abstract_namespace().unwrap_or_default();
    let leading = (!name.is_empty()).then_some(0);
    let bytes = leading.into_iter().chain(name.iter().copied()).collect();
    std::ffi::OsString::from_vec(bytes).into()
}

/// Pipes work on every backend.
pub(crate) fn pipes_work_on<B: Backend>(_backend: &B) -> io::Result<()> {
    Ok(())
}

/// Binds what there is, or else a socket that is made for it. A path that has appeared is to be
/// removed.
pub(crate) fn bind_pipe(
    socket: Option<&Transport>,
    name: &Path,
) -> io::Result<(Option<Transport>, Option<BoundPath>)> {
    let address = pipe_address(name)?;
    let made = if socket.is_none() { Some(stream_socket(Domain::UNIX)?.into()) } else { None };
    if let Some(socket) = made.as_ref().or(socket) {
        socket.bind(&address).map_err(bind_error)?;
    }
    Ok((made, BoundPath::of(name)))
}

/// How far a connect came.
pub(crate) enum Connecting {
    /// How it went.
    Known(io::Result<()>),
    /// The kernel goes on by itself.
    UnderWay,
}

/// Connects what there is, or else a socket that is made for it. If that fails it can be tried
/// again.
pub(crate) fn connect_pipe(socket: &mut Option<Transport>, name: &Path) -> io::Result<Connecting> {
    let address = pipe_address(name)?;
    let socket = match socket {
        Some(socket) => socket,
        None => socket.insert(stream_socket(Domain::UNIX)?.into()),
    };
    Ok(match socket.connect(&address) {
        Err(error) if is_connecting(&error) => Connecting::UnderWay,
        result => Connecting::Known(result),
    })
}

/// True if the pipe has a name to listen at.
pub(crate) fn can_listen(transport: &Transport) -> io::Result<bool> {
    Ok(!local_name(transport)?.as_os_str().is_empty())
}

/// The name of this side.
pub(crate) fn local_name(transport: &Transport) -> io::Result<PathBuf> {
    Ok(pipe_name(&transport.local_addr()?))
}

/// The name of the other side.
pub(crate) fn peer_name(transport: &Transport) -> io::Result<PathBuf> {
    Ok(pipe_name(&transport.peer_addr()?))
}

/// A path that `bind` has made; removed when this is dropped, unless it has become another's
/// meanwhile.
#[derive(Debug)]
pub(crate) struct BoundPath {
    path: PathBuf,
    /// Which file it was: its device and its number.
    file: (u64, u64),
}

impl BoundPath {
    /// The path of a socket that was just bound; `None` if its name is no path.
    fn of(name: &Path) -> Option<BoundPath> {
        let file = file_at(name)?;
        Some(BoundPath { path: name.into(), file })
    }
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        if file_at(&self.path) == Some(self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn file_at(path: &Path) -> Option<(u64, u64)> {
    if path.as_os_str().as_bytes().first() == Some(&0) {
        return None;
    }
    let metadata = fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Lets everybody read or write what is at `path`, besides those who may already.
pub(crate) fn let_everybody(
    _transport: &Transport,
    path: &Path,
    read: bool,
    write: bool,
) -> io::Result<()> {
    let mut permissions = fs::symlink_metadata(path)?.permissions();
    let before = permissions.mode();
    let mode = before | if read { 0o444 } else { 0 } | if write { 0o222 } else { 0 };
    if mode == before {
        return Ok(());
    }
    permissions.set_mode(mode);
    fs::set_permissions(path, permissions)
}

/// Windows' word for a directory that is not there, which libuv has everywhere.
fn bind_error(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENOENT) => io::Error::from_raw_os_error(libc::EACCES),
        _ => error,
    }
}

/// The two ends of a pipe, closed by `exec`: what is written to the second is read from the
/// first. Each blocks or not.
pub(crate) fn plain_pipe(blocking: [bool; 2]) -> io::Result<(OwnedPipe, OwnedPipe)> {
    let (reader, writer) = io::pipe()?;
    let ends = (OwnedPipe::from(reader), OwnedPipe::from(writer));
    for (end, blocking) in [&ends.0, &ends.1].into_iter().zip(blocking) {
        if !blocking {
            set_nonblocking(RawSource::of(end))?;
        }
    }
    Ok(ends)
}

/// Two ends of one connection that do not block.
pub(crate) fn pipe_sockets() -> io::Result<(Transport, Transport)> {
    socket_pair().map(|(one, other)| (one.into(), other.into()))
}
