//! Pipes: named Unix domain sockets, and FIFOs and character devices opened elsewhere.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::os::fd::AsFd;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
#[cfg(any(target_os = "linux", target_os = "android"))]
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use poll_core::{Backend, RawSource};
use socket2::{Domain, SockAddr};

use super::sockets::{is_connecting, socket_pair, stream_socket};
use super::{Transport, set_nonblocking};

/// The owned descriptor that [`Pipe::open`](crate::Pipe::open) takes.
pub(crate) type OwnedPipe = OwnedFd;

/// A descriptor that was opened elsewhere, and its directions.
pub(crate) struct Adopted {
    pub(crate) transport: Transport,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

/// Determines the kind and the directions of a descriptor, and makes it non-blocking.
pub(crate) fn adopt(fd: OwnedPipe) -> io::Result<Adopted> {
    let kind = file_type(fd.as_raw_fd())?;
    let is_socket = match kind {
        libc::S_IFSOCK => true,
        libc::S_IFIFO | libc::S_IFCHR => false,
        _ => {
            let why = "neither a pipe nor a socket: use the functions of `fs` for files";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
    };
    // SAFETY: takes no pointer.
    let flags = match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) } {
        -1 => return Err(io::Error::last_os_error()),
        flags => flags,
    };
    let mode = flags & libc::O_ACCMODE;
    if kind == libc::S_IFIFO && flags & libc::O_NONBLOCK == 0 {
        make_private(&fd, flags);
    }
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

/// Reopens an end of a pipe under the same descriptor number, so that its open file description is
/// private to this process.
///
/// `O_NONBLOCK` belongs to the description, which other processes may share: a shell and its
/// programs share the standard streams, and the flag would outlive this process. If reopening
/// fails, the descriptor is left unchanged.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn make_private(fd: &OwnedPipe, flags: libc::c_int) {
    // A pipe with `O_DIRECT` preserves message boundaries (packet mode).
    let kept = libc::O_ACCMODE | libc::O_DIRECT;
    let Some(ours) = super::tty::reopen(fd.as_fd(), flags & kept) else { return };
    // SAFETY: takes no pointer.
    let inherited = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFD) } == 0;
    let close_on_exec = if inherited { 0 } else { libc::O_CLOEXEC };
    // SAFETY: takes no pointer. The caller owns `fd`, so replacing its open file description
    // affects no other owner; the new description is of the same pipe. On failure `fd` is
    // unchanged.
    unsafe { libc::dup3(ours.as_raw_fd(), fd.as_raw_fd(), close_on_exec) };
}

/// Only Linux has paths for anonymous pipes (`/proc/self/fd`).
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn make_private(_fd: &OwnedPipe, _flags: libc::c_int) {}

