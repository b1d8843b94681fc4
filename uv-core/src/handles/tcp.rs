//! TCP: connections and listeners.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bitflags::bitflags;
use poll_core::{Backend, Token};
use socket2::{Domain, SockAddr, Socket, TcpKeepalive};

use crate::callback::Once;
use crate::handles::Handle;
use crate::streams::{Connecting, Flags, Kind, Stream, StreamKey, StreamSlot};
use crate::sys::{self, code};
use crate::system::interface_addresses;
use crate::{Loop, error};

bitflags! {
    /// How a [`Tcp`] is bound.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct BindFlags: u8 {
        /// An IPv6 address takes no IPv4 connections.
        const IPV6_ONLY = 1;
        /// Others may bind the same port, and the kernel spreads connections over them. Where
        /// it does not, this is `Unsupported`.
        const REUSE_PORT = 2;
    }
}

/// How a connection is probed when it is silent: see [`Tcp::set_keepalive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Keepalive {
    /// How long it is silent before the first probe.
    pub idle: Duration,
    /// How long between probes.
    pub interval: Duration,
    /// How many unanswered probes end the connection. Older Windows and OpenBSD have one number
    /// for all connections, OpenBSD one interval too.
    pub count: u32,
}

impl Keepalive {
    /// The first probe after `idle`, then one a second, ten in all.
    pub const fn after(idle: Duration) -> Keepalive {
        Keepalive { idle, interval: Duration::from_secs(1), count: 10 }
    }
}

/// A TCP connection, or a listener for them. A [`Stream`].
///
/// ```
/// use uv_core::{BindFlags, Handle, Loop, RunMode, Stream, Tcp};
///
/// let mut lp = Loop::with_default_backend()?;
/// let server = Tcp::new(&mut lp);
/// server.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), BindFlags::empty())?;
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
pub struct Tcp(pub(crate) Token);

impl StreamKey for Tcp {
    fn stream_key(self) -> Token {
        self.0
    }

    fn from_stream_key(key: Token) -> Tcp {
        Tcp(key)
    }

    /// Listening without an address is on any port of all interfaces.
    fn prepare_listen<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        kept_back(slot)?;
        make_socket(slot, Domain::IPV4)?;
        if cfg!(windows) {
            let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
            let socket = slot.socket.as_ref().ok_or_else(error::not_connected)?;
            // Windows does not bind by itself; bound already, this is an error of no interest.
            let _ = socket.bind(&any.into());
        }
        Ok(())
    }
}

impl Stream for Tcp {}

impl Tcp {
    /// A handle that is not connected. The socket is made when it is known of which family.
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> Tcp {
        Tcp(lp.new_stream(Kind::Tcp, None))
    }

