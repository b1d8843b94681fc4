//! Point 8: every operation completes exactly once.
//!
//! A loop keeps a request and its lent memory until the last `Done`: a missing one leaks both, and
//! a surplus one frees them twice.

mod messages;
mod volume;

use std::io::ErrorKind;
use std::net::TcpStream;

use poll_core::{Backend, Interest, Mode, Op, OpKind, RawBuf, RawSource, Readiness, Token};

use crate::support::observe::{
    A, B, C, await_ready, deregister, quiet, ready_of, register, wait_once,
};
use crate::support::operations::{
    Pending, await_end, await_last, await_reports, dones, error_of, is_cancelled, submit,
    try_submit,
};
use crate::support::sources::{drain, listener, refused_address, send, tcp_pair};
use crate::support::wine;
use crate::support::work::{Work, connect_to};
use crate::{Lab, Skip, Verdict};

pub use messages::*;
pub use volume::*;

/// One completion per submission, whether data arrived, a cancel was made, or both in either order:
/// the race between cancellation and completion is where completions are lost or duplicated.
pub fn complete_exactly_once(lab: &Lab) -> Verdict {
    let rounds: Vec<Pending> = {
        let backend = lab.backend()?;
        (0..64).map(|_| Pending::new(&backend)).collect::<Result<_, Skip>>()?
    };
    let mut backend = lab.backend()?;
    for (round, pending) in rounds.iter().enumerate() {
        // An index is free for the next operation once the previous one has completed.
        let token = Token::new(round as u32 % 3, round as u32 / 3);
        submit(&mut backend, token, pending.op);
        let mut cancel = || backend.cancel(token).expect("cancel of an operation in flight");
        match round % 4 {
            0 => pending.send(),
            1 => cancel(),
            2 => {
                pending.send();
                cancel();
            }
            _ => {
                cancel();
                pending.send();
            }
        }
        let result = await_end(&mut backend, token);
        match round % 4 {
            0 => pending.assert_seen(result),
            1 => assert!(is_cancelled(result), "cancelled without data: {result:?}"),
            _ if is_cancelled(result) => {}
            _ => pending.assert_seen(result),
        }
    }
    quiet(&mut backend);
    Ok(())
}

/// An operation that could complete immediately stays in flight until a wait reports it. Callbacks
/// that ran inside the submitting call would recurse without bound.
pub fn never_complete_inline(lab: &Lab) -> Verdict {
    let (pending, other) = {
        let backend = lab.backend()?;
        (Pending::new(&backend)?, Pending::new(&backend)?)
    };
    pending.send();
    other.send();
    let mut backend = lab.backend()?;
    submit(&mut backend, A, pending.op);
    let again = try_submit(&mut backend, A, other.op).expect_err("one operation under a token");
    assert_eq!(again.kind(), ErrorKind::AlreadyExists, "not yet reported, so in flight: {again}");
    pending.assert_seen(await_end(&mut backend, A));

    // The same for one that has completed in the kernel and is then cancelled.
    submit(&mut backend, A, other.op);
    backend.cancel(A).expect("not yet reported, so still in flight");
    let result = await_end(&mut backend, A);
    if !is_cancelled(result) {
        other.assert_seen(result);
    }
    quiet(&mut backend);
    Ok(())
}

/// A failed operation reports the operating system's error in its `Done`: `submit` fails only for
/// what the backend itself refuses.
pub fn report_the_os_error(lab: &Lab) -> Verdict {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let unconnected = TcpStream::from(socket.expect("a socket"));
    let mut memory = vec![0; 16];
    let buf = RawBuf::filling(&mut memory);
    let source = RawSource::of(&unconnected);
    let (connect, _address) = connect_to(refused_address());
    let mut backend = lab.backend()?;
    let mut unsendable = vec![ErrorKind::NotConnected, ErrorKind::BrokenPipe];
    if wine::reports_reset_for_broken_pipe() {
        unsendable.push(ErrorKind::ConnectionReset);
    }
    let failing = [
        (Op::Recv { source, buf }, vec![ErrorKind::NotConnected]),
        (Op::Send { source, buf }, unsendable),
        (connect, vec![ErrorKind::ConnectionRefused]),
        (Op::Accept { listener: source }, vec![ErrorKind::InvalidInput]),
    ];
    let mut performed = 0;
    for (op, expected) in failing {
        if !backend.supports(op.kind()) {
            continue;
        }
        submit(&mut backend, A, op);
        let error = error_of(await_end(&mut backend, A));
        assert!(
            expected.contains(&error.kind()),
            "{:?} should fail with {expected:?}, not with {:?}: {error}",
            op.kind(),
            error.kind(),
        );
        performed += 1;
    }
    quiet(&mut backend);
    if performed == 0 {
        return Err(Skip::because("performs no operation that can be made to fail here"));
    }
    Ok(())
}

