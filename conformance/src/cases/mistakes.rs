//! Point 7: mistakes are errors, never hangs or panics.
//!
//! A loop that serves thousands must survive the one caller who closed a
//! descriptor too early, and must be able to say whose it was.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::Instant;

use poll_core::{Backend, Mode, RawSource, Ready, Token};

use crate::support::files::Directory;
use crate::support::observe::{
    A, B, C, SHORT, SOON, await_ready, deregister, modify, quiet, ready_of, register, try_register,
    wait_for,
};
use crate::support::sources::{drain, send, tcp_pair};
use crate::{Lab, Verdict};

/// A token's index names one registration: a second one is `AlreadyExists`, of the
/// same generation or another, and disturbs neither the first nor its own source.
pub fn a_token_twice<B: Backend>(lab: &Lab<B>) -> Verdict {
    let ((near, far), (other, other_far)) = (tcp_pair(), tcp_pair());
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    for token in [A, A.next()] {
        let again =
            try_register(&mut backend, token, RawSource::of(&other), Ready::WRITE, Mode::Level);
        expect(again, ErrorKind::AlreadyExists, "a second source under a token that is taken");
    }
    quiet(&mut backend);
    works(&mut backend, A, &near, &far);

    // The refused source was not half registered.
    register(&mut backend, B, &other, Ready::READ, Mode::Level);
    works(&mut backend, B, &other, &other_far);
    Ok(())
}

/// A source has one registration, or nobody could tell whose event it is: a second
/// one is `AlreadyExists`, even if the first is silent.
pub fn a_source_twice<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    let twice = |backend: &mut B, state: &str| {
        let again = try_register(backend, B, RawSource::of(&near), Ready::WRITE, Mode::Level);
        expect(again, ErrorKind::AlreadyExists, &format!("a source that is registered{state}"));
    };
    twice(&mut backend, "");
    quiet(&mut backend);
    twice(&mut backend, " and watched by the kernel");
    modify(&mut backend, A, Ready::NONE, Mode::Level);
    twice(&mut backend, " and silent");
    expect(
        backend.modify(B, Ready::READ, Mode::Level),
        ErrorKind::NotFound,
        "the token of a refused registration",
    );

    modify(&mut backend, A, Ready::READ, Mode::Level);
    works(&mut backend, A, &near, &far);
    deregister(&mut backend, A);
    register(&mut backend, B, &near, Ready::READ, Mode::Level);
    works(&mut backend, B, &near, &far);
    Ok(())
}

/// A token that was never registered is `NotFound`, however large its index: looking
/// it up must not make room for it.
pub fn an_unknown_token<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    let strangers = [B, Token::new(70_000, 0), Token::new(u32::MAX, Token::MAX_GENERATION)];
    for round in ["empty", "not empty"] {
        for token in strangers {
            let what = format!("{token:?} on a backend that is {round}");
            let changed = backend.modify(token, Ready::READ, Mode::Level);
            expect(changed, ErrorKind::NotFound, &format!("modify of {what}"));
            expect(
                backend.deregister(token),
                ErrorKind::NotFound,
                &format!("deregister of {what}"),
            );
        }
        if round == "empty" {
            register(&mut backend, A, &near, Ready::READ, Mode::Level);
        }
    }
    works(&mut backend, A, &near, &far);
    Ok(())
}

/// A token of another generation is `NotFound`: a callback that kept an old token
/// must not change, let alone end, the registration of whoever has its index now.
pub fn a_stale_token<B: Backend>(lab: &Lab<B>) -> Verdict {
    let ((near, far), (newer, newer_far)) = (tcp_pair(), tcp_pair());
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    works(&mut backend, A, &near, &far);
    deregister(&mut backend, A);
    let current = A.next();
    register(&mut backend, current, &newer, Ready::READ, Mode::Level);
    for stale in [A, current.next()] {
        let changed = backend.modify(stale, Ready::NONE, Mode::Level);
        expect(changed, ErrorKind::NotFound, &format!("modify of {stale:?}, not {current:?}"));
        expect(backend.deregister(stale), ErrorKind::NotFound, &format!("deregister of {stale:?}"));
    }
    send(&far, b"late");
    quiet(&mut backend);
    works(&mut backend, current, &newer, &newer_far);
    Ok(())
}

