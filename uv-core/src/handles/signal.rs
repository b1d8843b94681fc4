//! Signal handles: call back in the loop when the process gets a signal.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use poll_core::{Backend, Token};

use crate::arena::Arena;
use crate::callback::Repeated;
use crate::handles::Base;
use crate::mailbox::{Kind, Mailbox};
use crate::notify::{Notes, Notifier};
use crate::sys;
use crate::{Loop, error};

/// Calls back in the loop's thread when the process gets a signal.
///
/// Any number of handles in any number of loops may watch one signal; each is told each
/// time. While at least one watches, the signal does nothing else; when the last one stops,
/// it does again what it did before. Signals are counted, so none is lost between its
/// arrival and the callback, however busy the loop is.
///
/// On Windows the console's events are signals: `SIGINT` (Ctrl-C), `SIGBREAK`
/// (Ctrl-Break), `SIGHUP` (the window closes) and `SIGWINCH` (it changes size). Others can
/// be watched there and never come. [`signum`](crate::signum) has the numbers.
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
pub struct Signal(pub(crate) Token);

/// The signal handles of a loop.
#[derive(Debug)]
pub(crate) struct Signals<B: Backend> {
    pub(crate) slots: Arena<SignalSlot<B>>,
    mailbox: Arc<Mailbox>,
    /// How often one was started.
    starts: u64,
    /// What was caught and has not been told, in order.
    caught: VecDeque<Caught>,
    /// Whom the signal goes to that is being told: one-shots last, then by start.
    due: Vec<(Kind, u64, Token)>,
    /// How many of them were told. A panic that cuts the telling short leaves the rest.
    told: usize,
}

/// A signal that was caught some number of times.
#[derive(Debug)]
struct Caught {
    signum: i32,
    times: u32,
    /// The start of the last handle that it can be for: later ones did not watch yet.
    latest: u64,
}

#[derive(Debug)]
pub(crate) struct SignalSlot<B: Backend> {
    pub(crate) base: Base,
    /// What it watches, while started.
    watched: Option<(i32, Kind)>,
    /// Grows with every start, by which the handles of a signal are ordered.
    started: u64,
    /// `None` while stopped, and while the callback runs.
    callback: Option<Repeated<B, (Signal, i32)>>,
}

impl<B: Backend> Signals<B> {
    pub(crate) fn new(notifier: Arc<Notifier>) -> Signals<B> {
        Signals {
            slots: Arena::default(),
            mailbox: Mailbox::new(notifier, Notes::SIGNAL),
            starts: 0,
            caught: VecDeque::new(),
            due: Vec::new(),
            told: 0,
        }
    }

    /// Takes what was caught up to now, which is for the handles started up to now.
    fn collect(&mut self) {
        let latest = self.starts;
        let Signals { mailbox, caught, .. } = self;
        mailbox.take(|signum, times| caught.push_back(Caught { signum, times, latest }));
    }

    /// Looks up whom the next signal goes to. False if there is none.
    fn next_signal(&mut self) -> bool {
        let Some(next) = self.caught.front_mut() else { return false };
        let (signum, latest) = (next.signum, next.latest);
        next.times -= 1;
        if next.times == 0 {
            self.caught.pop_front();
        }
        self.due.clear();
        self.told = 0;
        self.due.extend(self.slots.iter().filter_map(|(key, slot)| match slot.watched {
            Some((watched, kind)) if watched == signum && slot.started <= latest => {
                Some((kind, slot.started, key))
            }
            _ => None,
        }));
        self.due.sort_unstable();
        true
    }

    /// In a forked child, signals of the parent's time are the parent's.
    pub(crate) fn forget_caught(&mut self) {
        self.mailbox.take(|_, _| {});
        self.caught.clear();
        self.due.clear();
    }
}

impl<B: Backend> Drop for Signals<B> {
    fn drop(&mut self) {
        for (_, slot) in self.slots.iter() {
            if let Some((signum, kind)) = slot.watched {
                // It was subscribed to with the same number, which therefore exists.
                let _ = sys::unsubscribe(&self.mailbox, signum, kind);
            }
        }
    }
}

impl Signal {
    /// A signal handle that is not started.
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> Signal {
        let base = lp.new_base();
        let slot = SignalSlot { base, watched: None, started: 0, callback: None };
        Signal(lp.signals.slots.insert(slot))
    }

