//! Poll handles: watch a descriptor or socket that somebody else reads and writes.

use std::fmt;
use std::io;

use bitflags::bitflags;
use poll_core::{Backend, Mode, RawSource, Ready, Token};

use crate::callback::Repeated;
use crate::handles::Base;
use crate::sources::Owner;
use crate::{Loop, error, sys};

bitflags! {
    /// What a [`Poll`] watches for.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PollEvents: u8 {
        /// A read would not block.
        const READABLE = 1;
        /// A write would not block.
        const WRITABLE = 2;
        /// The peer has shut down its writing side. Not every backend sees it.
        const DISCONNECT = 4;
        /// Out-of-band data. Not every backend sees it.
        const PRIORITIZED = 8;
    }
}

/// Something with a descriptor (Unix) or a socket (Windows) that a [`Poll`] can watch
/// and keeps meanwhile: a socket, an [`Arc`](std::sync::Arc) of one, a pipe.
///
/// ```
/// use std::net::UdpSocket;
/// use uv_core::poll_core::RawSource;
/// use uv_core::{AsSource, Loop, Poll};
///
/// /// What a library calls a connection.
/// struct Connection {
///     socket: UdpSocket,
///     name: String,
/// }
///
/// impl AsSource for Connection {
///     fn as_source(&self) -> RawSource {
///         RawSource::of(&self.socket)
///     }
/// }
///
/// let connection = Connection { socket: UdpSocket::bind("127.0.0.1:0")?, name: "mine".into() };
/// println!("watching {}", connection.name);
/// let mut lp = Loop::with_default_backend()?;
/// let poll = Poll::new(&mut lp, connection)?;
/// # std::io::Result::Ok(())
/// ```
pub trait AsSource {
    /// Its descriptor or socket. Always the same.
    fn as_source(&self) -> RawSource;
}

#[cfg(unix)]
impl<T: std::os::fd::AsFd> AsSource for T {
    fn as_source(&self) -> RawSource {
        use std::os::fd::AsRawFd;
        RawSource::from_fd(self.as_fd().as_raw_fd())
    }
}

#[cfg(windows)]
impl<T: std::os::windows::io::AsSocket> AsSource for T {
    fn as_source(&self) -> RawSource {
        use std::os::windows::io::AsRawSocket;
        RawSource::from_socket(self.as_socket().as_raw_socket())
    }
}

/// Watches a descriptor or socket of the caller's for readiness, level-triggered.
///
/// For code that does its own I/O, such as other libraries. Readiness can be spurious:
/// reads and writes must not block, and the descriptor is made non-blocking.
///
/// ```
/// use std::{io::{Read, Write}, net::{TcpListener, TcpStream}, sync::Arc};
/// use uv_core::{Handle, Loop, Poll, PollEvents, RunMode};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut client = TcpStream::connect(listener.local_addr()?)?;
/// let server = Arc::new(listener.accept()?.0);
///
/// let mut lp = Loop::with_default_backend()?;
/// let poll = Poll::new(&mut lp, Arc::clone(&server))?;
/// poll.start(&mut lp, PollEvents::READABLE, move |lp, poll, events| {
///     assert_eq!(events.unwrap(), PollEvents::READABLE);
///     let mut buffer = [0; 16];
///     println!("{} bytes", (&*server).read(&mut buffer).unwrap());
///     poll.close(lp).unwrap();
/// })?;
/// client.write_all(b"hello")?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Poll(pub(crate) Token);

pub(crate) struct PollSlot<B: Backend> {
    pub(crate) base: Base,
    /// The registration; gone once the handle is closing.
    source: Option<Token>,
    wanted: PollEvents,
    /// `None` while stopped, and while the callback runs.
    callback: Option<Repeated<B, (Poll, io::Result<PollEvents>)>>,
    /// Keeps the descriptor open until the registration is gone.
    owner: Box<dyn AsSource>,
}

