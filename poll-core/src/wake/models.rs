//! The wake protocol in every order that the memory model allows: `bash .ci/run loom`.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use super::Wake;
use crate::sync::{Waiter, model};

#[test]
fn a_wait_sees_what_was_written_before_the_wake() {
    model(|| {
        let shared = Arc::new((Waiter::default(), UnsafeCell::new(0)));
        let waker = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                // SAFETY: the other thread reads after the wake.
                shared.1.with_mut(|value| unsafe { *value = 7 });
                shared.0.wake().unwrap();
            })
        };
        shared.0.wait();
        // SAFETY: the other thread wrote before the wake.
        assert_eq!(shared.1.with(|value| unsafe { *value }), 7);
        waker.join().unwrap();
    });
}

#[test]
fn no_wake_of_two_threads_is_lost() {
    model(|| {
        let shared = Arc::new((Waiter::default(), AtomicU32::new(0)));
        let wakers = [1, 2].map(|bit| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                shared.1.fetch_or(bit, Ordering::Relaxed);
                shared.0.wake().unwrap();
            })
        });
        while shared.1.load(Ordering::Relaxed) != 3 {
            shared.0.wait();
        }
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
    });
}

#[test]
fn a_poller_around_the_backend_is_signalled_from_the_first_wake() {
    model(|| {
        let waiter = Waiter::default();
        let waker = waiter.clone();
        let waker = thread::spawn(move || waker.wake().unwrap());
        // As `raw_source` does: the caller blocks on the eventfd next.
        if waiter.state().notify_always() {
            waiter.signal();
        }
        waker.join().unwrap();
        assert!(waiter.is_signalled(), "the other poller would block for ever");
        assert!(waiter.state().unpark());
    });
}

#[test]
fn a_failed_signal_is_repeated_by_one_of_the_next_wakes() {
    model(|| {
        let waiter = Waiter::default();
        assert!(waiter.state().prepare_park());
        let refused = std::io::ErrorKind::OutOfMemory;
        assert!(waiter.state().wake(|| Err(refused.into())).is_err());
        let waker = waiter.clone();
        let waker = thread::spawn(move || waker.wake().unwrap());
        waiter.wake().unwrap();
        waker.join().unwrap();
        assert!(waiter.is_signalled(), "the wait would not end");
        assert!(waiter.state().unpark());
    });
}
