//! Handles passed over a pipe together with bytes.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::UdpSocket;
use std::os::windows::io::{OwnedHandle, OwnedSocket};

use poll_core::RawSource;

use super::pipes::NamedPipe;
use super::{OwnedPipe, Transport};

/// A handle received over a pipe, on Windows: see
/// [`Pipe::take_pending`](crate::Pipe::take_pending).
///
/// ```
/// use uv_core::Passed;
///
/// fn describe(passed: &Passed) -> &'static str {
///     match passed {
///         Passed::Tcp(_) | Passed::Udp(_) => "a socket",
///         _ => "something else",
///     }
/// }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Passed {
    /// A TCP connection or listener.
    Tcp(OwnedSocket),
    /// A UDP socket.
    Udp(OwnedSocket),
    /// An end of a pipe.
    Pipe(OwnedHandle),
}

/// The same limit as on Unix.
pub(crate) const MAX_HANDLES: usize = 253;

/// A received socket stays associated with its sender's completion port, if it has one, so it
/// works by readiness only.
pub(crate) const PASSED_SUPPORT_OPS: bool = false;

/// The handles to send. Their owners keep them open.
pub(crate) struct Rights(Vec<RawSource>);

impl Rights {
    pub(crate) const NONE: Rights = Rights(Vec::new());

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, source: RawSource) {
        self.0.push(source);
    }

    pub(super) fn sources(&self) -> &[RawSource] {
        &self.0
    }
}

/// Fails: handles are sent by write operations of the stream.
pub(crate) fn send_rights(
    _transport: &Transport,
    _bufs: &[IoSlice<'_>],
    _rights: &Rights,
) -> io::Result<usize> {
    Err(io::ErrorKind::WouldBlock.into())
}

/// Reads the available bytes with the handles that precede them. False if handles were lost.
pub(crate) fn receive_rights(
    transport: &Transport,
    memory: &mut [u8],
    passed: &mut VecDeque<Passed>,
) -> io::Result<(usize, bool)> {
    match transport.pipe() {
        Some(NamedPipe::End(channel)) => channel.receive_frames(memory, passed),
        _ => Err(io::ErrorKind::NotConnected.into()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "every received item has a handle on Windows")]
pub(crate) enum PassedKind {
    Tcp,
    Udp,
    Pipe,
    Other,
}

pub(crate) fn kind_of(passed: &Passed) -> PassedKind {
    match passed {
        Passed::Tcp(_) => PassedKind::Tcp,
        Passed::Udp(_) => PassedKind::Udp,
        Passed::Pipe(_) => PassedKind::Pipe,
    }
}

pub(crate) fn passed_tcp(passed: Passed) -> io::Result<OwnedSocket> {
    match passed {
        Passed::Tcp(socket) | Passed::Udp(socket) => Ok(socket),
        Passed::Pipe(_) => Err(io::ErrorKind::InvalidInput.into()),
    }
}

pub(crate) fn passed_udp(passed: Passed) -> io::Result<UdpSocket> {
    passed_tcp(passed).map(UdpSocket::from)
}

pub(crate) fn passed_pipe(passed: Passed) -> io::Result<OwnedPipe> {
    match passed {
        Passed::Pipe(handle) => Ok(handle),
        Passed::Tcp(_) | Passed::Udp(_) => Err(io::ErrorKind::InvalidInput.into()),
    }
}
