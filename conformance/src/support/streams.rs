//! Streams of a loop, their peers, and what their callbacks are told.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use poll_core::Backend;
use uv_core::{BindFlags, Handle, Loop, RunMode, Stream, Tcp, is_cancelled};

use super::loops::{run, run_to_the_end, timer_in};
use super::observe::{SHORT, SOON};
use super::sources::{fill_by, tcp_pair};
use super::trace::Log;

/// More than any kernel keeps for one connection.
pub(crate) const TOO_MUCH: usize = 32 << 20;

/// Any port of this machine.
pub(crate) fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// A handle that is bound, and its address.
pub(crate) fn bound<T: Backend>(lp: &mut Loop<T>) -> (Tcp, SocketAddr) {
    let server = Tcp::new(lp);
    server.bind(lp, any_port(), BindFlags::empty()).expect("a port to bind");
    let address = server.local_addr(lp).expect("the address that it is bound to");
    (server, address)
}

/// A handle that takes over `socket`.
pub(crate) fn opened<T: Backend>(lp: &mut Loop<T>, socket: TcpStream) -> Tcp {
    let tcp = Tcp::new(lp);
    tcp.open(lp, socket).expect("a new handle takes a socket");
    tcp
}

/// A connection of the loop, and its peer, which blocks.
pub(crate) fn connected<T: Backend>(lp: &mut Loop<T>) -> (Tcp, TcpStream) {
    let (near, far) = tcp_pair();
    far.set_nonblocking(false).expect("a blocking stream");
    far.set_read_timeout(Some(SOON)).expect("SO_RCVTIMEO");
    (opened(lp, near), far)
}

/// Both ends of one connection, in one loop.
pub(crate) fn both_ends<T: Backend>(lp: &mut Loop<T>) -> (Tcp, Tcp) {
    let (near, far) = tcp_pair();
    (opened(lp, near), opened(lp, far))
}

/// Listens, and echoes what is read until its peer ends. Notes each connection that ends,
/// and how.
pub(crate) fn echo<T: Backend, S: Stream>(lp: &mut Loop<T>, server: S, ends: &Log<&'static str>) {
    let ends = ends.clone();
    let listening = server.listen(lp, 1024, move |lp, server, result| {
        result.expect("a connection");
        let peer = server.accept(lp).expect("the connection");
        echo_one(lp, peer, &ends);
    });
    listening.expect("a bound handle listens");
}

/// Echoes what one connection is read.
pub(crate) fn echo_one<T: Backend, S: Stream>(lp: &mut Loop<T>, peer: S, ends: &Log<&'static str>) {
    let ends = ends.clone();
    let echoing = peer.read_start(lp, move |lp, peer, bytes| match bytes {
        Ok([]) | Err(_) => {
            ends.push(outcome(&bytes));
            peer.close(lp).expect("an open handle");
        }
        // What becomes of it shows on the other side.
        Ok(bytes) => drop(peer.write(lp, bytes.to_vec(), |_, _, _, _| {})),
    });
    echoing.expect("a connection is read");
}

/// Connects, by `connect`, and asks for one echo of `message`: who listens must be in order.
pub(crate) fn one_echo<T: Backend, S: Stream>(
    lp: &mut Loop<T>,
    message: &'static str,
    connect: impl FnOnce(&mut Loop<T>, Connected<T, S>) -> io::Result<()>,
) {
    let told = Log::default();
    let tell = told.clone();
    let asks = move |lp: &mut Loop<T>, client: S, result: io::Result<()>| {
        result.expect("a connection");
        client.write(lp, message, |_, _, result, _| result.expect("a write")).expect("a write");
        let mut got = Vec::new();
        let reading = client.read_start(lp, move |lp, client, bytes| {
            got.extend_from_slice(bytes.expect("the echo"));
            if got.len() >= message.len() {
                tell.push(std::mem::take(&mut got));
                client.close(lp).expect("an open handle");
            }
        });
        reading.expect("a connection is read");
    };
    connect(lp, Box::new(asks)).expect("a connect begins");
    run_until(lp, "an echo", |_| told.len() > 0);
    assert_eq!(told.take(), [message.as_bytes()]);
}

