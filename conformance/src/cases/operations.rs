//! Point 8: every operation ends, once.
//!
//! A loop keeps a request, and the memory lent with it, until the last `Done`: one
//! that never comes leaks both, and one too many frees them twice.

mod crowds;
mod messages;

use std::io::ErrorKind;
use std::net::TcpStream;

use poll_core::{Backend, Mode, Op, OpKind, RawBuf, RawSource, Ready, Token};

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

pub use crowds::*;
pub use messages::*;

/// One end for one submission, whether data came, a cancel came, or both in either
/// order: the race between a cancel and a completion is where ends get lost or doubled.
pub fn end_exactly_once<B: Backend>(lab: &Lab<B>) -> Verdict {
    let rounds: Vec<Pending> = {
        let backend = lab.backend()?;
        (0..64).map(|_| Pending::new(&backend)).collect::<Result<_, Skip>>()?
    };
    let mut backend = lab.backend()?;
    for (round, pending) in rounds.iter().enumerate() {
        // An index is free for the next operation once the last one has ended.
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
            1 => assert!(is_cancelled(result), "cancelled with nothing to do: {result:?}"),
            _ if is_cancelled(result) => {}
            _ => pending.assert_seen(result),
        }
    }
    quiet(&mut backend);
    Ok(())
}

/// An operation that could complete at once is still in flight until a wait says
/// otherwise. Callbacks that run inside the call that starts them recurse without end.
pub fn never_complete_inline<B: Backend>(lab: &Lab<B>) -> Verdict {
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

    // The same for one that is over in the kernel and then cancelled.
    submit(&mut backend, A, other.op);
    backend.cancel(A).expect("not yet reported, so there is something to cancel");
    let result = await_end(&mut backend, A);
    if !is_cancelled(result) {
        other.assert_seen(result);
    }
    quiet(&mut backend);
    Ok(())
}

/// An operation that fails says why, with the operating system's own error, in its
/// `Done`: `submit` fails only for what the backend itself will not do.
pub fn fail_with_the_error<B: Backend>(lab: &Lab<B>) -> Verdict {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None);
    let unconnected = TcpStream::from(socket.expect("a socket"));
    let mut memory = vec![0; 16];
    let buf = RawBuf::filling(&mut memory);
    let source = RawSource::of(&unconnected);
    let (connect, _address) = connect_to(refused_address());
    let mut backend = lab.backend()?;
    let mut unsendable = vec![ErrorKind::NotConnected, ErrorKind::BrokenPipe];
    if wine::says_reset_for_a_broken_pipe() {
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

/// A cancelled operation ends with `ECANCELED`, in a wait, and nothing happens later:
/// its memory may be freed then. Its token is free, its source as good as before.
pub fn end_when_cancelled<B: Backend>(lab: &Lab<B>) -> Verdict {
    let pending = Pending::new(&lab.backend()?)?;
    let listener = listener();
    let mut backend = lab.backend()?;
    for patience in [false, true] {
        submit(&mut backend, A, pending.op);
        if patience {
            quiet(&mut backend); // The kernel has it by now.
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

/// The peer that closes or resets ends what waits for it: with 0, the end of file, or
/// with the error.
pub fn end_when_the_peer_goes<B: Backend>(lab: &Lab<B>) -> Verdict {
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
    // What was lent lives longer than the backend.
    drop(backend);
    Ok(())
}

/// Operations and registrations are two name spaces, on one source and under one
/// token: a loop polls a socket for `WRITE` while a receive is under way.
pub fn run_beside_readiness<B: Backend>(lab: &Lab<B>) -> Verdict {
    let pending = Pending::new(&lab.backend()?)?;
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    register(&mut backend, B, pending.source(), Ready::WRITE, Mode::Oneshot);
    submit(&mut backend, A, pending.op);
    await_ready(&mut backend, B, Ready::WRITE);

    send(&far, b"x");
    await_ready(&mut backend, A, Ready::READ);
    drain(&near);
    quiet(&mut backend);

    // The registration's end is not the operation's, whose token looks the same.
    deregister(&mut backend, A);
    deregister(&mut backend, B);
    pending.send();
    pending.assert_seen(await_end(&mut backend, A));
    let error = backend.deregister(A).expect_err("deregister of an operation's token");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    quiet(&mut backend);
    Ok(())
}

/// What `supports` denies, `submit` refuses as `Unsupported`, and nothing comes of it:
/// a loop falls back to readiness on this answer.
pub fn are_refused_if_unsupported<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut refused = Vec::new();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
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
                    refused.push(work); // In case that it is performed after all.
                    op
                }
                None => continue,
            },
        };
        match try_submit(&mut backend, A, op) {
            Ok(()) => panic!("{kind:?} is accepted, although `supports` denies it"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{kind:?}: {error}"),
        }
    }
    quiet(&mut backend);
    send(&far, b"x");
    await_ready(&mut backend, A, Ready::READ);
    drop(backend);
    drop(refused);
    Ok(())
}

/// A token names one operation in flight: a second is `AlreadyExists`, and the first
/// goes on.
pub fn one_token_one_operation<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (first, second) = {
        let backend = lab.backend()?;
        (Pending::new(&backend)?, Pending::new(&backend)?)
    };
    let mut backend = lab.backend()?;
    submit(&mut backend, A, first.op);
    for _ in 0..2 {
        let error = try_submit(&mut backend, A, second.op).expect_err("a token that is in use");
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

/// Cancelling what is not in flight is `NotFound`, on every backend: nothing, a
/// registration, or an operation of another generation.
pub fn cancelling_nothing_is_not_found<B: Backend>(lab: &Lab<B>) -> Verdict {
    let pending = Pending::new(&lab.backend()?).ok();
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    if let Some(pending) = &pending {
        submit(&mut backend, B, pending.op);
    }
    for token in [A, C, B.next(), Token::new(70_000, 3)] {
        match backend.cancel(token) {
            Ok(()) => panic!("cancel of {token:?}, where there is no operation, succeeds"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{token:?}: {error}"),
        }
    }
    send(&far, b"x");
    await_ready(&mut backend, A, Ready::READ);
    deregister(&mut backend, A);
    if let Some(pending) = &pending {
        quiet(&mut backend);
        pending.send();
        pending.assert_seen(await_end(&mut backend, B));
    }
    Ok(())
}

/// Each kind that `supports` promises does what its documentation says.
pub fn each_kind_does_its_work<B: Backend>(lab: &Lab<B>) -> Verdict {
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
            assert!(first.more, "a multishot goes on: {first:?}");
            backend.cancel(A).expect("cancel of an operation that goes on");
            let _ = await_last(&mut backend, A);
            first.result
        } else {
            // A send from the memory itself says `more`, and holds it until the end.
            await_last(&mut backend, A)
        };
        let beside = wait_once(&mut backend, Some(std::time::Duration::ZERO));
        assert_eq!((dones(&beside, A), ready_of(&beside, A)), (vec![], Ready::NONE), "{kind:?}");
        println!("{kind:?}: {result:?}"); // Shown if what follows fails.
        (work.verify)(result);
        performed += 1;
    }
    if performed == 0 {
        return Err(Skip::because("performs no operations"));
    }
    Ok(())
}
