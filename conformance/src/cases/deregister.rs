//! Point 2: deregistering is immediate, and a reused descriptor number is a new source.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use poll_core::{Backend, BoxedBackend, Interest, Mode, Readiness, Token};

use crate::support::limits::need_descriptors;
use crate::support::observe::{
    A, B, C, SOON, await_ready, deregister, modify, ready_now, ready_of, register, silent,
    wait_for, wait_once,
};
use crate::support::sleep::sleeps;
use crate::support::sources::{arrived, drain, send, tcp_pair};
use crate::{Lab, Verdict};

/// The states in which a source is deregistered.
const WATCHED: [(Interest, Mode); 4] = [
    (Interest::READ, Mode::Level),
    (Interest::READ, Mode::Oneshot),
    (Interest::READ.union(Interest::WRITE), Mode::Level),
    (Interest::WRITE, Mode::Oneshot),
];

/// No wait after `deregister` reports the token, whether its source was ready before or becomes
/// ready later; other sources are unaffected. Backends with queues (`io_uring`, completion ports)
/// may hold an undelivered event of the source.
pub fn takes_effect_immediately(lab: &Lab) -> Verdict {
    for (interest, mode) in WATCHED {
        for reported in [false, true] {
            let (near, far) = tcp_pair();
            let (other, other_far) = tcp_pair();
            let mut backend = lab.backend()?;
            register(&mut backend, A, &near, Interest::READ, Mode::Level);
            register(&mut backend, B, &other, Interest::READ, Mode::Level);
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
            await_ready(&mut backend, B, Readiness::READ);
        }
    }
    Ok(())
}

/// A descriptor number that is closed and immediately reopened is a new source: pending events of
/// the old source are never reported for the new one. A server that closes a connection and accepts
/// the next in one iteration depends on this.
pub fn allows_descriptor_reuse(lab: &Lab) -> Verdict {
    for (interest, mode) in WATCHED {
        for reported in [false, true] {
            let (old, old_far) = tcp_pair();
            let (other, other_far) = tcp_pair();
            let mut backend = lab.backend()?;
            register(&mut backend, A, &old, Interest::READ, Mode::Level);
            register(&mut backend, B, &other, Interest::READ, Mode::Level);
            silent(&mut backend, "nothing was sent");
            // The kernel has both registrations; both sources become ready in one batch.
            modify(&mut backend, A, interest, mode);
            send(&old_far, b"x");
            send(&other_far, b"x");
            arrived(&old);
            arrived(&other);
            if reported {
                let events = wait_once(&mut backend, Some(Duration::ZERO));
                assert_eq!(ready_of(&events, A), interest.to_readiness(), "ready before the wait");
                assert_eq!(ready_of(&events, B), Readiness::READ, "ready before the wait");
            }
            deregister(&mut backend, A);
            let (new, new_far) = reopened(old);
            register(&mut backend, A.next(), &new, Interest::READ, Mode::Level);
            let events = wait_once(&mut backend, Some(Duration::ZERO));
            assert_eq!(
                ready_of(&events, B),
                Readiness::READ,
                "only the other source was deregistered"
            );
            assert_eq!(events.len(), 1, "the number belongs to a new source: {events:?}");
            drain(&other);
            silent(&mut backend, "the number belongs to a new source, which has no data");
            drop(old_far);
            silent(&mut backend, "the peer of a deregistered source closed");
            send(&new_far, b"x");
            assert_eq!(await_ready(&mut backend, A.next(), Readiness::READ), Readiness::READ);
            deregister(&mut backend, A.next());
        }
    }
    Ok(())
}

