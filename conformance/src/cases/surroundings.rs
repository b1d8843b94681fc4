//! Point 12: threads, outer pollers, forks and resource leaks.

use std::time::{Duration, Instant};

use poll_core::{Backend, BoxedBackend, Interest, Mode, RawSource, Readiness, Wake};

use crate::support::limits::{
    leaks_no_descriptor, open_descriptors, with_few_descriptors, without_descriptors,
};
#[cfg(unix)]
use crate::support::observe::lasts;
use crate::support::observe::{
    A, B, C, SHORT, SOON, await_ready, deregister, modify, quiet, ready_of, register, try_register,
    wait_for, wait_once,
};
#[cfg(unix)]
use crate::support::operations::is_cancelled;
use crate::support::operations::{Pending, await_end, submit};
use crate::support::sources::{drain, send, tcp_pair};
use crate::{Lab, Skip, Verdict};

const NOW: Option<Duration> = Some(Duration::ZERO);

/// A backend is created on one thread, used on a second and dropped on a third: runtimes move their
/// loops. Some kernels bind objects to the creating thread.
pub fn can_move_between_threads(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    quiet(&mut backend);
    let waker = backend.waker();
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            let mut backend = backend;
            send(&far, b"x");
            await_ready(&mut backend, A, Readiness::READ);
            drain(&near);
            modify(&mut backend, A, Interest::READ, Mode::Oneshot);
            quiet(&mut backend);
            waker.wake().expect("a wake");
            assert_returns(&mut backend, "woken from the thread that waits");
            backend
        });
        let mut backend = there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        send(&far, b"y");
        await_ready(&mut backend, A, Readiness::READ);
        scope.spawn(move || drop(backend));
    });
    Ok(())
}

/// Two backends watch one source and both report it: a descriptor can be shared between loops.
/// Deregistering in one does not affect the other.
pub fn two_backends_watch_one_source(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let (mut first, mut second) = (lab.backend()?, lab.backend()?);
    register(&mut first, A, &near, Interest::READ, Mode::Level);
    register(&mut second, B, &near, Interest::READ, Mode::Level);
    quiet(&mut first);
    quiet(&mut second);
    send(&far, b"x");
    await_ready(&mut first, A, Readiness::READ);
    await_ready(&mut second, B, Readiness::READ);

    deregister(&mut first, A);
    quiet(&mut first);
    await_ready(&mut second, B, Readiness::READ);
    drop(first);
    drain(&near);
    quiet(&mut second);
    send(&far, b"y");
    await_ready(&mut second, B, Readiness::READ);
    Ok(())
}

/// The backend's own descriptor is readable exactly while it has something to report, so that its
/// loop can run inside another event loop, such as a GUI toolkit's.
pub fn raw_source_is_pollable(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    let own = own_descriptor(&backend)?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    let mut outer = Outer::new(lab, own)?;
    for _ in 0..3 {
        // Flushes the changes, as the contract of `raw_source` requires.
        assert_eq!(wait_once(&mut backend, NOW), [], "nothing was sent");
        outer.expect_nothing("nothing to report");
        outer.expect_after(|| send(&far, b"x"), "data to report");
        let events = wait_once(&mut backend, NOW);
        assert_eq!(ready_of(&events, A), Readiness::READ, "the outer poller reported it");
        drain(&near);
    }
    assert_eq!(backend.raw_source(), Some(own), "the descriptor changes");
    Ok(())
}

/// A wake makes the backend's own descriptor readable even if the backend is not waiting, since the
/// outer poller sleeps instead. Skipping the system call for a backend that does not wait would
/// lose the wake.
pub fn wake_is_visible_to_outer_poller(lab: &Lab) -> Verdict {
    let mut backend = lab.backend()?;
    let waker = backend.waker();
    // From now on the kernel watches the waker's descriptor.
    assert_eq!(wait_once(&mut backend, NOW), []);
    waker.wake().expect("a wake before the descriptor is taken");
    let own = own_descriptor(&backend)?;
    let mut outer = Outer::new(lab, own)?;
    outer.expect_after(|| {}, "a wake from before");
    for _ in 0..3 {
        assert_returns(&mut backend, "woken before");
        assert_eq!(wait_once(&mut backend, NOW), []);
        outer.expect_nothing("no pending wake");
        outer.expect_after(|| waker.wake().expect("a wake"), "a pending wake");
    }
    Ok(())
}

