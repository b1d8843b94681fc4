//! The descriptors of a child process.

use std::io;
#[cfg(unix)]
use std::os::fd::BorrowedFd;
#[cfg(windows)]
use std::os::windows::io::BorrowedHandle;

use bitflags::bitflags;
use poll_core::Backend;

use crate::handles::{AnyHandle, Pipe};
use crate::streams::{self, Flags};
use crate::sys::{self, ChildEnd};
use crate::{Loop, Stream, error};

bitflags! {
    /// The directions of a pipe that is created for a child, from the child's point of view.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PipeFlags: u8 {
        /// The child reads from it.
        const READABLE = 1;
        /// The child writes to it.
        const WRITABLE = 2;
        /// The child's end is non-blocking; on Windows, overlapped. Only for programs that expect
        /// it.
        const NON_BLOCKING = 4;
    }
}

/// A descriptor of a child.
///
/// ```
/// use uv_core::{Command, Stdio};
///
/// // No input; the output of this process.
/// let command = Command::new("rustc").stdio([
///     Stdio::Ignore,
///     Stdio::Standard(1),
///     Stdio::Standard(2),
/// ]);
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[doc(alias = "uv_stdio_container_t")]
pub enum Stdio<'a> {
    /// The null device for descriptors 0 to 2; others are closed.
    #[doc(alias = "UV_IGNORE")]
    Ignore,
    /// One of this process's standard streams: 0, 1 or 2.
    #[doc(alias = "UV_INHERIT_FD")]
    Standard(u8),
    /// A descriptor of this process. As descriptors 0 to 2 of the child it is made blocking, also
    /// in this process, because most programs expect blocking standard streams.
    #[doc(alias = "UV_INHERIT_FD")]
    #[cfg(unix)]
    Descriptor(BorrowedFd<'a>),
    /// A handle of this process.
    #[cfg(windows)]
    Handle(BorrowedHandle<'a>),
    /// The connection of a stream: see [`Stdio::stream`].
    #[doc(alias = "UV_INHERIT_STREAM")]
    Stream(AnyHandle),
    /// The other end of a new pipe. The given handle must be unconnected; it is connected when
    /// the child runs.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use uv_core::{Command, Handle, Loop, Pipe, PipeFlags, Process, RunMode, Stdio, Stream};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let output = Pipe::new(&mut lp);
    /// let command = Command::new("echo")
    ///     .arg("hello")
    ///     .stdio([Stdio::Ignore, Stdio::Pipe(output, PipeFlags::WRITABLE)]);
    /// Process::spawn(&mut lp, &command, |lp, process, _| process.close(lp).unwrap())?;
    /// output.read_start(&mut lp, |lp, output, bytes| match bytes.unwrap() {
    ///     [] => output.close(lp).unwrap(),
    ///     bytes => assert_eq!(bytes, b"hello\n"),
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "UV_CREATE_PIPE")]
    Pipe(Pipe, PipeFlags),
}

impl Stdio<'_> {
    /// The connection of a stream of the same loop, shared by both processes.
    ///
    /// As one of the child's first three descriptors a connection is made blocking, because programs
    /// expect that; the loop's own calls still do not block. On Linux the child gets another open
    /// file description of a pipe, which blocks. Elsewhere a pipe stays non-blocking for the child
    /// too, and so does a listener.
    ///
    /// A child is refused with `ResourceBusy` while the loop has bytes of the stream that it has
    /// received and not reported: `read_start` reports them.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use uv_core::{Command, Handle, Loop, Process, RunMode, Stdio, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (ours, theirs) = Tcp::pair(&mut lp)?;
    /// let command = Command::new("echo").arg("hello").stdio([Stdio::Ignore, Stdio::stream(theirs)]);
    /// Process::spawn(&mut lp, &command, |lp, process, _| process.close(lp).unwrap())?;
    /// theirs.close(&mut lp)?; // The child has a duplicate.
    /// ours.read_start(&mut lp, |lp, ours, bytes| match bytes.unwrap() {
    ///     [] => ours.close(lp).unwrap(),
    ///     bytes => assert_eq!(bytes, b"hello\n"),
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn stream(stream: impl Stream) -> Stdio<'static> {
        Stdio::Stream(stream.into())
    }
}

