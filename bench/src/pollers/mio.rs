//! The crate `mio`: always edge-triggered, without one-shot mode. How a server reads after an event
//! is the choice that it leaves: see `servers::readiness`.

use std::io;
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest as Flags, Poll, Token};
use poll_core::RawSource;

use super::{ENDED, Interest, Poller};

#[derive(Debug)]
pub(crate) struct Mio {
    poll: Poll,
    events: Events,
}

impl Mio {
    pub(crate) fn new() -> io::Result<Mio> {
        Ok(Mio { poll: Poll::new()?, events: Events::with_capacity(1024) })
    }
}

impl Poller for Mio {
    const EDGE: bool = true;

    fn add(&mut self, number: usize, source: RawSource) -> io::Result<()> {
        let (source, token) = (source.fd(), Token(number));
        self.poll.registry().register(&mut SourceFd(&source), token, Flags::READABLE)
    }

    fn change(&mut self, number: usize, source: RawSource, interest: Interest) -> io::Result<()> {
        let flags = match interest {
            Interest::Read | Interest::ReadOnce => Flags::READABLE,
            Interest::Write => Flags::WRITABLE,
        };
        let (source, token) = (source.fd(), Token(number));
        self.poll.registry().reregister(&mut SourceFd(&source), token, flags)
    }

    fn remove(&mut self, _: usize, source: RawSource) -> io::Result<()> {
        self.poll.registry().deregister(&mut SourceFd(&source.fd()))
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<usize>) -> io::Result<()> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result?,
        }
        let ended = |event: &mio::event::Event| if event.is_read_closed() { ENDED } else { 0 };
        ready.extend(self.events.iter().map(|event| event.token().0 | ended(event)));
        Ok(())
    }
}

/// The same, for callers that drain every source: the servers, which need Linux.
#[cfg(target_os = "linux")]
#[derive(Debug)]
pub(crate) struct MioDrain(Mio);

#[cfg(target_os = "linux")]
impl MioDrain {
    pub(crate) fn new() -> io::Result<MioDrain> {
        Ok(MioDrain(Mio::new()?))
    }
}

#[cfg(target_os = "linux")]
impl Poller for MioDrain {
    const EDGE: bool = true;

    fn add(&mut self, number: usize, source: RawSource) -> io::Result<()> {
        self.0.add(number, source)
    }

    fn change(&mut self, number: usize, source: RawSource, interest: Interest) -> io::Result<()> {
        self.0.change(number, source, interest)
    }

    fn remove(&mut self, number: usize, source: RawSource) -> io::Result<()> {
        self.0.remove(number, source)
    }

    fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<usize>) -> io::Result<()> {
        let first = ready.len();
        self.0.wait(timeout, ready)?;
        ready[first..].iter_mut().for_each(|number| *number |= ENDED);
        Ok(())
    }
}