    /// Two handles that are connected to each other: by a Unix domain socket where there is
    /// one, by a loopback connection otherwise.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn pair<B: Backend>(lp: &mut Loop<B>) -> io::Result<(Tcp, Tcp)> {
        let (one, other) = sys::socket_pair()?;
        let mut open = |socket: Socket| Tcp(lp.new_stream(Kind::Tcp, Some(socket.into())));
        Ok((open(one), open(other)))
    }

    /// Takes over a socket that exists: a `std` stream or listener, or one made elsewhere. It
    /// is made non-blocking.
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
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `ResourceBusy` if
    /// it has a socket. The socket is closed then.
    pub fn open<B: Backend>(
        self,
        lp: &mut Loop<B>,
        socket: impl Into<sys::OwnedSocket>,
    ) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        if slot.socket.is_some() {
            let why = "the handle has a socket already";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        let socket = Socket::from(socket.into());
        socket.set_nonblocking(true)?;
        slot.flags |= Flags::READABLE | Flags::WRITABLE;
        adopt(slot, socket)
    }

    /// Binds to an address, whose port may be 0 for any that is free.
    ///
    /// An address in use is not an error here but where it matters: of
    /// [`listen`](Stream::listen), [`connect`](Tcp::connect) and
    /// [`local_addr`](Tcp::local_addr). On Unix, addresses that only closed connections still
    /// hold count as free (`SO_REUSEADDR`). A link-local address of IPv6 that does not say on
    /// which link is on the first that has one.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing or its socket is of
    /// another family or bound already, `Unsupported` for `REUSE_PORT` where the kernel does
    /// not spread connections, and the kernel's own.
    pub fn bind<B: Backend>(
        self,
        lp: &mut Loop<B>,
        address: SocketAddr,
        flags: BindFlags,
    ) -> io::Result<()> {
        let address = scoped(address);
        let slot = lp.streams.open(self.0)?;
        if flags.contains(BindFlags::IPV6_ONLY) && !address.is_ipv6() {
            let why = "an IPv4 address cannot be for IPv6 only";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        make_socket(slot, Domain::for_address(address))?;
        let Some(socket) = &slot.socket else { return Err(error::not_connected()) };
        if cfg!(unix) {
            socket.set_reuse_address(true)?;
        }
        if flags.contains(BindFlags::REUSE_PORT) {
            sys::reuse_port(socket)?;
        }
        if address.is_ipv6() {
            socket.set_only_v6(flags.contains(BindFlags::IPV6_ONLY))?;
        }
        let bound = socket.bind(&address.into());
        let in_use = matches!(&bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse);
        let kept_back = bound.as_ref().err().filter(|_| in_use).and_then(io::Error::raw_os_error);
        if in_use || slot.errands.is_some() {
            if let Some(errands) = lp.streams.errands(self.0) {
                errands.bind_error = kept_back;
            }
            lp.streams.end_errand(self.0);
        }
        match bound {
            Err(_) if in_use => Ok(()),
            Err(error) if sys::is_wrong_family(&error) => {
                Err(io::Error::new(io::ErrorKind::InvalidInput, error))
            }
            result => result,
        }
    }

    /// Connects, and calls back when that has succeeded or failed. Writes may be queued
    /// meanwhile. Of link-local addresses the same is true as for [`bind`](Tcp::bind).
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `AlreadyExists` if
    /// it is connecting, and what the kernel knows at once, except that nobody listens: that
    /// is told by the callback. Where the backend connects by itself, all is told by the
    /// callback that the kernel has to be asked for. Connecting a connection is `EISCONN`.
    pub fn connect<B: Backend>(
        self,
        lp: &mut Loop<B>,
        address: SocketAddr,
        callback: impl FnOnce(&mut Loop<B>, Tcp, io::Result<()>) + 'static,
    ) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        if slot.flags.contains(Flags::CONNECTING) {
            return Err(error::already("the stream is connecting"));
        }
        // Linux lets the first repeated connect pass, to whatever address, and does nothing.
        if slot.socket.as_ref().is_some_and(|socket| socket.peer_addr().is_ok()) {
            return Err(io::Error::from_raw_os_error(code::EISCONN));
        }
        let connecting = match kept_back(slot) {
            Err(error) => Connecting::Known(Err(error)),
            Ok(()) => {
                make_socket(slot, Domain::for_address(address))?;
                Connecting::To(reachable(scoped(address)).into())
            }
        };
        let told = move |lp: &mut Loop<B>, (key, result)| callback(lp, Tcp(key), result);
        lp.begin_connect(self.0, connecting, Once::new(told))
    }

    /// Sends small writes at once (`TCP_NODELAY`), or lets them wait for company.
    ///
    /// ```
    /// use uv_core::{Loop, Tcp};
    ///
    /// let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let mut lp = Loop::with_default_backend()?;
    /// let tcp = Tcp::new(&mut lp);
    /// tcp.set_nodelay(&mut lp, true)?; // Before there is a socket, or after.
    /// tcp.connect(&mut lp, listener.local_addr()?, |_, _, _| {})?;
    /// tcp.set_nodelay(&mut lp, false)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, and the kernel's.
    pub fn set_nodelay<B: Backend>(self, lp: &mut Loop<B>, nodelay: bool) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        slot.flags.set(Flags::NODELAY, nodelay);
        slot.socket.as_ref().map_or(Ok(()), |socket| socket.set_tcp_nodelay(nodelay))
    }

    /// Probes a silent connection, so that a peer that is gone is noticed; `None` does not.
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
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing or a time is less
    /// than a second, and the kernel's.
    pub fn set_keepalive<B: Backend>(
        self,
        lp: &mut Loop<B>,
        keepalive: Option<Keepalive>,
    ) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        if let Some(keepalive) = keepalive
            && (keepalive.idle.as_secs() == 0 || keepalive.interval.as_secs() == 0)
        {
            let why = "keepalive counts in seconds, from one";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if let Some(socket) = &slot.socket {
            return set_keepalive(socket, keepalive);
        }
        if let Some(errands) = lp.streams.errands(self.0) {
            errands.keepalive = keepalive;
        }
        lp.streams.end_errand(self.0);
        Ok(())
    }

    /// Does nothing, for programs that were written for libuv: how many accepts are in flight
    /// at once is up to the backend.
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
    /// `NotFound` for a stale key, `NotConnected` without a socket, an error of
    /// [`bind`](Tcp::bind) that was kept back, and the kernel's.
    pub fn local_addr<B: Backend>(self, lp: &Loop<B>) -> io::Result<SocketAddr> {
        let slot = lp.streams.slots.get(self.0).ok_or_else(error::stale)?;
        kept_back(slot)?;
        internet(slot.socket.as_ref().ok_or_else(error::not_connected)?.local_addr()?)
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
    /// As [`local_addr`](Tcp::local_addr), and `NotConnected` without a peer.
    pub fn peer_addr<B: Backend>(self, lp: &Loop<B>) -> io::Result<SocketAddr> {
        let slot = lp.streams.slots.get(self.0).ok_or_else(error::stale)?;
        kept_back(slot)?;
        internet(slot.socket.as_ref().ok_or_else(error::not_connected)?.peer_addr()?)
    }

    /// As [`close`](Handle::close), but the peer sees the connection reset, and what was not
    /// sent is dropped.
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
    /// As [`close`](Handle::close), and `InvalidInput` while it is being shut down.
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
    /// tcp.close_reset_with(&mut lp, |_, _| println!("no trace is left"))?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`close_reset`](Tcp::close_reset).
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
        let Some(socket) = &slot.socket else { return Ok(()) };
        socket.set_linger(Some(Duration::ZERO))
    }
}

