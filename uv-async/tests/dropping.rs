//! What is dropped where the loop is not lent: it is cancelled or closed later, and may be complete by
//! then. Nothing that arrives meanwhile is lost. And futures that wait beside one that is dropped.

#![allow(unsafe_code)]

mod common;

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use common::{Backend, Runtime, every, serial};
use uv_async::{Rt, TcpListener, TcpStream, UdpSocket, yield_now};
use uv_core::{Handle, Loop, RunMode, Stream, Tcp, Timer};

/// What should not take that long has failed.
const LIMIT: Duration = Duration::from_secs(60);

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Polls a future once, which must wait.
fn start<F: Future>(rt: &Runtime, lp: &mut Loop<Backend>, future: &mut Pin<Box<F>>) {
    rt.enter(lp, || {
        assert!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    });
}

/// Iterations in which events are reported, and what was dropped is cancelled or closed.
fn iterate(lp: &mut Loop<Backend>) {
    for _ in 0..10 {
        lp.run(RunMode::NoWait).unwrap();
    }
}

/// Lets the tasks run that were spawned.
async fn start_tasks() {
    yield_now().await;
    yield_now().await;
}

/// The output of a future that should not have to wait for long.
fn finish<F: Future>(rt: &Runtime, lp: &mut Loop<Backend>, future: F) -> F::Output {
    rt.block_on(lp, rt.timeout(LIMIT, future)).unwrap().expect("it waits for nothing")
}

fn sockets(rt: &Runtime, lp: &mut Loop<Backend>) -> (UdpSocket<Backend>, UdpSocket<Backend>) {
    rt.enter(lp, || io::Result::Ok((UdpSocket::bind(rt, any())?, UdpSocket::bind(rt, any())?)))
        .unwrap()
}

/// Runs a case on each backend, and checks that it leaves no handle open.
fn each(case: impl Fn(&Runtime, &mut Loop<Backend>)) {
    let _serial = serial();
    every(|lp| {
        let rt = Rt::attach(lp);
        iterate(lp); // The first pass is due without an event.
        case(&rt, lp);
        rt.detach(lp);
        lp.run(RunMode::Default).unwrap();
        assert!(lp.walk().is_empty(), "handles are left: {:?}", lp.walk());
    });
}

/// Set when a future is woken.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn streams_are_closed() {
    each(|rt, lp| {
        let streams = finish(rt, lp, async { TcpStream::pair(rt) }).unwrap();
        let keys = [streams.0.key(), streams.1.key()];
        drop(streams);
        assert!(keys.iter().all(|key| !key.is_closing(lp)));
        finish(rt, lp, async {});
        assert!(keys.iter().all(|key| key.is_closing(lp)));
        iterate(lp);
        assert_eq!(lp.walk().len(), 1, "the runtime's handle is left");
    });
}

/// The loop need not run: what was dropped comes before what is started next.
#[test]
fn the_next_use_of_the_loop_closes() {
    each(|rt, lp| {
        let streams = finish(rt, lp, async { TcpStream::pair(rt) }).unwrap();
        let key = streams.0.key();
        drop(streams);
        rt.enter(lp, || rt.with(|lp| assert!(key.is_closing(lp))));
    });
}

#[test]
fn bytes_of_a_read_are_for_the_next() {
    each(|rt, lp| {
        let streams = finish(rt, lp, async {
            let (one, other) = TcpStream::pair(rt)?;
            // Large pieces, so that the next read is a request.
            one.write_slice(&[1; 8192]).await?;
            let (result, _) = other.read_exact(vec![0; 8192]).await;
            result.map(|()| (one, other))
        });
        let (one, other) = streams.unwrap();
        let mut read = Box::pin(other.read(vec![0; 64]));
        start(rt, lp, &mut read);
        drop(read);
        one.key().try_write(lp, b"late").unwrap();
        iterate(lp);
        let (result, bytes) = finish(rt, lp, other.read(vec![0; 64]));
        assert_eq!(&bytes[..result.unwrap()], b"late");
    });
}