    /// Calls `callback` whenever the process gets the signal `signum`.
    ///
    /// Started again with the same number, only the callback changes and no signal is lost;
    /// with another number, it watches that instead.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key; `InvalidInput` if it is closing, for a number that is no
    /// signal, or for one that cannot be caught. A handle that was started stays as it was.
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
    /// kill(std::process::id() as i32, signum::SIGUSR2)?;
    /// lp.run(RunMode::Default)?;
    /// assert_eq!(signal.signum(&lp), None);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`start`](Signal::start).
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
        // A one-shot that starts itself again is one for another signal.
        let spent = kind == Kind::Oneshot && slot.callback.is_none();
        if slot.watched != Some((signum, kind)) || spent {
            // The new subscription first: in between, no signal may do what it did before.
            sys::subscribe(&signals.mailbox, signum, kind)?;
            if let Some((signum, kind)) = slot.watched.replace((signum, kind)) {
                sys::unsubscribe(&signals.mailbox, signum, kind)?;
            }
            // What was caught before is not for this one.
            signals.collect();
            signals.starts += 1;
            if let Some(slot) = signals.slots.get_mut(self.0) {
                slot.started = signals.starts;
            }
        }
        let slot = signals.slots.get_mut(self.0).ok_or_else(error::stale)?;
        slot.callback = Some(Repeated::new(move |lp: &mut Loop<B>, (signal, signum)| {
            callback(lp, signal, signum)
        }));
        slot.base.start(&mut lp.active_handles);
        Ok(())
    }

    /// Stops watching, and drops the callback. A stopped handle stays so.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, Signal, signum};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let signal = Signal::new(&mut lp);
    /// signal.start(&mut lp, signum::SIGINT, |_, _, _| println!("not now"))?;
    /// signal.stop(&mut lp)?; // From now on Ctrl-C ends the program.
    /// assert!(!signal.is_active(&lp));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    pub fn stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.signals.slots.get_mut(self.0).ok_or_else(error::stale)?;
        slot.base.stop(&mut lp.active_handles);
        let callback = slot.callback.take();
        if let Some((signum, kind)) = slot.watched.take() {
            sys::unsubscribe(&lp.signals.mailbox, signum, kind)?;
        }
        // Last: dropping what it captured may be anything.
        drop(callback);
        Ok(())
    }

    /// The signal that it watches, while started.
    pub fn signum<B: Backend>(self, lp: &Loop<B>) -> Option<i32> {
        lp.signals.slots.get(self.0)?.watched.map(|(signum, _)| signum)
    }
}

impl<B: Backend> Loop<B> {
    /// Calls the handles whose signals were caught; returns how many calls that took.
    pub(crate) fn run_signals(&mut self) -> usize {
        self.signals.collect();
        let mut called = 0;
        loop {
            while let Some(&(_, started, key)) = self.signals.due.get(self.signals.told) {
                self.signals.told += 1;
                called += usize::from(self.tell_of_signal(key, started));
            }
            if !self.signals.next_signal() {
                return called;
            }
        }
    }

    /// Calls a handle, unless one that was called before has stopped it or started it anew.
    fn tell_of_signal(&mut self, key: Token, started: u64) -> bool {
        let Some(slot) = self.signals.slots.get_mut(key) else { return false };
        let Some((signum, _)) = slot.watched.filter(|_| slot.started == started) else {
            return false;
        };
        let Some(mut callback) = slot.callback.take() else { return false };
        let signal = Signal(key);
        self.call_with(&mut callback, (signal, signum), signal, |lp, signal| {
            drop(signal.stop(lp));
            // The rest must not wait for the next signal.
            drop(lp.notifier.notify(Notes::SIGNAL));
        });
        self.after_signal(key, started, callback);
        true
    }

    fn after_signal(&mut self, key: Token, started: u64, callback: Repeated<B, (Signal, i32)>) {
        let Some(slot) = self.signals.slots.get_mut(key) else { return };
        // Stopped, or started anew, by its own callback?
        if slot.started != started {
            return;
        }
        match slot.watched {
            Some((_, Kind::Regular)) => {
                slot.callback.get_or_insert(callback);
            }
            // It was subscribed to with the same number, which therefore exists.
            Some((_, Kind::Oneshot)) => drop(Signal(key).stop(self)),
            None => {}
        }
    }
}
