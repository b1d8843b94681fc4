//! The send queue of a UDP socket: sends whose callbacks have not run.

use std::collections::VecDeque;
use std::io;

use poll_core::Backend;

use crate::error;
use crate::event_loop::InFlight;
use crate::streams::BufferedRequest;
use crate::sys::datagrams::{Address, Outgoing, Target};

/// A send that the kernel has not accepted.
#[derive(Debug)]
pub(super) struct Unsent<B: Backend> {
    pub(super) stored: BufferedRequest<B>,
    pub(super) to: Address,
    pub(super) length: usize,
}

impl<B: Backend> Outgoing for Unsent<B> {
    fn to(&self) -> Target<'_> {
        self.to.target()
    }

    fn pieces(&self) -> usize {
        self.stored.pieces()
    }

    fn piece(&self, index: usize) -> &[u8] {
        self.stored.piece(index)
    }
}

/// A send that has succeeded or failed, and whose callback has not run.
#[derive(Debug)]
pub(super) struct CompletedSend<B: Backend> {
    pub(super) stored: BufferedRequest<B>,
    pub(super) length: usize,
    pub(super) result: io::Result<usize>,
}

/// The sends of one socket. All of `completed` precede all of `unsent`.
#[derive(Debug)]
pub(crate) struct Sends<B: Backend> {
    pub(super) completed: VecDeque<CompletedSend<B>>,
    pub(super) unsent: VecDeque<Unsent<B>>,
    /// Bytes in both queues.
    pub(super) size: usize,
    /// A deferred call that runs the callbacks of `completed` is queued.
    pub(super) completion_scheduled: bool,
    /// [`crate::handles::udp::send::run_callbacks`] is running for this socket.
    pub(super) completing: bool,
    /// New sends are queued, to leave as one batch: callbacks are running that are likely to send
    /// more.
    pub(super) is_corked: bool,
    /// The operation that sends the first of `unsent`.
    pub(super) flight: Option<InFlight>,
    /// The socket is in the loop's flush queue.
    pub(super) in_flush_queue: bool,
}

impl<B: Backend> Default for Sends<B> {
    fn default() -> Self {
        Sends {
            completed: VecDeque::new(),
            unsent: VecDeque::new(),
            size: 0,
            completion_scheduled: false,
            completing: false,
            is_corked: false,
            flight: None,
            in_flush_queue: false,
        }
    }
}

impl<B: Backend> Sends<B> {
    pub(super) fn any_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// True if the queue waits for the kernel to accept more.
    pub(super) fn wait_for_kernel(&self) -> bool {
        !self.unsent.is_empty() && !self.is_corked && self.flight.is_none()
    }

    /// The number of unsent datagrams, including the one in flight.
    pub(super) fn unsent_count(&self) -> usize {
        self.unsent.len()
    }

    /// The first unsent datagram.
    pub(super) fn first(&self) -> Option<&Unsent<B>> {
        self.unsent.front()
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.flight.is_some()
    }

    pub(super) fn count(&self) -> usize {
        self.completed.len() + self.unsent.len()
    }

    pub(super) fn complete(&mut self, send: Unsent<B>, result: io::Result<usize>) {
        let Unsent { stored, length, .. } = send;
        self.completed.push_back(CompletedSend { stored, length, result });
    }

    /// Completes the first unsent datagram, unless an operation uses its buffer.
    pub(super) fn complete_first(&mut self, result: io::Result<usize>) {
        if self.flight.is_none()
            && let Some(send) = self.unsent.pop_front()
        {
            self.complete(send, result);
        }
    }

    /// Completes the first `count` unsent datagrams: the kernel has accepted them.
    pub(super) fn complete_sent(&mut self, count: usize) {
        assert!(self.flight.is_none(), "an operation uses the first buffer");
        for Unsent { stored, length, .. } in self.unsent.drain(..count) {
            self.completed.push_back(CompletedSend { stored, length, result: Ok(length) });
        }
    }

    /// Cancels all unsent datagrams, unless an operation sends the first.
    pub(super) fn cancel(&mut self) {
        while self.flight.is_none() && !self.unsent.is_empty() {
            self.complete_first(Err(error::cancelled()));
        }
    }

    /// Cancels all unsent datagrams of a closing handle. If one is in flight, its operation is
    /// cancelled first and its completion cancels the rest.
    pub(super) fn cancel_on_close(&mut self, backend: &mut B) {
        match &mut self.flight {
            Some(flight) => flight.cancel(backend),
            None => self.cancel(),
        }
    }
}