/// An outer poller that sleeps on the backend's own descriptor only while `has_unflushed_changes`
/// is false misses no event: after a `modify`, after an event in any mode, after operations and
/// cancels. Once a wait has flushed the changes and reported nothing, none are left.
pub fn outer_poller_misses_no_event(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let pending = Pending::new(&lab.backend()?).ok();
    let mut backend = lab.backend()?;
    let own = own_descriptor(&backend)?;
    register(&mut backend, A, &near, Interest::NONE, Mode::Level);
    for mode in [Mode::Level, Mode::Oneshot, Mode::Edge] {
        if backend.modify(A, Interest::READ, mode).is_err() {
            continue; // Edge-triggered mode is unsupported.
        }
        for _ in 0..3 {
            if mode == Mode::Oneshot {
                modify(&mut backend, A, Interest::READ, mode);
            }
            flush_changes(&mut backend);
            send(&far, b"x");
            assert!(readable(own, SOON), "{mode:?}: the outer poller missed an event");
            await_ready(&mut backend, A, Readiness::READ);
            drain(&near);
        }
    }
    let Some(pending) = pending else { return Ok(()) };
    submit(&mut backend, B, pending.op);
    flush_changes(&mut backend);
    pending.send();
    assert!(readable(own, SOON), "the outer poller missed a completion");
    pending.assert_seen(await_end(&mut backend, B));
    submit(&mut backend, B, pending.op);
    flush_changes(&mut backend);
    backend.cancel(B).expect("an operation in flight");
    if backend.has_unflushed_changes() {
        wait_once(&mut backend, NOW);
    } else {
        assert!(readable(own, SOON), "the outer poller missed a cancelled completion");
    }
    Ok(())
}

/// Waits without blocking until all changes are flushed, which takes few waits.
#[track_caller]
fn flush_changes(backend: &mut BoxedBackend) {
    let mut waits = 0;
    while backend.has_unflushed_changes() {
        assert_eq!(wait_once(backend, NOW), [], "nothing is ready");
        waits += 1;
        assert!(waits < 5, "changes are never flushed");
    }
}

/// After `after_fork`, a child has the parent's registrations: watched, silent and spent sources
/// keep their state, wakers cloned before the fork wake it, and operations in flight continue in
/// the parent only.
pub fn forked_child_keeps_registrations(lab: &Lab) -> Verdict {
    #[cfg(unix)]
    {
        let pairs = [tcp_pair(), tcp_pair(), tcp_pair()];
        let pending = Pending::new(&lab.backend()?).ok();
        let mut backend = lab.backend()?;
        let waker = backend.waker();
        let modes = [
            (A, Interest::READ, Mode::Level),
            (B, Interest::WRITE, Mode::Oneshot),
            (C, Interest::NONE, Mode::Level),
        ];
        for ((token, interest, mode), (near, _)) in modes.into_iter().zip(&pairs) {
            register(&mut backend, token, near, interest, mode);
        }
        await_ready(&mut backend, B, Readiness::WRITE); // Reported, so spent.
        if let Some(pending) = &pending {
            submit(&mut backend, A, pending.op);
        }
        quiet(&mut backend);

        in_a_child(&mut backend, |backend| {
            if pending.is_some() {
                let result = await_end(backend, A);
                assert!(is_cancelled(result), "in flight in the parent, {result:?} in the child");
            }
            quiet(backend);
            for (near, far) in &pairs {
                send(far, b"x");
                await_arrival(near);
            }
            await_ready(backend, A, Readiness::READ);
            for (near, _) in &pairs {
                drain(near);
            }
            quiet(backend); // Neither the spent nor the silent source.

            modify(backend, B, Interest::WRITE, Mode::Oneshot);
            await_ready(backend, B, Readiness::WRITE);
            modify(backend, C, Interest::READ, Mode::Level);
            send(&pairs[2].1, b"y");
            await_ready(backend, C, Readiness::READ);
            deregister(backend, C);
            let (near, far) = tcp_pair();
            register(backend, C.next(), &near, Interest::READ, Mode::Level);
            send(&far, b"z");
            await_ready(backend, C.next(), Readiness::READ);
            drain(&near);

            waker.wake().expect("a wake by a waker from before the fork");
            assert_returns(backend, "woken by a waker from before the fork");
            backend.waker().wake().expect("a wake by a waker of the child");
            assert_returns(backend, "woken by a waker of the child");
            quiet(backend);
            deregister(backend, C.next());
            Ok(())
        })?;
    }
    needs_fork(lab)
}

