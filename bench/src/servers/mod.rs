//! TCP servers with the same task, one file for each implementation: single-threaded, with
//! `TCP_NODELAY`, until they are killed. A reset connection is closed without further effect.

pub(crate) mod core;
#[cfg(target_os = "linux")]
mod futures;
pub(crate) mod http;
mod service;

#[cfg(target_os = "linux")]
mod readiness;
#[cfg(target_os = "linux")]
mod ring;

#[cfg(all(target_os = "linux", feature = "compio"))]
mod compio;
#[cfg(all(target_os = "linux", feature = "glommio"))]
mod glommio;
#[cfg(all(target_os = "linux", feature = "libuv"))]
mod libuv;
#[cfg(all(target_os = "linux", feature = "monoio"))]
mod monoio;
#[cfg(target_os = "linux")]
mod smol;
#[cfg(target_os = "linux")]
mod tokio;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};

use self::service::Handler;
pub use self::service::Service;
#[cfg(target_os = "linux")]
use crate::suite::ContestantId;

/// The listen backlog.
pub(crate) const BACKLOG: u32 = 4_096;
/// The size of a read.
#[cfg(target_os = "linux")]
const READ_SIZE: usize = 64 * 1024;
/// The size of a read of those that are compared with smaller buffers.
#[cfg(all(target_os = "linux", any(feature = "compio", feature = "monoio")))]
const SMALL: usize = 4 * 1024;

/// Whether the process exits when a connection ends.
static EXITS: AtomicBool = AtomicBool::new(false);

/// Makes the process exit when the first connection ends: a profiler writes its counts at the exit.
pub(crate) fn exit_with_first_connection() {
    EXITS.store(true, Ordering::Relaxed);
}

