//! Echo requests, a fixed number of them in flight.

use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::{Outcome, SILENCE_MS, Watch, Window, connect, silent};
use crate::latencies::Latencies;
use crate::pollers::Epoll;
use crate::process::ServerProcess;
use crate::trace::Tracer;

const BUFFER: usize = 256 * 1024;

/// The maximum warm-up time. With more in flight than the kernel can buffer, a connection may wait
/// for seconds until it is served.
const PATIENCE: Duration = Duration::from_millis(250);

/// The load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echo {
    pub(crate) connections: usize,
    /// The size of a request.
    pub(crate) bytes: usize,
    /// The number of requests in flight per connection.
    pub(crate) depth: usize,
    /// The minimum number of requests per connection in the warm-up, within its maximum time.
    pub(crate) least: u64,
}

/// Loads the server for the window.
pub(crate) fn echo(server: &ServerProcess, plan: Echo, window: Window) -> io::Result<Outcome> {
    let mut clients = Clients::connect(server, plan, window.check)?;
    clients.load()?;
    clients.run_until(|clients, begun| {
        let warm_up = begun.elapsed();
        let enough = warm_up >= window.warm_up && clients.slowest() >= plan.least;
        enough || (warm_up >= PATIENCE && !window.check)
    })?;
    clients.latencies.clear();
    let before = clients.served()?;
    let watch = Watch::start(server)?;
    clients.run_until(|clients, begun| {
        begun.elapsed() >= window.measured && clients.answered > before
    })?;
    let spent = watch.spent(server)?;
    let count = clients.served()? - before;
    let latencies = std::mem::take(&mut clients.latencies);
    if window.check {
        clients.settle()?;
    }
    Ok(Outcome { count, spent, latencies })
}

/// The cost of a server for a number of requests.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) requests: u64,
    /// System calls, or the reason why they were not counted.
    pub(crate) calls: io::Result<u64>,
    pub(crate) allocations: u64,
}

/// Counts the system calls and allocations of the server for `least` requests per connection,
/// after a warm-up of the same length.
pub(crate) fn counted(server: &mut ServerProcess, plan: Echo) -> io::Result<Counted> {
    let mut clients = Clients::connect(server, plan, true)?;
    clients.load()?;
    clients.run_until(|clients, _| clients.slowest() >= plan.least)?;
    clients.settle()?;
    server.counters()?;
    let tracer = Tracer::attach(server.id());
    let before = clients.answered;
    for _ in 0..plan.least {
        clients.send(1)?;
        clients.settle()?;
    }
    let requests = clients.answered - before;
    let calls = tracer.as_ref().map(Tracer::calls).map_err(|error| error.kind().into());
    let allocations = server.counters()?.allocations;
    if let Ok(tracer) = tracer {
        server.end();
        tracer.join();
    }
    Ok(Counted { requests, calls, allocations })
}

/// Connections that received one answer each and stay open until drop.
pub(crate) fn idle(server: &ServerProcess, plan: Echo) -> io::Result<Clients> {
    Clients::connect(server, plan, true)
}

/// Connections with requests in flight.
pub(crate) struct Clients {
    epoll: Epoll,
    plan: Echo,
    check: bool,
    /// The origin of all times.
    epoch: Instant,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    answered: u64,
    /// No new requests are started.
    settling: bool,
    latencies: Latencies,
}

impl Clients {
    /// Connects, and sends one request per connection, so that the server has accepted all of them.
    fn connect(server: &ServerProcess, plan: Echo, check: bool) -> io::Result<Clients> {
        let epoll = Epoll::new()?;
        let mut connections = Vec::with_capacity(plan.connections);
        for number in 0..plan.connections {
            let stream = connect(server.address())?;
            stream.set_nonblocking(true)?;
            let fd = stream.as_raw_fd();
            epoll.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, number as u64)?;
            connections.push(Connection::new(stream, number));
        }
        let mut clients = Clients {
            epoll,
            plan,
            check,
            epoch: Instant::now(),
            connections,
            buffer: vec![0; BUFFER],
            answered: 0,
            settling: false,
            latencies: Latencies::default(),
        };
        clients.send(1)?;
        clients.settle()?;
        Ok(clients)
    }

    /// The number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Fills the pipeline of each connection.
    fn load(&mut self) -> io::Result<()> {
        self.settling = false;
        self.send(self.plan.depth)
    }

    /// Sends a number of requests on each connection, after all earlier ones were answered.
    fn send(&mut self, count: usize) -> io::Result<()> {
        for number in 0..self.connections.len() {
            let now_ns = self.epoch.elapsed().as_nanos() as u64;
            for _ in 0..count {
                self.connections[number].request(self.plan.bytes, now_ns);
            }
            self.flush(number)?;
        }
        Ok(())
    }

    /// The number of requests that the server has answered. With thousands of connections, most
    /// answers of a window may be unread.
    fn served(&self) -> io::Result<u64> {
        self.connections.iter().map(|one| one.served(self.plan.bytes)).sum()
    }

    /// The minimum number of answered requests over all connections, without the first request.
    fn slowest(&self) -> u64 {
        self.connections.iter().map(|one| one.answered - 1).min().unwrap_or(0)
    }

    /// Runs until `over` returns true; it gets the start time.
    fn run_until(&mut self, over: impl Fn(&Clients, Instant) -> bool) -> io::Result<()> {
        let begun = Instant::now();
        let mut ready = Vec::new();
        while !over(self, begun) {
            let count = self.epoll.wait_ms(SILENCE_MS)?;
            if count == 0 {
                return Err(silent());
            }
            ready.clear();
            ready.extend(self.epoll.found(count));
            for &(number, flags) in &ready {
                self.go_on(number as usize, flags)?;
            }
        }
        Ok(())
    }

    fn go_on(&mut self, number: usize, flags: i32) -> io::Result<()> {
        let Echo { bytes, .. } = self.plan;
        let connection = &mut self.connections[number];
        let mut new = 0;
        if flags & !libc::EPOLLOUT != 0 {
            let clock = (self.epoch, &mut self.latencies);
            new = connection.receive(&mut self.buffer, bytes, self.check, clock)?;
            self.answered += new as u64;
        }
        if new > 0 && !self.settling {
            let now_ns = self.epoch.elapsed().as_nanos() as u64;
            for _ in 0..new {
                connection.request(bytes, now_ns);
            }
        }
        if (new > 0 && !connection.is_blocked) || flags & libc::EPOLLOUT != 0 {
            self.flush(number)?;
        }
        Ok(())
    }

    fn flush(&mut self, number: usize) -> io::Result<()> {
        let connection = &mut self.connections[number];
        let before = connection.is_blocked;
        connection.flush()?;
        if connection.is_blocked != before {
            let out = if connection.is_blocked { libc::EPOLLOUT } else { 0 };
            let fd = connection.stream.as_raw_fd();
            self.epoll.control(libc::EPOLL_CTL_MOD, fd, libc::EPOLLIN | out, number as u64)?;
        }
        Ok(())
    }

    /// Waits for the answers to all requests, and checks their exact number of bytes.
    fn settle(&mut self) -> io::Result<()> {
        self.settling = true;
        self.run_until(|clients, _| clients.connections.iter().all(Connection::is_settled))
    }
}
