//! One turn of the loop: what is due, the wait, what that gives, and what closes.

use std::io;
use std::time::Duration;

use poll_core::{Backend, Event};

use super::{Loop, RunMode};
use crate::handles::{AnyHandle, Closing, Phase};
use crate::notify::Notes;
use crate::operations::Done;
use crate::sources::Owner;
use crate::sys;

/// Rounds of pending callbacks after a poll, so that one that defers for ever does not
/// starve the rest.
const PENDING_ROUNDS: u32 = 8;

impl<B: Backend> Loop<B> {
    /// One turn of a loop that is alive and not stopped.
    #[inline]
    pub(super) fn iterate(&mut self, mode: RunMode) -> io::Result<()> {
        // Most turns have nothing to do but to wait, and to handle what that gives.
        let timeout = match self.has_due() || self.watchers[Phase::Prepare as usize].any_started() {
            true => self.begin_turn(mode),
            false if mode == RunMode::NoWait || self.dispatching => Some(Duration::ZERO),
            false => self.time_to_timers(),
        };
        self.poll(timeout)?;
        if self.has_left() || self.watchers[Phase::Check as usize].any_started() {
            self.end_turn();
        }
        self.update_time();
        self.run_timers();
        Ok(())
    }

    /// True if this turn, or the next, has callbacks to run that wait for nothing.
    #[inline]
    pub(super) fn has_due(&self) -> bool {
        self.has_left()
            || !self.next_turn.is_empty()
            || self.watchers[Phase::Idle as usize].any_started()
    }

    /// True if this turn has such callbacks.
    #[inline]
    fn has_left(&self) -> bool {
        !self.pending.is_empty() || !self.closing.is_empty() || !self.closing_now.is_empty()
    }

    /// What comes before the poll; returns how long that may block.
    #[inline(never)]
    fn begin_turn(&mut self, mode: RunMode) -> Option<Duration> {
        if !self.next_turn.is_empty() {
            self.pending.append(&mut self.next_turn);
        }
        let may_block =
            self.pending.is_empty() && !self.watchers[Phase::Idle as usize].any_started();
        self.run_pending();
        self.run_watchers(Phase::Idle);
        self.run_watchers(Phase::Prepare);
        match mode {
            RunMode::Default => self.poll_timeout(),
            RunMode::Once if may_block => self.poll_timeout(),
            RunMode::Once | RunMode::NoWait => Some(Duration::ZERO),
        }
    }

    /// What comes after the poll, but for timers.
    #[inline(never)]
    fn end_turn(&mut self) {
        for _ in 0..PENDING_ROUNDS {
            if self.pending.is_empty() {
                break;
            }
            self.run_pending();
        }
        self.run_watchers(Phase::Check);
        self.run_closing();
    }

    pub(super) fn poll_timeout(&mut self) -> Option<Duration> {
        let may_block = !self.has_due() && !self.stopped && self.has_active() && !self.dispatching;
        if may_block { self.time_to_timers() } else { Some(Duration::ZERO) }
    }

    #[inline]
    fn time_to_timers(&mut self) -> Option<Duration> {
        let deadline = self.timers.next_deadline_ns()?;
        Some(Duration::from_nanos(deadline.saturating_sub(self.now_ns())))
    }

    fn run_pending(&mut self) {
        // Those that these defer wait for the next round.
        for _ in 0..self.pending.len() {
            let Some(callback) = self.pending.pop_front() else { break };
            callback.call(self, ());
        }
    }

