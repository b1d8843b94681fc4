//! Bytes in one direction, as fast as the server takes them.

use std::io::{self, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::connection::pattern;
use super::{Outcome, SILENCE_MS, Watch, Window, connect, silent, wrong};
use crate::latencies::Latencies;
use crate::pollers::Epoll;
use crate::process::ServerProcess;

/// What the clients do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pump {
    pub(crate) connections: usize,
    /// At least so many bytes are sent within the window.
    pub(crate) least: u64,
}

/// Sends for as long as the window is.
pub(crate) fn pump(server: &ServerProcess, plan: Pump, window: Window) -> io::Result<Outcome> {
    let mut epoll = Epoll::new()?;
    let mut streams = Vec::with_capacity(plan.connections);
    for number in 0..plan.connections {
        let stream = connect(server.address())?;
        stream.set_nonblocking(true)?;
        epoll.control(libc::EPOLL_CTL_ADD, stream.as_raw_fd(), libc::EPOLLOUT, number as u64)?;
        streams.push(stream);
    }
    send(&mut epoll, &streams, |_, begun| begun.elapsed() >= window.warm_up)?;
    let watch = Watch::start(server)?;
    let count = send(&mut epoll, &streams, |sent, begun| {
        begun.elapsed() >= window.measured && sent >= plan.least
    })?;
    let spent = watch.spent(server)?;
    if window.check {
        streams.iter().try_for_each(finish)?;
    }
    Ok(Outcome { count, spent, latencies: Latencies::default() })
}

/// Sends until it is over, which is decided by how much was sent and when this began.
fn send(
    epoll: &mut Epoll,
    streams: &[TcpStream],
    over: impl Fn(u64, Instant) -> bool,
) -> io::Result<u64> {
    let (begun, mut sent) = (Instant::now(), 0);
    let mut ready = Vec::new();
    while !over(sent, begun) {
        let count = epoll.wait_ms(SILENCE_MS)?;
        if count == 0 {
            return Err(silent());
        }
        ready.clear();
        ready.extend(epoll.found(count).map(|(number, _)| number as usize));
        for &number in &ready {
            match io::Write::write(&mut &streams[number], pattern()) {
                Ok(written) => sent += written as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(sent)
}

/// Ends a connection: a server that has read all of it closes it, without an answer.
fn finish(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_millis(SILENCE_MS as u64)))?;
    stream.shutdown(Shutdown::Write)?;
    // Not one `read`: with a timeout, a signal that comes in between would end it.
    let mut answer = Vec::new();
    { stream }.read_to_end(&mut answer)?;
    if answer.is_empty() { Ok(()) } else { Err(wrong("a sink has answered".into())) }
}