/// A hundred sources become ready together, and the callback of the first deregisters all the
/// others: no later wait reports them, even if the backend fetched their events in one batch and
/// delivered only a part.
pub fn discards_undelivered_events(lab: &Lab) -> Verdict {
    const SOURCES: u32 = 100;
    need_descriptors(SOURCES.into())?;
    for mode in [Mode::Level, Mode::Oneshot] {
        let mut sockets: Vec<_> =
            (0..SOURCES).map(|index| Some((Token::new(index, 0), self_connected()))).collect();
        let mut backend = lab.backend()?;
        for (token, socket) in sockets.iter().flatten() {
            register(&mut backend, *token, socket, Interest::READ, mode);
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

/// Changes that have not reached the kernel are discarded with their registration. They are not
/// applied to a closed descriptor, which fails (`EBADF` fails a whole `select`), nor to the next
/// owner of that number or source.
pub fn discards_unflushed_changes(lab: &Lab) -> Verdict {
    let (other, other_far) = tcp_pair();
    let (same, same_far) = tcp_pair();
    let mut backend = lab.backend()?;
    register(&mut backend, B, &other, Interest::READ, Mode::Level);

    let (never_told, _far) = tcp_pair();
    register(&mut backend, A, &never_told, Interest::WRITE, Mode::Level);
    deregister(&mut backend, A);
    drop(never_told);
    silent(&mut backend, "registered, deregistered and closed before the wait");

    let (changed, _far) = tcp_pair();
    register(&mut backend, A, &changed, Interest::READ, Mode::Level);
    silent(&mut backend, "nothing was sent");
    modify(&mut backend, A, Interest::WRITE, Mode::Level);
    deregister(&mut backend, A);
    drop(changed);
    silent(&mut backend, "changed, deregistered and closed before the wait");

    for (interest, mode) in WATCHED {
        let (old, _old_far) = tcp_pair();
        register(&mut backend, A, &old, Interest::READ, Mode::Level);
        silent(&mut backend, "nothing was sent");
        modify(&mut backend, A, interest, mode);
        deregister(&mut backend, A);
        let (new, new_far) = reopened(old);
        register(&mut backend, A.next(), &new, Interest::READ, Mode::Level);
        silent(&mut backend, "the change was to the previous owner of the descriptor number");
        send(&new_far, b"x");
        assert_eq!(await_ready(&mut backend, A.next(), Readiness::READ), Readiness::READ);
        deregister(&mut backend, A.next());
    }

    register(&mut backend, A, &same, Interest::WRITE, Mode::Level);
    deregister(&mut backend, A);
    register(&mut backend, A.next(), &same, Interest::READ, Mode::Level);
    silent(&mut backend, "WRITE was the interest of an earlier registration");
    send(&same_far, b"x");
    assert_eq!(await_ready(&mut backend, A.next(), Readiness::READ), Readiness::READ);
    drain(&same);
    send(&other_far, b"x");
    await_ready(&mut backend, B, Readiness::READ);
    Ok(())
}

/// Once deregistered and closed, a source is silent even if a duplicate of its descriptor stays
/// open. `epoll` watches the open file description: a backend that relies on `close` for removal
/// receives events that it cannot stop.
pub fn ignores_duplicated_descriptors(lab: &Lab) -> Verdict {
    for (interest, mode) in WATCHED {
        for silenced in [false, true] {
            let (near, far) = tcp_pair();
            let duplicate = near.try_clone().expect("a duplicate descriptor");
            let mut backend = lab.backend()?;
            register(&mut backend, A, &near, Interest::READ, Mode::Level);
            silent(&mut backend, "nothing was sent");
            modify(&mut backend, A, interest, mode);
            ready_now(&mut backend, A);
            if silenced {
                modify(&mut backend, A, Interest::NONE, mode);
            }
            deregister(&mut backend, A);
            drop(near);
            send(&far, b"x");
            arrived(&duplicate);
            silent(&mut backend, "the source was deregistered; a duplicate of it is open");

            register(&mut backend, B, &duplicate, Interest::READ, Mode::Level);
            assert_eq!(await_ready(&mut backend, B, Readiness::READ), Readiness::READ);
            deregister(&mut backend, B);
            drop(far);
            silent(&mut backend, "the duplicate was deregistered too");
        }
    }
    Ok(())
}

/// Once deregistered and closed, a source is closed in the kernel: its peer reads the end of file
/// by the next wait at the latest. An armed `io_uring` poll, or an entry that holds a reference,
/// would keep the file open without any descriptor.
pub fn releases_the_file(lab: &Lab) -> Verdict {
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
                assert!(
                    elapsed < SOON,
                    "closed, but the peer saw no end of file after {elapsed:?}"
                );
                std::thread::yield_now();
            }
        }
    }
    Ok(())
}

