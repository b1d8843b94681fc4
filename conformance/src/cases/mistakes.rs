//! Point 7: caller mistakes are errors, never hangs or panics.
//!
//! A loop that serves thousands of connections must survive one descriptor closed too early, and
//! must be able to name it.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::Instant;

use poll_core::{Backend, BoxedBackend, Interest, Mode, RawSource, Readiness, Token};

use crate::support::files::Directory;
use crate::support::observe::{
    A, B, C, SHORT, SOON, await_ready, deregister, modify, quiet, ready_of, register, try_register,
    wait_for,
};
use crate::support::sources::{drain, send, tcp_pair};
use crate::{Lab, Verdict};

/// A token's index names one registration: a second one is `AlreadyExists`, with the same
/// generation or another, and affects neither the first registration nor its own source.
pub fn duplicate_token(lab: &Lab) -> Verdict {
    let ((near, far), (other, other_far)) = (tcp_pair(), tcp_pair());
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    for token in [A, A.next()] {
        let again =
            try_register(&mut backend, token, RawSource::of(&other), Interest::WRITE, Mode::Level);
        expect_error(again, ErrorKind::AlreadyExists, "a second source under a token in use");
    }
    quiet(&mut backend);
    assert_works(&mut backend, A, &near, &far);

    // The refused source was not partially registered.
    register(&mut backend, B, &other, Interest::READ, Mode::Level);
    assert_works(&mut backend, B, &other, &other_far);
    Ok(())
}

/// A source has at most one registration, so that each event has one owner: a second one is
/// `AlreadyExists`, even if the first is silent.
pub fn duplicate_source(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    let twice = |backend: &mut BoxedBackend, state: &str| {
        let again = try_register(backend, B, RawSource::of(&near), Interest::WRITE, Mode::Level);
        expect_error(
            again,
            ErrorKind::AlreadyExists,
            &format!("a source that is registered{state}"),
        );
    };
    twice(&mut backend, "");
    quiet(&mut backend);
    twice(&mut backend, " and watched by the kernel");
    modify(&mut backend, A, Interest::NONE, Mode::Level);
    twice(&mut backend, " and silent");
    expect_error(
        backend.modify(B, Interest::READ, Mode::Level),
        ErrorKind::NotFound,
        "the token of a refused registration",
    );

    modify(&mut backend, A, Interest::READ, Mode::Level);
    assert_works(&mut backend, A, &near, &far);
    deregister(&mut backend, A);
    register(&mut backend, B, &near, Interest::READ, Mode::Level);
    assert_works(&mut backend, B, &near, &far);
    Ok(())
}

/// A token that was never registered is `NotFound`, however large its index: the lookup must not
/// allocate up to it.
pub fn unknown_token(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    let strangers = [B, Token::new(70_000, 0), Token::new(u32::MAX, Token::MAX_GENERATION)];
    for round in ["empty", "not empty"] {
        for token in strangers {
            let what = format!("{token:?} on a backend that is {round}");
            let changed = backend.modify(token, Interest::READ, Mode::Level);
            expect_error(changed, ErrorKind::NotFound, &format!("modify of {what}"));
            expect_error(
                backend.deregister(token),
                ErrorKind::NotFound,
                &format!("deregister of {what}"),
            );
        }
        if round == "empty" {
            register(&mut backend, A, &near, Interest::READ, Mode::Level);
        }
    }
    assert_works(&mut backend, A, &near, &far);
    Ok(())
}

/// A token of another generation is `NotFound`: a callback that kept an old token must not modify
/// or end the registration that now has its index.
pub fn stale_token(lab: &Lab) -> Verdict {
    let ((near, far), (newer, newer_far)) = (tcp_pair(), tcp_pair());
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    assert_works(&mut backend, A, &near, &far);
    deregister(&mut backend, A);
    let current = A.next();
    register(&mut backend, current, &newer, Interest::READ, Mode::Level);
    for stale in [A, current.next()] {
        let changed = backend.modify(stale, Interest::NONE, Mode::Level);
        expect_error(
            changed,
            ErrorKind::NotFound,
            &format!("modify of {stale:?}, not {current:?}"),
        );
        expect_error(
            backend.deregister(stale),
            ErrorKind::NotFound,
            &format!("deregister of {stale:?}"),
        );
    }
    send(&far, b"late");
    quiet(&mut backend);
    assert_works(&mut backend, current, &newer, &newer_far);
    Ok(())
}

