//! Properties of this backend alone. The conformance suite tests the others.

use std::io::{Read, Write, pipe};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use poll_core::{Readiness, Wake};

use super::*;

const A: Token = Token::new(0, 0);
const B: Token = Token::new(1, 0);

/// A backend for each rule set of the model, or the only one of this system.
fn backends() -> Vec<Kqueue> {
    #[cfg(all(target_os = "linux", not(libkqueue)))]
    return [Rules::FreeBsd, Rules::NetBsd, Rules::Apple]
        .map(|rules| Kqueue::with_rules(rules).unwrap())
        .into();
    #[cfg(not(all(target_os = "linux", not(libkqueue))))]
    vec![Kqueue::new().unwrap()]
}

fn register(
    kqueue: &mut Kqueue,
    token: Token,
    source: &impl AsRawFd,
    interest: Interest,
    mode: Mode,
) {
    // SAFETY: each test keeps its sources open while they are registered, or closes them on
    // purpose to see the error.
    unsafe { kqueue.register(token, RawSource::of(source), interest, mode) }.unwrap();
}

/// A duplicate with a high number, which stays unused after it is closed: each test has its own
/// `offset`, a multiple of ten.
pub(crate) fn high_descriptor(offset: i32, source: impl Into<OwnedFd>) -> OwnedFd {
    let least = if cfg!(target_os = "linux") { 800 } else { 200 } + offset;
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::fcntl(source.into().as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    assert!(fd >= least, "{}", io::Error::last_os_error());
    // SAFETY: the kernel has just made the descriptor, and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A pseudo-terminal: its master and its slave.
pub(crate) fn pseudo_terminal() -> (OwnedFd, OwnedFd) {
    use std::ptr::null_mut;

    let (mut master, mut slave) = (-1, -1);
    // SAFETY: the call writes two numbers; the null pointers stand for defaults.
    let made = unsafe {
        libc::openpty(&raw mut master, &raw mut slave, null_mut(), null_mut(), null_mut())
    };
    assert_eq!(made, 0, "{}", io::Error::last_os_error());
    // SAFETY: the call has just made both descriptors, and nothing else owns them.
    [master, slave].map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }).into()
}

/// Resets the connection from `peer`, and waits until `socket` has the error.
pub(crate) fn reset_peer_of(socket: &TcpStream, peer: TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let (value, len) = ((&raw const linger).cast(), size_of::<libc::linger>() as libc::socklen_t);
    let fd = peer.as_raw_fd();
    // SAFETY: the kernel reads one structure of that length.
    let set = unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, value, len) };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
    drop(peer);
    let mut polled = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which outlives the call.
    assert_eq!(unsafe { libc::poll(&mut polled, 1, -1) }, 1);
}

/// The events of a wait that does not block, sorted by token: kernels choose the order.
fn poll_now(kqueue: &mut Kqueue) -> Vec<(Token, Readiness)> {
    let mut events = Vec::new();
    kqueue.wait(Some(Duration::ZERO), &mut events).unwrap();
    let ready = events.iter().map(|event| match event {
        Event::Ready { token, ready } => (*token, *ready),
        Event::Done { .. } => panic!("this backend has no operations"),
    });
    let mut ready: Vec<_> = ready.collect();
    ready.sort_by_key(|(token, _)| *token);
    ready
}

/// Checks that a source is ready in every wait while it is level-triggered, and once otherwise,
/// and that another source is reported beside it.
fn reports_beside_another(
    kqueue: &mut Kqueue,
    source: &impl AsRawFd,
    interest: Interest,
    expected: impl Fn(Readiness) -> bool,
) {
    let (near, mut far) = UnixStream::pair().unwrap();
    far.write_all(b"x").unwrap();
    register(kqueue, A, source, interest, Mode::Level);
    register(kqueue, B, &near, Interest::READ, Mode::Level);
    let check = |kqueue: &mut Kqueue| match poll_now(kqueue)[..] {
        [(A, ready), (B, Readiness::READ)] => assert!(expected(ready), "{ready:?}"),
        ref other => panic!("{other:?}"),
    };
    for _ in 0..3 {
        check(kqueue);
    }
    for mode in [Mode::Oneshot, Mode::Edge] {
        kqueue.modify(A, interest, mode).unwrap();
        check(kqueue);
        assert_eq!(poll_now(kqueue), [(B, Readiness::READ)], "{mode:?}");
    }
    kqueue.deregister(A).unwrap();
    kqueue.deregister(B).unwrap();
}

