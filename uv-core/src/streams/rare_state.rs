//! Rarely used state of a stream: of a connect, a shutdown, a bound name.
//!
//! Most of thousands of streams have none, so that a slot has a pointer to it. The boxes go from
//! one stream to the next.

use std::collections::VecDeque;
use std::io;
#[cfg(windows)]
use std::num::NonZeroUsize;

use poll_core::{Backend, Token};
use socket2::SockAddr;

use super::output::send_file::FileSend;
use super::{Ended, StreamSlot, Streams};
#[cfg(windows)]
use crate::handles::GivenUp;
use crate::handles::Keepalive;
use crate::storage::InlineFnOnce;
use crate::{error, sys};

/// How many are kept for streams to come.
const KEPT: usize = 256;

/// Requests that have not called back, and options of a socket that does not exist yet.
#[derive(Debug)]
pub(crate) struct RareState<B: Backend> {
    pub(super) connect: Option<InlineFnOnce<B, Ended>>,
    /// The result of the connect, until it is reported.
    pub(super) connected: Option<io::Result<()>>,
    /// The address, for a call if the operation that connects is refused or was the parent's.
    pub(super) address: Option<SockAddr>,
    pub(super) shutdown: Option<InlineFnOnce<B, Ended>>,
    /// The files among the queued writes, in their order.
    pub(super) files: VecDeque<FileSend>,
    /// How a connection is probed whose socket is not made yet.
    pub(crate) keepalive: Option<Keepalive>,
    /// Why it could not be bound: the error of calls that need the address.
    pub(crate) bind_error: Option<i32>,
    /// Where a pipe is bound, if that is a file.
    pub(crate) path: Option<sys::BoundPath>,
    /// How many clients a listener waits for at a time.
    #[cfg(windows)]
    pub(crate) instances: Option<NonZeroUsize>,
    /// A connect waits for a server that is free.
    #[cfg(windows)]
    pub(crate) waits_for_instance: Option<GivenUp>,
}

impl<B: Backend> Default for RareState<B> {
    fn default() -> Self {
        RareState {
            connect: None,
            connected: None,
            address: None,
            shutdown: None,
            files: VecDeque::new(),
            keepalive: None,
            bind_error: None,
            path: None,
            #[cfg(windows)]
            instances: None,
            #[cfg(windows)]
            waits_for_instance: None,
        }
    }
}

impl<B: Backend> RareState<B> {
    /// The stream is closing: drops the options of its socket, and cancels the connect. Returns the
    /// name that is removed with it.
    pub(super) fn stop(&mut self) -> Option<sys::BoundPath> {
        (self.keepalive, self.bind_error) = (None, None);
        self.files.clear();
        if self.connect.is_some() {
            // Whatever the kernel has answered: the callback has not run.
            self.connected = Some(Err(error::cancelled()));
        }
        #[cfg(windows)]
        let _ = (self.instances.take(), self.waits_for_instance.take());
        self.path.take()
    }

    fn are_done(&self) -> bool {
        let options = self.keepalive.is_some() || self.bind_error.is_some() || self.path.is_some();
        #[cfg(windows)]
        let options = options || self.instances.is_some() || self.waits_for_instance.is_some();
        let connects = self.connect.is_some() || self.connected.is_some() || self.address.is_some();
        !options && !connects && self.shutdown.is_none() && self.files.is_empty()
    }
}

/// Boxes for later use.
#[derive(Debug)]
pub(super) struct SpareRareState<B: Backend>(
    #[allow(clippy::vec_box, reason = "a slot has storage for a pointer")] Vec<Box<RareState<B>>>,
);

impl<B: Backend> Default for SpareRareState<B> {
    fn default() -> Self {
        SpareRareState(Vec::new())
    }
}

impl<B: Backend> StreamSlot<B> {
    /// True if it is known how a connect went.
    pub(super) fn knows_connected(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.connected.is_some())
    }
}

impl<B: Backend> Streams<B> {
    /// The state of a stream, which is created if there is none.
    pub(crate) fn rare(&mut self, key: Token) -> Option<&mut RareState<B>> {
        let slot = self.slots.get_mut(key)?;
        Some(slot.rare.get_or_insert_with(|| self.spare_rare_state.0.pop().unwrap_or_default()))
    }

    /// A request of the stream has ended: if it was the last, other streams may use the box.
    pub(crate) fn release_rare_state(&mut self, key: Token) {
        if let Some(slot) = self.slots.get_mut(key)
            && let Some(rare) = slot.rare.take_if(|rare| rare.are_done())
            && self.spare_rare_state.0.len() < KEPT
        {
            self.spare_rare_state.0.push(rare);
        }
    }
}
