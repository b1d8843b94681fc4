//! Signal handles: delivery of process signals to loops.

mod pending;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use poll_core::{Backend, Token};

use crate::event_loop::{Notification, Notifier, exchange};
use crate::handles::Base;
use crate::storage::{Arena, InlineFnMut, Seed};
use crate::sys;
use crate::{Loop, error};
#[cfg(unix)]
pub(crate) use pending::SIGNALS;
pub(crate) use pending::{Kind, PendingSignals, check_number};

/// Calls back in the loop's thread when the process receives a signal.
///
/// Any number of handles in any number of loops may watch one signal; each signal reaches all of
/// them. While at least one handle watches a signal, its default action is suppressed; when the
/// last one stops, the previous disposition is restored. Signals are counted, so none is lost
/// between its arrival and the callback. Signals of different numbers are delivered in the order
/// of arrival; those of one number that arrive before the loop collects them are delivered
/// together, at the position of the first.
///
/// The loop polls between the arrival of a signal and its callbacks, and handles the events first.
/// So the callback of a `SIGTERM` finds that data which a peer had sent before has been read.
///
/// On Windows, console events are signals: `SIGINT` (Ctrl-C), `SIGBREAK` (Ctrl-Break), `SIGHUP`
/// (the window is closed) and `SIGWINCH` (it is resized). Other signals can be watched but are
/// never raised. The numbers are in [`signum`](crate::signum).
///
#[cfg_attr(unix, doc = "```")]
#[cfg_attr(not(unix), doc = "```ignore")]
/// use uv_core::{Handle, Loop, RunMode, Signal, signum};
///
/// let mut lp = Loop::with_default_backend()?;
/// let signal = Signal::new(&mut lp);
/// signal.start(&mut lp, signum::SIGUSR1, |lp, signal, signum| {
///     println!("signal {signum}");
///     signal.close(lp).unwrap();
/// })?;
/// // SAFETY: a signal that is being watched.
/// unsafe { libc::raise(libc::SIGUSR1) };
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "uv_signal_t")]
pub struct Signal(pub(crate) Token);

/// The signal handles of a loop.
#[derive(Debug)]
pub(crate) struct Signals<B: Backend> {
    pub(crate) slots: Arena<SignalSlot<B>>,
    pending: Arc<PendingSignals>,
    /// The number of starts of all handles.
    starts: u64,
    /// Signals that were collected and not delivered, in order.
    caught: VecDeque<Caught>,
    /// How many of them, from the front, were collected before the last poll: these may be delivered.
    polled: usize,
    /// The handles that receive the current signal: one-shots last, then in the order of start.
    due: Vec<(Kind, u64, Token)>,
    /// How many of `due` have been called. After a panic, delivery continues here.
    delivered: usize,
}

/// A signal that was caught some number of times.
#[derive(Debug)]
struct Caught {
    signum: i32,
    times: u32,
    /// The latest start that receives it: later handles did not watch yet.
    latest: u64,
}

#[derive(Debug)]
pub(crate) struct SignalSlot<B: Backend> {
    pub(crate) base: Base,
    /// The watched signal, while started.
    watched: Option<(i32, Kind)>,
    /// The number of its last start, by which the handles of a signal are ordered.
    started: u64,
    /// `None` while stopped, and while the callback runs.
    callback: Option<InlineFnMut<B, (Signal, i32)>>,
}

impl<B: Backend> Signals<B> {
    pub(crate) fn new(seed: Seed, notifier: Arc<Notifier>) -> Signals<B> {
        Signals {
            slots: Arena::new(seed),
            pending: PendingSignals::new(notifier, Notification::SIGNAL),
            starts: 0,
            caught: VecDeque::new(),
            polled: 0,
            due: Vec::new(),
            delivered: 0,
        }
    }

    /// Collects the signals caught so far, for the handles started so far.
    fn collect(&mut self) {
        let latest = self.starts;
        let Signals { pending, caught, .. } = self;
        pending.take(|signum, times| caught.push_back(Caught { signum, times, latest }));
    }

