//! A [backend](poll_core::Backend) over `select`: POSIX's `pselect` on Unix, Winsock's on
//! Windows.
//!
//! ```
//! use poll_core::{Backend, Event, Mode, RawSource, Interest, Readiness, Token};
//! use poll_select::Select;
//!
//! let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! socket.send_to(b"hello", socket.local_addr()?)?;
//!
//! let mut select = Select::new()?;
//! let token = Token::new(0, 0);
//! // SAFETY: `socket` stays open until `select` is dropped.
//! unsafe { select.register(token, RawSource::of(&socket), Interest::READ, Mode::Level) }?;
//! let mut events = Vec::new();
//! select.wait(None, &mut events)?;
//! assert_eq!(events, [Event::Ready { token, ready: Readiness::READ }]);
//! # std::io::Result::Ok(())
//! ```
//!
//! # How it works
//!
//! `select` takes three sets of descriptors (readable, writable, exceptional) and overwrites
//! them with its result.
//!
//! - `register`, `modify` and `deregister` change one bit or one element of each set that the
//!   backend keeps. A source without interest ([`Interest::NONE`], or a spent [`Mode::Oneshot`])
//!   is in none of them.
//! - `register` checks with one system call that the source is open.
//! - `wait` copies the sets, makes the system call and reads the result from the copies. It
//!   costs time in proportion to the highest watched descriptor on Unix (64 at a time in this
//!   process), to the number of watched sockets on Windows. Without sources, a zero timeout
//!   makes no system call.
//! - A source that is closed while watched fails the whole call. `wait` then checks each
//!   source, reports the closed ones with `ERROR` and mutes them.
//! - The waker is a [`SocketWaker`] in the set of readable descriptors.
//! - `after_fork` gives the child a new waker; the kernel keeps no other state.
//!
//! [`Mode::Oneshot`] is emulated at no cost: `wait` removes the source from the sets. There is
//! no [`Mode::Edge`], no `DISCONNECT`, no operation and no `raw_source`.
//!
//! | set | `Readiness` on Unix | `Readiness` on Windows |
//! |---|---|---|
//! | `readfds` | `READ` | `READ` |
//! | `writefds` | `WRITE` | `WRITE` |
//! | `exceptfds` | `PRIORITY` | `PRIORITY` if connected; else the connect has failed: `ERROR` |
//! | `EBADF`, `WSAENOTSOCK` | `ERROR` for each closed source | the same |
//!
//! `select` does not distinguish hang-ups and errors from readiness: they are `READ` and
//! `WRITE`, and the read or the write fails. An interest in `PRIORITY` alone does not see them.
//!
//! # Platforms
//!
//! - `FD_SETSIZE` is no limit: the sets grow. The kernels of Linux, FreeBSD,
//!   NetBSD, OpenBSD and DragonFly take sets of any size, Apple's does through
//!   `pselect$DARWIN_EXTSN`, and Winsock reads the size from the set. On any other
//!   Unix, a descriptor beyond `FD_SETSIZE` is `Unsupported` at `register`.
//! - Timeouts have nanoseconds on Unix, microseconds (rounded up) on Windows.

#![cfg(any(unix, windows))]

use std::fmt;
use std::io;
use std::time::Duration;

use poll_core::{
    Backend, Deadline, Event, Interest, Mode, Open, RawSource, Readiness, Registry, SocketWaker,
    Token,
};

#[cfg_attr(unix, path = "unix.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod sets;

use sets::Sets;

/// Watches sources through `select`; see the [crate's page](crate).
pub struct Select {
    sources: Registry<Watch>,
    /// The arguments and the results of the system call.
    sets: Sets,
    /// The ready sources of the last call; a field so that its memory is reused.
    ready: Vec<(RawSource, Readiness)>,
    waker: SocketWaker,
}

