//! Pipes: connections within one machine, by name or between two ends that are at hand.

mod passing;

use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
#[cfg(windows)]
use std::sync::Arc;
#[cfg(windows)]
use std::sync::atomic::{AtomicBool, Ordering};

use bitflags::bitflags;
use poll_core::{Backend, Token};

use crate::callback::Once;
use crate::streams::{Connecting, Flags, Kind, Stream, StreamKey};
use crate::sys::{self, code};
use crate::{Loop, error};

pub use passing::PendingKind;

bitflags! {
    /// Who may connect to a [`Pipe`]: see [`Pipe::let_everybody`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PipeAccess: u8 {
        /// Everybody may read.
        const READABLE = 1;
        /// Everybody may write, which is what it takes to connect on most systems.
        const WRITABLE = 2;
    }
}

/// How an end of a [pair](pipe_pair) behaves that is used without a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PipeEnd {
    /// Its calls wait.
    Blocking,
    /// Its calls say `WouldBlock` instead of waiting.
    NonBlocking,
}

/// A local connection, or a listener for them, or one end of a pipe. A [`Stream`].
///
/// On Unix a name is a path, where a socket appears and is removed when the handle is closed;
/// on Linux also an abstract name, which begins with a NUL and is no file. Names are used whole
/// or not at all: what is too long is an error.
///
/// [Handles](Pipe::write_with_handles) can go with bytes, to another process say.
///
#[cfg_attr(unix, doc = "```")]
#[cfg_attr(not(unix), doc = "```ignore")]
/// use uv_core::{Handle, Loop, Pipe, RunMode, Stream};
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
pub struct Pipe(pub(crate) Token);

/// Tells who waits on another thread that nobody wants it any more.
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

    fn from_stream_key(key: Token) -> Pipe {
        Pipe(key)
    }

    /// A pipe listens at its name, and has none by itself.
    fn prepare_listen<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        if slot.passing.is_some() {
            let why = "a pipe that passes handles is a connection: it cannot listen";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        match slot.socket.as_ref().map(sys::can_listen).transpose()? {
            Some(true) => Ok(()),
            _ => {
                let why = "a pipe that listens needs a name: bind it first";
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
        }
    }
}

impl Stream for Pipe {}

impl Pipe {
    /// A handle that is not connected.
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> Pipe {
        Pipe(lp.new_stream(Kind::Pipe, None))
    }

    /// Two handles that are connected to each other, both ways.
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
    pub fn pair<B: Backend>(lp: &mut Loop<B>) -> io::Result<(Pipe, Pipe)> {
        sys::pipes_work_on(&lp.backend)?;
        let (one, other) = sys::pipe_sockets()?;
        let mut open = |socket| Pipe(lp.new_stream(Kind::Pipe, Some(socket)));
        Ok((open(one), open(other)))
    }

    /// Two handles: what is written to the second is read from the first.
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
    pub fn one_way<B: Backend>(lp: &mut Loop<B>) -> io::Result<(Pipe, Pipe)> {
        sys::pipes_work_on(&lp.backend)?;
        let (reader, writer) = sys::plain_pipe([false; 2])?;
        let (reader, writer) = (sys::adopt(reader)?, sys::adopt(writer)?);
        let mut open = |adopted| {
            let pipe = Pipe::new(lp);
            pipe.take(lp, adopted).map(|()| pipe)
        };
        Ok((open(reader)?, open(writer)?))
    }

