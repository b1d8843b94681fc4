//! Dispatch over all kinds of handles: enumeration, state, stop, close.
//!
//! A new kind of handle adds one line to each function here.

use poll_core::Backend;

use crate::handles::watcher::Phase;
use crate::handles::{
    AnyHandle, Async, Base, Closing, FsEvent, FsPoll, Poll, Process, Signal, Timer, Udp, poll,
    process, udp,
};
use crate::storage::contain;
use crate::{Loop, streams};

impl<B: Backend> Loop<B> {
    /// All open handles in the order of their creation, including closing ones.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// Timer::new(&mut lp);
    /// for handle in lp.walk() {
    ///     println!("closing {handle}");
    ///     handle.close(&mut lp)?;
    /// }
    /// lp.run(RunMode::Default)?;
    /// assert!(lp.walk().is_empty());
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_walk")]
    pub fn walk(&self) -> Vec<AnyHandle> {
        let mut all = Vec::new();
        let bases = self.timers.bases();
        all.extend(bases.map(|(key, base)| (base.id(), Timer(key).into())));
        for phase in Phase::ALL {
            let slots = self.watchers[phase as usize].slots.iter();
            all.extend(slots.map(|(key, slot)| (slot.base.id(), phase.handle(key))));
        }
        let slots = self.asyncs.slots.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.id(), Async(key).into())));
        let slots = self.polls.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.id(), Poll(key).into())));
        let slots = self.signals.slots.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.id(), Signal(key).into())));
        let slots = self.streams.slots.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.id(), slot.kind.handle(key))));
        let slots = self.udps.slots.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.id(), Udp(key).into())));
        let slots = self.processes.slots.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.id(), Process(key).into())));
        let slots = self.fs_events.slots.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.id(), FsEvent(key).into())));
        let slots = self.fs_polls.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.id(), FsPoll(key).into())));
        all.sort_unstable_by_key(|(id, _): &(u32, AnyHandle)| *id);
        all.into_iter().map(|(_, handle)| handle).collect()
    }

    /// The number of handles that keep the loop alive: active and referenced. Handles that are
    /// closing count no more, although the loop stays alive for their callbacks.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_core::{Handle, Loop, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let timer = Timer::after(&mut lp, Duration::from_secs(1), |_, _| {});
    /// assert_eq!(lp.active_handles(), 1);
    /// timer.unreference(&mut lp)?;
    /// assert_eq!(lp.active_handles(), 0);
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_loop_alive")]
    pub fn active_handles(&self) -> usize {
        self.active_handles
    }

    pub(crate) fn open_handles(&self) -> usize {
        let watchers = self.watchers.iter().map(|watchers| watchers.slots.len()).sum::<usize>();
        self.timers.len()
            + watchers
            + self.asyncs.slots.len()
            + self.polls.len()
            + self.signals.slots.len()
            + self.streams.slots.len()
            + self.udps.slots.len()
            + self.processes.slots.len()
            + self.fs_events.slots.len()
            + self.fs_polls.len()
    }

    #[inline]
    #[cfg_attr(feature = "origins", track_caller)]
    pub(crate) fn new_base(&mut self) -> Base {
        if self.last_handle_id == Base::LAST_ID {
            self.renumber();
        }
        self.last_handle_id += 1;
        self.origins.add(self.last_handle_id);
        Base::new(self.last_handle_id)
    }

    /// Renumbers all handles from 1 when the creation numbers are exhausted. If the open handles
    /// are more than half of all numbers (hundreds of millions), they keep theirs, and the latest
    /// share one number and have no order.
    #[cold]
    fn renumber(&mut self) {
        self.last_handle_id = Base::LAST_ID - 1;
        if self.open_handles() > Base::LAST_ID as usize / 2 {
            return;
        }
        let all = self.walk();
        self.last_handle_id = all.len() as u32;
        let old: Vec<_> = all.iter().filter_map(|&handle| Some(self.base(handle)?.id())).collect();
        self.origins.renumber(old.into_iter());
        for (handle, id) in all.into_iter().zip(1..) {
            if let Some((base, _)) = self.base_mut(handle) {
                base.set_id(id);
            }
        }
    }

    pub(crate) fn base(&self, handle: AnyHandle) -> Option<Base> {
        let key = handle.key();
        Some(match handle {
            AnyHandle::Timer(_) => *self.timers.base(key)?,
            AnyHandle::Idle(_) => self.watchers[Phase::Idle as usize].slots.get(key)?.base,
            AnyHandle::Prepare(_) => self.watchers[Phase::Prepare as usize].slots.get(key)?.base,
            AnyHandle::Check(_) => self.watchers[Phase::Check as usize].slots.get(key)?.base,
            AnyHandle::Async(_) => self.asyncs.slots.get(key)?.base,
            AnyHandle::Poll(_) => self.polls.get(key)?.base,
            AnyHandle::Signal(_) => self.signals.slots.get(key)?.base,
            AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_) => {
                self.streams.slots.get(key)?.base
            }
            AnyHandle::Udp(_) => self.udps.slots.get(key)?.base,
            AnyHandle::Process(_) => self.processes.slots.get(key)?.base,
            AnyHandle::FsEvent(_) => self.fs_events.slots.get(key)?.base,
            AnyHandle::FsPoll(_) => self.fs_polls.get(key)?.base,
        })
    }

    /// The base of a handle, and the loop's count of active and referenced handles.
    pub(crate) fn base_mut(&mut self, handle: AnyHandle) -> Option<(&mut Base, &mut usize)> {
        let key = handle.key();
        let watcher = |phase: Phase| phase as usize;
        let base = match handle {
            AnyHandle::Timer(_) => self.timers.base_mut(key)?,
            AnyHandle::Idle(_) => &mut self.watchers[watcher(Phase::Idle)].slots.get_mut(key)?.base,
            AnyHandle::Prepare(_) => {
                &mut self.watchers[watcher(Phase::Prepare)].slots.get_mut(key)?.base
            }
            AnyHandle::Check(_) => {
                &mut self.watchers[watcher(Phase::Check)].slots.get_mut(key)?.base
            }
            AnyHandle::Async(_) => &mut self.asyncs.slots.get_mut(key)?.base,
            AnyHandle::Poll(_) => &mut self.polls.get_mut(key)?.base,
            AnyHandle::Signal(_) => &mut self.signals.slots.get_mut(key)?.base,
            AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_) => {
                &mut self.streams.slots.get_mut(key)?.base
            }
            AnyHandle::Udp(_) => &mut self.udps.slots.get_mut(key)?.base,
            AnyHandle::Process(_) => &mut self.processes.slots.get_mut(key)?.base,
            AnyHandle::FsEvent(_) => &mut self.fs_events.slots.get_mut(key)?.base,
            AnyHandle::FsPoll(_) => &mut self.fs_polls.get_mut(key)?.base,
        };
        Some((base, &mut self.active_handles))
    }
}

