//! A backend over `poll(2)`: everywhere there is Unix, and on Windows as `WSAPoll`.
//!
//! ```
//! use poll_core::{Backend, Event, Mode, RawSource, Ready, Token};
//! use poll_poll::Poll;
//!
//! let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
//! socket.send_to(b"hello", socket.local_addr()?)?;
//!
//! let mut poll = Poll::new()?;
//! let token = Token::new(0, 0);
//! // SAFETY: `socket` outlives the registration.
//! unsafe { poll.register(token, RawSource::of(&socket), Ready::READ, Mode::Level) }?;
//! let mut events = Vec::new();
//! poll.wait(None, &mut events)?;
//! assert_eq!(events, [Event::Ready { token, ready: Ready::READ }]);
//! # std::io::Result::Ok(())
//! ```
//!
//! The kernel remembers nothing between two calls, so the backend keeps what the
//! kernel is given: one dense array of `pollfd`. `register`, `modify` and
//! `deregister` each change one entry of it; a source that is silent
//! ([`Ready::NONE`], or a spent [`Mode::Oneshot`]) has no entry and costs nothing.
//! `wait` hands the array to the kernel, which looks at every entry: a wait costs
//! time in proportion to the sources watched, and that is the limit of `poll`. Without
//! sources, one that is not to block makes no system call.
//! `register` asks the system whether the source is open, and a closed one is an
//! error at once.
//!
//! There is no [`Mode::Edge`], there are no operations, and no `raw_fd`. The waker
//! is a [`Bell`], watched in entry 0.
//!
//! # What the kernel says
//!
//! | flag | on Unix | on Windows |
//! |---|---|---|
//! | `POLLIN` (`POLLRDNORM` on Windows) | `READ` | `READ` |
//! | `POLLOUT` | `WRITE` | `WRITE` |
//! | `POLLPRI` (`POLLRDBAND` on Windows) | `PRIORITY` | `PRIORITY` |
//! | `POLLRDHUP` | `DISCONNECT` | none |
//! | `POLLHUP` | `HANGUP` | `READ`; beside `POLLERR` also `HANGUP` |
//! | `POLLERR` | `ERROR` | `ERROR` |
//! | `POLLNVAL` | `ERROR`, and the registration sleeps | the same |
//!
//! # Platforms
//!
//! - Linux, Android, FreeBSD, NetBSD, OpenBSD and DragonFly have `ppoll`, which
//!   takes nanoseconds. Elsewhere timeouts are milliseconds, rounded up.
//! - `DISCONNECT` needs `POLLRDHUP`: Linux, Android, illumos, FreeBSD (13.1 and
//!   later). Elsewhere it is `Unsupported`.
//! - Windows before 10, version 2004, never reports a connect that fails. And a
//!   socket that is closed while watched does not end a `WSAPoll`; it is reported
//!   once something else does.
//! - `WSAPoll` reports `POLLHUP` unasked when the peer has shut down its writing
//!   side. A source that did not ask for `READ` would end every call at once; it is
//!   looked at every 10 ms instead, until it has more to say.

#![cfg(any(unix, windows))]

use std::fmt;
use std::io;
use std::time::Duration;

use poll_core::{Backend, Bell, Countdown, Event, Mode, RawSource, Ready, Registry, Token};

#[cfg_attr(unix, path = "unix.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod sys;

/// How often a source is looked at that reports, unasked, what cannot be passed on.
const RECHECK: Duration = Duration::from_millis(10);

/// Stands for the bell where a token is stored; nobody looks it up.
const BELL: Token = Token::new(u32::MAX, Token::MAX_GENERATION);

/// Watches sources through `poll(2)` or `WSAPoll`.
pub struct Poll {
    sources: Registry<Watch>,
    /// What the kernel is given, and where it answers. Entry 0 is the bell.
    polled: Vec<sys::PollFd>,
    /// Whose entry each of `polled` is.
    tokens: Vec<Token>,
    /// Entries that are hidden from the next call, to be put back after it. Only
    /// `WSAPoll` makes this necessary.
    hidden: Vec<(usize, sys::PollFd)>,
    bell: Bell,
}

