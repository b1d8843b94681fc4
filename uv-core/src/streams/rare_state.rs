//! Rarely used state of a stream: of a connect, a shutdown, a bound name.
//!
//! Most streams have none, so a slot has only a pointer to it. The boxes are reused.

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

/// The maximal number of boxes that are kept for reuse.
const KEPT: usize = 256;

/// Requests that have not called back, and options of a socket that does not exist yet.
#[derive(Debug)]
pub(crate) struct RareState<B: Backend> {
    pub(super) connect: Option<InlineFnOnce<B, Ended>>,
    /// The result of the connect, until it is reported.
    pub(super) connected: Option<io::Result<()>>,
    /// The address, to connect by a call if the operation is refused or belonged to the parent process.
    pub(super) address: Option<SockAddr>,
    pub(super) shutdown: Option<InlineFnOnce<B, Ended>>,
    /// The files among the queued writes, in their order.
    pub(super) files: VecDeque<FileSend>,
    /// The keep-alive option, for a socket that does not exist yet.
    pub(crate) keepalive: Option<Keepalive>,
    /// The error of the bind: the error of calls that need the address.
    pub(crate) bind_error: Option<i32>,
    /// The path of a bound pipe, if it is a file.
    pub(crate) path: Option<sys::BoundPath>,
    /// The number of pipe instances that wait for clients.
    #[cfg(windows)]
    pub(crate) instances: Option<NonZeroUsize>,
    /// A connect waits for a free instance of the server.
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
    /// path, which is removed when it is dropped.
    pub(super) fn stop(&mut self) -> Option<sys::BoundPath> {
        (self.keepalive, self.bind_error) = (None, None);
        self.files.clear();
        if self.connect.is_some() {
            // Even if the kernel has connected it: the callback has not run.
            self.connected = Some(Err(error::cancelled()));
        }
        #[cfg(windows)]
        let _ = (self.instances.take(), self.waits_for_instance.take());
        self.path.take()
    }

    /// True if nothing is left in it.
    fn is_unused(&self) -> bool {
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
    /// True if the result of a connect is known.
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

    /// A request of the stream has ended: reuses the box if it was the last.
    pub(crate) fn release_rare_state(&mut self, key: Token) {
        if let Some(slot) = self.slots.get_mut(key)
            && let Some(rare) = slot.rare.take_if(|rare| rare.is_unused())
            && self.spare_rare_state.0.len() < KEPT
        {
            self.spare_rare_state.0.push(rare);
        }
    }
}
