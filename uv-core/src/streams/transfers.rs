//! Reads and writes that wait, or wait to call back, in lists of their stream.

use std::io;

use poll_core::{Backend, Token};

use crate::arena::Arena;
use crate::streams::stored::Stored;

/// Where a transfer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In the list of writes.
    Writing,
    /// In the list of reads.
    Reading,
    /// In the list of those that are to call back.
    Done,
}

/// A read or write request: an element of one of its stream's lists.
#[derive(Debug)]
pub(crate) struct Transfer<B: Backend> {
    pub(crate) stored: Stored<B>,
    pub(crate) stream: Token,
    pub(crate) state: State,
    /// Bytes that are still to be written.
    pub(crate) left: usize,
    /// Bytes that were written or read.
    pub(crate) moved: usize,
    /// Where writing goes on: a piece, and how much of it is written.
    pub(crate) piece: usize,
    pub(crate) offset: usize,
    /// Why it failed, if it did.
    pub(crate) error: Option<io::Error>,
    /// An operation has its buffer.
    pub(crate) lent: bool,
    /// It is over when the operation is.
    pub(crate) cancelled: bool,
    previous: Token,
    next: Token,
}

/// The neighbour of the first and of the last.
const NOBODY: Token = Token::new(u32::MAX, Token::MAX_GENERATION);

impl<B: Backend> Transfer<B> {
    pub(crate) fn new(stored: Stored<B>, stream: Token, state: State, left: usize) -> Self {
        Transfer {
            stored,
            stream,
            state,
            left,
            moved: 0,
            piece: 0,
            offset: 0,
            error: None,
            lent: false,
            cancelled: false,
            previous: NOBODY,
            next: NOBODY,
        }
    }

    /// The one behind it in its list.
    pub(crate) fn next(&self) -> Option<Token> {
        (self.next != NOBODY).then_some(self.next)
    }

    /// A write of which nothing has left yet.
    pub(crate) fn is_new(&self) -> bool {
        self.state == State::Writing && self.moved == 0
    }
}

/// A list of transfers, first in, first out, threaded through them.
#[derive(Debug)]
pub(crate) struct List {
    first: Token,
    last: Token,
}

impl Default for List {
    fn default() -> List {
        List { first: NOBODY, last: NOBODY }
    }
}

impl List {
    pub(crate) fn is_empty(&self) -> bool {
        self.first == NOBODY
    }

    pub(crate) fn first(&self) -> Option<Token> {
        (self.first != NOBODY).then_some(self.first)
    }

    pub(crate) fn last(&self) -> Option<Token> {
        (self.last != NOBODY).then_some(self.last)
    }

    /// Appends one that is in no list.
    pub(crate) fn push<B: Backend>(&mut self, transfers: &mut Arena<Transfer<B>>, key: Token) {
        match transfers.get_mut(self.last) {
            Some(last) => last.next = key,
            None => self.first = key,
        }
        if let Some(transfer) = transfers.get_mut(key) {
            transfer.previous = self.last;
            transfer.next = NOBODY;
        }
        self.last = key;
    }

    /// Takes out one that is in this list.
    pub(crate) fn unlink<B: Backend>(&mut self, transfers: &mut Arena<Transfer<B>>, key: Token) {
        let Some(transfer) = transfers.get_mut(key) else { return };
        let (previous, next) = (transfer.previous, transfer.next);
        match transfers.get_mut(previous) {
            Some(previous) => previous.next = next,
            None => self.first = next,
        }
        match transfers.get_mut(next) {
            Some(next) => next.previous = previous,
            None => self.last = previous,
        }
    }
}
