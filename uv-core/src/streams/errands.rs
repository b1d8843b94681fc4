//! What a stream is asked for once or twice in its life: to connect, to shut down, to listen at a
//! name.
//!
//! Thousands of streams mostly do none of it, so that a slot has room for no more than a pointer.
//! The memory goes from one stream to the next.

use std::io;
#[cfg(windows)]
use std::num::NonZeroUsize;

use poll_core::{Backend, Token};
use socket2::SockAddr;

use super::{Ended, StreamSlot, Streams};
use crate::callback::Once;
#[cfg(windows)]
use crate::handles::GivenUp;
use crate::handles::Keepalive;
use crate::sys;

/// How many are kept for streams to come.
const KEPT: usize = 256;

/// What was asked for and is not over, and what was said to a socket that does not exist yet.
#[derive(Debug)]
pub(crate) struct Errands<B: Backend> {
    pub(super) connect: Option<Once<B, Ended>>,
    /// How the connect went, if that is to be told.
    pub(super) connected: Option<io::Result<()>>,
    /// Where to, for the operation that connects, which has it until it ends.
    pub(super) address: Option<SockAddr>,
    pub(super) shutdown: Option<Once<B, Ended>>,
    /// How a connection is probed whose socket is not made yet.
    pub(crate) keepalive: Option<Keepalive>,
    /// Why it could not be bound, told by those that need that.
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

impl<B: Backend> Default for Errands<B> {
    fn default() -> Self {
        Errands {
            connect: None,
            connected: None,
            address: None,
            shutdown: None,
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

impl<B: Backend> Errands<B> {
    /// The stream is closing: what was said to its socket is not wanted any more. Returns the
    /// name that goes with it.
    pub(super) fn stop(&mut self) -> Option<sys::BoundPath> {
        (self.keepalive, self.bind_error) = (None, None);
        #[cfg(windows)]
        let _ = (self.instances.take(), self.waits_for_instance.take());
        self.path.take()
    }

    fn are_done(&self) -> bool {
        let said = self.keepalive.is_some() || self.bind_error.is_some() || self.path.is_some();
        #[cfg(windows)]
        let said = said || self.instances.is_some() || self.waits_for_instance.is_some();
        let connects = self.connect.is_some() || self.connected.is_some() || self.address.is_some();
        !said && !connects && self.shutdown.is_none()
    }
}

/// Memory for errands to come.
#[derive(Debug)]
pub(super) struct SpareErrands<B: Backend>(
    #[allow(clippy::vec_box, reason = "a slot has room for a pointer")] Vec<Box<Errands<B>>>,
);

impl<B: Backend> Default for SpareErrands<B> {
    fn default() -> Self {
        SpareErrands(Vec::new())
    }
}

impl<B: Backend> StreamSlot<B> {
    /// True if it is known how a connect went.
    pub(super) fn knows_connected(&self) -> bool {
        self.errands.as_ref().is_some_and(|errands| errands.connected.is_some())
    }
}

impl<B: Backend> Streams<B> {
    /// The errands of a stream, of which there may be more from now on.
    pub(crate) fn errands(&mut self, key: Token) -> Option<&mut Errands<B>> {
        let slot = self.slots.get_mut(key)?;
        Some(slot.errands.get_or_insert_with(|| self.spare_errands.0.pop().unwrap_or_default()))
    }

    /// One of a stream's errands is over: if it was the last, others may have the memory.
    pub(crate) fn end_errand(&mut self, key: Token) {
        if let Some(slot) = self.slots.get_mut(key)
            && let Some(errands) = slot.errands.take_if(|errands| errands.are_done())
            && self.spare_errands.0.len() < KEPT
        {
            self.spare_errands.0.push(errands);
        }
    }
}
