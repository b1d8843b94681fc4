//! Point 1: the kernel knows what was asked for by the next wait, at the cost of one
//! call a changed source.

use std::io::ErrorKind;
use std::time::Duration;

use poll_core::{Backend, Mode, Ready, Token};

use crate::support::observe::{
    A, B, C, await_ready, deregister, modify, ready_now, ready_of, register, silent, try_register,
    wait_once,
};
use crate::support::sources::{Source, arrived, drain, half_close, send, tcp_pair};
use crate::support::syscalls;
use crate::{Lab, Verdict};

const READ_WRITE: Ready = Ready::READ.union(Ready::WRITE);

/// A condition that holds before the source is registered is reported by the very
/// next wait, even by one that does not block: a backend that tells the kernel only
/// while it sleeps makes a loop that polls miss what is there.
pub fn register_reaches_the_next_wait<T: Backend>(lab: &Lab<T>) -> Verdict {
    for mode in [Mode::Level, Mode::Oneshot] {
        let (readable, far) = tcp_pair();
        let (writable, _far) = tcp_pair();
        let (idle, idle_far) = tcp_pair();
        let mut backend = lab.backend()?;
        register(&mut backend, C, &idle, Ready::READ, mode);
        silent(&mut backend, "nothing was sent");

        send(&far, b"x");
        arrived(&readable);
        register(&mut backend, A, &readable, Ready::READ, mode);
        register(&mut backend, B, &writable, Ready::WRITE, mode);
        let events = wait_once(&mut backend, Some(Duration::ZERO));
        assert_eq!(ready_of(&events, A), Ready::READ, "{mode:?}: data was there before the wait");
        assert_eq!(ready_of(&events, B), Ready::WRITE, "{mode:?}: room was there before the wait");
        assert_eq!(ready_of(&events, C), Ready::NONE, "{mode:?}: nothing was sent");

        send(&idle_far, b"x");
        await_ready(&mut backend, C, Ready::READ);
    }
    Ok(())
}

/// Each change of interest is in force at the very next wait, wider or narrower,
/// whatever the kernel was told before.
pub fn modify_reaches_the_next_wait<T: Backend>(lab: &Lab<T>) -> Verdict {
    for mode in [Mode::Level, Mode::Oneshot] {
        let (near, far) = tcp_pair();
        let mut backend = lab.backend()?;
        register(&mut backend, A, &near, Ready::READ, mode);
        silent(&mut backend, "nothing was sent");

        modify(&mut backend, A, READ_WRITE, mode);
        let ready = ready_now(&mut backend, A);
        assert_eq!(ready, Ready::WRITE, "{mode:?}: WRITE was added, and there is room");

        send(&far, b"x");
        arrived(&near);
        let changes = [Ready::READ, READ_WRITE, Ready::WRITE, Ready::NONE, Ready::READ];
        for interest in changes {
            modify(&mut backend, A, interest, mode);
            let ready = ready_now(&mut backend, A);
            assert_eq!(ready, interest, "{mode:?}: readable and writable, and asked for this");
        }
    }
    Ok(())
}

/// Of several changes between two waits the last one counts, and the others leave
/// no trace: a backend that queues changes must not report what was asked for on
/// the way, nor lose the one that leads back to what the kernel has been told.
pub fn the_last_of_many_changes_counts<T: Backend>(lab: &Lab<T>) -> Verdict {
    const LASTS: [(Ready, Mode); 4] = [
        (Ready::READ, Mode::Level),
        (Ready::NONE, Mode::Level),
        (Ready::WRITE, Mode::Oneshot),
        (Ready::WRITE, Mode::Level),
    ];
    for known in [false, true] {
        for (interest, mode) in LASTS {
            let (near, far) = tcp_pair();
            let mut backend = lab.backend()?;
            register(&mut backend, A, &near, Ready::READ, Mode::Level);
            if known {
                silent(&mut backend, "nothing was sent");
            }
            for _ in 0..100 {
                modify(&mut backend, A, Ready::WRITE, Mode::Level);
                modify(&mut backend, A, READ_WRITE, Mode::Oneshot);
                modify(&mut backend, A, Ready::NONE, Mode::Level);
                modify(&mut backend, A, interest, mode);
            }
            let what = format!("after many changes to {interest:?}, {mode:?} (known: {known})");
            let expected = interest & Ready::WRITE;
            assert_eq!(ready_now(&mut backend, A), expected, "{what}");
            let expected = if mode == Mode::Oneshot { Ready::NONE } else { expected };
            assert_eq!(ready_now(&mut backend, A), expected, "{what}, at the second wait");
            if interest == Ready::READ {
                send(&far, b"x");
                assert_eq!(await_ready(&mut backend, A, Ready::READ), Ready::READ, "{what}");
            }
        }
    }
    Ok(())
}

