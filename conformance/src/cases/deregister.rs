//! Point 2: deregistering is immediate, and a number used again is a new source.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use poll_core::{Backend, Mode, Ready, Token};

use crate::support::limits::need_descriptors;
use crate::support::observe::{
    A, B, C, SOON, await_ready, deregister, modify, ready_now, ready_of, register, silent,
    wait_for, wait_once,
};
use crate::support::sources::{arrived, drain, send, tcp_pair};
use crate::{Lab, Verdict};

/// The ways in which a source may be watched when it goes.
const WATCHED: [(Ready, Mode); 4] = [
    (Ready::READ, Mode::Level),
    (Ready::READ, Mode::Oneshot),
    (Ready::READ.union(Ready::WRITE), Mode::Level),
    (Ready::WRITE, Mode::Oneshot),
];

/// No wait after `deregister` reports the token, whether its source was ready before
/// or becomes so later, and the other sources do not notice. Backends with queues
/// (`io_uring`, completion ports) may hold an event of the source at that moment.
pub fn silences_at_once<T: Backend>(lab: &Lab<T>) -> Verdict {
    for (interest, mode) in WATCHED {
        for reported in [false, true] {
            let (near, far) = tcp_pair();
            let (other, other_far) = tcp_pair();
            let mut backend = lab.backend()?;
            register(&mut backend, A, &near, Ready::READ, Mode::Level);
            register(&mut backend, B, &other, Ready::READ, Mode::Level);
            silent(&mut backend, "nothing was sent");
            modify(&mut backend, A, interest, mode);
            send(&far, b"x");
            arrived(&near);
            if reported {
                await_ready(&mut backend, A, interest);
            }
            deregister(&mut backend, A);
            silent(&mut backend, "the only ready source was deregistered");
            send(&far, b"x");
            silent(&mut backend, "more was sent only to a source that was deregistered");
            send(&other_far, b"x");
            await_ready(&mut backend, B, Ready::READ);
        }
    }
    Ok(())
}

/// A descriptor number that is closed and opened again at once is another source: what
/// the kernel had to say about the old one, seen or not, is never told of the new.
/// This is how a server closes a connection and accepts the next in one turn.
pub fn frees_the_number_for_reuse<T: Backend>(lab: &Lab<T>) -> Verdict {
    for (interest, mode) in WATCHED {
        for reported in [false, true] {
            let (old, old_far) = tcp_pair();
            let (other, other_far) = tcp_pair();
            let mut backend = lab.backend()?;
            register(&mut backend, A, &old, Ready::READ, Mode::Level);
            register(&mut backend, B, &other, Ready::READ, Mode::Level);
            silent(&mut backend, "nothing was sent");
            // The kernel knows both; now both have news in one batch.
            modify(&mut backend, A, interest, mode);
            send(&old_far, b"x");
            send(&other_far, b"x");
            arrived(&old);
            arrived(&other);
            if reported {
                let events = wait_once(&mut backend, Some(Duration::ZERO));
                assert_eq!(ready_of(&events, A), interest, "ready before the wait");
                assert_eq!(ready_of(&events, B), Ready::READ, "ready before the wait");
            }
            deregister(&mut backend, A);
            let (new, new_far) = reopened(old);
            register(&mut backend, A.next(), &new, Ready::READ, Mode::Level);
            let events = wait_once(&mut backend, Some(Duration::ZERO));
            assert_eq!(ready_of(&events, B), Ready::READ, "another source went, but not this one");
            assert_eq!(events.len(), 1, "the number belongs to a new source: {events:?}");
            drain(&other);
            silent(&mut backend, "the number belongs to a new source, which has no data");
            drop(old_far);
            silent(&mut backend, "the peer of a source that is gone closed");
            send(&new_far, b"x");
            assert_eq!(await_ready(&mut backend, A.next(), Ready::READ), Ready::READ);
            deregister(&mut backend, A.next());
        }
    }
    Ok(())
}

