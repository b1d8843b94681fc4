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
    let warm_up = send(&mut epoll, &streams, |_, begun| begun.elapsed() >= window.warm_up)?;
    let before = warm_up.saturating_sub(queued(server)?);
    let watch = Watch::start(server)?;
    let mut sent = warm_up;
    let (spent, count) = loop {
        sent += send(&mut epoll, &streams, |sent, _| {
            watch.wall.elapsed() >= window.measured && sent >= plan.least / 4
        })?;
        let (spent, read) = (watch.spent(server)?, sent.saturating_sub(queued(server)?));
        let count = read.saturating_sub(before);
        if count >= plan.least {
            break (spent, count);
        } // Else the buffers have taken most of it.
    };
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

/// How much the kernel has that the server has not read: on loopback that may be megabytes for
/// each connection, which are not to count.
fn queued(server: &ServerProcess) -> io::Result<u64> {
    let port = server.address().port();
    let table = std::fs::read_to_string("/proc/net/tcp")?;
    Ok(table.lines().filter_map(|line| queued_in(line, port)).sum())
}

/// What a line of that table says of a connection to the port: what one side has not sent, and
/// what the other has not read.
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
        assert_eq!(queued_in(&line("1F90", "0000", "0A"), 8080), None, "those who wait to come");
        assert_eq!(queued_in(&line("C000", "C001", "01"), 8080), None);
        assert_eq!(queued_in("  sl  local_address rem_address   st tx_queue rx_queue", 8080), None);
    }
}
