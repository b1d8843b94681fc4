//! UDP sockets, connected or not.
//!
//! ```text
//!   new ──▶ bind, or the first send, receive or connect ──▶ bound ◀──▶ connected
//!                                                             │
//!        recv_start ◀──▶ recv_stop;  send ─▶ unsent ─▶ completed   └─▶ close
//!        recv ─▶ queued ─▶ completed or cancelled
//! ```
//!
//! [`arm::update`] determines what a socket waits for. [`ready`] handles readiness;
//! [`arm::input_done`] and [`flush::output_done`] handle completions of operations. The callbacks of
//! sends that complete immediately run in the pending phase.

pub(crate) mod arm;
mod datagram;
mod destination;
pub(crate) mod flush;
mod options;
pub(crate) mod recv;
mod recv_into;
mod recv_ready;
pub(crate) mod recv_request;
pub(crate) mod send;
mod send_queue;
mod submit;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use bitflags::bitflags;
use poll_core::{Backend, Interest, RawSource, Readiness, Token};
use socket2::{Domain, Protocol, Socket, Type};

use crate::dns::SocketType;
use crate::event_loop::{InFlight, SourceOwner};
use crate::handles::addresses::{self, Addresses};
use crate::handles::{Base, Handle};
use crate::storage::{Arena, BatchPolicy, InlineFnMutRef, Seed};
use crate::sys::datagrams::Datagrams;
use crate::sys::{self, datagrams};
use crate::{Loop, error};

pub use datagram::{Datagram, Received, UdpError};
pub use destination::Destination;
pub use options::Ecn;
pub use recv_ready::UdpReady;
pub use recv_request::RecvRequest;
use send_queue::Sends;

bitflags! {
    /// Options of [`Udp::bind`].
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    #[doc(alias = "uv_udp_flags")]
    pub struct UdpBindFlags: u8 {
        /// An IPv6 socket does not receive IPv4 datagrams.
        const IPV6_ONLY = 1;
        /// Several sockets that set this flag may bind the same address, for example to receive
        /// multicast. The system chooses which of them receives a unicast datagram.
        const REUSE_ADDRESS = 2;
        /// Several sockets that set this flag may bind the same address, and the system
        /// distributes the datagrams among them. Linux and FreeBSD only.
        const REUSE_PORT = 4;
        /// ICMP errors about datagrams that were sent reach the receive callback. Linux only.
        const REPORT_ERRORS = 8;
    }
}

/// A UDP socket.
///
/// A new handle has no socket. [`bind`](Udp::bind) creates one, or else the first
/// [`send`](Udp::send), [`recv_start`](Udp::recv_start) or [`connect`](Udp::connect), on an
/// address and port that the system chooses. The handle is [active](crate::Handle::is_active)
/// while it receives, and while a send callback is outstanding.
///
/// ```
/// use uv_core::{Handle, Loop, RunMode, Udp};
///
/// let mut lp = Loop::with_default_backend()?;
/// let server = Udp::bind_to(&mut lp, "127.0.0.1:0")?;
/// server.recv_start(&mut lp, |lp, server, datagram| {
///     let datagram = datagram.unwrap();
///     println!("{:?} from {}", datagram.data, datagram.from);
///     server.close(lp).unwrap();
/// })?;
///
/// let address = server.local_addr(&lp)?;
/// let client = Udp::new(&mut lp);
/// client.send(&mut lp, "hello", address, |lp, client, result, _| {
///     result.unwrap();
///     client.close(lp).unwrap();
/// })?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "uv_udp_t")]
pub struct Udp(pub(crate) Token);

/// The UDP sockets of a loop.
#[derive(Debug)]
pub(crate) struct Udps<B: Backend> {
    pub(crate) slots: Arena<UdpSlot<B>>,
    /// Those with datagrams that are to be sent before the next wait.
    flush_queue: Vec<Udp>,
    /// Where datagrams are received; `None` until they are, and while they are lent.
    datagrams: Option<Box<Datagrams>>,
}

impl<B: Backend> Udps<B> {
    pub(crate) fn new(seed: Seed) -> Udps<B> {
        Udps { slots: Arena::new(seed), flush_queue: Vec::new(), datagrams: None }
    }

    /// True if datagrams are to be sent before the next wait.
    #[inline]
    pub(crate) fn has_unflushed(&self) -> bool {
        !self.flush_queue.is_empty()
    }
}