/// A cancelled operation completes with `ECANCELED` in a wait, and nothing is reported afterwards:
/// its memory may then be freed, its token is free, and its source is usable.
pub fn complete_when_cancelled(lab: &Lab) -> Verdict {
    let pending = Pending::new(&lab.backend()?)?;
    let listener = listener();
    let mut backend = lab.backend()?;
    for patience in [false, true] {
        submit(&mut backend, A, pending.op);
        if patience {
            quiet(&mut backend); // Submits it to the kernel.
        }
        backend.cancel(A).expect("cancel of an operation in flight");
        backend.cancel(A).expect("cancel again: it is in flight until it is reported");
        let result = await_end(&mut backend, A);
        assert!(is_cancelled(result), "cancelled, it ends with {result:?}");
        let error = backend.cancel(A).expect_err("cancel of an operation that has ended");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        quiet(&mut backend);
    }
    submit(&mut backend, A, pending.op);
    pending.send();
    pending.assert_seen(await_end(&mut backend, A));

    if backend.supports(OpKind::AcceptMulti) {
        submit(&mut backend, B, Op::AcceptMulti { listener: RawSource::of(&listener) });
        quiet(&mut backend);
        backend.cancel(B).expect("cancel of an operation in flight");
        let result = await_end(&mut backend, B);
        assert!(is_cancelled(result), "cancelled, the multishot ends with {result:?}");
        quiet(&mut backend);
    }
    Ok(())
}

/// A peer that closes or resets completes pending operations: with 0, the end of file, or with the
/// error.
pub fn complete_when_the_peer_closes(lab: &Lab) -> Verdict {
    let (closed, was_reset) = {
        let backend = lab.backend()?;
        (Pending::new(&backend)?, Pending::new(&backend)?)
    };
    let polls = closed.op.kind() == OpKind::Poll;
    let mut backend = lab.backend()?;
    submit(&mut backend, A, closed.op);
    submit(&mut backend, B, was_reset.op);
    quiet(&mut backend);

    let _closed = closed.close_peer();
    let result = await_end(&mut backend, A);
    assert!(polls || result == Ok(0), "the end of file is 0, not {result:?}");

    let _reset = was_reset.reset_peer();
    let result = await_end(&mut backend, B);
    if !polls {
        let error = error_of(result);
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "a reset: {error}");
    }
    quiet(&mut backend);
    // The lent memory outlives the backend.
    drop(backend);
    Ok(())
}

/// Operations and registrations have separate name spaces, also for one source and one token: a
/// loop polls a socket for `WRITE` while a receive is in flight.
pub fn coexist_with_registrations(lab: &Lab) -> Verdict {
    let pending = Pending::new(&lab.backend()?)?;
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    register(&mut backend, B, pending.source(), Interest::WRITE, Mode::Oneshot);
    submit(&mut backend, A, pending.op);
    await_ready(&mut backend, B, Readiness::WRITE);

    send(&far, b"x");
    await_ready(&mut backend, A, Readiness::READ);
    drain(&near);
    quiet(&mut backend);

    // Deregistering does not end the operation with the equal token.
    deregister(&mut backend, A);
    deregister(&mut backend, B);
    pending.send();
    pending.assert_seen(await_end(&mut backend, A));
    let error = backend.deregister(A).expect_err("deregister of an operation's token");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    quiet(&mut backend);
    Ok(())
}

