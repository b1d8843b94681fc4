//! A backend over `select`: POSIX's `pselect` on Unix, Winsock's on Windows.
//!
//! ```
//! use poll_core::{Backend, Event, Mode, RawSource, Ready, Token};
//! use poll_select::Select;
//!
//! let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! socket.send_to(b"hello", socket.local_addr()?)?;
//!
//! let mut select = Select::new()?;
//! let token = Token::new(0, 0);
//! // SAFETY: `socket` outlives the registration.
//! unsafe { select.register(token, RawSource::of(&socket), Ready::READ, Mode::Level) }?;
//! let mut events = Vec::new();
//! select.wait(None, &mut events)?;
//! assert_eq!(events, [Event::Ready { token, ready: Ready::READ }]);
//! # std::io::Result::Ok(())
//! ```
//!
//! `select` takes three sets of descriptors (readable, writable, exceptional) and
//! overwrites them with its answer. The backend keeps the three that are wanted:
//! `register`, `modify` and `deregister` each change a bit or an element of them,
//! and a silent source ([`Ready::NONE`], or a spent [`Mode::Oneshot`]) is in none.
//! `wait` hands copies to the kernel and reads the answer from them. It costs time
//! in proportion to the highest descriptor watched on Unix (a word of 64 at a time
//! on this side), to the number of sockets on Windows. Without sources, one that is
//! not to block makes no system call. `register` asks the system whether the source
//! is open, and a closed one is an error at once; one that is closed later fails the
//! whole call, so the backend then looks for it, reports it and goes on.
//!
//! There is no [`Mode::Edge`], no `DISCONNECT`, there are no operations, and no
//! `raw_fd`. The waker is a [`Bell`] in the set of the readable.
//!
//! # What the kernel says
//!
//! | set | on Unix | on Windows |
//! |---|---|---|
//! | `readfds` | `READ` | `READ` |
//! | `writefds` | `WRITE` | `WRITE` |
//! | `exceptfds` | `PRIORITY` | `PRIORITY` if connected; else the connect has failed: `ERROR` |
//! | `EBADF`, `WSAENOTSOCK` | `ERROR` for each closed source, which then sleeps | the same |
//!
//! Hang-ups and errors cannot be told from readiness: they are `READ` and `WRITE`,
//! and the read or the write tells. A source that asked for `PRIORITY` alone does
//! not learn of them.
//!
//! # Platforms
//!
//! - `FD_SETSIZE` is no limit: the sets grow. The kernels of Linux, FreeBSD,
//!   NetBSD, OpenBSD and DragonFly take sets of any size, Apple's does through
//!   `pselect$DARWIN_EXTSN`, and Winsock reads the size from the set. On any other
//!   Unix, a descriptor beyond `FD_SETSIZE` is `Unsupported` at `register`.
//! - Timeouts are nanoseconds on Unix, microseconds (rounded up) on Windows.

#![cfg(any(unix, windows))]

use std::fmt;
use std::io;
use std::time::Duration;

use poll_core::{Backend, Bell, Countdown, Event, Mode, RawSource, Ready, Registry, Token};

#[cfg_attr(unix, path = "unix.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod sets;

use sets::Sets;

/// Watches sources through `select`.
pub struct Select {
    sources: Registry<Watch>,
    /// What the kernel is given, and where it answers.
    sets: Sets,
    /// What the last call has found, kept for its memory.
    found: Vec<(RawSource, Ready)>,
    bell: Bell,
}

/// What was asked of one source. A source that sleeps wants nothing.
#[derive(Debug)]
struct Watch {
    wanted: Ready,
    mode: Mode,
}

impl Select {
    /// Makes the backend.
    ///
    /// # Errors
    ///
    /// Those of [`Bell::new`]: most likely that the process is out of descriptors.
    pub fn new() -> io::Result<Select> {
        let bell = Bell::new()?;
        let mut sets = Sets::default();
        sets::check(bell.source())?;
        sets.add(bell.source(), Ready::READ);
        Ok(Select { sources: Registry::default(), sets, found: Vec::new(), bell })
    }
}

