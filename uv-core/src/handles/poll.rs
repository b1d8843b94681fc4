//! Poll handles: readiness of a descriptor or socket that other code reads and writes.

use std::any::Any;
use std::fmt;
use std::io;
#[cfg(unix)]
use std::os::fd::AsFd as AsOwner;
#[cfg(windows)]
use std::os::windows::io::AsSocket as AsOwner;

use bitflags::bitflags;
use poll_core::{Backend, Interest, Mode, RawSource, Readiness, Token};

use crate::event_loop::{SourceOwner, exchange};
use crate::handles::Base;
use crate::storage::InlineFnMut;
use crate::{Loop, error, streams, sys};

bitflags! {
    /// The events of a [`Poll`].
    #[doc(alias = "uv_poll_event")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PollEvents: u8 {
        /// A read would not block.
        const READABLE = 1;
        /// A write would not block.
        const WRITABLE = 2;
        /// The peer has shut down its writing side. Not every backend supports it.
        const DISCONNECT = 4;
        /// Out-of-band data. Not every backend supports it.
        const PRIORITIZED = 8;
    }
}

/// Watches a descriptor or socket for readiness, level-triggered.
///
/// For code that does its own I/O, such as other libraries. Readiness can be spurious, so the
/// descriptor is made non-blocking. It stays non-blocking after the poll is closed, also for
/// other processes that share the open file.
///
/// The poll owns the object that keeps the descriptor open, or shares it: a socket, an
/// [`Rc`](std::rc::Rc) or an [`Arc`](std::sync::Arc) of one, an `OwnedFd`, or any type that
/// implements `AsFd` (Unix) or `AsSocket` (Windows).
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
    /// The registration. `None` once the handle is closing, while another handle of the
    /// descriptor has taken its place, and while a poll without an owner is stopped.
    source: Option<Token>,
    wanted: PollEvents,
    /// `None` while stopped, and while the callback runs.
    callback: Option<InlineFnMut<B, (Poll, io::Result<PollEvents>)>>,
    /// The descriptor of `owner`, taken once at creation.
    raw: RawSource,
    /// Keeps the descriptor open until it is deregistered. Not used otherwise, so the borrow that
    /// `raw` was taken from could last as long as this box.
    /// `None` if the caller keeps it open while the poll is started.
    owner: Option<Box<dyn Any>>,
}

impl<B: Backend> fmt::Debug for PollSlot<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PollSlot").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

