//! One connection of a client: its requests and the expected answers.

use std::collections::VecDeque;
use std::ffi::c_int;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::time::Instant;

use super::wrong;
use crate::latencies::Latencies;
use crate::random::Random;

/// The length of the pattern that all connections send repeatedly, each from another offset.
const PATTERN: usize = 256 * 1024;

/// The pattern, twice, so that a slice can start anywhere.
pub(super) fn pattern() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let mut random = Random::new(0);
        let once: Vec<u8> = (0..PATTERN).map(|_| (random.draw() >> 32) as u8).collect();
        once.repeat(2)
    })
}

/// A connection and its requests.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    /// The start offset in the pattern.
    start: usize,
    sent: u64,
    received: u64,
    /// The number of request bytes that are not yet written.
    unsent: u64,
    /// The start times of unanswered requests, in nanoseconds.
    due: VecDeque<u64>,
    pub(super) answered: u64,
    /// The connection is watched for writing.
    pub(super) is_blocked: bool,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, number: usize) -> Connection {
        Connection {
            stream,
            start: number * 7_919 % PATTERN,
            sent: 0,
            received: 0,
            unsent: 0,
            due: VecDeque::new(),
            answered: 0,
            is_blocked: false,
        }
    }

    /// Adds a request. [`flush`](Connection::flush) writes it.
    pub(super) fn request(&mut self, bytes: usize, now_ns: u64) {
        self.unsent += bytes as u64;
        self.due.push_back(now_ns);
    }

    /// Writes as much as the kernel accepts; returns the number of bytes.
    pub(super) fn flush(&mut self) -> io::Result<u64> {
        let before = self.sent;
        while self.unsent > 0 {
            let from = (self.start + (self.sent % PATTERN as u64) as usize) % PATTERN;
            let length = (self.unsent as usize).min(PATTERN);
            match (&self.stream).write(&pattern()[from..from + length]) {
                Ok(written) => {
                    self.sent += written as u64;
                    self.unsent -= written as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.is_blocked = self.unsent > 0;
        Ok(self.sent - before)
    }

    /// Reads once and records completed answers; returns their number.
    pub(super) fn receive(
        &mut self,
        buffer: &mut [u8],
        bytes: usize,
        check: bool,
        (epoch, latencies): (Instant, &mut Latencies),
    ) -> io::Result<usize> {
        let read = match (&self.stream).read(buffer) {
            Ok(0) => return Err(wrong("the server closed a connection".into())),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) => return Err(error),
        };
        if check {
            self.compare(&buffer[..read])?;
        }
        self.received += read as u64;
        let answered = self.received / bytes as u64;
        let new = (answered - self.answered) as usize;
        self.answered = answered;
        if new > 0 {
            let now_ns = epoch.elapsed().as_nanos() as u64;
            for _ in 0..new {
                let due = self.due.pop_front();
                let due = due.ok_or_else(|| wrong("more answers than requests".into()))?;
                latencies.record(now_ns - due);
            }
        }
        Ok(new)
    }

    /// The number of requests that the server has answered, including unread answers.
    pub(super) fn served(&self, bytes: usize) -> io::Result<u64> {
        let mut unread: c_int = 0;
        // SAFETY: the kernel writes to `unread` during the call only.
        let failed = unsafe { libc::ioctl(self.stream.as_raw_fd(), libc::FIONREAD, &mut unread) };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((self.received + unread as u64) / bytes as u64)
    }

    /// Checks that the received bytes are the sent ones, in order.
    fn compare(&self, received: &[u8]) -> io::Result<()> {
        let mut position = self.received;
        for part in received.chunks(PATTERN) {
            let from = (self.start + (position % PATTERN as u64) as usize) % PATTERN;
            if part != &pattern()[from..from + part.len()] {
                return Err(wrong(format!(
                    "the answer differs from the request after {position} bytes"
                )));
            }
            position += part.len() as u64;
        }
        Ok(())
    }

    /// True if every request was answered.
    pub(super) fn is_settled(&self) -> bool {
        self.due.is_empty() && self.unsent == 0 && self.sent == self.received
    }
}
