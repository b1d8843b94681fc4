//! The crate `polling`: level-triggered where supported, otherwise one-shot.
//!
//! Its best: compared with one-shot mode, which is its default, a source need not be modified after
//! each event, which saves a system call.

use std::io;
use std::time::Duration;

use poll_core::RawSource;
use polling::{Event, Events, PollMode, Poller as Crate};

use super::{Interest, Poller};

#[derive(Debug)]
pub(crate) struct Polling {
    poller: Crate,
    events: Events,
}

impl Polling {
    pub(crate) fn new() -> io::Result<Polling> {
        Ok(Polling { poller: Crate::new()?, events: Events::new() })
    }
}

#[cfg(unix)]
fn borrowed<'a>(source: RawSource) -> std::os::fd::BorrowedFd<'a> {
    // SAFETY: the callers keep sources open until they are removed or the poller is dropped.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(source.fd()) }
}

#[cfg(windows)]
fn borrowed<'a>(source: RawSource) -> std::os::windows::io::BorrowedSocket<'a> {
    // SAFETY: the callers keep sources open until they are removed or the poller is dropped.
    unsafe { std::os::windows::io::BorrowedSocket::borrow_raw(source.socket()) }
}

/// Level-triggered mode, if supported: one-shot mode needs a re-arm after each event.
fn level() -> PollMode {
    if cfg!(unix) { PollMode::Level } else { PollMode::Oneshot }
}

impl Poller for Polling {
    // Not on Windows, which has no level-triggered mode either.
    const EDGE: bool = !cfg!(unix);

    fn add(&mut self, number: usize, source: RawSource) -> io::Result<()> {
        let (source, event) = (borrowed(source), Event::readable(number));
        // SAFETY: the callers keep sources open until they are removed or the poller is dropped.
        unsafe { self.poller.add_with_mode(&source, event, level()) }
    }

    fn change(&mut self, number: usize, source: RawSource, interest: Interest) -> io::Result<()> {
        let (event, mode) = match interest {
            Interest::Read => (Event::readable(number), level()),
            Interest::Write => (Event::writable(number), level()),
            Interest::ReadOnce => (Event::readable(number), PollMode::Oneshot),
        };
        self.poller.modify_with_mode(borrowed(source), event, mode)
    }

    fn remove(&mut self, _: usize, source: RawSource) -> io::Result<()> {
        self.poller.delete(borrowed(source))
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<usize>) -> io::Result<()> {
        self.events.clear();
        self.poller.wait(&mut self.events, timeout)?;
        ready.extend(self.events.iter().map(|event| event.key));
        Ok(())
    }
}
