//! A [backend](poll_core::Backend) over `poll(2)`, and over `WSAPoll` on Windows.
//!
//! ```
//! use poll_core::{Backend, Event, Mode, RawSource, Interest, Readiness, Token};
//! use poll_poll::Poll;
//!
//! let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! socket.send_to(b"hello", socket.local_addr()?)?;
//!
//! let mut poll = Poll::new()?;
//! let token = Token::new(0, 0);
//! // SAFETY: `socket` stays open until `poll` is dropped.
//! unsafe { poll.register(token, RawSource::of(&socket), Interest::READ, Mode::Level) }?;
//! let mut events = Vec::new();
//! poll.wait(None, &mut events)?;
//! assert_eq!(events, [Event::Ready { token, ready: Readiness::READ }]);
//! # std::io::Result::Ok(())
//! ```
//!
//! # How it works
//!
//! The kernel keeps no state between two calls. The backend keeps the argument of the call: one
//! dense array of `pollfd`.
//!
//! - `register`, `modify` and `deregister` change one entry of the array. A source without
//!   interest ([`Interest::NONE`], or a spent [`Mode::Oneshot`]) has no entry and costs nothing.
//! - `register` checks with one system call that the source is open.
//! - `wait` passes the array to the kernel, which visits every entry: the cost of a wait is
//!   proportional to the number of watched sources. Without sources, a zero timeout makes no
//!   system call.
//! - The waker is a [`SocketWaker`], watched in entry 0.
//! - `after_fork` gives the child a new waker; the kernel keeps no other state.
//!
//! [`Mode::Oneshot`] is emulated at no cost: `wait` removes the entry. There is no
//! [`Mode::Edge`], no operation and no `raw_source`.
//!
//! | `pollfd.revents` | `Readiness` on Unix | `Readiness` on Windows |
//! |---|---|---|
//! | `POLLIN` (`POLLRDNORM` on Windows) | `READ` | `READ` |
//! | `POLLOUT` | `WRITE` | `WRITE` |
//! | `POLLPRI` (`POLLRDBAND` on Windows) | `PRIORITY` | `PRIORITY` |
//! | `POLLRDHUP` | `DISCONNECT` | none |
//! | `POLLHUP` | `HANGUP` | `READ`; with `POLLERR` also `HANGUP` |
//! | `POLLERR` | `ERROR` | `ERROR` |
//! | `POLLNVAL` | `ERROR`, and the source is muted | the same |
//!
//! # Platforms
//!
//! - Linux, Android, FreeBSD, NetBSD, OpenBSD and DragonFly have `ppoll`, which
//!   takes nanoseconds. Elsewhere timeouts are rounded up to milliseconds.
//! - `DISCONNECT` needs `POLLRDHUP`: Linux, Android, illumos, FreeBSD (13.1 and
//!   later). Elsewhere it is `Unsupported`.
//! - Windows before 10, version 2004, never reports a failed connect. A socket that is closed
//!   while watched does not end a `WSAPoll`; it is reported when another event does.
//! - `WSAPoll` reports `POLLHUP` for every source whose peer has shut down its writing side. A
//!   source without `READ` in its interest would end every call. It is polled every 10 ms
//!   instead, until another condition holds.

#![cfg(any(unix, windows))]

use std::fmt;
use std::io;
use std::time::Duration;

use poll_core::{
    Backend, Deadline, Event, Interest, Mode, Open, RawSource, Registry, SocketWaker, Token,
};

#[cfg_attr(unix, path = "unix.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod sys;

/// The interval at which sources are polled whose only condition is not in their interest.
const HIDDEN_POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The waker's element of `tokens`, which is never looked up.
const WAKER: Token = Token::new(u32::MAX, Token::MAX_GENERATION);

/// Watches sources through `poll(2)` or `WSAPoll`; see the [crate's page](crate).
pub struct Poll {
    sources: Registry<Watch>,
    /// The argument and the result of the system call. Entry 0 is the waker's.
    entries: Vec<sys::PollFd>,
    /// The token of each entry.
    tokens: Vec<Token>,
    /// Entries that are left out of the next call and restored after it, with their indices.
    /// They have a condition outside their interest, which only `WSAPoll` reports.
    hidden: Vec<(usize, sys::PollFd)>,
    waker: SocketWaker,
}

/// The state of a registration.
#[derive(Debug)]
struct Watch {
    /// The requested interest; `NONE` after a one-shot has fired or the source was closed.
    wanted: Interest,
    mode: Mode,
    /// The index of its entry. A source without interest has none.
    index: Option<usize>,
}

impl Poll {
    /// Creates the backend and its waker.
    ///
    /// # Errors
    ///
    /// Those of [`SocketWaker::new`], most likely `EMFILE`.
    pub fn new() -> io::Result<Poll> {
        let waker = SocketWaker::new()?;
        Ok(Poll {
            sources: Registry::default(),
            entries: vec![sys::entry(waker.source(), Interest::READ)],
            tokens: vec![WAKER],
            hidden: Vec::new(),
            waker,
        })
    }
}