/// What was asked of one source.
#[derive(Debug)]
struct Watch {
    wanted: Ready,
    mode: Mode,
    /// Its entry in `polled`. Silent sources have none.
    place: Option<usize>,
}

impl Poll {
    /// Makes the backend.
    ///
    /// # Errors
    ///
    /// Those of [`Bell::new`]: most likely that the process is out of descriptors.
    pub fn new() -> io::Result<Poll> {
        let bell = Bell::new()?;
        Ok(Poll {
            sources: Registry::default(),
            polled: vec![sys::entry(bell.source(), Ready::READ)],
            tokens: vec![BELL],
            hidden: Vec::new(),
            bell,
        })
    }
}

impl Backend for Poll {
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
        sys::check_open(source)?;
        self.sources.insert(token, source, Watch { wanted: interest, mode, place: None })?;
        self.arm(token)
    }

    fn modify(&mut self, token: Token, interest: Ready, mode: Mode) -> io::Result<()> {
        check(interest, mode)?;
        let watch = self.sources.get_mut(token)?;
        (watch.wanted, watch.mode) = (interest, mode);
        self.arm(token)
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        let (_, watch) = self.sources.remove(token)?;
        if let Some(place) = watch.place {
            self.remove_entry(place);
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        if timeout == Some(Duration::ZERO) && self.sources.is_empty() {
            // The kernel has nothing to tell of nothing.
            self.bell.wake_up(false);
            return Ok(());
        }
        let result = self.wait_for_news(timeout, events);
        self.unhide();
        result
    }

    fn after_fork(&mut self) -> io::Result<()> {
        self.bell.after_fork()?;
        self.polled[0] = sys::entry(self.bell.source(), Ready::READ);
        Ok(())
    }
}

