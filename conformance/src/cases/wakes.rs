//! Point 6: a wake ends exactly one wait, without avoidable system calls.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use poll_core::{Backend, BoxedBackend, Interest, Mode, Readiness, Wake};

use crate::support::observe::{
    A, SHORT, SOON, lasts, modify, ready_of, register, silent, wait_once,
};
use crate::support::sleep::sleeps;
use crate::support::sources::{arrived, drain, send, tcp_pair};
use crate::support::syscalls;
use crate::{Lab, Verdict};

/// A wake before a wait is pending until the next wait, whatever its timeout, and is consumed by
/// it.
pub fn before_a_wait(lab: &Lab) -> Verdict {
    let (near, _far) = tcp_pair();
    let mut backend = lab.backend()?;
    for watched in [false, true] {
        if watched {
            register(&mut backend, A, &near, Interest::READ, Mode::Level);
        }
        wake(&backend.waker());
        ends_soon(&mut backend, "it was woken before");
        lasts(&mut backend, SHORT, "the wake ended the wait before this one");
        wake(&backend.waker());
        assert_eq!(wait_once(&mut backend, None), [], "a wake is not an event");
        lasts(&mut backend, SHORT, "the wake ended the wait before this one");
    }
    Ok(())
}

/// A wake ends the wait in progress, and no other.
pub fn during_a_wait(lab: &Lab) -> Verdict {
    let mut backend = lab.backend()?;
    let waker = backend.waker();
    for pause in [0, 1, 10, 50] {
        for timeout in [Some(6 * SOON), None] {
            let woken = AtomicBool::new(false);
            let started = Instant::now();
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(pause));
                    woken.store(true, Ordering::SeqCst);
                    wake(&waker);
                });
                assert_eq!(wait_once(&mut backend, timeout), [], "a wake is not an event");
                assert!(woken.load(Ordering::SeqCst), "the wait ended before the wake");
            });
            let elapsed = started.elapsed();
            assert!(elapsed < SOON, "a wake after {pause} ms ended the wait after {elapsed:?}");
            lasts(&mut backend, SHORT, "the wake ended the wait before this one");
        }
    }
    Ok(())
}

/// A wake between two waits ends the second, also if the first was ended by a wake, did not block
/// or timed out. A wait that does not block consumes the wake too.
pub fn between_waits(lab: &Lab) -> Verdict {
    let mut backend = lab.backend()?;
    let waker = backend.waker();
    for _ in 0..3 {
        wait_once(&mut backend, Some(Duration::ZERO));
        wake(&waker);
        ends_soon(&mut backend, "it was woken after a wait that did not block");
        wake(&waker);
        ends_soon(&mut backend, "it was woken after a wait that a wake ended");
        lasts(&mut backend, Duration::from_millis(5), "both wakes were consumed");
        wake(&waker);
        ends_soon(&mut backend, "it was woken after a wait that timed out");
        wake(&waker);
        wait_once(&mut backend, Some(Duration::ZERO));
        lasts(&mut backend, SHORT, "a zero wait consumed the wake");
    }
    Ok(())
}

/// Concurrent wakes from many threads lose nothing: data posted before a wake is visible after the
/// wait that this wake or a later one ends.
pub fn from_many_threads(lab: &Lab) -> Verdict {
    const THREADS: u32 = 4;
    const ROUNDS: u32 = 500;
    let mut backend = lab.backend()?;
    let waker = backend.waker();
    let posted = AtomicU32::new(0);
    thread::scope(|scope| {
        let start_post = || {
            let (start, rounds) = mpsc::channel();
            let (waker, posted) = (&waker, &posted);
            scope.spawn(move || {
                for () in rounds {
                    posted.fetch_add(1, Ordering::SeqCst);
                    wake(waker);
                }
            });
            start
        };
        let mut delays = Delays(1);
        let starts: Vec<_> = (0..THREADS).map(|_| start_post()).collect();
        for round in 1..=ROUNDS {
            starts.iter().for_each(|start| start.send(()).expect("a thread that posts"));
            // While a post is unseen, its wake is pending.
            while posted.load(Ordering::SeqCst) < THREADS * round {
                // The window between this check and the wait is where a wake could be lost.
                delays.spin();
                ends_soon(&mut backend, "another thread posted and woke it");
            }
        }
        drop(starts);
    });
    // The last wakes may have arrived after the last wait.
    wait_once(&mut backend, Some(SHORT));
    lasts(&mut backend, SHORT, "all wakes were consumed");
    Ok(())
}