impl Open for Poll {
    /// As [`Poll::new`].
    fn open() -> io::Result<Poll> {
        Poll::new()
    }
}

// SAFETY: the backend performs no operations. The kernel sees the sources during `poll` only,
// `deregister` removes them from the list, and no call closes them.
unsafe impl Backend for Poll {
    type Waker = SocketWaker;

    fn name(&self) -> &'static str {
        "poll"
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
        sys::check_open(source)?;
        self.sources.insert(token, source, Watch { wanted: interest, mode, index: None })?;
        self.arm(token)
    }

    fn modify(&mut self, token: Token, interest: Interest, mode: Mode) -> io::Result<()> {
        check_interest(interest, mode)?;
        let watch = self.sources.get_mut(token)?;
        (watch.wanted, watch.mode) = (interest, mode);
        self.arm(token)
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        let (_, watch) = self.sources.remove(token)?;
        if let Some(index) = watch.index {
            self.remove_entry(index);
        }
        Ok(())
    }

    #[inline(never)] // In `Auto`, another backend's wait would pay for this one's frame.
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) && self.sources.is_empty() {
            self.waker.unpark(false); // No source can be ready.
            return Ok(());
        }
        let result = Deadline::repeat(timeout, |left| self.poll(left, events));
        self.restore_hidden();
        result
    }

    fn after_fork(&mut self) -> io::Result<()> {
        self.waker.after_fork()?;
        self.entries[0] = sys::entry(self.waker.source(), Interest::READ);
        Ok(())
    }
}

impl Poll {
    /// Makes the system call and collects its events. Returns true if `wait` is to return:
    /// there are new events, or a wake or a signal ended the call.
    ///
    /// False is the end of the timeout, the longest one that the system call takes included, a
    /// condition outside the interest, or the signal of a wake that an earlier `wait` has
    /// consumed.
    fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<bool> {
        let before = events.len();
        let blocks = timeout != Some(Duration::ZERO) && self.waker.prepare_park();
        let timeout = match timeout {
            _ if !blocks => Some(Duration::ZERO),
            timeout if self.hidden.is_empty() => timeout,
            timeout => Some(timeout.unwrap_or(Duration::MAX).min(HIDDEN_POLL_INTERVAL)),
        };
        let result = sys::poll(&mut self.entries, timeout);
        self.restore_hidden();
        let signalled = matches!(result, Ok(1..)) && self.entries[0].revents != 0;
        let woken = self.waker.unpark(signalled);
        match result {
            Ok(count) => self.collect(count - usize::from(signalled), events)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(error),
        }
        if signalled && self.entries[0].revents & sys::POLLNVAL != 0 {
            let why =
                "the waker's descriptor was closed by other code (a close of a stale number?)";
            return Err(io::Error::other(why));
        }
        Ok(woken || events.len() > before)
    }

    /// Translates the results of the `count` entries that have one, the waker's not counted.
    fn collect(&mut self, mut count: usize, events: &mut Vec<Event>) -> io::Result<()> {
        let mut index = 1;
        while count > 0 && index < self.entries.len() {
            let revents = self.entries[index].revents;
            if revents == 0 {
                index += 1;
                continue;
            }
            count -= 1;
            let token = self.tokens[index];
            let watch = self.sources.get_mut(token)?;
            let ready = watch.wanted.report(sys::to_ready(revents));
            if ready.is_empty() {
                // Outside the interest; the next call would return it immediately.
                self.hidden.push((index, self.entries[index]));
                self.entries[index] = sys::NO_ENTRY;
            } else {
                events.push(Event::Ready { token, ready });
            }
            if ready.is_empty() || watch.mode != Mode::Oneshot && revents & sys::POLLNVAL == 0 {
                index += 1;
            } else {
                // The entry that moves to this index comes next. All hidden entries are before
                // it and do not move.
                (watch.wanted, watch.index) = (Interest::NONE, None);
                self.remove_entry(index);
            }
        }
        Ok(())
    }

    /// Restores the entries that were left out of the last call.
    fn restore_hidden(&mut self) {
        for (index, entry) in self.hidden.drain(..) {
            self.entries[index] = sys::PollFd { revents: 0, ..entry };
        }
    }

    /// Adds, changes or removes the entry of a registration according to its interest.
    fn arm(&mut self, token: Token) -> io::Result<()> {
        let (source, watch) = self.sources.entry_mut(token)?;
        let muted = !watch.wanted.intersects(Interest::all());
        match watch.index {
            None if muted => {}
            Some(index) if muted => {
                watch.index = None;
                self.remove_entry(index);
            }
            Some(index) => self.entries[index] = sys::entry(source, watch.wanted),
            None => {
                watch.index = Some(self.entries.len());
                self.entries.push(sys::entry(source, watch.wanted));
                self.tokens.push(token);
            }
        }
        Ok(())
    }

