//! A complete backend over `poll(2)`, with the required methods only.

use std::io;
use std::time::Duration;

use poll_core::{
    Backend, Deadline, Event, Interest, Mode, RawSource, Readiness, Registry, SocketWaker, Token,
};

/// Watches through `poll(2)`, rebuilding its list for every wait.
#[derive(Debug)]
pub struct Minimal {
    sources: Registry<(Interest, Mode)>,
    list: Vec<libc::pollfd>,
    waker: SocketWaker,
}

impl Minimal {
    /// Creates the backend.
    pub fn new() -> io::Result<Minimal> {
        Ok(Minimal { sources: Registry::default(), list: Vec::new(), waker: SocketWaker::new()? })
    }
}

// SAFETY: it performs no operations. The kernel uses the sources during `poll(2)` only,
// `deregister` removes them from the registry, and no call closes them.
unsafe impl Backend for Minimal {
    type Waker = SocketWaker;

    fn waker(&self) -> SocketWaker {
        self.waker.clone()
    }

    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()> {
        check(interest, mode)?;
        self.sources.insert(token, source, (interest, mode)).map(drop)
    }

    fn modify(&mut self, token: Token, interest: Interest, mode: Mode) -> io::Result<()> {
        check(interest, mode)?;
        *self.sources.get_mut(token)? = (interest, mode);
        Ok(())
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        self.sources.remove(token).map(drop)
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        let (before, deadline) = (events.len(), Deadline::start(timeout));
        let mut left = timeout;
        loop {
            if left != Some(Duration::ZERO) && !self.waker.prepare_park() {
                left = Some(Duration::ZERO); // A wake is pending.
            }
            let result = self.poll(left);
            let signalled = result.is_ok() && self.list[0].revents != 0;
            let woken = self.waker.unpark(signalled);
            match result {
                Ok(()) => self.report(events),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
                Err(error) => return Err(error),
            }
            // A late signal is spurious: the wait continues for the time left.
            left = deadline.left();
            if woken || events.len() > before || left == Some(Duration::ZERO) {
                return Ok(());
            }
        }
    }

    fn after_fork(&mut self) -> io::Result<()> {
        self.waker.after_fork()
    }
}

impl Minimal {
    /// Makes the system call on the waker's source and on every source with an interest.
    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.list.clear();
        self.list.push(pollfd(self.waker.source(), Interest::READ));
        for (_, source, &mut (interest, _)) in self.sources.iter_mut() {
            if !interest.is_empty() {
                self.list.push(pollfd(source, interest));
            }
        }
        // Rounded up: a wait may return late, but not early.
        let ms = timeout.map_or(-1, |t| t.as_nanos().div_ceil(1_000_000).min(1 << 30) as i32);
        // SAFETY: pointer and length describe `self.list`, which outlives the call.
        match unsafe { libc::poll(self.list.as_mut_ptr(), self.list.len() as _, ms) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn report(&mut self, events: &mut Vec<Event>) {
        for polled in self.list[1..].iter().filter(|polled| polled.revents != 0) {
            let source = RawSource::from_fd(polled.fd);
            let token = self.sources.token_of(source).expect("only registered sources are polled");
            let (interest, mode) = self.sources.get_mut(token).expect("it is registered");
            events.push(Event::Ready { token, ready: interest.report(seen(polled.revents)) });
            if *mode == Mode::Oneshot || polled.revents & libc::POLLNVAL != 0 {
                *interest = Interest::NONE; // The one-shot has fired, or the descriptor is closed.
            }
        }
    }
}

fn check(interest: Interest, mode: Mode) -> io::Result<()> {
    if mode == Mode::Edge || interest.contains(Interest::DISCONNECT) {
        let why = "this backend supports neither Mode::Edge nor Interest::DISCONNECT";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(())
}

const MAP: [(i16, Readiness); 6] = [
    (libc::POLLIN, Readiness::READ),
    (libc::POLLOUT, Readiness::WRITE),
    (libc::POLLPRI, Readiness::PRIORITY),
    (libc::POLLHUP, Readiness::HANGUP),
    (libc::POLLERR, Readiness::ERROR),
    (libc::POLLNVAL, Readiness::ERROR),
];

fn pollfd(source: RawSource, interest: Interest) -> libc::pollfd {
    let asked = MAP[..3].iter().filter(|(_, ready)| interest.to_readiness().contains(*ready));
    libc::pollfd { fd: source.fd(), events: asked.map(|(bit, _)| bit).sum(), revents: 0 }
}

fn seen(revents: i16) -> Readiness {
    MAP.iter().filter(|(bit, _)| revents & bit != 0).map(|(_, ready)| *ready).collect()
}
