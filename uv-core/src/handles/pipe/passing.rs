//! Handles that go over a pipe.

use std::io;

use poll_core::Backend;

use super::Pipe;
use crate::Loop;
use crate::buffers::IoBuf;
use crate::handles::{AnyHandle, Handle, Tcp, Udp};
use crate::streams::{Flags, Write, write_with_handles};
use crate::sys::{self, PassedKind};

/// What has come over a [`Pipe`] and waits to be taken.
///
#[cfg_attr(unix, doc = "```")]
#[cfg_attr(not(unix), doc = "```ignore")]
/// use std::net::UdpSocket;
/// use uv_core::{Handle, Loop, PendingKind, Pipe, RunMode, Stream, Udp, UdpBind};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (one, other) = Pipe::pair(&mut lp)?;
/// one.enable_passing(&mut lp)?;
/// other.enable_passing(&mut lp)?;
///
/// let udp = Udp::new(&mut lp);
/// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBind::empty())?;
/// one.try_write_with_handles(&mut lp, b"take it", &[udp.into()])?;
/// let address = udp.local_addr(&lp)?;
/// other.read_start(&mut lp, move |lp, other, bytes| {
///     assert_eq!(bytes.unwrap(), b"take it");
///     assert!(!other.has_lost_handles(lp).unwrap());
///     assert_eq!(other.pending_kind(lp), Some(PendingKind::Udp));
///     // Not for this loop: to use it by blocking, say.
///     let socket: UdpSocket = other.take_pending(lp).unwrap().into();
///     assert_eq!(socket.local_addr().unwrap(), address);
///     other.close(lp).unwrap();
/// })?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PendingKind {
    /// A TCP connection or listener.
    Tcp,
    /// A UDP socket.
    Udp,
    /// A local connection or listener, or an end of a pipe.
    Pipe,
    /// Something that there is no handle for: see [`Pipe::take_pending`].
    Other,
}

/// Pipes pass handles once both sides have said so.
impl Pipe {
    /// Makes the pipe pass handles: it can send them along with bytes, and those that come are
    /// kept until they are taken. Said of a new handle or of a connection, on both sides; a
    /// listener does not, but what it accepts may.
    ///
    /// On Windows it is said before anything is written, as bytes go in frames from then on:
    /// those of libuv, as far as that has them, which is for bytes and TCP. Handles are made for
    /// the other process before they are sent, so pass them between processes that trust each
    /// other: one that sends something else makes the other use, and close, what it names.
    /// A child gets such a pipe with
    /// [`NON_BLOCKING`](crate::PipeFlags::NON_BLOCKING).
    ///
    /// ```
    /// use uv_core::{AnyHandle, Handle, Loop, Pipe, RunMode, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, other) = Pipe::pair(&mut lp)?;
    /// one.enable_passing(&mut lp)?;
    /// other.enable_passing(&mut lp)?;
    ///
    /// let (near, far) = Tcp::pair(&mut lp)?;
    /// one.write_with_handles(&mut lp, "take it", &[near.into()], move |lp, one, result, _| {
    ///     result.unwrap();
    ///     near.close(lp).unwrap();
    ///     one.close(lp).unwrap();
    /// })?;
    /// other.read_start(&mut lp, move |lp, other, bytes| {
    ///     assert_eq!(bytes.unwrap(), b"take it");
    ///     while other.pending_count(lp) > 0 {
    ///         other.accept_pending(lp).unwrap().close(lp).unwrap();
    ///     }
    ///     other.close(lp).unwrap();
    ///     far.close(lp).unwrap();
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, listens, or has a
    /// descriptor that is no socket, or on Windows no pipe that goes both ways.
    pub fn enable_passing<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        if slot.flags.contains(Flags::LISTENING) {
            let why = "a listener passes no handles: the connections that it accepts may";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if slot.socket.as_ref().is_some_and(|socket| !socket.passes_handles()) {
            return Err(no_socket());
        }
        slot.passing.get_or_insert_default();
        if let Some(socket) = &slot.socket {
            socket.pass_handles();
        }
        Ok(())
    }

    /// As [`write`](crate::Stream::write), and the other side gets handles with the first byte:
    /// TCP and UDP handles and pipes, 253 at the most.
    ///
    /// They stay this loop's as well: both sides have one of their own then. Close them when
    /// the write has called back, not before: a handle that is closed by the time the write's
    /// turn comes makes it fail with `EBADF`, while the writes behind it go on.
    ///
    /// On Windows a pipe that is passed is the other side's alone: pass it before it is read or
    /// written, and close it then. A listener of a named pipe is not passed: its name can be
    /// bound by several processes.
    ///
    /// # Errors
    ///
    /// As [`write`](crate::Stream::write); `InvalidInput` if the pipe does not [pass
    /// handles](Pipe::enable_passing), if there is no byte to send, or for too many handles or
    /// of other kinds, or on Windows for a named pipe that listens, and there `ResourceBusy` for a
    /// pipe that is being read or written; `EBADF` for a handle that is closing or has no socket.
    pub fn write_with_handles<B: Backend, T: IoBuf>(
        self,
        lp: &mut Loop<B>,
        buf: T,
        handles: &[AnyHandle],
        callback: impl FnOnce(&mut Loop<B>, Pipe, io::Result<()>, T) + 'static,
    ) -> io::Result<Write> {
        write_with_handles(self, lp, buf, handles, callback)
    }

