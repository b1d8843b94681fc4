//! TCP servers with the same task, one file for each implementation: single-threaded, with
//! `TCP_NODELAY`, until they are killed. A reset connection is closed without further effect.

pub(crate) mod core;

#[cfg(target_os = "linux")]
mod readiness;
#[cfg(target_os = "linux")]
mod ring;

#[cfg(all(target_os = "linux", feature = "compio"))]
mod compio;
#[cfg(all(target_os = "linux", feature = "libuv"))]
mod libuv;
#[cfg(all(target_os = "linux", feature = "monoio"))]
mod monoio;
#[cfg(target_os = "linux")]
mod tokio;

use std::io;
use std::net::TcpListener;

#[cfg(target_os = "linux")]
use crate::suite::ContestantId;

/// The listen backlog.
pub(crate) const BACKLOG: u32 = 4_096;
/// The size of a read.
#[cfg(target_os = "linux")]
const READ_SIZE: usize = 64 * 1024;

/// The task of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Service {
    /// Writes back what it reads.
    Echo,
    /// Discards what it reads.
    Sink,
}

impl Service {
    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Service::Echo => "echo",
            Service::Sink => "sink",
        }
    }
}

/// Serves until it is killed or fails.
#[cfg(target_os = "linux")]
type Serve = fn(TcpListener, Service) -> io::Result<()>;

/// A server, or the reason why it is missing.
#[cfg(target_os = "linux")]
pub(crate) struct Server {
    pub(crate) id: ContestantId,
    pub(crate) serve: Result<Serve, String>,
}

/// All servers, including missing ones.
#[cfg(target_os = "linux")]
pub(crate) fn all() -> Vec<Server> {
    use crate::pollers::{Bare, Epoll, HandPoll, HandSelect, Mio, Polling};
    use poll_core::Backend;

    let mut servers = Vec::new();
    let mut add = |id, serve: Serve| {
        servers.push(Server { id, serve: Ok(serve) });
    };
    fn bare<B: Backend>(
        backend: io::Result<B>,
        listener: TcpListener,
        service: Service,
    ) -> io::Result<()> {
        readiness::serve(Bare::new(backend?), &listener, service)
    }
    add(ContestantId::Core("select"), |l, s| core::serve(poll_select::Select::new()?, l, s));
    add(ContestantId::Core("poll"), |l, s| core::serve(poll_poll::Poll::new()?, l, s));
    add(ContestantId::Core("epoll"), |l, s| core::serve(poll_epoll::Epoll::new()?, l, s));
    add(ContestantId::Core("uring"), |l, s| core::serve(poll_uring::Uring::new()?, l, s));
    add(ContestantId::Bare("select"), |l, s| bare(poll_select::Select::new(), l, s));
    add(ContestantId::Bare("poll"), |l, s| bare(poll_poll::Poll::new(), l, s));
    add(ContestantId::Bare("epoll"), |l, s| bare(poll_epoll::Epoll::new(), l, s));
    add(ContestantId::Bare("uring"), |l, s| bare(poll_uring::Uring::new(), l, s));
    #[cfg(feature = "libuv")]
    {
        add(ContestantId::Peer("libuv"), libuv::serve);
        add(ContestantId::Peer("libuv-lean"), libuv::serve_lean);
    }
    add(ContestantId::Hand("select"), |l, s| readiness::serve(HandSelect::new(), &l, s));
    add(ContestantId::Hand("poll"), |l, s| readiness::serve(HandPoll::default(), &l, s));
    add(ContestantId::Hand("epoll"), |l, s| readiness::serve(Epoll::new()?, &l, s));
    add(ContestantId::Hand("uring"), ring::serve);
    add(ContestantId::Peer("mio"), |l, s| readiness::serve(Mio::new()?, &l, s));
    add(ContestantId::Peer("polling"), |l, s| readiness::serve(Polling::new()?, &l, s));
    add(ContestantId::Peer("tokio"), tokio::serve);
    #[cfg(feature = "compio")]
    add(ContestantId::Peer("compio"), compio::serve);
    #[cfg(feature = "monoio")]
    add(ContestantId::Peer("monoio"), monoio::serve);

    let absent = [
        ("libuv", cfg!(feature = "libuv")),
        ("compio", cfg!(feature = "compio")),
        ("monoio", cfg!(feature = "monoio")),
    ];
    for (name, built) in absent {
        if !built {
            let why = crate::suites::not_in_this_build(name);
            servers.push(Server { id: ContestantId::Peer(name), serve: Err(why) });
        }
    }
    if let Err(error) = poll_uring::Uring::new() {
        for server in &mut servers {
            let uses_it = matches!(
                server.id,
                ContestantId::Core("uring")
                    | ContestantId::Bare("uring")
                    | ContestantId::Hand("uring")
            ) || matches!(server.id, ContestantId::Peer("monoio"));
            if uses_it && server.serve.is_ok() {
                server.serve = Err(error.to_string());
            }
        }
    }
    servers
}

/// Runs the named server until it is killed.
///
/// # Errors
///
/// `InvalidInput` if this build has no server of that name, and the error that ends the server.
#[cfg(target_os = "linux")]
pub(crate) fn serve(id: &str, service: Service, listener: TcpListener) -> io::Result<()> {
    let server = all().into_iter().find(|server| server.id.to_string() == id);
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let server = server.ok_or_else(|| {
        invalid(format!("unknown server '{id}': '--list' prints the contestants"))
    })?;
    let serve = server.serve.map_err(|why| invalid(format!("{id}: {why}")))?;
    // The backlog of the standard library is too short for the load.
    use std::os::fd::AsRawFd;
    // SAFETY: no memory is passed.
    if unsafe { libc::listen(listener.as_raw_fd(), BACKLOG as std::ffi::c_int) } != 0 {
        return Err(io::Error::last_os_error());
    }
    serve(listener, service)
}

/// Runs the named server until it is killed.
///
/// # Errors
///
/// `Unsupported`: Linux only.
#[cfg(not(target_os = "linux"))]
pub(crate) fn serve(_: &str, _: Service, _: TcpListener) -> io::Result<()> {
    let why = "other servers are measured on Linux only: name a backend instead";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}