pub(crate) struct UdpSlot<B: Backend> {
    pub(crate) base: Base,
    /// `None` until it is needed, and once the handle is closing.
    socket: Option<Socket>,
    /// The registration; made when the socket first waits for readiness.
    source: Option<Token>,
    /// The interest that is registered with the backend.
    armed: Interest,
    /// The socket uses readiness even if the backend performs operations.
    readiness_only: bool,
    /// The receive operation.
    input: Option<InFlight>,
    /// The deferred close, while operations are in flight on a closing handle.
    deferred_close: Option<Token>,
    /// The socket of a closing handle, while a send operation uses it.
    closing_socket: Option<Socket>,
    is_v6: bool,
    is_connected: bool,
    /// The kernel queues ICMP errors about this socket's datagrams.
    reports_errors: bool,
    /// Datagrams carry control messages (ECN, segment size).
    has_control: bool,
    receiving: bool,
    /// The receiver gets readiness, and receives into memory that it allocates.
    allocates: bool,
    allocated: recv_into::Allocated,
    /// `None` while stopped, and while the callback runs.
    callback: Option<InlineFnMutRef<B, recv::Input>>,
    /// The callback of a handle that receives by itself, instead of `callback`.
    on_ready: Option<recv_ready::OnReady<B>>,
    /// Receives that wait for a datagram. None while `receiving`.
    requests: VecDeque<recv_request::QueuedRecv<B>>,
    /// Receives whose callbacks are to run with a cancellation.
    cancelled_requests: VecDeque<recv_request::QueuedRecv<B>>,
    /// The number of the next request.
    next_request: u64,
    /// The result of the request whose callback is about to run.
    received: Option<Result<Received, UdpError>>,
    /// The size of the first batch that a readiness event requests.
    batch: usize,
    /// Decides whether an event receives one datagram or batches.
    batch_policy: BatchPolicy,
    /// Longer datagrams are truncated.
    largest: usize,
    /// Datagrams that were received while the handle was stopped.
    held: VecDeque<datagram::Held>,
    sends: Sends<B>,
}

impl<B: Backend> fmt::Debug for UdpSlot<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UdpSlot")
            .field("socket", &self.socket)
            .field("armed", &self.armed)
            .finish_non_exhaustive()
    }
}

impl<B: Backend> UdpSlot<B> {
    /// The descriptor of the socket, if there is one.
    pub(crate) fn source(&self) -> Option<RawSource> {
        self.socket.as_ref().map(RawSource::of)
    }

    /// The registration of `raw`, if nothing is armed.
    pub(crate) fn take_idle_source(&mut self, raw: RawSource) -> Option<Token> {
        let idle = self.armed.is_empty() && self.source() == Some(raw);
        if idle { self.source.take() } else { None }
    }

    /// The socket, if there is one.
    pub(crate) fn as_socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }

    /// The socket, or an error if there is none.
    fn socket(&self) -> io::Result<&Socket> {
        self.socket.as_ref().ok_or_else(error::no_socket)
    }
}

