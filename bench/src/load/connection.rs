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
use crate::servers::http;

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

/// What clients send, and what they expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Talk {
    /// Requests of this number of bytes, and the same bytes as answers.
    Echo(usize),
    /// HTTP requests, and the fixed answer.
    Http,
}

/// The bytes of a [`Talk`]: each list is a period, twice, so that a slice can start anywhere.
#[derive(Clone, Copy)]
struct Script {
    requests: &'static [u8],
    answers: &'static [u8],
    /// The length of one request and of one answer.
    request: usize,
    answer: usize,
}

impl Script {
    fn of(talk: Talk) -> Script {
        static HTTP: OnceLock<(Vec<u8>, Vec<u8>)> = OnceLock::new();
        match talk {
            Talk::Echo(bytes) => {
                let pattern = pattern();
                Script { requests: pattern, answers: pattern, request: bytes, answer: bytes }
            }
            Talk::Http => {
                let repeated = |text: &[u8]| text.repeat(512);
                let make = || (repeated(http::REQUEST), repeated(http::ANSWER));
                let (requests, answers) = HTTP.get_or_init(make);
                let (request, answer) = (http::REQUEST.len(), http::ANSWER.len());
                Script { requests, answers, request, answer }
            }
        }
    }
}

/// The bytes from a position on, at most a period of them.
fn from(list: &'static [u8], start: usize, position: u64) -> &'static [u8] {
    let period = list.len() / 2;
    let first = (start + (position % period as u64) as usize) % period;
    &list[first..first + period]
}

/// A connection and its requests.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    script: Script,
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
    pub(super) fn new(stream: TcpStream, talk: Talk, number: usize) -> Connection {
        let start = if talk == Talk::Http { 0 } else { number * 7_919 % PATTERN };
        Connection {
            stream,
            script: Script::of(talk),
            start,
            sent: 0,
            received: 0,
            unsent: 0,
            due: VecDeque::new(),
            answered: 0,
            is_blocked: false,
        }
    }

    /// Adds a request. [`flush`](Connection::flush) writes it.
    pub(super) fn request(&mut self, now_ns: u64) {
        self.unsent += self.script.request as u64;
        self.due.push_back(now_ns);
    }

    /// Writes as much as the kernel accepts; returns the number of bytes.
    pub(super) fn flush(&mut self) -> io::Result<u64> {
        let before = self.sent;
        while self.unsent > 0 {
            let bytes = from(self.script.requests, self.start, self.sent);
            let length = (self.unsent as usize).min(bytes.len());
            match (&self.stream).write(&bytes[..length]) {
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
        let answered = self.received / self.script.answer as u64;
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
    pub(super) fn served(&self) -> io::Result<u64> {
        let mut unread: c_int = 0;
        // SAFETY: the kernel writes to `unread` during the call only.
        let failed = unsafe { libc::ioctl(self.stream.as_raw_fd(), libc::FIONREAD, &mut unread) };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((self.received + unread as u64) / self.script.answer as u64)
    }

    /// Checks that the received bytes are the sent ones, in order.
    fn compare(&self, received: &[u8]) -> io::Result<()> {
        let mut position = self.received;
        for part in received.chunks(self.script.answers.len() / 2) {
            let expected = from(self.script.answers, self.start, position);
            if part != &expected[..part.len()] {
                return Err(wrong(format!(
                    "the answer differs from the expected one after {position} bytes"
                )));
            }
            position += part.len() as u64;
        }
        Ok(())
    }

    /// True if every request was answered.
    pub(super) fn is_settled(&self) -> bool {
        let Script { request, answer, .. } = self.script;
        let (sent, received) = (self.sent / request as u64, self.received / answer as u64);
        self.due.is_empty() && self.unsent == 0 && sent == received
    }
}
