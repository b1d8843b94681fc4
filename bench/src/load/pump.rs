//! Bytes in one direction.
//!
//! Each connection holds a fixed amount when the server reads it. The server is paused while the
//! clients send: otherwise a fast server would read smaller pieces and block more often. The
//! warm-up opens the TCP windows: the kernel stops and probes a new connection, at the cost of
//! either side.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::connection::pattern;
use super::{Outcome, SILENCE_MS, Watch, connect, silent, wrong};
use crate::latencies::Latencies;
use crate::process::ServerProcess;

/// The interval for checking whether the server has read everything.
const LOOK: Duration = Duration::from_micros(500);

/// The bytes per connection if there are many: more would not fit into the cache.
const HELD: usize = 128 * 1024;

/// The minimum of bytes over all connections.
const HELD_BY_ALL: usize = 1024 * 1024;

/// The load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pump {
    pub(crate) connections: usize,
    /// The minimum number of bytes of the warm-up.
    pub(crate) warm_up: u64,
    /// The minimum number of measured bytes.
    pub(crate) bytes: u64,
    /// Check the end of every connection.
    pub(crate) check: bool,
}

/// Sends the load until the server has read all of it.
pub(crate) fn pump(server: &ServerProcess, plan: Pump) -> io::Result<Outcome> {
    let mut streams = Vec::with_capacity(plan.connections);
    for _ in 0..plan.connections {
        let stream = connect(server.address())?;
        stream.set_nonblocking(true)?;
        streams.push(stream);
    }
    send(server, &streams, plan.warm_up)?;
    let watch = Watch::start(server)?;
    let count = send(server, &streams, plan.bytes)?;
    let spent = watch.spent(server)?;
    if plan.check {
        streams.iter().try_for_each(finish)?;
    }
    Ok(Outcome { count, spent, latencies: Latencies::default() })
}

/// Sends at least `bytes` in bursts; returns the number of bytes.
fn send(server: &ServerProcess, streams: &[TcpStream], least: u64) -> io::Result<u64> {
    let held = HELD.max(HELD_BY_ALL / streams.len());
    let mut sent = 0;
    while sent < least {
        server.pause()?;
        for stream in streams {
            sent += fill(stream, held)?;
        }
        server.resume()?;
        drain(server)?;
    }
    Ok(sent)
}

/// Sends up to `bytes` without blocking; returns the number of bytes.
fn fill(mut stream: &TcpStream, bytes: usize) -> io::Result<u64> {
    let mut sent = 0;
    while sent < bytes {
        match stream.write(&pattern()[..pattern().len().min(bytes - sent)]) {
            Ok(written) => sent += written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent as u64)
}

/// Waits until the server has read everything.
fn drain(server: &ServerProcess) -> io::Result<()> {
    let (mut least, mut since) = (u64::MAX, Instant::now());
    loop {
        let left = queued(server)?;
        if left == 0 {
            return Ok(());
        }
        if left < least {
            (least, since) = (left, Instant::now());
        } else if since.elapsed() > Duration::from_millis(SILENCE_MS as u64) {
            return Err(silent());
        }
        std::thread::sleep(LOOK);
    }
}

/// The number of bytes that the kernel buffers: on loopback up to megabytes per connection.
fn queued(server: &ServerProcess) -> io::Result<u64> {
    let port = server.address().port();
    let queued = |table: String| table.lines().filter_map(|line| queued_in(line, port)).sum();
    let here: u64 = queued(std::fs::read_to_string("/proc/net/tcp")?);
    if server.address().ip().is_loopback() {
        return Ok(here);
    }
    // The server is in another namespace, which has a table of its own.
    Ok(here + queued(std::fs::read_to_string(format!("/proc/{}/net/tcp", server.id()))?))
}

/// The bytes buffered by a connection to the port, from a line of the table: unsent ones of one
/// side, unread ones of the other.
fn queued_in(line: &str, port: u16) -> Option<u64> {
    const LISTENS: &str = "0A";
    let mut fields = line.split_whitespace().skip(1);
    let mut port_of_next = || u16::from_str_radix(fields.next()?.split_once(':')?.1, 16).ok();
    let (local, remote) = (port_of_next()?, port_of_next()?);
    let state = fields.next()?;
    let (unsent, unread) = fields.next()?.split_once(':')?;
    match state {
        LISTENS => None,
        _ if local == port => u64::from_str_radix(unread, 16).ok(),
        _ if remote == port => u64::from_str_radix(unsent, 16).ok(),
        _ => None,
    }
}

/// Shuts a connection down: the server closes it without an answer.
fn finish(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_millis(SILENCE_MS as u64)))?;
    stream.shutdown(Shutdown::Write)?;
    // `read_to_end` retries after signals; one `read` with a timeout would fail.
    let mut answer = Vec::new();
    { stream }.read_to_end(&mut answer)?;
    if answer.is_empty() { Ok(()) } else { Err(wrong("the sink server sent an answer".into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_on_either_side_is_queued() {
        let line = |local, remote, state| {
            format!("0: 0100007F:{local} 0100007F:{remote} {state} 00000010:00000A00 00:0 0 0 0")
        };
        assert_eq!(queued_in(&line("1F90", "C000", "01"), 8080), Some(0xa00));
        assert_eq!(queued_in(&line("C000", "1F90", "01"), 8080), Some(0x10));
        assert_eq!(queued_in(&line("1F90", "0000", "0A"), 8080), None, "a listening socket");
        assert_eq!(queued_in(&line("C000", "C001", "01"), 8080), None);
        assert_eq!(queued_in("  sl  local_address rem_address   st tx_queue rx_queue", 8080), None);
    }
}