/// A key that was given up has a reader until the loop can stop it: what that gets is put back.
#[test]
fn bytes_for_a_key_are_for_its_next_reader() {
    each(|rt, lp| {
        // A stream that nothing waits for does not keep the loop alive.
        let alive = Timer::after(lp, Duration::from_secs(3600), |_, _| {});
        for to_callback in [false, true] {
            let (one, key) = given_up(rt, lp);
            one.key().try_write(lp, b"late").unwrap();
            iterate(lp);
            one.key().try_write(lp, b"r").unwrap();
            let got = Rc::new(RefCell::new(Vec::new()));
            if to_callback {
                let inside = Rc::clone(&got);
                key.read_start(lp, move |_, _, bytes| {
                    inside.borrow_mut().extend_from_slice(bytes.unwrap());
                })
                .unwrap();
                finish(rt, lp, async {
                    while got.borrow().len() < 5 {
                        yield_now().await;
                    }
                });
                key.close(lp).unwrap();
            } else {
                let again = TcpStream::from_key(rt, key);
                let (result, bytes) = finish(rt, lp, again.read_exact(vec![0; 5]));
                result.unwrap();
                *got.borrow_mut() = bytes;
            }
            assert_eq!(*got.borrow(), b"later");
        }
        alive.close(lp).unwrap();
    });
}

#[test]
fn an_error_for_a_key_is_for_its_next_reader() {
    each(|rt, lp| {
        let alive = Timer::after(lp, Duration::from_secs(3600), |_, _| {});
        for pulled in [false, true] {
            let (one, key) = given_up(rt, lp);
            one.key().close_reset(lp).unwrap();
            iterate(lp);
            let again = TcpStream::from_key(rt, key);
            let result = if pulled {
                finish(rt, lp, async { again.read(vec![0; 8192]).await.0 })
            } else {
                finish(rt, lp, async { again.lend().await.map(|lent| lent.len()) })
            };
            assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        }
        alive.close(lp).unwrap();
    });
}

/// A connection, and the key of its other end, which was given up while the loop was reading.
fn given_up(rt: &Runtime, lp: &mut Loop<Backend>) -> (TcpStream<Backend>, Tcp) {
    let streams = finish(rt, lp, async {
        let listener = TcpListener::bind(rt, any())?;
        let one = TcpStream::connect(rt, listener.local_addr()?).await?;
        let other = listener.accept().await?;
        one.write_slice(b"first").await?;
        assert_eq!(&*other.lend().await?, b"first");
        io::Result::Ok((one, other))
    });
    let (one, other) = streams.unwrap();
    assert!(other.key().is_active(lp), "the loop goes on reading");
    let (key, unread) = other.into_key();
    assert!(unread.bytes.is_empty() && unread.end.is_none());
    (one, key)
}

#[test]
fn the_datagram_of_a_receive_is_for_the_next() {
    each(|rt, lp| {
        let (one, other) = sockets(rt, lp);
        let to = other.key().local_addr(lp).unwrap();
        let mut receive = Box::pin(other.recv_from(vec![0; 64]));
        start(rt, lp, &mut receive);
        drop(receive);
        one.key().try_send(lp, b"late", to).unwrap();
        iterate(lp);
        let (result, bytes) = finish(rt, lp, other.recv_from(vec![0; 64]));
        assert_eq!(&bytes[result.unwrap().range()], b"late");
    });
}

#[test]
fn the_connection_of_an_accept_is_for_the_next() {
    each(|rt, lp| {
        let listener = rt.enter(lp, || TcpListener::bind(rt, any())).unwrap();
        let address = listener.key().local_addr(lp).unwrap();
        for incoming in [false, true] {
            if incoming {
                let mut incoming = listener.incoming();
                let mut next = Box::pin(incoming.next());
                start(rt, lp, &mut next);
            } else {
                let mut accept = Box::pin(listener.accept());
                start(rt, lp, &mut accept);
            }
            let client = std::net::TcpStream::connect(address).unwrap();
            iterate(lp);
            let server = finish(rt, lp, listener.accept()).unwrap();
            let peer = server.key().peer_addr(lp).unwrap();
            assert_eq!(peer, client.local_addr().unwrap());
        }
    });
}