impl Udp {
    /// A handle without a socket.
    #[doc(alias = "uv_udp_init")]
    #[doc(alias = "uv_udp_init_ex")]
    #[must_use = "the handle exists until it is closed"]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> Udp {
        let base = lp.new_base();
        Udp(lp.udps.slots.insert(UdpSlot {
            base,
            socket: None,
            source: None,
            armed: Interest::NONE,
            readiness_only: false,
            input: None,
            deferred_close: None,
            closing_socket: None,
            is_v6: false,
            is_connected: false,
            reports_errors: false,
            has_control: false,
            receiving: false,
            allocates: false,
            allocated: recv_into::Allocated::default(),
            callback: None,
            on_ready: None,
            requests: VecDeque::new(),
            cancelled_requests: VecDeque::new(),
            next_request: 0,
            received: None,
            batch: 2,
            batch_policy: BatchPolicy::default(),
            largest: datagrams::MAX_DATAGRAM,
            held: VecDeque::new(),
            sends: Sends::default(),
        }))
    }

    /// Takes over an existing socket, bound or not, connected or not, and makes it non-blocking. On
    /// Unix it may be a Unix datagram socket, see [`Destination`].
    ///
    /// ```
    /// use uv_core::{Loop, Udp};
    ///
    /// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.open(&mut lp, socket)?;
    /// assert!(udp.local_addr(&lp)?.ip().is_loopback());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `EBUSY` if it has a
    /// socket, `AlreadyExists` if another handle of this loop uses the given socket.
    #[doc(alias = "uv_udp_open")]
    pub fn open<B: Backend>(
        self,
        lp: &mut Loop<B>,
        socket: impl Into<sys::OwnedSocket>,
    ) -> io::Result<()> {
        self.open_with(lp, socket, UdpBindFlags::empty())
    }

    /// As [`open`](Udp::open), and sets options of the socket: `REUSE_ADDRESS`, `REUSE_PORT`, both
    /// for a later [`bind`](Udp::bind), and `REPORT_ERRORS`.
    ///
    /// ```
    /// use uv_core::{Loop, Udp, UdpBindFlags};
    ///
    /// let socket = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.open_with(&mut lp, socket, UdpBindFlags::REUSE_ADDRESS)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for `open`; `InvalidInput` for `IPV6_ONLY`, `Unsupported` for a flag that this system
    /// lacks. The socket is closed then.
    #[doc(alias = "uv_udp_open_ex")]
    pub fn open_with<B: Backend>(
        self,
        lp: &mut Loop<B>,
        socket: impl Into<sys::OwnedSocket>,
        flags: UdpBindFlags,
    ) -> io::Result<()> {
        if self.open_slot(lp)?.socket.is_some() {
            return Err(error::busy());
        }
        if flags.contains(UdpBindFlags::IPV6_ONLY) {
            let why = "IPV6_ONLY must be set before the socket is bound";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let socket = Socket::from(socket.into());
        socket.set_nonblocking(true)?;
        let local = socket.local_addr();
        let is_v6 = local.as_ref().is_ok_and(|address| address.is_ipv6());
        set_flags(&socket, is_v6, flags)?;
        let source =
            lp.watch_for(SourceOwner::Udp(self), RawSource::of(&socket), Interest::NONE)?;
        let slot = self.open_slot(lp)?;
        slot.is_v6 = is_v6;
        slot.reports_errors = flags.contains(UdpBindFlags::REPORT_ERRORS);
        // Operations reserve too little space for the names of Unix domain sockets.
        slot.readiness_only = local.is_ok_and(|address| address.is_unix());
        slot.is_connected = socket.peer_addr().is_ok();
        slot.source = Some(source);
        slot.socket = Some(socket);
        Ok(())
    }

    /// A socket that is bound to the first of some addresses that can be bound, without flags; for
    /// port 0 the system chooses a port.
    ///
    /// ```
    /// use uv_core::{Loop, Udp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let server = Udp::bind_to(&mut lp, "127.0.0.1:0")?;
    /// let address = server.local_addr(&lp)?;
    /// assert!(Udp::bind_to(&mut lp, address).is_err(), "it is in use");
    /// assert!(Udp::bind_to(&mut lp, "no port").is_err());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`bind`](Udp::bind), for the last of several addresses; the error of the lookup, which
    /// blocks, if the address is a name; `InvalidInput` if `on` names no address.
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn bind_to<B: Backend>(lp: &mut Loop<B>, on: impl Into<Addresses>) -> io::Result<Udp> {
        let mut last = addresses::none();
        for address in on.into().resolve(SocketType::Datagram)? {
            let udp = Udp::new(lp);
            match udp.bind(lp, address, UdpBindFlags::empty()) {
                Ok(()) => return Ok(udp),
                Err(error) => last = error,
            }
            udp.close_if_open(lp);
        }
        Err(last)
    }

    /// A new socket that is connected to the first of some addresses that can be connected to. A
    /// name is looked up first, and the call blocks meanwhile; numbers never block.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Udp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let server = Udp::bind_to(&mut lp, "127.0.0.1:0")?;
    /// server.recv_start(&mut lp, |lp, server, datagram| {
    ///     println!("{:?}", datagram.map(|datagram| datagram.data));
    ///     server.close_if_open(lp);
    /// })?;
    /// let to = server.local_addr(&lp)?;
    /// let client = Udp::connect_to(&mut lp, to)?;
    /// client.send(&mut lp, "hello", None, |lp, client, _, _| client.close_if_open(lp))?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`connect`](Udp::connect), for the last address; those of the lookup. The socket is closed
    /// then.
    #[doc(alias = "uv_udp_connect")]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn connect_to<B: Backend>(lp: &mut Loop<B>, to: impl Into<Addresses>) -> io::Result<Udp> {
        let mut last = addresses::none();
        for address in to.into().resolve(SocketType::Datagram)? {
            let udp = Udp::new(lp);
            match udp.connect(lp, address) {
                Ok(()) => return Ok(udp),
                Err(error) => last = error,
            }
            udp.close_if_open(lp);
        }
        Err(last)
    }

    /// Binds to an address; for port 0 the system chooses a port.
    ///
    /// Without [`UdpBindFlags::IPV6_ONLY`] an IPv6 socket also receives IPv4 datagrams, where the
    /// system supports that.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key; `InvalidInput` if the handle is closing or bound, or for
    /// `IPV6_ONLY` with an IPv4 address; `Unsupported` for a flag that this system lacks; the
    /// system's errors, such as `AddrInUse`.
    #[doc(alias = "uv_udp_bind")]
    pub fn bind<B: Backend>(
        self,
        lp: &mut Loop<B>,
        address: SocketAddr,
        flags: UdpBindFlags,
    ) -> io::Result<()> {
        let slot = self.open_slot(lp)?;
        if flags.contains(UdpBindFlags::IPV6_ONLY) && address.is_ipv4() {
            let why = "an IPv4 address cannot be bound with IPV6_ONLY";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let made = match slot.socket {
            Some(_) => None,
            None => Some(new_socket(Domain::for_address(address))?),
        };
        let Some(socket) = made.as_ref().or(slot.socket.as_ref()) else { return Ok(()) };
        set_flags(socket, address.is_ipv6(), flags)?;
        if address.is_ipv6() {
            let only = socket.set_only_v6(flags.contains(UdpBindFlags::IPV6_ONLY));
            if flags.contains(UdpBindFlags::IPV6_ONLY) {
                only?; // Without the flag an error is ignored: OpenBSD has no dual-stack sockets.
            }
        }
        socket.bind(&address.into())?;
        slot.is_v6 = address.is_ipv6();
        slot.reports_errors |= flags.contains(UdpBindFlags::REPORT_ERRORS);
        if made.is_some() {
            slot.socket = made;
        }
        Ok(())
    }

    /// Sets the peer: the destination of sends without an address, and the only source of
    /// received datagrams. Completes immediately and sends nothing.
    ///
    /// ```
    /// use uv_core::{Loop, Udp};
    ///
    /// let peer = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.connect(&mut lp, peer.local_addr()?)?;
    /// assert_eq!(udp.peer_addr(&lp)?, peer.local_addr()?);
    /// udp.try_send(&mut lp, b"hello", None)?;
    ///
    /// udp.disconnect(&mut lp)?;
    /// assert!(udp.try_send(&mut lp, b"no destination", None).is_err());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `EISCONN` if it
    /// is connected, and the system's errors.
    #[doc(alias = "uv_udp_connect")]
    pub fn connect<B: Backend>(self, lp: &mut Loop<B>, address: SocketAddr) -> io::Result<()> {
        if self.open_slot(lp)?.is_connected {
            return Err(error::is_connected());
        }
        send::flush(lp, self);
        self.bind_to_any(lp, address, UdpBindFlags::empty())?;
        let slot = self.open_slot(lp)?;
        slot.socket()?.connect(&datagrams::reachable(address).into())?;
        slot.is_connected = true;
        Ok(())
    }

    /// Removes the peer that [`connect`](Udp::connect) has set.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `ENOTCONN` if it is
    /// not connected, and the system's errors.
    #[doc(alias = "uv_udp_connect")]
    pub fn disconnect<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        send::flush(lp, self);
        let slot = self.open_slot(lp)?;
        if !slot.is_connected {
            return Err(error::not_connected());
        }
        sys::disconnect(slot.socket()?)?;
        slot.is_connected = false;
        Ok(())
    }

    /// The address that the socket is bound to.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `EBADF` if there is no socket, and the system's errors.
    #[doc(alias = "uv_udp_getsockname")]
    pub fn local_addr<B: Backend>(self, lp: &Loop<B>) -> io::Result<SocketAddr> {
        let slot = lp.udps.slots.get(self.0).ok_or_else(error::stale)?;
        slot.socket()?.local_addr()?.as_socket().ok_or_else(no_address)
    }

    /// The address that the socket is connected to.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `EBADF` if there is no socket, `ENOTCONN` if it is not
    /// connected.
    #[doc(alias = "uv_udp_getpeername")]
    pub fn peer_addr<B: Backend>(self, lp: &Loop<B>) -> io::Result<SocketAddr> {
        let slot = lp.udps.slots.get(self.0).ok_or_else(error::stale)?;
        slot.socket()?.peer_addr()?.as_socket().ok_or_else(no_address)
    }

    #[inline]
    fn open_slot<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<&mut UdpSlot<B>> {
        let slot = lp.udps.slots.get_mut(self.0).ok_or_else(error::stale)?;
        if slot.base.is_closing() { Err(error::closing()) } else { Ok(slot) }
    }

    /// Binds a handle without a socket to any address of the family of `peer`.
    fn bind_to_any<B: Backend>(
        self,
        lp: &mut Loop<B>,
        peer: SocketAddr,
        flags: UdpBindFlags,
    ) -> io::Result<()> {
        if self.open_slot(lp)?.socket.is_some() {
            return Ok(());
        }
        let any = match peer {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        self.bind(lp, any, flags)
    }
}

