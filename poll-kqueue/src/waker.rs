//! Wakers: an `EVFILT_USER` knote where the kernel has them, a socket pair elsewhere.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use poll_core::{SocketWaker, Wake, WakeState};

use crate::sys::{
    self, EV_ADD, EV_CLEAR, EV_RECEIPT, EVFILT_READ, EVFILT_USER, Kevent, NOTE_TRIGGER, Queue,
    RawFilter, RawFlags,
};

/// Wakes a [`Kqueue`](crate::Kqueue) that is blocked in `wait`, from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Inner);

#[derive(Clone, Debug)]
enum Inner {
    User(Arc<UserEvent>),
    Socket(SocketWaker),
}

/// A queue with a user event.
#[derive(Debug)]
struct UserEvent {
    state: WakeState,
    queue: Arc<Queue>,
    /// The user event of this process if it is a forked child, which did not inherit `queue`.
    child: OnceLock<Box<UserEvent>>,
}

/// The number of the user event. A queue has no other, so any number will do.
const IDENT: usize = 0;

/// The `udata` of the waker's knotes. No token packs to it: tokens leave bit 63 clear.
const UDATA: usize = usize::MAX;

impl Waker {
    /// A waker of `queue`.
    pub(crate) fn new(queue: &Arc<Queue>) -> io::Result<Waker> {
        // NetBSD before 10 and older OpenBSDs refuse the filter.
        if add_knote(queue, IDENT, EVFILT_USER, EV_CLEAR).is_ok() {
            return Ok(Waker(Inner::User(Arc::new(UserEvent::new(queue)))));
        }
        let sockets = SocketWaker::new()?;
        add_knote(queue, sockets.source().fd() as usize, EVFILT_READ, 0)?;
        Ok(Waker(Inner::Socket(sockets)))
    }

    /// True if an event is of a knote of this waker.
    pub(crate) fn is_wake(&self, event: &Kevent) -> bool {
        event.udata() == UDATA
            && match &self.0 {
                Inner::User(_) => event.filter() == EVFILT_USER,
                Inner::Socket(sockets) => event.ident() == sockets.source().fd() as usize,
            }
    }

    /// Before blocking; see [`WakeState::prepare_park`].
    pub(crate) fn prepare_park(&self) -> bool {
        match &self.0 {
            Inner::User(event) => event.current().state.prepare_park(),
            Inner::Socket(sockets) => sockets.prepare_park(),
        }
    }

    /// After the system call, in which the waker's event may have fired; see
    /// [`WakeState::unpark`].
    pub(crate) fn unpark(&self, fired: bool) -> bool {
        match &self.0 {
            // EV_CLEAR has reset the event.
            Inner::User(event) => event.current().state.unpark(),
            Inner::Socket(sockets) => sockets.unpark(fired),
        }
    }

    /// From now on every wake makes the queue's descriptor readable.
    pub(crate) fn notify_always(&self) -> io::Result<()> {
        match &self.0 {
            Inner::User(event) if event.current().state.notify_always() => {
                event.current().trigger()
            }
            Inner::User(_) => Ok(()),
            Inner::Socket(sockets) => sockets.notify_always(),
        }
    }

    /// In a forked child: this waker and its clones wake `queue` from now on.
    pub(crate) fn after_fork(&self, queue: &Arc<Queue>) -> io::Result<()> {
        match &self.0 {
            Inner::User(event) => {
                add_knote(queue, IDENT, EVFILT_USER, EV_CLEAR)?;
                // The child has one thread, and `current` is the last of the chain: its cell is
                // empty.
                let _ = event.current().child.set(Box::new(UserEvent::new(queue)));
                Ok(())
            }
            Inner::Socket(sockets) => {
                sockets.after_fork()?;
                add_knote(queue, sockets.source().fd() as usize, EVFILT_READ, 0)
            }
        }
    }
}

impl Wake for Waker {
    fn wake(&self) -> io::Result<()> {
        match &self.0 {
            Inner::User(event) => {
                let event = event.current();
                event.state.wake(|| event.trigger())
            }
            Inner::Socket(sockets) => sockets.wake(),
        }
    }
}

impl UserEvent {
    fn new(queue: &Arc<Queue>) -> UserEvent {
        UserEvent { state: WakeState::default(), queue: Arc::clone(queue), child: OnceLock::new() }
    }

    /// The user event of this process.
    fn current(&self) -> &UserEvent {
        let mut event = self;
        while let Some(child) = event.child.get() {
            event = child;
        }
        event
    }

    fn trigger(&self) -> io::Result<()> {
        let trigger = Kevent::new(IDENT, EVFILT_USER, 0, UDATA).with(NOTE_TRIGGER, 0);
        sys::kevent(&self.queue, &[trigger], &mut [], Some(Duration::ZERO)).map(drop)
    }
}

/// Adds a knote of the waker.
fn add_knote(queue: &Queue, ident: usize, filter: RawFilter, flags: RawFlags) -> io::Result<()> {
    let change = Kevent::new(ident, filter, EV_ADD | EV_RECEIPT | flags, UDATA);
    let mut receipt = [Kevent::empty()];
    sys::kevent(queue, &[change], &mut receipt, Some(Duration::ZERO))?;
    match receipt[0].receipt() {
        Some(error @ 1..) => Err(io::Error::from_raw_os_error(error)),
        _ => Ok(()),
    }
}