/// The error of `bind` that is told now.
fn kept_back<B: Backend>(slot: &StreamSlot<B>) -> io::Result<()> {
    let code = slot.errands.as_ref().and_then(|errands| errands.bind_error);
    code.map_or(Ok(()), |code| Err(io::Error::from_raw_os_error(code)))
}

/// Makes the socket, if there is none.
fn make_socket<B: Backend>(slot: &mut StreamSlot<B>, domain: Domain) -> io::Result<()> {
    if slot.socket.is_some() {
        return Ok(());
    }
    adopt(slot, sys::stream_socket(domain)?)
}

/// Takes a socket, and tells it what was said before it was there.
fn adopt<B: Backend>(slot: &mut StreamSlot<B>, socket: Socket) -> io::Result<()> {
    if slot.flags.contains(Flags::NODELAY) {
        socket.set_tcp_nodelay(true)?;
    }
    let keepalive = slot.errands.as_mut().and_then(|errands| errands.keepalive.take());
    if keepalive.is_some() {
        set_keepalive(&socket, keepalive)?;
    }
    slot.socket = Some(socket.into());
    Ok(())
}

fn set_keepalive(socket: &Socket, keepalive: Option<Keepalive>) -> io::Result<()> {
    let Some(Keepalive { idle, interval, count }) = keepalive else {
        return socket.set_keepalive(false);
    };
    let params = TcpKeepalive::new().with_time(idle);
    cfg_if::cfg_if! {
        if #[cfg(target_os = "openbsd")] {
            let _ = (interval, count); // It has one interval and one count for all.
            socket.set_tcp_keepalive(&params)
        } else {
            let params = params.with_interval(interval);
            match socket.set_tcp_keepalive(&params.clone().with_retries(count)) {
                // Windows before version 1703, and Wine, have one count for all.
                Err(_) if cfg!(windows) => socket.set_tcp_keepalive(&params),
                result => result,
            }
        }
    }
}

/// A link-local address means something on one link only. If none is said, it is the first
/// that has such an address of its own.
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

/// The link of the first address of this machine that is link-local.
fn link_local_scope() -> Option<u32> {
    let mut own = interface_addresses().ok()?.into_iter();
    own.find_map(|own| match own.address {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => Some(own.scope_id),
        _ => None,
    })
}

/// Connecting to no address in particular means this machine. Windows does not know that.
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
    let why = "the socket has no internet address";
    address.as_socket().ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, why))
}
