//! Atomics and a waiter for models.
//!
//! loom treats a sequentially consistent access as acquire and release. Here such an access comes
//! with a sequentially consistent fence, which loom implements. A fence on both sides would hide a
//! neighbour that is too weak, so [`model`] runs twice: with the fences before the accesses, and
//! with the fences after them. Each alone orders accesses that are all sequentially consistent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool as Flag, Ordering};

use loom::model::Builder;
use loom::sync::{Condvar, Mutex, atomic};

use crate::{Wake, WakeState};

/// The threads of a model are preempted up to this many times, at every point, unless
/// `LOOM_MAX_PREEMPTIONS` names another number. Errors that need more are hardly known, and the
/// time grows exponentially.
const PREEMPTIONS: usize = 3;

/// True while models run with the fences after the accesses.
static FENCES_AFTER: Flag = Flag::new(false);

/// Runs `model` in all these orders, with both placements of the fences.
pub fn model(model: impl Fn() + Sync + Send + Copy + 'static) {
    // Models of one process run one after the other: the placement is global.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for after in [false, true] {
        FENCES_AFTER.store(after, Ordering::SeqCst);
        let mut builder = Builder::new();
        builder.preemption_bound.get_or_insert(PREEMPTIONS);
        builder.check(model);
    }
}

/// Performs an access, with its fence if it is sequentially consistent.
fn access<T>(order: Ordering, access: impl FnOnce() -> T) -> T {
    let fenced = order == Ordering::SeqCst;
    let after = FENCES_AFTER.load(Ordering::SeqCst);
    if fenced && !after {
        atomic::fence(Ordering::SeqCst);
    }
    let value = access();
    if fenced && after {
        atomic::fence(Ordering::SeqCst);
    }
    value
}

macro_rules! atomic {
    ($name:ident $(<$of:ident>)?, $value:ty, $($more:ident),*) => {
        /// As the type of `std` with this name.
        #[derive(Debug)]
        pub struct $name $(<$of>)?(atomic::$name $(<$of>)?);

        #[allow(missing_docs)]
        impl $(<$of>)? $name $(<$of>)? {
            pub fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }

            pub fn load(&self, order: Ordering) -> $value {
                access(order, || self.0.load(order))
            }

            pub fn store(&self, value: $value, order: Ordering) {
                access(order, || self.0.store(value, order));
            }

            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                access(order, || self.0.swap(value, order))
            }

            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                access(success, || self.0.compare_exchange(current, new, success, failure))
            }

            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                access(success, || self.0.compare_exchange_weak(current, new, success, failure))
            }

            $(pub fn $more(&self, value: $value, order: Ordering) -> $value {
                access(order, || self.0.$more(value, order))
            })*
        }
    };
}

atomic!(AtomicBool, bool,);
atomic!(AtomicU8, u8, fetch_or, fetch_and, fetch_sub);
atomic!(AtomicPtr<T>, *mut T,);

impl Default for AtomicBool {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Default for AtomicU8 {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}

/// The wait and the waker of a backend: the state, and an eventfd that the wait blocks on. A wait
/// that is never woken is a deadlock, which loom reports.
#[derive(Clone, Debug, Default)]
pub struct Waiter(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: WakeState,
    eventfd: Mutex<bool>,
    signalled: Condvar,
}

impl Waiter {
    /// The state of the protocol.
    pub fn state(&self) -> &WakeState {
        &self.0.state
    }

    /// Signals the eventfd.
    pub fn signal(&self) {
        *self.0.eventfd.lock().unwrap() = true;
        self.0.signalled.notify_one();
    }

    /// True if the eventfd is signalled.
    pub fn is_signalled(&self) -> bool {
        *self.0.eventfd.lock().unwrap()
    }

    /// As a backend waits: blocks unless a wake is pending, and again after a signal that came too
    /// late for the wait before.
    pub fn wait(&self) {
        loop {
            if self.0.state.prepare_park() {
                let mut eventfd = self.0.eventfd.lock().unwrap();
                while !*eventfd {
                    eventfd = self.0.signalled.wait(eventfd).unwrap();
                }
                *eventfd = false;
            }
            if self.0.state.unpark() {
                return;
            }
        }
    }
}

impl Wake for Waiter {
    fn wake(&self) -> io::Result<()> {
        self.0.state.wake(|| {
            self.signal();
            Ok(())
        })
    }
}