    /// Collects the signals that are delivered after the events of the poll that follows.
    pub(crate) fn collect_before_poll(&mut self) {
        self.collect();
        self.polled = self.caught.len();
    }

    /// Makes the next signal current and finds its handles. False if there is none to deliver now.
    fn next_signal(&mut self) -> bool {
        if self.polled == 0 {
            return false;
        }
        let Some(next) = self.caught.front_mut() else { return false };
        let (signum, latest) = (next.signum, next.latest);
        next.times -= 1;
        if next.times == 0 {
            self.caught.pop_front();
            self.polled -= 1;
        }
        self.due.clear();
        self.delivered = 0;
        self.due.extend(self.slots.iter().filter_map(|(key, slot)| match slot.watched {
            Some((watched, kind)) if watched == signum && slot.started <= latest => {
                Some((kind, slot.started, key))
            }
            _ => None,
        }));
        self.due.sort_unstable();
        true
    }

    /// Discards caught signals in a forked child: they belong to the parent.
    pub(crate) fn forget_caught(&mut self) {
        self.pending.take(|_, _| {});
        self.caught.clear();
        self.polled = 0;
        self.due.clear();
    }
}

impl<B: Backend> Drop for Signals<B> {
    fn drop(&mut self) {
        for (_, slot) in self.slots.iter() {
            if let Some((signum, kind)) = slot.watched {
                // Cannot fail: the subscription was made with the same number.
                let _ = sys::unsubscribe(&self.pending, signum, kind);
            }
        }
    }
}

impl Signal {
    /// A signal handle that is not started.
    #[doc(alias = "uv_signal_init")]
    #[must_use = "the handle exists until it is closed"]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> Signal {
        let base = lp.new_base();
        let slot = SignalSlot { base, watched: None, started: 0, callback: None };
        Signal(lp.signals.slots.insert(slot))
    }

    /// Calls `callback` whenever the process receives the signal `signum`.
    ///
    /// A second start with the same number replaces the callback and loses no signal; with
    /// another number it watches that signal instead.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key; `InvalidInput` if the handle is closing, if the number is not
    /// a signal, or if the signal cannot be caught. A started handle is unchanged then.
    #[doc(alias = "uv_signal_start")]
    pub fn start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        signum: i32,
        callback: impl FnMut(&mut Loop<B>, Signal, i32) + 'static,
    ) -> io::Result<()> {
        self.start_as(lp, signum, Kind::Regular, callback)
    }

    /// As [`start`](Signal::start), but stops after the first signal.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use uv_core::{Loop, RunMode, Signal, kill, signum};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let signal = Signal::new(&mut lp);
    /// signal.start_oneshot(&mut lp, signum::SIGUSR2, |_, _, _| println!("reading the settings"))?;
    /// assert_eq!(signal.signum(&lp), Some(signum::SIGUSR2));
    /// kill(std::process::id(), signum::SIGUSR2)?;
    /// lp.run(RunMode::Default)?;
    /// assert_eq!(signal.signum(&lp), None);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`start`](Signal::start).
    #[doc(alias = "uv_signal_start_oneshot")]
    pub fn start_oneshot<B: Backend>(
        self,
        lp: &mut Loop<B>,
        signum: i32,
        callback: impl FnMut(&mut Loop<B>, Signal, i32) + 'static,
    ) -> io::Result<()> {
        self.start_as(lp, signum, Kind::Oneshot, callback)
    }

    fn start_as<B: Backend>(
        self,
        lp: &mut Loop<B>,
        signum: i32,
        kind: Kind,
        mut callback: impl FnMut(&mut Loop<B>, Signal, i32) + 'static,
    ) -> io::Result<()> {
        let signals = &mut lp.signals;
        let slot = signals.slots.get_mut(self.0).ok_or_else(error::stale)?;
        if slot.base.is_closing() {
            return Err(error::closing());
        }
        // A one-shot that restarts itself in its callback needs a new subscription.
        let spent = kind == Kind::Oneshot && slot.callback.is_none();
        if slot.watched != Some((signum, kind)) || spent {
            // Subscribe before unsubscribing: no signal in between gets its default action.
            sys::subscribe(&signals.pending, signum, kind)?;
            if let Some((signum, kind)) = slot.watched.replace((signum, kind)) {
                sys::unsubscribe(&signals.pending, signum, kind)?;
            }
            // Signals that were caught before are not for this start.
            signals.collect();
            signals.starts += 1;
            if let Some(slot) = signals.slots.get_mut(self.0) {
                slot.started = signals.starts;
            }
        }
        let slot = signals.slots.get_mut(self.0).ok_or_else(error::stale)?;
        slot.callback = Some(InlineFnMut::new(move |lp: &mut Loop<B>, (signal, signum)| {
            callback(lp, signal, signum)
        }));
        slot.base.start(&mut lp.active_handles);
        Ok(())
    }

    /// Stops watching and drops the callback. Does nothing to a stopped handle.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, Signal, signum};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let signal = Signal::new(&mut lp);
    /// signal.start(&mut lp, signum::SIGINT, |_, _, _| println!("ignored"))?;
    /// signal.stop(&mut lp)?; // From now on Ctrl-C ends the program.
    /// assert!(!signal.is_active(&lp));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    #[doc(alias = "uv_signal_stop")]
    pub fn stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.signals.slots.get_mut(self.0).ok_or_else(error::stale)?;
        slot.base.stop(&mut lp.active_handles);
        let callback = slot.callback.take();
        if let Some((signum, kind)) = slot.watched.take() {
            sys::unsubscribe(&lp.signals.pending, signum, kind)?;
        }
        // Last: destructors of the captured values may do anything.
        drop(callback);
        Ok(())
    }

    /// The watched signal; `None` while stopped.
    pub fn signum<B: Backend>(self, lp: &Loop<B>) -> Option<i32> {
        lp.signals.slots.get(self.0)?.watched.map(|(signum, _)| signum)
    }
}