/// A source that the kernel does not watch at the moment can be deregistered and registered again.
/// A backend that removes it from the kernel unconditionally gets `ENOENT`.
pub fn works_on_silent_and_spent_sources(lab: &Lab) -> Verdict {
    let (reserved, reserved_far) = tcp_pair();
    let (silenced, silenced_far) = tcp_pair();
    let (spent, spent_far) = tcp_pair();
    let (hung_up, hung_up_far) = tcp_pair();
    let mut backend = lab.backend()?;
    let d = Token::new(3, 0);
    for round in 0..2 {
        let wait = |backend: &mut BoxedBackend| {
            // In the second round, no change reaches the kernel until the end.
            if round == 0 {
                wait_once(backend, Some(Duration::ZERO));
            }
        };
        register(&mut backend, A, &reserved, Interest::NONE, Mode::Level);
        register(&mut backend, B, &silenced, Interest::READ, Mode::Level);
        wait(&mut backend);
        modify(&mut backend, B, Interest::NONE, Mode::Level);
        register(&mut backend, C, &spent, Interest::WRITE, Mode::Oneshot);
        if round == 0 {
            await_ready(&mut backend, C, Readiness::WRITE);
        }
        register(&mut backend, d, &hung_up, Interest::READ, Mode::Level);
        wait(&mut backend);
        if round == 0 {
            hung_up_far.shutdown(std::net::Shutdown::Both).expect("a shutdown");
            await_ready(&mut backend, d, Readiness::READ);
            modify(&mut backend, d, Interest::NONE, Mode::Level);
        }
        for token in [A, B, C, d] {
            deregister(&mut backend, token);
        }
        silent(&mut backend, "everything was deregistered");
    }
    let sources =
        [(A, &reserved, reserved_far), (B, &silenced, silenced_far), (C, &spent, spent_far)];
    for (token, near, far) in sources {
        register(&mut backend, token.next(), near, Interest::READ, Mode::Level);
        send(&far, b"x");
        await_ready(&mut backend, token.next(), Readiness::READ);
        deregister(&mut backend, token.next());
    }
    Ok(())
}

/// A second `deregister` of a token is `NotFound` and does not affect the current registration of
/// its index.
pub fn twice_is_not_found(lab: &Lab) -> Verdict {
    let (near, far) = tcp_pair();
    let mut backend = lab.backend()?;
    let twice = |backend: &mut BoxedBackend| {
        let error = backend.deregister(A).expect_err("deregistered before");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    };
    register(&mut backend, A, &near, Interest::READ, Mode::Level);
    deregister(&mut backend, A);
    twice(&mut backend);
    wait_once(&mut backend, Some(Duration::ZERO));
    twice(&mut backend);

    register(&mut backend, A.next(), &near, Interest::READ, Mode::Level);
    twice(&mut backend);
    send(&far, b"x");
    await_ready(&mut backend, A.next(), Readiness::READ);
    twice(&mut backend);
    await_ready(&mut backend, A.next(), Readiness::READ);
    Ok(())
}

/// Waits sleep after a ready source was deregistered. If the kernel still watched it, it would end
/// every system call of a wait, which would last for its timeout and spin.
pub fn leaves_waits_asleep(lab: &Lab) -> Verdict {
    for (interest, mode) in WATCHED {
        let ((near, far), (other, _peer)) = (tcp_pair(), tcp_pair());
        let mut backend = lab.backend()?;
        register(&mut backend, A, &near, interest, mode);
        register(&mut backend, B, &other, Interest::READ, Mode::Level);
        send(&far, b"x");
        arrived(&near);
        await_ready(&mut backend, A, interest);
        deregister(&mut backend, A);
        silent(&mut backend, "the source was deregistered");
        sleeps(&mut backend, Duration::from_millis(100), "the source was deregistered")?;
    }
    Ok(())
}

/// A UDP socket that is its own peer: one descriptor that can be made readable.
fn self_connected() -> UdpSocket {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a UDP port");
    socket.connect(socket.local_addr().expect("its address")).expect("itself as a peer");
    socket.set_nonblocking(true).expect("a non-blocking socket");
    socket
}

/// Closes `old` and makes a new connection, one end of which has its descriptor number. `dup2`
/// replaces it atomically, so no other thread can take the number in between.
#[cfg(unix)]
fn reopened(old: TcpStream) -> (TcpStream, TcpStream) {
    use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd};
    let (near, far) = tcp_pair();
    let number = old.into_raw_fd();
    // SAFETY: both descriptors are open and owned by this function.
    let result = unsafe { libc::dup2(near.as_raw_fd(), number) };
    assert_eq!(result, number, "dup2: {}", std::io::Error::last_os_error());
    // SAFETY: `dup2` made `number` a duplicate of `near`; `old` was released by `into_raw_fd`, so
    // this is its only owner.
    (unsafe { TcpStream::from_raw_fd(number) }, far)
}

/// Closes `old` and makes a new connection. Windows does not let a program choose a socket's handle
/// value, but tends to reuse recent ones.
#[cfg(windows)]
fn reopened(old: TcpStream) -> (TcpStream, TcpStream) {
    drop(old);
    tcp_pair()
}