/// Sets the options of all flags but `IPV6_ONLY`.
fn set_flags(socket: &Socket, is_v6: bool, flags: UdpBindFlags) -> io::Result<()> {
    if flags.contains(UdpBindFlags::REUSE_ADDRESS) {
        sys::share_address(socket)?;
    }
    if flags.contains(UdpBindFlags::REUSE_PORT) {
        sys::reuse_port(socket)?;
    }
    if flags.contains(UdpBindFlags::REPORT_ERRORS) {
        datagrams::set_reported(socket, is_v6)?;
    }
    Ok(())
}

fn new_socket(domain: Domain) -> io::Result<Socket> {
    // Non-blocking from the start where `socket(2)` has a flag for it.
    #[cfg(any(target_os = "linux", target_os = "android", target_os = "freebsd"))]
    return Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP));
    #[cfg(not(any(target_os = "linux", target_os = "android", target_os = "freebsd")))]
    {
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

fn no_address() -> io::Error {
    io::Error::other("the address of the socket is neither IPv4 nor IPv6")
}

impl<B: Backend> Udps<B> {
    /// Updates whether the handle is active.
    #[inline]
    fn update_active(&mut self, active: &mut usize, udp: Udp) {
        if let Some(slot) = self.slots.get_mut(udp.0)
            && !slot.base.is_closing()
        {
            let requests = slot.requests.len() + slot.cancelled_requests.len();
            match slot.receiving || requests + slot.sends.count() > 0 {
                true => slot.base.start(active),
                false => slot.base.stop(active),
            }
        }
    }
}

pub(crate) fn ready<B: Backend>(lp: &mut Loop<B>, udp: Udp, ready: Readiness) {
    if !recv_ready::report(lp, udp, ready) {
        if ready.contains(Readiness::ERROR) {
            recv::deliver_reports(lp, udp);
        }
        if ready.contains(Readiness::READ) {
            recv::receive_ready(lp, udp);
        }
    }
    if ready.contains(Readiness::WRITE) {
        send::send_queued(lp, udp);
    }
}

/// Closes the registration and the socket, and cancels queued sends. A socket with a send
/// operation in flight is closed after its completion.
pub(crate) fn stop<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    send::flush(lp, udp);
    let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return };
    let (source, socket) = (slot.source.take(), slot.socket.take());
    slot.receiving = false;
    slot.cancel_requests();
    slot.armed = Interest::NONE;
    slot.sends.cancel_on_close(&mut lp.backend);
    if let Some(flight) = &mut slot.input {
        flight.cancel(&mut lp.backend);
    }
    let callback = (slot.callback.take(), slot.on_ready.take());
    let held = std::mem::take(&mut slot.held);
    let socket = match slot.sends.is_in_flight() {
        true => {
            slot.closing_socket = socket;
            None
        }
        false => socket,
    };
    if let Some(source) = source {
        lp.unwatch(source);
    }
    // After `unwatch`: a backend must not hold the registration of a closed socket.
    drop((socket, held));
    send::schedule_callbacks(lp, udp);
    lp.defer(move |lp| recv_request::run_cancelled(lp, udp));
    // Last: destructors of the captured values may do anything.
    drop(callback);
}

/// Resumes sends and held datagrams of all sockets, after a callback has exchanged loops and
/// left them unfinished.
#[cold]
pub(crate) fn check_all<B: Backend>(lp: &mut Loop<B>) {
    let keys: Vec<_> = lp.udps.slots.iter().map(|(key, _)| Udp(key)).collect();
    for udp in keys {
        if let Some(slot) = lp.udps.slots.get_mut(udp.0) {
            slot.sends.completing = false;
        }
        send::uncork(lp, udp);
        send::schedule_callbacks(lp, udp);
        lp.defer(move |lp| recv::deliver_held(lp, udp));
        lp.defer(move |lp| recv_request::run_cancelled(lp, udp));
    }
}
