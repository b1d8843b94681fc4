//! Handle passing over pipes.

use std::io;

use poll_core::Backend;

use super::Pipe;
use crate::Loop;
use crate::handles::{AnyHandle, Handle, Tcp, Udp};
use crate::storage::IntoIoBuf;
use crate::streams::{self, Flags, WriteRequest, write_with_handles};
use crate::sys::{self, PassedKind};

/// The kind of a handle that a [`Pipe`] has received and that was not accepted yet.
///
#[cfg_attr(unix, doc = "```")]
#[cfg_attr(not(unix), doc = "```ignore")]
/// use std::net::UdpSocket;
/// use uv_core::{Handle, Loop, PendingKind, Pipe, RunMode, Stream, Udp, UdpBindFlags};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (one, other) = Pipe::pair(&mut lp)?;
/// one.enable_passing(&mut lp)?;
/// other.enable_passing(&mut lp)?;
///
/// let udp = Udp::new(&mut lp);
/// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
/// one.try_write_with_handles(&mut lp, b"take it", &[udp.into()])?;
/// let address = udp.local_addr(&lp)?;
/// other.read_start(&mut lp, move |lp, other, bytes| {
///     assert_eq!(bytes.unwrap(), b"take it");
///     assert!(!other.has_lost_handles(lp).unwrap());
///     assert_eq!(other.pending_kind(lp), Some(PendingKind::Udp));
///     // As a socket of `std`, not as a handle of this loop.
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
    /// A kind without a handle type: see [`Pipe::take_pending`].
    Other,
}