impl<B: Backend> fmt::Debug for PollSlot<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollSlot").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl Poll {
    /// A poll that is not started. It keeps `owner` until it is closed.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if a handle of this loop watches the descriptor; `PermissionDenied` (`EPERM`)
    /// for a file or a directory, which are always ready: the [operations](crate::fs) on files are
    /// for them; the kernel's own if it cannot be watched, from backends that know.
    pub fn new<B: Backend>(lp: &mut Loop<B>, owner: impl AsSource + 'static) -> io::Result<Poll> {
        let raw = owner.as_source();
        sys::refuse_files(raw)?;
        sys::set_nonblocking(raw)?;
        let base = lp.new_base();
        let slot = PollSlot {
            base,
            source: None,
            wanted: PollEvents::empty(),
            callback: None,
            owner: Box::new(owner),
        };
        let poll = Poll(lp.polls.insert(slot));
        match lp.watch(Owner::Poll(poll), raw) {
            Ok(source) => {
                if let Some(slot) = lp.polls.get_mut(poll.0) {
                    slot.source = Some(source);
                }
                Ok(poll)
            }
            Err(error) => {
                lp.polls.remove(poll.0);
                Err(error)
            }
        }
    }

    /// Calls `callback` whenever one of `events` holds. Started again, it watches for
    /// these events and calls this callback instead. No events at all is a stop.
    ///
    /// A pending error stops the poll and is told as `EBADF` (`WSAENOTSOCK`), where the
    /// backend tells errors from readiness. A hang-up is told as all of the events that
    /// were asked for.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the poll is closing, `Unsupported`
    /// for events that this backend does not see.
    pub fn start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        events: PollEvents,
        mut callback: impl FnMut(&mut Loop<B>, Poll, io::Result<PollEvents>) + 'static,
    ) -> io::Result<()> {
        let slot = lp.polls.get_mut(self.0).ok_or_else(error::stale)?;
        if slot.base.is_closing() {
            return Err(error::closing());
        }
        if events.is_empty() {
            return self.stop(lp);
        }
        let source = slot.source.ok_or_else(error::closing)?;
        lp.backend.modify(source, interest(events), Mode::Level)?;
        slot.wanted = events;
        slot.callback =
            Some(Repeated::new(move |lp: &mut Loop<B>, (poll, events)| callback(lp, poll, events)));
        slot.base.start(&mut lp.active_handles);
        Ok(())
    }

    /// Stops watching, at once, and drops the callback. A stopped poll stays so.
    ///
    /// ```
    /// use std::net::UdpSocket;
    /// use uv_core::{Handle, Loop, Poll, PollEvents, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let poll = Poll::new(&mut lp, UdpSocket::bind("127.0.0.1:0")?)?;
    /// poll.start(&mut lp, PollEvents::WRITABLE, |lp, poll, _| poll.stop(lp).unwrap())?;
    /// lp.run(RunMode::Default)?;
    /// assert!(!poll.is_active(&lp));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    pub fn stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.polls.get_mut(self.0).ok_or_else(error::stale)?;
        slot.base.stop(&mut lp.active_handles);
        slot.wanted = PollEvents::empty();
        if let Some(source) = slot.source {
            lp.backend.modify(source, Ready::NONE, Mode::Level)?;
        }
        // Last: dropping what it captured may be anything.
        drop(slot.callback.take());
        Ok(())
    }
}

impl<B: Backend> PollSlot<B> {
    /// What it watches, unless it is closing.
    pub(crate) fn watched(&self) -> Option<RawSource> {
        self.source.map(|_| self.owner.as_source())
    }
}

impl<B: Backend> Loop<B> {
    pub(crate) fn poll_ready(&mut self, poll: Poll, ready: Ready) {
        let Some(slot) = self.polls.get_mut(poll.0) else { return };
        // Stopped, or changed, by a callback of the same batch?
        let asked = interest(slot.wanted);
        let failed = ready.contains(Ready::ERROR) && !ready.contains(Ready::PRIORITY);
        let ready = if ready.contains(Ready::HANGUP) { asked } else { ready & asked };
        if asked.is_empty() || (ready.is_empty() && !failed) {
            return;
        }
        let Some(mut callback) = slot.callback.take() else { return };
        if failed {
            slot.base.stop(&mut self.active_handles);
            slot.wanted = PollEvents::empty();
            if let Some(source) = slot.source {
                // Whatever it says, the source is silent or gone.
                let _ = self.backend.modify(source, Ready::NONE, Mode::Level);
            }
        }
        let told = if failed { Err(sys::bad_source()) } else { Ok(events(ready)) };
        self.call_with(&mut callback, (poll, told), poll, |lp, poll| drop(poll.stop(lp)));
        if let Some(slot) = self.polls.get_mut(poll.0)
            && slot.base.is_active()
        {
            slot.callback.get_or_insert(callback);
        }
    }

    /// Closing: the registration goes at once, the owner with the slot.
    pub(crate) fn stop_poll(&mut self, poll: Poll) {
        if let Some(slot) = self.polls.get_mut(poll.0)
            && let Some(source) = slot.source.take()
        {
            slot.wanted = PollEvents::empty();
            self.unwatch(source);
        }
    }
}

const MAP: [(PollEvents, Ready); 4] = [
    (PollEvents::READABLE, Ready::READ),
    (PollEvents::WRITABLE, Ready::WRITE),
    (PollEvents::DISCONNECT, Ready::DISCONNECT),
    (PollEvents::PRIORITIZED, Ready::PRIORITY),
];

fn interest(events: PollEvents) -> Ready {
    MAP.iter().filter(|(event, _)| events.contains(*event)).map(|(_, ready)| *ready).collect()
}

fn events(ready: Ready) -> PollEvents {
    MAP.iter().filter(|(_, bit)| ready.contains(*bit)).map(|(event, _)| *event).collect()
}
