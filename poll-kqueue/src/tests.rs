//! What is special to this backend; the rest is in the suite.

use std::io::{Read, Write, pipe};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use poll_core::Wake;

use super::*;

const A: Token = Token::new(0, 0);
const B: Token = Token::new(1, 0);

/// A backend of each kind there is here.
fn backends() -> Vec<Kqueue> {
    #[cfg(all(target_os = "linux", not(libkqueue)))]
    return [Rules::Lenient, Rules::Strict].map(|rules| Kqueue::with_rules(rules).unwrap()).into();
    #[cfg(not(all(target_os = "linux", not(libkqueue))))]
    vec![Kqueue::new().unwrap()]
}

fn register(kqueue: &mut Kqueue, token: Token, source: &impl AsRawFd, interest: Ready, mode: Mode) {
    // SAFETY: the tests keep their sources open, or close them on purpose.
    unsafe { kqueue.register(token, RawSource::of(source), interest, mode) }.unwrap();
}

/// A duplicate with a high number, which is free once it is closed: no other test
/// has one of the same `ten`.
pub(crate) fn high(ten: i32, source: impl Into<OwnedFd>) -> OwnedFd {
    let least = if cfg!(target_os = "linux") { 800 } else { 200 } + ten;
    // SAFETY: it takes no pointer.
    let fd = unsafe { libc::fcntl(source.into().as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    assert!(fd >= least, "{}", io::Error::last_os_error());
    // SAFETY: the descriptor is new and nobody else's.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// What a wait that does not wait reports, by token: kernels choose the order.
fn now(kqueue: &mut Kqueue) -> Vec<(Token, Ready)> {
    let mut events = Vec::new();
    kqueue.wait(Some(Duration::ZERO), &mut events).unwrap();
    let ready = events.iter().map(|event| match event {
        Event::Ready { token, ready } => (*token, *ready),
        Event::Done { .. } => panic!("there are no operations"),
    });
    let mut ready: Vec<_> = ready.collect();
    ready.sort_by_key(|(token, _)| *token);
    ready
}

#[test]
fn a_pipe_that_is_broken_already_is_reported_not_refused() {
    for mut kqueue in backends() {
        let (_, writer) = pipe().unwrap();
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"x").unwrap();
        register(&mut kqueue, A, &writer, Ready::WRITE, Mode::Level);
        register(&mut kqueue, B, &near, Ready::READ, Mode::Level);
        let broken = (A, Ready::WRITE | Ready::ERROR);
        for _ in 0..3 {
            assert_eq!(now(&mut kqueue), [broken, (B, Ready::READ)], "and it starves nobody");
        }
        for mode in [Mode::Oneshot, Mode::Edge] {
            kqueue.modify(A, Ready::WRITE, mode).unwrap();
            assert_eq!(now(&mut kqueue), [broken, (B, Ready::READ)]);
            assert_eq!(now(&mut kqueue), [(B, Ready::READ)]);
        }
    }
}

#[test]
fn a_failing_change_is_an_error_of_its_source_alone() {
    for mut kqueue in backends() {
        let (closed, _closed_far) = UnixStream::pair().unwrap();
        let closed = high(0, closed);
        let (near, mut far) = UnixStream::pair().unwrap();
        register(&mut kqueue, A, &closed, Ready::READ, Mode::Level);
        register(&mut kqueue, B, &near, Ready::NONE, Mode::Level);
        far.write_all(b"x").unwrap();
        drop(closed);
        kqueue.modify(A, Ready::READ | Ready::WRITE, Mode::Level).unwrap();
        kqueue.modify(B, Ready::READ, Mode::Level).unwrap();
        let error = (A, Ready::READ | Ready::WRITE | Ready::ERROR);
        assert_eq!(now(&mut kqueue), [error, (B, Ready::READ)]);
        assert_eq!(now(&mut kqueue), [(B, Ready::READ)], "the dead are reported once");
        kqueue.deregister(A).unwrap();
    }
}

#[test]
fn a_refused_registration_leaves_nothing() {
    for mut kqueue in backends() {
        let closed = high(10, UnixStream::pair().unwrap().0).as_raw_fd();
        let both = Ready::READ | Ready::WRITE;
        // SAFETY: the descriptor is closed, which is the point.
        let refused = unsafe { kqueue.register(A, RawSource::from_fd(closed), both, Mode::Level) };
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(kqueue.deregister(A).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

#[test]
fn a_disconnect_alone_is_not_mistaken_for_data() {
    for mut kqueue in backends() {
        for mode in [Mode::Level, Mode::Oneshot, Mode::Edge] {
            let (near, mut far) = UnixStream::pair().unwrap();
            let (mut reader, mut writer) = pipe().unwrap();
            register(&mut kqueue, A, &near, Ready::DISCONNECT, mode);
            register(&mut kqueue, B, &reader, Ready::DISCONNECT, mode);
            far.write_all(b"data").unwrap();
            writer.write_all(b"data").unwrap();
            for _ in 0..3 {
                assert_eq!(now(&mut kqueue), []);
            }
            far.shutdown(Shutdown::Write).unwrap();
            drop(writer);
            let both = [(A, Ready::DISCONNECT), (B, Ready::DISCONNECT)];
            assert_eq!(now(&mut kqueue), both);
            assert_eq!(now(&mut kqueue), if mode == Mode::Level { &both[..] } else { &[] });
            assert_eq!(reader.read(&mut [0; 8]).unwrap(), 4);
            kqueue.deregister(A).unwrap();
            kqueue.deregister(B).unwrap();
        }
    }
}

#[test]
fn old_wakers_follow_to_a_new_queue() {
    for mut kqueue in backends() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let waker = kqueue.waker();
        register(&mut kqueue, A, &near, Ready::READ, Mode::Level);
        for _ in 0..2 {
            kqueue.after_fork().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| waker.wake().unwrap());
                kqueue.wait(None, &mut Vec::new()).unwrap();
            });
        }
        far.write_all(b"x").unwrap();
        assert_eq!(now(&mut kqueue), [(A, Ready::READ)]);
    }
}

#[cfg(all(target_os = "linux", not(libkqueue)))]
mod calls {
    use std::net::UdpSocket;

    use super::*;

    /// How many kevent calls `piece` makes.
    fn calls<R>(kqueue: &mut Kqueue, piece: impl FnOnce(&mut Kqueue) -> R) -> u64 {
        let before = kqueue.queue.calls();
        piece(kqueue);
        kqueue.queue.calls() - before
    }

    #[test]
    fn a_wait_is_one_call_however_much_was_changed() {
        const SOURCES: u32 = 300;
        let both = Ready::READ | Ready::WRITE;
        let sockets: Vec<_> =
            (0..SOURCES).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        for mut kqueue in backends() {
            for (index, socket) in sockets.iter().enumerate() {
                let token = Token::new(index as u32, 0);
                let register =
                    |kqueue: &mut Kqueue| register(kqueue, token, socket, both, Mode::Level);
                assert_eq!(calls(&mut kqueue, register), 1);
            }
            // Two knotes a source are deleted and added: more changes than a batch has events.
            assert!(SOURCES as usize * 4 > BATCH);
            let changes = calls(&mut kqueue, |kqueue| {
                for index in 0..SOURCES {
                    kqueue.modify(Token::new(index, 0), Ready::NONE, Mode::Level).unwrap();
                    kqueue.modify(Token::new(index, 0), both, Mode::Oneshot).unwrap();
                }
            });
            assert_eq!(changes, 0);
            let wait = |kqueue: &mut Kqueue| assert_eq!(now(kqueue).len(), SOURCES as usize);
            assert_eq!(calls(&mut kqueue, wait), 1);
            assert_eq!(calls(&mut kqueue, |kqueue| kqueue.deregister(A).unwrap()), 1);
        }
    }

    #[test]
    fn data_behind_a_disconnect_does_not_spin() {
        for mut kqueue in backends() {
            let (reader, mut writer) = pipe().unwrap();
            register(&mut kqueue, A, &reader, Ready::DISCONNECT, Mode::Level);
            writer.write_all(b"data").unwrap();
            let waits = calls(&mut kqueue, |kqueue| {
                kqueue.wait(Some(Duration::from_millis(20)), &mut Vec::new()).unwrap();
            });
            assert!((2..=4).contains(&waits), "{waits} calls for one arrival of data");
        }
    }

    #[test]
    fn a_wake_of_an_awake_backend_is_no_call() {
        let mut kqueue = Kqueue::new().unwrap();
        let waker = kqueue.waker();
        assert_eq!(calls(&mut kqueue, |_| waker.wake().unwrap()), 0);
        assert_eq!(calls(&mut kqueue, |kqueue| kqueue.wait(None, &mut Vec::new()).unwrap()), 1);
    }
}