impl Poll {
    /// A poll that is not started. It keeps `owner` until its close callback has run.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use std::net::UdpSocket;
    /// use std::os::fd::{AsFd, BorrowedFd};
    /// use uv_core::{Loop, Poll};
    ///
    /// /// A connection of another library.
    /// struct Connection {
    ///     socket: UdpSocket,
    ///     name: String,
    /// }
    ///
    /// impl AsFd for Connection {
    ///     fn as_fd(&self) -> BorrowedFd<'_> {
    ///         self.socket.as_fd()
    ///     }
    /// }
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let connection = Connection { socket, name: "mine".into() };
    /// println!("watching {}", connection.name);
    /// let mut lp = Loop::with_default_backend()?;
    /// let poll = Poll::new(&mut lp, connection)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// A raw number owns nothing, and a borrow does not live long enough:
    ///
    /// ```compile_fail,E0277
    /// # let mut lp = uv_core::Loop::with_default_backend()?;
    /// # let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// uv_core::Poll::new(&mut lp, uv_core::poll_core::RawSource::of(&socket))?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// ```compile_fail,E0597
    /// # let mut lp = uv_core::Loop::with_default_backend()?;
    /// # let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// uv_core::Poll::new(&mut lp, &socket)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if a handle of this loop is watching the descriptor (a stopped one gives
    /// way); `ResourceBusy` if a stream has received bytes from it that were not read;
    /// `PermissionDenied` (`EPERM`) for a file or a directory, which are always ready: use the
    /// [operations](crate::fs) on files; the kernel's errors if the backend cannot watch it. The
    /// owner is dropped then.
    #[doc(alias = "uv_poll_init")]
    #[doc(alias = "uv_poll_init_socket")]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn new<B: Backend>(lp: &mut Loop<B>, owner: impl AsOwner + 'static) -> io::Result<Poll> {
        // `as_fd` is called once, at the final address: a safe implementation may return a
        // different descriptor each time.
        let owner = Box::new(owner);
        let raw = borrowed_source(&*owner);
        Poll::of(lp, raw, Some(owner))
    }

    /// A poll of a descriptor or socket that the caller keeps open: for foreign code, and for the
    /// descriptor of another loop. It is registered while it is started, so the caller may close
    /// the descriptor of a stopped one.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use std::net::UdpSocket;
    /// use uv_core::poll_core::RawSource;
    /// use uv_core::{Handle, Loop, Poll, PollEvents, RunMode};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// // SAFETY: `socket` is closed after the loop has run, which closes the poll.
    /// let poll = unsafe { Poll::from_raw_source(&mut lp, RawSource::of(&socket)) }?;
    /// poll.start(&mut lp, PollEvents::WRITABLE, |lp, poll, _| poll.close(lp).unwrap())?;
    /// lp.run(RunMode::Default)?;
    /// drop(socket);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`Poll::new`], and `EBADF` (`WSAENOTSOCK`) if `source` is not open.
    ///
    /// # Safety
    ///
    /// `source` must stay open, and must not be replaced (`dup2`), during this call and from each
    /// start of the poll until it is stopped, the close callback runs or the loop is dropped. The
    /// caller accepts that it becomes non-blocking.
    #[doc(alias = "uv_poll_init")]
    #[doc(alias = "uv_poll_init_socket")]
    #[allow(unsafe_code, reason = "the caller guarantees what an owner would")]
    #[cfg_attr(feature = "origins", track_caller)]
    pub unsafe fn from_raw_source<B: Backend>(
        lp: &mut Loop<B>,
        source: RawSource,
    ) -> io::Result<Poll> {
        let poll = Poll::of(lp, source, None)?;
        lp.has_unowned_polls = true;
        Ok(poll)
    }

    /// A poll of `raw`, which `owner` or the caller's contract keeps open.
    #[cfg_attr(feature = "origins", track_caller)]
    fn of<B: Backend>(
        lp: &mut Loop<B>,
        raw: RawSource,
        owner: Option<Box<dyn Any>>,
    ) -> io::Result<Poll> {
        sys::refuse_files(raw)?;
        streams::handover::check_operations_on(lp, raw)?;
        sys::set_nonblocking(raw)?;
        let base = lp.new_base();
        let slot = PollSlot {
            base,
            source: None,
            wanted: PollEvents::empty(),
            callback: None,
            raw,
            owner,
        };
        let poll = Poll(lp.polls.insert(slot));
        match lp.watch(SourceOwner::Poll(poll), raw) {
            Ok(source) => {
                if let Some(slot) = lp.polls.get_mut(poll.0) {
                    slot.source = Some(source);
                }
                release_unowned(lp, poll);
                Ok(poll)
            }
            Err(error) => {
                lp.polls.remove(poll.0);
                Err(error)
            }
        }
    }

    /// Calls `callback` whenever one of `events` is ready. A second start replaces the events and
    /// the callback. A start without events stops the poll.
    ///
    /// A pending error of the descriptor stops the poll and is reported as `EBADF`
    /// (`WSAENOTSOCK`), where the backend distinguishes errors from readiness. A hang-up is
    /// reported as all requested events.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the poll is closing, `Unsupported` for events
    /// that this backend does not support, `AlreadyExists` if the poll was stopped and another
    /// handle of this loop watches the descriptor now.
    #[doc(alias = "uv_poll_start")]
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
        let (source, raw) = (slot.source, slot.raw);
        match source {
            Some(source) => lp.backend.modify(source, interest(events), Mode::Level)?,
            None => {
                // It was idle, and another handle may use the descriptor by now.
                streams::handover::check_operations_on(lp, raw)?;
                let source = lp.watch_for(SourceOwner::Poll(self), raw, interest(events))?;
                let slot = lp.polls.get_mut(self.0).ok_or_else(error::stale)?;
                slot.source = Some(source);
            }
        }
        let slot = lp.polls.get_mut(self.0).ok_or_else(error::stale)?;
        slot.wanted = events;
        slot.callback = Some(InlineFnMut::new(move |lp: &mut Loop<B>, (poll, events)| {
            callback(lp, poll, events)
        }));
        slot.base.start(&mut lp.active_handles);
        Ok(())
    }

    /// Stops watching immediately, and drops the callback. Does nothing to a stopped poll.
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
    #[doc(alias = "uv_poll_stop")]
    pub fn stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.polls.get_mut(self.0).ok_or_else(error::stale)?;
        slot.base.stop(&mut lp.active_handles);
        slot.wanted = PollEvents::empty();
        let callback = slot.callback.take();
        let result = match slot.source {
            Some(source) if slot.owner.is_some() => {
                lp.backend.modify(source, Interest::NONE, Mode::Level)
            }
            _ => {
                release_unowned(lp, self);
                Ok(())
            }
        };
        // Last: destructors of the captured values may do anything.
        drop(callback);
        result
    }
}