impl Backend for Select {
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
        sets::check(source)?;
        self.sources.insert(token, source, Watch { wanted: interest, mode })?;
        self.sets.add(source, interest);
        Ok(())
    }

    fn modify(&mut self, token: Token, interest: Ready, mode: Mode) -> io::Result<()> {
        check(interest, mode)?;
        let (source, watch) = self.sources.entry_mut(token)?;
        *watch = Watch { wanted: interest, mode };
        self.sets.watch(source, interest);
        Ok(())
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        let (source, _) = self.sources.remove(token)?;
        self.sets.remove(source);
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) && self.sources.is_empty() {
            // The kernel has nothing to tell of nothing.
            self.bell.wake_up(false);
            return Ok(());
        }
        let already = events.len();
        let countdown = Countdown::start(timeout);
        let mut left = timeout;
        loop {
            if left != Some(Duration::ZERO) && !self.bell.sleep() {
                left = Some(Duration::ZERO);
            }
            let result = self.sets.select(left, &mut self.found);
            let bell = self.bell.source();
            let woken = self.bell.wake_up(self.found.iter().any(|(source, _)| *source == bell));
            match result {
                Ok(()) => self.report(events)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
                Err(error) if sets::is_about_a_source(&error) => {
                    self.report_closed(error, events)?
                }
                Err(error) => return Err(error),
            }
            if woken || events.len() > already {
                return Ok(());
            }
            // Nothing to tell: the time is over, or a bell rang late, or the longest
            // time that the kernel takes is shorter than the one asked for.
            left = countdown.left();
            if left == Some(Duration::ZERO) {
                return Ok(());
            }
        }
    }

    fn after_fork(&mut self) -> io::Result<()> {
        let before = self.bell.source();
        self.bell.after_fork()?;
        self.sets.remove(before);
        sets::check(self.bell.source())?;
        self.sets.add(self.bell.source(), Ready::READ);
        Ok(())
    }
}

impl Select {
    /// Reports what the last call has found.
    fn report(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        for &(source, seen) in &self.found {
            // The bell has no token.
            let Some(token) = self.sources.token_of(source) else { continue };
            let watch = self.sources.get_mut(token)?;
            let ready = watch.wanted.report(seen);
            if ready.is_empty() {
                continue;
            }
            events.push(Event::Ready { token, ready });
            if watch.mode == Mode::Oneshot {
                watch.wanted = Ready::NONE;
                self.sets.watch(source, Ready::NONE);
            }
        }
        Ok(())
    }

    /// Reports the closed sources that made the last call fail, and puts them to sleep.
    fn report_closed(&mut self, error: io::Error, events: &mut Vec<Event>) -> io::Result<()> {
        let already = events.len();
        for (token, source, watch) in self.sources.iter_mut() {
            let ready = watch.wanted.report(Ready::ERROR);
            if !ready.is_empty() && sets::check(source).is_err() {
                events.push(Event::Ready { token, ready });
                watch.wanted = Ready::NONE;
                self.sets.watch(source, Ready::NONE);
            }
        }
        // If it was none of them, someone has closed the bell.
        if events.len() > already { Ok(()) } else { Err(error) }
    }
}

impl fmt::Debug for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Select").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

/// Refuses what `select` cannot do.
fn check(interest: Ready, mode: Mode) -> io::Result<()> {
    let why = if mode == Mode::Edge {
        "select has no edge-triggered mode: use Level or Oneshot"
    } else if interest.contains(Ready::DISCONNECT) {
        "select cannot see DISCONNECT: read until the end of file, or use another backend"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn tcp_pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn watch(select: &mut Select, index: u32, socket: &TcpStream, interest: Ready, mode: Mode) {
        let token = Token::new(index, 0);
        // SAFETY: the tests keep their sockets open while they are registered.
        unsafe { select.register(token, RawSource::of(socket), interest, mode) }.unwrap();
    }

    fn ready_now(select: &mut Select) -> Vec<(u32, Ready)> {
        let mut events = Vec::new();
        select.wait(Some(Duration::ZERO), &mut events).unwrap();
        let ready = |event: &Event| match *event {
            Event::Ready { token, ready } => (token.index(), ready),
            Event::Done { .. } => panic!("nothing was submitted"),
        };
        let mut all: Vec<_> = events.iter().map(ready).collect();
        all.sort_by_key(|(index, _)| *index);
        all
    }

    #[test]
    fn both_directions_are_one_event_and_spent_sources_leave_the_sets() {
        let mut select = Select::new().unwrap();
        let pairs: Vec<_> = (0..4).map(|_| tcp_pair()).collect();
        for (index, (near, far)) in (0..).zip(&pairs) {
            let mode = if index % 2 == 0 { Mode::Oneshot } else { Mode::Level };
            watch(&mut select, index, near, Ready::READ | Ready::WRITE, mode);
            (&*far).write_all(b"x").unwrap();
            near.peek(&mut [0]).unwrap();
        }
        let both = Ready::READ | Ready::WRITE;
        assert_eq!(ready_now(&mut select), [(0, both), (1, both), (2, both), (3, both)]);
        assert_eq!(ready_now(&mut select), [(1, both), (3, both)]);
        select.modify(Token::new(2, 0), Ready::WRITE, Mode::Level).unwrap();
        select.modify(Token::new(3, 0), Ready::NONE, Mode::Level).unwrap();
        assert_eq!(ready_now(&mut select), [(1, both), (2, Ready::WRITE)]);
    }
}
