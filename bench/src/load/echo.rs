//! Requests in a closed loop: a fixed number of them in flight.

use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::connection::{Connection, Talk};
use super::{Outcome, SILENCE_MS, Target, Watch, Window, connect, silent};
use crate::latencies::Latencies;
use crate::pollers::Epoll;
use crate::process::ServerProcess;
use crate::trace::Tracer;

const BUFFER: usize = 256 * 1024;

/// The maximum warm-up time. With more in flight than the kernel can buffer, a connection may wait
/// for seconds until it is served.
const PATIENCE: Duration = Duration::from_millis(250);

/// Connections that do the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) connections: usize,
    pub(crate) talk: Talk,
    /// The number of requests in flight per connection.
    pub(crate) depth: usize,
    pub(crate) role: Role,
}

impl Group {
    /// Connections whose requests are measured.
    pub(crate) const fn measured(connections: usize, talk: Talk, depth: usize) -> Group {
        Group { connections, talk, depth, role: Role::Measured }
    }
}

/// The purpose of a group of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Its requests are counted, and their latencies recorded.
    Measured,
    /// Its requests load the server, and are not counted.
    Neighbour,
    /// One request each, at the start.
    Idle,
    /// Its requests are sent, and the answers are not read until the end.
    Slow,
}

/// The load: the measured connections, and others beside them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echo {
    pub(crate) main: Group,
    pub(crate) beside: Option<Group>,
    /// The minimum number of requests per connection in the warm-up, within its maximum time.
    pub(crate) least: u64,
}

impl Echo {
    /// Measured connections alone.
    pub(crate) const fn new(connections: usize, talk: Talk, depth: usize, least: u64) -> Echo {
        Echo { main: Group::measured(connections, talk, depth), beside: None, least }
    }
}

