//! Who a readiness event is for.

#![allow(unsafe_code)]

use std::io;

use poll_core::{Backend, Mode, RawSource, Ready, Token};

use crate::Loop;
use crate::handles::{Poll, Process, Udp};

/// Whose source it is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owner {
    Poll(Poll),
    Stream(Token),
    Udp(Udp),
    Process(Process),
    /// All that watch for changes.
    FsEvents,
}

impl<B: Backend> Loop<B> {
    /// Registers a source, silent for now, that its owner keeps open until
    /// [`Loop::unwatch`]. Asks for readability first, because backends that can know
    /// that a source cannot be polled say so then.
    pub(crate) fn watch(&mut self, owner: Owner, raw: RawSource) -> io::Result<Token> {
        let token = self.sources.insert(owner);
        // SAFETY: the owner's slot keeps the source open until it has called `unwatch`,
        // or until the loop is dropped, whose backend goes first.
        let registered = unsafe { self.backend.register(token, raw, Ready::READ, Mode::Level) };
        let silent = registered.and_then(|()| self.backend.modify(token, Ready::NONE, Mode::Level));
        match silent {
            Ok(()) => Ok(token),
            Err(error) => {
                self.sources.remove(token);
                Err(error)
            }
        }
    }

    /// Registers a socket that can be polled, with what it waits for first.
    pub(crate) fn watch_for(
        &mut self,
        owner: Owner,
        raw: RawSource,
        interest: Ready,
    ) -> io::Result<Token> {
        let token = self.sources.insert(owner);
        // SAFETY: as in `watch`.
        let registered = unsafe { self.backend.register(token, raw, interest, Mode::Level) };
        match registered {
            Ok(()) => Ok(token),
            Err(error) => {
                self.sources.remove(token);
                Err(error)
            }
        }
    }

    /// Ends a registration. Events of it that are still in the batch find nobody.
    pub(crate) fn unwatch(&mut self, token: Token) {
        self.sources.remove(token);
        // Whatever it says, the token is not registered any more.
        let _ = self.backend.deregister(token);
    }
}