/// The state of a registration.
#[derive(Debug)]
struct Watch {
    /// The requested interest; `NONE` after a one-shot has fired or the source was closed.
    wanted: Interest,
    mode: Mode,
}

impl Select {
    /// Creates the backend and its waker.
    ///
    /// # Errors
    ///
    /// Those of [`SocketWaker::new`], most likely `EMFILE`; `Unsupported` if the waker's descriptor
    /// is beyond `FD_SETSIZE` where that is a limit.
    pub fn new() -> io::Result<Select> {
        let waker = SocketWaker::new()?;
        let mut sets = Sets::default();
        sets::check_source(waker.source())?;
        sets.add(waker.source(), Interest::READ);
        Ok(Select { sources: Registry::default(), sets, ready: Vec::new(), waker })
    }
}

impl Open for Select {
    /// As [`Select::new`].
    fn open() -> io::Result<Select> {
        Select::new()
    }
}

// SAFETY: the backend performs no operations. The kernel sees the sources during `select` only,
// `deregister` removes them from the registry, and no call closes them.
unsafe impl Backend for Select {
    type Waker = SocketWaker;

    fn name(&self) -> &'static str {
        "select"
    }

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
        check_interest(interest, mode)?;
        sets::check_source(source)?;
        self.sources.insert(token, source, Watch { wanted: interest, mode })?;
        self.sets.add(source, interest);
        Ok(())
    }

    fn modify(&mut self, token: Token, interest: Interest, mode: Mode) -> io::Result<()> {
        check_interest(interest, mode)?;
        let (source, watch) = self.sources.entry_mut(token)?;
        *watch = Watch { wanted: interest, mode };
        self.sets.set_interest(source, interest);
        Ok(())
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        let (source, _) = self.sources.remove(token)?;
        self.sets.remove(source);
        Ok(())
    }

    #[inline(never)] // In `Auto`, another backend's wait would pay for this one's frame.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) && self.sources.is_empty() {
            self.waker.unpark(false); // No source can be ready.
            return Ok(());
        }
        Deadline::repeat(timeout, |left| self.poll(left, events))
    }

    fn after_fork(&mut self) -> io::Result<()> {
        let before = self.waker.source();
        self.waker.after_fork()?;
        self.sets.remove(before);
        sets::check_source(self.waker.source())?;
        self.sets.add(self.waker.source(), Interest::READ);
        Ok(())
    }
}

impl Select {
    /// Makes the system call and collects its events. Returns true if `wait` is to return:
    /// there are new events, or a wake or a signal ended the call.
    ///
    /// False is the end of the timeout, the longest one that the system call takes included, or
    /// the signal of a wake that an earlier `wait` has consumed.
    fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<bool> {
        let before = events.len();
        let blocks = timeout != Some(Duration::ZERO) && self.waker.prepare_park();
        let timeout = if blocks { timeout } else { Some(Duration::ZERO) };
        let result = self.sets.select(timeout, &mut self.ready);
        let source = self.waker.source();
        let woken = self.waker.unpark(self.ready.iter().any(|(ready, _)| *ready == source));
        match result {
            Ok(()) => self.collect(events)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) if sets::is_closed_source(&error) => self.collect_closed(error, events)?,
            Err(error) => return Err(error),
        }
        Ok(woken || events.len() > before)
    }

    /// Translates the result of the system call.
    fn collect(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        for &(source, conditions) in &self.ready {
            // The waker has no token.
            let Some(token) = self.sources.token_of(source) else { continue };
            let watch = self.sources.get_mut(token)?;
            let ready = watch.wanted.report(conditions);
            if ready.is_empty() {
                continue;
            }
            events.push(Event::Ready { token, ready });
            if watch.mode == Mode::Oneshot {
                watch.wanted = Interest::NONE;
                self.sets.set_interest(source, Interest::NONE);
            }
        }
        Ok(())
    }

    /// Reports and mutes the closed sources that made the system call fail with `error`.
    fn collect_closed(&mut self, error: io::Error, events: &mut Vec<Event>) -> io::Result<()> {
        let before = events.len();
        for (token, source, watch) in self.sources.iter_mut() {
            let ready = watch.wanted.report(Readiness::ERROR);
            if !ready.is_empty() && sets::check_source(source).is_err() {
                events.push(Event::Ready { token, ready });
                watch.wanted = Interest::NONE;
                self.sets.set_interest(source, Interest::NONE);
            }
        }
        // Without a closed source, the waker's descriptor was closed by other code.
        if events.len() > before { Ok(()) } else { Err(error) }
    }
}

