//! Passing handles over a pipe.
//!
//! A write that passes handles sends them with its first byte. Until then it stores their keys,
//! which do not keep the handles open: a handle that is closed meanwhile fails the write. Received
//! handles are queued in order until they are accepted or the pipe is closed.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use poll_core::{Backend, RawSource, Token};

use super::output::write::{Progress, advance, push, with_slices};
use super::request_queue::IoRequest;
use super::{Flags, Streams, handover};
use crate::handles::AnyHandle;
use crate::storage::Arena;
use crate::sys::{self, Passed, Rights, Transport, code};
use crate::{Loop, error};

/// The default limit of received handles that are not accepted yet. A message carries up to 253
/// handles, and many processes are limited to 1,024 descriptors.
const PENDING_LIMIT: usize = 256;

/// The state of a pipe that passes handles.
#[derive(Debug)]
pub(crate) struct Passing {
    /// Received handles that are not accepted yet.
    pub(crate) pending: VecDeque<Passed>,
    /// The pipe is not read while `pending` has this length, so that a peer cannot use up the
    /// descriptors of the process.
    pub(crate) limit: usize,
    /// Handles were lost because the process had no free descriptors.
    pub(crate) lost: bool,
    /// The writes that pass handles, in order. Finished writes are removed lazily.
    outgoing: VecDeque<(Token, Box<[AnyHandle]>)>,
}

impl Default for Passing {
    fn default() -> Passing {
        let (pending, outgoing) = (VecDeque::new(), VecDeque::new());
        Passing { pending, limit: PENDING_LIMIT, lost: false, outgoing }
    }
}

impl Passing {
    /// Reads once.
    pub(super) fn receive(&mut self, socket: &Transport, memory: &mut [u8]) -> io::Result<usize> {
        if self.pending.len() >= self.limit {
            return Err(too_many_pending(self.pending.len()));
        }
        let (count, whole) = sys::receive_rights(socket, memory, &mut self.pending)?;
        self.lost |= !whole;
        Ok(count)
    }

    /// Queues the handles that `write` passes.
    pub(super) fn queue(&mut self, write: Token, handles: Box<[AnyHandle]>) {
        self.outgoing.push_back((write, handles));
    }

    /// Removes the writes at the front that have started or finished: their handles are sent, or
    /// will not be.
    fn remove_started<B: Backend>(&mut self, requests: &Arena<IoRequest<B>>) {
        let waits = |write: Token| requests.get(write).is_some_and(IoRequest::is_new);
        while self.outgoing.front().is_some_and(|(write, _)| !waits(*write)) {
            self.outgoing.pop_front();
        }
    }

    /// The handles to send with the first byte of `write`.
    fn handles_of(&self, write: Token) -> &[AnyHandle] {
        let first = self.outgoing.front().filter(|(first, _)| *first == write);
        first.map_or(&[], |(_, handles)| handles)
    }
}

#[cold]
fn too_many_pending(count: usize) -> io::Error {
    let why = format!(
        "the peer has sent {count} handles that were not accepted: accept them in the read \
         callback, or raise the limit with `set_pending_limit`"
    );
    io::Error::new(io::ErrorKind::QuotaExceeded, why)
}

impl<B: Backend> Streams<B> {
    /// The handles that go with the next bytes of `write`; `None` if the pipe passes none.
    #[cfg(windows)]
    pub(super) fn handles_for_chunk(&mut self, key: Token, write: Token) -> Option<Vec<AnyHandle>> {
        let passing = self.slots.get_mut(key)?.passing.as_mut()?;
        passing.remove_started(&self.requests);
        Some(passing.handles_of(write).to_vec())
    }
}