    /// Takes over a descriptor that exists: a Unix domain socket, an end of a pipe, a FIFO or a
    /// character device. It is made non-blocking. How it was opened says whether it is
    /// [readable](Stream::is_readable) and [writable](Stream::is_writable).
    ///
    /// The standard streams, descriptors 0 to 2, stay open when the handle is closed.
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
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, or the descriptor
    /// is a file or a directory, or no socket though it is to pass handles; `ResourceBusy` if the handle has one. The descriptor is
    /// closed then.
    pub fn open<B: Backend>(
        self,
        lp: &mut Loop<B>,
        pipe: impl Into<sys::OwnedPipe>,
    ) -> io::Result<()> {
        if lp.streams.open(self.0)?.socket.is_some() {
            let why = "the handle has a descriptor already";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        sys::pipes_work_on(&lp.backend)?;
        let adopted = sys::adopt(pipe.into())?;
        self.take(lp, adopted)
    }

    fn take<B: Backend>(self, lp: &mut Loop<B>, adopted: sys::Adopted) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        if slot.passing.is_some() && !adopted.transport.passes_handles() {
            return Err(passing::no_socket());
        }
        if slot.passing.is_some() {
            adopted.transport.pass_handles();
        }
        slot.flags.set(Flags::READABLE, adopted.readable);
        slot.flags.set(Flags::WRITABLE, adopted.writable);
        slot.socket = Some(adopted.transport);
        Ok(())
    }

