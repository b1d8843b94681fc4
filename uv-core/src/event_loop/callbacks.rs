//! Calls of callbacks, which may panic and may exchange loops.

use poll_core::Backend;

use super::{Loop, exchange};
use crate::storage::{Argument, InlineFnMut, InlineFnMutRef};

impl<B: Backend> Loop<B> {
    /// Calls back. If the callback panics, `mend` puts things in order before the panic
    /// goes on.
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

    /// Calls what may panic; then `mend` puts things in order before the panic goes on.
    #[inline]
    pub(crate) fn guarded<K: Copy>(
        &mut self,
        key: K,
        mend: fn(&mut Loop<B>, K),
        call: impl FnOnce(&mut Loop<B>),
    ) {
        let guard = Mend { lp: self, key, mend };
        call(&mut *guard.lp);
        std::mem::forget(guard);
    }
}

/// Runs only if a callback panics.
struct Mend<'a, B: Backend, K: Copy> {
    lp: &'a mut Loop<B>,
    key: K,
    mend: fn(&mut Loop<B>, K),
}

impl<B: Backend, K: Copy> Drop for Mend<'_, B, K> {
    fn drop(&mut self) {
        (self.mend)(self.lp, self.key);
        // The callback may have exchanged loops before: the first loop has to check its handles.
        exchange::note();
    }
}