    /// Waits and handles what the wait reports. Waits again, for the time left, if it was
    /// interrupted before anything happened, or if what happened was nobody's business: an
    /// operation that was cancelled, say.
    #[inline]
    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let blocks = timeout != Some(Duration::ZERO);
        // A timeout that is neither zero nor for ever was counted from the loop's time.
        let begun_ns = self.now_ns.get();
        let mut left = timeout;
        self.meters.count_turn();
        loop {
            // Not so if a panic has left some of what the last wait gave.
            if !self.dispatching {
                self.wait(left, blocks)?;
            }
            self.update_time();
            let dispatched = self.dispatch();
            self.meters.count_events(dispatched, !blocks);
            if dispatched > 0 || !blocks || self.has_left() || !self.has_active() {
                return Ok(());
            }
            left = timeout.map(|timeout| self.time_left(timeout, begun_ns));
            if left == Some(Duration::ZERO) {
                return Ok(());
            }
        }
    }

    /// How much of a timeout is left that was counted from then.
    #[cold]
    fn time_left(&self, timeout: Duration, begun_ns: u64) -> Duration {
        (Duration::from_nanos(begun_ns) + timeout).saturating_sub(self.now())
    }

    #[inline]
    fn wait(&mut self, mut timeout: Option<Duration>, blocks: bool) -> io::Result<()> {
        self.turn = self.turn.wrapping_add(1);
        if self.has_outgoing() {
            self.send_outgoing();
            // A write of nothing is over when it is its turn: its callback is not to wait.
            if !self.pending.is_empty() {
                timeout = Some(Duration::ZERO);
            }
        }
        self.operations.events.clear();
        self.operations.handled = 0;
        if self.block_sigprof || self.meters.measures_idle_time() {
            return self.wait_watched(timeout, blocks);
        }
        self.backend.wait(timeout, &mut self.operations.events)
    }

    /// True if something is to be given to the kernel or the backend before the wait.
    #[inline]
    pub(super) fn has_outgoing(&self) -> bool {
        self.has_outbox() || !self.udp_outbox.is_empty() || self.works.has_lent()
    }

    #[inline(never)]
    fn send_outgoing(&mut self) {
        self.send_outbox();
        self.send_udp_outbox();
        self.submit_lent();
    }

    /// Waits, and measures for how long, or keeps profilers from ending it.
    #[cold]
    fn wait_watched(&mut self, timeout: Option<Duration>, blocks: bool) -> io::Result<()> {
        let _blocked = self.block_sigprof.then(sys::SigprofBlocked::new);
        let measures = blocks && self.meters.measures_idle_time();
        if measures {
            self.meters.begin_idle();
        }
        let result = self.backend.wait(timeout, &mut self.operations.events);
        if measures {
            self.meters.end_idle();
        }
        result
    }

    /// Handles what the last wait reported; returns how much of that was told.
    fn dispatch(&mut self) -> usize {
        self.dispatching = true;
        self.operations.told_nobody = 0;
        let mut dispatched = self.operations.events.len() - self.operations.handled;
        while let Some(event) = self.operations.events.get(self.operations.handled) {
            self.operations.handled += 1;
            match *event {
                Event::Ready { token, ready } => match self.sources.get(token) {
                    Some(&Owner::Poll(poll)) => self.poll_ready(poll, ready),
                    Some(&Owner::Stream(stream)) => self.stream_ready(stream, ready),
                    Some(&Owner::Udp(udp)) => self.udp_ready(udp, ready),
                    Some(&Owner::Process(process)) => self.process_ready(process),
                    Some(&Owner::FsEvents) => drop(self.tell_changes()),
                    None => {} // Closed by a callback of the same batch.
                },
                Event::Done { token, result, more, lent } => {
                    self.operation_done(token, Done { result, more, lent });
                }
            }
        }
        dispatched = dispatched.saturating_sub(self.operations.told_nobody);
        if self.notifier.has_any() {
            dispatched += self.take_notes();
        }
        self.dispatching = false;
        dispatched
    }

    /// Looks where notes say; returns how much there was.
    #[inline(never)]
    fn take_notes(&mut self) -> usize {
        let mut dispatched = 0;
        // One note at a time: a panic leaves the others.
        if self.notifier.take(Notes::WORK) {
            dispatched += self.run_ended_work();
        }
        if self.notifier.take(Notes::ASYNC) {
            dispatched += self.run_asyncs();
        }
        if self.notifier.take(Notes::CHILD) {
            dispatched += self.run_ended_children();
        }
        if self.notifier.take(Notes::CHANGES) {
            dispatched += self.tell_changes();
        }
        // Last, so that what came before the signal is handled before it.
        if self.notifier.take(Notes::SIGNAL) {
            dispatched += self.run_signals();
        }
        dispatched
    }

    fn run_closing(&mut self) {
        if !self.closing.is_empty() || !self.closing_now.is_empty() {
            self.close_handles();
        }
    }

    fn close_handles(&mut self) {
        // Handles closed from here on wait for the next iteration. `closing_now` is not
        // empty if a panic cut the last phase short: then those are first in line.
        std::mem::swap(&mut self.closing, &mut self.closing_now);
        self.closing_now.append(&mut self.closing);
        while let Some(handle) = self.closing_now.last().map(|closing| closing.handle) {
            self.settle_handle(handle);
            let Some(Closing { callback, .. }) = self.closing_now.pop() else { break };
            match callback {
                // The key is valid in the callback, and stale afterwards.
                Some(callback) => {
                    let freed = FreeAfter { lp: self, handle };
                    callback.call(freed.lp, handle);
                }
                None => self.free_handle(handle),
            }
        }
    }
}

/// Frees a handle when its close callback has run, even if it panics.
struct FreeAfter<'a, B: Backend> {
    lp: &'a mut Loop<B>,
    handle: AnyHandle,
}

impl<B: Backend> Drop for FreeAfter<'_, B> {
    fn drop(&mut self) {
        self.lp.free_handle(self.handle);
    }
}
