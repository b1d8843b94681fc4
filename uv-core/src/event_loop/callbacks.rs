//! Calls of callbacks, which may panic and may exchange loops.

use poll_core::Backend;

use super::{Loop, exchange};
use crate::storage::{Argument, InlineFnMut, InlineFnMutRef};

impl<B: Backend> Loop<B> {
    /// Calls back. If the callback panics, `mend` repairs the state of the loop before the panic
    /// continues.
    pub(crate) fn call<A: Copy + 'static>(
        &mut self,
        callback: &mut InlineFnMut<B, A>,
        argument: A,
        mend: fn(&mut Loop<B>, A),
    ) {
        self.call_with(callback, argument, argument, mend);
    }

    /// As [`Loop::call`], for an argument that `mend` cannot have a copy of.
    #[inline]
    pub(crate) fn call_with<A: Argument, K: Copy>(
        &mut self,
        callback: &mut InlineFnMutRef<B, A>,
        argument: A::For<'_>,
        key: K,
        mend: fn(&mut Loop<B>, K),
    ) {
        self.guarded(key, mend, |lp| callback.call(lp, argument));
    }

    /// Runs `call`. If it panics, `mend` repairs the state of the loop before the panic continues.
    #[inline]
    pub(crate) fn guarded<K: Copy>(
        &mut self,
        key: K,
        mend: fn(&mut Loop<B>, K),
        call: impl FnOnce(&mut Loop<B>),
    ) {
        let end = |lp: &mut Loop<B>, key| {
            mend(lp, key);
            // The callback may have exchanged loops before its panic: the first loop has to check.
            exchange::note();
        };
        let guard = Guard { lp: self, value: Some(key), end: Some(end) };
        call(&mut *guard.lp);
        std::mem::forget(guard);
    }

    /// Runs `call`, then `end` with the value, even if `call` panics.
    #[inline]
    pub(crate) fn finally<T, R>(
        &mut self,
        value: T,
        end: impl FnOnce(&mut Loop<B>, T),
        call: impl FnOnce(&mut Loop<B>, &mut T) -> R,
    ) -> R {
        let mut guard = Guard { lp: self, value: Some(value), end: Some(end) };
        match &mut guard.value {
            Some(value) => call(guard.lp, value),
            None => unreachable!("the value is there until the guard is dropped"),
        }
    }
}

/// The scope guard of the loop: runs `end` when it is dropped.
struct Guard<'a, B: Backend, T, E: FnOnce(&mut Loop<B>, T)> {
    lp: &'a mut Loop<B>,
    value: Option<T>,
    end: Option<E>,
}

impl<B: Backend, T, E: FnOnce(&mut Loop<B>, T)> Drop for Guard<'_, B, T, E> {
    fn drop(&mut self) {
        if let (Some(value), Some(end)) = (self.value.take(), self.end.take()) {
            end(self.lp, value);
        }
    }
}
