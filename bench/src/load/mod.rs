//! The clients: one epoll loop by hand, in a process other than the server's and on another
//! core, which costs about as much as the server it talks to.

mod connection;
mod echo;
mod pump;
mod rate;

pub(crate) use echo::{Echo, counted, echo, idle};
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

/// How long the server may be silent. Far more than anything takes.
const SILENCE_MS: c_int = 20_000;

/// For how long to load, and how strictly to look at the answers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    pub(crate) warm_up: Duration,
    pub(crate) measured: Duration,
    /// Compare every byte, and wait for the last answer.
    pub(crate) check: bool,
}

/// What happened within the window.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// How many requests were answered, connections made, or bytes taken.
    pub(crate) count: u64,
    /// On the wall, and the server's CPU time.
    pub(crate) spent: Spent,
    pub(crate) latencies: Latencies,
}

/// The clocks of the window.
struct Watch {
    wall: Instant,
    cpu: Duration,
}

impl Watch {
    fn start(server: &ServerProcess) -> io::Result<Watch> {
        let cpu = server.cpu_time()?;
        Ok(Watch { wall: Instant::now(), cpu })
    }

    fn spent(&self, server: &ServerProcess) -> io::Result<Spent> {
        let wall = self.wall.elapsed();
        Ok(Spent { wall, cpu: server.cpu_time()?.saturating_sub(self.cpu), amount: 0 })
    }
}

/// A connection that closes with a reset: what waits to be closed for good would use up the
/// ports. This also shows that servers survive it.
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
    let why = format!("the server has been silent for {} s", SILENCE_MS / 1000);
    io::Error::new(io::ErrorKind::TimedOut, why)
}

fn wrong(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