/// Delivers the signals that were caught before the last poll; returns the number of calls.
pub(crate) fn run_polled<B: Backend>(lp: &mut Loop<B>) -> usize {
    let mut called = 0;
    loop {
        while let Some(&(_, started, key)) = lp.signals.due.get(lp.signals.delivered) {
            lp.signals.delivered += 1;
            called += usize::from(deliver(lp, key, started));
        }
        if !lp.signals.next_signal() {
            return called;
        }
    }
}

/// Calls a handle, unless an earlier callback has stopped or restarted it.
fn deliver<B: Backend>(lp: &mut Loop<B>, key: Token, started: u64) -> bool {
    let Some(slot) = lp.signals.slots.get_mut(key) else { return false };
    let Some((signum, _)) = slot.watched.filter(|_| slot.started == started) else {
        return false;
    };
    let Some(mut callback) = slot.callback.take() else {
        // An exchange of loops has lost the callback.
        drop(Signal(key).stop(lp));
        return false;
    };
    let signal = Signal(key);
    lp.call_with(&mut callback, (signal, signum), signal, |lp, signal| {
        drop(signal.stop(lp));
        // After a panic, the remaining handles must not wait for the next signal.
        lp.notifier.mark(Notification::POLLED_SIGNALS);
    });
    after_callback(lp, key, started, callback);
    true
}

fn after_callback<B: Backend>(
    lp: &mut Loop<B>,
    key: Token,
    started: u64,
    callback: InlineFnMut<B, (Signal, i32)>,
) {
    let Some(slot) = lp.signals.slots.get_mut(key) else { return exchange::note() };
    // The callback has stopped or restarted its handle.
    if slot.started != started {
        return;
    }
    match slot.watched {
        Some((_, Kind::Regular)) => {
            slot.callback.get_or_insert(callback);
        }
        // Cannot fail: the subscription was made with the same number.
        Some((_, Kind::Oneshot)) => drop(Signal(key).stop(lp)),
        None => {}
    }
}
