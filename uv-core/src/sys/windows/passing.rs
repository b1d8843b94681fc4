//! Handles that go with bytes: not over Windows' pipes, so far.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use poll_core::RawSource;
use socket2::Socket;

use super::OwnedPipe;

/// What a pipe of Unix would pass. Nothing ever comes.
pub(crate) type Passed = std::os::windows::io::OwnedSocket;

pub(crate) const MOST_HANDLES: usize = 0;

/// No pipe gets further than this.
pub(crate) fn can_pass_handles() -> io::Result<()> {
    Err(unsupported())
}

fn unsupported() -> io::Error {
    let why = "handles are not passed over the pipes of Windows: send an address instead";
    io::Error::new(io::ErrorKind::Unsupported, why)
}

pub(crate) struct Rights;

impl Rights {
    pub(crate) const NONE: Rights = Rights;

    pub(crate) fn is_empty(&self) -> bool {
        true
    }

    pub(crate) fn push(&mut self, _source: RawSource) {}
}

pub(crate) fn send_rights(
    _socket: &Socket,
    _bufs: &[IoSlice<'_>],
    _rights: &Rights,
) -> io::Result<usize> {
    Err(unsupported())
}

pub(crate) fn receive_rights(
    _socket: &Socket,
    _memory: &mut [u8],
    _passed: &mut VecDeque<Passed>,
) -> io::Result<(usize, bool)> {
    Err(unsupported())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code, reason = "nothing is passed here")]
pub(crate) enum PassedKind {
    Tcp,
    Udp,
    Pipe,
    Other,
}

pub(crate) fn kind_of(_passed: &Passed) -> PassedKind {
    PassedKind::Other
}

pub(crate) fn passed_pipe(_passed: Passed) -> io::Result<OwnedPipe> {
    Err(unsupported())
}