/// Whatever a child does with its copy, the parent's backend is unaffected. An `epoll` instance is
/// shared by a fork: a child that deregisters in it would silence its parent.
pub fn fork_does_not_affect_parent(lab: &Lab) -> Verdict {
    #[cfg(unix)]
    {
        let ((near, far), (idle, idle_far)) = (tcp_pair(), tcp_pair());
        let pending = Pending::new(&lab.backend()?).ok();
        let mut backend = lab.backend()?;
        let waker = backend.waker();
        register(&mut backend, A, &near, Interest::READ, Mode::Level);
        register(&mut backend, B, &idle, Interest::READ, Mode::Oneshot);
        if let Some(pending) = &pending {
            submit(&mut backend, A, pending.op);
        }
        quiet(&mut backend);

        in_a_child(&mut backend, |backend| {
            waker.wake().expect("a wake in the child");
            assert_returns(backend, "woken in the child");
            // No data is sent: the parent would receive it too.
            modify(backend, B, Interest::WRITE, Mode::Level);
            await_ready(backend, B, Readiness::WRITE);
            deregister(backend, A);
            deregister(backend, B);
            Ok(())
        })?;

        // The parent must not notice the child's wake, its events or its exit.
        let started = Instant::now();
        assert_eq!(wait_once(&mut backend, Some(SHORT)), [], "left over from the child");
        assert!(started.elapsed() >= SHORT, "the child's wake ended a wait of the parent");
        send(&far, b"y");
        await_ready(&mut backend, A, Readiness::READ);
        drain(&near);
        send(&idle_far, b"y");
        await_ready(&mut backend, B, Readiness::READ);
        quiet(&mut backend);
        waker.wake().expect("a wake in the parent");
        assert_returns(&mut backend, "woken in the parent");
        if let Some(pending) = &pending {
            pending.send();
            pending.assert_seen(await_end(&mut backend, A));
        }
        deregister(&mut backend, A);
        deregister(&mut backend, B);
    }
    needs_fork(lab)
}