/// A dropped accept whose connection nothing takes: it is closed with the listener.
#[test]
fn the_connection_of_an_accept_is_closed_with_the_listener() {
    each(|rt, lp| {
        let listener = rt.enter(lp, || TcpListener::bind(rt, any())).unwrap();
        let address = listener.key().local_addr(lp).unwrap();
        let mut accept = Box::pin(listener.accept());
        start(rt, lp, &mut accept);
        drop(accept);
        let _client = std::net::TcpStream::connect(address).unwrap();
        iterate(lp);
        drop(listener);
        iterate(lp);
    });
}

/// Two receives wait, and the datagram goes to the request of the first, which is dropped.
#[test]
fn a_datagram_of_a_dropped_receive_wakes_another() {
    each(|rt, lp| {
        let (one, other) = sockets(rt, lp);
        let (to, other) = (other.key().local_addr(lp).unwrap(), Rc::new(other));
        for outside in [false, true] {
            let woken = Arc::new(Woken::default());
            let mut first = Box::pin(other.recv_from(vec![0; 64]));
            let waker = Waker::from(Arc::clone(&woken));
            rt.enter(lp, || {
                assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            });
            let waiting = Rc::clone(&other);
            let second = rt.spawn_local(async move { waiting.recv_from(vec![0; 64]).await });
            finish(rt, lp, start_tasks());
            one.key().try_send(lp, b"late", to).unwrap();
            if outside {
                drop(first);
            } else {
                finish(rt, lp, async {
                    while !woken.0.load(Ordering::SeqCst) {
                        yield_now().await;
                    }
                    drop(first);
                });
            }
            let (result, bytes) = finish(rt, lp, second).unwrap();
            assert_eq!(&bytes[result.unwrap().range()], b"late");
        }
    });
}

/// The same for connections.
#[test]
fn a_connection_of_a_dropped_accept_wakes_another() {
    each(|rt, lp| {
        let listener = Rc::new(rt.enter(lp, || TcpListener::bind(rt, any())).unwrap());
        let address = listener.key().local_addr(lp).unwrap();
        for outside in [false, true] {
            let woken = Arc::new(Woken::default());
            let mut first = Box::pin(listener.accept());
            let waker = Waker::from(Arc::clone(&woken));
            rt.enter(lp, || {
                assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            });
            let waiting = Rc::clone(&listener);
            let second = rt.spawn_local(async move { waiting.accept().await });
            finish(rt, lp, start_tasks());
            let _client = std::net::TcpStream::connect(address).unwrap();
            if outside {
                drop(first);
            } else {
                finish(rt, lp, async {
                    while !woken.0.load(Ordering::SeqCst) {
                        yield_now().await;
                    }
                    drop(first);
                });
            }
            finish(rt, lp, second).unwrap().unwrap();
        }
    });
}

/// A receive that waits gets a kept datagram, whose memory is not its own, and waits again if another
/// receive was faster.
#[test]
fn receives_compete_for_a_kept_datagram() {
    each(|rt, lp| {
        let (one, other) = sockets(rt, lp);
        let (to, other) = (other.key().local_addr(lp).unwrap(), Rc::new(other));
        let mut first = Box::pin(other.recv_from(vec![0; 64]));
        start(rt, lp, &mut first);
        let tasks = finish(rt, lp, async {
            let receive = |size| {
                let other = Rc::clone(&other);
                rt.spawn_local(async move {
                    let (result, bytes) = other.recv_from(vec![0; size]).await;
                    result.map(|received| bytes[received.range()].to_vec())
                })
            };
            let tasks = [receive(64), receive(65), receive(66)];
            start_tasks().await;
            tasks
        });
        one.key().try_send(lp, &[0], to).unwrap();
        drop(first);
        iterate(lp);
        one.key().try_send(lp, &[1], to).unwrap();
        one.key().try_send(lp, &[2], to).unwrap();
        let mut all = Vec::new();
        for task in tasks {
            all.extend(finish(rt, lp, task).unwrap().unwrap());
        }
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
    });
}

