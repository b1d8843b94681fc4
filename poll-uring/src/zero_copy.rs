//! Sends that do not copy (`IORING_OP_SEND_ZC`, Linux 6.0).
//!
//! Such a send completes twice: with its result, and with a notification when the network has
//! released the memory. A TCP socket holds the memory until its peer has acknowledged the bytes,
//! which a peer that stops reading delays without limit, and a cancel does not end that. Closing
//! the ring does not end it either, and freeing the memory then would send what is put there
//! later. So a backend that is dropped waits for [`GRACE`] and then resets the connections: the
//! kernel discards their queues and releases the memory.

use std::mem;
use std::os::fd::RawFd;
use std::time::Duration;

use io_uring::squeue;
use poll_core::{RawBuf, Table, Token};

use crate::ring::{Completion, Ring};

/// How long the drop of a backend waits for peers to take what was sent to them.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// The sends in flight that do not copy.
#[derive(Debug, Default)]
pub(crate) struct ZeroCopy {
    /// Sends of at least this many bytes do not copy. `None`: all sends copy.
    pub(crate) min_bytes: Option<u32>,
    sends: Table<ZeroCopySend>,
    /// Sends that their sockets refused, and that the kernel has released: they are submitted
    /// again, with a copy.
    to_copy: Vec<Token>,
}

/// A send in flight that does not copy.
#[derive(Debug)]
struct ZeroCopySend {
    /// Stays open until the send has ended: the submitter promises it.
    socket: RawFd,
    /// The same send with a copy.
    copying: squeue::Entry,
    /// The socket has no zero-copy sends, as Unix domain sockets.
    refused: bool,
}

impl ZeroCopy {
    /// True if a send of `buf` is not to copy.
    #[inline]
    pub(crate) fn applies(&self, ring: &Ring, buf: RawBuf) -> bool {
        self.min_bytes.is_some_and(|least| buf.len >= least) && ring.has_zero_copy()
    }

    /// Notes a send. `copying` is the same send with a copy.
    pub(crate) fn insert(&mut self, token: Token, socket: RawFd, copying: squeue::Entry) {
        // An entry of this token can only be left over from a send that has ended.
        let _ = self.sends.insert(token, ZeroCopySend { socket, copying, refused: false });
    }

    /// Forgets a send that has ended.
    #[inline]
    pub(crate) fn remove(&mut self, token: Token) {
        if !self.sends.is_empty() {
            self.sends.remove(token);
        }
    }

    /// Forgets all sends.
    pub(crate) fn clear(&mut self) {
        self.to_copy.clear();
        self.sends = Table::default();
    }

    /// True if this completion belongs to a send that its socket has refused. It is not reported:
    /// the send is submitted again, with a copy.
    #[inline]
    pub(crate) fn is_refused(&mut self, token: Token, done: &Completion) -> bool {
        !self.sends.is_empty() && self.note_refusal(token, done)
    }

    #[cold]
    fn note_refusal(&mut self, token: Token, done: &Completion) -> bool {
        let Some(send) = self.sends.get_mut(token) else { return false };
        send.refused |= done.result == -libc::EOPNOTSUPP;
        let refused = send.refused;
        if refused && !done.more() {
            self.to_copy.push(token);
        }
        refused
    }

    /// True if sends are to be submitted again.
    pub(crate) fn has_refused(&self) -> bool {
        !self.to_copy.is_empty()
    }

    /// A send to submit again, and its entry. It stays until [`remove_refused`].
    ///
    /// [`remove_refused`]: ZeroCopy::remove_refused
    pub(crate) fn next_refused(&self) -> Option<(Token, Option<&squeue::Entry>)> {
        let &token = self.to_copy.last()?;
        Some((token, self.sends.get(token).map(|send| &send.copying)))
    }

    /// Forgets the send of [`next_refused`](ZeroCopy::next_refused).
    pub(crate) fn remove_refused(&mut self) {
        if let Some(token) = self.to_copy.pop() {
            self.sends.remove(token);
        }
    }

    /// The sockets of all sends.
    pub(crate) fn sockets(&self) -> Vec<RawFd> {
        let mut sockets: Vec<_> = self.sends.iter().map(|(_, send)| send.socket).collect();
        sockets.sort_unstable();
        sockets.dedup();
        sockets
    }
}

/// Resets connections, so that the kernel discards what they have queued and releases its memory.
///
/// The sockets stay open: they belong to the program.
#[cold]
pub(crate) fn reset_connections(sockets: &[RawFd]) {
    let unspecified = libc::sockaddr { sa_family: libc::AF_UNSPEC as u16, sa_data: [0; 14] };
    let len = mem::size_of::<libc::sockaddr>() as libc::socklen_t;
    for &socket in sockets {
        // A socket without connections fails: it holds memory only until the device has sent it.
        // SAFETY: the address outlives the call. The submitter of a send keeps its socket open
        // until the backend is dropped, so the number names no other file.
        let _ = unsafe { libc::connect(socket, &unspecified, len) };
    }
}
