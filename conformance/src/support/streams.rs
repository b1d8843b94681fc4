//! Streams of a loop, their peers and their callbacks.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use uv_core::{Handle, Listener, RunMode, Stream, Tcp, TcpBindFlags, is_cancelled};

use super::loops::{run, run_to_the_end, timer_in, watchdog};
use super::observe::{SHORT, SOON};
use super::sources::{fill_by, tcp_pair};
use super::trace::Log;
use crate::Loop;

/// More than any kernel buffers for one connection.
pub(crate) const OVER_STREAM_BUFFERS: usize = 32 << 20;

/// The runs of equal bytes: the byte and the length of each. Whole blocks are compared, which takes
/// little time also in a build without optimizations.
pub(crate) fn runs(mut bytes: &[u8]) -> impl Iterator<Item = (u8, usize)> {
    const BLOCK: usize = 1024;
    std::iter::from_fn(move || {
        let first = *bytes.first()?;
        let blocks = bytes.chunks_exact(BLOCK).take_while(|block| **block == [first; BLOCK]);
        let in_blocks = blocks.count() * BLOCK;
        let rest = bytes[in_blocks..].iter().take_while(|byte| **byte == first);
        let length = in_blocks + rest.count();
        bytes = &bytes[length..];
        Some((first, length))
    })
}

/// Port 0 of the loopback address.
pub(crate) fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A bound handle and its address.
pub(crate) fn bound(lp: &mut Loop) -> (Tcp, SocketAddr) {
    let server = Tcp::new(lp);
    server.bind(lp, any_port(), TcpBindFlags::empty()).expect("a port to bind");
    let address = server.local_addr(lp).expect("the address that it is bound to");
    (server, address)
}

/// A handle that takes over `socket`.
pub(crate) fn opened(lp: &mut Loop, socket: TcpStream) -> Tcp {
    let tcp = Tcp::new(lp);
    tcp.open(lp, socket).expect("a new handle takes a socket");
    tcp
}

/// A connection of the loop, and its blocking peer.
pub(crate) fn connected(lp: &mut Loop) -> (Tcp, TcpStream) {
    let (near, far) = tcp_pair();
    far.set_nonblocking(false).expect("a blocking stream");
    far.set_read_timeout(Some(SOON)).expect("SO_RCVTIMEO");
    (opened(lp, near), far)
}

/// Both ends of one connection, in one loop.
pub(crate) fn both_ends(lp: &mut Loop) -> (Tcp, Tcp) {
    let (near, far) = tcp_pair();
    (opened(lp, near), opened(lp, far))
}

/// Listens and echoes each connection until its peer ends. Logs how each connection ends.
pub(crate) fn echo<S: Listener>(lp: &mut Loop, server: S, ends: &Log<&'static str>) {
    let ends = ends.clone();
    let listening = server.listen(lp, 1024, move |lp, server, result| {
        result.expect("a connection");
        let peer = server.accept(lp).expect("the connection");
        echo_one(lp, peer, &ends);
    });
    listening.expect("a bound handle listens");
}

/// Echoes one connection.
pub(crate) fn echo_one<S: Stream>(lp: &mut Loop, peer: S, ends: &Log<&'static str>) {
    let ends = ends.clone();
    let echoing = peer.read_start(lp, move |lp, peer, bytes| match bytes {
        Ok([]) | Err(_) => {
            ends.push(outcome(&bytes));
            peer.close(lp).expect("an open handle");
        }
        // The peer checks the echoed data.
        Ok(bytes) => drop(peer.write(lp, bytes.to_vec(), |_, _, _, _| {})),
    });
    echoing.expect("a connection is read");
}

/// Connects with `connect` and requests one echo of `message`, to show that the listener works.
pub(crate) fn one_echo<S: Listener>(
    lp: &mut Loop,
    message: &'static str,
    connect: impl FnOnce(&mut Loop, Connected<S>) -> io::Result<()>,
) {
    let received = Log::default();
    let log = received.clone();
    let asks = move |lp: &mut Loop, client: S, result: io::Result<()>| {
        result.expect("a connection");
        client.write(lp, message, |_, _, result, _| result.expect("a write")).expect("a write");
        let mut got = Vec::new();
        let reading = client.read_start(lp, move |lp, client, bytes| {
            got.extend_from_slice(bytes.expect("the echo"));
            if got.len() >= message.len() {
                log.push(std::mem::take(&mut got));
                client.close(lp).expect("an open handle");
            }
        });
        reading.expect("a connection is read");
    };
    connect(lp, Box::new(asks)).expect("a connect begins");
    run_until(lp, "an echo", |_| received.len() > 0);
    assert_eq!(received.take(), [message.as_bytes()]);
}

