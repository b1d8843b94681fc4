//! Point 5: lower and upper bounds on the duration of a wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use poll_core::{Backend, BoxedBackend, Interest, Mode, Readiness, Wake};

use crate::support::observe::{
    A, B, C, SOON, await_ready, deregister, lasts, modify, ready_of, register, silent, wait_once,
};
use crate::support::sleep::{none_spins, sleeps_on_average};
use crate::support::sources::{arrived, drain, send, tcp_pair};
use crate::{Lab, Verdict};

/// Tolerated lateness for the best of several waits: far more than the 16 ms of a coarse clock, far
/// less than a wrong time unit would cause.
const LATE: Duration = Duration::from_millis(60);

/// A timeout of zero polls without blocking.
pub fn zero_does_not_block(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    let shortest = |backend: &mut BoxedBackend| {
        let waits = (0..10).map(|_| {
            let started = Instant::now();
            assert_eq!(wait_once(backend, Some(Duration::ZERO)), [], "nothing was sent");
            started.elapsed()
        });
        waits.min().expect("ten of them")
    };
    let elapsed = shortest(&mut backend);
    assert!(elapsed < LATE, "a zero wait without sources took {elapsed:?}");
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    let elapsed = shortest(&mut backend);
    assert!(elapsed < LATE, "a zero wait with an idle source took {elapsed:?}");

    send(&far, b"x");
    arrived(&near);
    let events = wait_once(&mut backend, Some(Duration::ZERO));
    assert_eq!(ready_of(&events, A), Readiness::READ, "a zero wait reports what is ready");
    Ok(())
}

/// A wait without a timeout ends when an event occurs, not before.
pub fn none_blocks_indefinitely(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    for _ in 0..3 {
        let sent = AtomicBool::new(false);
        let events = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(100));
                sent.store(true, Ordering::SeqCst);
                send(&far, b"x");
            });
            let events = wait_once(&mut backend, None);
            assert!(sent.load(Ordering::SeqCst), "it ended before the event: {events:?}");
            events
        });
        assert_eq!(ready_of(&events, A), Readiness::READ, "a wait for ever ended with {events:?}");
        drain(&near);
    }
    Ok(())
}

/// A wait never ends before its timeout, not by a nanosecond. Kernels count in milliseconds; a
/// timeout rounded down ends the wait before the timer is due, and the loop either iterates again
/// or, as libuv long did, fires the timer early.
pub fn are_never_early(lab: &Lab) -> Verdict {
    const NANOS: [u64; 12] = [
        1, 1_000, 99_999, 500_000, 999_999, 1_000_000, 1_000_001, 1_500_000, 2_999_999, 10_000_001,
        15_600_000, 33_333_333,
    ];
    let (near, _far) = tcp_pair();
    let mut backend = lab.backend()?;
    for watched in [false, true] {
        if watched {
            register(&mut backend, A, &near, Interest::READ, Mode::Level);
        }
        for _ in 0..5 {
            for nanos in NANOS {
                lasts(&mut backend, Duration::from_nanos(nanos), "nothing happened");
            }
        }
    }
    Ok(())
}

/// A wait ends soon after its timeout. The best of several counts, since the machine may be busy. A
/// failure here indicates a wrong time unit or a second sleep.
pub fn have_bounded_lateness(lab: &Lab) -> Verdict {
    let (near, _far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    for micros in [1, 100, 1_000, 1_001, 10_000, 200_000] {
        let timeout = Duration::from_micros(micros);
        let mut best = Duration::MAX;
        for _ in 0..20 {
            let started = Instant::now();
            lasts(&mut backend, timeout, "nothing was sent");
            best = best.min(started.elapsed());
            if best < timeout + LATE {
                break;
            }
        }
        assert!(best < timeout + LATE, "the best of 20 waits of {timeout:?} took {best:?}");
    }
    Ok(())
}

/// A timeout too large for the kernel or for a deadline is equivalent to none: it does not
/// overflow, fail or wrap around to a short one, and events still end the wait.
pub fn huge_values_do_not_overflow(lab: &Lab) -> Verdict {
    let huge = [
        // `i32::MAX` milliseconds plus one, and the same modulo 2³².
        Duration::from_millis(1 << 31),
        Duration::from_millis((1 << 32) + 1),
        // `i32::MAX` seconds plus one, and the same modulo 2³².
        Duration::from_secs(1 << 31),
        Duration::from_secs((1 << 32) + 1),
        // The limits of 64-bit nanoseconds and of 64-bit 100 ns ticks.
        Duration::from_nanos(u64::MAX),
        Duration::from_secs(u64::MAX / 10_000_000),
        // The limit of signed 64-bit seconds, and its neighbour.
        Duration::from_secs(i64::MAX as u64),
        Duration::from_secs(1 << 63),
        Duration::MAX,
    ];
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    for timeout in huge {
        let (waker, woken) = (backend.waker(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                woken.store(true, Ordering::SeqCst);
                waker.wake().expect("a wake");
            });
            let events = wait_once(&mut backend, Some(timeout));
            assert!(woken.load(Ordering::SeqCst), "a wait of {timeout:?} ended early: {events:?}");
        });
        send(&far, b"x");
        let events = wait_once(&mut backend, Some(timeout));
        assert_eq!(ready_of(&events, A), Readiness::READ, "a wait of {timeout:?}");
        drain(&near);
    }
    Ok(())
}

