//! One iteration of the loop: due callbacks, the wait, its events, and closing handles.

use std::io;
use std::time::Duration;

use poll_core::{Backend, Event};

use super::{Loop, RunMode};
use crate::event_loop::{Done, Notification, SourceOwner, exchange};
use crate::handles::{
    Closing, Phase, async_handle, fs_event, lifecycle, poll, process, signal, timer, udp, watcher,
};
use crate::requests::{task, work};
use crate::streams::output;
use crate::{streams, sys};

/// Rounds of pending callbacks after a poll, so that one that defers for ever does not
/// starve the rest.
const PENDING_ROUNDS: u32 = 8;

impl<B: Backend> Loop<B> {
    /// Runs one iteration of a loop that is alive and not stopped.
    #[inline]
    pub(super) fn iterate(&mut self, mode: RunMode) -> io::Result<()> {
        // Most iterations only wait and dispatch events.
        let timeout = match self.has_due() | self.watchers[Phase::Prepare as usize].any_started() {
            true => self.begin_iteration(mode),
            false if mode == RunMode::NoWait || self.dispatching => Some(Duration::ZERO),
            false => self.timers.next_due_ns().map(|deadline| self.time_to(deadline)),
        };
        self.poll(timeout)?;
        if self.has_left() | self.watchers[Phase::Check as usize].any_started() {
            self.finish_iteration();
        }
        self.update_time();
        timer::run_due(self);
        Ok(())
    }

    /// True if this iteration, or the next, has callbacks that wait for no event.
    #[inline]
    pub(super) fn has_due(&self) -> bool {
        self.has_left()
            | !self.next_iteration.is_empty()
            | self.watchers[Phase::Idle as usize].any_started()
    }

    /// True if this iteration has such callbacks. Usually all queues are empty: `|` instead of `||`
    /// makes that one branch, here and in [`has_due`](Loop::has_due).
    #[inline]
    fn has_left(&self) -> bool {
        !self.pending.is_empty() | !self.closing.is_empty() | !self.closing_now.is_empty()
    }

    /// The phases before the poll. Returns the timeout of the poll.
    fn begin_iteration(&mut self, mode: RunMode) -> Option<Duration> {
        if !self.next_iteration.is_empty() {
            self.pending.append(&mut self.next_iteration);
        }
        let may_block =
            self.pending.is_empty() && !self.watchers[Phase::Idle as usize].any_started();
        self.run_pending();
        watcher::run_phase(self, Phase::Idle);
        watcher::run_phase(self, Phase::Prepare);
        match mode {
            RunMode::Default => self.poll_timeout(),
            RunMode::Once if may_block => self.poll_timeout(),
            RunMode::Once | RunMode::NoWait => Some(Duration::ZERO),
        }
    }

    /// The phases after the poll, except timers.
    fn finish_iteration(&mut self) {
        for _ in 0..PENDING_ROUNDS {
            if self.pending.is_empty() {
                break;
            }
            self.run_pending();
        }
        watcher::run_phase(self, Phase::Check);
        self.run_closing();
    }

    pub(super) fn poll_timeout(&mut self) -> Option<Duration> {
        let may_block = !self.has_due() && !self.stopped && self.has_active() && !self.dispatching;
        if !may_block {
            return Some(Duration::ZERO);
        }
        self.timers.next_deadline_ns().map(|deadline| self.time_to(deadline))
    }

    #[inline]
    fn time_to(&mut self, deadline_ns: u64) -> Duration {
        match deadline_ns.saturating_sub(self.now_ns()) {
            0 => Duration::ZERO, // Frequent in a loop that is busy with timers, and needs no division.
            left => Duration::from_nanos(left),
        }
    }

    fn run_pending(&mut self) {
        // Callbacks that these defer wait for the next round.
        for _ in 0..self.pending.len() {
            let Some(callback) = self.pending.pop_front() else { break };
            callback.call(self, ());
        }
    }

    /// Waits and dispatches the events. Waits again, for the rest of the timeout, if a signal
    /// interrupted the wait, or if the events ran no callback: the completion of a cancelled
    /// operation, for example.
    #[inline]
    fn poll(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let blocks = timeout != Some(Duration::ZERO);
        // A finite timeout was computed from the loop's time.
        let begun_ns = self.now_ns.get();
        self.meters.count_iteration();
        if blocks && self.watches_wait && self.dispatch_waiting()? {
            return Ok(());
        }
        let dispatched = self.poll_once(timeout, blocks)?;
        if !blocks || self.has_progressed(dispatched) {
            return Ok(());
        }
        self.poll_again(timeout, begun_ns)
    }