impl<B: Backend> PollSlot<B> {
    /// The watched descriptor, unless the poll is closing.
    pub(crate) fn watched(&self) -> Option<RawSource> {
        (!self.base.is_closing()).then_some(self.raw)
    }

    /// The registration of `raw`, if the poll is stopped.
    pub(crate) fn take_idle_source(&mut self, raw: RawSource) -> Option<Token> {
        if self.raw == raw && self.wanted.is_empty() { self.source.take() } else { None }
    }
}

impl<B: Backend> PollSlot<B> {
    /// The descriptor that it watches, if another handle may have the same.
    pub(crate) fn unowned_source(&self) -> Option<RawSource> {
        (self.owner.is_none() && self.source.is_some()).then_some(self.raw)
    }
}

/// Ends the registration of a stopped poll that has no owner: the caller may close the
/// descriptor now.
fn release_unowned<B: Backend>(lp: &mut Loop<B>, poll: Poll) {
    if let Some(slot) = lp.polls.get_mut(poll.0)
        && slot.owner.is_none()
        && let Some(source) = slot.source.take()
    {
        lp.unwatch(source);
    }
}

pub(crate) fn ready<B: Backend>(lp: &mut Loop<B>, poll: Poll, ready: Readiness) {
    let Some(slot) = lp.polls.get_mut(poll.0) else { return };
    // A callback of the same batch of events may have stopped or changed the poll.
    let asked = interest(slot.wanted).to_readiness();
    let failed = ready.contains(Readiness::ERROR) && !ready.contains(Readiness::PRIORITY);
    let ready = if ready.contains(Readiness::HANGUP) { asked } else { ready & asked };
    if asked.is_empty() || (ready.is_empty() && !failed) {
        return;
    }
    let Some(mut callback) = slot.callback.take() else {
        // An exchange of loops has lost the callback.
        return drop(poll.stop(lp));
    };
    if failed {
        slot.base.stop(&mut lp.active_handles);
        slot.wanted = PollEvents::empty();
        if let Some(source) = slot.source {
            // Whether it succeeds or fails, the source reports no more events.
            let _ = lp.backend.modify(source, Interest::NONE, Mode::Level);
        }
        release_unowned(lp, poll);
    }
    let result = if failed { Err(sys::bad_source()) } else { Ok(events(ready)) };
    lp.call_with(&mut callback, (poll, result), poll, |lp, poll| drop(poll.stop(lp)));
    match lp.polls.get_mut(poll.0) {
        Some(slot) if slot.base.is_active() => {
            slot.callback.get_or_insert(callback);
        }
        Some(_) => {}
        None => exchange::note(),
    }
}

/// Deregisters the descriptor of a closing poll. The owner is dropped with the slot.
pub(crate) fn deregister<B: Backend>(lp: &mut Loop<B>, poll: Poll) {
    if let Some(slot) = lp.polls.get_mut(poll.0)
        && let Some(source) = slot.source.take()
    {
        slot.wanted = PollEvents::empty();
        lp.unwatch(source);
    }
}

/// The descriptor of an owner.
#[cfg(unix)]
fn borrowed_source(owner: &impl AsOwner) -> RawSource {
    RawSource::of(&owner.as_fd())
}

#[cfg(windows)]
fn borrowed_source(owner: &impl AsOwner) -> RawSource {
    RawSource::of(&owner.as_socket())
}

const MAP: [(PollEvents, Interest); 4] = [
    (PollEvents::READABLE, Interest::READ),
    (PollEvents::WRITABLE, Interest::WRITE),
    (PollEvents::DISCONNECT, Interest::DISCONNECT),
    (PollEvents::PRIORITIZED, Interest::PRIORITY),
];

fn interest(events: PollEvents) -> Interest {
    MAP.iter().filter(|(event, _)| events.contains(*event)).map(|(_, bit)| *bit).collect()
}

fn events(ready: Readiness) -> PollEvents {
    let ready = ready.to_interest();
    MAP.iter().filter(|(_, bit)| ready.contains(*bit)).map(|(event, _)| *event).collect()
}
