//! Registered sources, and the owners that get their readiness.

#![allow(unsafe_code)]

use std::io;

use poll_core::{Backend, Interest, Mode, RawSource, Token};

use crate::handles::{Poll, Process, Udp};
use crate::{Loop, streams};

/// The owner of a source.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SourceOwner {
    Poll(Poll),
    Stream(Token),
    Udp(Udp),
    Process(Process),
    /// All file system watchers.
    FsEvents,
}

impl<B: Backend> Loop<B> {
    /// Registers a source without interest. Its owner keeps it open until [`Loop::unwatch`]. The
    /// first interest is `READ`, because backends detect only then that a source cannot be polled.
    pub(crate) fn watch(&mut self, owner: SourceOwner, raw: RawSource) -> io::Result<Token> {
        let token = self.watch_for(owner, raw, Interest::READ)?;
        match self.backend.modify(token, Interest::NONE, Mode::Level) {
            Ok(()) => Ok(token),
            Err(error) => {
                self.sources.remove(token);
                Err(error)
            }
        }
    }

    /// Registers a socket that can be polled, with its first interest. An idle handle of the same
    /// descriptor loses its registration.
    pub(crate) fn watch_for(
        &mut self,
        owner: SourceOwner,
        raw: RawSource,
        interest: Interest,
    ) -> io::Result<Token> {
        let token = self.sources.insert(owner);
        // SAFETY: the owner's slot keeps the source open until it has called `unwatch`,
        // or until the loop is dropped, whose backend goes first. A poll's slot has the owner
        // that `Poll::new` was given, or the promise of `Poll::from_raw_source`.
        let mut registered = unsafe { self.backend.register(token, raw, interest, Mode::Level) };
        if let Err(error) = &registered
            && error.kind() == io::ErrorKind::AlreadyExists
            && streams::handover::release_idle_source(self, raw)
        {
            // SAFETY: as above.
            registered = unsafe { self.backend.register(token, raw, interest, Mode::Level) };
        }
        match registered {
            Ok(()) => Ok(token),
            Err(error) => {
                self.sources.remove(token);
                Err(error)
            }
        }
    }

    /// Ends a registration. Its events that are not dispatched yet find no owner.
    pub(crate) fn unwatch(&mut self, token: Token) {
        self.sources.remove(token);
        // The token is free even if this fails.
        let _ = self.backend.deregister(token);
    }
}