impl fmt::Debug for Select {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Select").field("sources", &self.sources.len()).finish_non_exhaustive()
    }
}

/// Rejects interests and modes that `select` does not have.
fn check_interest(interest: Interest, mode: Mode) -> io::Result<()> {
    let why = if mode == Mode::Edge {
        "select has no edge-triggered mode: use Level or Oneshot"
    } else if interest.contains(Interest::DISCONNECT) {
        "select has no DISCONNECT: read until the end of file, or use the epoll backend"
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

    fn watch(select: &mut Select, index: u32, socket: &TcpStream, interest: Interest, mode: Mode) {
        let token = Token::new(index, 0);
        // SAFETY: the tests drop their sockets after the last use of `select`.
        unsafe { select.register(token, RawSource::of(socket), interest, mode) }.unwrap();
    }

    fn ready_now(select: &mut Select) -> Vec<(u32, Readiness)> {
        let mut events = Vec::new();
        select.wait(Some(Duration::ZERO), &mut events).unwrap();
        let ready = |event: &Event| match *event {
            Event::Ready { token, ready } => (token.index(), ready),
            Event::Done { .. } => panic!("no operation was submitted"),
        };
        let mut all: Vec<_> = events.iter().map(ready).collect();
        all.sort_by_key(|(index, _)| *index);
        all
    }

    #[test]
    fn both_directions_are_one_event_and_spent_oneshots_leave_the_sets() {
        let mut select = Select::new().unwrap();
        let pairs: Vec<_> = (0..4).map(|_| tcp_pair()).collect();
        for (index, (near, far)) in (0..).zip(&pairs) {
            let mode = if index % 2 == 0 { Mode::Oneshot } else { Mode::Level };
            watch(&mut select, index, near, Interest::READ | Interest::WRITE, mode);
            (&*far).write_all(b"x").unwrap();
            near.peek(&mut [0]).unwrap();
        }
        let both = Readiness::READ | Readiness::WRITE;
        assert_eq!(ready_now(&mut select), [(0, both), (1, both), (2, both), (3, both)]);
        assert_eq!(ready_now(&mut select), [(1, both), (3, both)]);
        select.modify(Token::new(2, 0), Interest::WRITE, Mode::Level).unwrap();
        select.modify(Token::new(3, 0), Interest::NONE, Mode::Level).unwrap();
        assert_eq!(ready_now(&mut select), [(1, both), (2, Readiness::WRITE)]);
    }

    #[cfg(unix)]
    #[test]
    fn now_is_clock_monotonic() {
        #[cfg(target_vendor = "apple")]
        let clock = libc::CLOCK_UPTIME_RAW;
        #[cfg(not(target_vendor = "apple"))]
        let clock = libc::CLOCK_MONOTONIC;
        let monotonic = || {
            // SAFETY: `timespec` consists of integers, for which zero is a valid value.
            let mut now = unsafe { std::mem::zeroed::<libc::timespec>() };
            // SAFETY: `now` is a local variable.
            assert_eq!(unsafe { libc::clock_gettime(clock, &mut now) }, 0);
            Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
        };
        let select = Select::new().unwrap();
        let (before, now, after) = (monotonic(), select.now(), monotonic());
        assert!(before <= now && now <= after, "{before:?} {now:?} {after:?}");
    }
}
