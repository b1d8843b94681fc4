//! Pipes: Unix domain sockets, named pipes of Windows, anonymous pipes.

mod handle_passing;
mod short_forms;
#[cfg(unix)]
mod standard;

use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
#[cfg(windows)]
use std::sync::Arc;
#[cfg(windows)]
use std::sync::atomic::{AtomicBool, Ordering};

use bitflags::bitflags;
use poll_core::{Backend, Token};

use crate::storage::InlineFnOnce;
use crate::streams::{
    self, Connecting, Flags, Kind, Listener, PrepareListen, Stream, StreamKey, output,
};
use crate::sys;
use crate::{Loop, error};

pub use handle_passing::PendingKind;

bitflags! {
    /// The access that [`Pipe::set_permissions`] grants to all users.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PipeAccess: u8 {
        /// All users may read.
        const READABLE = 1;
        /// All users may write, which most systems require to connect.
        const WRITABLE = 2;
    }
}

/// The blocking mode of an end of a [pair](pipe_pair) that is used without a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PipeEnd {
    /// Calls block.
    Blocking,
    /// Calls that would block fail with `WouldBlock`.
    NonBlocking,
}

/// A local connection or listener, or one end of an anonymous pipe: a [`Stream`].
///
/// On Unix a name is the path of a socket, which is removed when the handle is closed; on Linux
/// also an abstract name, which begins with a NUL and is not a file. Names are never truncated: a
/// name that is too long is an error.
///
/// Bytes can carry [handles](Pipe::write_with_handles) to another process.
///
#[cfg_attr(unix, doc = "```")]
#[cfg_attr(not(unix), doc = "```ignore")]
/// use uv_core::{Handle, Listener, Loop, Pipe, RunMode, Stream};
///
/// let name = std::env::temp_dir().join(format!("uv-core-{}.sock", std::process::id()));
/// let mut lp = Loop::with_default_backend()?;
/// let server = Pipe::new(&mut lp);
/// server.bind(&mut lp, &name)?;
/// server.listen(&mut lp, 128, |lp, server, _| {
///     let peer = server.accept(lp).unwrap();
///     peer.write(lp, "hello", |lp, peer, _, _| peer.close(lp).unwrap()).unwrap();
///     server.close(lp).unwrap();
/// })?;
///
/// let client = Pipe::new(&mut lp);
/// client.connect(&mut lp, &name, |lp, client, result| {
///     result.unwrap();
///     let read = client.read_start(lp, |lp, client, bytes| {
///         println!("{:?}", String::from_utf8_lossy(bytes.unwrap()));
///         client.close(lp).unwrap();
///     });
///     read.unwrap();
/// })?;
/// lp.run(RunMode::Default)?;
/// assert!(!name.exists());
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "uv_pipe_t")]
pub struct Pipe(pub(crate) Token);

/// A flag that is set on drop: when the handle is closed, the thread that waits for a pipe instance
/// stops.
#[cfg(windows)]
#[derive(Debug, Default)]
pub(crate) struct GivenUp(Arc<AtomicBool>);

#[cfg(windows)]
impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl StreamKey for Pipe {
    fn stream_key(self) -> Token {
        self.0
    }

    fn from_stream_key<B: Backend>(_lp: &Loop<B>, key: Token) -> Pipe {
        Pipe(key)
    }
}

impl PrepareListen for Pipe {
    /// Checks that the pipe is bound to a name.
    fn prepare_listen<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        if slot.passing.is_some() {
            let why = "a pipe that passes handles cannot listen";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        match slot.socket.as_ref().map(sys::can_listen).transpose()? {
            Some(true) => Ok(()),
            _ => {
                let why = "the pipe has no name to listen at: bind it first";
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
        }
    }
}

impl Stream for Pipe {}
impl Listener for Pipe {}

impl Pipe {
    /// A handle that is not connected.
    #[doc(alias = "uv_pipe_init")]
    #[must_use = "the handle exists until it is closed"]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> Pipe {
        Pipe(streams::new_stream(lp, Kind::Pipe, None))
    }