/// An event ends a wait immediately, however much of its timeout is left.
pub fn events_end_the_wait(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    for pause in [0, 1, 10, 50] {
        let pause = Duration::from_millis(pause);
        let started = Instant::now();
        let events = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(pause);
                send(&far, b"x");
            });
            wait_once(&mut backend, Some(6 * SOON))
        });
        let elapsed = started.elapsed();
        assert_eq!(ready_of(&events, A), Readiness::READ, "data was sent after {pause:?}");
        assert!(elapsed < SOON, "data sent after {pause:?} ended the wait after {elapsed:?}");
        drain(&near);
    }
    Ok(())
}

/// Events that the kernel reports but the caller must not see do not shorten the wait: events of
/// silenced, spent and deregistered sources are dropped, and the wait continues for the remaining
/// time. An early return without events looks like a due timer.
pub fn suppressed_events_do_not_shorten_the_wait(lab: &Lab) -> Verdict {
    const TIMEOUT: Duration = Duration::from_millis(200);
    let (silenced, silenced_far) = tcp_pair();
    let (spent, spent_far) = tcp_pair();
    let (gone, gone_far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &silenced, Interest::READ, Mode::Level);
    register(&mut backend, B, &spent, Interest::READ, Mode::Oneshot);
    register(&mut backend, C, &gone, Interest::READ, Mode::Level);
    silent(&mut backend, "nothing was sent");
    send(&spent_far, b"x");
    await_ready(&mut backend, B, Readiness::READ);
    // The kernel receives these changes during the wait, after traffic has begun.
    modify(&mut backend, A, Interest::NONE, Mode::Level);
    deregister(&mut backend, C);
    for _ in 0..2 {
        let (over, started) = (AtomicBool::new(false), Instant::now());
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) && started.elapsed() < SOON {
                    for far in [&silenced_far, &spent_far, &gone_far] {
                        send(far, b"x");
                    }
                    thread::sleep(Duration::from_millis(3));
                }
            });
            thread::sleep(Duration::from_millis(3));
            let started = Instant::now();
            let events = wait_once(&mut backend, Some(TIMEOUT));
            let elapsed = started.elapsed();
            over.store(true, Ordering::SeqCst);
            assert_eq!(events, [], "all sources are silenced, spent or deregistered");
            assert!(
                elapsed >= TIMEOUT,
                "suppressed events ended a wait of {TIMEOUT:?} after {elapsed:?}"
            );
        });
    }
    Ok(())
}

/// A signal handled by the waiting thread ends its wait early and without an error, so that the
/// caller can act on state set by the handler.
#[cfg(unix)]
pub fn signals_interrupt_the_wait(lab: &Lab) -> Verdict {
    use crate::support::signals::Thread;

    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    let waiting = Thread::current();
    for timeout in [Some(SOON), None] {
        let (returned, started) = (AtomicBool::new(false), Instant::now());
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                // A signal that arrives just before the thread blocks does not interrupt it.
                while !returned.load(Ordering::SeqCst) && started.elapsed() < SOON {
                    thread::sleep(Duration::from_millis(5));
                    waiting.interrupt();
                }
                // Ends the wait of a backend that ignores signals; the assertion below reports it.
                send(&far, b"x");
            });
            let mut events = Vec::new();
            let result = backend.wait(timeout, &mut events).map(|()| events);
            returned.store(true, Ordering::SeqCst);
            result
        });
        let elapsed = started.elapsed();
        let events = result.unwrap_or_else(|error| panic!("a signal is no error: {error}"));
        assert!(elapsed < SOON, "signals did not end a wait of {timeout:?}: {events:?}");
        await_ready(&mut backend, A, Readiness::READ);
        drain(&near);
        lasts(&mut backend, Duration::from_millis(20), "no signal comes any more");
    }
    Ok(())
}

/// A wait sleeps for the fraction of a millisecond at the end of its timeout too. A timeout that is
/// rounded down for a kernel that counts in milliseconds ends the sleep early: the wait is not over,
/// so that it polls without blocking until then.
pub fn of_fractions_of_a_millisecond_are_slept(lab: &Lab) -> Verdict {
    const TIMEOUT: Duration = Duration::from_micros(1_900);
    const WHY: &str = "nothing was sent";
    let (near, _far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    silent(&mut backend, WHY);
    none_spins(&mut backend, TIMEOUT, 60, WHY);
    sleeps_on_average(&mut backend, TIMEOUT, 100, WHY)
}

/// Windows has no signals that interrupt a thread.
#[cfg(not(unix))]
pub fn signals_interrupt_the_wait(_lab: &Lab) -> Verdict {
    Err(crate::Skip::because("this system has no signals that interrupt a thread"))
}
