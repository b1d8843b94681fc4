//! A hand-written server on a poller.

use std::ffi::c_int;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::ptr;

use poll_core::RawSource;

use super::{READ_SIZE, Service};
use crate::pollers::{Interest, Poller};

/// The maximum number of reads per event of a connection, as in libuv.
const READS: usize = 32;

struct Connection {
    stream: TcpStream,
    /// Bytes that are not yet written. The connection is not read until they are.
    rest: Vec<u8>,
}

/// The server; connections are indexed by descriptor.
struct Connections<P> {
    poller: P,
    service: Service,
    open: Vec<Option<Connection>>,
    buffer: Vec<u8>,
}

pub(super) fn serve<P: Poller>(
    mut poller: P,
    listener: &TcpListener,
    service: Service,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listening = listener.as_raw_fd();
    poller.add(listening as usize, RawSource::of(listener))?;
    let mut connections =
        Connections { poller, service, open: Vec::new(), buffer: vec![0; READ_SIZE] };
    let mut ready = Vec::new();
    loop {
        ready.clear();
        connections.poller.wait(None, &mut ready)?;
        for &number in &ready {
            if number == listening as usize {
                connections.accept(listening)?;
            } else {
                connections.go_on(number);
            }
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
            self.open[number] = Some(Connection { stream, rest: Vec::new() });
        }
    }

    fn go_on(&mut self, number: usize) {
        let Some(Some(connection)) = self.open.get_mut(number) else { return };
        let source = RawSource::of(&connection.stream);
        let alive =
            if connection.rest.is_empty() { self.read(number) } else { self.write_rest(number) };
        if !alive.unwrap_or(false) {
            // An error means that the poller does not watch it: nothing is left to remove.
            let _ = self.poller.remove(number, source);
            self.open[number] = None;
        }
    }

    /// Reads and serves the available data; false at the end of the connection.
    fn read(&mut self, number: usize) -> io::Result<bool> {
        let Some(Some(connection)) = self.open.get_mut(number) else { return Ok(true) };
        let mut reads = 0;
        loop {
            let read = match connection.stream.read(&mut self.buffer) {
                Ok(0) => return Ok(false),
                Ok(read) => read,
                Err(error) => return would_block(error),
            };
            if self.service == Service::Echo {
                let written = match connection.stream.write(&self.buffer[..read]) {
                    Ok(written) => written,
                    Err(error) => would_block(error).map(|_| 0)?,
                };
                if written < read {
                    connection.rest.extend_from_slice(&self.buffer[written..read]);
                    let source = RawSource::of(&connection.stream);
                    self.poller.change(number, source, Interest::Write)?;
                    return Ok(true);
                }
            }
            // A level-triggered poller reports the rest again, which is fair to other connections;
            // with edge triggers an end of file after the data would be missed.
            reads += 1;
            if !P::EDGE && (read < self.buffer.len() || reads == READS) {
                return Ok(true);
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