/// The callback of a connect.
pub(crate) type Connected<T, S> = Box<dyn FnOnce(&mut Loop<T>, S, io::Result<()>)>;

/// Writes until the kernel takes no more; returns how much it took.
pub(crate) fn fill_up<T: Backend>(lp: &mut Loop<T>, tcp: Tcp) -> usize {
    let chunk = [7; 64 * 1024];
    fill_by(|| tcp.try_write(lp, &chunk))
}

/// How a request ended, in a word.
pub(crate) fn outcome<R>(result: &io::Result<R>) -> &'static str {
    match result {
        Ok(_) => "done",
        Err(error) if is_cancelled(error) => "cancelled",
        Err(_) => "failed",
    }
}

/// The kind of error that a call is refused with.
#[track_caller]
pub(crate) fn refusal<R>(result: io::Result<R>) -> ErrorKind {
    match result {
        Ok(_) => panic!("the call should be refused"),
        Err(error) => error.kind(),
    }
}

/// Runs iterations that may wait until `done` says so.
#[track_caller]
pub(crate) fn run_until<T: Backend>(
    lp: &mut Loop<T>,
    what: &str,
    mut done: impl FnMut(&mut Loop<T>) -> bool,
) {
    let deadline = timer_in(lp, SOON, |_, _| {});
    while !done(lp) {
        run(lp, RunMode::Once);
        assert!(deadline.is_active(lp), "{what} does not happen");
    }
    deadline.close(lp).expect("an open timer");
}

/// Runs for a moment in which nothing should happen; returns how many polls that took.
pub(crate) fn run_a_moment<T: Backend>(lp: &mut Loop<T>) -> u64 {
    let polls = lp.metrics().loop_count();
    lp.update_time(); // What the case has done since is no part of the moment.
    timer_in(lp, SHORT, |lp, timer| {
        lp.stop();
        timer.close(lp).expect("an open timer");
    });
    run(lp, RunMode::Default);
    lp.metrics().loop_count() - polls
}

/// Runs the loop to its end, when nothing may be left.
#[track_caller]
pub(crate) fn finish<T: Backend>(mut lp: Loop<T>) {
    run_to_the_end(&mut lp);
    let left: Vec<_> = lp.walk().into_iter().map(|handle| handle.to_string()).collect();
    assert!(left.is_empty(), "handles are left: {left:?}");
    assert!(lp.close().is_ok(), "a loop with nothing left can be closed");
}

/// Ends what `client` sends, and reads until its peer does too: what comes back is what was
/// `sent`.
pub(crate) fn read_the_echo<T: Backend>(mut lp: Loop<T>, client: Tcp, sent: &[u8]) {
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
    assert!(got.take() == *sent, "the bytes are those that were sent");
}

impl<R: 'static> Log<(R, &'static str)> {
    /// A callback of a write that notes `name` and how the write ended.
    pub(crate) fn written<T: Backend, S: Stream, B>(
        &self,
        name: R,
    ) -> impl FnOnce(&mut Loop<T>, S, io::Result<()>, B) + 'static {
        let log = self.clone();
        move |_, _, result, _| log.push((name, outcome(&result)))
    }

    /// A callback of a pulled read that notes `name` and how the read ended.
    pub(crate) fn pulled<T: Backend, S: Stream, B>(
        &self,
        name: R,
    ) -> impl FnOnce(&mut Loop<T>, S, io::Result<usize>, B) + 'static {
        let log = self.clone();
        move |_, _, result, _| log.push((name, outcome(&result)))
    }

    /// A callback of a connect or a shutdown that notes `name` and how it ended.
    pub(crate) fn ended<T: Backend, S: Stream>(
        &self,
        name: R,
    ) -> impl FnOnce(&mut Loop<T>, S, io::Result<()>) + 'static {
        let log = self.clone();
        move |_, _, result| log.push((name, outcome(&result)))
    }

    /// A callback of a close that notes `name`.
    pub(crate) fn closed<T: Backend, S: Stream>(
        &self,
        name: R,
    ) -> impl FnOnce(&mut Loop<T>, S) + 'static {
        let log = self.clone();
        move |_, _| log.push((name, "closed"))
    }
}
