//! A backend used through the trait, without a loop.

use std::io;
use std::time::Duration;

use poll_core::{Backend, Event, Interest as Flags, Mode, RawSource, Token};

use super::{Interest, Poller};

/// A backend as a poller.
#[derive(Debug)]
pub(crate) struct Bare<B> {
    backend: B,
    events: Vec<Event>,
}

impl<B: Backend> Bare<B> {
    pub(crate) fn new(backend: B) -> Bare<B> {
        Bare { backend, events: Vec::new() }
    }
}

fn token(number: usize) -> Token {
    Token::new(number as u32, 0)
}

impl<B: Backend> Poller for Bare<B> {
    fn add(&mut self, number: usize, source: RawSource) -> io::Result<()> {
        // SAFETY: the callers keep sources open until they are removed or the poller is dropped.
        unsafe { self.backend.register(token(number), source, Flags::READ, Mode::Level) }
    }

    fn change(&mut self, number: usize, _: RawSource, interest: Interest) -> io::Result<()> {
        let (flags, mode) = match interest {
            Interest::Read => (Flags::READ, Mode::Level),
            Interest::Write => (Flags::WRITE, Mode::Level),
            Interest::ReadOnce => (Flags::READ, Mode::Oneshot),
        };
        self.backend.modify(token(number), flags, mode)
    }

    fn remove(&mut self, number: usize, _: RawSource) -> io::Result<()> {
        self.backend.deregister(token(number))
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<usize>) -> io::Result<()> {
        self.events.clear();
        self.backend.wait(timeout, &mut self.events)?;
        ready.extend(self.events.iter().map(|event| event.token().index() as usize));
        Ok(())
    }
}