/// Any number of wakes before a wait returns end one wait. An unbounded queue of wakes would keep a
/// loop iterating after a busy producer stopped; with a bounded one (a pipe) the thousandth wake
/// would block or fail.
pub fn coalesce(lab: &Lab) -> Verdict {
    const WAKES: u32 = 100_000;
    let mut backend = lab.backend()?;
    let waker = backend.waker();
    for _ in 0..2 {
        (0..WAKES).for_each(|_| wake(&waker));
        ends_soon(&mut backend, "it was woken many times");
        lasts(&mut backend, SHORT, "one wait consumes all wakes");

        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(10));
                (0..10).for_each(|_| wake(&waker));
            });
            ends_soon(&mut backend, "another thread wakes it");
        });
        // Consumes the wakes that arrived after that wait returned.
        wait_once(&mut backend, Some(SHORT));
        lasts(&mut backend, SHORT, "one wait consumes all wakes");
    }
    Ok(())
}

/// A wake does not hide an event, nor an event a wake: the wait reports the ready source and
/// consumes the wake.
pub fn combine_with_events(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    let waker = backend.waker();
    for mode in [Mode::Level, Mode::Oneshot] {
        if mode == Mode::Level {
            register(&mut backend, A, &near, Interest::READ, mode);
        }
        for timeout in [Some(SOON), Some(Duration::ZERO), None] {
            modify(&mut backend, A, Interest::READ, mode);
            send(&far, b"x");
            arrived(&near);
            wake(&waker);
            let events = wait_once(&mut backend, timeout);
            assert_eq!(ready_of(&events, A), Readiness::READ, "woken, and a source is ready");
            drain(&near);
            lasts(&mut backend, SHORT, "the wake was consumed by the wait before this one");
        }
    }
    Ok(())
}

/// Thousands of rounds of one wake per wait with varied delays: the wake arrives before the wait,
/// while it is about to block, or during it. Each wait ends by its wake and never without one. The
/// window between the check for a pending wake and the system call is where wakes get lost; a
/// signal delivered late is where spurious ones arise.
pub fn none_is_lost(lab: &Lab) -> Verdict {
    const ROUNDS: u32 = 3000;
    let (rescue, rescuer) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &rescue, Interest::READ, Mode::Level);
    let waker = backend.waker();
    let (wanted, rounds) = mpsc::channel();
    let (alive, watched) = mpsc::channel();
    let sent = AtomicU32::new(0);
    thread::scope(|scope| {
        let sent = &sent;
        scope.spawn(move || {
            let mut delays = Delays(1);
            for round in rounds {
                delays.spin();
                sent.store(round, Ordering::SeqCst);
                wake(&waker);
            }
        });
        // Ends a wait that missed its wake, so that the case fails instead of hanging.
        scope.spawn(move || {
            while watched.recv_timeout(SOON).is_ok() {}
            send(&rescuer, b"x");
        });
        // Owned by this closure, so that its return or panic ends both threads.
        let (wanted, alive) = (wanted, alive);
        let mut delays = Delays(2);
        for round in 1..=ROUNDS {
            let _ = wanted.send(round);
            let _ = alive.send(());
            delays.spin();
            let events = wait_once(&mut backend, None);
            assert_eq!(events, [], "wake {round} of {ROUNDS} was lost");
            let last = sent.load(Ordering::SeqCst);
            assert_eq!(last, round, "wait {round} ended, but only {last} wakes were sent");
        }
    });
    Ok(())
}

/// A waker may outlive its backend, and waking is then harmless. The descriptor that it signalled
/// may belong to another file by now and must not be written to.
pub fn after_the_backend_is_dropped(lab: &Lab) -> Verdict {
    for waited in [false, true] {
        let mut backend = lab.backend()?;
        if waited {
            wait_once(&mut backend, Some(Duration::from_millis(1)));
        }
        let (waker, over) = (backend.waker(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    let _ = waker.wake();
                }
            });
            thread::sleep(Duration::from_millis(2));
            drop(backend);
            // These likely get the descriptor numbers that the backend had.
            let strangers: Vec<_> = (0..8).map(|_| tcp_pair()).collect();
            for _ in 0..1000 {
                let _ = waker.clone().wake();
            }
            over.store(true, Ordering::SeqCst);
            for end in strangers.iter().flat_map(|(near, far)| [near, far]) {
                let read = end.peek(&mut [0]).map_err(|error| error.kind());
                let nothing = Err(ErrorKind::WouldBlock);
                assert_eq!(
                    read, nothing,
                    "the waker of a dropped backend wrote to an unrelated descriptor"
                );
            }
        });
    }
    Ok(())
}