/// The file type of a descriptor (`S_IFMT`).
pub(super) fn file_type(fd: RawFd) -> io::Result<libc::mode_t> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: writes one `stat`, to a local of that type.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fstat` has succeeded, so it has written the structure.
    Ok(unsafe { stat.assume_init() }.st_mode & libc::S_IFMT)
}

/// Linux has abstract names, which are not paths, and chooses one for a socket that is bound to an
/// empty name.
const HAS_ABSTRACT_NAMES: bool = cfg!(any(target_os = "linux", target_os = "android"));

/// The address of a name. A name that does not fit is an error and is never truncated.
pub(crate) fn pipe_address(name: &Path) -> io::Result<SockAddr> {
    let invalid = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    match name.as_os_str().as_bytes() {
        [] => invalid("the name of a pipe must not be empty"),
        [0, ..] if !HAS_ABSTRACT_NAMES => {
            let why = "abstract names, which begin with a NUL, exist on Linux only: use a path";
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
        [first, rest @ ..] if *first != 0 && rest.contains(&0) => {
            invalid("a path must not contain a NUL")
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
    let Some(name) = address.as_abstract_namespace() else { return PathBuf::new() };
    std::ffi::OsString::from_vec([&[0], name].concat()).into()
}

/// Pipes work on every backend.
pub(crate) fn pipes_work_on<B: Backend>(_backend: &B) -> io::Result<()> {
    Ok(())
}

/// Binds the socket, or a new one if there is none. Returns the new socket, and the path that the
/// bind has created, to be removed on close.
pub(crate) fn bind_pipe(
    socket: Option<&Transport>,
    name: &Path,
) -> io::Result<(Option<Transport>, Option<BoundPath>)> {
    let address = match name.as_os_str().is_empty() && HAS_ABSTRACT_NAMES {
        true => SockAddr::unix(name)?, // The kernel chooses an abstract name.
        false => pipe_address(name)?,
    };
    let made = if socket.is_none() { Some(stream_socket(Domain::UNIX)?.into()) } else { None };
    if let Some(socket) = made.as_ref().or(socket) {
        socket.bind(&address).map_err(bind_error)?;
    }
    Ok((made, BoundPath::of(name)))
}

/// The state of a connect after the call.
pub(crate) enum Connecting {
    /// The connect has completed or failed.
    Known(io::Result<()>),
    /// The connect is in progress: the socket becomes writable at its end.
    UnderWay,
}

/// Connects the socket, or a new one if there is none. After a failure it can be called again.
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

/// True if the pipe is bound to a name.
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

/// A path that `bind` has created. Dropping it removes the path, unless another file has replaced
/// the socket, or this is the copy of a forked child: the path belongs to the parent.
#[derive(Debug)]
pub(crate) struct BoundPath {
    path: PathBuf,
    /// The process that bound the socket.
    process: u32,
    /// Device and inode of the socket's file.
    file: (u64, u64),
}

impl BoundPath {
    /// The path of a socket after its bind; `None` if the name is abstract.
    fn of(name: &Path) -> Option<BoundPath> {
        let file = file_at(name)?;
        Some(BoundPath { path: name.into(), process: std::process::id(), file })
    }
}

impl Drop for BoundPath {
    fn drop(&mut self) {
        if self.process == std::process::id() && file_at(&self.path) == Some(self.file) {
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

/// Adds read or write permission for all users to the socket at `path`.
///
/// A process with write access to the directory may have replaced the socket, for example by a
/// symbolic link to a private file. Only a socket is changed, and links are not followed.
pub(crate) fn set_permissions(
    _transport: &Transport,
    path: &Path,
    read: bool,
    write: bool,
) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.file_type().is_socket() {
        let why = "the file at the pipe's path is not a socket: it was replaced after the bind";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let before = metadata.permissions().mode();
    let mode = before | if read { 0o444 } else { 0 } | if write { 0o222 } else { 0 };
    if mode == before {
        return Ok(());
    }
    change_mode(path, (mode & 0o7777) as libc::mode_t, (metadata.dev(), metadata.ino()))
}

cfg_if::cfg_if! {
    if #[cfg(any(target_os = "linux", target_os = "android"))] {
        /// Changes the mode of the file at `path` if it is still `file`. `fchmodat` has no
        /// `AT_SYMLINK_NOFOLLOW` before Linux 6.6. A socket can be opened with `O_PATH` only, which
        /// `fchmod` refuses, so the change goes through its path in `/proc`.
        fn change_mode(path: &Path, mode: libc::mode_t, file: (u64, u64)) -> io::Result<()> {
            let options = libc::O_PATH | libc::O_NOFOLLOW;
            let opened = fs::File::options().read(true).custom_flags(options).open(path)?;
            let metadata = opened.metadata()?;
            if (metadata.dev(), metadata.ino()) != file {
                return Err(io::ErrorKind::NotFound.into());
            }
            let name = format!("/proc/self/fd/{}", opened.as_raw_fd());
            fs::set_permissions(name, fs::Permissions::from_mode(mode))
        }
    } else {
        /// Changes the mode of the file at `path`; does not follow a symbolic link.
        fn change_mode(path: &Path, mode: libc::mode_t, _file: (u64, u64)) -> io::Result<()> {
            let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
            let (directory, flags) = (libc::AT_FDCWD, libc::AT_SYMLINK_NOFOLLOW);
            // SAFETY: reads a NUL-terminated path, which `CString` guarantees.
            match unsafe { libc::fchmodat(directory, path.as_ptr(), mode, flags) } {
                -1 => Err(io::Error::last_os_error()),
                _ => Ok(()),
            }
        }
    }
}

/// Maps a missing directory (`ENOENT`) to `EACCES`, as libuv does: that is the error of Windows.
fn bind_error(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::ENOENT) => io::Error::from_raw_os_error(libc::EACCES),
        _ => error,
    }
}

/// The read and the write end of an anonymous pipe, both close-on-exec.
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

/// Two connected non-blocking sockets.
pub(crate) fn pipe_sockets() -> io::Result<(Transport, Transport)> {
    socket_pair().map(|(one, other)| (one.into(), other.into()))
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Between the check of the path and the change of its mode, another process may put something
    /// else there.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no Unix sockets with names")]
    fn a_file_that_took_the_place_of_a_socket_keeps_its_mode() {
        let folder = std::env::temp_dir().join(format!("uv-pipe-mode-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let [path, moved] = ["socket", "moved"].map(|name| folder.join(name));
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777;
        let set_mode =
            |path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let _socket = UnixListener::bind(&path).unwrap();
        let file = file_at(&path).unwrap();
        set_mode(&path, 0o600);
        change_mode(&path, 0o666, file).unwrap();
        assert_eq!(mode(&path), 0o666, "the socket itself");

        fs::rename(&path, &moved).unwrap();
        let _other = UnixListener::bind(&path).unwrap();
        set_mode(&path, 0o600);
        let replaced = change_mode(&path, 0o777, file).unwrap_err();
        assert_eq!((replaced.kind(), mode(&path)), (io::ErrorKind::NotFound, 0o600));

        fs::remove_file(&path).unwrap();
        symlink(&moved, &path).unwrap();
        let linked = change_mode(&path, 0o777, file).unwrap_err();
        assert_eq!((linked.kind(), mode(&moved)), (io::ErrorKind::NotFound, 0o666));
        fs::remove_dir_all(&folder).unwrap();
    }
}
