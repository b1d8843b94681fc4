//! Notifications of a loop by other threads and signal handlers.

use std::fmt;
use std::io;
use std::sync::atomic::Ordering;

use poll_core::Wake;

use crate::sync::{AtomicBool, AtomicU8};

/// The part of a loop that other threads reach. It outlives the loop.
///
/// Notifications select what the loop checks after the poll. They are bits, so that one load finds
/// any number of them. Setting one takes no lock and no memory: signal handlers do it too.
pub(crate) struct Notifier {
    bits: AtomicU8,
    /// The last wake has failed: bits may be set while the loop sleeps.
    wake_failed: AtomicBool,
    waker: Box<dyn Fn() -> io::Result<()> + Send + Sync>,
}

/// A set of notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notification(u8);

impl Notification {
    pub(crate) const ASYNC: Notification = Notification(1);
    pub(crate) const WORK: Notification = Notification(2);
    pub(crate) const SIGNAL: Notification = Notification(4);
    pub(crate) const CHILD: Notification = Notification(8);
    pub(crate) const CHANGES: Notification = Notification(16);
    /// All that other threads and signal handlers send.
    pub(crate) const ALL: Notification = Notification(31);
    /// Set by the loop itself: it has polled since it collected signals, and delivers them.
    pub(crate) const POLLED_SIGNALS: Notification = Notification(32);
}

impl Notifier {
    pub(crate) fn new(waker: impl Wake) -> Notifier {
        let (bits, wake_failed) = (AtomicU8::new(0), AtomicBool::new(false));
        Notifier { bits, wake_failed, waker: Box::new(move || waker.wake()) }
    }

    /// Sets a notification and wakes the loop if it was not set.
    pub(crate) fn notify(&self, notification: Notification) -> io::Result<()> {
        if self.bits.fetch_or(notification.0, Ordering::AcqRel) & notification.0 != notification.0 {
            return self.wake();
        }
        self.retry_failed_wake()
    }

    /// As [`notify`](Notifier::notify), for a notification that is set already, or that another
    /// thread is about to set.
    #[inline]
    pub(crate) fn notify_again(&self, notification: Notification) -> io::Result<()> {
        if self.bits.load(Ordering::Relaxed) & notification.0 == 0 {
            return self.notify(notification);
        }
        self.retry_failed_wake()
    }

    /// A notification is set already, and the thread that set it wakes the loop. If that has
    /// failed, this tries again.
    #[inline]
    pub(crate) fn retry_failed_wake(&self) -> io::Result<()> {
        if self.wake_failed.load(Ordering::Relaxed)
            && self.wake_failed.swap(false, Ordering::AcqRel)
        {
            return self.wake();
        }
        Ok(())
    }

    /// For a wait outside of the iteration, which consumes wakes and looks at no notification: the
    /// next wait must not block if one is set.
    pub(crate) fn renew_wake(&self) {
        if self.has_any() {
            // If the wake fails, the next notification tries again.
            drop(self.wake());
        }
    }

    fn wake(&self) -> io::Result<()> {
        (self.waker)().inspect_err(|_| self.wake_failed.store(true, Ordering::Release))
    }

    /// True if a notification is set. A relaxed load suffices for the usual case, none.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.bits.load(Ordering::Relaxed) != 0
    }

    /// True if a notification is set.
    #[inline]
    pub(crate) fn is_set(&self, notification: Notification) -> bool {
        self.bits.load(Ordering::Relaxed) & notification.0 != 0
    }

    /// Sets a notification without waking the loop, which sets it itself and looks at it in time.
    pub(crate) fn mark(&self, notification: Notification) {
        self.bits.fetch_or(notification.0, Ordering::AcqRel);
    }

    /// Clears a notification; true if it was set.
    #[inline]
    pub(crate) fn take(&self, notification: Notification) -> bool {
        self.is_set(notification)
            && self.bits.fetch_and(!notification.0, Ordering::AcqRel) & notification.0 != 0
    }

    /// Clears all notifications.
    pub(crate) fn forget(&self) {
        self.bits.store(0, Ordering::Release);
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").field("bits", &self.bits).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// Fails the given number of times.
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
    fn a_failed_wake_is_retried_by_the_next_notification() {
        let left = Arc::new(AtomicU32::new(2));
        let notifier = Notifier::new(Failing(Arc::clone(&left)));
        assert!(notifier.notify(Notification::ASYNC).is_err());
        assert!(
            notifier.notify(Notification::ASYNC).is_err(),
            "it is set, but the loop was not woken"
        );
        assert!(notifier.retry_failed_wake().is_ok());
        left.store(1, Ordering::SeqCst);
        assert!(
            notifier.notify(Notification::ASYNC).is_ok() && notifier.retry_failed_wake().is_ok(),
            "no wake is needed"
        );
        assert!(
            notifier.take(Notification::ASYNC) && !notifier.take(Notification::ASYNC),
            "they coalesce"
        );
        assert!(notifier.notify(Notification::WORK).is_err());
        assert!(notifier.notify(Notification::SIGNAL).is_ok(), "one wake is for all notifications");
        assert!(notifier.take(Notification::WORK) && notifier.take(Notification::SIGNAL));
    }
}