/// As [`push`], for a pipe that passes handles.
pub(super) fn push_with_handles<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    write: Token,
) -> Progress {
    if let Some(slot) = lp.streams.slots.get_mut(key)
        && let Some(passing) = &mut slot.passing
    {
        passing.remove_started(&lp.streams.requests);
    }
    let Some(slot) = lp.streams.slots.get(key) else { return Progress::Blocked };
    let handles = slot.passing.as_ref().map_or(&[][..], |passing| passing.handles_of(write));
    // No byte of it was sent, so the writes behind it are not affected.
    let Ok(rights) = rights_of(lp, handles) else { return Progress::Refused(closed()) };
    let Some(request) = lp.streams.requests.get_mut(write) else {
        return Progress::Blocked;
    };
    let Some(socket) = &slot.socket else { return Progress::Blocked };
    if !rights.is_empty() {
        advance(request, 0); // Skips empty pieces: handles need a byte.
        match with_slices(request, |bufs| send_with(socket, bufs, &rights)).0 {
            Ok(sent) => advance(request, sent),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Progress::Blocked;
            }
            Err(error) => return Progress::Failed(error),
        }
    }
    push(socket, request, slot.flags.contains(Flags::BLOCKING))
}

/// The handles of the system that are passed for `handles`.
#[cfg(windows)]
pub(super) fn rights_for_chunk<B: Backend>(
    lp: &Loop<B>,
    handles: &[AnyHandle],
) -> io::Result<Rights> {
    rights_of(lp, handles).map_err(|error| match error.kind() {
        io::ErrorKind::ResourceBusy => error,
        _ => closed(),
    })
}

/// Writes without queueing, and passes handles with the first byte.
pub(crate) fn try_write_with<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    bytes: &[u8],
    handles: &[AnyHandle],
) -> io::Result<usize> {
    check_passing(lp, key, handles, bytes.len())?;
    let rights = rights_of(lp, handles)?;
    let socket = lp.streams.idle_writer(key)?;
    send_with(socket, &[IoSlice::new(bytes)], &rights)
}

/// Checks that the handles can be passed over the pipe, and prepares them for it.
pub(super) fn check_passing<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    handles: &[AnyHandle],
    size: usize,
) -> io::Result<()> {
    let invalid = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let slot = lp.streams.open(key)?;
    if slot.passing.is_none() {
        return invalid("the pipe does not pass handles: enable it at both ends");
    }
    if size == 0 {
        return invalid("handles are sent with a byte: write at least one");
    }
    if handles.len() > sys::MAX_HANDLES {
        return invalid("more than 253 handles: use several writes");
    }
    for handle in handles {
        passable(lp, *handle)?;
        if matches!(handle, AnyHandle::Tcp(_) | AnyHandle::Pipe(_)) {
            handover::hand_over(lp, handle.key())?;
        }
    }
    Ok(())
}

/// The handles of the system that are passed for `handles`.
fn rights_of<B: Backend>(lp: &Loop<B>, handles: &[AnyHandle]) -> io::Result<Rights> {
    let mut rights = Rights::NONE;
    for handle in handles {
        rights.push(passable(lp, *handle)?);
    }
    Ok(rights)
}

/// The handle of the system that is passed for a handle.
fn passable<B: Backend>(lp: &Loop<B>, handle: AnyHandle) -> io::Result<RawSource> {
    match handle {
        AnyHandle::Tcp(_) | AnyHandle::Pipe(_) => {
            let slot = lp.streams.slots.get(handle.key()).ok_or_else(error::stale)?;
            slot.socket.as_ref().ok_or_else(closed)?.passable()
        }
        AnyHandle::Udp(_) => {
            let slot = lp.udps.slots.get(handle.key()).ok_or_else(error::stale)?;
            slot.source().ok_or_else(closed)
        }
        _ => {
            let why = "only TCP, UDP and pipe handles can be passed";
            Err(io::Error::new(io::ErrorKind::InvalidInput, why))
        }
    }
}

/// The error for a handle that is not open any more.
fn closed() -> io::Error {
    io::Error::from_raw_os_error(code::EBADF)
}

/// Sends by one system call, repeated if a signal interrupts it. A temporary lack of kernel memory
/// is reported as `WouldBlock`.
fn send_with(socket: &Transport, bufs: &[IoSlice<'_>], rights: &Rights) -> io::Result<usize> {
    loop {
        match sys::send_rights(socket, bufs, rights) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(sys::NO_BUFFER) => {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            result => return result,
        }
    }
}
