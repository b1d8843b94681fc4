//! Short forms of reads and writes, whose errors close the stream, and the sockets of streams that
//! move to other handles.

use std::io;
use std::ops::Range;
#[cfg(unix)]
use std::os::fd::OwnedFd;

use poll_core::{Backend, Token};

use super::input::read;
use super::output::{connect, send_file, shutdown, write};
use super::{Ended, Flags, Kind, Stream, StreamKey, Streams};
#[cfg(unix)]
use super::{Listener, handover, input::accept};
use crate::fs::File;
use crate::handles::{AnyHandle, Handle, Pipe, Sealed, Tcp, Tty};
use crate::storage::{InlineFnOnce, IoBuf, IoBufMut};
use crate::{Loop, error};

pub(super) fn send<S: Stream, B: Backend, T: IoBuf>(stream: S, lp: &mut Loop<B>, buf: T) {
    if is_ending(stream, lp) {
        return;
    }
    let written = write::write(stream, lp, buf, |lp, stream, result, _| sent(lp, stream, result));
    if let Err(error) = written {
        stream.fail(lp, error);
    }
}

/// The end of a write whose error closes the stream.
fn sent<S: Stream, B: Backend>(lp: &mut Loop<B>, stream: S, result: io::Result<()>) {
    match result {
        // The first of several writes reports their error, and a close is no error.
        Err(error) if !stream.is_closing(lp) => stream.fail(lp, error),
        _ => {}
    }
}

pub(super) fn finish<S: Stream, B: Backend>(stream: S, lp: &mut Loop<B>) {
    let key = stream.stream_key();
    if is_ending(stream, lp) {
        return;
    }
    let Ok(slot) = lp.streams.open(key) else { return };
    slot.flags |= Flags::FINISHING;
    let (shutting, writable) =
        (slot.flags.contains(Flags::SHUTTING), slot.flags.contains(Flags::WRITABLE));
    read::stop_reading(lp, key);
    if shutting {
        let _ = discard_input(stream, lp);
        close_when_shut_down(lp, key);
    } else if writable {
        let _ = discard_input(stream, lp);
        let asked = shutdown::shutdown(stream, lp, |lp, stream, result| match result {
            Err(error) if is_failure(&error) && !stream.is_closing(lp) => stream.fail(lp, error),
            _ => close_at_the_end(stream, lp),
        });
        debug_assert!(asked.is_ok(), "a stream that is writable can be shut down");
    } else {
        stream.close_if_open(lp);
    }
}

/// False if the peer is gone already, or if the stream ends by being closed and not otherwise. What
/// the peer has missed is reported by the writes.
fn is_failure(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::NotConnected | io::ErrorKind::Unsupported)
}

/// Reads and discards to the end of the stream, then closes it, if its output has ended.
///
/// A TCP connection that is closed with unread bytes is reset, and a reset discards what the peer
/// has not read yet. Other kinds lose nothing.
fn discard_input<S: Stream, B: Backend>(stream: S, lp: &mut Loop<B>) -> io::Result<()> {
    if lp.streams.open(stream.stream_key())?.kind != Kind::Tcp {
        return Err(io::ErrorKind::Unsupported.into());
    }
    read::start(stream, lp, |lp, stream: S, bytes| {
        let slot = lp.streams.open(stream.stream_key());
        let sends = slot.is_ok_and(|slot| slot.flags.contains(Flags::SHUTTING));
        if !sends && !matches!(bytes, Ok([_, ..])) {
            stream.close_if_open(lp);
        }
    })
}

/// The output has ended: closes the stream when its input has.
fn close_at_the_end<S: Stream, B: Backend>(stream: S, lp: &mut Loop<B>) {
    if !stream.is_active(lp) && discard_input(stream, lp).is_err() {
        stream.close_if_open(lp);
    }
}

/// True if the stream is closing or closed, or will be when what is queued is sent.
fn is_ending<S: Stream, B: Backend>(stream: S, lp: &mut Loop<B>) -> bool {
    match lp.streams.open(stream.stream_key()) {
        Ok(slot) => slot.flags.contains(Flags::FINISHING),
        Err(_) => true,
    }
}

pub(super) fn on_read<S: Stream, B: Backend>(
    stream: S,
    lp: &mut Loop<B>,
    mut callback: impl FnMut(&mut Loop<B>, S, &[u8]) -> io::Result<()> + 'static,
) -> io::Result<()> {
    read::start(stream, lp, move |lp, stream: S, bytes| {
        if let Err(error) = bytes.and_then(|bytes| callback(lp, stream, bytes)) {
            stream.fail(lp, error);
        }
    })
}

