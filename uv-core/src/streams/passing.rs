//! Handles that go with bytes over a pipe.
//!
//! A write that passes handles sends them with its first byte. Until then it knows them by
//! their keys: one that is closed meanwhile fails the write, and none is kept open. What has
//! come waits, in order, until it is taken or the pipe is closed.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use poll_core::{Backend, RawSource, Token};

use super::Flags;
use super::transfers::Transfer;
use super::write::{Progress, advance, push, with_slices};
use crate::arena::Arena;
use crate::handles::AnyHandle;
use crate::sys::{self, Passed, Rights, Transport, code};
use crate::{Loop, error};

/// What a pipe has that passes handles.
#[derive(Debug, Default)]
pub(crate) struct Passing {
    /// What has come and was not taken.
    pub(crate) pending: VecDeque<Passed>,
    /// Some did not come, for want of descriptors.
    pub(crate) lost: bool,
    /// The writes that pass handles, in order. Those that are over are found to be stale.
    outgoing: VecDeque<(Token, Box<[AnyHandle]>)>,
}

impl Passing {
    /// Reads once.
    pub(super) fn receive(&mut self, socket: &Transport, memory: &mut [u8]) -> io::Result<usize> {
        let (count, whole) = sys::receive_rights(socket, memory, &mut self.pending)?;
        self.lost |= !whole;
        Ok(count)
    }

    /// `write` passes these, once.
    pub(super) fn queue(&mut self, write: Token, handles: Box<[AnyHandle]>) {
        self.outgoing.push_back((write, handles));
    }

    /// Forgets the writes whose handles have gone, or will not.
    fn forget_told<B: Backend>(&mut self, transfers: &Arena<Transfer<B>>) {
        let waits = |write: Token| transfers.get(write).is_some_and(Transfer::is_new);
        while self.outgoing.front().is_some_and(|(write, _)| !waits(*write)) {
            self.outgoing.pop_front();
        }
    }

    /// The handles that are to go with the first byte of `write`.
    fn due(&self, write: Token) -> &[AnyHandle] {
        let first = self.outgoing.front().filter(|(first, _)| *first == write);
        first.map_or(&[], |(_, handles)| handles)
    }
}

impl<B: Backend> Loop<B> {
    /// As [`push`], for a pipe that passes handles.
    pub(super) fn push_with_handles(&mut self, key: Token, write: Token) -> Progress {
        if let Some(slot) = self.streams.slots.get_mut(key)
            && let Some(passing) = &mut slot.passing
        {
            passing.forget_told(&self.streams.transfers);
        }
        let Some(slot) = self.streams.slots.get(key) else { return Progress::Blocked };
        let handles = slot.passing.as_ref().map_or(&[][..], |passing| passing.due(write));
        // Nothing of it has left: those behind are none the worse.
        let Ok(rights) = self.rights_of(handles) else { return Progress::Refused(closed()) };
        let Some(transfer) = self.streams.transfers.get_mut(write) else {
            return Progress::Blocked;
        };
        let Some(socket) = &slot.socket else { return Progress::Blocked };
        if !rights.is_empty() {
            advance(transfer, 0); // An empty piece has no byte that they could go with.
            match with_slices(transfer, |bufs| send_with(socket, bufs, &rights)).0 {
                Ok(sent) => advance(transfer, sent),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Progress::Blocked;
                }
                Err(error) => return Progress::Failed(error),
            }
        }
        push(socket, transfer, slot.flags.contains(Flags::BLOCKING))
    }

    /// The handles that go with the next bytes of `write`; `None` if the pipe passes none.
    #[cfg(windows)]
    pub(super) fn handles_due(&mut self, key: Token, write: Token) -> Option<Vec<AnyHandle>> {
        let passing = self.streams.slots.get_mut(key)?.passing.as_mut()?;
        passing.forget_told(&self.streams.transfers);
        Some(passing.due(write).to_vec())
    }

    /// What is passed for them.
    #[cfg(windows)]
    pub(super) fn rights_due(&self, handles: &[AnyHandle]) -> io::Result<Rights> {
        self.rights_of(handles).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => error,
            _ => closed(),
        })
    }

    /// Writes at once, and passes handles with the first byte.
    pub(crate) fn try_write_with(
        &mut self,
        key: Token,
        bytes: &[u8],
        handles: &[AnyHandle],
    ) -> io::Result<usize> {
        self.check_passing(key, handles, bytes.len())?;
        let rights = self.rights_of(handles)?;
        let socket = self.idle_writer(key)?;
        send_with(socket, &[IoSlice::new(bytes)], &rights)
    }

    /// Can these go over that pipe?
    pub(super) fn check_passing(
        &mut self,
        key: Token,
        handles: &[AnyHandle],
        size: usize,
    ) -> io::Result<()> {
        let invalid = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        let slot = self.streams.open(key)?;
        if slot.passing.is_none() {
            return invalid("the pipe does not pass handles: enable that on both sides");
        }
        if size == 0 {
            return invalid("handles go with a byte: there must be one at least");
        }
        if handles.len() > sys::MOST_HANDLES {
            return invalid("no more than 253 handles go with one write");
        }
        handles.iter().try_for_each(|handle| self.passable(*handle).map(drop))
    }

    fn rights_of(&self, handles: &[AnyHandle]) -> io::Result<Rights> {
        let mut rights = Rights::NONE;
        for handle in handles {
            rights.push(self.passable(*handle)?);
        }
        Ok(rights)
    }

    /// What is passed for a handle.
    fn passable(&self, handle: AnyHandle) -> io::Result<RawSource> {
        match handle {
            AnyHandle::Tcp(_) | AnyHandle::Pipe(_) => {
                let slot = self.streams.slots.get(handle.key()).ok_or_else(error::stale)?;
                slot.socket.as_ref().ok_or_else(closed)?.passable()
            }
            AnyHandle::Udp(_) => {
                let slot = self.udps.get(handle.key()).ok_or_else(error::stale)?;
                slot.source().ok_or_else(closed)
            }
            _ => {
                let why = "TCP, UDP and pipe handles can be passed, and no others";
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
        }
    }
}

/// What is to be passed is not open any more.
fn closed() -> io::Error {
    io::Error::from_raw_os_error(code::EBADF)
}

/// One system call. A lack of kernel memory for now is as good as a full socket.
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