    /// Binds to a name, at which others can connect once it [listens](Stream::listen).
    ///
    /// A path must not exist. It is removed when the handle is closed, unless something else
    /// is there by then.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing or bound, or the
    /// name is empty, too long or a path with a NUL in it; `AddrInUse` if something is there,
    /// `PermissionDenied` also if there is no such directory, `Unsupported` for an abstract
    /// name where there are none, and the kernel's own.
    pub fn bind<B: Backend>(self, lp: &mut Loop<B>, name: impl AsRef<Path>) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        sys::pipes_work_on(&lp.backend)?;
        let (made, path) = sys::bind_pipe(slot.socket.as_ref(), name.as_ref())?;
        if made.is_some() {
            slot.socket = made;
        }
        if path.is_some()
            && let Some(errands) = lp.streams.errands(self.0)
        {
            errands.path = path;
        }
        Ok(())
    }

    /// Connects to who listens at a name. How that went is always told by the callback; writes
    /// may be queued meanwhile.
    ///
    /// If too many wait at that name already, Unix does not wait but says `WouldBlock`.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing or the name cannot
    /// be one, as for [`bind`](Pipe::bind), `AlreadyExists` if it is connecting, `EISCONN` if
    /// it is connected.
    pub fn connect<B: Backend>(
        self,
        lp: &mut Loop<B>,
        name: impl AsRef<Path>,
        callback: impl FnOnce(&mut Loop<B>, Pipe, io::Result<()>) + 'static,
    ) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        if slot.flags.contains(Flags::CONNECTING) {
            return Err(error::already("the stream is connecting"));
        }
        if slot.flags.intersects(Flags::READABLE | Flags::WRITABLE) {
            return Err(io::Error::from_raw_os_error(code::EISCONN));
        }
        sys::pipes_work_on(&lp.backend)?;
        let told = move |lp: &mut Loop<B>, (key, result)| callback(lp, Pipe(key), result);
        let connecting = match sys::connect_pipe(&mut slot.socket, name.as_ref())? {
            sys::Connecting::Known(result) => Connecting::Known(result),
            sys::Connecting::UnderWay => Connecting::UnderWay,
            #[cfg(windows)]
            sys::Connecting::Busy(wait) => {
                let given_up = GivenUp::default();
                let seen = Arc::clone(&given_up.0);
                if let Some(errands) = lp.streams.errands(self.0) {
                    errands.waits_for_instance = Some(given_up);
                }
                lp.queue_work(
                    move || wait.wait(&seen),
                    move |lp, waited| lp.pipe_opened(self.0, waited),
                )?;
                Connecting::UnderWay
            }
        };
        lp.begin_connect(self.0, connecting, Once::new(told))
    }

    /// How many clients a listener on Windows can have that are not accepted yet, 4 unless said
    /// otherwise; counts from the next [`listen`](Stream::listen) on. Elsewhere the backlog says
    /// that, and this does nothing.
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
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, or for none.
    pub fn set_pending_instances<B: Backend>(
        self,
        lp: &mut Loop<B>,
        instances: usize,
    ) -> io::Result<()> {
        lp.streams.open(self.0)?;
        let Some(instances) = NonZeroUsize::new(instances) else {
            let why = "a listener without an instance cannot be connected to";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        #[cfg(windows)]
        if let Some(errands) = lp.streams.errands(self.0) {
            errands.instances = Some(instances);
        }
        #[cfg(not(windows))]
        let _ = instances;
        Ok(())
    }

    /// Lets every user of the machine connect to a pipe that is [bound](Pipe::bind) to a path,
    /// besides those who may already.
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
    /// server.let_everybody(&mut lp, PipeAccess::READABLE | PipeAccess::WRITABLE)?;
    /// assert_eq!(std::fs::metadata(&name)?.permissions().mode() & 0o666, 0o666);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, for no access at
    /// all, or if its name is no path; `NotConnected` if it has no name, and the kernel's.
    pub fn let_everybody<B: Backend>(self, lp: &mut Loop<B>, access: PipeAccess) -> io::Result<()> {
        lp.streams.open(self.0)?;
        if access.is_empty() {
            let why = "say what everybody may do: read, write, or both";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let name = self.local_name(lp)?;
        let is_path = name.as_os_str().as_encoded_bytes().first().is_some_and(|byte| *byte != 0);
        if !is_path {
            let why = "the pipe has no path, so that there is no file to change";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let (read, write) =
            (access.contains(PipeAccess::READABLE), access.contains(PipeAccess::WRITABLE));
        sys::let_everybody(self.socket(lp)?, &name, read, write)
    }

    /// The name that it is bound to, empty if it has none.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `NotConnected` without a socket, and the kernel's.
    pub fn local_name<B: Backend>(self, lp: &Loop<B>) -> io::Result<PathBuf> {
        sys::local_name(self.socket(lp)?)
    }

    /// The name that its peer is bound to, empty if it has none: that of the listener, seen
    /// from the side that has connected.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use uv_core::{Handle, Loop, Pipe, RunMode, Stream};
    ///
    /// let name = std::env::temp_dir().join(format!("uv-core-name-{}.sock", std::process::id()));
    /// let mut lp = Loop::with_default_backend()?;
    /// let (server, client) = (Pipe::new(&mut lp), Pipe::new(&mut lp));
    /// server.bind(&mut lp, &name)?;
    /// assert_eq!(server.local_name(&lp)?, name);
    ///
    /// server.listen_quietly(&mut lp, 1)?;
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
    pub fn peer_name<B: Backend>(self, lp: &Loop<B>) -> io::Result<PathBuf> {
        sys::peer_name(self.socket(lp)?)
    }

    fn socket<B: Backend>(self, lp: &Loop<B>) -> io::Result<&sys::Transport> {
        let slot = lp.streams.slots.get(self.0).ok_or_else(error::stale)?;
        slot.socket.as_ref().ok_or_else(error::not_connected)
    }
}

/// The two ends of a pipe, for those who use them without a loop, or hand them to another
/// process: what is written to the second is read from the first. Neither is inherited.
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
pub fn pipe_pair(reader: PipeEnd, writer: PipeEnd) -> io::Result<(sys::OwnedPipe, sys::OwnedPipe)> {
    sys::plain_pipe([reader, writer].map(|end| end == PipeEnd::Blocking))
}

/// Two stream sockets that are connected to each other, for those who use them without a loop,
/// or hand them to another process. Neither is inherited.
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
pub fn socket_pair(
    one: PipeEnd,
    other: PipeEnd,
) -> io::Result<(sys::OwnedSocket, sys::OwnedSocket)> {
    let (first, second) = sys::socket_pair()?;
    first.set_nonblocking(one == PipeEnd::NonBlocking)?;
    second.set_nonblocking(other == PipeEnd::NonBlocking)?;
    Ok((first.into(), second.into()))
}