/// The first half of closing: stops all activity of the handle.
pub(crate) fn stop<B: Backend>(lp: &mut Loop<B>, handle: AnyHandle) {
    let stopped = match handle {
        AnyHandle::Timer(timer) => timer.stop(lp),
        AnyHandle::Idle(idle) => idle.stop(lp),
        AnyHandle::Prepare(prepare) => prepare.stop(lp),
        AnyHandle::Check(check) => check.stop(lp),
        AnyHandle::Async(handle) => {
            lp.asyncs.stop(&mut lp.active_handles, handle);
            Ok(())
        }
        AnyHandle::Poll(poll) => {
            poll::deregister(lp, poll);
            Ok(())
        }
        AnyHandle::Signal(signal) => signal.stop(lp),
        AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_) => {
            streams::stop(lp, handle.key());
            Ok(())
        }
        AnyHandle::Udp(udp) => {
            udp::stop(lp, udp);
            Ok(())
        }
        AnyHandle::Process(process) => {
            process::abandon(lp, process);
            Ok(())
        }
        AnyHandle::FsEvent(handle) => handle.stop(lp),
        AnyHandle::FsPoll(poll) => poll.stop(lp),
    };
    debug_assert!(stopped.is_ok(), "the caller has checked the key");
}

/// Schedules the close callback for the closing phase. If operations in flight use memory of
/// the handle, the close is deferred until their completion.
pub(crate) fn schedule_close<B: Backend>(lp: &mut Loop<B>, closing: Closing<B>) {
    let handle = closing.handle;
    let in_flight = match handle {
        AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_) => {
            streams::arm::close_waits(lp, handle.key())
        }
        AnyHandle::Udp(udp) => lp.udps.has_flights(udp),
        _ => false,
    };
    if !in_flight {
        return lp.closing.push(closing);
    }
    match handle {
        AnyHandle::Udp(udp) => {
            let deferred_close = lp.operations.defer_close(None, closing);
            lp.udps.defer_close(udp, deferred_close);
        }
        _ => {
            streams::arm::defer_close(lp, handle.key(), closing);
            if !lp.is_running() {
                streams::handover::flush_close(lp, handle.key());
            }
        }
    }
}

