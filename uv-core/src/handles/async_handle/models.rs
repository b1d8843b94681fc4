//! Sends and notifications in every order that the memory model allows: `bash .ci/run loom`.

#![allow(unsafe_code)]

use std::io;

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU32;
use loom::thread;
use poll_core::Wake;
use poll_core::sync::{Waiter, model};

use super::*;

/// A loop with one async.
#[derive(Clone)]
struct Fixture {
    waiter: Waiter,
    sender: AsyncSender,
    /// Written by senders, read by the callback.
    value: Arc<UnsafeCell<u32>>,
}

impl Fixture {
    fn new() -> Fixture {
        let waiter = Waiter::default();
        let notifier = Arc::new(Notifier::new(waiter.clone()));
        let sender = AsyncSender { flag: Arc::default(), notifier };
        Fixture { waiter, sender, value: Arc::new(UnsafeCell::new(0)) }
    }

    /// As `run_notifications` and `run_pending`. True if the callback runs.
    fn run_pending(&self) -> bool {
        let AsyncSender { flag, notifier } = &self.sender;
        let due = notifier.has_any()
            && notifier.take(Notification::ASYNC)
            && flag.pending.load(Ordering::Relaxed);
        if due {
            flag.pending.swap(false, Ordering::AcqRel);
        }
        due
    }
}

#[test]
fn a_callback_sees_what_was_written_before_the_send() {
    model(|| {
        let fixture = Fixture::new();
        let thread = {
            let fixture = fixture.clone();
            thread::spawn(move || {
                // SAFETY: loom checks that the callback reads after this.
                fixture.value.with_mut(|value| unsafe { *value = 7 });
                fixture.sender.send().unwrap();
            })
        };
        while !fixture.run_pending() {
            fixture.waiter.wait();
        }
        // SAFETY: loom checks that the sender wrote before this.
        assert_eq!(fixture.value.with(|value| unsafe { *value }), 7);
        thread.join().unwrap();
    });
}

#[test]
fn the_last_callback_sees_every_coalesced_send() {
    model(|| {
        let (fixture, sent) = (Fixture::new(), Arc::new(AtomicU32::new(0)));
        let threads = [1, 2].map(|bit| {
            let (sender, sent) = (fixture.sender.clone(), Arc::clone(&sent));
            thread::spawn(move || {
                sent.fetch_or(bit, Ordering::Relaxed);
                sender.send().unwrap();
            })
        });
        let mut seen = 0;
        while seen != 3 {
            fixture.waiter.wait();
            if fixture.run_pending() {
                seen = sent.load(Ordering::Relaxed);
            }
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn what_a_job_sent_is_delivered_before_its_end() {
    model(|| {
        let fixture = Fixture::new();
        // Another thread sends as well: the job's send may coalesce with one that has set the flag
        // and has not notified yet.
        let other = {
            let sender = fixture.sender.clone();
            thread::spawn(move || sender.send().unwrap())
        };
        let job = {
            let sender = fixture.sender.clone();
            thread::spawn(move || {
                sender.send().unwrap();
                sender.notifier.notify(Notification::WORK).unwrap();
            })
        };
        let (mut delivered, notifier) = (false, &fixture.sender.notifier);
        loop {
            fixture.waiter.wait();
            let ended = notifier.take(Notification::WORK);
            delivered |= fixture.run_pending();
            if ended {
                break;
            }
        }
        assert!(delivered, "the job's callback would run before that of its send");
        other.join().unwrap();
        job.join().unwrap();
    });
}

/// Fails once.
#[derive(Clone)]
struct FailsOnce(Waiter, Arc<AtomicBool>);

impl Wake for FailsOnce {
    fn wake(&self) -> io::Result<()> {
        if !self.1.swap(true, Ordering::AcqRel) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.0.wake()
    }
}

#[test]
fn a_failed_wake_is_reported_and_retried() {
    model(|| {
        let waiter = Waiter::default();
        let waker = FailsOnce(waiter.clone(), Arc::default());
        let notifier = Arc::new(Notifier::new(waker));
        let other = {
            let notifier = Arc::clone(&notifier);
            thread::spawn(move || notifier.notify(Notification::ASYNC).is_err())
        };
        let failed = notifier.notify(Notification::ASYNC).is_err();
        assert!(other.join().unwrap() || failed, "an error is reported");
        notifier.retry_failed_wake().unwrap();
        waiter.wait();
        assert!(notifier.take(Notification::ASYNC));
    });
}
