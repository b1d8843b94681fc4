//! Point 5: how long a wait may take, and must.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use poll_core::{Backend, Mode, Ready, Wake};

use crate::support::observe::{
    A, B, C, SOON, await_ready, deregister, lasts, modify, ready_of, register, silent, wait_once,
};
use crate::support::sources::{arrived, drain, send, tcp_pair};
use crate::{Lab, Verdict};

/// How late the best of several waits may be: far more than the 16 ms of a coarse
/// clock, far less than a mistake in the unit.
const LATE: Duration = Duration::from_millis(60);

/// A timeout of zero asks what is ready, and returns.
pub fn zero_does_not_wait<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    let shortest = |backend: &mut T| {
        let waits = (0..10).map(|_| {
            let started = Instant::now();
            assert_eq!(wait_once(backend, Some(Duration::ZERO)), [], "nothing was sent");
            started.elapsed()
        });
        waits.min().expect("ten of them")
    };
    let elapsed = shortest(&mut backend);
    assert!(elapsed < LATE, "a zero wait without sources took {elapsed:?}");
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    let elapsed = shortest(&mut backend);
    assert!(elapsed < LATE, "a zero wait with an idle source took {elapsed:?}");

    send(&far, b"x");
    arrived(&near);
    let events = wait_once(&mut backend, Some(Duration::ZERO));
    assert_eq!(ready_of(&events, A), Ready::READ, "a zero wait reports what is ready");
    Ok(())
}

/// A wait without a timeout ends when something happens, not before.
pub fn none_waits_for_ever<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    for _ in 0..3 {
        let sent = AtomicBool::new(false);
        let events = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(100));
                sent.store(true, Ordering::SeqCst);
                send(&far, b"x");
            });
            let events = wait_once(&mut backend, None);
            assert!(sent.load(Ordering::SeqCst), "it ended before anything happened: {events:?}");
            events
        });
        assert_eq!(ready_of(&events, A), Ready::READ, "a wait for ever ended with {events:?}");
        drain(&near);
    }
    Ok(())
}

/// A wait never ends before its timeout, not by a nanosecond. Kernels count in
/// milliseconds, and a timeout rounded down makes timers fire early: the loop finds
/// nothing due and turns again, or, as libuv long did, runs the timer too soon.
pub fn are_never_early<T: Backend>(lab: &Lab<T>) -> Verdict {
    const NANOS: [u64; 12] = [
        1, 1_000, 99_999, 500_000, 999_999, 1_000_000, 1_000_001, 1_500_000, 2_999_999, 10_000_001,
        15_600_000, 33_333_333,
    ];
    let (near, _far) = tcp_pair();
    let mut backend = lab.backend()?;
    for watched in [false, true] {
        if watched {
            register(&mut backend, A, &near, Ready::READ, Mode::Level);
        }
        for _ in 0..5 {
            for nanos in NANOS {
                lasts(&mut backend, Duration::from_nanos(nanos), "nothing happened");
            }
        }
    }
    Ok(())
}

/// A wait ends soon after its timeout. The best of several counts, as any machine is
/// busy at times; what fails here takes milliseconds for seconds, or sleeps twice.
pub fn are_not_absurdly_late<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, _far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
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

/// A timeout too large for the kernel, or for a deadline, is as good as none: it does
/// not overflow, fail, or wrap around to a short one, and events still end it.
pub fn may_be_huge<T: Backend>(lab: &Lab<T>) -> Verdict {
    let huge = [
        // One more than an `int` of milliseconds holds, and what that is modulo 2³².
        Duration::from_millis(1 << 31),
        Duration::from_millis((1 << 32) + 1),
        // One more than an `int` of seconds holds, and what that is modulo 2³².
        Duration::from_secs(1 << 31),
        Duration::from_secs((1 << 32) + 1),
        // Nanoseconds, and 100 ns ticks, in 64 bits.
        Duration::from_nanos(u64::MAX),
        Duration::from_secs(u64::MAX / 10_000_000),
        // A signed number of seconds, and its neighbour.
        Duration::from_secs(i64::MAX as u64),
        Duration::from_secs(1 << 63),
        Duration::MAX,
    ];
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
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
        assert_eq!(ready_of(&events, A), Ready::READ, "a wait of {timeout:?}");
        drain(&near);
    }
    Ok(())
}

/// Something to report ends a wait at once, however much of its time is left.
pub fn give_way_to_events<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
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
        assert_eq!(ready_of(&events, A), Ready::READ, "data was sent after {pause:?}");
        assert!(elapsed < SOON, "data sent after {pause:?} ended the wait after {elapsed:?}");
        drain(&near);
    }
    Ok(())
}

/// What the kernel reports but the caller must not see does not shorten the wait: events
/// of silenced, spent and deregistered sources are swallowed, and the wait goes on for
/// the time left. An early return with nothing looks like a timer that is due.
pub fn survive_unreported_events<T: Backend>(lab: &Lab<T>) -> Verdict {
    const TIMEOUT: Duration = Duration::from_millis(200);
    let (silenced, silenced_far) = tcp_pair();
    let (spent, spent_far) = tcp_pair();
    let (gone, gone_far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &silenced, Ready::READ, Mode::Level);
    register(&mut backend, B, &spent, Ready::READ, Mode::Oneshot);
    register(&mut backend, C, &gone, Ready::READ, Mode::Level);
    silent(&mut backend, "nothing was sent");
    send(&spent_far, b"x");
    await_ready(&mut backend, B, Ready::READ);
    // The kernel learns of these during the wait, when there is traffic already.
    modify(&mut backend, A, Ready::NONE, Mode::Level);
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
                "events that are not reported ended a wait of {TIMEOUT:?} after {elapsed:?}"
            );
        });
    }
    Ok(())
}

/// A signal handled by the waiting thread ends its wait early and without an error, so
/// that the caller can look at what the handler left.
#[cfg(unix)]
pub fn end_at_a_signal<T: Backend>(lab: &Lab<T>) -> Verdict {
    use crate::support::signals::Thread;

    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    let waiting = Thread::current();
    for timeout in [Some(SOON), None] {
        let (returned, started) = (AtomicBool::new(false), Instant::now());
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                // One that arrives just before the thread sleeps is not noticed.
                while !returned.load(Ordering::SeqCst) && started.elapsed() < SOON {
                    thread::sleep(Duration::from_millis(5));
                    waiting.interrupt();
                }
                // A backend that goes on waiting for ever is told so below.
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
        await_ready(&mut backend, A, Ready::READ);
        drain(&near);
        lasts(&mut backend, Duration::from_millis(20), "no signal comes any more");
    }
    Ok(())
}

/// There are no signals on Windows.
#[cfg(not(unix))]
pub fn end_at_a_signal<T: Backend>(_lab: &Lab<T>) -> Verdict {
    Err(crate::Skip::because("this system has no signals that interrupt a thread"))
}
