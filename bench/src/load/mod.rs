//! The clients: one hand-written epoll loop, in another process and on another core than the
//! server. Its cost is about that of the server.

mod connection;
mod echo;
mod open;
mod pump;
mod rate;

pub(crate) use connection::Talk;
pub(crate) use echo::{Echo, Group, Role, batches, counted, echo, idle};
pub(crate) use open::{Arrivals, Open, maximum, open};
pub(crate) use pump::{Pump, pump};
pub(crate) use rate::{Rate, rate};

use std::ffi::c_int;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::clock::Spent;
use crate::latencies::Latencies;
use crate::process::ServerProcess;
use crate::suite::{Reading, Sample};

/// The timeout for an answer of the server, far longer than any normal latency.
const SILENCE_MS: c_int = 20_000;

/// The duration of a load, and the strictness of its checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
    /// Compare every byte, and wait for the last answer.
    pub(crate) check: bool,
}

/// The result of a measurement window.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The number of answered requests, of connections, or of bytes.
    pub(crate) count: u64,
    /// The wall-clock time, and the server's CPU time.
    pub(crate) spent: Spent,
    pub(crate) latencies: Latencies,
}

impl Outcome {
    /// The count for each of the first `rates` figures, and a latency for each share of the requests.
    pub(crate) fn sample(self, rates: usize, shares: &[f64]) -> Sample {
        let reading = Reading { count: self.count, spent: self.spent };
        let latency = |share: &f64| {
            let wall = self.latencies.quantile(*share);
            Reading { count: 1, spent: Spent { wall, ..self.spent } }
        };
        let readings = std::iter::repeat_n(reading, rates).chain(shares.iter().map(latency));
        let mut sample = Sample::new(readings);
        sample.latencies = Some(self.latencies);
        sample
    }
}

/// The server under load.
pub(crate) trait Target {
    fn address(&self) -> SocketAddr;

    /// The CPU time that it has used; zero if that is not known.
    fn cpu_time(&self) -> io::Result<Duration>;
}

impl Target for ServerProcess {
    fn address(&self) -> SocketAddr {
        ServerProcess::address(self)
    }

    fn cpu_time(&self) -> io::Result<Duration> {
        ServerProcess::cpu_time(self)
    }
}

/// A server that another program runs, on this or another host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote(pub(crate) SocketAddr);

impl Target for Remote {
    fn address(&self) -> SocketAddr {
        self.0
    }

    fn cpu_time(&self) -> io::Result<Duration> {
        Ok(Duration::ZERO)
    }
}

/// The clocks of a window.
struct Watch {
    wall: Instant,
    cpu: Duration,
}

impl Watch {
    fn start(server: &impl Target) -> io::Result<Watch> {
        let cpu = server.cpu_time()?;
        Ok(Watch { wall: Instant::now(), cpu })
    }

    fn spent(&self, server: &impl Target) -> io::Result<Spent> {
        let wall = self.wall.elapsed();
        Ok(Spent { wall, cpu: server.cpu_time()?.saturating_sub(self.cpu), amount: 0 })
    }
}

/// Opens a connection that closes with a reset, because connections in `TIME_WAIT` would exhaust
/// the ports. It also tests that servers survive resets.
fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = size_of::<libc::linger>() as libc::socklen_t;
    let fd = stream.as_raw_fd();
    // SAFETY: `linger` is valid for reads of its size.
    let failed = unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size)
    };
    if failed != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(stream)
}

fn silent() -> io::Error {
    let why = format!("no answer from the server for {} s", SILENCE_MS / 1000);
    io::Error::new(io::ErrorKind::TimedOut, why)
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