    /// Waits once, and dispatches the events. Returns their number.
    #[inline(always)] // So that an iteration is one function.
    fn poll_once(&mut self, timeout: Option<Duration>, blocks: bool) -> io::Result<usize> {
        // After a panic, events of the last wait are left, and are dispatched first.
        if !self.dispatching {
            self.wait(timeout, blocks)?;
        }
        self.update_time();
        let dispatched = self.dispatch();
        self.meters.count_events(dispatched, !blocks);
        Ok(dispatched)
    }

    /// [`poll_once`](Loop::poll_once) for its rare callers, which share one copy of the code.
    #[cold]
    fn poll_rarely(&mut self, timeout: Option<Duration>, blocks: bool) -> io::Result<usize> {
        self.poll_once(timeout, blocks)
    }

    /// True if the iteration need not wait again after `dispatched` events.
    #[inline]
    fn has_progressed(&self, dispatched: usize) -> bool {
        dispatched > 0 || self.has_left() || !self.has_active()
    }

    /// Dispatches the events that are ready before the loop blocks, if idle time is measured: so
    /// [`events_waiting`](crate::Metrics::events_waiting) counts them apart from those that the loop
    /// blocked for. True if the iteration need not block.
    #[cold]
    fn dispatch_waiting(&mut self) -> io::Result<bool> {
        if !self.meters.measures_idle_time() {
            return Ok(false);
        }
        let dispatched = self.poll_rarely(Some(Duration::ZERO), false)?;
        Ok(self.has_progressed(dispatched))
    }

    /// Waits for the rest of a timeout that began at `begun_ns`, until there is an event.
    #[cold]
    fn poll_again(&mut self, timeout: Option<Duration>, begun_ns: u64) -> io::Result<()> {
        loop {
            let end = timeout.map(|timeout| Duration::from_nanos(begun_ns) + timeout);
            let left = end.map(|end| end.saturating_sub(self.now()));
            if left == Some(Duration::ZERO) {
                return Ok(());
            }
            let dispatched = self.poll_rarely(left, true)?;
            if self.has_progressed(dispatched) {
                return Ok(());
            }
        }
    }

    #[inline(always)] // As `poll_once`.
    fn wait(&mut self, mut timeout: Option<Duration>, blocks: bool) -> io::Result<()> {
        self.iteration = self.iteration.wrapping_add(1);
        if self.has_outgoing() {
            self.send_outgoing();
            // A write that is sent by a call completes without an event. An empty write has a
            // callback to run, and a coalesced write may have been the last that the loop waits for.
            if !self.pending.is_empty() || !self.has_active() {
                timeout = Some(Duration::ZERO);
            }
        }
        self.operations.events.clear();
        self.operations.handled = 0;
        if self.notifier.is_set(Notification::SIGNAL) {
            return self.wait_before_signals();
        }
        if self.watches_wait {
            return self.wait_watched(timeout, blocks);
        }
        self.backend.wait(timeout, &mut self.operations.events)
    }

    /// Polls after signals were caught, which are delivered after the events of this poll. The poll
    /// begins after their arrival, so it finds whatever was in the kernel before them: data that a
    /// peer sent, then a signal.
    #[cold]
    #[inline(never)]
    fn wait_before_signals(&mut self) -> io::Result<()> {
        self.notifier.take(Notification::SIGNAL);
        self.signals.collect_before_poll();
        let result = self.backend.wait(Some(Duration::ZERO), &mut self.operations.events);
        match result {
            Ok(()) => self.notifier.mark(Notification::POLLED_SIGNALS),
            Err(_) => self.notifier.mark(Notification::SIGNAL), // The next wait polls for them.
        }
        result
    }

    /// True if writes, datagrams or file operations are queued for submission before the wait.
    #[inline]
    pub(super) fn has_outgoing(&self) -> bool {
        self.streams.has_unflushed() | self.udps.has_unflushed() | self.works.has_lent()
    }

    fn send_outgoing(&mut self) {
        output::flush::submit_queued(self);
        udp::flush::submit_queued(self);
        task::submit_lent(self);
    }

    /// Waits, and measures the idle time or blocks `SIGPROF` meanwhile.
    #[cold]
    fn wait_watched(&mut self, timeout: Option<Duration>, blocks: bool) -> io::Result<()> {
        let _blocked = self.block_sigprof.then(sys::SigprofBlocked::new);
        let measures = blocks && self.meters.measures_idle_time();
        if measures {
            self.meters.begin_idle(self.backend.now());
        }
        let result = self.backend.wait(timeout, &mut self.operations.events);
        if measures {
            self.meters.end_idle(self.backend.now());
        }
        result
    }

