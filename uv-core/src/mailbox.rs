//! Signals on their way from the process's handler to a loop.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::notify::{Notes, Notifier};

/// One more than the largest signal number of any system here.
pub(crate) const SIGNALS: usize = 129;

/// The signals that were caught for one loop.
#[derive(Debug)]
pub(crate) struct Mailbox {
    /// How often each signal was caught since the loop last looked.
    caught: [AtomicU32; SIGNALS],
    any: AtomicBool,
    notifier: Arc<Notifier>,
    /// What the loop is told.
    note: Notes,
}

impl Mailbox {
    pub(crate) fn new(notifier: Arc<Notifier>, note: Notes) -> Arc<Mailbox> {
        let caught = [const { AtomicU32::new(0) }; SIGNALS];
        Arc::new(Mailbox { caught, any: AtomicBool::new(false), notifier, note })
    }

    /// Tells the loop of a signal. Takes no lock and no memory: for signal handlers.
    pub(crate) fn post(&self, signum: usize) {
        self.caught[signum].fetch_add(1, Ordering::Relaxed);
        self.any.store(true, Ordering::Release);
        // If waking fails the loop finds the signal when it next looks.
        let _ = self.notifier.notify(self.note);
    }

    /// Takes what was caught: calls `each` with a signal and how often it was.
    pub(crate) fn take(&self, mut each: impl FnMut(i32, u32)) {
        if !self.any.swap(false, Ordering::Acquire) {
            return;
        }
        for (signum, caught) in self.caught.iter().enumerate() {
            match caught.swap(0, Ordering::Relaxed) {
                0 => {}
                times => each(signum as i32, times),
            }
        }
    }
}

/// Which kind of watcher, in the order in which they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Regular,
    Oneshot,
}

/// The number of a signal, as an index.
pub(crate) fn check_number(signum: i32) -> io::Result<usize> {
    let index = usize::try_from(signum).ok().filter(|index| (1..SIGNALS).contains(index));
    index.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, format!("there is no signal {signum}"))
    })
}