/// A hundred sources are ready at once, and the callback of the first closes all the
/// others: none of them is reported by a later wait, even if the backend fetched their
/// events together or handed out only a part of them.
pub fn forgets_the_rest_of_a_batch<T: Backend>(lab: &Lab<T>) -> Verdict {
    const SOURCES: u32 = 100;
    need_descriptors(SOURCES.into())?;
    for mode in [Mode::Level, Mode::Oneshot] {
        let mut sockets: Vec<_> =
            (0..SOURCES).map(|index| Some((Token::new(index, 0), to_itself()))).collect();
        let mut backend = lab.backend()?;
        for (token, socket) in sockets.iter().flatten() {
            register(&mut backend, *token, socket, Ready::READ, mode);
        }
        silent(&mut backend, "nothing was sent");
        for (_, socket) in sockets.iter().flatten() {
            socket.send(b"x").expect("a datagram to oneself");
        }
        let first = wait_for(&mut backend, Duration::from_secs(10));
        let first = first.first().expect("datagrams were sent to every source").token();
        for socket in &mut sockets {
            if let Some((token, _)) = socket.take_if(|(token, _)| *token != first) {
                deregister(&mut backend, token);
            }
        }
        for _ in 0..3 {
            for event in wait_once(&mut backend, Some(Duration::from_millis(20))) {
                assert_eq!(event.token(), first, "all others were deregistered ({mode:?})");
            }
        }
        deregister(&mut backend, first);
    }
    Ok(())
}

/// Changes that the kernel has not heard of die with their registration: they are not
/// applied to a closed number, which fails (`EBADF` from `select` fails everybody), nor
/// to whoever has that number or that source next.
pub fn forgets_changes_not_yet_flushed<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (other, other_far) = tcp_pair();
    let (same, same_far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, B, &other, Ready::READ, Mode::Level);

    let (never_told, _far) = tcp_pair();
    register(&mut backend, A, &never_told, Ready::WRITE, Mode::Level);
    deregister(&mut backend, A);
    drop(never_told);
    silent(&mut backend, "registered, deregistered and closed before the wait");

    let (changed, _far) = tcp_pair();
    register(&mut backend, A, &changed, Ready::READ, Mode::Level);
    silent(&mut backend, "nothing was sent");
    modify(&mut backend, A, Ready::WRITE, Mode::Level);
    deregister(&mut backend, A);
    drop(changed);
    silent(&mut backend, "changed, deregistered and closed before the wait");

    for (interest, mode) in WATCHED {
        let (old, _old_far) = tcp_pair();
        register(&mut backend, A, &old, Ready::READ, Mode::Level);
        silent(&mut backend, "nothing was sent");
        modify(&mut backend, A, interest, mode);
        deregister(&mut backend, A);
        let (new, new_far) = reopened(old);
        register(&mut backend, A.next(), &new, Ready::READ, Mode::Level);
        silent(&mut backend, "the change was to the former owner of the number");
        send(&new_far, b"x");
        assert_eq!(await_ready(&mut backend, A.next(), Ready::READ), Ready::READ);
        deregister(&mut backend, A.next());
    }

    register(&mut backend, A, &same, Ready::WRITE, Mode::Level);
    deregister(&mut backend, A);
    register(&mut backend, A.next(), &same, Ready::READ, Mode::Level);
    silent(&mut backend, "WRITE was the interest of an earlier registration");
    send(&same_far, b"x");
    assert_eq!(await_ready(&mut backend, A.next(), Ready::READ), Ready::READ);
    drain(&same);
    send(&other_far, b"x");
    await_ready(&mut backend, B, Ready::READ);
    Ok(())
}

/// Once deregistered and closed, a source is silent even if a duplicate of its
/// descriptor lives on. `epoll` watches the open file, not the descriptor: a backend
/// that leaves the removal to `close` gets events for ever that it cannot end.
pub fn ignores_other_descriptors_of_the_file<T: Backend>(lab: &Lab<T>) -> Verdict {
    for (interest, mode) in WATCHED {
        for silenced in [false, true] {
            let (near, far) = tcp_pair();
            let duplicate = near.try_clone().expect("a duplicate descriptor");
            let mut backend = lab.backend()?;
            register(&mut backend, A, &near, Ready::READ, Mode::Level);
            silent(&mut backend, "nothing was sent");
            modify(&mut backend, A, interest, mode);
            ready_now(&mut backend, A);
            if silenced {
                modify(&mut backend, A, Ready::NONE, mode);
            }
            deregister(&mut backend, A);
            drop(near);
            send(&far, b"x");
            arrived(&duplicate);
            silent(&mut backend, "the source was deregistered; a duplicate of it is open");

            register(&mut backend, B, &duplicate, Ready::READ, Mode::Level);
            assert_eq!(await_ready(&mut backend, B, Ready::READ), Ready::READ);
            deregister(&mut backend, B);
            drop(far);
            silent(&mut backend, "the duplicate was deregistered too");
        }
    }
    Ok(())
}

