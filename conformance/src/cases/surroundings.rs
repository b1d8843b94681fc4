//! Point 12: other threads, other pollers, other processes, and what is left behind.

use std::time::{Duration, Instant};

use poll_core::{Backend, Mode, RawSource, Ready, Wake};

use crate::support::limits::{leaves_no_descriptor, without_descriptors};
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

/// A backend is made on one thread, used on a second and dropped on a third: runtimes
/// move their loops. Some kernels tie an object to the thread that made it.
pub fn made_here_used_there<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    quiet(&mut backend);
    let waker = backend.waker();
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            let mut backend = backend;
            send(&far, b"x");
            await_ready(&mut backend, A, Ready::READ);
            drain(&near);
            modify(&mut backend, A, Ready::READ, Mode::Oneshot);
            quiet(&mut backend);
            waker.wake().expect("a wake");
            assert_returns(&mut backend, "woken from the thread that waits");
            backend
        });
        let mut backend = there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        send(&far, b"y");
        await_ready(&mut backend, A, Ready::READ);
        scope.spawn(move || drop(backend));
    });
    Ok(())
}

/// Two backends watch one source and each is told: a descriptor can be shared between
/// loops. One that deregisters leaves the other alone.
pub fn two_backends_watch_one_source<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let (mut first, mut second) = (lab.backend()?, lab.backend()?);
    register(&mut first, A, &near, Ready::READ, Mode::Level);
    register(&mut second, B, &near, Ready::READ, Mode::Level);
    quiet(&mut first);
    quiet(&mut second);
    send(&far, b"x");
    await_ready(&mut first, A, Ready::READ);
    await_ready(&mut second, B, Ready::READ);

    deregister(&mut first, A);
    quiet(&mut first);
    await_ready(&mut second, B, Ready::READ);
    drop(first);
    drain(&near);
    quiet(&mut second);
    send(&far, b"y");
    await_ready(&mut second, B, Ready::READ);
    Ok(())
}

/// The backend's own descriptor is readable exactly while there is something to report:
/// so a loop runs inside another one, of a toolkit that has its own.
pub fn nested_in_another_poller<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    let own = own_descriptor(&backend)?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    let mut outer = Outer::new(lab, own)?;
    for _ in 0..3 {
        // Tells the kernel of what has changed, as `raw_fd` asks for.
        assert_eq!(wait_once(&mut backend, NOW), [], "nothing was sent");
        outer.expect_nothing("nothing to report");
        outer.expect_after(|| send(&far, b"x"), "data to report");
        let events = wait_once(&mut backend, NOW);
        assert_eq!(ready_of(&events, A), Ready::READ, "the outer poller said so");
        drain(&near);
    }
    assert_eq!(backend.raw_fd(), Some(own), "the descriptor changes");
    Ok(())
}

/// A wake makes the backend's own descriptor readable, even if the backend is not
/// waiting: the outer poller is what sleeps. Saving the system call because "nobody
/// waits" would leave it asleep.
pub fn a_wake_shows_in_another_poller<B: Backend>(lab: &Lab<B>) -> Verdict {
    let mut backend = lab.backend()?;
    let waker = backend.waker();
    // From now on the kernel watches what the waker rings.
    assert_eq!(wait_once(&mut backend, NOW), []);
    waker.wake().expect("a wake before anybody asks for the descriptor");
    let own = own_descriptor(&backend)?;
    let mut outer = Outer::new(lab, own)?;
    outer.expect_after(|| {}, "a wake from before");
    for _ in 0..3 {
        assert_returns(&mut backend, "woken before");
        assert_eq!(wait_once(&mut backend, NOW), []);
        outer.expect_nothing("the wake answered");
        outer.expect_after(|| waker.wake().expect("a wake"), "a wake to answer");
    }
    Ok(())
}

/// Who sleeps on the backend's own descriptor only while `has_changes` says no sleeps through
/// nothing: after a `modify`, after an event in whatever mode, after operations and their
/// cancels. Once a wait has told the kernel and reported nothing, there is nothing left to tell.
pub fn a_sleeper_outside_is_told_of_changes<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let pending = Pending::new(&lab.backend()?).ok();
    let mut backend = lab.backend()?;
    let own = own_descriptor(&backend)?;
    register(&mut backend, A, &near, Ready::NONE, Mode::Level);
    for mode in [Mode::Level, Mode::Oneshot, Mode::Edge] {
        if backend.modify(A, Ready::READ, mode).is_err() {
            continue; // It has no edges.
        }
        for _ in 0..3 {
            if mode == Mode::Oneshot {
                modify(&mut backend, A, Ready::READ, mode);
            }
            tell_changes(&mut backend);
            send(&far, b"x");
            assert!(readable(own, SOON), "{mode:?}: an event is slept through");
            await_ready(&mut backend, A, Ready::READ);
            drain(&near);
        }
    }
    let Some(pending) = pending else { return Ok(()) };
    submit(&mut backend, B, pending.op);
    tell_changes(&mut backend);
    pending.send();
    assert!(readable(own, SOON), "the end of an operation is slept through");
    pending.assert_seen(await_end(&mut backend, B));
    submit(&mut backend, B, pending.op);
    tell_changes(&mut backend);
    backend.cancel(B).expect("an operation in flight");
    if backend.has_changes() {
        wait_once(&mut backend, NOW);
    } else {
        assert!(readable(own, SOON), "the end of a cancelled operation is slept through");
    }
    Ok(())
}

