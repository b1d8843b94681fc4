//! What other threads and signal handlers can do to a loop: leave a note and wake it.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use poll_core::Wake;

/// The part of a loop that other threads reach. It outlives the loop.
///
/// Notes say where to look after the poll; they are bits, so that any number of them
/// costs one look. Leaving one takes no lock and no memory: signal handlers do it too.
pub(crate) struct Notifier {
    notes: AtomicU8,
    /// The last wake has failed: notes may wait that the loop does not know of.
    unwoken: AtomicBool,
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
    pub(crate) const CHANGES: Notes = Notes(16);
}

impl Notifier {
    pub(crate) fn new(waker: impl Wake) -> Notifier {
        let (notes, unwoken) = (AtomicU8::new(0), AtomicBool::new(false));
        Notifier { notes, unwoken, waker: Box::new(move || waker.wake()) }
    }

    /// Leaves a note and makes sure that the loop finds it.
    pub(crate) fn notify(&self, note: Notes) -> io::Result<()> {
        if self.notes.fetch_or(note.0, Ordering::AcqRel) & note.0 == 0 {
            return self.wake();
        }
        self.renew()
    }

    /// There is a note already, and whoever left it wakes the loop. If that has failed, this
    /// tries again.
    #[inline]
    pub(crate) fn renew(&self) -> io::Result<()> {
        if self.unwoken.load(Ordering::Relaxed) && self.unwoken.swap(false, Ordering::AcqRel) {
            return self.wake();
        }
        Ok(())
    }

    fn wake(&self) -> io::Result<()> {
        (self.waker)().inspect_err(|_| self.unwoken.store(true, Ordering::Release))
    }

    /// True if there is a note. The usual answer is no, for a plain look.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.notes.load(Ordering::Relaxed) != 0
    }

    /// Takes a note; true if it was there.
    #[inline]
    pub(crate) fn take(&self, note: Notes) -> bool {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// Fails so many times.
    #[derive(Clone)]
    struct Failing(Arc<AtomicU32>);

    impl Wake for Failing {
        fn wake(&self) -> io::Result<()> {
            let less = |left: u32| left.checked_sub(1);
            match self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less) {
                Ok(_) => Err(io::ErrorKind::OutOfMemory.into()),
                Err(_) => Ok(()),
            }
        }
    }

    #[test]
    fn a_wake_that_failed_is_tried_again_by_whoever_comes_next() {
        let left = Arc::new(AtomicU32::new(2));
        let notifier = Notifier::new(Failing(Arc::clone(&left)));
        assert!(notifier.notify(Notes::ASYNC).is_err());
        assert!(notifier.notify(Notes::ASYNC).is_err(), "the note is there, but nobody knows");
        assert!(notifier.renew().is_ok());
        left.store(1, Ordering::SeqCst);
        assert!(notifier.notify(Notes::ASYNC).is_ok() && notifier.renew().is_ok(), "no need");
        assert!(notifier.take(Notes::ASYNC) && !notifier.take(Notes::ASYNC), "all this is one");
        assert!(notifier.notify(Notes::WORK).is_err());
        assert!(notifier.notify(Notes::SIGNAL).is_ok(), "a wake is for all notes");
        assert!(notifier.take(Notes::WORK) && notifier.take(Notes::SIGNAL));
    }
}
