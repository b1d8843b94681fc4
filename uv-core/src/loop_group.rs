//! Several loops, each on a thread of its own.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use poll_core::Backend;
use socket2::{Domain, Protocol, Socket, Type};

use crate::backends::DefaultBackend;
use crate::dns::SocketType;
use crate::handles::{Addresses, Channel, Disconnect, Handle, Sender, Tcp};
use crate::streams::Listener;
use crate::sys::{self, OwnedSocket};
use crate::{Loop, RunMode};

/// The number of connections that may wait in the kernel, of each listener.
const BACKLOG: u32 = 1024;

/// A function that a loop of a group runs.
type Job<B> = Box<dyn FnOnce(&mut Loop<B>) + Send>;

/// How [`LoopGroup::listen_on`] distributes connections to its loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Distribution {
    /// Each loop has a listener of its own, and the kernel distributes (`SO_REUSEPORT`); handing
    /// over where the kernel does not.
    #[default]
    Kernel,
    /// One loop accepts, and gives the connections to all loops in turn.
    HandOver,
}

/// Several loops, each on a thread of its own: a loop per core.
///
/// A [`Loop`] stays on its thread, so the group makes each in the thread that runs it. The loops
/// run until [`join`](LoopGroup::join) and until nothing keeps them alive.
///
/// ```
/// use std::io::{Read, Write};
/// use uv_core::{LoopGroup, Stream};
///
/// let group = LoopGroup::with_default_backend(2)?;
/// let address = group.listen_on("127.0.0.1:0", |lp, peer| {
///     peer.on_read(lp, |lp, peer, bytes| {
///         match bytes {
///             [] => peer.finish(lp),
///             bytes => peer.send(lp, bytes.to_vec()),
///         }
///         Ok(())
///     })
/// })?;
/// let mut client = std::net::TcpStream::connect(address)?;
/// client.write_all(b"echo")?;
/// client.read_exact(&mut [0; 4])?;
/// drop(client);
/// group.stop_listening();
/// group.join()?;
/// # std::io::Result::Ok(())
/// ```
pub struct LoopGroup<B: Backend = DefaultBackend> {
    loops: Vec<Sender<Job<B>>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// The listeners of a loop.
#[derive(Default)]
struct Listeners(Vec<Tcp>);

impl LoopGroup<DefaultBackend> {
    /// A group of loops over the [default backend](DefaultBackend).
    ///
    /// # Errors
    ///
    /// As [`LoopGroup::new`].
    #[cfg(any(has_epoll, has_kqueue, has_iocp, has_uring, has_poll, has_select))]
    pub fn with_default_backend(threads: usize) -> io::Result<LoopGroup<DefaultBackend>> {
        LoopGroup::new(threads, DefaultBackend::new)
    }
}

impl<B: Backend> LoopGroup<B> {
    /// A group of `threads` loops, at least one, over backends that `backend` makes, one in each
    /// thread.
    ///
    /// ```
    /// use uv_core::LoopGroup;
    /// use uv_core::backends::Auto;
    ///
    /// let cores = std::thread::available_parallelism()?.get();
    /// let group = LoopGroup::new(cores, Auto::new)?;
    /// assert_eq!(group.len(), cores);
    /// group.join()?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first error of `backend`, or of starting a thread. The threads that were started end.
    pub fn new(
        threads: usize,
        backend: impl Fn() -> io::Result<B> + Send + Sync + 'static,
    ) -> io::Result<LoopGroup<B>> {
        let backend = Arc::new(backend);
        let mut group = LoopGroup { loops: Vec::new(), threads: Vec::new() };
        for index in 0..threads.max(1) {
            let (made, ready) = mpsc::channel();
            let backend = Arc::clone(&backend);
            let thread = std::thread::Builder::new().name(format!("uv-loop-{index}"));
            let thread = thread.spawn(move || run_loop(&*backend, &made))?;
            // A thread that ends without an answer has panicked in `backend`.
            match ready.recv() {
                Ok(sender) => group.loops.push(sender?),
                Err(_) => return Err(io::Error::other("the thread of a loop has panicked")),
            }
            group.threads.push(thread);
        }
        Ok(group)
    }