pub(super) fn write_with<S: Stream, B: Backend, T: IoBuf>(
    stream: S,
    lp: &mut Loop<B>,
    buf: T,
    callback: impl FnOnce(&mut Loop<B>, S, io::Result<()>, T) + 'static,
) {
    if let Err(error) = lp.streams.check_write(stream.stream_key(), buf.pieces()) {
        return lp.defer(move |lp| callback(lp, stream, Err(error), buf));
    }
    let written = write::write(stream, lp, buf, callback);
    debug_assert!(written.is_ok(), "all that is refused was refused above");
}

pub(super) fn read_with<S: Stream, B: Backend, T: IoBufMut>(
    stream: S,
    lp: &mut Loop<B>,
    mut buf: T,
    callback: impl FnOnce(&mut Loop<B>, S, io::Result<usize>, T) + 'static,
) {
    if let Err(error) = read::check_pull(lp, stream.stream_key(), &mut buf) {
        return lp.defer(move |lp| callback(lp, stream, Err(error), buf));
    }
    let read = read::pull(stream, lp, buf, callback);
    debug_assert!(read.is_ok(), "all that is refused was refused above");
}

pub(super) fn send_file_with<S: Stream, B: Backend>(
    stream: S,
    lp: &mut Loop<B>,
    file: &File,
    range: Range<u64>,
    callback: impl FnOnce(&mut Loop<B>, S, io::Result<()>, u64) + 'static,
) {
    if let Err(error) = send_file::check(lp, stream.stream_key(), &range) {
        return lp.defer(move |lp| callback(lp, stream, Err(error), 0));
    }
    let sent = send_file::send_file(stream, lp, file, range, callback);
    debug_assert!(sent.is_ok(), "all that is refused was refused above");
}

pub(crate) fn write_handles_with<B: Backend, T: IoBuf>(
    pipe: Pipe,
    lp: &mut Loop<B>,
    buf: T,
    handles: &[AnyHandle],
    callback: impl FnOnce(&mut Loop<B>, Pipe, io::Result<()>, T) + 'static,
) {
    if let Err(error) = write::check_with_handles(lp, pipe.0, &buf, handles) {
        return lp.defer(move |lp| callback(lp, pipe, Err(error), buf));
    }
    let written = write::write_with_handles(pipe, lp, buf, handles, callback);
    debug_assert!(written.is_ok(), "all that is refused was refused above");
}

pub(crate) fn send_with_handles<B: Backend, T: IoBuf>(
    pipe: Pipe,
    lp: &mut Loop<B>,
    buf: T,
    handles: &[AnyHandle],
) {
    let given: Box<[AnyHandle]> = handles.into();
    if is_ending(pipe, lp) {
        return given.iter().for_each(|handle| handle.close_if_open(lp));
    }
    write_handles_with(pipe, lp, buf, handles, move |lp, pipe, result, _| {
        given.iter().for_each(|handle| handle.close_if_open(lp));
        sent(lp, pipe, result);
    });
}

#[cfg(unix)]
impl<B: Backend> super::StreamSlot<B> {
    /// True if a read or a write has not called back.
    fn has_requests(&self) -> bool {
        !self.reads.is_empty() || !self.writes.is_empty() || !self.done.is_empty()
    }
}

/// Closes a stream, when its input has ended, after the callback of its shutdown.
fn close_when_shut_down<B: Backend>(lp: &mut Loop<B>, key: Token) {
    let Some(rare) = lp.streams.rare(key) else { return };
    let Some(callback) = rare.shutdown.take() else { return };
    rare.shutdown = Some(InlineFnOnce::new(move |lp: &mut Loop<B>, (key, result): Ended| {
        callback.call(lp, (key, result));
        close_at_the_end(AnyStream::from_stream_key(lp, key), lp);
    }));
}

/// Gives the socket of `from`, a connection that nothing uses, to `to`, a handle that is
/// connecting without one, and closes `from`.
pub(crate) fn adopt_attempt<B: Backend>(lp: &mut Loop<B>, to: Token, from: Token) {
    let Some(slot) = lp.streams.slots.get_mut(from) else { return };
    slot.armed = poll_core::Interest::NONE;
    let (socket, source) = (slot.socket.take(), slot.source.take());
    if let Some(source) = source {
        lp.unwatch(source);
    }
    Tcp(from).close_if_open(lp);
    let Ok(slot) = lp.streams.open(to) else { return };
    let result = match socket {
        Some(socket) => {
            let applied = crate::handles::apply_tcp_options(slot, &socket);
            slot.socket = Some(socket);
            applied
        }
        None => Err(error::not_connected()),
    };
    connect::resolved(lp, to, result);
}