/// A wake reaches the process whose waker it was, and no other, while parent and child wait. A
/// backend whose `after_fork` leaves its eventfd or pipe to both loses wakes: the process that was not
/// woken drains it first.
pub fn wakes_stay_in_their_process(lab: &Lab) -> Verdict {
    #[cfg(unix)]
    {
        use crate::support::child::Child;
        use std::io::Read;

        let mut backend = lab.backend()?;
        let woken = Child::fork(|| {
            continue_in_the_child(&mut backend)?;
            each_wake_arrives(&mut backend);
            Ok(())
        });
        std::thread::scope(|scope| {
            let joined = scope.spawn(|| woken.join(SOON * 3));
            while !joined.is_finished() {
                lasts(&mut backend, SHORT, "only the child was woken");
            }
            joined.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;

        let (mut over, end) = std::io::pipe().expect("a pipe to the child");
        let mut end = Some(end);
        let waiting = Child::fork(|| {
            drop(end.take());
            continue_in_the_child(&mut backend)?;
            crate::support::sources::set_nonblocking(std::os::fd::AsFd::as_fd(&over));
            // The parent's end is closed when it has finished, or has failed.
            while over.read(&mut [0]).is_err() {
                lasts(&mut backend, SHORT, "only the parent was woken");
            }
            Ok(())
        });
        each_wake_arrives(&mut backend);
        drop(end);
        waiting.join(SOON * 3)?;
    }
    needs_fork(lab)
}

/// Wakes the backend many times while it waits.
#[cfg(unix)]
fn each_wake_arrives(backend: &mut BoxedBackend) {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;

    const ROUNDS: u32 = 100;
    let (waker, sent) = (backend.waker(), &AtomicU32::new(0));
    std::thread::scope(|scope| {
        let (go, rounds) = mpsc::channel();
        scope.spawn(move || {
            for round in rounds {
                // Usually long enough for the other thread to be waiting.
                std::thread::sleep(Duration::from_millis(1));
                sent.store(round, Ordering::SeqCst);
                waker.wake().expect("a wake");
            }
        });
        let go = go; // Dropped by a panic too, which ends the thread.
        for round in 1..=ROUNDS {
            go.send(round).expect("the thread");
            let started = Instant::now();
            assert_eq!(wait_once(backend, Some(SOON)), [], "a wake is not an event");
            assert!(started.elapsed() < SOON, "wake {round} of {ROUNDS} was lost");
            let last = sent.load(Ordering::SeqCst);
            assert_eq!(last, round, "wait {round} ended, but {last} wakes were sent");
        }
    });
}

/// Dropping a backend in any state closes all of its descriptors.
pub fn no_descriptor_leaks(lab: &Lab) -> Verdict {
    let ((near, far), (other, _peer)) = (tcp_pair(), tcp_pair());
    send(&far, b"x");
    leaks_no_descriptor(|| {
        let pending = Pending::new(&lab.backend()?).ok();
        let mut backend = lab.backend()?;
        let (waker, _) = (backend.waker(), backend.raw_source());
        register(&mut backend, A, &near, Interest::READ, Mode::Level);
        register(&mut backend, B, &other, Interest::READ, Mode::Oneshot);
        let twice =
            try_register(&mut backend, C, RawSource::of(&near), Interest::READ, Mode::Level);
        assert!(twice.is_err(), "a source twice");
        await_ready(&mut backend, A, Readiness::READ);
        deregister(&mut backend, A);
        if let Some(pending) = &pending {
            submit(&mut backend, A, pending.op);
        }
        waker.wake().expect("a wake");
        wait_once(&mut backend, NOW);
        drop(backend);
        waker.wake().expect("a wake after the drop");
        Ok(())
    })
}

/// The backend owns the clock, so that a simulated one can replace it. Time never goes backwards,
/// and a wait of full length advances it by at least its timeout.
pub fn time_is_monotonic(lab: &Lab) -> Verdict {
    let mut backend = lab.backend()?;
    let mut last = backend.now();
    for round in 0..1_000 {
        if round % 100 == 0 {
            let (timeout, started) = (Duration::from_millis(3), backend.now());
            assert_eq!(wait_once(&mut backend, Some(timeout)), []);
            let passed = backend.now().saturating_sub(started);
            assert!(passed >= timeout, "a wait of {timeout:?} moved time by {passed:?}");
        }
        let now = backend.now();
        assert!(now >= last, "time goes backwards: {now:?} after {last:?}");
        last = now;
    }
    Ok(())
}

/// Out of descriptors, creating a backend fails with an error other than `Unsupported`, and
/// existing backends keep working.
pub fn out_of_descriptors_is_an_error(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    let waker = backend.waker();
    without_descriptors(|| -> Verdict {
        match lab.try_backend() {
            Ok(_) => return Err(Skip::because("needs no descriptors of its own")),
            Err(error) => assert_ne!(
                error.kind(),
                std::io::ErrorKind::Unsupported,
                "out of descriptors is not Unsupported: {error}"
            ),
        }
        register(&mut backend, A, &near, Interest::READ, Mode::Level);
        quiet(&mut backend);
        waker.wake().expect("a wake without descriptors");
        assert_returns(&mut backend, "woken without descriptors");
        send(&far, b"x");
        await_ready(&mut backend, A, Readiness::READ);
        deregister(&mut backend, A);
        Ok(())
    })??;
    drop(lab.backend()?); // Descriptors are available again.
    Ok(())
}

/// With few descriptors a backend is created and works, or creating it is an error that leaves
/// none of them open. For any number of them.
pub fn few_descriptors_suffice_or_are_an_error(lab: &Lab) -> Verdict {
    drop(lab.backend()?); // Creates state that lives as long as the process.
    let before = open_descriptors()?;
    for count in 0..8 {
        with_few_descriptors(count, || match lab.try_backend() {
            Ok(mut backend) => {
                backend.waker().wake().expect("a wake");
                assert_returns(&mut backend, "woken with few descriptors");
            }
            Err(error) => assert_ne!(error.kind(), std::io::ErrorKind::Unsupported, "{error}"),
        })?;
        assert_eq!(open_descriptors()?, before, "descriptors are left, of {count}");
    }
    Ok(())
}

/// Asserts that a wait ends long before its timeout, for the given reason.
#[track_caller]
fn assert_returns(backend: &mut BoxedBackend, why: &str) {
    let started = Instant::now();
    wait_once(backend, Some(SOON));
    assert!(started.elapsed() < SOON / 2, "{why}, but the wait continues");
}

fn own_descriptor(backend: &BoxedBackend) -> Result<RawSource, Skip> {
    backend.raw_source().ok_or_else(|| Skip::because("has no descriptor of its own"))
}

/// Watchers of a backend's own descriptor: `poll(2)` and a second backend of the same type.
struct Outer {
    inner: RawSource,
    second: BoxedBackend,
}

impl Outer {
    fn new(lab: &Lab, inner: RawSource) -> Result<Outer, Skip> {
        let mut second = lab.backend()?;
        try_register(&mut second, C, inner, Interest::READ, Mode::Level)
            .unwrap_or_else(|error| panic!("a backend cannot be watched by another: {error}"));
        Ok(Outer { inner, second })
    }

    /// Asserts that neither watcher sees the backend as ready.
    #[track_caller]
    fn expect_nothing(&mut self, why: &str) {
        assert!(!readable(self.inner, SHORT), "readable for poll(2), with {why}");
        let events = wait_for(&mut self.second, SHORT);
        assert_eq!(events, [], "readable in a backend of the same kind, with {why}");
    }

    /// Asserts that both watchers see the backend as ready after `act`, which runs while the first
    /// of them sleeps.
    #[track_caller]
    fn expect_after(&mut self, act: impl FnOnce() + Send, why: &str) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(SHORT);
                act();
            });
            // `poll(2)` checks again at its timeout, which does not prove a wakeup: it must return
            // earlier.
            let started = Instant::now();
            let woken = readable(self.inner, SOON) && started.elapsed() < SOON / 2;
            assert!(woken, "poll(2) was not woken, with {why}");
        });
        let seen = ready_of(&wait_for(&mut self.second, SOON), C);
        assert_eq!(seen, Readiness::READ, "in a backend of the same kind, with {why}");
    }
}

