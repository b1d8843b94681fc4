//! Who an operation is for that the backend performs.

#![allow(unsafe_code)]

use std::io;

use poll_core::{Backend, Op, Token};

use crate::Loop;

/// Who asked for an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asker {
    /// A request whose task it is.
    Task(Token),
}

impl<B: Backend> Loop<B> {
    /// Submits an operation, whose ends go to `asker`.
    ///
    /// # Safety
    ///
    /// As for [`Backend::submit`]: what `op` names stays valid until its last end, or until
    /// the backend is dropped, which is the first that goes of a loop.
    pub(crate) unsafe fn submit(&mut self, asker: Asker, op: Op) -> io::Result<Token> {
        let token = self.operations.insert(asker);
        // SAFETY: the caller's promise.
        let submitted = unsafe { self.backend.submit(token, op) };
        if submitted.is_err() {
            self.operations.remove(token);
        }
        submitted.map(|()| token)
    }

    /// An operation has produced a result.
    pub(crate) fn operation_done(&mut self, token: Token, result: Result<usize, i32>, more: bool) {
        let asker = match more {
            true => self.operations.get(token).copied(),
            false => self.operations.remove(token),
        };
        match asker {
            Some(Asker::Task(request)) => self.task_done(request, result),
            None => {} // Nobody of this loop's.
        }
    }
}