    /// As [`try_write`](crate::Stream::try_write), with handles: if anything is written, they
    /// have gone.
    ///
    /// # Errors
    ///
    /// As [`try_write`](crate::Stream::try_write) and
    /// [`write_with_handles`](Pipe::write_with_handles); on Windows always `WouldBlock`.
    pub fn try_write_with_handles<B: Backend>(
        self,
        lp: &mut Loop<B>,
        bytes: &[u8],
        handles: &[AnyHandle],
    ) -> io::Result<usize> {
        lp.try_write_with(self.0, bytes, handles)
    }

    /// How many handles have come and were not taken. They come before the bytes that they
    /// were sent with are told, in order, and those that nobody takes are closed with the
    /// pipe. 0 for a stale key.
    pub fn pending_count<B: Backend>(self, lp: &Loop<B>) -> usize {
        let slot = lp.streams.slots.get(self.0);
        slot.and_then(|slot| slot.passing.as_ref()).map_or(0, |it| it.pending.len())
    }

    /// What the next of them is; `None` if there is none.
    pub fn pending_kind<B: Backend>(self, lp: &Loop<B>) -> Option<PendingKind> {
        let slot = lp.streams.slots.get(self.0)?;
        let next = slot.passing.as_ref()?.pending.front()?;
        Some(match sys::kind_of(next) {
            PassedKind::Tcp => PendingKind::Tcp,
            PassedKind::Udp => PendingKind::Udp,
            PassedKind::Pipe => PendingKind::Pipe,
            PassedKind::Other => PendingKind::Other,
        })
    }

    /// Takes the next of them, as a new handle of its kind.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none, `NotFound` for a stale key, `InvalidInput` if the pipe is
    /// closing, `Unsupported` if there is no handle for its kind: it stays the next then, for
    /// [`take_pending`](Pipe::take_pending). If it cannot be used it is closed, and the error
    /// is the kernel's.
    pub fn accept_pending<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<AnyHandle> {
        lp.streams.open(self.0)?;
        let kind = self.pending_kind(lp).ok_or(io::ErrorKind::WouldBlock)?;
        if kind == PendingKind::Other {
            let why = "there is no handle for what has come: take it as it is, with `take_pending`";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let passed = self.take_pending(lp)?;
        let (handle, opened) = match kind {
            PendingKind::Tcp => {
                let tcp = Tcp::new(lp);
                if !sys::PASSED_OPERATE {
                    lp.streams.open(tcp.0)?.flags |= Flags::SHARED;
                }
                let opened = sys::passed_tcp(passed).and_then(|passed| tcp.open(lp, passed));
                (AnyHandle::from(tcp), opened)
            }
            PendingKind::Udp => {
                let udp = Udp::new(lp);
                if !sys::PASSED_OPERATE {
                    udp.watch_only(lp)?;
                }
                (udp.into(), sys::passed_udp(passed).and_then(|passed| udp.open(lp, passed)))
            }
            PendingKind::Pipe | PendingKind::Other => {
                let pipe = Pipe::new(lp);
                (pipe.into(), sys::passed_pipe(passed).and_then(|passed| pipe.open(lp, passed)))
            }
        };
        if let Err(error) = opened {
            handle.close(lp)?;
            return Err(error);
        }
        Ok(handle)
    }

    /// Takes the next of them as it is, whatever it may be.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none, `NotFound` for a stale key, `InvalidInput` if the pipe is
    /// closing.
    pub fn take_pending<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<sys::Passed> {
        let passing = lp.streams.open(self.0)?.passing.as_mut();
        let passed = passing.and_then(|passing| passing.pending.pop_front());
        passed.ok_or(io::ErrorKind::WouldBlock.into())
    }

    /// True if handles were sent that did not come since this was last asked, because this
    /// process had no room for more descriptors.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the pipe is closing.
    pub fn has_lost_handles<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<bool> {
        let passing = lp.streams.open(self.0)?.passing.as_mut();
        Ok(passing.is_some_and(|passing| std::mem::take(&mut passing.lost)))
    }
}

pub(super) fn no_socket() -> io::Error {
    let why = "handles go over a socket, and on Windows over a pipe that goes both ways";
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
