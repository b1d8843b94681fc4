//! A whole backend: `poll(2)`, and nothing that the trait does not ask for.

use std::io;
use std::time::Duration;

use poll_core::{Backend, Bell, Countdown, Event, Mode, RawSource, Ready, Registry, Token};

/// Watches through `poll(2)`, rebuilding its list for every wait.
#[derive(Debug)]
pub struct Minimal {
    sources: Registry<(Ready, Mode)>,
    list: Vec<libc::pollfd>,
    bell: Bell,
}

impl Minimal {
    /// Makes the backend.
    pub fn new() -> io::Result<Minimal> {
        Ok(Minimal { sources: Registry::default(), list: Vec::new(), bell: Bell::new()? })
    }
}

impl Backend for Minimal {
    type Waker = Bell;

    fn waker(&self) -> Bell {
        self.bell.clone()
    }

    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Ready,
        mode: Mode,
    ) -> io::Result<()> {
        check(interest, mode)?;
        self.sources.insert(token, source, (interest, mode)).map(drop)
    }

    fn modify(&mut self, token: Token, interest: Ready, mode: Mode) -> io::Result<()> {
        check(interest, mode)?;
        *self.sources.get_mut(token)? = (interest, mode);
        Ok(())
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        self.sources.remove(token).map(drop)
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        let (before, countdown) = (events.len(), Countdown::start(timeout));
        let mut left = timeout;
        loop {
            if left != Some(Duration::ZERO) && !self.bell.sleep() {
                left = Some(Duration::ZERO); // Someone has knocked.
            }
            let result = self.poll(left);
            let rung = result.is_ok() && self.list[0].revents != 0;
            let woken = self.bell.wake_up(rung);
            match result {
                Ok(()) => self.report(events),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
                Err(error) => return Err(error),
            }
            // A bell that rang late ends no wait: the rest of the time is left.
            left = countdown.left();
            if woken || events.len() > before || left == Some(Duration::ZERO) {
                return Ok(());
            }
        }
    }

    fn after_fork(&mut self) -> io::Result<()> {
        self.bell.after_fork()
    }
}

impl Minimal {
    /// Makes the system call, on the bell and on every source that is not silent.
    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.list.clear();
        self.list.push(pollfd(self.bell.source(), Ready::READ));
        for (_, source, &mut (interest, _)) in self.sources.iter_mut() {
            if interest.intersects(Ready::INTEREST) {
                self.list.push(pollfd(source, interest));
            }
        }
        // Rounded up: a wait may be late, never early.
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
            let token = self.sources.token_of(source).expect("only registered ones are polled");
            let (interest, mode) = self.sources.get_mut(token).expect("it is registered");
            events.push(Event::Ready { token, ready: interest.report(seen(polled.revents)) });
            if *mode == Mode::Oneshot || polled.revents & libc::POLLNVAL != 0 {
                *interest = Ready::NONE; // Spent, or closed.
            }
        }
    }
}

fn check(interest: Ready, mode: Mode) -> io::Result<()> {
    if mode == Mode::Edge || interest.contains(Ready::DISCONNECT) {
        let why = "this backend has no edge mode and does not see DISCONNECT";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    Ok(())
}

const MAP: [(i16, Ready); 6] = [
    (libc::POLLIN, Ready::READ),
    (libc::POLLOUT, Ready::WRITE),
    (libc::POLLPRI, Ready::PRIORITY),
    (libc::POLLHUP, Ready::HANGUP),
    (libc::POLLERR, Ready::ERROR),
    (libc::POLLNVAL, Ready::ERROR),
];

fn pollfd(source: RawSource, interest: Ready) -> libc::pollfd {
    let asked = MAP[..3].iter().filter(|(_, ready)| interest.contains(*ready));
    libc::pollfd { fd: source.fd(), events: asked.map(|(bit, _)| bit).sum(), revents: 0 }
}

fn seen(revents: i16) -> Ready {
    MAP.iter().filter(|(bit, _)| revents & bit != 0).map(|(_, ready)| *ready).collect()
}