/// A descriptor that is not open is an error at `register`, or `ERROR` at a wait
/// soon after, once. `select` and `io_uring` chains fail as a whole for one bad
/// descriptor: the good ones must be reported all the same.
pub fn a_closed_descriptor<B: Backend>(lab: &Lab<B>) -> Verdict {
    let closed = closed_source()?;
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    let refused = try_register(&mut backend, B, closed, Ready::READ, Mode::Level).is_err();
    send(&far, b"x");
    if refused {
        await_ready(&mut backend, A, Ready::READ);
        let changed = backend.modify(B, Ready::READ, Mode::Level);
        expect(changed, ErrorKind::NotFound, "the token of a closed descriptor that was refused");
    } else {
        await_each(&mut backend, &[(A, Ready::READ), (B, Ready::ERROR)]);
        drain(&near);
        // Reported at every wait, it would keep a loop busy for ever.
        quiet(&mut backend);
        if backend.modify(B, Ready::READ, Mode::Level).is_ok() {
            await_ready(&mut backend, B, Ready::ERROR);
        }
        deregister(&mut backend, B);
    }
    drain(&near);
    works(&mut backend, A, &near, &far);
    Ok(())
}

/// Closing a watched source breaks the promise made to `register`, and happens. The
/// backend reports `ERROR` or nothing; it does not hang, spin or panic, the others
/// work on, and the number can be used again after `deregister`.
pub fn a_descriptor_closed_while_watched<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (watched, _peer) = tcp_pair();
    let (near, far) = tcp_pair();
    let watched = out_of_the_way(watched)?;
    let number = RawSource::of(&watched);
    let mut backend = lab.backend()?;
    register(&mut backend, A, &watched, Ready::READ, Mode::Level);
    register(&mut backend, B, &near, Ready::READ, Mode::Level);
    quiet(&mut backend);

    drop(watched);
    let reported = ready_of(&wait_for(&mut backend, SHORT), A);
    // On Windows another case may have been given the number by now.
    if cfg!(unix) && !reported.is_empty() {
        assert!(reported.contains(Ready::ERROR), "a closed descriptor is reported as {reported:?}");
        quiet(&mut backend);
    }
    works(&mut backend, B, &near, &far);

    // The kernel may know nothing of it any more, but the backend must forget it.
    let _ = backend.deregister(A);
    expect(backend.deregister(A), ErrorKind::NotFound, "deregister after deregister");
    works(&mut backend, B, &near, &far);
    reuse(&mut backend, number)
}

/// A number that no source can have is an error at once or `ERROR` soon. `poll`
/// skips negative numbers without a word, and then nobody would ever know.
pub fn an_impossible_descriptor<B: Backend>(lab: &Lab<B>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    for (index, source) in impossible_sources().into_iter().enumerate() {
        let token = Token::new(C.index() + index as u32, 0);
        match try_register(&mut backend, token, source, Ready::READ, Mode::Level) {
            Err(_) => {
                let changed = backend.modify(token, Ready::READ, Mode::Level);
                expect(changed, ErrorKind::NotFound, &format!("the token of {source:?}, refused"));
            }
            Ok(()) => {
                await_ready(&mut backend, token, Ready::ERROR);
                deregister(&mut backend, token);
            }
        }
        works(&mut backend, A, &near, &far);
    }
    Ok(())
}

