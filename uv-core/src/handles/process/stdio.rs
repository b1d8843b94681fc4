//! What a child's descriptors are.

use std::io;
#[cfg(unix)]
use std::os::fd::BorrowedFd;
#[cfg(windows)]
use std::os::windows::io::BorrowedHandle;

use bitflags::bitflags;
use poll_core::Backend;

use crate::handles::{AnyHandle, Pipe};
use crate::streams::Flags;
use crate::sys::{self, ChildEnd};
use crate::{Loop, Stream, error};

bitflags! {
    /// Which way a pipe goes that is made for a child, as the child sees it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PipeFlags: u8 {
        /// The child reads from it.
        const READABLE = 1;
        /// The child writes to it.
        const WRITABLE = 2;
        /// The child's end does not block; on Windows, it is opened for overlapped use. Other
        /// programs than those that expect it make nothing of that.
        const NON_BLOCKING = 4;
    }
}

/// What one of a child's descriptors is.
///
/// ```
/// use uv_core::{Command, Stdio};
///
/// // Reads nothing, and writes where this process does.
/// let command = Command::new("rustc").stdio([
///     Stdio::Ignore,
///     Stdio::Standard(1),
///     Stdio::Standard(2),
/// ]);
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Stdio<'a> {
    /// Nothing: the null device for the first three, closed for others.
    Ignore,
    /// One of this process's own standard streams: 0, 1 or 2.
    Standard(u8),
    /// A descriptor of this process. As the first three are meant for programs that know
    /// nothing of it, they are made to block, here too.
    #[cfg(unix)]
    Descriptor(BorrowedFd<'a>),
    /// A handle of this process.
    #[cfg(windows)]
    Handle(BorrowedHandle<'a>),
    /// The connection of a stream, see [`Stdio::stream`].
    Stream(AnyHandle),
    /// The other end of a pipe that is made for it. The handle is a new one, that is not
    /// connected; it is, once the child runs.
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
    Pipe(Pipe, PipeFlags),
}

impl Stdio<'_> {
    /// The connection of a stream of the same loop, which keeps it too.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use uv_core::{Command, Handle, Loop, Process, RunMode, Stdio, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (ours, theirs) = Tcp::pair(&mut lp)?;
    /// let command = Command::new("echo").arg("hello").stdio([Stdio::Ignore, Stdio::stream(theirs)]);
    /// Process::spawn(&mut lp, &command, |lp, process, _| process.close(lp).unwrap())?;
    /// theirs.close(&mut lp)?; // The child has it, too.
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

/// What a child is given, and what was made for it.
#[derive(Debug, Default)]
pub(super) struct Given {
    pub(super) ends: Vec<ChildEnd>,
    made: Vec<Made>,
}

/// A pipe that was made for a child.
#[derive(Debug)]
struct Made {
    pipe: Pipe,
    flags: PipeFlags,
    ours: sys::Transport,
    /// Kept open until the child has it.
    _theirs: sys::OwnedPipe,
}

impl<B: Backend> Loop<B> {
    /// What the child gets, at least its standard streams.
    pub(super) fn prepare_stdio(&mut self, stdio: &[Stdio<'_>]) -> io::Result<Given> {
        let mut given = Given::default();
        for one in stdio {
            let end = self.child_end(one, &mut given.made)?;
            given.ends.push(end);
        }
        while given.ends.len() < 3 {
            given.ends.push(ChildEnd::Ignore);
        }
        Ok(given)
    }

    fn child_end(&mut self, stdio: &Stdio<'_>, made: &mut Vec<Made>) -> io::Result<ChildEnd> {
        match *stdio {
            Stdio::Ignore => Ok(ChildEnd::Ignore),
            Stdio::Standard(number @ 0..=2) => Ok(ChildEnd::standard(number)),
            Stdio::Standard(number) => {
                let why = format!("there is no standard stream {number}: they are 0, 1 and 2");
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
            #[cfg(unix)]
            Stdio::Descriptor(fd) => Ok(ChildEnd::of_descriptor(fd)),
            #[cfg(windows)]
            Stdio::Handle(handle) => Ok(ChildEnd::of_handle(handle)),
            Stdio::Stream(
                stream @ (AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_)),
            ) => {
                let slot = self.streams.open(stream.key())?;
                ChildEnd::of_stream(slot.socket.as_ref().ok_or_else(error::not_connected)?)
            }
            Stdio::Stream(handle) => {
                let why = format!("a {} is no stream that a child could have", handle.kind());
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
            Stdio::Pipe(pipe, flags) => {
                if !flags.intersects(PipeFlags::READABLE | PipeFlags::WRITABLE) {
                    let why = "a child reads from a pipe, writes to it, or both: say which";
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
                }
                let is_taken = self.streams.open(pipe.0)?.socket.is_some();
                if is_taken || made.iter().any(|made| made.pipe == pipe) {
                    let why = "the pipe has another end already";
                    return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
                }
                let (ours, theirs) = sys::pipe_for_child(flags)?;
                let end = ChildEnd::of_made(&theirs);
                made.push(Made { pipe, flags, ours, _theirs: theirs });
                Ok(end)
            }
        }
    }

    /// The child runs: the pipes to it are connected.
    pub(super) fn open_made_pipes(&mut self, given: Given, child: u32) {
        for Made { pipe, flags, ours, .. } in given.made {
            let Some(slot) = self.streams.slots.get_mut(pipe.0) else { continue };
            slot.flags.set(Flags::READABLE, flags.contains(PipeFlags::WRITABLE));
            slot.flags.set(Flags::WRITABLE, flags.contains(PipeFlags::READABLE));
            ours.set_peer(child);
            slot.socket = Some(ours);
        }
    }
}