/// A descriptor that is not open is an error at `register`, or `ERROR` once at a wait soon after.
/// `select` and linked `io_uring` submissions fail as a whole for one bad descriptor: valid sources
/// must still be reported.
pub fn closed_descriptor(lab: &Lab) -> Verdict {
    let closed = closed_source()?;
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    let refused = try_register(&mut backend, B, closed, Interest::READ, Mode::Level).is_err();
    send(&far, b"x");
    if refused {
        await_ready(&mut backend, A, Readiness::READ);
        let changed = backend.modify(B, Interest::READ, Mode::Level);
        expect_error(
            changed,
            ErrorKind::NotFound,
            "the token of a closed descriptor that was refused",
        );
    } else {
        await_each(&mut backend, &[(A, Readiness::READ), (B, Readiness::ERROR)]);
        drain(&near);
        // Reported at every wait, it would make a loop spin.
        quiet(&mut backend);
        if backend.modify(B, Interest::READ, Mode::Level).is_ok() {
            await_ready(&mut backend, B, Readiness::ERROR);
        }
        deregister(&mut backend, B);
    }
    drain(&near);
    assert_works(&mut backend, A, &near, &far);
    Ok(())
}

/// Closing a watched source violates the contract of `register`, and happens in practice. The
/// backend reports `ERROR` or nothing; it does not hang, spin or panic, other sources keep working,
/// and the descriptor number can be reused after `deregister`.
pub fn descriptor_closed_while_registered(lab: &Lab) -> Verdict {
    let (watched, _peer) = tcp_pair();
    let (near, far) = tcp_pair();
    let watched = move_to_unused_number(watched)?;
    let number = RawSource::of(&watched);
    let mut backend = lab.backend()?;
    register(&mut backend, A, &watched, Interest::READ, Mode::Level);
    register(&mut backend, B, &near, Interest::READ, Mode::Level);
    quiet(&mut backend);

    drop(watched);
    let reported = ready_of(&wait_for(&mut backend, SHORT), A);
    // On Windows, another case may have been given the handle value by now.
    if cfg!(unix) && !reported.is_empty() {
        assert!(
            reported.contains(Readiness::ERROR),
            "a closed descriptor is reported as {reported:?}"
        );
        quiet(&mut backend);
    }
    assert_works(&mut backend, B, &near, &far);

    // The kernel may have dropped it already; the backend's own entry must go too.
    let _ = backend.deregister(A);
    expect_error(backend.deregister(A), ErrorKind::NotFound, "deregister after deregister");
    assert_works(&mut backend, B, &near, &far);
    reuse(&mut backend, number)
}

/// A descriptor number that no source can have is an error at `register` or `ERROR` soon after.
/// `poll` silently skips negative numbers, so the mistake would stay unnoticed.
pub fn invalid_descriptor_number(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    for (index, source) in invalid_sources().into_iter().enumerate() {
        let token = Token::new(C.index() + index as u32, 0);
        match try_register(&mut backend, token, source, Interest::READ, Mode::Level) {
            Err(_) => {
                let changed = backend.modify(token, Interest::READ, Mode::Level);
                expect_error(
                    changed,
                    ErrorKind::NotFound,
                    &format!("the token of {source:?}, refused"),
                );
            }
            Ok(()) => {
                await_ready(&mut backend, token, Readiness::ERROR);
                deregister(&mut backend, token);
            }
        }
        assert_works(&mut backend, A, &near, &far);
    }
    Ok(())
}

/// A regular file never blocks, so watching it is an error at `register` where the kernel reports
/// it (`EPERM` of `epoll`); otherwise it is always ready. This occurs when standard input is
/// redirected from a file.
pub fn regular_file(lab: &Lab) -> Verdict {
    let directory = Directory::new();
    let file = File::open(directory.file("file", "not empty")).expect("a file just made");
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    let registered = try_register(&mut backend, B, source_of(&file), Interest::READ, Mode::Level);
    send(&far, b"x");
    if registered.is_err() {
        await_ready(&mut backend, A, Readiness::READ);
    } else {
        await_each(&mut backend, &[(A, Readiness::READ), (B, Readiness::READ)]);
        deregister(&mut backend, B);
    }
    drain(&near);
    assert_works(&mut backend, A, &near, &far);
    Ok(())
}

