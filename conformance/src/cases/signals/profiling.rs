//! `SIGPROF`, the signal of sampling profilers.

use crate::support::loops::new_loop;
use crate::{Lab, Verdict};

/// `SIGPROF` stays pending while the loop waits, if the loop was configured to block it. Callbacks,
/// and the code after the run, find the original mask.
#[cfg(not(unix))]
pub fn sigprof_is_blocked_during_the_wait(lab: &Lab) -> Verdict {
    let refused = new_loop(lab)?.block_sigprof().expect_err("Windows has no such signal");
    assert_eq!(refused.kind(), std::io::ErrorKind::Unsupported);
    Ok(())
}

/// `SIGPROF` stays pending while the loop waits, if the loop was configured to block it. Callbacks,
/// and the code after the run, find the original mask.
#[cfg(unix)]
pub fn sigprof_is_blocked_during_the_wait(lab: &Lab) -> Verdict {
    use std::sync::atomic::Ordering;
    use std::thread;

    use uv_core::{Async, Handle, RunMode};

    use crate::Loop;

    use crate::support::dispositions::{Changed, Disposition};
    use crate::support::loops::{ZERO, run};
    use crate::support::observe::SHORT;
    use crate::support::signals::Thread;
    use unix::{DELIVERED, blocked, count, is_blocked};

    DELIVERED.store(0, Ordering::SeqCst);
    let handler = count as extern "C" fn(libc::c_int) as *const () as libc::sighandler_t;
    let _counted = Changed::to(libc::SIGPROF, Disposition::Handled(handler));
    let mut lp = new_loop(lab)?;
    lp.block_sigprof().expect("a signal that can be blocked");
    lp.measure_idle_time();
    let (_, sender) = Async::new(&mut lp, |lp: &mut Loop, handle| {
        assert_eq!(DELIVERED.load(Ordering::SeqCst), 1, "in a callback");
        assert!(!is_blocked(), "in a callback");
        handle.close(lp).expect("an open handle");
    });
    let (waiter, metrics) = (Thread::as_it_is(), lp.metrics());
    let profiler = thread::spawn(move || {
        while metrics.idle_time() == ZERO {
            thread::yield_now(); // The loop does not wait yet.
        }
        waiter.send(libc::SIGPROF);
        thread::sleep(SHORT);
        let early = DELIVERED.load(Ordering::SeqCst);
        sender.send().expect("an open handle");
        early
    });
    run(&mut lp, RunMode::Default);
    assert_eq!(profiler.join().expect("the profiler"), 0, "delivered while the loop waits");
    assert!(!is_blocked(), "after the run");
    let _blocked = blocked();
    lp.defer(|_| assert!(is_blocked(), "the caller has blocked it"));
    run(&mut lp, RunMode::Default);
    assert!(is_blocked(), "the caller has blocked it");
    Ok(())
}

#[cfg(unix)]
mod unix {
    use std::mem::MaybeUninit;
    use std::ptr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    pub(super) static DELIVERED: AtomicUsize = AtomicUsize::new(0);

    pub(super) extern "C" fn count(_: libc::c_int) {
        DELIVERED.fetch_add(1, Ordering::SeqCst);
    }

    fn change(how: libc::c_int, set: *const libc::sigset_t) -> libc::sigset_t {
        let mut before = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the set is null or valid, and the other is written.
        let result = unsafe { libc::pthread_sigmask(how, set, before.as_mut_ptr()) };
        assert_eq!(result, 0, "pthread_sigmask");
        // SAFETY: written by the call above.
        unsafe { before.assume_init() }
    }

    /// True if this thread blocks the signal.
    pub(super) fn is_blocked() -> bool {
        let mask = change(libc::SIG_BLOCK, ptr::null());
        // SAFETY: the set is valid, the signal exists.
        unsafe { libc::sigismember(&mask, libc::SIGPROF) == 1 }
    }

    /// This thread blocks the signal until this is dropped.
    pub(super) struct Blocked(libc::sigset_t);

    pub(super) fn blocked() -> Blocked {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: initialises the set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // SAFETY: the set is initialised, the signal exists.
        unsafe { libc::sigaddset(set.as_mut_ptr(), libc::SIGPROF) };
        Blocked(change(libc::SIG_BLOCK, set.as_ptr()))
    }

    impl Drop for Blocked {
        fn drop(&mut self) {
            change(libc::SIG_SETMASK, &self.0);
        }
    }
}