impl Poll {
    /// Calls `poll` until there is something to report, or the time is over.
    fn wait_for_news(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        let already = events.len();
        let countdown = Countdown::start(timeout);
        let mut left = timeout;
        loop {
            if left != Some(Duration::ZERO) && !self.bell.sleep() {
                left = Some(Duration::ZERO);
            } else if !self.hidden.is_empty() {
                left = Some(left.map_or(RECHECK, |left| left.min(RECHECK)));
            }
            let result = sys::poll(&mut self.polled, left);
            self.unhide();
            let rung = matches!(result, Ok(1..)) && self.polled[0].revents != 0;
            let woken = self.bell.wake_up(rung);
            match result {
                Ok(count) => self.report(count - usize::from(rung), events)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
                Err(error) => return Err(error),
            }
            if rung && self.polled[0].revents & sys::POLLNVAL != 0 {
                return Err(io::Error::other("someone has closed the waker of this backend"));
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

    /// Reports what the kernel has answered to `count` entries.
    fn report(&mut self, mut count: usize, events: &mut Vec<Event>) -> io::Result<()> {
        let mut place = 1;
        while count > 0 && place < self.polled.len() {
            let revents = self.polled[place].revents;
            if revents == 0 {
                place += 1;
                continue;
            }
            count -= 1;
            let token = self.tokens[place];
            let watch = self.sources.get_mut(token)?;
            let ready = watch.wanted.report(sys::seen(revents));
            if ready.is_empty() {
                // Not asked for, yet it would end the next call at once.
                self.hidden.push((place, self.polled[place]));
                self.polled[place] = sys::NO_ENTRY;
            } else {
                events.push(Event::Ready { token, ready });
            }
            if ready.is_empty() || watch.mode != Mode::Oneshot && revents & sys::POLLNVAL == 0 {
                place += 1;
            } else {
                // The entry that moves here has not been looked at yet, and the
                // hidden ones are all before it.
                (watch.wanted, watch.place) = (Ready::NONE, None);
                self.remove_entry(place);
            }
        }
        Ok(())
    }

    /// Puts the hidden entries back.
    fn unhide(&mut self) {
        for (place, entry) in self.hidden.drain(..) {
            self.polled[place] = sys::PollFd { revents: 0, ..entry };
        }
    }

    /// Makes the entry of a registration what its interest wants.
    fn arm(&mut self, token: Token) -> io::Result<()> {
        let (source, watch) = self.sources.entry_mut(token)?;
        let silent = !watch.wanted.intersects(Ready::INTEREST);
        match watch.place {
            None if silent => {}
            Some(place) if silent => {
                watch.place = None;
                self.remove_entry(place);
            }
            Some(place) => self.polled[place] = sys::entry(source, watch.wanted),
            None => {
                watch.place = Some(self.polled.len());
                self.polled.push(sys::entry(source, watch.wanted));
                self.tokens.push(token);
            }
        }
        Ok(())
    }

    /// Takes an entry out; the last one moves into its place.
    fn remove_entry(&mut self, place: usize) {
        self.polled.swap_remove(place);
        self.tokens.swap_remove(place);
        if let Some(&moved) = self.tokens.get(place)
            && let Some((_, watch)) = self.sources.find(moved)
        {
            watch.place = Some(place);
        }
    }
}

impl fmt::Debug for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poll")
            .field("sources", &self.sources.len())
            .field("polled", &(self.polled.len() - 1))
            .finish_non_exhaustive()
    }
}

/// Refuses what `poll` cannot do.
fn check(interest: Ready, mode: Mode) -> io::Result<()> {
    let why = if mode == Mode::Edge {
        "poll has no edge-triggered mode: use Level or Oneshot"
    } else if interest.contains(Ready::DISCONNECT) && !sys::SEES_DISCONNECT {
        "poll cannot see DISCONNECT here: read until the end of file instead"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::time::Instant;

    use super::*;

    fn tcp_pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn watch(poll: &mut Poll, index: u32, socket: &TcpStream, interest: Ready, mode: Mode) {
        let token = Token::new(index, 0);
        // SAFETY: the tests keep their sockets open while they are registered.
        unsafe { poll.register(token, RawSource::of(socket), interest, mode) }.unwrap();
    }

    fn ready_now(poll: &mut Poll) -> Vec<(u32, Ready)> {
        let mut events = Vec::new();
        poll.wait(Some(Duration::ZERO), &mut events).unwrap();
        let ready = |event: &Event| match *event {
            Event::Ready { token, ready } => (token.index(), ready),
            Event::Done { .. } => panic!("nothing was submitted"),
        };
        let mut all: Vec<_> = events.iter().map(ready).collect();
        all.sort_by_key(|(index, _)| *index);
        all
    }

    #[test]
    fn entries_follow_their_sources_through_removals() {
        let mut poll = Poll::new().unwrap();
        let sockets: Vec<_> = (0..6).map(|_| tcp_pair().0).collect();
        for (index, socket) in (0..).zip(&sockets) {
            let mode = if index % 2 == 0 { Mode::Oneshot } else { Mode::Level };
            watch(&mut poll, index, socket, Ready::WRITE, mode);
        }
        poll.deregister(Token::new(1, 0)).unwrap();
        let indices = |all: Vec<(u32, Ready)>| all.iter().map(|(index, _)| *index).collect();
        let first: Vec<_> = indices(ready_now(&mut poll));
        assert_eq!(first, [0, 2, 3, 4, 5]);
        let second: Vec<_> = indices(ready_now(&mut poll));
        assert_eq!(second, [3, 5], "the others are spent");
        poll.modify(Token::new(2, 0), Ready::WRITE, Mode::Level).unwrap();
        poll.modify(Token::new(3, 0), Ready::NONE, Mode::Level).unwrap();
        let third: Vec<_> = indices(ready_now(&mut poll));
        assert_eq!(third, [2, 5]);
        assert_eq!(poll.polled.len(), 3, "silent sources have no entry");
    }

    #[test]
    fn a_shutdown_nobody_asked_about_neither_ends_a_wait_nor_hides_the_rest() {
        let mut poll = Poll::new().unwrap();
        let (near, far) = tcp_pair();
        near.set_nonblocking(true).unwrap();
        while (&near).write(&[0; 65536]).is_ok() {}
        watch(&mut poll, 0, &near, Ready::WRITE, Mode::Level);
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
        assert_eq!(events, [Event::Ready { token: Token::new(0, 0), ready: Ready::WRITE }]);
        poll.modify(Token::new(0, 0), Ready::READ, Mode::Level).unwrap();
        assert_eq!(ready_now(&mut poll), [(0, Ready::READ)]);
        drop(near);
        reader.join().unwrap();
    }
}