#[test]
fn a_broken_pipe_is_registered_and_ready() {
    for mut kqueue in backends() {
        let (_, writer) = pipe().unwrap();
        // Apple's kernel accepts the knote, and reports the end of file instead of an error.
        let expected =
            |ready| ready == Readiness::WRITE || ready == Readiness::WRITE | Readiness::ERROR;
        reports_beside_another(&mut kqueue, &writer, Interest::WRITE, expected);
    }
}

#[test]
fn a_terminal_without_a_master_is_registered_and_at_its_end() {
    let both = Interest::READ | Interest::WRITE;
    for mut kqueue in backends() {
        for interest in [Interest::READ, Interest::WRITE, both, Interest::DISCONNECT] {
            let (_, slave) = pseudo_terminal();
            reports_beside_another(&mut kqueue, &slave, interest, |ready| {
                // The end of one direction alone is no hang-up.
                ready.contains(interest.to_readiness()) && !ready.contains(Readiness::ERROR)
            });
        }
    }
}

#[test]
fn a_terminal_that_hung_up_is_reported_after_a_modification() {
    for mut kqueue in backends() {
        let (master, slave) = pseudo_terminal();
        register(&mut kqueue, A, &slave, Interest::NONE, Mode::Level);
        drop(master);
        kqueue.modify(A, Interest::READ | Interest::WRITE, Mode::Level).unwrap();
        let hung_up = Readiness::READ | Readiness::WRITE | Readiness::HANGUP;
        assert_eq!(poll_now(&mut kqueue), [(A, hung_up)]);
    }
}

#[test]
fn a_reset_is_not_out_of_band_data() {
    if !sys::HAS_EXCEPT {
        return assert!(check(Interest::PRIORITY).is_err());
    }
    for mut kqueue in backends() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        register(&mut kqueue, A, &near, Interest::PRIORITY, Mode::Level);
        reset_peer_of(&near, far);
        assert_eq!(poll_now(&mut kqueue), []);
    }
}

#[test]
fn a_failed_change_is_an_error_of_its_source_only() {
    for mut kqueue in backends() {
        let (closed, _closed_far) = UnixStream::pair().unwrap();
        let closed = high_descriptor(0, closed);
        let (near, mut far) = UnixStream::pair().unwrap();
        register(&mut kqueue, A, &closed, Interest::READ, Mode::Level);
        register(&mut kqueue, B, &near, Interest::NONE, Mode::Level);
        far.write_all(b"x").unwrap();
        drop(closed);
        kqueue.modify(A, Interest::READ | Interest::WRITE, Mode::Level).unwrap();
        kqueue.modify(B, Interest::READ, Mode::Level).unwrap();
        let error = (A, Readiness::READ | Readiness::WRITE | Readiness::ERROR);
        assert_eq!(poll_now(&mut kqueue), [error, (B, Readiness::READ)]);
        assert_eq!(
            poll_now(&mut kqueue),
            [(B, Readiness::READ)],
            "a closed descriptor is reported once"
        );
        kqueue.deregister(A).unwrap();
    }
}