/// The second half of closing: frees the slot.
pub(crate) fn free<B: Backend>(lp: &mut Loop<B>, handle: AnyHandle) {
    let key = handle.key();
    #[cfg(feature = "origins")]
    if let Some(base) = lp.base(handle) {
        lp.origins.remove(base.id());
    }
    match handle {
        AnyHandle::Timer(timer) => lp.timers.remove(timer),
        AnyHandle::Idle(_) => drop(lp.watchers[Phase::Idle as usize].slots.remove(key)),
        AnyHandle::Prepare(_) => drop(lp.watchers[Phase::Prepare as usize].slots.remove(key)),
        AnyHandle::Check(_) => drop(lp.watchers[Phase::Check as usize].slots.remove(key)),
        AnyHandle::Async(_) => drop(lp.asyncs.slots.remove(key)),
        AnyHandle::Poll(_) => contain(|| drop(lp.polls.remove(key))),
        AnyHandle::Signal(_) => drop(lp.signals.slots.remove(key)),
        // Operations in flight use memory of these: their completion frees the slot.
        AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_)
            if lp.streams.has_flights(key) => {}
        AnyHandle::Udp(udp) if lp.udps.has_flights(udp) => {}
        AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_) => {
            drop(lp.streams.slots.remove(key))
        }
        AnyHandle::Udp(_) => drop(lp.udps.slots.remove(key)),
        AnyHandle::Process(_) => drop(lp.processes.slots.remove(key)),
        AnyHandle::FsEvent(_) => drop(lp.fs_events.slots.remove(key)),
        AnyHandle::FsPoll(_) => drop(lp.fs_polls.remove(key)),
    }
}

/// Runs the callbacks of the requests that the close has cancelled, before the close callback.
/// After a panic, the next closing phase runs the rest.
pub(crate) fn fail_pending_requests<B: Backend>(lp: &mut Loop<B>, handle: AnyHandle) {
    match handle {
        AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_) => {
            streams::fail_requests(lp, handle.key())
        }
        AnyHandle::Udp(udp) => {
            udp::recv_request::run_cancelled(lp, udp);
            udp::send::run_callbacks(lp, udp);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Handle, Idle, RunMode};

    #[test]
    #[cfg_attr(miri, ignore = "it has no such backend")]
    fn renumbering_keeps_the_order_of_creation() {
        let mut lp = Loop::with_default_backend().unwrap();
        let mut made: Vec<AnyHandle> = Vec::new();
        lp.last_handle_id = Base::LAST_ID - 3;
        for _ in 0..4 {
            made.push(Timer::new(&mut lp).into());
            made.push(Idle::new(&mut lp).into());
        }
        made[4].unreference(&mut lp).unwrap();
        made.remove(1).close(&mut lp).unwrap();
        lp.run(RunMode::NoWait).unwrap();
        lp.last_handle_id = Base::LAST_ID;
        made.push(Timer::new(&mut lp).into());
        assert_eq!(lp.last_handle_id, 8);
        assert_eq!(lp.walk(), made);
        let is_referenced = made.iter().map(|handle| handle.is_referenced(&lp));
        assert!(is_referenced.eq((0..8).map(|at| at != 3)));
    }
}
