//! Point 1: registration changes take effect at the next wait and cost one system call per changed
//! source.

use std::io::ErrorKind;
use std::time::Duration;

use poll_core::{Backend, Interest, Mode, Readiness, Token};

use crate::support::observe::{
    A, B, C, await_ready, deregister, modify, ready_now, ready_of, register, silent, try_register,
    wait_once,
};
use crate::support::sources::{Source, arrived, drain, half_close, send, tcp_pair};
use crate::support::syscalls;
use crate::{Lab, Verdict};

const READ_WRITE: Interest = Interest::READ.union(Interest::WRITE);

/// A condition that holds before the source is registered is reported by the next wait, even by one
/// that does not block. A backend that flushes changes only when it blocks makes a loop that polls
/// miss ready sources.
pub fn register_takes_effect_at_next_wait(lab: &Lab) -> Verdict {
    for mode in [Mode::Level, Mode::Oneshot] {
        let (readable, far) = tcp_pair();
        let (writable, _far) = tcp_pair();
        let (idle, idle_far) = tcp_pair();
        let mut backend = lab.backend()?;
        register(&mut backend, C, &idle, Interest::READ, mode);
        silent(&mut backend, "nothing was sent");

        send(&far, b"x");
        arrived(&readable);
        register(&mut backend, A, &readable, Interest::READ, mode);
        register(&mut backend, B, &writable, Interest::WRITE, mode);
        let events = wait_once(&mut backend, Some(Duration::ZERO));
        assert_eq!(ready_of(&events, A), Readiness::READ, "{mode:?}: data arrived before the wait");
        assert_eq!(
            ready_of(&events, B),
            Readiness::WRITE,
            "{mode:?}: the send buffer had space before the wait"
        );
        assert_eq!(ready_of(&events, C), Readiness::NONE, "{mode:?}: nothing was sent");

        send(&idle_far, b"x");
        await_ready(&mut backend, C, Readiness::READ);
    }
    Ok(())
}

/// Each change of interest, wider or narrower, is in force at the next wait, whatever the kernel
/// was set to before.
pub fn modify_takes_effect_at_next_wait(lab: &Lab) -> Verdict {
    for mode in [Mode::Level, Mode::Oneshot] {
        let (near, far) = tcp_pair();
        let mut backend = lab.backend()?;
        register(&mut backend, A, &near, Interest::READ, mode);
        silent(&mut backend, "nothing was sent");

        modify(&mut backend, A, READ_WRITE, mode);
        let ready = ready_now(&mut backend, A);
        assert_eq!(
            ready,
            Readiness::WRITE,
            "{mode:?}: WRITE was added and the send buffer has space"
        );

        send(&far, b"x");
        arrived(&near);
        let changes = [Interest::READ, READ_WRITE, Interest::WRITE, Interest::NONE, Interest::READ];
        for interest in changes {
            modify(&mut backend, A, interest, mode);
            let ready = ready_now(&mut backend, A);
            assert_eq!(
                ready.to_interest(),
                interest,
                "{mode:?}: readable and writable, with interest in both"
            );
        }
    }
    Ok(())
}

/// Of several changes between two waits the last one wins. A backend that queues changes must
/// neither report an intermediate interest nor drop the change that restores the kernel's current
/// state.
pub fn last_change_before_wait_wins(lab: &Lab) -> Verdict {
    const LASTS: [(Interest, Mode); 4] = [
        (Interest::READ, Mode::Level),
        (Interest::NONE, Mode::Level),
        (Interest::WRITE, Mode::Oneshot),
        (Interest::WRITE, Mode::Level),
    ];
    for known in [false, true] {
        for (interest, mode) in LASTS {
            let (near, far) = tcp_pair();
            let mut backend = lab.backend()?;
            register(&mut backend, A, &near, Interest::READ, Mode::Level);
            if known {
                silent(&mut backend, "nothing was sent");
            }
            for _ in 0..100 {
                modify(&mut backend, A, Interest::WRITE, Mode::Level);
                modify(&mut backend, A, READ_WRITE, Mode::Oneshot);
                modify(&mut backend, A, Interest::NONE, Mode::Level);
                modify(&mut backend, A, interest, mode);
            }
            let what = format!("after many changes to {interest:?}, {mode:?} (known: {known})");
            let expected = interest.to_readiness() & Readiness::WRITE;
            assert_eq!(ready_now(&mut backend, A), expected, "{what}");
            let expected = if mode == Mode::Oneshot { Readiness::NONE } else { expected };
            assert_eq!(ready_now(&mut backend, A), expected, "{what}, at the second wait");
            if interest == Interest::READ {
                send(&far, b"x");
                assert_eq!(
                    await_ready(&mut backend, A, Readiness::READ),
                    Readiness::READ,
                    "{what}"
                );
            }
        }
    }
    Ok(())
}