/// A kind that `supports` denies is refused by `submit` as `Unsupported`, without side effects: a
/// loop then falls back to readiness.
pub fn unsupported_kinds_are_refused(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut refused = Vec::new();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    for kind in OpKind::ALL.iter().copied() {
        if backend.supports(kind) {
            continue;
        }
        let source = RawSource::of(&near);
        let op = match kind {
            OpKind::RecvMulti => Op::RecvMulti { source, group: 0 },
            OpKind::ConnectNamedPipe => Op::ConnectNamedPipe { pipe: source },
            OpKind::RecvMsgMulti => {
                Op::RecvMsgMulti { source, group: 0, address_len: 0, control_len: 0 }
            }
            _ => match Work::of(kind) {
                Some(work) => {
                    let op = work.op;
                    refused.push(work); // Keeps its memory, in case that it is performed nevertheless.
                    op
                }
                None => continue,
            },
        };
        match try_submit(&mut backend, A, op) {
            Ok(()) => panic!("{kind:?} is accepted although `supports` denies it"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{kind:?}: {error}"),
        }
    }
    quiet(&mut backend);
    send(&far, b"x");
    await_ready(&mut backend, A, Readiness::READ);
    drop(backend);
    drop(refused);
    Ok(())
}

/// A token names one operation in flight: a second one is `AlreadyExists`, and the first continues.
pub fn token_in_flight_is_refused(lab: &Lab) -> Verdict {
    let (first, second) = {
        let backend = lab.backend()?;
        (Pending::new(&backend)?, Pending::new(&backend)?)
    };
    let mut backend = lab.backend()?;
    submit(&mut backend, A, first.op);
    for _ in 0..2 {
        let error = try_submit(&mut backend, A, second.op).expect_err("a token in use");
        assert_eq!(error.kind(), ErrorKind::AlreadyExists, "{error}");
        second.send();
        quiet(&mut backend);
    }
    submit(&mut backend, B, second.op);
    await_end(&mut backend, B).expect("the operation that was refused before");
    first.send();
    first.assert_seen(await_end(&mut backend, A));
    quiet(&mut backend);
    Ok(())
}

/// Cancelling what is not in flight is `NotFound` on every backend: an unknown token, a
/// registration, or an operation of another generation.
pub fn cancel_of_unknown_token_is_not_found(lab: &Lab) -> Verdict {
    let pending = Pending::new(&lab.backend()?).ok();
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    if let Some(pending) = &pending {
        submit(&mut backend, B, pending.op);
    }
    for token in [A, C, B.next(), Token::new(70_000, 3)] {
        match backend.cancel(token) {
            Ok(()) => panic!("cancel of {token:?} succeeds without an operation"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{token:?}: {error}"),
        }
    }
    send(&far, b"x");
    await_ready(&mut backend, A, Readiness::READ);
    deregister(&mut backend, A);
    if let Some(pending) = &pending {
        quiet(&mut backend);
        pending.send();
        pending.assert_seen(await_end(&mut backend, B));
    }
    Ok(())
}

/// Each kind that `supports` reports works as documented.
pub fn each_supported_kind_works(lab: &Lab) -> Verdict {
    let mut performed = 0;
    for kind in OpKind::ALL.iter().copied() {
        let Some(work) = Work::of(kind) else { continue };
        let mut backend = lab.backend()?;
        if !backend.supports(kind) {
            continue;
        }
        submit(&mut backend, A, work.op);
        let result = if kind == OpKind::AcceptMulti {
            let first = await_reports(&mut backend, A)[0];
            assert!(first.more, "a multishot operation continues: {first:?}");
            backend.cancel(A).expect("cancel of a continuing operation");
            let _ = await_last(&mut backend, A);
            first.result
        } else {
            // A zero-copy send reports `more` and holds its memory until the last `Done`.
            await_last(&mut backend, A)
        };
        let beside = wait_once(&mut backend, Some(std::time::Duration::ZERO));
        assert_eq!(
            (dones(&beside, A), ready_of(&beside, A)),
            (vec![], Readiness::NONE),
            "{kind:?}"
        );
        println!("{kind:?}: {result:?}"); // Printed if an assertion below fails.
        (work.verify)(result);
        performed += 1;
    }
    if performed == 0 {
        return Err(Skip::because("performs no operations"));
    }
    Ok(())
}
