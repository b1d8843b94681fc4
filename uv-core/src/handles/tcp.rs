//! TCP connections and listeners.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bitflags::bitflags;
use poll_core::{Backend, Token};
use socket2::{Domain, SockAddr, Socket, TcpKeepalive};

use crate::handles::Handle;
use crate::storage::InlineFnOnce;
use crate::streams::{
    self, Connecting, Flags, Kind, Listener, PrepareListen, Stream, StreamKey, StreamSlot, output,
};
use crate::sys;
use crate::system::interface_addresses;
use crate::{Loop, error};

bitflags! {
    /// Options of [`Tcp::bind`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[doc(alias = "uv_tcp_flags")]
    pub struct TcpBindFlags: u8 {
        /// An IPv6 listener does not accept IPv4 connections.
        const IPV6_ONLY = 1;
        /// Several sockets that set this flag may bind the same port, and the kernel distributes
        /// connections among them. `Unsupported` where the kernel does not.
        const REUSE_PORT = 2;
    }
}

/// The keepalive probes of a connection: see [`Tcp::set_keepalive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Keepalive {
    /// The idle time before the first probe.
    pub idle: Duration,
    /// The time between probes.
    pub interval: Duration,
    /// The number of unanswered probes that end the connection. Ignored by Windows before version
    /// 1703 and by OpenBSD, which have a system-wide count; OpenBSD ignores the interval as well.
    pub count: u32,
}

impl Keepalive {
    /// The first probe after `idle`, then one per second, ten in total.
    pub const fn after(idle: Duration) -> Keepalive {
        Keepalive { idle, interval: Duration::from_secs(1), count: 10 }
    }
}

/// A TCP connection or listener: a [`Stream`].
///
/// ```
/// use uv_core::{Handle, Listener, Loop, RunMode, Stream, Tcp, TcpBindFlags};
///
/// let mut lp = Loop::with_default_backend()?;
/// let server = Tcp::new(&mut lp);
/// server.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), TcpBindFlags::empty())?;
/// server.listen(&mut lp, 128, |lp, server, _| {
///     let peer = server.accept(lp).unwrap();
///     peer.write(lp, "hello", |lp, peer, _, _| peer.close(lp).unwrap()).unwrap();
///     server.close(lp).unwrap();
/// })?;
///
/// let (client, address) = (Tcp::new(&mut lp), server.local_addr(&lp)?);
/// client.connect(&mut lp, address, |lp, client, result| {
///     result.unwrap();
///     let read = client.read_start(lp, |lp, client, bytes| {
///         println!("{:?}", String::from_utf8_lossy(bytes.unwrap()));
///         client.close(lp).unwrap();
///     });
///     read.unwrap();
/// })?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "uv_tcp_t")]
pub struct Tcp(pub(crate) Token);

impl StreamKey for Tcp {
    fn stream_key(self) -> Token {
        self.0
    }

    fn from_stream_key<B: Backend>(_lp: &Loop<B>, key: Token) -> Tcp {
        Tcp(key)
    }
}

impl PrepareListen for Tcp {
    /// An unbound handle listens on all interfaces, on a port that the system chooses.
    fn prepare_listen<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        deferred_bind_error(slot)?;
        make_socket(slot, Domain::IPV4)?;
        if cfg!(windows) {
            let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
            let socket = slot.socket.as_ref().ok_or_else(error::no_socket)?;
            // `listen` does not bind on Windows. If the socket is bound, the error is ignored.
            let _ = socket.bind(&any.into());
        }
        Ok(())
    }
}

impl Stream for Tcp {}
impl Listener for Tcp {}

