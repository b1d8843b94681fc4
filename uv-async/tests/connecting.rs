//! Connecting to one of several addresses (RFC 8305). The delays are zero, a millisecond or an hour,
//! so that no result depends on how fast the machine is.

mod common;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use common::{Runtime, every, serial};
use uv_async::{LoopExt, TcpListener, TcpStream};
use uv_core::{Handle, Loop, RunMode, Tcp, TcpBindFlags};

const HOUR: Duration = Duration::from_secs(3600);
/// What should not take an hour fails after this time.
const LIMIT: Duration = Duration::from_secs(60);

fn any() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Runs a case on each backend, and checks that no handle and no descriptor is left.
fn each(case: impl AsyncFn(&Runtime) -> io::Result<()>) {
    let _serial = serial();
    every(|lp| {
        lp.block_on(async |rt| rt.timeout(LIMIT, case(&rt)).await).unwrap().unwrap().unwrap();
        settle(lp, |lp| lp.walk().is_empty());
        assert!(lp.walk().is_empty(), "handles are left: {:?}", lp.walk());
    });
}

/// Runs the loop until `done`, for at most a second.
fn settle(lp: &mut Loop<common::Backend>, done: impl Fn(&Loop<common::Backend>) -> bool) {
    for _ in 0..1000 {
        if done(lp) {
            return;
        }
        lp.run(RunMode::NoWait).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An address that refuses connections, while the handle is open: it is bound and does not listen.
fn refusing(rt: &Runtime) -> io::Result<(Tcp, SocketAddr)> {
    rt.with(|lp| {
        let tcp = Tcp::new(lp);
        tcp.bind(lp, any(), TcpBindFlags::empty())?;
        Ok((tcp, tcp.local_addr(lp)?))
    })
}

fn close(rt: &Runtime, tcp: Tcp) -> io::Result<()> {
    rt.with(|lp| tcp.close(lp))
}

#[test]
fn the_next_attempt_begins_when_one_fails() {
    each(async |rt| {
        let (refused, listener) = (refusing(rt)?, TcpListener::bind(rt, any())?);
        let addresses = [refused.1, refused.1, listener.local_addr()?];
        let stream = TcpStream::connect_staggered(rt, addresses, HOUR).await?;
        assert_eq!(stream.peer_addr()?, addresses[2]);
        listener.accept().await?;
        close(rt, refused.0)
    });
}

#[test]
fn the_last_error_is_reported_if_all_fail() {
    each(async |rt| {
        let refused = refusing(rt)?;
        let failed = TcpStream::connect_staggered(rt, [refused.1; 2], HOUR).await;
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let failed = TcpStream::connect_staggered(rt, [], HOUR).await;
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        close(rt, refused.0)
    });
}

/// Addresses that never answer. Linux drops requests for connections while a listener's queue is
/// full; other systems refuse them.
#[cfg(target_os = "linux")]
mod silent {
    use std::net::TcpStream as StdStream;

    use uv_core::Listener;
    use uv_core::backends::Poll;

    use super::*;

    /// A listener in a loop that never runs, and the connections that fill its queue.
    struct Silent {
        _lp: Loop<Poll>,
        address: SocketAddr,
        _queued: Vec<StdStream>,
    }

    impl Silent {
        fn new() -> Silent {
            let mut lp = Loop::new(Poll::new().unwrap());
            let tcp = Tcp::new(&mut lp);
            tcp.bind(&mut lp, any(), TcpBindFlags::empty()).unwrap();
            tcp.listen_without_callback(&mut lp, 1).unwrap();
            let address = tcp.local_addr(&lp).unwrap();
            let connect = || StdStream::connect_timeout(&address, Duration::from_millis(500)).ok();
            let queued: Vec<_> = std::iter::from_fn(connect).take(8).collect();
            assert!(queued.len() < 8, "the queue is not full");
            Silent { _lp: lp, address, _queued: queued }
        }
    }

    /// As [`each`](super::each), with a silent address; no descriptor of an attempt is left.
    fn each_with_silent(case: impl AsyncFn(Runtime, SocketAddr) -> io::Result<()>) {
        let _serial = serial();
        let silent = Silent::new();
        every(|lp| {
            // What a backend opens once is open from here on.
            let warm_up = async |rt: Runtime| {
                let listener = TcpListener::bind(&rt, any())?;
                let client = TcpStream::connect(&rt, listener.local_addr()?).await?;
                listener.accept().await.map(|server| drop((client, server)))
            };
            lp.block_on(warm_up).unwrap().unwrap();
            let before = common::descriptors();
            let body =
                async |rt: Runtime| rt.timeout(LIMIT, case(rt.clone(), silent.address)).await;
            lp.block_on(body).unwrap().unwrap().unwrap();
            settle(lp, |lp| lp.walk().is_empty() && common::descriptors() <= before);
            assert!(lp.walk().is_empty(), "handles are left: {:?}", lp.walk());
            assert!(common::descriptors() <= before, "descriptors are left");
        });
    }

    #[test]
    fn the_next_attempt_begins_after_the_delay_and_the_loser_is_closed() {
        each_with_silent(async |rt, silent| {
            let listener = TcpListener::bind(&rt, any())?;
            let addresses = [silent, silent, listener.local_addr()?];
            for delay in [Duration::ZERO, Duration::from_millis(1)] {
                let stream = TcpStream::connect_staggered(&rt, addresses, delay).await?;
                assert_eq!(stream.peer_addr()?, addresses[2]);
                listener.accept().await?;
            }
            Ok(())
        });
    }

    /// By their delays alone the attempts would take longer than the limit.
    #[test]
    fn a_failure_beside_a_silent_attempt_begins_the_next() {
        each_with_silent(async |rt, silent| {
            let (refused, listener) = (refusing(&rt)?, TcpListener::bind(&rt, any())?);
            let mut addresses = vec![silent];
            addresses.extend([refused.1; 100]);
            addresses.push(listener.local_addr()?);
            let delay = Duration::from_millis(700);
            let stream = TcpStream::connect_staggered(&rt, addresses, delay).await?;
            assert_eq!(stream.peer_addr()?, listener.local_addr()?);
            listener.accept().await?;
            close(&rt, refused.0)
        });
    }

    #[test]
    fn a_failure_does_not_end_a_silent_attempt() {
        each_with_silent(async |rt, silent| {
            let refused = refusing(&rt)?;
            let connecting = TcpStream::connect_staggered(&rt, [silent, refused.1], Duration::ZERO);
            let time = Duration::from_millis(50);
            assert!(rt.timeout(time, connecting).await.is_err(), "one attempt is under way");
            close(&rt, refused.0)
        });
    }

    #[test]
    fn no_attempt_begins_before_the_delay_and_a_drop_closes_all() {
        each_with_silent(async |rt, silent| {
            let listener = TcpListener::bind(&rt, any())?;
            let addresses = [silent, listener.local_addr()?];
            let connecting = TcpStream::connect_staggered(&rt, addresses, HOUR);
            let time = Duration::from_millis(20);
            assert!(rt.timeout(time, connecting).await.is_err(), "the first never answers");
            assert!(rt.timeout(time, listener.accept()).await.is_err(), "the second was not tried");
            Ok(())
        });
    }
}