/// Waits without sleeping until the kernel knows of all changes, which is soon.
#[track_caller]
fn tell_changes(backend: &mut impl Backend) {
    let mut waits = 0;
    while backend.has_changes() {
        assert_eq!(wait_once(backend, NOW), [], "nothing has happened");
        waits += 1;
        assert!(waits < 5, "there are changes for ever");
    }
}

/// After `after_fork` a child has all that its parent had: sources that were watched,
/// silent or spent are so, wakers that were cloned before the fork wake it, and what
/// was in flight goes on in the parent alone.
pub fn a_forked_child_carries_on<B: Backend>(lab: &Lab<B>) -> Verdict {
    #[cfg(unix)]
    {
        let pairs = [tcp_pair(), tcp_pair(), tcp_pair()];
        let pending = Pending::new(&lab.backend()?).ok();
        let mut backend = lab.backend()?;
        let waker = backend.waker();
        let modes = [
            (A, Ready::READ, Mode::Level),
            (B, Ready::WRITE, Mode::Oneshot),
            (C, Ready::NONE, Mode::Level),
        ];
        for ((token, interest, mode), (near, _)) in modes.into_iter().zip(&pairs) {
            register(&mut backend, token, near, interest, mode);
        }
        await_ready(&mut backend, B, Ready::WRITE); // And spent.
        if let Some(pending) = &pending {
            submit(&mut backend, A, pending.op);
        }
        quiet(&mut backend);

        in_a_child(&mut backend, |backend| {
            if pending.is_some() {
                let result = await_end(backend, A);
                assert!(is_cancelled(result), "in flight in the parent; here {result:?}");
            }
            quiet(backend);
            for (near, far) in &pairs {
                send(far, b"x");
                await_arrival(near);
            }
            await_ready(backend, A, Ready::READ);
            for (near, _) in &pairs {
                drain(near);
            }
            quiet(backend); // Not the spent, nor the silent.

            modify(backend, B, Ready::WRITE, Mode::Oneshot);
            await_ready(backend, B, Ready::WRITE);
            modify(backend, C, Ready::READ, Mode::Level);
            send(&pairs[2].1, b"y");
            await_ready(backend, C, Ready::READ);
            deregister(backend, C);
            let (near, far) = tcp_pair();
            register(backend, C.next(), &near, Ready::READ, Mode::Level);
            send(&far, b"z");
            await_ready(backend, C.next(), Ready::READ);
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

/// Whatever a child does with its copy, the parent's backend goes on as if nothing had
/// happened. An `epoll` is shared by a fork: a child that cleans up by deregistering
/// used to silence its parent.
pub fn a_parent_survives_its_child<B: Backend>(lab: &Lab<B>) -> Verdict {
    #[cfg(unix)]
    {
        let ((near, far), (idle, idle_far)) = (tcp_pair(), tcp_pair());
        let pending = Pending::new(&lab.backend()?).ok();
        let mut backend = lab.backend()?;
        let waker = backend.waker();
        register(&mut backend, A, &near, Ready::READ, Mode::Level);
        register(&mut backend, B, &idle, Ready::READ, Mode::Oneshot);
        if let Some(pending) = &pending {
            submit(&mut backend, A, pending.op);
        }
        quiet(&mut backend);

        in_a_child(&mut backend, |backend| {
            waker.wake().expect("a wake that is the child's alone");
            assert_returns(backend, "woken in the child");
            // No data: that would be the parent's as well.
            modify(backend, B, Ready::WRITE, Mode::Level);
            await_ready(backend, B, Ready::WRITE);
            deregister(backend, A);
            deregister(backend, B);
            Ok(())
        })?;

        // Neither the child's wake, nor its events, nor its end are to be noticed.
        let started = Instant::now();
        assert_eq!(wait_once(&mut backend, Some(SHORT)), [], "left over from the child");
        assert!(started.elapsed() >= SHORT, "the child's wake ended a wait of the parent");
        send(&far, b"y");
        await_ready(&mut backend, A, Ready::READ);
        drain(&near);
        send(&idle_far, b"y");
        await_ready(&mut backend, B, Ready::READ);
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

/// A backend that is dropped, in whatever state, takes all of its descriptors along.
pub fn no_descriptor_is_left_behind<B: Backend>(lab: &Lab<B>) -> Verdict {
    let ((near, far), (other, _peer)) = (tcp_pair(), tcp_pair());
    send(&far, b"x");
    leaves_no_descriptor(|| {
        let pending = Pending::new(&lab.backend()?).ok();
        let mut backend = lab.backend()?;
        let (waker, _) = (backend.waker(), backend.raw_fd());
        register(&mut backend, A, &near, Ready::READ, Mode::Level);
        register(&mut backend, B, &other, Ready::READ, Mode::Oneshot);
        let twice = try_register(&mut backend, C, RawSource::of(&near), Ready::READ, Mode::Level);
        assert!(twice.is_err(), "a source twice");
        await_ready(&mut backend, A, Ready::READ);
        deregister(&mut backend, A);
        if let Some(pending) = &pending {
            submit(&mut backend, A, pending.op);
        }
        waker.wake().expect("a wake");
        wait_once(&mut backend, NOW);
        drop(backend);
        waker.wake().expect("a wake after the end");
        Ok(())
    })
}

/// Time is the backend's, so that a simulated one can own it: it never goes backwards,
/// and a wait that ran its full length moved it by that much.
pub fn time_only_goes_forward<B: Backend>(lab: &Lab<B>) -> Verdict {
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

/// Out of descriptors, a new backend is an error (a server under load must not die of
/// it), and not one that means "this machine cannot": the backends that exist work on.
pub fn out_of_descriptors_is_an_error<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    let waker = backend.waker();
    without_descriptors(|| -> Verdict {
        match lab.try_backend() {
            Ok(_) => return Err(Skip::because("needs no descriptors of its own")),
            Err(error) => assert_ne!(
                error.kind(),
                std::io::ErrorKind::Unsupported,
                "the machine can; there are just no descriptors left: {error}"
            ),
        }
        register(&mut backend, A, &near, Ready::READ, Mode::Level);
        quiet(&mut backend);
        waker.wake().expect("a wake without descriptors");
        assert_returns(&mut backend, "woken without descriptors");
        send(&far, b"x");
        await_ready(&mut backend, A, Ready::READ);
        deregister(&mut backend, A);
        Ok(())
    })??;
    drop(lab.backend()?); // There are descriptors again.
    Ok(())
}

/// Asserts that a wait ends long before its time, for the reason given.
#[track_caller]
fn assert_returns(backend: &mut impl Backend, why: &str) {
    let started = Instant::now();
    wait_once(backend, Some(SOON));
    assert!(started.elapsed() < SOON / 2, "{why}, the wait goes on");
}

fn own_descriptor(backend: &impl Backend) -> Result<RawSource, Skip> {
    backend.raw_fd().ok_or_else(|| Skip::because("has no descriptor of its own"))
}

/// What watches a backend's own descriptor: `poll(2)`, and a second backend of the kind.
struct Outer<B> {
    inner: RawSource,
    second: B,
}

impl<B: Backend> Outer<B> {
    fn new(lab: &Lab<B>, inner: RawSource) -> Result<Outer<B>, Skip> {
        let mut second = lab.backend()?;
        try_register(&mut second, C, inner, Ready::READ, Mode::Level)
            .unwrap_or_else(|error| panic!("a backend cannot be watched by another: {error}"));
        Ok(Outer { inner, second })
    }

    /// Asserts that neither sees the backend ready.
    #[track_caller]
    fn expect_nothing(&mut self, why: &str) {
        assert!(!readable(self.inner, SHORT), "readable for poll(2), with {why}");
        let events = wait_for(&mut self.second, SHORT);
        assert_eq!(events, [], "readable in a backend of the same kind, with {why}");
    }

    /// Asserts that both see the backend ready after `act`, which happens while the
    /// first of them sleeps.
    #[track_caller]
    fn expect_after(&mut self, act: impl FnOnce() + Send, why: &str) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(SHORT);
                act();
            });
            // At the end of its time it looks again, which is not the same as being told.
            let started = Instant::now();
            let told = readable(self.inner, SOON) && started.elapsed() < SOON / 2;
            assert!(told, "poll(2) sleeps on, with {why}");
        });
        let seen = ready_of(&wait_for(&mut self.second, SOON), C);
        assert_eq!(seen, Ready::READ, "in a backend of the same kind, with {why}");
    }
}

/// True if `source` is readable within `limit`, in the words of `poll(2)`.
#[cfg(unix)]
fn readable(source: RawSource, limit: Duration) -> bool {
    let mut polled = libc::pollfd { fd: source.fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `polled` is one valid entry, and outlives the call.
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
    assert!(readable(RawSource::of(near), SOON), "what was sent does not arrive");
}

/// Runs `body` on the backend in a forked child, and drops the backend there.
#[cfg(unix)]
fn in_a_child<B: Backend>(backend: &mut B, body: impl FnOnce(&mut B) -> Verdict) -> Verdict {
    use crate::support::child::Child;

    let child = Child::fork(|| {
        match backend.after_fork() {
            Err(error) if error.kind() == std::io::ErrorKind::Unsupported => {
                return Err(Skip::because(error.to_string()));
            }
            other => other.unwrap_or_else(|error| panic!("after_fork: {error}")),
        }
        body(backend)?;
        // SAFETY: this copy is the child's alone, and the child ends without looking at
        // it again.
        unsafe { std::ptr::drop_in_place(backend) };
        Ok(())
    });
    child.join(SOON * 3)
}

/// How a case about a fork ends elsewhere.
fn needs_fork<B>(_lab: &Lab<B>) -> Verdict {
    if cfg!(unix) { Ok(()) } else { Err(Skip::because("Windows has no fork")) }
}