impl Tcp {
    /// A handle without a socket, which is created when the address family is known.
    #[doc(alias = "uv_tcp_init")]
    #[doc(alias = "uv_tcp_init_ex")]
    #[must_use = "the handle exists until it is closed"]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> Tcp {
        Tcp(streams::new_stream(lp, Kind::Tcp, None))
    }

    /// Two handles that are connected to each other: Unix domain sockets where the system has
    /// `socketpair`, else a loopback connection.
    ///
    /// # Errors
    ///
    /// The kernel's.
    #[doc(alias = "uv_socketpair")]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn pair<B: Backend>(lp: &mut Loop<B>) -> io::Result<(Tcp, Tcp)> {
        let (one, other) = sys::socket_pair()?;
        let one = Tcp(streams::new_stream(lp, Kind::Tcp, Some(one.into())));
        Ok((one, Tcp(streams::new_stream(lp, Kind::Tcp, Some(other.into())))))
    }

    /// Takes over an existing socket, such as a `std` stream or listener, and makes it
    /// non-blocking.
    ///
    /// ```
    /// use uv_core::{Loop, Tcp};
    ///
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let mut lp = Loop::with_default_backend()?;
    /// let tcp = Tcp::new(&mut lp);
    /// tcp.open(&mut lp, listener)?;
    /// assert!(tcp.local_addr(&lp)?.ip().is_loopback());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `EBUSY` if it has a
    /// socket. The given socket is closed then.
    #[doc(alias = "uv_tcp_open")]
    pub fn open<B: Backend>(
        self,
        lp: &mut Loop<B>,
        socket: impl Into<sys::OwnedSocket>,
    ) -> io::Result<()> {
        self.open_unconnected(lp, socket)?;
        lp.streams.open(self.0)?.flags |= Flags::READABLE | Flags::WRITABLE;
        Ok(())
    }

    /// Uses a socket that is not connected: to bind, to connect or to listen with a socket whose
    /// options were set before.
    ///
    #[cfg_attr(unix, doc = "```")]
    #[cfg_attr(not(unix), doc = "```ignore")]
    /// use std::net::TcpListener;
    /// use uv_core::{Listener, Loop, Stream, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let tcp = Tcp::new(&mut lp);
    /// tcp.open_unconnected(&mut lp, TcpListener::bind("127.0.0.1:0")?)?;
    /// assert!(!tcp.is_readable(&lp));
    /// tcp.listen(&mut lp, 16, |_, _, _| {})?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `EBUSY` if it has a
    /// socket, and the kernel's. The socket is closed then.
    #[doc(alias = "uv_tcp_init_ex")]
    pub fn open_unconnected<B: Backend>(
        self,
        lp: &mut Loop<B>,
        socket: impl Into<sys::OwnedSocket>,
    ) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        if slot.socket.is_some() {
            return Err(error::busy());
        }
        let socket = Socket::from(socket.into());
        socket.set_nonblocking(true)?;
        adopt(slot, socket)
    }

    /// Binds to an address; for port 0 the system chooses a port.
    ///
    /// An address in use is not an error here: [`listen`](Listener::listen),
    /// [`connect`](Tcp::connect) and [`local_addr`](Tcp::local_addr) report it. On Unix, an
    /// address that only connections in `TIME_WAIT` hold is free (`SO_REUSEADDR`). An IPv6
    /// link-local address without a scope gets the scope of the first interface that has a
    /// link-local address.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key; `InvalidInput` if the handle is closing, or its socket is bound
    /// or of another family; `Unsupported` for `REUSE_PORT` where the kernel does not distribute
    /// connections; the kernel's errors.
    #[doc(alias = "uv_tcp_bind")]
    pub fn bind<B: Backend>(
        self,
        lp: &mut Loop<B>,
        address: SocketAddr,
        flags: TcpBindFlags,
    ) -> io::Result<()> {
        let address = scoped(address);
        let slot = lp.streams.open(self.0)?;
        if flags.contains(TcpBindFlags::IPV6_ONLY) && !address.is_ipv6() {
            let why = "an IPv4 address cannot be bound with IPV6_ONLY";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        make_socket(slot, Domain::for_address(address))?;
        let Some(socket) = &slot.socket else { return Err(error::no_socket()) };
        if cfg!(unix) {
            socket.set_reuse_address(true)?;
        }
        if flags.contains(TcpBindFlags::REUSE_PORT) {
            sys::reuse_port(socket)?;
        }
        if address.is_ipv6() {
            socket.set_only_v6(flags.contains(TcpBindFlags::IPV6_ONLY))?;
        }
        let bound = socket.bind(&address.into());
        let in_use = matches!(&bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse);
        let deferred = bound.as_ref().err().filter(|_| in_use).and_then(io::Error::raw_os_error);
        if in_use || slot.rare.is_some() {
            if let Some(rare) = lp.streams.rare(self.0) {
                rare.bind_error = deferred;
            }
            lp.streams.release_rare_state(self.0);
        }
        match bound {
            Err(_) if in_use => Ok(()),
            Err(error) if sys::is_wrong_family(&error) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, error))
            }
            result => result,
        }
    }

    /// Connects, and calls back after success or failure. Writes may be queued meanwhile.
    /// Link-local addresses are treated as by [`bind`](Tcp::bind).
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `EALREADY` if it is
    /// connecting, `EISCONN` if it is connected, and the errors that the kernel reports
    /// immediately, except `ConnectionRefused`, which the callback gets. On a backend that
    /// performs connects, the callback gets all errors of the kernel.
    #[doc(alias = "uv_tcp_connect")]
    pub fn connect<B: Backend>(
        self,
        lp: &mut Loop<B>,
        address: SocketAddr,
        callback: impl FnOnce(&mut Loop<B>, Tcp, io::Result<()>) + 'static,
    ) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        if slot.flags.contains(Flags::CONNECTING) {
            return Err(error::already());
        }
        // Linux accepts the first repeated connect, to any address, and does nothing.
        if slot.socket.as_ref().is_some_and(|socket| socket.peer_addr().is_ok()) {
            return Err(error::is_connected());
        }
        let connecting = match deferred_bind_error(slot) {
            Err(error) => Connecting::Known(Err(error)),
            Ok(()) => {
                make_socket(slot, Domain::for_address(address))?;
                Connecting::To(reachable(scoped(address)).into())
            }
        };
        let connected = move |lp: &mut Loop<B>, (key, result)| callback(lp, Tcp(key), result);
        output::connect::begin(lp, self.0, connecting, InlineFnOnce::new(connected))
    }

    /// Disables Nagle's algorithm (`TCP_NODELAY`), which delays small writes, or enables it.
    ///
    /// ```
    /// use uv_core::{Loop, Tcp};
    ///
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let mut lp = Loop::with_default_backend()?;
    /// let tcp = Tcp::new(&mut lp);
    /// tcp.set_nodelay(&mut lp, true)?; // Before or after the socket exists.
    /// tcp.connect(&mut lp, listener.local_addr()?, |_, _, _| {})?;
    /// tcp.set_nodelay(&mut lp, false)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, and the kernel's
    /// errors.
    #[doc(alias = "uv_tcp_nodelay")]
    pub fn set_nodelay<B: Backend>(self, lp: &mut Loop<B>, nodelay: bool) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        slot.flags.set(Flags::NODELAY, nodelay);
        slot.socket.as_ref().map_or(Ok(()), |socket| socket.set_tcp_nodelay(nodelay))
    }

    /// Probes an idle connection to detect a dead peer; `None` disables the probes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_core::{Keepalive, Loop, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let tcp = Tcp::new(&mut lp);
    /// tcp.set_keepalive(&mut lp, Some(Keepalive::after(Duration::from_secs(60))))?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing or a time is less than
    /// a second, and the kernel's errors.
    #[doc(alias = "uv_tcp_keepalive")]
    #[doc(alias = "uv_tcp_keepalive_ex")]
    pub fn set_keepalive<B: Backend>(
        self,
        lp: &mut Loop<B>,
        keepalive: Option<Keepalive>,
    ) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        if let Some(keepalive) = keepalive
            && (keepalive.idle.as_secs() == 0 || keepalive.interval.as_secs() == 0)
        {
            let why = "keepalive times must be at least one second";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if let Some(socket) = &slot.socket {
            return set_keepalive(socket, keepalive);
        }
        if let Some(rare) = lp.streams.rare(self.0) {
            rare.keepalive = keepalive;
        }
        lp.streams.release_rare_state(self.0);
        Ok(())
    }

    /// Does nothing; for programs ported from libuv. The backend determines the number of accepts
    /// in flight.
    ///
    /// ```
    /// use uv_core::{Loop, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let server = Tcp::new(&mut lp);
    /// assert!(server.set_simultaneous_accepts(&mut lp, false).is_ok());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    #[doc(alias = "uv_tcp_simultaneous_accepts")]
    pub fn set_simultaneous_accepts<B: Backend>(
        self,
        lp: &mut Loop<B>,
        _enable: bool,
    ) -> io::Result<()> {
        lp.streams.slots.get(self.0).map(drop).ok_or_else(error::stale)
    }

    /// The address that the socket is bound to.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `EBADF` without a socket, the deferred error of
    /// [`bind`](Tcp::bind), and the kernel's errors.
    #[doc(alias = "uv_tcp_getsockname")]
    pub fn local_addr<B: Backend>(self, lp: &Loop<B>) -> io::Result<SocketAddr> {
        let slot = lp.streams.slots.get(self.0).ok_or_else(error::stale)?;
        deferred_bind_error(slot)?;
        internet(slot.socket.as_ref().ok_or_else(error::no_socket)?.local_addr()?)
    }

    /// The address of the peer.
    ///
    /// ```
    /// use uv_core::{Loop, Tcp};
    ///
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let connection = std::net::TcpStream::connect(listener.local_addr()?)?;
    /// let mut lp = Loop::with_default_backend()?;
    /// let tcp = Tcp::new(&mut lp);
    /// tcp.open(&mut lp, connection)?;
    /// assert_eq!(tcp.peer_addr(&lp)?, listener.local_addr()?);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`local_addr`](Tcp::local_addr), and `NotConnected` without a peer. The handler of
    /// [`Loop::on_error`] still gets the peer of a connection that has failed.
    #[doc(alias = "uv_tcp_getpeername")]
    pub fn peer_addr<B: Backend>(self, lp: &Loop<B>) -> io::Result<SocketAddr> {
        match lp.failed_peer {
            Some((failed, address)) if failed == self => return Ok(address),
            _ => {}
        }
        let slot = lp.streams.slots.get(self.0).ok_or_else(error::stale)?;
        deferred_bind_error(slot)?;
        internet(slot.socket.as_ref().ok_or_else(error::no_socket)?.peer_addr()?)
    }

    /// As [`close`](Handle::close), but resets the connection (`RST`) and discards unsent data.
    ///
    /// ```
    /// use std::io::{ErrorKind, Read};
    /// use uv_core::{Loop, RunMode, Tcp};
    ///
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let connection = std::net::TcpStream::connect(listener.local_addr()?)?;
    /// let (mut peer, _) = listener.accept()?;
    /// let mut lp = Loop::with_default_backend()?;
    /// let tcp = Tcp::new(&mut lp);
    /// tcp.open(&mut lp, connection)?;
    /// tcp.close_reset(&mut lp)?;
    /// lp.run(RunMode::Default)?;
    /// # if cfg!(windows) { return Ok(()); } // Wine shows an orderly end.
    /// assert_eq!(peer.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`close`](Handle::close), `InvalidInput` while it is being shut down, and `EBADF`
    /// (`WSAEBADF`) without a socket. The handle stays open then.
    #[doc(alias = "uv_tcp_close_reset")]
    pub fn close_reset<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        self.prepare_reset(lp)?;
        self.close(lp)
    }

    /// As [`close_reset`](Tcp::close_reset), and calls back as
    /// [`close_with`](Handle::close_with) does.
    ///
    /// ```
    /// use uv_core::{Loop, RunMode, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (tcp, _other) = Tcp::pair(&mut lp)?;
    /// tcp.close_reset_with(&mut lp, |_, _| println!("reset"))?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`close_reset`](Tcp::close_reset).
    #[doc(alias = "uv_tcp_close_reset")]
    pub fn close_reset_with<B: Backend>(
        self,
        lp: &mut Loop<B>,
        callback: impl FnOnce(&mut Loop<B>, Tcp) + 'static,
    ) -> io::Result<()> {
        self.prepare_reset(lp)?;
        self.close_with(lp, callback)
    }

    fn prepare_reset<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        if slot.flags.contains(Flags::SHUTTING) {
            let why = "a connection that is being shut down cannot be reset";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        slot.socket.as_ref().ok_or_else(error::no_socket)?.set_linger(Some(Duration::ZERO))
    }
}

