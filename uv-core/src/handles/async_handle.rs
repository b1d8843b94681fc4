//! Async handles: wake the loop from another thread or a signal handler.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use poll_core::{Backend, Token};

use crate::arena::Arena;
use crate::callback::Repeated;
use crate::handles::Base;
use crate::notify::{Notes, Notifier};
use crate::{Loop, error};

/// Calls back in the loop's thread when another thread asks for it.
///
/// It is active from the moment it is made until it is closed. Sends coalesce: any
/// number of them before the callback runs make one call. To pass something along, use
/// a [`Channel`](crate::Channel).
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
pub struct Async(pub(crate) Token);

/// Sends to an [`Async`], from any thread and from signal handlers.
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

/// Whether a call is due, and whether there is anybody to call.
#[derive(Debug, Default)]
struct Flag {
    pending: AtomicBool,
    closed: AtomicBool,
}

impl AsyncSender {
    /// Makes the callback run soon after; once, however often this is called before.
    ///
    /// What was written before is seen by the callback. Takes no lock and allocates
    /// nothing, so it may be called in a signal handler.
    ///
    /// # Errors
    ///
    /// `BrokenPipe` if the handle was closed, its callback has panicked, or its loop is
    /// gone. Otherwise what waking the backend reports.
    pub fn send(&self) -> io::Result<()> {
        if self.flag.closed.load(Ordering::Acquire) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // Always a swap: a mere look at a pending flag could come before what the caller
        // wrote is seen, and the callback that is due could miss it.
        if self.flag.pending.swap(true, Ordering::AcqRel) {
            return self.notifier.renew();
        }
        self.notifier.notify(Notes::ASYNC)
    }
}

/// The asyncs of a loop.
#[derive(Debug)]
pub(crate) struct Asyncs<B: Backend> {
    pub(crate) slots: Arena<AsyncSlot<B>>,
    /// Those to call in a pass, by birth. Kept for its memory.
    due: Vec<(u32, Token)>,
}

#[derive(Debug)]
pub(crate) struct AsyncSlot<B: Backend> {
    pub(crate) base: Base,
    flag: Arc<Flag>,
    /// `None` while the callback runs.
    callback: Option<Repeated<B, Async>>,
}

impl<B: Backend> Default for Asyncs<B> {
    fn default() -> Self {
        Asyncs { slots: Arena::default(), due: Vec::new() }
    }
}

impl<B: Backend> Drop for AsyncSlot<B> {
    fn drop(&mut self) {
        self.flag.closed.store(true, Ordering::Release);
    }
}

impl Async {
    /// An async handle, active at once, and its sender.
    pub fn new<B: Backend>(
        lp: &mut Loop<B>,
        callback: impl FnMut(&mut Loop<B>, Async) + 'static,
    ) -> (Async, AsyncSender) {
        let mut base = lp.new_base();
        base.start(&mut lp.active_handles);
        let flag = Arc::new(Flag::default());
        let sender = AsyncSender { flag: Arc::clone(&flag), notifier: Arc::clone(&lp.notifier) };
        let callback = Some(Repeated::new(callback));
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

impl<B: Backend> Loop<B> {
    /// Calls the asyncs that were sent to, in the order they were made.
    pub(crate) fn run_asyncs(&mut self) -> usize {
        let mut due = std::mem::take(&mut self.asyncs.due);
        let pending = |slot: &AsyncSlot<B>| slot.flag.pending.load(Ordering::Relaxed);
        let slots = self.asyncs.slots.iter().filter(|(_, slot)| pending(slot));
        due.extend(slots.map(|(key, slot)| (slot.base.born(), key)));
        due.sort_unstable();
        let mut called = 0;
        for (_, key) in due.drain(..) {
            let Some(slot) = self.asyncs.slots.get_mut(key) else { continue };
            if slot.base.is_closing() {
                continue;
            }
            // Cleared before the call, so that a send from now on makes another.
            slot.flag.pending.swap(false, Ordering::AcqRel);
            let Some(mut callback) = slot.callback.take() else { continue };
            called += 1;
            self.call(&mut callback, Async(key), |lp, handle| {
                lp.stop_async(handle);
                // The rest of those due must not wait for the next send.
                drop(lp.notifier.notify(Notes::ASYNC));
            });
            if let Some(slot) = self.asyncs.slots.get_mut(key) {
                slot.callback.get_or_insert(callback);
            }
        }
        self.asyncs.due = due;
        called
    }

    /// Closing, or a panic of the callback: senders are told from now on.
    pub(crate) fn stop_async(&mut self, handle: Async) {
        if let Some(slot) = self.asyncs.slots.get_mut(handle.0) {
            slot.flag.closed.store(true, Ordering::Release);
            slot.base.stop(&mut self.active_handles);
        }
    }

    /// In a forked child, sends of the parent's time are the parent's.
    pub(crate) fn forget_sends(&mut self) {
        for (_, slot) in self.asyncs.slots.iter_mut() {
            slot.flag.pending.store(false, Ordering::Release);
        }
    }
}