/// The waiting connection as a socket.
#[cfg(unix)]
pub(crate) fn accept_socket<S: Listener, B: Backend>(
    stream: S,
    lp: &mut Loop<B>,
) -> io::Result<OwnedFd> {
    let (_, socket) = accept::take_connection(lp, stream.stream_key())?;
    socket.try_clone().map(OwnedFd::from)
}

/// Takes the connection of a stream out of its loop.
#[cfg(unix)]
pub(crate) fn release<S: Stream, B: Backend>(stream: S, lp: &mut Loop<B>) -> io::Result<OwnedFd> {
    let key = stream.stream_key();
    let slot = lp.streams.open(key)?;
    let busy = slot.flags.intersects(Flags::CONNECTING | Flags::SHUTTING | Flags::LISTENING);
    if busy || slot.has_requests() || slot.write_queue_size > 0 {
        let why = "the stream listens, or has requests that have not called back";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    if slot.passing.is_some() {
        let why = "a pipe that passes handles has a state of its own: it cannot be released";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let socket = slot.socket.as_ref().ok_or_else(error::no_socket)?;
    // A duplicate, because operations in flight keep the loop's own descriptor until they end.
    let released = OwnedFd::from(socket.try_clone()?);
    read::stop_reading(lp, key);
    handover::hand_over(lp, key)?;
    stream.close(lp)?;
    Ok(released)
}

/// A [`Tcp`], a [`Pipe`] or a [`Tty`]: a stream whose kind is known at run time.
///
/// ```
/// use std::collections::HashMap;
/// use uv_core::{AnyStream, Handle, Loop, Pipe, RunMode, Stream, Tcp};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (tcp, far_tcp) = Tcp::pair(&mut lp)?;
/// let (pipe, far_pipe) = Pipe::pair(&mut lp)?;
/// let members = HashMap::from([(AnyStream::from(tcp), "far"), (AnyStream::from(pipe), "near")]);
/// for (&member, name) in &members {
///     member.send(&mut lp, *name);
///     member.finish(&mut lp);
/// }
/// let ends: [AnyStream; 2] = [far_tcp.into(), far_pipe.into()];
/// for end in ends {
///     end.on_read(&mut lp, |lp, end, bytes| match bytes {
///         [] => end.close(lp),
///         bytes => Ok(println!("{end:?}: {}", String::from_utf8_lossy(bytes))),
///     })?;
/// }
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "uv_stream_t")]
pub enum AnyStream {
    /// A TCP connection or listener.
    Tcp(Tcp),
    /// A pipe.
    Pipe(Pipe),
    /// A terminal.
    Tty(Tty),
}

macro_rules! kinds {
    ($($kind:ident)*) => {
        $(
            impl From<$kind> for AnyStream {
                fn from(stream: $kind) -> AnyStream {
                    AnyStream::$kind(stream)
                }
            }
        )*

        impl From<AnyStream> for AnyHandle {
            fn from(stream: AnyStream) -> AnyHandle {
                match stream { $( AnyStream::$kind(stream) => stream.into(), )* }
            }
        }

        impl Sealed for AnyStream {
            fn from_any(any: AnyHandle) -> AnyStream {
                match any {
                    $( AnyHandle::$kind(stream) => stream.into(), )*
                    other => unreachable!("a {} is no stream", other.kind()),
                }
            }
        }

        impl StreamKey for AnyStream {
            fn stream_key(self) -> Token {
                match self { $( AnyStream::$kind(stream) => stream.0, )* }
            }

            fn from_stream_key<B: Backend>(lp: &Loop<B>, key: Token) -> AnyStream {
                // The slot exists until the close callback; after an exchange of loops there is
                // none, and the key is stale whatever its kind.
                match lp.streams.slots.get(key).map_or(Kind::Tcp, |slot| slot.kind) {
                    $( Kind::$kind => $kind(key).into(), )*
                }
            }
        }
    };
}

kinds! { Tcp Pipe Tty }

impl Handle for AnyStream {}
impl Stream for AnyStream {}

impl<B: Backend> Streams<B> {
    /// Checks that a stream takes a write of this many pieces.
    pub(super) fn check_write(&mut self, key: Token, pieces: usize) -> io::Result<()> {
        let slot = self.open(key)?;
        // A connecting stream may have no socket yet.
        if slot.socket.is_none() && !slot.flags.contains(Flags::CONNECTING) {
            return Err(error::not_connected());
        }
        if !slot.flags.contains(Flags::WRITABLE) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        if pieces == 0 {
            let why = "the list of buffers is empty: pass at least one buffer";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(())
    }
}