/// Returns the error of `bind` that was deferred (address in use).
fn deferred_bind_error<B: Backend>(slot: &StreamSlot<B>) -> io::Result<()> {
    let code = slot.rare.as_ref().and_then(|rare| rare.bind_error);
    code.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
}

/// Creates the socket, if there is none.
fn make_socket<B: Backend>(slot: &mut StreamSlot<B>, domain: Domain) -> io::Result<()> {
    if slot.socket.is_some() {
        return Ok(());
    }
    adopt(slot, sys::stream_socket(domain)?)
}

/// Takes over a socket, and applies the options that were set before it existed.
fn adopt<B: Backend>(slot: &mut StreamSlot<B>, socket: Socket) -> io::Result<()> {
    apply_options(slot, &socket)?;
    slot.socket = Some(socket.into());
    Ok(())
}

/// Applies the options that were set before the socket existed.
pub(crate) fn apply_options<B: Backend>(
    slot: &mut StreamSlot<B>,
    socket: &Socket,
) -> io::Result<()> {
    if slot.flags.contains(Flags::NODELAY) {
        socket.set_tcp_nodelay(true)?;
    }
    let keepalive = slot.rare.as_mut().and_then(|rare| rare.keepalive.take());
    if keepalive.is_some() {
        set_keepalive(socket, keepalive)?;
    }
    Ok(())
}