/// The descriptors of a child, and the pipes that were created for it.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) ends: Vec<ChildEnd>,
    created: Vec<CreatedPipe>,
    /// Descriptors that were opened for the child, until it runs.
    opened: Vec<sys::OwnedPipe>,
}

/// A pipe that was created for a child.
#[derive(Debug)]
struct CreatedPipe {
    pipe: Pipe,
    flags: PipeFlags,
    ours: sys::Transport,
    /// Kept open until the child has inherited it.
    _theirs: sys::OwnedPipe,
}

/// Prepares the descriptors of a child, at least its three standard streams.
pub(super) fn prepare<B: Backend>(lp: &mut Loop<B>, stdio: &[Stdio<'_>]) -> io::Result<Given> {
    let mut given = Given::default();
    for one in stdio {
        let end = child_end(lp, one, &mut given)?;
        given.ends.push(end);
    }
    while given.ends.len() < 3 {
        given.ends.push(ChildEnd::Ignore);
    }
    Ok(given)
}

fn child_end<B: Backend>(
    lp: &mut Loop<B>,
    stdio: &Stdio<'_>,
    given: &mut Given,
) -> io::Result<ChildEnd> {
    match *stdio {
        Stdio::Ignore => Ok(ChildEnd::Ignore),
        Stdio::Standard(number @ 0..=2) => Ok(ChildEnd::standard(number)),
        Stdio::Standard(number) => {
            let why = format!("{number} is not a standard stream: use 0, 1 or 2");
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
        #[cfg(unix)]
        Stdio::Descriptor(fd) => Ok(ChildEnd::of_descriptor(fd)),
        #[cfg(windows)]
        Stdio::Handle(handle) => Ok(ChildEnd::of_handle(handle)),
        Stdio::Stream(stream @ (AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_))) => {
            streams::handover::hand_over(lp, stream.key())?;
            let slot = lp.streams.open(stream.key())?;
            let listens = slot.flags.contains(Flags::LISTENING);
            let socket = slot.socket.as_ref().ok_or_else(error::no_socket)?;
            let (end, opened) = ChildEnd::of_stream(socket, listens)?;
            given.opened.extend(opened);
            Ok(end)
        }
        Stdio::Stream(handle) => {
            let why = format!("a {} is not a stream, so a child cannot inherit it", handle.kind());
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
        Stdio::Pipe(pipe, flags) => {
            if !flags.intersects(PipeFlags::READABLE | PipeFlags::WRITABLE) {
                let why = "the pipe has no direction: set READABLE, WRITABLE or both";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            let is_open = lp.streams.open(pipe.0)?.socket.is_some();
            if is_open || given.created.iter().any(|created| created.pipe == pipe) {
                return Err(error::busy());
            }
            let (ours, theirs) = sys::pipe_for_child(flags)?;
            let end = ChildEnd::of_made(&theirs);
            given.created.push(CreatedPipe { pipe, flags, ours, _theirs: theirs });
            Ok(end)
        }
    }
}

/// Connects the pipes that were created for a child, once it runs.
pub(super) fn open_created_pipes<B: Backend>(lp: &mut Loop<B>, given: Given, child: u32) {
    for CreatedPipe { pipe, flags, ours, .. } in given.created {
        let Some(slot) = lp.streams.slots.get_mut(pipe.0) else { continue };
        slot.flags.set(Flags::READABLE, flags.contains(PipeFlags::WRITABLE));
        slot.flags.set(Flags::WRITABLE, flags.contains(PipeFlags::READABLE));
        ours.set_peer(child);
        slot.socket = Some(ours);
    }
}
