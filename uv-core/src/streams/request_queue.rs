//! The queues of a stream's read and write requests.
//!
//! An operation borrows the buffer of a request from [`IoRequest::lend`] until its last completion,
//! which calls [`IoRequest::take_back`]. Until then the request stays in the arena: [`remove`], the
//! only way to take it out, refuses it. So no other event and no wrong key can free or return the
//! buffer.

use std::io;

use poll_core::{Backend, Token};

use crate::storage::Arena;
use crate::streams::buffered_request::BufferedRequest;

/// The list that a request is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In the list of writes.
    Writing,
    /// In the list of reads.
    Reading,
    /// In the list of requests that call back.
    Done,
}

/// A read or write request: an element of one of its stream's lists.
#[derive(Debug)]
pub(crate) struct IoRequest<B: Backend> {
    buffered: BufferedRequest<B>,
    pub(crate) stream: Token,
    pub(crate) state: State,
    /// The number of bytes that are not written yet.
    pub(crate) left: usize,
    /// The number of bytes written or read.
    pub(crate) moved: usize,
    /// The position of the next byte to write: the index of a piece, and the offset in it.
    pub(crate) piece: usize,
    pub(crate) offset: usize,
    /// The error of a failed request.
    pub(crate) error: Option<io::Error>,
    /// An operation has the buffer.
    lent: bool,
    /// Cancelled while lent: the request finishes when the operation completes.
    pub(crate) cancelled: bool,
    previous: Token,
    next: Token,
}

/// The end of a list.
const SENTINEL: Token = Token::new(u32::MAX, Token::MAX_GENERATION);

impl<B: Backend> IoRequest<B> {
    pub(crate) fn new(
        buffered: BufferedRequest<B>,
        stream: Token,
        state: State,
        left: usize,
    ) -> Self {
        IoRequest {
            buffered,
            stream,
            state,
            left,
            moved: 0,
            piece: 0,
            offset: 0,
            error: None,
            lent: false,
            cancelled: false,
            previous: SENTINEL,
            next: SENTINEL,
        }
    }

    /// The request, for the pieces to write.
    pub(crate) fn buffered(&self) -> &BufferedRequest<B> {
        &self.buffered
    }

    /// The memory to fill; empty while an operation has it.
    pub(crate) fn memory(&mut self) -> &mut [u8] {
        if self.lent { &mut [] } else { self.buffered.memory() }
    }

    /// The buffer and the callback of a request that was [removed](remove).
    pub(crate) fn into_buffered(self) -> BufferedRequest<B> {
        self.buffered
    }

    /// Lends the buffer to an operation.
    pub(crate) fn lend(&mut self) {
        self.lent = true;
    }

    /// Ends the loan of the buffer: its operation has completed for the last time, or was not
    /// started. True if the buffer was lent.
    pub(crate) fn take_back(&mut self) -> bool {
        std::mem::replace(&mut self.lent, false)
    }

    /// True if an operation has the buffer.
    pub(crate) fn is_lent(&self) -> bool {
        self.lent
    }

    /// The next request in the list.
    pub(crate) fn next(&self) -> Option<Token> {
        (self.next != SENTINEL).then_some(self.next)
    }

    /// True for a write of which no byte is written yet.
    pub(crate) fn is_new(&self) -> bool {
        self.state == State::Writing && self.moved == 0
    }
}

/// Removes a request from the arena, unless an operation has its buffer.
pub(crate) fn remove<B: Backend>(
    requests: &mut Arena<IoRequest<B>>,
    key: Token,
) -> Option<IoRequest<B>> {
    if requests.get(key)?.lent {
        return None;
    }
    requests.remove(key)
}

/// An intrusive FIFO list of requests.
#[derive(Debug)]
pub(crate) struct List {
    first: Token,
    last: Token,
}

impl Default for List {
    fn default() -> List {
        List { first: SENTINEL, last: SENTINEL }
    }
}

impl List {
    pub(crate) fn is_empty(&self) -> bool {
        self.first == SENTINEL
    }

    pub(crate) fn first(&self) -> Option<Token> {
        (self.first != SENTINEL).then_some(self.first)
    }

    pub(crate) fn last(&self) -> Option<Token> {
        (self.last != SENTINEL).then_some(self.last)
    }

    /// Appends a request that is in no list.
    pub(crate) fn push<B: Backend>(&mut self, requests: &mut Arena<IoRequest<B>>, key: Token) {
        match requests.get_mut(self.last) {
            Some(last) => last.next = key,
            None => self.first = key,
        }
        if let Some(request) = requests.get_mut(key) {
            request.previous = self.last;
            request.next = SENTINEL;
        }
        self.last = key;
    }

    /// Unlinks a request that is in this list.
    pub(crate) fn unlink<B: Backend>(&mut self, requests: &mut Arena<IoRequest<B>>, key: Token) {
        let Some(request) = requests.get_mut(key) else { return };
        let (previous, next) = (request.previous, request.next);
        match requests.get_mut(previous) {
            Some(previous) => previous.next = next,
            None => self.first = next,
        }
        match requests.get_mut(next) {
            Some(next) => next.previous = previous,
            None => self.last = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::DefaultBackend;
    use crate::storage::Seed;

    #[test]
    fn a_request_stays_while_an_operation_has_its_buffer() {
        let mut requests: Arena<IoRequest<DefaultBackend>> = Arena::new(Seed::draw());
        let stored = BufferedRequest::reading(vec![1_u8; 4], |_, _, _, _| {});
        let key = requests.insert(IoRequest::new(stored, SENTINEL, State::Reading, 4));
        assert_eq!(requests.get_mut(key).unwrap().memory(), [1; 4]);
        requests.get_mut(key).unwrap().lend();
        assert!(remove(&mut requests, key).is_none(), "neither freed nor returned");
        let request = requests.get_mut(key).unwrap();
        assert!(request.memory().is_empty(), "nor written to");
        assert!(request.take_back() && !request.take_back());
        assert_eq!(remove(&mut requests, key).unwrap().memory(), [1; 4]);
    }
}