/// A signal handler may wake a loop. It interrupts arbitrary code on any thread, so that a lock or
/// an allocation in `wake` would eventually deadlock.
#[cfg(unix)]
pub fn from_a_signal_handler(lab: &Lab) -> Verdict {
    use crate::support::signals::{Handler, Thread};

    let mut backend = lab.backend()?;
    let waker = backend.waker();
    let handler = Handler::new(move || {
        let _ = waker.wake();
    });
    let waiting = Thread::current();

    waiting.call_handler();
    assert_eq!(handler.calls(), 1, "a signal to the own thread is handled synchronously");
    ends_soon(&mut backend, "a signal handler woke it before");
    lasts(&mut backend, SHORT, "the wake ended the wait before this one");

    // On another thread, the signal itself does not end the wait: the wake must.
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            Thread::current().call_handler();
        });
        ends_soon(&mut backend, "a signal handler on another thread woke it");
        assert!(handler.calls() >= 1 && started.elapsed() >= Duration::from_millis(20));
    });
    lasts(&mut backend, SHORT, "the wake ended the wait before this one");

    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            waiting.call_handler();
        });
        ends_soon(&mut backend, "a signal handler on its own thread woke it");
    });
    assert_eq!(handler.calls(), 3, "three signals were sent");
    lasts(&mut backend, SHORT, "the wake ended the wait before this one");
    Ok(())
}

/// Windows has no signal handlers that interrupt a thread.
#[cfg(not(unix))]
pub fn from_a_signal_handler(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("this system has no signal handlers"))
}

/// A wake makes no system call while the backend is awake. Otherwise a loop that posts to itself,
/// or is busy, pays a write per wake and a read at the next wait.
pub fn make_no_syscall_while_awake(lab: &Lab) -> Verdict {
    let mut backend = lab.backend()?;
    let waker = backend.waker();
    for waited in ["never", "for nothing", "until it was woken"] {
        match waited {
            "for nothing" => silent(&mut backend, "nothing is registered"),
            "until it was woken" => {
                wake(&waker);
                ends_soon(&mut backend, "it was woken before");
            }
            _ => {}
        }
        let calls = syscalls::count(|| (0..100).for_each(|_| wake(&waker)))?.1;
        ends_soon(&mut backend, "it was woken before");
        assert_eq!(calls.total(), 0, "wakes of a backend that waited {waited}: {calls:?}");

        wake(&waker);
        let calls = syscalls::count(|| ends_soon(&mut backend, "it was woken before"))?.1;
        assert!(calls.total() <= 1, "a wait after a wake costs more than one call: {calls:?}");
        lasts(&mut backend, SHORT, "all wakes were consumed");
    }
    Ok(())
}

/// After a wake was consumed, waits sleep again. A wake that leaves its eventfd or pipe readable ends
/// every system call of the later waits: each lasts for its timeout, and spins.
pub fn leave_later_waits_asleep(lab: &Lab) -> Verdict {
    let mut backend = lab.backend()?;
    let waker = backend.waker();
    // Of a wait that sleeps, through the kernel; and before a wait.
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(SHORT);
            wake(&waker);
        });
        ends_soon(&mut backend, "another thread woke it");
    });
    lasts(&mut backend, SHORT, "the wake ended the wait before this one");
    sleeps(&mut backend, 10 * SHORT, "the wake was consumed")?;
    wake(&waker);
    ends_soon(&mut backend, "it was woken before");
    sleeps(&mut backend, 10 * SHORT, "the wake was consumed")
}

fn wake(waker: &impl Wake) {
    waker.wake().unwrap_or_else(|error| panic!("wake: {error}"));
}

/// Asserts that a long wait ends early, without events.
#[track_caller]
fn ends_soon(backend: &mut BoxedBackend, why: &str) {
    let started = Instant::now();
    let events = wait_once(backend, Some(SOON));
    assert_eq!(events, [], "a wake is not an event");
    assert!(started.elapsed() < SOON, "the wait did not end early, but {why}");
}

/// Pseudo-random delays from zero to about ten microseconds.
struct Delays(u32);

impl Delays {
    fn spin(&mut self) {
        // Xorshift; its low bits are random enough.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        if self.0.is_multiple_of(16) {
            return thread::sleep(Duration::from_micros(100));
        }
        for _ in 0..self.0 % 8 * 256 {
            std::hint::spin_loop();
        }
    }
}