/// True if `poll(2)` reports `source` as readable within `limit`.
#[cfg(unix)]
fn readable(source: RawSource, limit: Duration) -> bool {
    let mut polled = libc::pollfd { fd: source.fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `polled` is one valid entry that outlives the call.
    let count = unsafe { libc::poll(&mut polled, 1, limit.as_millis() as libc::c_int) };
    assert!(count >= 0, "poll: {}", std::io::Error::last_os_error());
    polled.revents & libc::POLLIN != 0
}

/// No backend has a descriptor of its own on Windows.
#[cfg(windows)]
fn readable(_source: RawSource, _limit: Duration) -> bool {
    true
}

/// Waits until data has arrived at a source that the backend does not report.
#[cfg(unix)]
fn await_arrival(near: &std::net::TcpStream) {
    assert!(readable(RawSource::of(near), SOON), "the sent data does not arrive");
}

/// Runs `body` on the backend in a forked child, and drops the backend there.
#[cfg(unix)]
fn in_a_child(
    backend: &mut BoxedBackend,
    body: impl FnOnce(&mut BoxedBackend) -> Verdict,
) -> Verdict {
    use crate::support::child::Child;

    let child = Child::fork(|| {
        continue_in_the_child(backend)?;
        body(backend)?;
        // SAFETY: this copy belongs to the child alone, which exits without using it again.
        unsafe { std::ptr::drop_in_place(backend) };
        Ok(())
    });
    child.join(SOON * 3)
}

/// Calls `after_fork`, or skips with the reason why the backend has none.
#[cfg(unix)]
fn continue_in_the_child(backend: &mut BoxedBackend) -> Verdict {
    match backend.after_fork() {
        Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
            Err(Skip::because(error.to_string()))
        }
        other => {
            other.unwrap_or_else(|error| panic!("after_fork: {error}"));
            Ok(())
        }
    }
}

/// The result of a fork case on a system without fork.
fn needs_fork(_lab: &Lab) -> Verdict {
    if cfg!(unix) { Ok(()) } else { Err(Skip::because("Windows has no fork")) }
}
