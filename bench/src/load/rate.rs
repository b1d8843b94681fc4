//! Short connections: connect, one request, reset.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Instant;

use super::connection::pattern;
use super::{Outcome, SILENCE_MS, Watch, Window, connect, silent, wrong};
use crate::latencies::Latencies;
use crate::pollers::Epoll;
use crate::process::ServerProcess;

const REQUEST: usize = 64;

/// The load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// The number of concurrent connections.
    pub(crate) concurrent: usize,
    /// The minimum number of connections in the window.
    pub(crate) least: u64,
}

/// Connects repeatedly for the duration of the window.
pub(crate) fn rate(server: &ServerProcess, plan: Rate, window: Window) -> io::Result<Outcome> {
    let mut clients = Clients {
        server,
        epoll: Epoll::new()?,
        open: Vec::new(),
        made: 0,
        latencies: Latencies::default(),
    };
    for number in 0..plan.concurrent {
        let visit = clients.visit(number)?;
        clients.open.push(visit);
    }
    clients.run_until(|_, begun| begun.elapsed() >= window.warm_up)?;
    clients.latencies.clear();
    let before = clients.made;
    let watch = Watch::start(server)?;
    clients.run_until(|clients, begun| {
        begun.elapsed() >= window.measured && clients.made - before >= plan.least
    })?;
    let spent = watch.spent(server)?;
    Ok(Outcome { count: clients.made - before, spent, latencies: clients.latencies })
}

/// One connection, its start time, and the received length of the answer.
struct Visit {
    stream: TcpStream,
    begun: Instant,
    received: usize,
}

struct Clients<'a> {
    server: &'a ServerProcess,
    epoll: Epoll,
    open: Vec<Visit>,
    made: u64,
    latencies: Latencies,
}

impl Clients<'_> {
    /// Connects and sends the request.
    fn visit(&mut self, number: usize) -> io::Result<Visit> {
        let begun = Instant::now();
        // On the loopback interface a connect does not wait for the accept.
        let mut stream = connect(self.server.address())?;
        stream.write_all(&pattern()[number..number + REQUEST])?;
        let fd = stream.as_raw_fd();
        self.epoll.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN, number as u64)?;
        Ok(Visit { stream, begun, received: 0 })
    }

    fn run_until(&mut self, over: impl Fn(&Clients<'_>, Instant) -> bool) -> io::Result<()> {
        let begun = Instant::now();
        let mut ready = Vec::new();
        while !over(self, begun) {
            let count = self.epoll.wait_ms(SILENCE_MS)?;
            if count == 0 {
                return Err(silent());
            }
            ready.clear();
            ready.extend(self.epoll.found(count).map(|(number, _)| number as usize));
            for &number in &ready {
                self.go_on(number)?;
            }
        }
        Ok(())
    }

    fn go_on(&mut self, number: usize) -> io::Result<()> {
        let visit = &mut self.open[number];
        let mut buffer = [0; REQUEST];
        let read = visit.stream.read(&mut buffer)?;
        let expected = &pattern()[number + visit.received..];
        if read == 0 || visit.received + read > REQUEST || buffer[..read] != expected[..read] {
            return Err(wrong("the answer differs from the request".into()));
        }
        visit.received += read;
        if visit.received == REQUEST {
            self.latencies.record(visit.begun.elapsed().as_nanos() as u64);
            self.made += 1;
            self.open[number] = self.visit(number)?;
        }
        Ok(())
    }
}