    /// Removes an entry; the last one moves to its index.
    fn remove_entry(&mut self, index: usize) {
        self.entries.swap_remove(index);
        self.tokens.swap_remove(index);
        if let Some(&moved) = self.tokens.get(index)
            && let Some((_, watch)) = self.sources.find(moved)
        {
            watch.index = Some(index);
        }
    }
}

impl fmt::Debug for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poll")
            .field("sources", &self.sources.len())
            .field("entries", &(self.entries.len() - 1))
            .finish_non_exhaustive()
    }
}

/// Rejects interests and modes that `poll` does not have.
fn check_interest(interest: Interest, mode: Mode) -> io::Result<()> {
    let why = if mode == Mode::Edge {
        "poll has no edge-triggered mode: use Level or Oneshot"
    } else if interest.contains(Interest::DISCONNECT) && !sys::HAS_DISCONNECT {
        "poll has no DISCONNECT here: read until the end of file instead"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

#[cfg(test)]
mod tests {
    use poll_core::Readiness;

    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::time::Instant;

    use super::*;

    fn tcp_pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn watch(poll: &mut Poll, index: u32, socket: &TcpStream, interest: Interest, mode: Mode) {
        let token = Token::new(index, 0);
        // SAFETY: the tests drop their sockets after the last wait of `poll`.
        unsafe { poll.register(token, RawSource::of(socket), interest, mode) }.unwrap();
    }

    fn ready_now(poll: &mut Poll) -> Vec<(u32, Readiness)> {
        let mut events = Vec::new();
        poll.wait(Some(Duration::ZERO), &mut events).unwrap();
        let ready = |event: &Event| match *event {
            Event::Ready { token, ready } => (token.index(), ready),
            Event::Done { .. } => panic!("no operation was submitted"),
        };
        let mut all: Vec<_> = events.iter().map(ready).collect();
        all.sort_by_key(|(index, _)| *index);
        all
    }

    #[test]
    fn removals_update_the_indices_of_moved_entries() {
        let mut poll = Poll::new().unwrap();
        let sockets: Vec<_> = (0..6).map(|_| tcp_pair().0).collect();
        for (index, socket) in (0..).zip(&sockets) {
            let mode = if index % 2 == 0 { Mode::Oneshot } else { Mode::Level };
            watch(&mut poll, index, socket, Interest::WRITE, mode);
        }
        poll.deregister(Token::new(1, 0)).unwrap();
        let indices = |all: Vec<(u32, Readiness)>| all.iter().map(|(index, _)| *index).collect();
        let first: Vec<_> = indices(ready_now(&mut poll));
        assert_eq!(first, [0, 2, 3, 4, 5]);
        let second: Vec<_> = indices(ready_now(&mut poll));
        assert_eq!(second, [3, 5], "the one-shots are spent");
        poll.modify(Token::new(2, 0), Interest::WRITE, Mode::Level).unwrap();
        poll.modify(Token::new(3, 0), Interest::NONE, Mode::Level).unwrap();
        let third: Vec<_> = indices(ready_now(&mut poll));
        assert_eq!(third, [2, 5]);
        assert_eq!(poll.entries.len(), 3, "muted sources have no entry");
    }

    #[test]
    fn a_shutdown_outside_the_interest_neither_ends_a_wait_nor_hides_other_conditions() {
        let mut poll = Poll::new().unwrap();
        let (near, far) = tcp_pair();
        near.set_nonblocking(true).unwrap();
        while (&near).write(&[0; 65536]).is_ok() {}
        watch(&mut poll, 0, &near, Interest::WRITE, Mode::Level);
        far.shutdown(Shutdown::Write).unwrap();

        let mut events = Vec::new();
        let (started, timeout) = (Instant::now(), Duration::from_millis(100));
        poll.wait(Some(timeout), &mut events).unwrap();
        assert_eq!(events, []);
        assert!(started.elapsed() >= timeout);

        let reader = std::thread::spawn(move || {
            use std::io::Read;
            let mut sink = vec![0; 1 << 20];
            while (&far).read(&mut sink).is_ok_and(|count| count > 0) {}
        });
        poll.wait(Some(Duration::from_secs(30)), &mut events).unwrap();
        assert_eq!(events, [Event::Ready { token: Token::new(0, 0), ready: Readiness::WRITE }]);
        poll.modify(Token::new(0, 0), Interest::READ, Mode::Level).unwrap();
        assert_eq!(ready_now(&mut poll), [(0, Readiness::READ)]);
        drop(near);
        reader.join().unwrap();
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
        let poll = Poll::new().unwrap();
        let (before, now, after) = (monotonic(), poll.now(), monotonic());
        assert!(before <= now && now <= after, "{before:?} {now:?} {after:?}");
    }
}
