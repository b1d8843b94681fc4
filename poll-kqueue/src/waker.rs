//! Waking: an `EVFILT_USER` knote where the kernel has them, a bell elsewhere.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use poll_core::{Bell, Doorbell, Wake};

use crate::sys::{
    self, EV_ADD, EV_CLEAR, EV_RECEIPT, EVFILT_READ, EVFILT_USER, Kevent, NOTE_TRIGGER, Queue,
    RawFilter, RawFlags,
};

/// Wakes a [`Kqueue`](crate::Kqueue).
#[derive(Clone, Debug)]
pub struct KqueueWaker(Ring);

#[derive(Clone, Debug)]
enum Ring {
    User(Arc<Door>),
    Socket(Bell),
}

/// A queue with a user event in it.
#[derive(Debug)]
struct Door {
    bell: Doorbell,
    queue: Arc<Queue>,
    /// The door of this process if it is a forked child, which has not the queue above.
    child: OnceLock<Box<Door>>,
}

/// The number of the user event. It is the only one, so that any will do.
const IDENT: usize = 0;

/// What knotes of the waker carry. No token packs to it: bit 63 is free in those.
const UDATA: usize = usize::MAX;

impl KqueueWaker {
    /// A waker for `queue`.
    pub(crate) fn new(queue: &Arc<Queue>) -> io::Result<KqueueWaker> {
        // NetBSD before 10 and older OpenBSDs have no user events, and say so here.
        if add(queue, IDENT, EVFILT_USER, EV_CLEAR).is_ok() {
            return Ok(KqueueWaker(Ring::User(Arc::new(Door::new(queue)))));
        }
        let bell = Bell::new()?;
        add(queue, bell.source().fd() as usize, EVFILT_READ, 0)?;
        Ok(KqueueWaker(Ring::Socket(bell)))
    }

    /// True if an event is this waker's.
    pub(crate) fn is_ring(&self, event: &Kevent) -> bool {
        event.udata() == UDATA
            && match &self.0 {
                Ring::User(_) => event.filter() == EVFILT_USER,
                Ring::Socket(bell) => event.ident() == bell.source().fd() as usize,
            }
    }

    /// Before blocking; see [`Doorbell::sleep`].
    pub(crate) fn sleep(&self) -> bool {
        match &self.0 {
            Ring::User(door) => door.current().bell.sleep(),
            Ring::Socket(bell) => bell.sleep(),
        }
    }

    /// After the system call; see [`Doorbell::wake_up`].
    pub(crate) fn wake_up(&self, rung: bool) -> bool {
        match &self.0 {
            // Telling of it has cleared it.
            Ring::User(door) => door.current().bell.wake_up(),
            Ring::Socket(bell) => bell.wake_up(rung),
        }
    }

    /// From now on every wake shows at the queue's descriptor.
    pub(crate) fn watch(&self) -> io::Result<()> {
        match &self.0 {
            Ring::User(door) if door.current().bell.watch() => door.current().trigger(),
            Ring::User(_) => Ok(()),
            Ring::Socket(bell) => bell.watch(),
        }
    }

    /// In a forked child: wakes `queue` from now on, and so do all clones.
    pub(crate) fn after_fork(&self, queue: &Arc<Queue>) -> io::Result<()> {
        match &self.0 {
            Ring::User(door) => {
                add(queue, IDENT, EVFILT_USER, EV_CLEAR)?;
                // Only the child's one thread is here, so the cell is certainly empty.
                let _ = door.current().child.set(Box::new(Door::new(queue)));
                Ok(())
            }
            Ring::Socket(bell) => {
                bell.after_fork()?;
                add(queue, bell.source().fd() as usize, EVFILT_READ, 0)
            }
        }
    }
}

impl Wake for KqueueWaker {
    fn wake(&self) -> io::Result<()> {
        match &self.0 {
            Ring::User(door) => {
                let door = door.current();
                door.bell.wake_with(|| door.trigger())
            }
            Ring::Socket(bell) => bell.wake(),
        }
    }
}

impl Door {
    fn new(queue: &Arc<Queue>) -> Door {
        Door { bell: Doorbell::default(), queue: Arc::clone(queue), child: OnceLock::new() }
    }

    /// The door of this process.
    fn current(&self) -> &Door {
        let mut door = self;
        while let Some(child) = door.child.get() {
            door = child;
        }
        door
    }

    fn trigger(&self) -> io::Result<()> {
        let trigger = Kevent::new(IDENT, EVFILT_USER, 0, UDATA).with(NOTE_TRIGGER, 0);
        sys::kevent(&self.queue, &[trigger], &mut [], Some(Duration::ZERO)).map(drop)
    }
}

/// Adds one knote of the waker, at once.
fn add(queue: &Queue, ident: usize, filter: RawFilter, flags: RawFlags) -> io::Result<()> {
    let change = Kevent::new(ident, filter, EV_ADD | EV_RECEIPT | flags, UDATA);
    let mut receipt = [Kevent::empty()];
    sys::kevent(queue, &[change], &mut receipt, Some(Duration::ZERO))?;
    match receipt[0].receipt() {
        Some(error @ 1..) => Err(io::Error::from_raw_os_error(error)),
        _ => Ok(()),
    }
}
