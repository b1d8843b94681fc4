//! TCP servers that all do the same, one file for each who serves: single-threaded, with
//! `TCP_NODELAY`, until they are killed. A connection that is reset is closed, and that is all.

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
use crate::suite::Who;

/// Connections that may wait to be accepted.
pub(crate) const BACKLOG: u32 = 4_096;
/// How much is read at once.
#[cfg(target_os = "linux")]
const READ_SIZE: usize = 64 * 1024;

/// What a server does with what it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Service {
    /// Writes it back.
    Echo,
    /// Drops it.
    Sink,
}

impl Service {
    /// As the command line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Service::Echo => "echo",
            Service::Sink => "sink",
        }
    }
}

/// Serves until it is killed or something fails.
#[cfg(target_os = "linux")]
type Serve = fn(TcpListener, Service) -> io::Result<()>;

/// Someone who can serve, or why not.
#[cfg(target_os = "linux")]
pub(crate) struct Server {
    pub(crate) who: Who,
    pub(crate) serve: Result<Serve, String>,
}

/// Everyone who can serve here, and everyone who cannot.
#[cfg(target_os = "linux")]
pub(crate) fn all() -> Vec<Server> {
    use crate::pollers::{Bare, Epoll, HandPoll, HandSelect, Mio, Polling};
    use poll_core::Backend;

    let mut servers = Vec::new();
    let mut add = |who, serve: Serve| {
        servers.push(Server { who, serve: Ok(serve) });
    };
    fn bare<B: Backend>(
        backend: io::Result<B>,
        listener: TcpListener,
        service: Service,
    ) -> io::Result<()> {
        readiness::serve(Bare::new(backend?), &listener, service)
    }
    add(Who::Core("select"), |l, s| core::serve(poll_select::Select::new()?, l, s));
    add(Who::Core("poll"), |l, s| core::serve(poll_poll::Poll::new()?, l, s));
    add(Who::Core("epoll"), |l, s| core::serve(poll_epoll::Epoll::new()?, l, s));
    add(Who::Core("uring"), |l, s| core::serve(poll_uring::Uring::new()?, l, s));
    add(Who::Bare("select"), |l, s| bare(poll_select::Select::new(), l, s));
    add(Who::Bare("poll"), |l, s| bare(poll_poll::Poll::new(), l, s));
    add(Who::Bare("epoll"), |l, s| bare(poll_epoll::Epoll::new(), l, s));
    add(Who::Bare("uring"), |l, s| bare(poll_uring::Uring::new(), l, s));
    #[cfg(feature = "libuv")]
    {
        add(Who::Peer("libuv"), libuv::serve);
        add(Who::Peer("libuv-lean"), libuv::serve_lean);
    }
    add(Who::Hand("select"), |l, s| readiness::serve(HandSelect::new(), &l, s));
    add(Who::Hand("poll"), |l, s| readiness::serve(HandPoll::default(), &l, s));
    add(Who::Hand("epoll"), |l, s| readiness::serve(Epoll::new()?, &l, s));
    add(Who::Hand("uring"), ring::serve);
    add(Who::Peer("mio"), |l, s| readiness::serve(Mio::new()?, &l, s));
    add(Who::Peer("polling"), |l, s| readiness::serve(Polling::new()?, &l, s));
    add(Who::Peer("tokio"), tokio::serve);
    #[cfg(feature = "compio")]
    add(Who::Peer("compio"), compio::serve);
    #[cfg(feature = "monoio")]
    add(Who::Peer("monoio"), monoio::serve);

    let absent = [
        ("libuv", cfg!(feature = "libuv")),
        ("compio", cfg!(feature = "compio")),
        ("monoio", cfg!(feature = "monoio")),
    ];
    for (name, built) in absent {
        if !built {
            let why = crate::suites::not_in_this_build(name);
            servers.push(Server { who: Who::Peer(name), serve: Err(why) });
        }
    }
    if let Err(error) = poll_uring::Uring::new() {
        for server in &mut servers {
            let uses_it =
                matches!(server.who, Who::Core("uring") | Who::Bare("uring") | Who::Hand("uring"))
                    || matches!(server.who, Who::Peer("monoio"));
            if uses_it && server.serve.is_ok() {
                server.serve = Err(error.to_string());
            }
        }
    }
    servers
}

/// Serves as the one of that name, until killed.
///
/// # Errors
///
/// `InvalidInput` if nobody of that name is in this build, and whatever ends a server.
#[cfg(target_os = "linux")]
pub(crate) fn serve(who: &str, service: Service, listener: TcpListener) -> io::Result<()> {
    let server = all().into_iter().find(|server| server.who.to_string() == who);
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let server = server.ok_or_else(|| invalid(format!("nobody is called '{who}'")))?;
    let serve = server.serve.map_err(|why| invalid(format!("{who}: {why}")))?;
    // The standard library's backlog is short.
    use std::os::fd::AsRawFd;
    // SAFETY: takes no memory.
    if unsafe { libc::listen(listener.as_raw_fd(), BACKLOG as std::ffi::c_int) } != 0 {
        return Err(io::Error::last_os_error());
    }
    serve(listener, service)
}

/// Serves as the one of that name, until killed.
///
/// # Errors
///
/// `Unsupported`: Linux only.
#[cfg(not(target_os = "linux"))]
pub(crate) fn serve(_: &str, _: Service, _: TcpListener) -> io::Result<()> {
    let why = "servers of others are compared on Linux only: name a backend instead";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}