/// Handle passing, which both sides must enable.
impl Pipe {
    /// Enables handle passing: writes can carry handles, and received handles are queued until
    /// they are accepted. Call it on both sides, on a new handle or a connection; not on a
    /// listener, but on the connections that it accepts.
    ///
    /// On Windows, call it before anything is written: bytes are sent in frames from then on. The
    /// frames are those of libuv where it defines them (bytes and TCP). Handles are duplicated
    /// into the other process before they are sent, so both processes must trust each other: a
    /// peer that sends invalid handles makes the receiver use and close other objects. A child
    /// gets such a pipe with [`NON_BLOCKING`](crate::PipeFlags::NON_BLOCKING).
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
    /// `NotFound` for a stale key; `InvalidInput` if the handle is closing, listens, or has a
    /// descriptor that is not a socket (on Windows, not a duplex pipe).
    #[doc(alias = "uv_pipe_init")]
    pub fn enable_passing<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        if slot.flags.contains(Flags::LISTENING) {
            let why = "a listener cannot pass handles: enable it on accepted connections";
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

    /// As [`write`](crate::Stream::write), and passes handles with the first byte: TCP and UDP
    /// handles and pipes, at most 253.
    ///
    /// The handles stay open in this loop; the peer gets duplicates. Close them after the write
    /// callback, not before: if a handle is closed when the write starts, the write fails with
    /// `EBADF`, and later writes continue.
    ///
    /// On Windows a passed pipe is used by the peer alone: pass it before it is read or written,
    /// and close it afterwards. A listener of a named pipe cannot be passed, but several processes
    /// can bind its name.
    ///
    /// # Errors
    ///
    /// As [`write`](crate::Stream::write); `InvalidInput` if the pipe does not [pass
    /// handles](Pipe::enable_passing), if there is no byte to send, for too many handles or other
    /// kinds, and on Windows for a listening named pipe; `ResourceBusy` on Windows for a pipe that
    /// is being read or written, and everywhere for a stream with bytes that the loop has received
    /// and not delivered (`read_start` delivers them); `EBADF` for a handle that is closing or has
    /// no socket.
    #[doc(alias = "uv_write2")]
    pub fn write_with_handles<B: Backend, T: IntoIoBuf>(
        self,
        lp: &mut Loop<B>,
        buf: T,
        handles: &[AnyHandle],
        callback: impl FnOnce(&mut Loop<B>, Pipe, io::Result<()>, T::Buf) + 'static,
    ) -> io::Result<WriteRequest> {
        write_with_handles(self, lp, buf.into_io_buf(), handles, callback)
    }

    /// As [`write_with_handles`](Pipe::write_with_handles), but the callback gets every error, and
    /// always the buffer, as that of [`write_with`](crate::Stream::write_with) does.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, Pipe, RunMode, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, _other) = Pipe::pair(&mut lp)?;
    /// let tcp = Tcp::new(&mut lp);
    /// one.write_handles_with(&mut lp, "take it", &[tcp.into()], |lp, _, result, buffer| {
    ///     assert!(result.is_err(), "the pipe does not pass handles");
    ///     println!("{buffer:?} is back");
    ///     lp.walk().into_iter().for_each(|handle| handle.close_if_open(lp));
    /// });
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_write2")]
    pub fn write_handles_with<B: Backend, T: IntoIoBuf>(
        self,
        lp: &mut Loop<B>,
        buf: T,
        handles: &[AnyHandle],
        callback: impl FnOnce(&mut Loop<B>, Pipe, io::Result<()>, T::Buf) + 'static,
    ) {
        streams::write_handles_with(self, lp, buf.into_io_buf(), handles, callback);
    }

    /// As [`send`](crate::Stream::send), and gives handles away with the first byte: they are closed
    /// here when they are passed, and if they cannot be. An error closes the pipe, and goes to the
    /// handler of [`Loop::on_error`].
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use uv_core::{AnyHandle, Handle, Loop, Pipe, RunMode, Stream};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.on_error(|_, handle, error| eprintln!("{handle}: {error}"));
    /// let (one, other) = Pipe::pair(&mut lp)?;
    /// one.enable_passing(&mut lp)?;
    /// other.enable_passing(&mut lp)?;
    /// let (near, far) = Pipe::pair(&mut lp)?;
    /// one.send_with_handles(&mut lp, "a connection", &[near.into()]);
    /// one.finish(&mut lp);
    /// other.on_read(&mut lp, |lp, other, bytes| {
    ///     while other.pending_count(lp) > 0 {
    ///         let AnyHandle::Pipe(peer) = other.accept_pending(lp)? else { continue };
    ///         peer.send(lp, "from its new owner");
    ///         peer.finish(lp);
    ///     }
    ///     if bytes.is_empty() { other.close(lp) } else { Ok(()) }
    /// })?;
    /// far.on_read(&mut lp, |lp, far, bytes| {
    ///     lp.state::<Vec<u8>>().extend_from_slice(bytes);
    ///     if bytes.is_empty() { far.close(lp) } else { Ok(()) }
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// assert_eq!(lp.state::<Vec<u8>>(), b"from its new owner");
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_write2")]
    pub fn send_with_handles<B: Backend>(
        self,
        lp: &mut Loop<B>,
        buf: impl IntoIoBuf,
        handles: &[AnyHandle],
    ) {
        streams::send_with_handles(self, lp, buf.into_io_buf(), handles);
    }

    /// As [`try_write`](crate::Stream::try_write), with handles, which are passed if at least one
    /// byte is written.
    ///
    /// # Errors
    ///
    /// As [`try_write`](crate::Stream::try_write) and
    /// [`write_with_handles`](Pipe::write_with_handles); on Windows always `WouldBlock`.
    #[doc(alias = "uv_try_write2")]
    pub fn try_write_with_handles<B: Backend>(
        self,
        lp: &mut Loop<B>,
        bytes: &[u8],
        handles: &[AnyHandle],
    ) -> io::Result<usize> {
        streams::handle_passing::try_write_with(lp, self.0, bytes, handles)
    }

    /// Limits the number of pending handles; the default is 256. At the limit, the next read fails
    /// with `QuotaExceeded` and the connection is broken, so that a peer cannot exhaust the
    /// descriptors of a process that does not accept them. One message may exceed the limit by 252.
    ///
    /// ```
    /// use uv_core::{Loop, Pipe};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (pipe, _other) = Pipe::pair(&mut lp)?;
    /// pipe.enable_passing(&mut lp)?;
    /// pipe.set_pending_limit(&mut lp, 8)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, does not [pass
    /// handles](Pipe::enable_passing), or for a limit of 0.
    pub fn set_pending_limit<B: Backend>(self, lp: &mut Loop<B>, limit: usize) -> io::Result<()> {
        let passing = lp.streams.open(self.0)?.passing.as_mut();
        match passing.filter(|_| limit > 0) {
            Some(passing) => passing.limit = limit,
            None => {
                let why = "a limit of at least 1 is needed, on a pipe that passes handles";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
        }
        Ok(())
    }

    /// The number of received handles that were not accepted; 0 for a stale key. Handles are
    /// queued in order, before the bytes that they were sent with are delivered. Closing the pipe
    /// closes pending handles.
    #[doc(alias = "uv_pipe_pending_count")]
    pub fn pending_count<B: Backend>(self, lp: &Loop<B>) -> usize {
        let slot = lp.streams.slots.get(self.0);
        slot.and_then(|slot| slot.passing.as_ref()).map_or(0, |it| it.pending.len())
    }

    /// The kind of the next pending handle; `None` if there is none.
    #[doc(alias = "uv_pipe_pending_type")]
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

    /// Accepts the next pending handle, as a new handle of its kind.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none, `NotFound` for a stale key, `InvalidInput` if the pipe is
    /// closing, `Unsupported` if there is no handle type for its kind: it stays pending for
    /// [`take_pending`](Pipe::take_pending). If it cannot be opened, it is closed, and the error is
    /// the kernel's.
    #[doc(alias = "uv_accept")]
    pub fn accept_pending<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<AnyHandle> {
        lp.streams.open(self.0)?;
        let kind = self.pending_kind(lp).ok_or(io::ErrorKind::WouldBlock)?;
        if kind == PendingKind::Other {
            let why = "no handle type fits the descriptor: use `take_pending`";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let passed = self.take_pending(lp)?;
        let (handle, opened) = match kind {
            PendingKind::Tcp => {
                let tcp = Tcp::new(lp);
                if !sys::PASSED_SUPPORT_OPS {
                    lp.streams.open(tcp.0)?.flags |= Flags::SHARED;
                }
                let opened = sys::passed_tcp(passed).and_then(|passed| tcp.open(lp, passed));
                (AnyHandle::from(tcp), opened)
            }
            PendingKind::Udp => {
                let udp = Udp::new(lp);
                if !sys::PASSED_SUPPORT_OPS {
                    udp.use_readiness_only(lp)?;
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

    /// Takes the descriptor of the next pending handle, of any kind.
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

    /// True if handles were lost since the last call, because this process was at its limit of
    /// descriptors.
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
    let why = "handle passing needs a Unix domain socket, on Windows a duplex pipe";
    io::Error::new(io::ErrorKind::InvalidInput, why)
}