/// A hundred changes of one source between two waits cost at most one system call
/// beside the wait. A loop changes its mind on every read and write; with a call for
/// each change, an echo server spends most of its time on `epoll_ctl`.
pub fn many_changes_cost_one_call<T: Backend>(lab: &Lab<T>) -> Verdict {
    const LASTS: [(Ready, Mode); 6] = [
        (Ready::WRITE, Mode::Level),
        (Ready::WRITE, Mode::Level),
        (Ready::NONE, Mode::Level),
        (Ready::READ, Mode::Oneshot),
        (READ_WRITE, Mode::Level),
        (Ready::READ, Mode::Level),
    ];
    let (near, _far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    silent(&mut backend, "nothing was sent");

    let mut turn = |interest, mode| {
        for _ in 0..50 {
            modify(&mut backend, A, READ_WRITE, Mode::Oneshot);
            modify(&mut backend, A, interest, mode);
        }
        ready_now(&mut backend, A)
    };
    for (interest, mode) in LASTS {
        let ready = turn(interest, mode);
        assert_eq!(ready, interest & Ready::WRITE, "after 100 changes to {interest:?}, {mode:?}");
    }
    for (interest, mode) in LASTS {
        let calls = syscalls::count(|| turn(interest, mode))?.1;
        assert!(
            calls.total() <= 2,
            "100 changes, the last to {interest:?}, {mode:?}, and a wait cost more than one call \
             and the wait: {calls:?}"
        );
    }
    Ok(())
}

/// A wait makes one system call, however many sources are watched, silenced or spent;
/// only those that are ready may cost one more each. A backend that tells the kernel
/// again what it knows pays for its idle connections at every turn.
pub fn unchanged_sources_cost_nothing<T: Backend>(lab: &Lab<T>) -> Verdict {
    const WAITS: u32 = 10;
    let idle: Vec<_> = (10..42).map(|index| (Token::new(index, 0), tcp_pair())).collect();
    let (silenced, silenced_far) = tcp_pair();
    let (spent, spent_far) = tcp_pair();
    let (ready, ready_far) = tcp_pair();
    let mut backend = lab.backend()?;
    for (token, (near, _)) in &idle {
        register(&mut backend, *token, near, Ready::READ, Mode::Level);
    }
    register(&mut backend, A, &silenced, Ready::NONE, Mode::Level);
    register(&mut backend, B, &spent, Ready::READ, Mode::Oneshot);
    register(&mut backend, C, &ready, Ready::READ, Mode::Level);
    half_close(&silenced_far);
    send(&spent_far, b"x");
    await_ready(&mut backend, B, Ready::READ);
    send(&spent_far, b"x");
    silent(&mut backend, "one source is silenced, one spent, and to the others nothing was sent");

    let mut waits = || {
        let waits = (0..WAITS).map(|_| wait_once(&mut backend, Some(Duration::ZERO)));
        waits.map(|events| events.len()).collect::<Vec<_>>()
    };
    let (reported, calls) = syscalls::count(&mut waits)?;
    assert_eq!(reported, [0; WAITS as usize]);
    assert!(calls.total() <= WAITS, "{WAITS} waits with nothing new cost more calls: {calls:?}");

    send(&ready_far, b"x");
    arrived(&ready);
    let (reported, calls) = syscalls::count(&mut waits)?;
    assert_eq!(reported, [1; WAITS as usize], "one source stays readable");
    assert!(
        calls.total() <= 2 * WAITS,
        "{WAITS} waits with one ready source cost more than two calls each: {calls:?}"
    );
    Ok(())
}

/// A register that fails leaves everything as it was: the registration it collided
/// with goes on, and the token and the source that were refused are still free.
pub fn a_failed_register_changes_nothing<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (taken, taken_far) = tcp_pair();
    let (free, free_far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &taken, Ready::READ, Mode::Level);

    let refused = [
        ("a token that is taken", A, free.raw(), Ready::WRITE, Mode::Oneshot),
        ("an index that is taken", A.next(), free.raw(), Ready::WRITE, Mode::Level),
        ("a source that is taken", B, taken.raw(), Ready::WRITE, Mode::Oneshot),
    ];
    for known in [false, true] {
        for (what, token, source, interest, mode) in refused {
            let result = try_register(&mut backend, token, source, interest, mode);
            let kind = result.expect_err(what).kind();
            assert_eq!(kind, ErrorKind::AlreadyExists, "{what} (known to the kernel: {known})");
        }
        silent(&mut backend, "those who would be writable were refused");
    }
    send(&taken_far, b"x");
    for _ in 0..2 {
        let ready = await_ready(&mut backend, A, Ready::READ);
        assert_eq!(ready, Ready::READ, "registered for READ, Level, before others were refused");
    }
    drain(&taken);

    let uncertain = [
        (Ready::READ, Mode::Edge),
        (READ_WRITE | Ready::PRIORITY, Mode::Level),
        (READ_WRITE | Ready::DISCONNECT, Mode::Level),
    ];
    for (interest, mode) in uncertain {
        match try_register(&mut backend, B, free.raw(), interest, mode) {
            Ok(()) => deregister(&mut backend, B),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{interest:?}, {mode:?}: {error}");
                silent(&mut backend, "the register was refused as Unsupported");
                let kind = backend.deregister(B).expect_err("never registered").kind();
                assert_eq!(kind, ErrorKind::NotFound, "deregister after a refused register");
            }
        }
    }
    register(&mut backend, B, &free, Ready::READ, Mode::Level);
    send(&free_far, b"x");
    assert_eq!(await_ready(&mut backend, B, Ready::READ), Ready::READ, "refused before, not now");
    Ok(())
}