    /// The number of loops.
    pub fn len(&self) -> usize {
        self.loops.len()
    }

    /// False: a group has at least one loop.
    ///
    /// ```
    /// let group = uv_core::LoopGroup::with_default_backend(0)?;
    /// assert!(!group.is_empty());
    /// group.join()?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.loops.is_empty()
    }

    /// Calls `f` in the thread of the loop with this index, in the order of the calls.
    ///
    /// ```
    /// use uv_core::LoopGroup;
    ///
    /// let group = LoopGroup::with_default_backend(2)?;
    /// for index in 0..group.len() {
    ///     group.run_in(index, move |_| println!("this is loop {index}"))?;
    /// }
    /// group.join()?; // Both have run by then.
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such loop, `BrokenPipe` if it has ended, by an error or a panic.
    pub fn run_in(
        &self,
        index: usize,
        f: impl FnOnce(&mut Loop<B>) + Send + 'static,
    ) -> io::Result<()> {
        let sender = self.loops.get(index).ok_or_else(no_such_loop)?;
        sender.send(Box::new(f)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Listens for connections, which all loops serve by `callback`, and returns the address.
    /// Errors go where those of [`Tcp::listen_on`] go, in the loop of the connection.
    ///
    /// # Errors
    ///
    /// As [`Tcp::listen_on`], and as [`run_in`](LoopGroup::run_in).
    pub fn listen_on(
        &self,
        on: impl Into<Addresses>,
        callback: impl Fn(&mut Loop<B>, Tcp) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<SocketAddr> {
        self.listen_by(Distribution::default(), on, callback)
    }

    /// As [`listen_on`](LoopGroup::listen_on), with the way in which connections are distributed.
    ///
    /// ```
    /// use uv_core::{Distribution, Handle, LoopGroup};
    ///
    /// let group = LoopGroup::with_default_backend(2)?;
    /// let way = Distribution::HandOver; // Exactly in turn, at the price of a message for each.
    /// group.listen_by(way, "127.0.0.1:0", |lp, peer| peer.close(lp))?;
    /// group.stop_listening();
    /// group.join()?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`listen_on`](LoopGroup::listen_on).
    pub fn listen_by(
        &self,
        distribution: Distribution,
        on: impl Into<Addresses>,
        callback: impl Fn(&mut Loop<B>, Tcp) -> io::Result<()> + Send + Sync + 'static,
    ) -> io::Result<SocketAddr> {
        let callback = Arc::new(callback);
        let first = bound(on.into().resolve(SocketType::Stream)?, distribution)?;
        let address = first.socket.local_addr()?.as_socket().ok_or_else(no_such_loop)?;
        let mut listeners = vec![first.socket];
        if first.shared {
            let same = Distribution::Kernel;
            for _ in 1..self.len() {
                listeners.push(bound(vec![address], same)?.socket);
            }
        }
        let (alone, loops) = (listeners.len() == 1, self.loops.clone());
        for (index, listener) in listeners.into_iter().enumerate() {
            let (callback, loops) = (Arc::clone(&callback), loops.clone());
            let socket = OwnedSocket::from(listener);
            self.run_in(index, move |lp| match alone && loops.len() > 1 {
                true => accept_for_all(lp, socket, loops, callback),
                false => accept_here(lp, socket, callback),
            })?;
        }
        Ok(address)
    }

    /// Closes the listeners of all loops. Connections stay.
    pub fn stop_listening(&self) {
        for index in 0..self.len() {
            // A loop that has ended has no listeners.
            let _ = self.run_in(index, |lp| {
                let listeners = std::mem::take(lp.state::<Listeners>());
                listeners.0.into_iter().for_each(|listener| listener.close_if_open(lp));
            });
        }
    }

    /// Waits until every loop has run all functions and nothing keeps it alive.
    ///
    /// # Errors
    ///
    /// The first error of [`Loop::run`], or a panic of a callback.
    pub fn join(self) -> io::Result<()> {
        drop(self.loops);
        let mut all = Ok(());
        for thread in self.threads {
            let ended = thread.join();
            let ended = ended.unwrap_or_else(|_| Err(io::Error::other("a loop has panicked")));
            all = all.and(ended);
        }
        all
    }
}

impl<B: Backend> fmt::Debug for LoopGroup<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoopGroup").field("loops", &self.loops.len()).finish()
    }
}

/// Runs the loop of a thread until its channel has no senders and nothing else is active.
fn run_loop<B: Backend>(
    backend: &impl Fn() -> io::Result<B>,
    made: &mpsc::Sender<io::Result<Sender<Job<B>>>>,
) -> io::Result<()> {
    let mut lp = match backend() {
        Ok(backend) => Loop::new(backend),
        Err(error) => {
            // The group waits for the answer.
            let _ = made.send(Err(error));
            return Ok(());
        }
    };
    let run = |lp: &mut Loop<B>, _, job: Job<B>| job(lp);
    let (_, sender) = Channel::with_disconnect(&mut lp, Disconnect::Close, run);
    let _ = made.send(Ok(sender));
    lp.run(RunMode::Default)?;
    Ok(())
}

/// A bound socket, and whether other sockets may share its address.
struct Bound {
    socket: Socket,
    shared: bool,
}

/// A socket that is bound to the first address possible.
fn bound(addresses: Vec<SocketAddr>, distribution: Distribution) -> io::Result<Bound> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the list of addresses is empty");
    for address in addresses {
        let bind = || {
            let domain = Domain::for_address(address);
            let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            // A system that does not distribute says so, and connections are handed over.
            let shared = distribution == Distribution::Kernel && sys::reuse_port(&socket).is_ok();
            socket.bind(&address.into())?;
            // Clients may connect from now on: they wait in the kernel until a loop accepts.
            socket.listen(BACKLOG as i32)?;
            Ok(Bound { socket, shared })
        };
        match bind() {
            Ok(bound) => return Ok(bound),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Listens on a socket; each connection is served by this loop.
fn accept_here<B: Backend>(
    lp: &mut Loop<B>,
    socket: OwnedSocket,
    callback: Arc<impl Fn(&mut Loop<B>, Tcp) -> io::Result<()> + 'static>,
) {
    listen(lp, socket, move |lp, server| {
        let peer = server.accept(lp)?;
        let _ = peer.set_nodelay(lp, true);
        peer.attempt(lp, |lp| callback(lp, peer));
        Ok(())
    });
}

/// Listens on a socket; the connections are served by all loops in turn.
fn accept_for_all<B: Backend>(
    lp: &mut Loop<B>,
    socket: OwnedSocket,
    loops: Vec<Sender<Job<B>>>,
    callback: Arc<impl Fn(&mut Loop<B>, Tcp) -> io::Result<()> + Send + Sync + 'static>,
) {
    let next = AtomicUsize::new(0);
    listen(lp, socket, move |lp, server| {
        let (peer, callback) = (server.accept_socket(lp)?, Arc::clone(&callback));
        let to = &loops[next.fetch_add(1, Ordering::Relaxed) % loops.len()];
        let serve = move |lp: &mut Loop<B>| {
            let tcp = Tcp::new(lp);
            tcp.attempt(lp, |lp| {
                tcp.open(lp, peer)?;
                let _ = tcp.set_nodelay(lp, true);
                callback(lp, tcp)
            });
        };
        // A loop that has ended closes the connection by dropping it.
        let _ = to.send(Box::new(serve));
        Ok(())
    });
}

/// Listens on a socket, and calls `accept` for each connection.
fn listen<B: Backend>(
    lp: &mut Loop<B>,
    socket: OwnedSocket,
    accept: impl Fn(&mut Loop<B>, Tcp) -> io::Result<()> + 'static,
) {
    let server = Tcp::new(lp);
    lp.state::<Listeners>().0.push(server);
    server.attempt(lp, |lp| {
        server.open(lp, socket)?;
        server.listen(lp, BACKLOG, move |lp, server, result| {
            server.attempt(lp, |lp| result.and_then(|()| accept(lp, server)));
        })
    });
}

fn no_such_loop() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the group has no such loop")
}
