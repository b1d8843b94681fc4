//! The sends of a socket that have not called back.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use poll_core::Backend;

use crate::error;
use crate::operations::Flight;
use crate::streams::Stored;
use crate::sys::datagrams::Outgoing;

/// A send that the kernel has not taken.
#[derive(Debug)]
pub(super) struct Unsent<B: Backend> {
    pub(super) stored: Stored<B>,
    pub(super) to: Option<SocketAddr>,
    pub(super) length: usize,
}

impl<B: Backend> Outgoing for Unsent<B> {
    fn to(&self) -> Option<SocketAddr> {
        self.to
    }

    fn pieces(&self) -> usize {
        self.stored.pieces()
    }

    fn piece(&self, index: usize) -> &[u8] {
        self.stored.piece(index)
    }
}

/// A send that is to call back.
#[derive(Debug)]
pub(super) struct Ended<B: Backend> {
    pub(super) stored: Stored<B>,
    pub(super) length: usize,
    pub(super) result: io::Result<usize>,
}

/// The sends of one socket, in order: first those that have ended.
#[derive(Debug)]
pub(crate) struct Sends<B: Backend> {
    pub(super) ended: VecDeque<Ended<B>>,
    pub(super) unsent: VecDeque<Unsent<B>>,
    /// The bytes of all of them.
    pub(super) size: usize,
    /// A pending phase will tell of those that have ended.
    pub(super) is_pending: bool,
    /// They are being told of.
    pub(super) is_telling: bool,
    /// New ones wait for each other, to be sent together: callbacks are under way that are
    /// likely to send more.
    pub(super) is_corked: bool,
    /// The operation that sends the first of those that wait.
    pub(super) flight: Option<Flight>,
    /// Those that wait are sent before the loop waits.
    pub(super) in_outbox: bool,
}

impl<B: Backend> Default for Sends<B> {
    fn default() -> Self {
        Sends {
            ended: VecDeque::new(),
            unsent: VecDeque::new(),
            size: 0,
            is_pending: false,
            is_telling: false,
            is_corked: false,
            flight: None,
            in_outbox: false,
        }
    }
}

impl<B: Backend> Sends<B> {
    pub(super) fn any_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// True if some are to go when the kernel takes more.
    pub(super) fn wait_for_kernel(&self) -> bool {
        !self.unsent.is_empty() && !self.is_corked && self.flight.is_none()
    }

    /// How many wait, with the one that an operation sends.
    pub(super) fn waiting(&self) -> usize {
        self.unsent.len()
    }

    /// The first that waits.
    pub(super) fn first(&self) -> Option<&Unsent<B>> {
        self.unsent.front()
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.flight.is_some()
    }

    pub(super) fn count(&self) -> usize {
        self.ended.len() + self.unsent.len()
    }

    pub(super) fn end(&mut self, send: Unsent<B>, result: io::Result<usize>) {
        let Unsent { stored, length, .. } = send;
        self.ended.push_back(Ended { stored, length, result });
    }

    /// Ends the first that waits.
    pub(super) fn end_first(&mut self, result: io::Result<usize>) {
        if let Some(send) = self.unsent.pop_front() {
            self.end(send, result);
        }
    }

    /// Ends the first `count` that wait: the kernel has taken them.
    pub(super) fn end_sent(&mut self, count: usize) {
        for Unsent { stored, length, .. } in self.unsent.drain(..count) {
            self.ended.push_back(Ended { stored, length, result: Ok(length) });
        }
    }

    /// Cancels those that wait, none of which an operation sends.
    pub(super) fn cancel(&mut self) {
        while !self.unsent.is_empty() {
            self.end_first(Err(error::cancelled()));
        }
    }

    /// The handle is closing: cancels those that wait, if need be when the operation has ended.
    pub(super) fn leave(&mut self, backend: &mut B) {
        match &mut self.flight {
            Some(flight) => flight.cancel(backend),
            None => self.cancel(),
        }
    }
}
