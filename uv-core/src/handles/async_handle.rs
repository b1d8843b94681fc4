//! Async handles: wake-ups of the loop by other threads and signal handlers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use poll_core::{Backend, Token};

use crate::event_loop::{Notification, Notifier, exchange};
use crate::handles::Base;
use crate::storage::{Arena, InlineFnMut, Seed};
use crate::sync::AtomicBool;
use crate::{Loop, error};

#[cfg(all(test, loom))]
mod models;

/// Calls back in the loop's thread when another thread sends to it.
///
/// It is active from its creation until it is closed. Sends coalesce: any number of them before
/// the callback runs results in one call. To send values, use a [`Channel`](crate::Channel).
///
/// ```
/// use uv_core::{Async, Handle, Loop, RunMode};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (_, sender) = Async::new(&mut lp, |lp, handle| {
///     println!("called in the loop's thread");
///     handle.close(lp).unwrap();
/// });
/// let thread = std::thread::spawn(move || sender.send());
/// lp.run(RunMode::Default)?;
/// thread.join().unwrap()?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "uv_async_t")]
pub struct Async(pub(crate) Token);

/// The sender of an [`Async`], for any thread and for signal handlers.
///
/// ```
/// use std::io::ErrorKind;
/// use uv_core::{Async, AsyncSender, Handle, Loop, RunMode};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (handle, sender) = Async::new(&mut lp, |lp, handle| handle.close(lp).unwrap());
/// let another: AsyncSender = handle.sender(&lp)?;
/// sender.send()?;
/// another.send()?; // One call for both.
/// lp.run(RunMode::Default)?;
/// assert_eq!(sender.send().unwrap_err().kind(), ErrorKind::BrokenPipe);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug)]
pub struct AsyncSender {
    flag: Arc<Flag>,
    notifier: Arc<Notifier>,
}

/// The state that an async handle shares with its senders.
#[derive(Debug, Default)]
struct Flag {
    pending: AtomicBool,
    closed: AtomicBool,
}

impl AsyncSender {
    /// Wakes the loop to run the callback once, however often this is called before it runs.
    ///
    /// Writes of the caller before this call are visible to the callback. Async-signal-safe: it
    /// takes no lock and allocates nothing.
    ///
    /// # Errors
    ///
    /// `BrokenPipe` if the handle was closed, its callback has panicked, or its loop was dropped;
    /// errors of the backend's wake-up.
    #[doc(alias = "uv_async_send")]
    pub fn send(&self) -> io::Result<()> {
        if self.flag.closed.load(Ordering::Acquire) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // Always a swap, never only a load: a load of a set flag does not order the caller's
        // earlier writes before the callback that is due, which could miss them.
        if self.flag.pending.swap(true, Ordering::AcqRel) {
            // The thread that set the flag may not have notified yet. A job that sends and then
            // ends relies on the notification: the loop runs asyncs before work callbacks.
            return self.notifier.notify_again(Notification::ASYNC);
        }
        self.notifier.notify(Notification::ASYNC)
    }
}

/// The asyncs of a loop.
#[derive(Debug)]
pub(crate) struct Asyncs<B: Backend> {
    pub(crate) slots: Arena<AsyncSlot<B>>,
    /// The asyncs to call, in the order of creation. Empty between passes; kept for its capacity.
    due: Vec<(u32, Token)>,
}

#[derive(Debug)]
pub(crate) struct AsyncSlot<B: Backend> {
    pub(crate) base: Base,
    flag: Arc<Flag>,
    /// `None` while the callback runs.
    callback: Option<InlineFnMut<B, Async>>,
}

impl<B: Backend> Asyncs<B> {
    pub(crate) fn new(seed: Seed) -> Asyncs<B> {
        Asyncs { slots: Arena::new(seed), due: Vec::new() }
    }
}

impl<B: Backend> Drop for AsyncSlot<B> {
    fn drop(&mut self) {
        self.flag.closed.store(true, Ordering::Release);
    }
}

impl Async {
    /// An active async handle and its sender.
    #[doc(alias = "uv_async_init")]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn new<B: Backend>(
        lp: &mut Loop<B>,
        callback: impl FnMut(&mut Loop<B>, Async) + 'static,
    ) -> (Async, AsyncSender) {
        let mut base = lp.new_base();
        base.start(&mut lp.active_handles);
        let flag = Arc::new(Flag::default());
        let sender = AsyncSender { flag: Arc::clone(&flag), notifier: Arc::clone(&lp.notifier) };
        let callback = Some(InlineFnMut::new(callback));
        (Async(lp.asyncs.slots.insert(AsyncSlot { base, flag, callback })), sender)
    }

    /// Another sender.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    pub fn sender<B: Backend>(self, lp: &Loop<B>) -> io::Result<AsyncSender> {
        let slot = lp.asyncs.slots.get(self.0).ok_or_else(error::stale)?;
        Ok(AsyncSender { flag: Arc::clone(&slot.flag), notifier: Arc::clone(&lp.notifier) })
    }
}

impl<B: Backend> Asyncs<B> {
    /// Makes sends fail: at close, after a panic of the callback, or when a channel has no senders.
    pub(crate) fn stop(&mut self, active: &mut usize, handle: Async) {
        if let Some(slot) = self.slots.get_mut(handle.0) {
            slot.flag.closed.store(true, Ordering::Release);
            slot.base.stop(active);
        }
    }

    /// Discards pending sends in a forked child: they belong to the parent.
    pub(crate) fn forget_sends(&mut self) {
        for (_, slot) in self.slots.iter_mut() {
            slot.flag.pending.store(false, Ordering::Release);
        }
    }
}

/// Calls the asyncs with pending sends in the order of creation; returns the number of calls.
pub(crate) fn run_pending<B: Backend>(lp: &mut Loop<B>) -> usize {
    let mut due = std::mem::take(&mut lp.asyncs.due);
    let pending = |slot: &AsyncSlot<B>| slot.flag.pending.load(Ordering::Relaxed);
    let slots = lp.asyncs.slots.iter().filter(|(_, slot)| pending(slot));
    due.extend(slots.map(|(key, slot)| (slot.base.id(), key)));
    due.sort_unstable();
    let mut called = 0;
    for (_, key) in due.drain(..) {
        let Some(slot) = lp.asyncs.slots.get_mut(key) else { continue };
        if slot.base.is_closing() {
            continue;
        }
        // Cleared before the call, so that a send during the callback causes another call.
        slot.flag.pending.swap(false, Ordering::AcqRel);
        let Some(mut callback) = slot.callback.take() else {
            // An exchange of loops has lost the callback.
            lp.asyncs.stop(&mut lp.active_handles, Async(key));
            continue;
        };
        called += 1;
        lp.call(&mut callback, Async(key), |lp, handle| {
            lp.asyncs.stop(&mut lp.active_handles, handle);
            // After a panic, the remaining asyncs must not wait for the next send.
            drop(lp.notifier.notify(Notification::ASYNC));
        });
        match lp.asyncs.slots.get_mut(key) {
            Some(slot) if slot.base.is_active() || slot.base.is_closing() => {
                slot.callback.get_or_insert(callback);
            }
            Some(_) => {}
            None => exchange::note(),
        }
    }
    lp.asyncs.due = due;
    called
}
