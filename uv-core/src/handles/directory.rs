//! All kinds of handles in one place: who they are, how each stops and goes.
//!
//! A new kind of handle is one more line in each of these.

use poll_core::Backend;

use crate::Loop;
use crate::handles::watcher::Phase;
use crate::handles::{
    AnyHandle, Async, Base, Closing, FsEvent, FsPoll, Poll, Process, Signal, Timer, Udp,
};

impl<B: Backend> Loop<B> {
    /// Every open handle in the order they were made, closing ones included.
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
    pub fn walk(&self) -> Vec<AnyHandle> {
        let mut all = Vec::new();
        let bases = self.timers.bases();
        all.extend(bases.map(|(key, base)| (base.born(), Timer(key).into())));
        for phase in Phase::ALL {
            let slots = self.watchers[phase as usize].slots.iter();
            all.extend(slots.map(|(key, slot)| (slot.base.born(), phase.handle(key))));
        }
        let slots = self.asyncs.slots.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.born(), Async(key).into())));
        let slots = self.polls.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.born(), Poll(key).into())));
        let slots = self.signals.slots.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.born(), Signal(key).into())));
        let slots = self.streams.slots.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.born(), slot.kind.handle(key))));
        let slots = self.udps.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.born(), Udp(key).into())));
        let slots = self.processes.slots.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.born(), Process(key).into())));
        let slots = self.fs_events.slots.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.born(), FsEvent(key).into())));
        let slots = self.fs_polls.iter();
        all.extend(slots.map(|(key, slot)| (slot.base.born(), FsPoll(key).into())));
        all.sort_unstable_by_key(|(born, _): &(u32, AnyHandle)| *born);
        all.into_iter().map(|(_, handle)| handle).collect()
    }

    pub(crate) fn open_handles(&self) -> usize {
        let watchers = self.watchers.iter().map(|watchers| watchers.slots.len()).sum::<usize>();
        self.timers.len()
            + watchers
            + self.asyncs.slots.len()
            + self.polls.len()
            + self.signals.slots.len()
            + self.streams.slots.len()
            + self.udps.len()
            + self.processes.slots.len()
            + self.fs_events.slots.len()
            + self.fs_polls.len()
    }

    #[inline]
    pub(crate) fn new_base(&mut self) -> Base {
        if self.births == Base::LAST_BORN {
            self.renumber();
        }
        self.births += 1;
        Base::new(self.births)
    }

    /// The numbers that handles have, to know their order, have run out: those that there are
    /// get the first ones. Handles that are as many as half of all numbers, hundreds of
    /// millions, keep theirs; then the latest have one number, and no order among them.
    #[cold]
    #[inline(never)]
    fn renumber(&mut self) {
        self.births = Base::LAST_BORN - 1;
        if self.open_handles() > Base::LAST_BORN as usize / 2 {
            return;
        }
        let all = self.walk();
        self.births = all.len() as u32;
        for (handle, born) in all.into_iter().zip(1..) {
            if let Some((base, _)) = self.base_mut(handle) {
                base.set_born(born);
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
            AnyHandle::Udp(_) => self.udps.get(key)?.base,
            AnyHandle::Process(_) => self.processes.slots.get(key)?.base,
            AnyHandle::FsEvent(_) => self.fs_events.slots.get(key)?.base,
            AnyHandle::FsPoll(_) => self.fs_polls.get(key)?.base,
        })
    }

    /// The base of a handle, and the count that goes with it.
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
            AnyHandle::Udp(_) => &mut self.udps.get_mut(key)?.base,
            AnyHandle::Process(_) => &mut self.processes.slots.get_mut(key)?.base,
            AnyHandle::FsEvent(_) => &mut self.fs_events.slots.get_mut(key)?.base,
            AnyHandle::FsPoll(_) => &mut self.fs_polls.get_mut(key)?.base,
        };
        Some((base, &mut self.active_handles))
    }

    /// The first half of closing: whatever it does, it does no more.
    pub(crate) fn stop_handle(&mut self, handle: AnyHandle) {
        let stopped = match handle {
            AnyHandle::Timer(timer) => timer.stop(self),
            AnyHandle::Idle(idle) => idle.stop(self),
            AnyHandle::Prepare(prepare) => prepare.stop(self),
            AnyHandle::Check(check) => check.stop(self),
            AnyHandle::Async(handle) => {
                self.stop_async(handle);
                Ok(())
            }
            AnyHandle::Poll(poll) => {
                self.stop_poll(poll);
                Ok(())
            }
            AnyHandle::Signal(signal) => signal.stop(self),
            AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_) => {
                self.stop_stream(handle.key());
                Ok(())
            }
            AnyHandle::Udp(udp) => {
                self.stop_udp(udp);
                Ok(())
            }
            AnyHandle::Process(process) => {
                self.stop_process(process);
                Ok(())
            }
            AnyHandle::FsEvent(handle) => handle.stop(self),
            AnyHandle::FsPoll(poll) => poll.stop(self),
        };
        debug_assert!(stopped.is_ok(), "the caller has looked the handle up");
    }

    /// Has the close callback called: in the closing phase, or, if operations have memory of the
    /// handle, in that after their end.
    pub(crate) fn schedule_close(&mut self, closing: Closing<B>) {
        let handle = closing.handle;
        let lingers = match handle {
            AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_) => {
                self.stream_has_flights(handle.key())
            }
            AnyHandle::Udp(udp) => self.udp_has_flights(udp),
            _ => false,
        };
        if !lingers {
            return self.closing.push(closing);
        }
        let lingering = self.operations.linger(closing);
        match handle {
            AnyHandle::Udp(udp) => self.udp_lingers(udp, lingering),
            _ => self.stream_lingers(handle.key(), lingering),
        }
    }

    /// The last half of closing: the slot and all it holds go.
    pub(crate) fn free_handle(&mut self, handle: AnyHandle) {
        let key = handle.key();
        match handle {
            AnyHandle::Timer(timer) => self.timers.remove(timer),
            AnyHandle::Idle(_) => drop(self.watchers[Phase::Idle as usize].slots.remove(key)),
            AnyHandle::Prepare(_) => drop(self.watchers[Phase::Prepare as usize].slots.remove(key)),
            AnyHandle::Check(_) => drop(self.watchers[Phase::Check as usize].slots.remove(key)),
            AnyHandle::Async(_) => drop(self.asyncs.slots.remove(key)),
            AnyHandle::Poll(_) => drop(self.polls.remove(key)),
            AnyHandle::Signal(_) => drop(self.signals.slots.remove(key)),
            AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_) => {
                drop(self.streams.slots.remove(key))
            }
            AnyHandle::Udp(_) => drop(self.udps.remove(key)),
            AnyHandle::Process(_) => drop(self.processes.slots.remove(key)),
            AnyHandle::FsEvent(_) => drop(self.fs_events.slots.remove(key)),
            AnyHandle::FsPoll(_) => drop(self.fs_polls.remove(key)),
        }
    }

    /// Before the close callback: what the handle was asked for, and has not told, it tells
    /// now. A panic leaves the rest for the next closing phase.
    pub(crate) fn settle_handle(&mut self, handle: AnyHandle) {
        match handle {
            AnyHandle::Tcp(_) | AnyHandle::Pipe(_) | AnyHandle::Tty(_) => {
                self.settle_stream(handle.key())
            }
            AnyHandle::Udp(udp) => self.tell_sends(udp),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Handle, Idle, RunMode};

    #[test]
    #[cfg_attr(miri, ignore = "it has no such backend")]
    fn order_outlives_the_numbers() {
        let mut lp = Loop::with_default_backend().unwrap();
        let mut made: Vec<AnyHandle> = Vec::new();
        lp.births = Base::LAST_BORN - 3;
        for _ in 0..4 {
            made.push(Timer::new(&mut lp).into());
            made.push(Idle::new(&mut lp).into());
        }
        made[4].unreference(&mut lp).unwrap();
        made.remove(1).close(&mut lp).unwrap();
        lp.run(RunMode::NoWait).unwrap();
        lp.births = Base::LAST_BORN;
        made.push(Timer::new(&mut lp).into());
        assert_eq!(lp.births, 8);
        assert_eq!(lp.walk(), made);
        let has_ref = made.iter().map(|handle| handle.has_ref(&lp));
        assert!(has_ref.eq((0..8).map(|at| at != 3)));
    }
}