/// Asserts that a mistake is an error of this kind.
#[track_caller]
fn expect_error(result: io::Result<()>, kind: ErrorKind, what: &str) {
    match result {
        Ok(()) => panic!("{what}: accepted instead of {kind:?}"),
        Err(error) => assert_eq!(error.kind(), kind, "{what}: {error}"),
    }
}

/// Asserts that a source registered for `READ` is reported when its peer sends, and not reported
/// once it was read.
#[track_caller]
fn assert_works(backend: &mut BoxedBackend, token: Token, near: &TcpStream, far: &TcpStream) {
    send(far, b"x");
    await_ready(backend, token, Readiness::READ);
    drain(near);
    let events = wait_for(backend, std::time::Duration::ZERO);
    assert_eq!(
        ready_of(&events, token),
        Readiness::NONE,
        "read to the end, {token:?} is not ready"
    );
}

/// Waits until each token has reported its wanted readiness, over any number of waits.
fn await_each(backend: &mut BoxedBackend, wanted: &[(Token, Readiness)]) {
    let started = Instant::now();
    let mut seen = vec![Readiness::NONE; wanted.len()];
    while started.elapsed() < SOON {
        let events = wait_for(backend, SOON);
        for (seen, (token, _)) in seen.iter_mut().zip(wanted) {
            *seen |= ready_of(&events, *token);
        }
        if seen.iter().zip(wanted).all(|(seen, (_, ready))| seen.contains(*ready)) {
            return;
        }
    }
    panic!("of {wanted:?}, only {seen:?} was reported");
}

#[cfg(unix)]
fn source_of(file: &File) -> RawSource {
    RawSource::of(file)
}

#[cfg(windows)]
fn source_of(file: &File) -> RawSource {
    RawSource::of_handle(file)
}

/// A number that is certainly closed: above all numbers that concurrent cases use, and below
/// `FD_SETSIZE`, so that `select` accepts it.
#[cfg(unix)]
fn closed_source() -> Result<RawSource, crate::Skip> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let high = crate::support::limits::high_descriptor(&socket, 900)?;
    Ok(RawSource::of(&high))
}

/// A value that is certainly closed: handles are multiples of four, and a process has no more than
/// 2²⁴ of them.
#[cfg(windows)]
fn closed_source() -> Result<RawSource, crate::Skip> {
    Ok(RawSource::from_socket(0x3fff_fffc))
}

/// Moves a stream to a number that concurrent cases do not use.
#[cfg(unix)]
fn move_to_unused_number(stream: TcpStream) -> Result<TcpStream, crate::Skip> {
    crate::support::limits::high_descriptor(&stream, 950).map(TcpStream::from)
}

#[cfg(windows)]
fn move_to_unused_number(stream: TcpStream) -> Result<TcpStream, crate::Skip> {
    Ok(stream)
}

/// Puts another socket at `number`, which must work like any other.
#[cfg(unix)]
fn reuse(backend: &mut BoxedBackend, number: RawSource) -> Verdict {
    let (near, far) = tcp_pair();
    let near = crate::support::limits::high_descriptor(&near, number.fd()).map(TcpStream::from)?;
    register(backend, A.next(), &near, Interest::READ, Mode::Level);
    assert_works(backend, A.next(), &near, &far);
    deregister(backend, A.next());
    Ok(())
}

/// Windows does not let a program choose a handle value.
#[cfg(windows)]
fn reuse(_backend: &mut BoxedBackend, _number: RawSource) -> Verdict {
    Ok(())
}

/// Negative numbers, and one beyond the default limit of a process. Numbers that would cost a lot
/// of memory are left to `scale::high_descriptor_numbers`.
#[cfg(unix)]
fn invalid_sources() -> [RawSource; 3] {
    [-1, i32::MIN, (1 << 20) - 1].map(RawSource::from_fd)
}

#[cfg(windows)]
fn invalid_sources() -> [RawSource; 2] {
    [RawSource::from_socket(!0), RawSource::from_socket(0)]
}
