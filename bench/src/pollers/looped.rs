//! The loop of `uv-core` as a poller: a poll handle for each source, and an iteration for each wait.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use poll_core::{Backend, RawSource};
use uv_core::{Handle, Loop, Poll, PollEvents, RunMode};

use super::{Interest, Poller};

#[derive(Debug)]
pub(crate) struct Looped<B: Backend> {
    lp: Loop<B>,
    polls: Vec<Option<Poll>>,
    /// The numbers that the callbacks have reported.
    ready: Rc<RefCell<Vec<usize>>>,
}

impl<B: Backend> Looped<B> {
    pub(crate) fn new(backend: B) -> Looped<B> {
        Looped { lp: Loop::new(backend), polls: Vec::new(), ready: Rc::default() }
    }

    fn poll(&self, number: usize) -> io::Result<Poll> {
        self.polls.get(number).copied().flatten().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn start(&mut self, number: usize, events: PollEvents) -> io::Result<()> {
        let (poll, ready) = (self.poll(number)?, Rc::clone(&self.ready));
        poll.start(&mut self.lp, events, move |_, _, _| ready.borrow_mut().push(number))
    }
}

impl<B: Backend> Poller for Looped<B> {
    fn add(&mut self, number: usize, source: RawSource) -> io::Result<()> {
        // SAFETY: the caller keeps the source open until it is removed or the poller is dropped.
        let poll = unsafe { Poll::from_raw_source(&mut self.lp, source) }?;
        self.polls.resize(self.polls.len().max(number + 1), None);
        self.polls[number] = Some(poll);
        self.start(number, PollEvents::READABLE)
    }

    /// A poll handle has no one-shot mode: it is started again.
    fn change(&mut self, number: usize, _: RawSource, interest: Interest) -> io::Result<()> {
        let events = match interest {
            Interest::Read | Interest::ReadOnce => PollEvents::READABLE,
            Interest::Write => PollEvents::WRITABLE,
        };
        self.start(number, events)
    }

    fn remove(&mut self, number: usize, _: RawSource) -> io::Result<()> {
        let poll = self.poll(number)?;
        self.polls[number] = None;
        poll.close(&mut self.lp)
    }

    /// Waits without a limit, or not at all: the only ways in which it is measured.
    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<usize>) -> io::Result<()> {
        let mode = if timeout.is_none() { RunMode::Once } else { RunMode::NoWait };
        self.lp.run(mode)?;
        ready.append(&mut self.ready.borrow_mut());
        Ok(())
    }
}
