//! A server on a poller: a hand-written one, a backend without a loop, mio or polling.
//!
//! Its best: one buffer for all reads, the answer written immediately, and one read for an event
//! unless that fills the buffer. A level-triggered poller reports the rest again. An edge-triggered
//! one (mio) reports new bytes and the end of a connection again, too; what it would not report is
//! an end that was there before the read, and mio names that in the event. Compared with reading
//! until the kernel has no more, as mio's documentation recommends for all kinds of sources
//! (`mio-drain`): a system call more for each event.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::ptr;
use std::time::Instant;

use poll_core::RawSource;

use super::service::DELAY;
use super::{Handler, READ_SIZE, Service, connection_ended};
use crate::pollers::{ENDED, Interest, Poller};

/// The maximum number of reads per event of a connection, as in libuv.
const READS: usize = 32;

struct Connection {
    stream: TcpStream,
    handler: Handler,
    /// Bytes that are not yet written. The connection is not read until they are, unless a timer
    /// writes them.
    rest: Vec<u8>,
}

/// The server; connections are indexed by descriptor.
struct Connections<P> {
    poller: P,
    service: Service,
    open: Vec<Option<Connection>>,
    buffer: Vec<u8>,
    /// Connections whose answers wait for their time: all delays are equal, so that a queue is
    /// sorted by time.
    late: VecDeque<(Instant, usize)>,
}

pub(super) fn serve<P: Poller>(
    mut poller: P,
    listener: &TcpListener,
    service: Service,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listening = listener.as_raw_fd();
    poller.add(listening as usize, RawSource::of(listener))?;
    let (open, late) = (Vec::new(), VecDeque::new());
    let mut connections = Connections { poller, service, open, buffer: vec![0; READ_SIZE], late };
    let mut ready = Vec::new();
    loop {
        ready.clear();
        let timeout = connections.late.front().map(|(at, _)| at.duration_since(Instant::now()));
        connections.poller.wait(timeout, &mut ready)?;
        for &number in &ready {
            let (number, ended) = (number & !ENDED, number & ENDED != 0);
            if number == listening as usize {
                connections.accept(listening)?;
            } else {
                connections.go_on(number, ended);
            }
        }
        if !connections.late.is_empty() {
            connections.answer_late();
        }
    }
}

impl<P: Poller> Connections<P> {
    /// Accepts all pending connections.
    fn accept(&mut self, listening: RawFd) -> io::Result<()> {
        let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        loop {
            // SAFETY: null pointers are valid: the address is not requested.
            let fd = unsafe { libc::accept4(listening, ptr::null_mut(), ptr::null_mut(), flags) };
            if fd < 0 {
                match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    error if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                    error => return Err(error),
                }
            }
            set_nodelay(fd);
            // SAFETY: `accept4` created the descriptor, and no other code owns it.
            let stream = unsafe { TcpStream::from_raw_fd(fd) };
            let number = fd as usize;
            self.poller.add(number, RawSource::of(&stream))?;
            self.open.resize_with(self.open.len().max(number + 1), || None);
            let (handler, rest) = (Handler::new(self.service), Vec::new());
            self.open[number] = Some(Connection { stream, handler, rest });
        }
    }

    /// Serves a connection that is ready; `ended` if the poller has reported its end.
    fn go_on(&mut self, number: usize, ended: bool) {
        let Some(Some(connection)) = self.open.get_mut(number) else { return };
        let reads = connection.rest.is_empty() || self.service == Service::Delay;
        let alive = if reads { self.read(number, ended) } else { self.write_rest(number) };
        if !alive.unwrap_or(false) {
            self.close(number);
        }
    }

    fn close(&mut self, number: usize) {
        let Some(Some(connection)) = self.open.get(number) else { return };
        // An error means that the poller does not watch it: nothing is left to remove.
        let _ = self.poller.remove(number, RawSource::of(&connection.stream));
        self.open[number] = None;
        connection_ended();
    }

    /// Reads and serves the available data; false at the end of the connection.
    fn read(&mut self, number: usize, ended: bool) -> io::Result<bool> {
        let Some(Some(connection)) = self.open.get_mut(number) else { return Ok(true) };
        let drains = P::EDGE && ended;
        let mut reads = 0;
        loop {
            let read = match connection.stream.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(read) => read,
                Err(error) => return would_block(error),
            };
            let answer = connection.handler.answer(&self.buffer[..read])?;
            if self.service == Service::Delay {
                if connection.rest.is_empty() {
                    self.late.push_back((Instant::now() + DELAY, number));
                }
                connection.rest.extend_from_slice(answer);
            } else if !answer.is_empty() {
                let written = match connection.stream.write(answer) {
                    Ok(written) => written,
                    Err(error) => would_block(error).map(|_| 0)?,
                };
                if written < answer.len() {
                    connection.rest.extend_from_slice(&answer[written..]);
                    let source = RawSource::of(&connection.stream);
                    self.poller.change(number, source, Interest::Write)?;
                    return Ok(true);
                }
            }
            reads += 1;
            let full = read == self.buffer.len();
            // A level-triggered poller reports the rest again, which is fair to other connections.
            if !drains && (!full || (!P::EDGE && reads == READS)) {
                return Ok(true);
            }
        }
    }

    /// Answers connections whose time has come.
    fn answer_late(&mut self) {
        let now = Instant::now();
        while let Some(&(_, number)) = self.late.front().filter(|(at, _)| *at <= now) {
            self.late.pop_front();
            let Some(Some(connection)) = self.open.get_mut(number) else { continue };
            let alive = match connection.stream.write(&connection.rest) {
                Ok(written) => {
                    connection.rest.drain(..written);
                    Ok(true)
                }
                Err(error) => would_block(error),
            };
            let unsent = !connection.rest.is_empty();
            if alive.is_err() {
                self.close(number);
            } else if unsent {
                // The peer reads slowly: try again.
                self.late.push_back((now + DELAY, number));
            }
        }
    }

    fn write_rest(&mut self, number: usize) -> io::Result<bool> {
        let Some(Some(connection)) = self.open.get_mut(number) else { return Ok(true) };
        let written = match connection.stream.write(&connection.rest) {
            Ok(written) => written,
            Err(error) => would_block(error).map(|_| 0)?,
        };
        connection.rest.drain(..written);
        if connection.rest.is_empty() {
            let source = RawSource::of(&connection.stream);
            self.poller.change(number, source, Interest::Read)?;
        }
        Ok(true)
    }
}

/// True for `WouldBlock`; any other error ends the connection.
fn would_block(error: io::Error) -> io::Result<bool> {
    if error.kind() == io::ErrorKind::WouldBlock { Ok(true) } else { Err(error) }
}

pub(super) fn set_nodelay(fd: RawFd) {
    let (on, size): (c_int, _) = (1, size_of::<c_int>() as libc::socklen_t);
    // SAFETY: `on` is valid for reads of its size. A closed peer is detected later.
    unsafe {
        libc::setsockopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, (&raw const on).cast(), size)
    };
}