#[test]
fn a_refused_registration_leaves_no_source() {
    for mut kqueue in backends() {
        let closed = high_descriptor(10, UnixStream::pair().unwrap().0).as_raw_fd();
        let both = Interest::READ | Interest::WRITE;
        // SAFETY: the descriptor is closed: the call fails.
        let refused = unsafe { kqueue.register(A, RawSource::from_fd(closed), both, Mode::Level) };
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(kqueue.deregister(A).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

#[test]
fn data_is_not_reported_as_disconnect() {
    for mut kqueue in backends() {
        for mode in [Mode::Level, Mode::Oneshot, Mode::Edge] {
            let (near, mut far) = UnixStream::pair().unwrap();
            let (mut reader, mut writer) = pipe().unwrap();
            register(&mut kqueue, A, &near, Interest::DISCONNECT, mode);
            register(&mut kqueue, B, &reader, Interest::DISCONNECT, mode);
            far.write_all(b"data").unwrap();
            writer.write_all(b"data").unwrap();
            for _ in 0..3 {
                assert_eq!(poll_now(&mut kqueue), []);
            }
            far.shutdown(Shutdown::Write).unwrap();
            drop(writer);
            let both = [(A, Readiness::DISCONNECT), (B, Readiness::DISCONNECT)];
            assert_eq!(poll_now(&mut kqueue), both);
            assert_eq!(poll_now(&mut kqueue), if mode == Mode::Level { &both[..] } else { &[] });
            assert_eq!(reader.read(&mut [0; 8]).unwrap(), 4);
            kqueue.deregister(A).unwrap();
            kqueue.deregister(B).unwrap();
        }
    }
}

#[test]
fn wakers_wake_the_new_queue_after_a_fork() {
    for mut kqueue in backends() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let waker = kqueue.waker();
        register(&mut kqueue, A, &near, Interest::READ, Mode::Level);
        for _ in 0..2 {
            kqueue.after_fork().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| waker.wake().unwrap());
                kqueue.wait(None, &mut Vec::new()).unwrap();
            });
        }
        far.write_all(b"x").unwrap();
        assert_eq!(poll_now(&mut kqueue), [(A, Readiness::READ)]);
    }
}

#[cfg(all(target_os = "linux", not(libkqueue)))]
mod calls {
    use std::net::UdpSocket;

    use super::*;

    /// The number of `kevent` calls in `body`.
    fn calls<R>(kqueue: &mut Kqueue, body: impl FnOnce(&mut Kqueue) -> R) -> u64 {
        let before = kqueue.queue.calls();
        body(kqueue);
        kqueue.queue.calls() - before
    }

    #[test]
    fn a_wait_is_one_call_with_any_number_of_changes() {
        const SOURCES: u32 = 300;
        let both = Interest::READ | Interest::WRITE;
        let sockets: Vec<_> =
            (0..SOURCES).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        for mut kqueue in backends() {
            for (index, socket) in sockets.iter().enumerate() {
                let token = Token::new(index as u32, 0);
                let register =
                    |kqueue: &mut Kqueue| register(kqueue, token, socket, both, Mode::Level);
                assert_eq!(calls(&mut kqueue, register), 1);
            }
            // Two knotes of each source are deleted and added: more changes than BATCH.
            assert!(SOURCES as usize * 4 > BATCH);
            let changes = calls(&mut kqueue, |kqueue| {
                for index in 0..SOURCES {
                    kqueue.modify(Token::new(index, 0), Interest::NONE, Mode::Level).unwrap();
                    kqueue.modify(Token::new(index, 0), both, Mode::Oneshot).unwrap();
                }
            });
            assert_eq!(changes, 0);
            let wait = |kqueue: &mut Kqueue| assert_eq!(poll_now(kqueue).len(), SOURCES as usize);
            assert_eq!(calls(&mut kqueue, wait), 1);
            assert_eq!(calls(&mut kqueue, |kqueue| kqueue.deregister(A).unwrap()), 1);
        }
    }

    #[test]
    fn unread_data_does_not_spin_an_interest_in_disconnect() {
        for mut kqueue in backends() {
            let (reader, mut writer) = pipe().unwrap();
            register(&mut kqueue, A, &reader, Interest::DISCONNECT, Mode::Level);
            writer.write_all(b"data").unwrap();
            let waits = calls(&mut kqueue, |kqueue| {
                kqueue.wait(Some(Duration::from_millis(20)), &mut Vec::new()).unwrap();
            });
            assert!((2..=4).contains(&waits), "{waits} calls for one arrival of data");
        }
    }

    #[test]
    fn a_wake_while_not_blocked_makes_no_call() {
        let mut kqueue = Kqueue::new().unwrap();
        let waker = kqueue.waker();
        assert_eq!(calls(&mut kqueue, |_| waker.wake().unwrap()), 0);
        assert_eq!(calls(&mut kqueue, |kqueue| kqueue.wait(None, &mut Vec::new()).unwrap()), 1);
    }
}
