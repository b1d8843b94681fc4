//! Who waits: a backend behind the trait, epoll by hand, mio and polling.

use std::io;
use std::time::Duration;

use poll_core::{Backend, Event, Mode, RawSource, Ready, Token};

use super::Wait;
use super::sources::Socket;
use crate::suite::{Entrants, Who};

/// What all of them can do.
pub(super) trait Poller {
    /// Whether a source that stays ready is reported by every wait.
    const LEVEL: bool = true;

    fn register(&mut self, index: usize, source: &Socket) -> io::Result<()>;
    fn modify_to_oneshot(&mut self, index: usize, source: &Socket) -> io::Result<()>;
    fn modify_to_level(&mut self, index: usize, source: &Socket) -> io::Result<()>;
    fn deregister(&mut self, index: usize, source: &Socket) -> io::Result<()>;

    /// Returns how many sources are ready.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize>;
}

pub(super) fn enter(entrants: &mut Entrants, task: &Wait) {
    #[cfg(target_os = "linux")]
    {
        let task = task.clone();
        entrants.enter(Who::Hand("epoll"), move || task.on(crate::epoll::Epoll::new()?));
    }
    #[cfg(unix)]
    {
        let task = task.clone();
        entrants.enter(Who::Peer("mio"), move || task.on(mio::Mio::new()?));
    }
    #[cfg(not(unix))]
    entrants.excuse(Who::Peer("mio"), "is compared on Unix only");
    let task = task.clone();
    entrants.enter(Who::Peer("polling"), move || task.on(Polling::new()?));
}

/// A backend behind the trait.
#[derive(Debug)]
pub(super) struct Bare<B> {
    backend: B,
    events: Vec<Event>,
}

impl<B: Backend> Bare<B> {
    pub(super) fn new(backend: B) -> Bare<B> {
        Bare { backend, events: Vec::new() }
    }
}

fn token(index: usize) -> Token {
    Token::new(index as u32, 0)
}

impl<B: Backend> Poller for Bare<B> {
    fn register(&mut self, index: usize, source: &Socket) -> io::Result<()> {
        let (token, source) = (token(index), RawSource::of(source));
        // SAFETY: the sockets outlive every contestant that uses them.
        unsafe { self.backend.register(token, source, Ready::READ, Mode::Level) }
    }

    fn modify_to_oneshot(&mut self, index: usize, _: &Socket) -> io::Result<()> {
        self.backend.modify(token(index), Ready::READ, Mode::Oneshot)
    }

    fn modify_to_level(&mut self, index: usize, _: &Socket) -> io::Result<()> {
        self.backend.modify(token(index), Ready::READ, Mode::Level)
    }

    fn deregister(&mut self, index: usize, _: &Socket) -> io::Result<()> {
        self.backend.deregister(token(index))
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.events.clear();
        self.backend.wait(timeout, &mut self.events)?;
        Ok(self.events.len())
    }
}

#[cfg(target_os = "linux")]
impl Poller for crate::epoll::Epoll {
    fn register(&mut self, index: usize, source: &Socket) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        self.control(libc::EPOLL_CTL_ADD, source.as_raw_fd(), libc::EPOLLIN, index as u64)
    }

    fn modify_to_oneshot(&mut self, index: usize, source: &Socket) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let flags = libc::EPOLLIN | libc::EPOLLONESHOT;
        self.control(libc::EPOLL_CTL_MOD, source.as_raw_fd(), flags, index as u64)
    }

    fn modify_to_level(&mut self, index: usize, source: &Socket) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        self.control(libc::EPOLL_CTL_MOD, source.as_raw_fd(), libc::EPOLLIN, index as u64)
    }

    fn deregister(&mut self, _: usize, source: &Socket) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        self.control(libc::EPOLL_CTL_DEL, source.as_raw_fd(), 0, 0)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.wait(timeout.map_or(-1, |timeout| timeout.as_millis() as i32))
    }
}

#[cfg(unix)]
mod mio {
    use std::io;
    use std::os::fd::AsRawFd;
    use std::time::Duration;

    use mio::unix::SourceFd;
    use mio::{Events, Interest, Poll, Token};

    use super::{Poller, Socket};

    /// Edge-triggered always, and never one-shot.
    pub(super) struct Mio {
        poll: Poll,
        events: Events,
    }

    impl Mio {
        pub(super) fn new() -> io::Result<Mio> {
            Ok(Mio { poll: Poll::new()?, events: Events::with_capacity(1024) })
        }

        fn modify(&mut self, token: usize, source: &Socket) -> io::Result<()> {
            let mut source = SourceFd(&source.as_raw_fd());
            self.poll.registry().reregister(&mut source, Token(token), Interest::READABLE)
        }
    }

    impl Poller for Mio {
        const LEVEL: bool = false;

        fn register(&mut self, index: usize, source: &Socket) -> io::Result<()> {
            let mut source = SourceFd(&source.as_raw_fd());
            self.poll.registry().register(&mut source, Token(index), Interest::READABLE)
        }

        fn modify_to_oneshot(&mut self, index: usize, source: &Socket) -> io::Result<()> {
            self.modify(index + 1, source)
        }

        fn modify_to_level(&mut self, index: usize, source: &Socket) -> io::Result<()> {
            self.modify(index, source)
        }

        fn deregister(&mut self, _: usize, source: &Socket) -> io::Result<()> {
            self.poll.registry().deregister(&mut SourceFd(&source.as_raw_fd()))
        }

        fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
            self.poll.poll(&mut self.events, timeout)?;
            Ok(self.events.iter().count())
        }
    }
}

/// The crate `polling`.
struct Polling {
    poller: polling::Poller,
    events: polling::Events,
}

impl Polling {
    fn new() -> io::Result<Polling> {
        Ok(Polling { poller: polling::Poller::new()?, events: polling::Events::new() })
    }

    fn modify(&self, index: usize, source: &Socket, mode: polling::PollMode) -> io::Result<()> {
        self.poller.modify_with_mode(source, polling::Event::readable(index), mode)
    }
}

impl Poller for Polling {
    // Not on Windows.
    const LEVEL: bool = cfg!(unix);

    fn register(&mut self, index: usize, source: &Socket) -> io::Result<()> {
        let mode = level();
        // SAFETY: the sockets outlive every contestant that uses them.
        unsafe { self.poller.add_with_mode(source, polling::Event::readable(index), mode) }
    }

    fn modify_to_oneshot(&mut self, index: usize, source: &Socket) -> io::Result<()> {
        self.modify(index, source, polling::PollMode::Oneshot)
    }

    fn modify_to_level(&mut self, index: usize, source: &Socket) -> io::Result<()> {
        self.modify(index, source, level())
    }

    fn deregister(&mut self, _: usize, source: &Socket) -> io::Result<()> {
        self.poller.delete(source)
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.events.clear();
        self.poller.wait(&mut self.events, timeout)
    }
}

/// Without levels one would have to arm the source again after each report.
fn level() -> polling::PollMode {
    if cfg!(unix) { polling::PollMode::Level } else { polling::PollMode::Oneshot }
}