/// The callback of a connect.
pub(crate) type Connected<S> = Box<dyn FnOnce(&mut Loop, S, io::Result<()>)>;

/// Writes until the kernel accepts no more; returns the number of bytes.
pub(crate) fn fill_up(lp: &mut Loop, tcp: Tcp) -> usize {
    let chunk = [7; 64 * 1024];
    fill_by(|| tcp.try_write(lp, &chunk))
}

/// The outcome of a request in one word.
pub(crate) fn outcome<R>(result: &io::Result<R>) -> &'static str {
    match result {
        Ok(_) => "done",
        Err(error) if is_cancelled(error) => "cancelled",
        Err(_) => "failed",
    }
}

/// The kind of error that a call fails with.
#[track_caller]
pub(crate) fn refusal<R>(result: io::Result<R>) -> ErrorKind {
    match result {
        Ok(_) => panic!("the call should fail"),
        Err(error) => error.kind(),
    }
}

/// Runs blocking iterations until `done` returns true. Fails after a time without events.
#[track_caller]
pub(crate) fn run_until(lp: &mut Loop, what: &str, mut done: impl FnMut(&mut Loop) -> bool) {
    let stalls = Log::default();
    let log = stalls.clone();
    let watchdog = watchdog(lp, move || log.push(()));
    while !done(lp) {
        run(lp, RunMode::Once);
        assert!(stalls.len() == 0, "{what} does not happen");
    }
    watchdog.close(lp).expect("an open timer");
}

/// Runs for a short time without expected events; returns the number of polls.
pub(crate) fn run_a_moment(lp: &mut Loop) -> u64 {
    let polls = lp.metrics().loop_count();
    lp.update_time(); // The time spent since the last iteration does not count.
    timer_in(lp, SHORT, |lp, timer| {
        lp.stop();
        timer.close(lp).expect("an open timer");
    });
    run(lp, RunMode::Default);
    lp.metrics().loop_count() - polls
}

/// Runs the loop until it is not alive; no handle may be left.
#[track_caller]
pub(crate) fn finish(mut lp: Loop) {
    run_to_the_end(&mut lp);
    let left: Vec<_> = lp.walk().into_iter().map(|handle| handle.to_string()).collect();
    assert!(left.is_empty(), "handles are left: {left:?}");
    assert!(lp.close().is_ok(), "a loop without handles can be closed");
}

/// Shuts `client` down and reads to the end of file: the echo must equal `sent`.
pub(crate) fn read_the_echo(mut lp: Loop, client: Tcp, sent: &[u8]) {
    client.shutdown(&mut lp, |_, _, result| result.unwrap()).unwrap();
    let got = Log::default();
    let gathered = got.clone();
    let reading = client.read_start(&mut lp, move |lp, client, bytes| match bytes.unwrap() {
        [] => client.close(lp).unwrap(),
        bytes => gathered.extend(bytes.iter().copied()),
    });
    reading.unwrap();
    run_until(&mut lp, "the end of the echo", |lp| client.is_closing(lp));
    finish(lp);
    assert!(got.take() == *sent, "the echo equals the sent bytes");
}

impl<R: 'static> Log<(R, &'static str)> {
    /// A write callback that logs `name` and the outcome.
    pub(crate) fn written<S: Stream, B>(
        &self,
        name: R,
    ) -> impl FnOnce(&mut Loop, S, io::Result<()>, B) + 'static {
        let log = self.clone();
        move |_, _, result, _| log.push((name, outcome(&result)))
    }

    /// A callback of a pulled read that logs `name` and the outcome.
    pub(crate) fn pulled<S: Stream, B>(
        &self,
        name: R,
    ) -> impl FnOnce(&mut Loop, S, io::Result<usize>, B) + 'static {
        let log = self.clone();
        move |_, _, result, _| log.push((name, outcome(&result)))
    }

    /// A callback of a connect or a shutdown that logs `name` and the outcome.
    pub(crate) fn ended<S: Stream>(
        &self,
        name: R,
    ) -> impl FnOnce(&mut Loop, S, io::Result<()>) + 'static {
        let log = self.clone();
        move |_, _, result| log.push((name, outcome(&result)))
    }

    /// A close callback that logs `name`.
    pub(crate) fn closed<S: Stream>(&self, name: R) -> impl FnOnce(&mut Loop, S) + 'static {
        let log = self.clone();
        move |_, _| log.push((name, "closed"))
    }
}