/// Loads the server for the window.
pub(crate) fn echo(server: &impl Target, plan: Echo, window: Window) -> io::Result<Outcome> {
    let mut clients = Clients::connect(server, plan, window.check)?;
    let outcome = clients.closed(server, plan.least, window)?;
    if window.check {
        clients.settle()?;
    }
    Ok(outcome)
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

/// Sends `rounds` batches, one request on each connection, and waits for the answers to each batch.
/// The server is stopped while a batch is sent, so that it finds all of it at once. Returns the
/// number of requests.
pub(crate) fn batches(server: &ServerProcess, plan: Echo, rounds: u64) -> io::Result<u64> {
    let mut clients = Clients::connect(server, plan, true)?;
    let before = clients.answered;
    for _ in 0..rounds {
        let stops = plan.main.connections > 1;
        if stops {
            server.pause()?;
        }
        clients.send(1)?;
        if stops {
            server.resume()?;
        }
        clients.settle()?;
    }
    Ok(clients.answered - before)
}

/// Connections that received one answer each and stay open until drop.
pub(crate) fn idle(server: &ServerProcess, plan: Echo) -> io::Result<Clients> {
    Clients::connect(server, plan, true)
}

/// Connections with requests in flight.
pub(crate) struct Clients {
    epoll: Epoll,
    groups: Vec<Group>,
    check: bool,
    /// The origin of all times.
    pub(super) epoch: Instant,
    /// The connections of all groups: the measured ones are the first.
    connections: Vec<Connection>,
    /// The group of each connection.
    group_of: Vec<usize>,
    buffer: Vec<u8>,
    /// Answers to measured requests.
    pub(super) answered: u64,
    /// No new requests are started.
    settling: bool,
    pub(super) latencies: Latencies,
    /// The latencies of the other groups, which are not evaluated.
    others: Latencies,
}

impl Clients {
    /// Connects, and sends one request per connection, so that the server has accepted all of them.
    pub(super) fn connect(server: &impl Target, plan: Echo, check: bool) -> io::Result<Clients> {
        let epoll = Epoll::new()?;
        let groups: Vec<Group> = [Some(plan.main), plan.beside].into_iter().flatten().collect();
        let (mut connections, mut group_of) = (Vec::new(), Vec::new());
        for (index, group) in groups.iter().enumerate() {
            for _ in 0..group.connections {
                let stream = connect(server.address())?;
                stream.set_nonblocking(true)?;
                let (fd, number) = (stream.as_raw_fd(), connections.len());
                epoll.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, number as u64)?;
                connections.push(Connection::new(stream, group.talk, number));
                group_of.push(index);
            }
        }
        let mut clients = Clients {
            epoll,
            groups,
            check,
            epoch: Instant::now(),
            connections,
            group_of,
            buffer: vec![0; BUFFER],
            answered: 0,
            settling: false,
            latencies: Latencies::default(),
            others: Latencies::default(),
        };
        clients.send(1)?;
        clients.settle()?;
        Ok(clients)
    }

    /// The number of connections.
    pub(crate) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// The measured connections.
    fn measured(&self) -> &[Connection] {
        &self.connections[..self.groups[0].connections]
    }

    /// A closed loop for the window.
    pub(super) fn closed(
        &mut self,
        server: &impl Target,
        least: u64,
        window: Window,
    ) -> io::Result<Outcome> {
        self.load()?;
        self.run_until(|clients, begun| {
            let warm_up = begun.elapsed();
            let enough = warm_up >= window.warm_up && clients.slowest() >= least;
            enough || (warm_up >= PATIENCE && !window.check)
        })?;
        self.latencies.clear();
        let before = self.served()?;
        let watch = Watch::start(server)?;
        self.run_until(|clients, begun| {
            begun.elapsed() >= window.measured && clients.answered > before
        })?;
        let spent = watch.spent(server)?;
        let count = self.served()? - before;
        Ok(Outcome { count, spent, latencies: std::mem::take(&mut self.latencies) })
    }

    /// Fills the pipeline of each connection.
    fn load(&mut self) -> io::Result<()> {
        self.settling = false;
        for number in 0..self.connections.len() {
            let group = self.groups[self.group_of[number]];
            if group.role == Role::Idle {
                continue;
            }
            if group.role == Role::Slow {
                self.watch(number, 0)?;
            }
            self.request(number, group.depth)?;
        }
        Ok(())
    }

    /// Sends a number of requests on each connection, after all earlier ones were answered.
    fn send(&mut self, count: usize) -> io::Result<()> {
        (0..self.connections.len()).try_for_each(|number| self.request(number, count))
    }

    /// Sends a number of requests now.
    fn request(&mut self, number: usize, count: usize) -> io::Result<()> {
        let now_ns = self.epoch.elapsed().as_nanos() as u64;
        for _ in 0..count {
            self.connections[number].request(now_ns);
        }
        self.flush(number)
    }

    /// Sends a request whose latency counts from `due_ns` on, on a measured connection.
    pub(super) fn request_due(&mut self, number: usize, due_ns: u64) -> io::Result<()> {
        self.connections[number].request(due_ns);
        if self.connections[number].is_blocked { Ok(()) } else { self.flush(number) }
    }

    /// The number of requests that the server has answered. With thousands of connections, most
    /// answers of a window may be unread.
    fn served(&self) -> io::Result<u64> {
        self.measured().iter().map(Connection::served).sum()
    }

    /// The minimum number of answered requests over all connections, without the first request.
    fn slowest(&self) -> u64 {
        self.measured().iter().map(|one| one.answered - 1).min().unwrap_or(0)
    }

    /// Runs until `over` returns true; it gets the start time.
    fn run_until(&mut self, over: impl Fn(&Clients, Instant) -> bool) -> io::Result<()> {
        let begun = Instant::now();
        while !over(self, begun) {
            if self.poll(SILENCE_MS)? == 0 {
                return Err(silent());
            }
        }
        Ok(())
    }

    /// Waits up to a time, and processes what is ready; returns its number.
    pub(super) fn poll(&mut self, timeout_ms: std::ffi::c_int) -> io::Result<usize> {
        let count = self.epoll.wait_ms(timeout_ms)?;
        for index in 0..count {
            let (number, flags) = self.epoll.event(index);
            self.go_on(number as usize, flags)?;
        }
        Ok(count)
    }

    fn go_on(&mut self, number: usize, flags: i32) -> io::Result<()> {
        let group = self.group_of[number];
        let connection = &mut self.connections[number];
        let mut new = 0;
        if flags & !libc::EPOLLOUT != 0 {
            let latencies = if group == 0 { &mut self.latencies } else { &mut self.others };
            let clock = (self.epoch, latencies);
            new = connection.receive(&mut self.buffer, self.check, clock)?;
            if group == 0 {
                self.answered += new as u64;
            }
        }
        let goes_on = !matches!(self.groups[group].role, Role::Idle | Role::Slow);
        if new > 0 && !self.settling && goes_on {
            let now_ns = self.epoch.elapsed().as_nanos() as u64;
            for _ in 0..new {
                connection.request(now_ns);
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
            let slow = self.groups[self.group_of[number]].role == Role::Slow && !self.settling;
            self.watch(number, if slow { 0 } else { libc::EPOLLIN })?;
        }
        Ok(())
    }

    /// Watches a connection, for writing too if it is blocked.
    fn watch(&mut self, number: usize, reading: i32) -> io::Result<()> {
        let connection = &self.connections[number];
        let out = if connection.is_blocked { libc::EPOLLOUT } else { 0 };
        let fd = connection.stream.as_raw_fd();
        self.epoll.control(libc::EPOLL_CTL_MOD, fd, reading | out, number as u64)
    }

    /// Waits for the answers to all requests, and checks their exact number of bytes.
    pub(super) fn settle(&mut self) -> io::Result<()> {
        self.settling = true;
        for number in 0..self.connections.len() {
            if self.groups[self.group_of[number]].role == Role::Slow {
                self.watch(number, libc::EPOLLIN)?;
            }
        }
        self.run_until(|clients, _| clients.connections.iter().all(Connection::is_settled))
    }

    /// No request is started by an answer from here on.
    pub(super) fn stop_answering(&mut self) {
        self.settling = true;
    }
}