/// A hundred changes of one source between two waits cost at most one system call beside the wait.
/// A loop changes interests on every read and write: with one call per change, an echo server
/// spends most of its time in `epoll_ctl`.
pub fn changes_coalesce_into_one_syscall(lab: &Lab) -> Verdict {
    const LASTS: [(Interest, Mode); 6] = [
        (Interest::WRITE, Mode::Level),
        (Interest::WRITE, Mode::Level),
        (Interest::NONE, Mode::Level),
        (Interest::READ, Mode::Oneshot),
        (READ_WRITE, Mode::Level),
        (Interest::READ, Mode::Level),
    ];
    let (near, _far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    silent(&mut backend, "nothing was sent");

    let mut apply = |interest, mode| {
        for _ in 0..50 {
            modify(&mut backend, A, READ_WRITE, Mode::Oneshot);
            modify(&mut backend, A, interest, mode);
        }
        ready_now(&mut backend, A)
    };
    for (interest, mode) in LASTS {
        let ready = apply(interest, mode);
        assert_eq!(
            ready,
            interest.to_readiness() & Readiness::WRITE,
            "after 100 changes to {interest:?}, {mode:?}"
        );
    }
    for (interest, mode) in LASTS {
        let calls = syscalls::count(|| apply(interest, mode))?.1;
        assert!(
            calls.total() <= 2,
            "100 changes, the last to {interest:?}, {mode:?}, and a wait cost more than one call \
             and the wait: {calls:?}"
        );
    }
    Ok(())
}

/// A wait makes one system call, however many sources are watched, silenced or spent; only ready
/// sources may cost one more each. A backend that repeats known registrations pays for idle
/// connections at every iteration.
pub fn unchanged_sources_cost_no_syscall(lab: &Lab) -> Verdict {
    const WAITS: u32 = 10;
    let idle: Vec<_> = (10..42).map(|index| (Token::new(index, 0), tcp_pair())).collect();
    let (silenced, silenced_far) = tcp_pair();
    let (spent, spent_far) = tcp_pair();
    let (ready, ready_far) = tcp_pair();
    let mut backend = lab.backend()?;
    for (token, (near, _)) in &idle {
        register(&mut backend, *token, near, Interest::READ, Mode::Level);
    }
    register(&mut backend, A, &silenced, Interest::NONE, Mode::Level);
    register(&mut backend, B, &spent, Interest::READ, Mode::Oneshot);
    register(&mut backend, C, &ready, Interest::READ, Mode::Level);
    half_close(&silenced_far);
    send(&spent_far, b"x");
    await_ready(&mut backend, B, Readiness::READ);
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

/// A failed register leaves the state unchanged: the conflicting registration stays in force, and
/// the refused token and source remain free.
pub fn failed_register_has_no_effect(lab: &Lab) -> Verdict {
    let (taken, taken_far) = tcp_pair();
    let (free, free_far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &taken, Interest::READ, Mode::Level);

    let refused = [
        ("a token that is taken", A, free.raw(), Interest::WRITE, Mode::Oneshot),
        ("an index that is taken", A.next(), free.raw(), Interest::WRITE, Mode::Level),
        ("a source that is taken", B, taken.raw(), Interest::WRITE, Mode::Oneshot),
    ];
    for known in [false, true] {
        for (what, token, source, interest, mode) in refused {
            let result = try_register(&mut backend, token, source, interest, mode);
            let kind = result.expect_err(what).kind();
            assert_eq!(kind, ErrorKind::AlreadyExists, "{what} (known to the kernel: {known})");
        }
        silent(&mut backend, "the writable sources were refused");
    }
    send(&taken_far, b"x");
    for _ in 0..2 {
        let ready = await_ready(&mut backend, A, Readiness::READ);
        assert_eq!(ready, Readiness::READ, "registered for READ, Level, before the refused calls");
    }
    drain(&taken);

    let uncertain = [
        (Interest::READ, Mode::Edge),
        (READ_WRITE | Interest::PRIORITY, Mode::Level),
        (READ_WRITE | Interest::DISCONNECT, Mode::Level),
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
    register(&mut backend, B, &free, Interest::READ, Mode::Level);
    send(&free_far, b"x");
    assert_eq!(
        await_ready(&mut backend, B, Readiness::READ),
        Readiness::READ,
        "refused before, accepted now"
    );
    Ok(())
}

/// A failed modify leaves interest, mode and state unchanged: a spent one-shot stays spent, a
/// watched source stays watched.
pub fn failed_modify_has_no_effect(lab: &Lab) -> Verdict {
    let (level, level_far) = tcp_pair();
    let (spent, spent_far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &level, Interest::READ, Mode::Level);
    register(&mut backend, B.next(), &spent, Interest::READ, Mode::Oneshot);
    send(&spent_far, b"x");
    await_ready(&mut backend, B.next(), Readiness::READ);

    for token in [A.next(), B, C] {
        let result = backend.modify(token, Interest::WRITE, Mode::Level);
        let kind = result.expect_err("no such registration").kind();
        assert_eq!(kind, ErrorKind::NotFound, "modify of {token:?}, which is stale or unknown");
    }
    silent(&mut backend, "only tokens that do not exist were modified");

    let uncertain = [
        (Interest::WRITE, Mode::Edge),
        (Interest::WRITE | Interest::PRIORITY, Mode::Level),
        (Interest::WRITE | Interest::DISCONNECT, Mode::Level),
    ];
    for (interest, mode) in uncertain {
        // On a separate registration, so that a modify that succeeds does not affect the others.
        let (other, _far) = tcp_pair();
        register(&mut backend, C, &other, Interest::READ, Mode::Level);
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
        let ready = await_ready(&mut backend, A, Readiness::READ);
        assert_eq!(ready, Readiness::READ, "READ, Level, as before the modify that failed");
    }
    Ok(())
}