/// A modify that fails leaves interest, mode and state as they were: a spent one-shot
/// stays spent, and what was watched is watched.
pub fn a_failed_modify_changes_nothing<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (level, level_far) = tcp_pair();
    let (spent, spent_far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &level, Ready::READ, Mode::Level);
    register(&mut backend, B.next(), &spent, Ready::READ, Mode::Oneshot);
    send(&spent_far, b"x");
    await_ready(&mut backend, B.next(), Ready::READ);

    for token in [A.next(), B, C] {
        let result = backend.modify(token, Ready::WRITE, Mode::Level);
        let kind = result.expect_err("no such registration").kind();
        assert_eq!(kind, ErrorKind::NotFound, "modify of {token:?}, which is stale or unknown");
    }
    silent(&mut backend, "only tokens that do not exist were modified");

    let uncertain = [
        (Ready::WRITE, Mode::Edge),
        (Ready::WRITE | Ready::PRIORITY, Mode::Level),
        (Ready::WRITE | Ready::DISCONNECT, Mode::Level),
    ];
    for (interest, mode) in uncertain {
        // On a registration of its own, so that a modify that works does no harm.
        let (other, _far) = tcp_pair();
        register(&mut backend, C, &other, Ready::READ, Mode::Level);
        let result = backend.modify(C, interest, mode);
        deregister(&mut backend, C);
        let Err(error) = result else { continue };
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{interest:?}, {mode:?}: {error}");
        for token in [A, B.next()] {
            backend.modify(token, interest, mode).expect_err("refused before");
        }
        silent(&mut backend, "a modify that is Unsupported neither widens nor re-arms");
    }
    send(&level_far, b"x");
    for _ in 0..2 {
        let ready = await_ready(&mut backend, A, Ready::READ);
        assert_eq!(ready, Ready::READ, "READ, Level, as before the modify that failed");
    }
    Ok(())
}