fn set_keepalive(socket: &Socket, keepalive: Option<Keepalive>) -> io::Result<()> {
    let Some(Keepalive { idle, interval, count }) = keepalive else {
        return socket.set_keepalive(false);
    };
    let params = TcpKeepalive::new().with_time(idle);
    cfg_if::cfg_if! {
        if #[cfg(target_os = "openbsd")] {
            let _ = (interval, count); // Both are system-wide on OpenBSD.
            socket.set_tcp_keepalive(&params)
        } else {
            let params = params.with_interval(interval);
            match socket.set_tcp_keepalive(&params.clone().with_retries(count)) {
                // Windows before version 1703, and Wine, have a system-wide count.
                Err(_) if cfg!(windows) => socket.set_tcp_keepalive(&params),
                result => result,
            }
        }
    }
}

/// Adds a scope to a link-local address without one: that of the first interface with a
/// link-local address.
fn scoped(mut address: SocketAddr) -> SocketAddr {
    if let SocketAddr::V6(address) = &mut address
        && address.scope_id() == 0
        && address.ip().is_unicast_link_local()
        && let Some(scope) = link_local_scope()
    {
        address.set_scope_id(scope);
    }
    address
}

/// The scope of this machine's first link-local address.
fn link_local_scope() -> Option<u32> {
    let mut own = interface_addresses().ok()?.into_iter();
    own.find_map(|own| match own.address {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(own.scope_id),
        _ => None,
    })
}

/// Replaces the unspecified address by loopback on Windows, where connecting to it fails.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if cfg!(windows) && address.ip().is_unspecified() {
        match &mut address {
            SocketAddr::V4(address) => address.set_ip(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(address) => address.set_ip(Ipv6Addr::LOCALHOST),
        }
    }
    address
}

fn internet(address: SockAddr) -> io::Result<SocketAddr> {
    let why = "the address of the socket is neither IPv4 nor IPv6";
    address.as_socket().ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, why))
}