    /// Two handles that are connected to each other, in both directions.
    ///
    /// ```
    /// use uv_core::{Loop, Pipe, Stream};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, other) = Pipe::pair(&mut lp)?;
    /// assert!(one.is_readable(&lp) && other.is_writable(&lp));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The kernel's.
    #[doc(alias = "uv_socketpair")]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn pair<B: Backend>(lp: &mut Loop<B>) -> io::Result<(Pipe, Pipe)> {
        sys::pipes_work_on(&lp.backend)?;
        let (one, other) = sys::pipe_sockets()?;
        let one = Pipe(streams::new_stream(lp, Kind::Pipe, Some(one)));
        Ok((one, Pipe(streams::new_stream(lp, Kind::Pipe, Some(other)))))
    }

    /// Two handles of an anonymous pipe: the first reads what the second writes.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, Pipe, RunMode, Stream};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (reader, writer) = Pipe::one_way(&mut lp)?;
    /// assert!(!reader.is_writable(&lp) && !writer.is_readable(&lp));
    /// writer.write(&mut lp, "hello", |lp, writer, _, _| writer.close(lp).unwrap())?;
    /// reader.read(&mut lp, vec![0; 16], |lp, reader, count, buffer| {
    ///     assert_eq!(&buffer[..count.unwrap()], b"hello");
    ///     reader.close(lp).unwrap();
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The kernel's.
    #[doc(alias = "uv_pipe")]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn one_way<B: Backend>(lp: &mut Loop<B>) -> io::Result<(Pipe, Pipe)> {
        sys::pipes_work_on(&lp.backend)?;
        let (reader, writer) = sys::plain_pipe([false; 2])?;
        let (reader, writer) = (sys::adopt(reader)?, sys::adopt(writer)?);
        let pipes = (Pipe::new(lp), Pipe::new(lp));
        pipes.0.take(lp, reader).and_then(|()| pipes.1.take(lp, writer))?;
        Ok(pipes)
    }

    /// Takes over an existing descriptor: a Unix domain socket, an end of a pipe, a FIFO or a
    /// character device. It is made non-blocking. Its access mode determines whether the handle
    /// is [readable](Stream::is_readable) and [writable](Stream::is_writable).
    ///
    /// The standard streams, descriptors 0 to 2, stay open when the handle is closed.
    ///
    /// Whether a descriptor blocks is a property of the open file behind it, which other processes
    /// may share: a shell shares standard input with its programs. So on Linux a blocking end of a
    /// pipe is reopened through `/proc/self/fd` under the same number: only this descriptor
    /// becomes non-blocking. Sockets, character devices, and pipes on other systems or without
    /// `/proc`, become non-blocking for all processes that share them, permanently. For terminals
    /// use [`Tty`](crate::Tty).
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use uv_core::{Loop, Pipe, Stream};
    ///
    /// let (reader, _writer) = std::io::pipe()?;
    /// let mut lp = Loop::with_default_backend()?;
    /// let pipe = Pipe::new(&mut lp);
    /// pipe.open(&mut lp, reader)?;
    /// assert!(pipe.is_readable(&lp) && !pipe.is_writable(&lp));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key; `InvalidInput` if the handle is closing, if the descriptor is a
    /// file or a directory, or if the handle passes handles and the descriptor is not a socket;
    /// `EBUSY` if the handle has a descriptor. The given descriptor is closed then.
    #[doc(alias = "uv_pipe_open")]
    pub fn open<B: Backend>(
        self,
        lp: &mut Loop<B>,
        pipe: impl Into<sys::OwnedPipe>,
    ) -> io::Result<()> {
        if lp.streams.open(self.0)?.socket.is_some() {
            return Err(error::busy());
        }
        sys::pipes_work_on(&lp.backend)?;
        let adopted = sys::adopt(pipe.into())?;
        self.take(lp, adopted)
    }

    fn take<B: Backend>(self, lp: &mut Loop<B>, adopted: sys::Adopted) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        if slot.passing.is_some() && !adopted.transport.passes_handles() {
            return Err(handle_passing::no_socket());
        }
        if slot.passing.is_some() {
            adopted.transport.pass_handles();
        }
        slot.flags.set(Flags::READABLE, adopted.readable);
        slot.flags.set(Flags::WRITABLE, adopted.writable);
        slot.socket = Some(adopted.transport);
        Ok(())
    }

    /// Binds to a name, to which peers can connect once the handle [listens](Listener::listen).
    ///
    /// The path must not exist. It is removed when the handle is closed, unless another file has
    /// replaced it. Only the process that has bound the path removes it: a forked child that closes
    /// its copy of the handle leaves the path to its parent.
    ///
    /// On Linux a name that begins with a NUL is abstract: it is not a file, and is free when the
    /// handle is closed. For an empty name the kernel chooses an abstract one, which
    /// [`local_name`](Pipe::local_name) returns.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key; `InvalidInput` if the handle is closing or bound, or the name
    /// is empty (except on Linux), too long, or a path that contains a NUL; `AddrInUse` if the
    /// name exists; `PermissionDenied` also if the directory does not exist; `Unsupported` for an
    /// abstract name on other systems; the kernel's errors.
    #[doc(alias = "uv_pipe_bind")]
    #[doc(alias = "uv_pipe_bind2")]
    pub fn bind<B: Backend>(self, lp: &mut Loop<B>, name: impl AsRef<Path>) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        sys::pipes_work_on(&lp.backend)?;
        let (made, path) = sys::bind_pipe(slot.socket.as_ref(), name.as_ref())?;
        if made.is_some() {
            slot.socket = made;
        }
        if path.is_some()
            && let Some(rare) = lp.streams.rare(self.0)
        {
            rare.path = path;
        }
        Ok(())
    }

    /// Connects to the listener at a name. The callback always gets the result; writes may be
    /// queued meanwhile.
    ///
    /// If the listener's backlog is full, Unix does not wait but fails with `WouldBlock`.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing or the name is invalid,
    /// as for [`bind`](Pipe::bind), `EALREADY` if it is connecting, `EISCONN` if it is connected.
    #[doc(alias = "uv_pipe_connect")]
    #[doc(alias = "uv_pipe_connect2")]
    pub fn connect<B: Backend>(
        self,
        lp: &mut Loop<B>,
        name: impl AsRef<Path>,
        callback: impl FnOnce(&mut Loop<B>, Pipe, io::Result<()>) + 'static,
    ) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        if slot.flags.contains(Flags::CONNECTING) {
            return Err(error::already());
        }
        if slot.flags.intersects(Flags::READABLE | Flags::WRITABLE) {
            return Err(error::is_connected());
        }
        sys::pipes_work_on(&lp.backend)?;
        let connected = move |lp: &mut Loop<B>, (key, result)| callback(lp, Pipe(key), result);
        let connecting = match sys::connect_pipe(&mut slot.socket, name.as_ref())? {
            sys::Connecting::Known(result) => Connecting::Known(result),
            sys::Connecting::UnderWay => Connecting::UnderWay,
            #[cfg(windows)]
            sys::Connecting::Busy(wait) => {
                let given_up = GivenUp::default();
                let seen = Arc::clone(&given_up.0);
                if let Some(rare) = lp.streams.rare(self.0) {
                    rare.waits_for_instance = Some(given_up);
                }
                lp.queue_work(
                    move || wait.wait(&seen),
                    move |lp, waited| streams::named_pipe::opened(lp, self.0, waited),
                )?;
                Connecting::UnderWay
            }
        };
        output::connect::begin(lp, self.0, connecting, InlineFnOnce::new(connected))
    }

    /// Sets the number of pipe instances that wait for clients on Windows, from the next
    /// [`listen`](Listener::listen) on. The default is 4. Does nothing on other systems, where the
    /// backlog limits pending clients.
    ///
    /// ```
    /// use uv_core::{Loop, Pipe};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let server = Pipe::new(&mut lp);
    /// server.set_pending_instances(&mut lp, 16)?;
    /// assert!(server.set_pending_instances(&mut lp, 0).is_err());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing or for 0.
    #[doc(alias = "uv_pipe_pending_instances")]
    pub fn set_pending_instances<B: Backend>(
        self,
        lp: &mut Loop<B>,
        instances: usize,
    ) -> io::Result<()> {
        lp.streams.open(self.0)?;
        let Some(instances) = NonZeroUsize::new(instances) else {
            let why = "a listener needs at least one pipe instance";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        #[cfg(windows)]
        if let Some(rare) = lp.streams.rare(self.0) {
            rare.instances = Some(instances);
        }
        #[cfg(not(windows))]
        let _ = instances;
        Ok(())
    }

    /// Grants all users of the machine access to a pipe that is [bound](Pipe::bind) to a path, in
    /// addition to the existing permissions.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use std::os::unix::fs::PermissionsExt;
    /// use uv_core::{Loop, Pipe, PipeAccess};
    ///
    /// let name = std::env::temp_dir().join(format!("uv-core-all-{}.sock", std::process::id()));
    /// let mut lp = Loop::with_default_backend()?;
    /// let server = Pipe::new(&mut lp);
    /// server.bind(&mut lp, &name)?;
    /// server.set_permissions(&mut lp, PipeAccess::READABLE | PipeAccess::WRITABLE)?;
    /// assert_eq!(std::fs::metadata(&name)?.permissions().mode() & 0o666, 0o666);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key; `InvalidInput` if the handle is closing, for empty `access`, or
    /// if its name is not a path or another file has replaced it; `EBADF` without a socket; the
    /// kernel's errors. A symbolic link at the path is never followed.
    #[doc(alias = "uv_pipe_chmod")]
    pub fn set_permissions<B: Backend>(
        self,
        lp: &mut Loop<B>,
        access: PipeAccess,
    ) -> io::Result<()> {
        lp.streams.open(self.0)?;
        if access.is_empty() {
            let why = "no access to grant: set READABLE, WRITABLE or both";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let name = self.local_name(lp)?;
        let is_path = name.as_os_str().as_encoded_bytes().first().is_some_and(|byte| *byte != 0);
        if !is_path {
            let why = "the pipe is not bound to a path, so it has no permissions";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let (read, write) =
            (access.contains(PipeAccess::READABLE), access.contains(PipeAccess::WRITABLE));
        sys::set_permissions(self.socket(lp)?, &name, read, write)
    }

    /// The name that the pipe is bound to; empty if it is unbound.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `EBADF` without a socket, and the kernel's errors.
    #[doc(alias = "uv_pipe_getsockname")]
    pub fn local_name<B: Backend>(self, lp: &Loop<B>) -> io::Result<PathBuf> {
        sys::local_name(self.socket(lp)?)
    }

    /// The name that the peer is bound to; empty if it is unbound. For a client it is the name of
    /// the listener.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use uv_core::{Handle, Listener, Loop, Pipe, RunMode, Stream};
    ///
    /// let name = std::env::temp_dir().join(format!("uv-core-name-{}.sock", std::process::id()));
    /// let mut lp = Loop::with_default_backend()?;
    /// let (server, client) = (Pipe::new(&mut lp), Pipe::new(&mut lp));
    /// server.bind(&mut lp, &name)?;
    /// assert_eq!(server.local_name(&lp)?, name);
    ///
    /// server.listen_without_callback(&mut lp, 1)?;
    /// client.connect(&mut lp, &name.clone(), move |lp, client, result| {
    ///     result.unwrap();
    ///     assert_eq!(client.peer_name(lp).unwrap(), name);
    ///     assert_eq!(client.local_name(lp).unwrap().as_os_str(), "");
    ///     client.close(lp).and(server.close(lp)).unwrap();
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`local_name`](Pipe::local_name), and `NotConnected` without a peer.
    #[doc(alias = "uv_pipe_getpeername")]
    pub fn peer_name<B: Backend>(self, lp: &Loop<B>) -> io::Result<PathBuf> {
        sys::peer_name(self.socket(lp)?)
    }

    fn socket<B: Backend>(self, lp: &Loop<B>) -> io::Result<&sys::Transport> {
        let slot = lp.streams.slots.get(self.0).ok_or_else(error::stale)?;
        slot.socket.as_ref().ok_or_else(error::no_socket)
    }
}

/// The two ends of an anonymous pipe, for use without a loop or by another process: the first
/// reads what the second writes. Neither is inherited by children.
///
/// ```
/// use uv_core::{PipeEnd, pipe_pair};
///
/// let (reader, writer) = pipe_pair(PipeEnd::NonBlocking, PipeEnd::Blocking)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The kernel's.
#[doc(alias = "uv_pipe")]
pub fn pipe_pair(reader: PipeEnd, writer: PipeEnd) -> io::Result<(sys::OwnedPipe, sys::OwnedPipe)> {
    sys::plain_pipe([reader, writer].map(|end| end == PipeEnd::Blocking))
}

/// Two stream sockets that are connected to each other, for use without a loop or by another
/// process. Neither is inherited by children.
///
/// ```
/// use uv_core::{PipeEnd, socket_pair};
///
/// let (one, other) = socket_pair(PipeEnd::NonBlocking, PipeEnd::Blocking)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// The kernel's.
#[doc(alias = "uv_socketpair")]
pub fn socket_pair(
    one: PipeEnd,
    other: PipeEnd,
) -> io::Result<(sys::OwnedSocket, sys::OwnedSocket)> {
    let (first, second) = sys::socket_pair()?;
    first.set_nonblocking(one == PipeEnd::NonBlocking)?;
    second.set_nonblocking(other == PipeEnd::NonBlocking)?;
    Ok((first.into(), second.into()))
}