#[test]
fn timers_and_connects_leave_nothing() {
    each(|rt, lp| {
        let listener = rt.enter(lp, || TcpListener::bind(rt, any())).unwrap();
        let address = listener.key().local_addr(lp).unwrap();
        let mut sleeps =
            [Duration::ZERO, Duration::from_secs(3600)].map(|time| Box::pin(rt.sleep(time)));
        let mut connect = Box::pin(TcpStream::connect(rt, address));
        sleeps.iter_mut().for_each(|sleep| start(rt, lp, sleep));
        start(rt, lp, &mut connect);
        drop((sleeps, connect));
        iterate(lp);
        let left = lp.walk();
        assert_eq!(left.len(), 2, "the listener and the runtime's handle are left: {left:?}");
    });
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_that_is_opened_is_closed() {
    use uv_async::OperationExt;
    use uv_core::fs;

    each(|rt, lp| {
        let path = std::env::temp_dir().join(format!("uv-async-dropped-{}", std::process::id()));
        std::fs::write(&path, "").unwrap();
        let mut futures: Vec<_> = (0..10)
            .map(|_| Box::pin(fs::open(&path, fs::OpenOptions::new().read(true)).on(rt)))
            .collect();
        futures.iter_mut().for_each(|future| start(rt, lp, future));
        drop(futures);
        // The operations are requests of the loop.
        lp.run(RunMode::Default).unwrap();
        let descriptors = std::fs::read_dir("/proc/self/fd").unwrap();
        let target = |entry: io::Result<std::fs::DirEntry>| std::fs::read_link(entry?.path());
        assert!(descriptors.map(target).all(|target| target.is_ok_and(|target| target != path)));
        std::fs::remove_file(path).unwrap();
    });
}

/// A handle that callbacks use again is not stopped by a future or a source that is gone.
#[cfg(unix)]
#[test]
fn handles_go_to_callbacks() {
    use std::cell::Cell;
    use std::io::Write;
    use uv_async::{AsyncPoll, Signal};
    use uv_core::{PollEvents, signum};

    each(|rt, lp| {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let poll = AsyncPoll::from_key(rt, uv_core::Poll::new(lp, theirs).unwrap());
        let mut readiness = Box::pin(poll.readiness(PollEvents::READABLE));
        start(rt, lp, &mut readiness);
        drop(readiness);
        let (key, called) = (poll.into_key(), Rc::new(Cell::new(0)));
        let inside = Rc::clone(&called);
        key.start(lp, PollEvents::READABLE, move |lp, key, result| {
            assert!(result.unwrap().contains(PollEvents::READABLE));
            inside.set(inside.get() + 1);
            key.close(lp).unwrap();
        })
        .unwrap();
        iterate(lp);
        ours.write_all(b"late").unwrap();
        iterate(lp);
        assert_eq!(called.get(), 1);

        let signal = rt.enter(lp, || Signal::new(rt, signum::SIGUSR2)).unwrap();
        let (key, _) = signal.into_key();
        let inside = Rc::clone(&called);
        key.start(lp, signum::SIGUSR2, move |lp, key, _| {
            inside.set(inside.get() + 1);
            key.close(lp).unwrap();
        })
        .unwrap();
        iterate(lp);
        // SAFETY: no memory is passed, and uv-core has installed a handler that any thread may run.
        assert_eq!(unsafe { libc::raise(signum::SIGUSR2) }, 0);
        iterate(lp);
        assert_eq!(called.get(), 2);
    });
}

/// A wait for a descriptor is not ended by an earlier one that is gone.
#[cfg(unix)]
#[test]
fn a_later_wait_for_a_descriptor_goes_on() {
    use std::io::Write;
    use uv_async::AsyncPoll;
    use uv_core::PollEvents;

    each(|rt, lp| {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let poll = AsyncPoll::from_key(rt, uv_core::Poll::new(lp, theirs).unwrap());
        let mut first = Box::pin(poll.readiness(PollEvents::READABLE));
        start(rt, lp, &mut first);
        drop(first);
        let mut second = Box::pin(poll.readiness(PollEvents::READABLE));
        start(rt, lp, &mut second);
        iterate(lp);
        ours.write_all(b"late").unwrap();
        let ready = finish(rt, lp, second).unwrap();
        assert!(ready.contains(PollEvents::READABLE));
    });
}