/// A regular file never blocks, so there is nothing to watch: an error at `register`
/// where the kernel says so (`EPERM` of `epoll`), otherwise always ready. Someone will
/// run a loop with its standard input taken from a file.
pub fn a_regular_file<B: Backend>(lab: &Lab<B>) -> Verdict {
    let directory = Directory::new();
    let file = File::open(directory.file("file", "not empty")).expect("a file just made");
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    let registered = try_register(&mut backend, B, source_of(&file), Ready::READ, Mode::Level);
    send(&far, b"x");
    if registered.is_err() {
        await_ready(&mut backend, A, Ready::READ);
    } else {
        await_each(&mut backend, &[(A, Ready::READ), (B, Ready::READ)]);
        deregister(&mut backend, B);
    }
    drain(&near);
    works(&mut backend, A, &near, &far);
    Ok(())
}

/// Asserts that a mistake is told, and by which kind of error.
#[track_caller]
fn expect(result: io::Result<()>, kind: ErrorKind, what: &str) {
    match result {
        Ok(()) => panic!("{what}: accepted instead of {kind:?}"),
        Err(error) => assert_eq!(error.kind(), kind, "{what}: {error}"),
    }
}

/// Asserts that a source registered for `READ` is reported when its peer sends, and
/// quiet again when it was read.
#[track_caller]
fn works(backend: &mut impl Backend, token: Token, near: &TcpStream, far: &TcpStream) {
    send(far, b"x");
    await_ready(backend, token, Ready::READ);
    drain(near);
    let events = wait_for(backend, std::time::Duration::ZERO);
    assert_eq!(ready_of(&events, token), Ready::NONE, "read to the end, {token:?} is not ready");
}

/// Waits until each token has reported what is wanted of it, in whatever waits.
fn await_each(backend: &mut impl Backend, wanted: &[(Token, Ready)]) {
    let started = Instant::now();
    let mut seen = vec![Ready::NONE; wanted.len()];
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

/// A number that is certainly closed: above all those that other cases are given
/// meanwhile, and below `FD_SETSIZE`, so that `select` takes it.
#[cfg(unix)]
fn closed_source() -> Result<RawSource, crate::Skip> {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let high = crate::support::limits::high_descriptor(&socket, 900)?;
    Ok(RawSource::of(&high))
}

/// A number that is certainly closed: handles are multiples of four, and a process
/// has no more than 2²⁴ of them.
#[cfg(windows)]
fn closed_source() -> Result<RawSource, crate::Skip> {
    Ok(RawSource::from_socket(0x3fff_fffc))
}

/// Moves a stream to a number that no other case is given meanwhile.
#[cfg(unix)]
fn out_of_the_way(stream: TcpStream) -> Result<TcpStream, crate::Skip> {
    crate::support::limits::high_descriptor(&stream, 950).map(TcpStream::from)
}

#[cfg(windows)]
fn out_of_the_way(stream: TcpStream) -> Result<TcpStream, crate::Skip> {
    Ok(stream)
}

/// Puts another socket under `number`: it must work like any other.
#[cfg(unix)]
fn reuse(backend: &mut impl Backend, number: RawSource) -> Verdict {
    let (near, far) = tcp_pair();
    let near = crate::support::limits::high_descriptor(&near, number.fd()).map(TcpStream::from)?;
    register(backend, A.next(), &near, Ready::READ, Mode::Level);
    works(backend, A.next(), &near, &far);
    deregister(backend, A.next());
    Ok(())
}

/// Windows chooses the numbers.
#[cfg(windows)]
fn reuse(_backend: &mut impl Backend, _number: RawSource) -> Verdict {
    Ok(())
}

/// Negative numbers, and one beyond what any process has by default. Numbers that
/// would cost a fortune in memory are left to `scale::high_descriptor_numbers`.
#[cfg(unix)]
fn impossible_sources() -> [RawSource; 3] {
    [-1, i32::MIN, (1 << 20) - 1].map(RawSource::from_fd)
}

#[cfg(windows)]
fn impossible_sources() -> [RawSource; 2] {
    [RawSource::from_socket(!0), RawSource::from_socket(0)]
}