/// Once deregistered and closed, a source is really closed: its peer sees the end, by the
/// next wait at the latest. A poll of `io_uring` that is still armed, or an entry that
/// holds a reference, keeps the file open without any descriptor.
pub fn lets_go_of_the_file<T: Backend>(lab: &Lab<T>) -> Verdict {
    let mut backend = lab.backend()?;
    for (interest, mode) in WATCHED {
        for known in [false, true] {
            let (near, far) = tcp_pair();
            register(&mut backend, A, &near, interest, mode);
            if known {
                wait_once(&mut backend, Some(Duration::ZERO));
            }
            deregister(&mut backend, A);
            drop(near);
            wait_once(&mut backend, Some(Duration::ZERO));
            let closed = Instant::now();
            while !drain(&far) {
                let elapsed = closed.elapsed();
                assert!(elapsed < SOON, "closed, but still open to its peer after {elapsed:?}");
                std::thread::yield_now();
            }
        }
    }
    Ok(())
}

/// A source that the kernel does not watch at the moment can be deregistered like any
/// other, and registered again. A backend that removes it from the kernel regardless
/// is told `ENOENT` here.
pub fn works_on_silent_and_spent_sources<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (reserved, reserved_far) = tcp_pair();
    let (silenced, silenced_far) = tcp_pair();
    let (spent, spent_far) = tcp_pair();
    let (hung_up, hung_up_far) = tcp_pair();
    let mut backend = lab.backend()?;
    let d = Token::new(3, 0);
    for round in 0..2 {
        let wait = |backend: &mut T| {
            // In the second round the kernel learns of nothing until the end.
            if round == 0 {
                wait_once(backend, Some(Duration::ZERO));
            }
        };
        register(&mut backend, A, &reserved, Ready::NONE, Mode::Level);
        register(&mut backend, B, &silenced, Ready::READ, Mode::Level);
        wait(&mut backend);
        modify(&mut backend, B, Ready::NONE, Mode::Level);
        register(&mut backend, C, &spent, Ready::WRITE, Mode::Oneshot);
        if round == 0 {
            await_ready(&mut backend, C, Ready::WRITE);
        }
        register(&mut backend, d, &hung_up, Ready::READ, Mode::Level);
        wait(&mut backend);
        if round == 0 {
            hung_up_far.shutdown(std::net::Shutdown::Both).expect("a shutdown");
            await_ready(&mut backend, d, Ready::READ);
            modify(&mut backend, d, Ready::NONE, Mode::Level);
        }
        for token in [A, B, C, d] {
            deregister(&mut backend, token);
        }
        silent(&mut backend, "everything was deregistered");
    }
    let sources =
        [(A, &reserved, reserved_far), (B, &silenced, silenced_far), (C, &spent, spent_far)];
    for (token, near, far) in sources {
        register(&mut backend, token.next(), near, Ready::READ, Mode::Level);
        send(&far, b"x");
        await_ready(&mut backend, token.next(), Ready::READ);
        deregister(&mut backend, token.next());
    }
    Ok(())
}

/// The second `deregister` of a token is `NotFound`, and does not touch the
/// registration that has its index by now.
pub fn twice_is_not_found<T: Backend>(lab: &Lab<T>) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    let twice = |backend: &mut T| {
        let error = backend.deregister(A).expect_err("deregistered before");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    };
    register(&mut backend, A, &near, Ready::READ, Mode::Level);
    deregister(&mut backend, A);
    twice(&mut backend);
    wait_once(&mut backend, Some(Duration::ZERO));
    twice(&mut backend);

    register(&mut backend, A.next(), &near, Ready::READ, Mode::Level);
    twice(&mut backend);
    send(&far, b"x");
    await_ready(&mut backend, A.next(), Ready::READ);
    twice(&mut backend);
    await_ready(&mut backend, A.next(), Ready::READ);
    Ok(())
}

/// A UDP socket that is its own peer: one descriptor that can be made readable.
fn to_itself() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a UDP port");
    socket.connect(socket.local_addr().expect("its address")).expect("itself as a peer");
    socket.set_nonblocking(true).expect("a non-blocking socket");
    socket
}

/// Closes `old` and makes a new connection, one end of which has its number. There is
/// no moment in between at which another thread could take it.
#[cfg(unix)]
fn reopened(old: TcpStream) -> (TcpStream, TcpStream) {
    use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
    let (near, far) = tcp_pair();
    let number = old.into_raw_fd();
    // SAFETY: both are open descriptors that belong to this function.
    let result = unsafe { libc::dup2(near.as_raw_fd(), number) };
    assert_eq!(result, number, "dup2: {}", std::io::Error::last_os_error());
    // SAFETY: the number names a duplicate of `near`, which nobody else owns.
    (unsafe { TcpStream::from_raw_fd(number) }, far)
}

/// Closes `old` and makes a new connection. Windows lets nobody choose a socket's
/// number, but likes to use one again.
#[cfg(windows)]
fn reopened(old: TcpStream) -> (TcpStream, TcpStream) {
    drop(old);
    tcp_pair()
}
