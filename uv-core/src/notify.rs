//! What other threads and signal handlers can do to a loop: leave a note and wake it.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

use poll_core::Wake;

/// The part of a loop that other threads reach. It outlives the loop.
///
/// Notes say where to look after the poll; they are bits, so that any number of them
/// costs one look. Leaving one takes no lock and no memory: signal handlers do it too.
pub(crate) struct Notifier {
    notes: AtomicU8,
    waker: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
}

/// Where to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notes(u8);

impl Notes {
    pub(crate) const ASYNC: Notes = Notes(1);
    pub(crate) const WORK: Notes = Notes(2);
    pub(crate) const SIGNAL: Notes = Notes(4);
    pub(crate) const CHILD: Notes = Notes(8);
}

impl Notifier {
    pub(crate) fn new(waker: impl Wake) -> Notifier {
        Notifier { notes: AtomicU8::new(0), waker: Box::new(move || waker.wake()) }
    }

    /// Leaves a note and makes sure that the loop finds it.
    pub(crate) fn notify(&self, note: Notes) -> io::Result<()> {
        // If the note is there already, whoever left it wakes the loop.
        if self.notes.fetch_or(note.0, Ordering::AcqRel) & note.0 == 0 {
            (self.waker)()?;
        }
        Ok(())
    }

    /// Takes a note; true if it was there.
    #[inline]
    pub(crate) fn take(&self, note: Notes) -> bool {
        // A plain look first: the usual answer is that there is none.
        self.notes.load(Ordering::Relaxed) & note.0 != 0
            && self.notes.fetch_and(!note.0, Ordering::AcqRel) & note.0 != 0
    }

    /// Takes all notes and looks at none.
    pub(crate) fn forget(&self) {
        self.notes.store(0, Ordering::Release);
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").field("notes", &self.notes).finish_non_exhaustive()
    }
}