    /// Dispatches the events of the last wait. Returns their number, without completions that ran no
    /// callback.
    #[inline(always)] // As `poll_once`.
    fn dispatch(&mut self) -> usize {
        self.dispatching = true;
        let mut dispatched = 0;
        if !self.operations.events.is_empty() {
            dispatched = self.dispatch_events();
        }
        if self.notifier.has_any() {
            dispatched += self.run_notifications();
        }
        // Callbacks of notifications may have fetched events: `try_read` does.
        self.dispatching = self.operations.handled < self.operations.events.len();
        dispatched
    }

    #[inline(never)] // With many sources ready, the readiness of streams has the registers to itself.
    fn dispatch_events(&mut self) -> usize {
        let mut dispatched = 0;
        while let Some(event) = self.operations.events.get(self.operations.handled) {
            self.operations.handled += 1;
            match *event {
                Event::Ready { token, ready } => {
                    dispatched += 1;
                    let owner = self.sources.get(token);
                    // The most frequent owner, without a table of jumps.
                    if let Some(&SourceOwner::Stream(stream)) = owner {
                        streams::ready(self, stream, ready);
                        continue;
                    }
                    match owner {
                        Some(&SourceOwner::Poll(poll)) => poll::ready(self, poll, ready),
                        Some(&SourceOwner::Udp(udp)) => udp::ready(self, udp, ready),
                        Some(&SourceOwner::Process(process)) => process::ready(self, process),
                        Some(&SourceOwner::FsEvents) => drop(fs_event::deliver_all(self)),
                        // None: closed by a callback of the same batch.
                        Some(SourceOwner::Stream(_)) | None => {}
                    }
                }
                Event::Done { token, result, more, lease } => {
                    let ran = self.operation_done(token, Done { result, more, lease });
                    dispatched += usize::from(ran);
                }
            }
        }
        dispatched
    }

    /// Handles the notifications; returns the number of callbacks.
    fn run_notifications(&mut self) -> usize {
        let mut dispatched = 0;
        // One notification at a time: a panic leaves the others.
        //
        // Finished jobs are collected before the asyncs run, and call back after them: messages that
        // a job sent are delivered before its callback.
        let ended = self.notifier.take(Notification::WORK);
        if ended {
            self.works.collect_ended();
        }
        if self.notifier.take(Notification::ASYNC) {
            let notify_work = |lp: &mut Loop<B>, ended| {
                if ended {
                    lp.notify_itself(Notification::WORK);
                }
            };
            self.guarded(ended, notify_work, |lp| dispatched += async_handle::run_pending(lp));
        }
        if ended {
            dispatched += work::run_ended(self);
        }
        if self.notifier.take(Notification::CHILD) {
            dispatched += process::run_ended(self);
        }
        if self.notifier.take(Notification::CHANGES) {
            dispatched += fs_event::deliver_all(self);
        }
        // Last, so that whatever was sent before the signal is handled before it. Signals that came
        // after the wait had begun are left to the next one.
        if self.notifier.take(Notification::POLLED_SIGNALS) {
            dispatched += signal::run_polled(self);
        }
        dispatched
    }

    /// Sets a notification that the loop handles in its next iteration.
    pub(crate) fn notify_itself(&mut self, notification: Notification) {
        // If the wake fails, the loop finds the notification nevertheless.
        let _ = self.notifier.notify(notification);
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
            lifecycle::fail_pending_requests(self, handle);
            if let Some(on_close) = self.take_on_close(handle) {
                match self.closing_now.last_mut() {
                    Some(Closing { handle: next, callback: callback @ None })
                        if *next == handle =>
                    {
                        *callback = Some(on_close);
                    }
                    // If it panics, the next closing phase runs the other callback.
                    _ => on_close.call(self, handle),
                }
            }
            let closing = self.closing_now.pop_if(|closing| closing.handle == handle);
            // A callback has exchanged loops: the other loop's queue is run from its start.
            let Some(Closing { callback, .. }) = closing else { continue };
            match callback {
                // The key is valid in the callback, and stale afterwards.
                Some(callback) => {
                    exchange::begin_closed(self, handle);
                    self.finally(handle, exchange::end_closed, |lp, _| callback.call(lp, handle));
                }
                None => lifecycle::free(self, handle),
            }
        }
    }
}