/// Every server calls this when a connection has ended.
#[cold]
pub(crate) fn connection_ended() {
    if EXITS.load(Ordering::Relaxed) {
        std::process::exit(0);
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
    use crate::pollers::{Bare, Epoll, HandPoll, HandSelect, Mio, MioDrain, Polling};
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
    add(ContestantId::Async("epoll"), |l, s| futures::serve(poll_epoll::Epoll::new()?, l, s));
    add(ContestantId::Async("uring"), |l, s| futures::serve(poll_uring::Uring::new()?, l, s));
    add(ContestantId::Bare("select"), |l, s| bare(poll_select::Select::new(), l, s));
    add(ContestantId::Bare("poll"), |l, s| bare(poll_poll::Poll::new(), l, s));
    add(ContestantId::Bare("epoll"), |l, s| bare(poll_epoll::Epoll::new(), l, s));
    add(ContestantId::Bare("uring"), |l, s| bare(poll_uring::Uring::new(), l, s));
    #[cfg(feature = "libuv")]
    {
        add(ContestantId::Peer("libuv"), libuv::serve);
        add(ContestantId::Peer("libuv-write"), libuv::serve_write);
        add(ContestantId::Peer("libuv-malloc"), libuv::serve_malloc);
    }
    add(ContestantId::Hand("select"), |l, s| readiness::serve(HandSelect::new(), &l, s));
    add(ContestantId::Hand("poll"), |l, s| readiness::serve(HandPoll::default(), &l, s));
    add(ContestantId::Hand("epoll"), |l, s| readiness::serve(Epoll::new()?, &l, s));
    add(ContestantId::Hand("uring"), ring::serve);
    add(ContestantId::Peer("mio"), |l, s| readiness::serve(Mio::new()?, &l, s));
    add(ContestantId::Peer("polling"), |l, s| readiness::serve(Polling::new()?, &l, s));
    add(ContestantId::Peer("mio-drain"), |l, s| readiness::serve(MioDrain::new()?, &l, s));
    add(ContestantId::Peer("tokio"), tokio::serve);
    add(ContestantId::Peer("tokio-buffers"), tokio::serve_buffers);
    add(ContestantId::Peer("smol"), smol::serve);
    add(ContestantId::Peer("smol-readable"), smol::serve_readable);
    #[cfg(feature = "compio")]
    {
        add(ContestantId::Peer("compio"), compio::serve);
        add(ContestantId::Peer("compio-4k"), compio::serve_small);
    }
    #[cfg(feature = "monoio")]
    {
        add(ContestantId::Peer("monoio"), monoio::serve);
        add(ContestantId::Peer("monoio-4k"), monoio::serve_small);
    }
    #[cfg(feature = "glommio")]
    {
        add(ContestantId::Peer("glommio"), glommio::serve);
        add(ContestantId::Peer("glommio-buffered"), glommio::serve_buffered);
    }

    for (name, why) in crate::suites::unbuilt() {
        servers.push(Server { id: ContestantId::Peer(name), serve: Err(why) });
    }
    refuse_without_uring(&mut servers);
    servers
}

/// Gives all servers that use io_uring its error, if it cannot be used here.
#[cfg(target_os = "linux")]
fn refuse_without_uring(servers: &mut [Server]) {
    if let Err(error) = poll_uring::Uring::new() {
        for server in servers {
            let uses_it = matches!(
                server.id,
                ContestantId::Core("uring")
                    | ContestantId::Bare("uring")
                    | ContestantId::Hand("uring")
                    | ContestantId::Async("uring")
                    | ContestantId::Peer("monoio" | "monoio-4k" | "glommio" | "glommio-buffered")
            );
            if uses_it && server.serve.is_ok() {
                server.serve = Err(error.to_string());
            }
        }
    }
}

/// A listening socket whose address several threads can share: the kernel distributes connections.
///
/// # Errors
///
/// The kernel's.
#[cfg(unix)]
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    use std::ffi::c_int;
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    let SocketAddr::V4(v4) = address else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "use an IPv4 address"));
    };
    // SAFETY: no memory is passed.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call created the descriptor, and no other code owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: plain data, for which all zeros are a valid value.
    let mut name = unsafe { std::mem::zeroed::<libc::sockaddr_in>() };
    name.sin_family = libc::AF_INET as libc::sa_family_t;
    name.sin_port = v4.port().to_be();
    name.sin_addr.s_addr = u32::from_ne_bytes(v4.ip().octets());
    let (on, size): (c_int, _) = (1, size_of::<c_int>() as libc::socklen_t);
    for option in [libc::SO_REUSEADDR, libc::SO_REUSEPORT] {
        // SAFETY: `on` is valid for reads of its size.
        let failed = unsafe {
            let on = (&raw const on).cast();
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, on, size)
        };
        if failed != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: `name` is valid for reads of its size.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const name).cast(), size) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: no memory is passed.
    if unsafe { libc::listen(socket.as_raw_fd(), BACKLOG as c_int) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket.into())
}

/// A listening socket.
///
/// # Errors
///
/// The kernel's.
#[cfg(not(unix))]
pub(crate) fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address)
}

/// The reason why a server does not offer a service, if it does not.
#[cfg(target_os = "linux")]
pub(crate) fn lacks(id: ContestantId, service: Service) -> Option<&'static str> {
    if matches!(service, Service::Echo | Service::Sink) {
        return None;
    }
    if id.is_variant() {
        return Some("a style of use that is compared by the echo and pump suites only");
    }
    let ring = id == ContestantId::Hand("uring") && service == Service::Delay;
    ring.then_some("the hand-written ring has no timers")
}

/// The named server.
///
/// # Errors
///
/// `InvalidInput` if this build has no server of that name.
#[cfg(target_os = "linux")]
pub(crate) fn named(id: &str) -> io::Result<Serve> {
    let server = all().into_iter().find(|server| server.id.to_string() == id);
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let server = server.ok_or_else(|| {
        invalid(format!("unknown server '{id}': '--list' prints the contestants"))
    })?;
    server.serve.map_err(|why| invalid(format!("{id}: {why}")))
}

/// Runs the named server until it is killed.
///
/// # Errors
///
/// As [`named`], and the error that ends the server.
#[cfg(target_os = "linux")]
pub(crate) fn serve(id: &str, service: Service, listener: TcpListener) -> io::Result<()> {
    named(id)?(listener, service)
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
