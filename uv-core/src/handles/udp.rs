//! UDP sockets: datagrams to and from anybody, or one peer.
//!
//! ```text
//!   new ──▶ bind, or the first send, receive or connect ──▶ bound ◀──▶ connected
//!                                                             │
//!        recv_start ◀──▶ recv_stop;  send ─▶ queued ─▶ told   └─▶ close
//! ```
//!
//! [`Loop::arm_udp`] works out what a socket waits for; [`Loop::udp_ready`] reacts where that is
//! readiness, [`Loop::udp_input_done`] and [`Loop::udp_output_done`] where it is an operation.
//! What is known at once is told in the pending phase.

mod flights;
mod options;
mod outbox;
mod queue;
mod recv;
mod send;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use bitflags::bitflags;
use poll_core::{Backend, RawSource, Ready, Token};
use socket2::{Domain, Protocol, Socket, Type};

use crate::callback::Lending;
use crate::crowd::Crowd;
use crate::handles::Base;
use crate::operations::Flight;
use crate::sources::Owner;
use crate::sys::{self, code, datagrams};
use crate::{Loop, error};

pub use options::Ecn;
use queue::Sends;
pub use recv::{Datagram, UdpError};

bitflags! {
    /// How a [`Udp`] is bound.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct UdpBind: u8 {
        /// An IPv6 socket does not get datagrams of IPv4.
        const IPV6_ONLY = 1;
        /// Others may bind the address too, if they say so as well; to listen for
        /// multicast, say. Which of them gets a datagram for one is the system's choice.
        const REUSE_ADDRESS = 2;
        /// Others may bind the address too, and the system shares the datagrams out
        /// among them. Linux and FreeBSD have it.
        const REUSE_PORT = 4;
        /// What routers and hosts say about datagrams that were sent (ICMP errors) reaches
        /// the receive callback. Linux has it.
        const REPORT_ERRORS = 8;
    }
}

/// A UDP socket.
///
/// It has no socket at first: [`bind`](Udp::bind) makes one, or else the first
/// [`send`](Udp::send), [`recv_start`](Udp::recv_start) or [`connect`](Udp::connect), with
/// an address and a port of the system's choice. It is [active](crate::Handle::is_active)
/// while it receives, and while a send has not called back.
///
/// ```
/// use uv_core::{Handle, Loop, RunMode, Udp, UdpBind};
///
/// let mut lp = Loop::with_default_backend()?;
/// let server = Udp::new(&mut lp);
/// server.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBind::empty())?;
/// server.recv_start(&mut lp, |lp, server, datagram| {
///     let datagram = datagram.unwrap();
///     println!("{} says {:?}", datagram.from, datagram.data);
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
pub struct Udp(pub(crate) Token);

pub(crate) struct UdpSlot<B: Backend> {
    pub(crate) base: Base,
    /// `None` until it is needed, and once the handle is closing.
    socket: Option<Socket>,
    /// The registration, from when the socket first waits for something.
    source: Option<Token>,
    /// What the backend was told.
    armed: Ready,
    /// It waits for readiness only, whatever the backend performs.
    is_watched: bool,
    /// The operation that receives.
    input: Option<Flight>,
    /// Where the handle waits for its operations to be closed.
    lingering: Option<Token>,
    /// The socket of a handle that is closing, which an operation still sends by.
    leaving: Option<Socket>,
    is_v6: bool,
    is_connected: bool,
    /// The kernel keeps what the network says about this socket's datagrams.
    reports_errors: bool,
    /// The kernel says more about a datagram than its bytes and its sender.
    is_controlled: bool,
    receiving: bool,
    /// `None` while stopped, and while the callback runs.
    callback: Option<Lending<B, recv::Received>>,
    /// How many datagrams an event asks for at first if it looks for more than one.
    batch: usize,
    /// Whether they come one by one.
    crowd: Crowd,
    /// What is longer is truncated.
    largest: usize,
    /// Datagrams that came with others whose callback stopped receiving.
    held: VecDeque<recv::Held>,
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
    /// The socket's name, if there is one.
    pub(crate) fn source(&self) -> Option<RawSource> {
        self.socket.as_ref().map(RawSource::of)
    }

    /// The socket, if there is one.
    pub(crate) fn as_socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }

    /// The socket, for those who can do nothing without.
    fn socket(&self) -> io::Result<&Socket> {
        self.socket.as_ref().ok_or_else(|| io::Error::from_raw_os_error(code::EBADF))
    }
}

impl Udp {
    /// A handle without a socket yet.
    pub fn new<B: Backend>(lp: &mut Loop<B>) -> Udp {
        let base = lp.new_base();
        Udp(lp.udps.insert(UdpSlot {
            base,
            socket: None,
            source: None,
            armed: Ready::NONE,
            is_watched: false,
            input: None,
            lingering: None,
            leaving: None,
            is_v6: false,
            is_connected: false,
            reports_errors: false,
            is_controlled: false,
            receiving: false,
            callback: None,
            batch: 2,
            crowd: Crowd::default(),
            largest: datagrams::LARGEST,
            held: VecDeque::new(),
            sends: Sends::default(),
        }))
    }

    /// Uses a socket that exists, bound or not, connected or not. It becomes non-blocking.
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
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `EBUSY` if it
    /// has a socket, `AlreadyExists` if a handle of this loop watches that one.
    pub fn open<B: Backend>(self, lp: &mut Loop<B>, socket: UdpSocket) -> io::Result<()> {
        if self.open_slot(lp)?.socket.is_some() {
            return Err(io::Error::from_raw_os_error(code::EBUSY));
        }
        let socket = Socket::from(socket);
        socket.set_nonblocking(true)?;
        let source = lp.watch_for(Owner::Udp(self), RawSource::of(&socket), Ready::NONE)?;
        let slot = self.open_slot(lp)?;
        slot.is_v6 = socket.local_addr().is_ok_and(|address| address.is_ipv6());
        slot.is_connected = socket.peer_addr().is_ok();
        slot.source = Some(source);
        slot.socket = Some(socket);
        Ok(())
    }

    /// Binds to an address; port 0 lets the system choose.
    ///
    /// Without [`UdpBind::IPV6_ONLY`] an IPv6 socket also gets datagrams of IPv4, where the
    /// system can do that.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, if it is bound,
    /// or for `IPV6_ONLY` with an address of IPv4; `Unsupported` for a flag that this system
    /// lacks; else what the system says, such as `AddrInUse`.
    pub fn bind<B: Backend>(
        self,
        lp: &mut Loop<B>,
        address: SocketAddr,
        flags: UdpBind,
    ) -> io::Result<()> {
        let slot = self.open_slot(lp)?;
        if flags.contains(UdpBind::IPV6_ONLY) && address.is_ipv4() {
            let why = "an address of IPv4 cannot be for IPv6 only";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let made = match slot.socket {
            Some(_) => None,
            None => Some(new_socket(Domain::for_address(address))?),
        };
        let Some(socket) = made.as_ref().or(slot.socket.as_ref()) else { return Ok(()) };
        if flags.contains(UdpBind::REUSE_ADDRESS) {
            sys::share_address(socket)?;
        }
        if flags.contains(UdpBind::REUSE_PORT) {
            sys::reuse_port(socket)?;
        }
        if flags.contains(UdpBind::REPORT_ERRORS) {
            datagrams::set_reported(socket, address.is_ipv6())?;
        }
        if address.is_ipv6() {
            let only = socket.set_only_v6(flags.contains(UdpBind::IPV6_ONLY));
            if flags.contains(UdpBind::IPV6_ONLY) {
                only?; // Where the two cannot be had together, one is what there is.
            }
        }
        socket.bind(&address.into())?;
        slot.is_v6 = address.is_ipv6();
        slot.reports_errors |= flags.contains(UdpBind::REPORT_ERRORS);
        if made.is_some() {
            slot.socket = made;
        }
        Ok(())
    }

    /// Sets where sends without an address go; nothing comes from elsewhere any more. Done
    /// at once, without a word to the peer.
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
    /// assert!(udp.try_send(&mut lp, b"to whom?", None).is_err());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `EISCONN` if it
    /// is connected, else what the system says.
    pub fn connect<B: Backend>(self, lp: &mut Loop<B>, address: SocketAddr) -> io::Result<()> {
        if self.open_slot(lp)?.is_connected {
            return Err(io::Error::from_raw_os_error(code::EISCONN));
        }
        lp.flush_sends(self);
        self.bind_to_any(lp, address, UdpBind::empty())?;
        let slot = self.open_slot(lp)?;
        slot.socket()?.connect(&datagrams::reachable(address).into())?;
        slot.is_connected = true;
        Ok(())
    }

    /// Undoes [`connect`](Udp::connect).
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `NotConnected`
    /// if it is not connected, else what the system says.
    pub fn disconnect<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        lp.flush_sends(self);
        let slot = self.open_slot(lp)?;
        if !slot.is_connected {
            return Err(io::Error::from_raw_os_error(code::ENOTCONN));
        }
        sys::disconnect(slot.socket()?)?;
        slot.is_connected = false;
        Ok(())
    }

    /// The address that the socket is bound to.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `EBADF` if there is no socket, else what the system says.
    pub fn local_addr<B: Backend>(self, lp: &Loop<B>) -> io::Result<SocketAddr> {
        let slot = lp.udps.get(self.0).ok_or_else(error::stale)?;
        slot.socket()?.local_addr()?.as_socket().ok_or_else(no_address)
    }

    /// The address that the socket is connected to.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `EBADF` if there is no socket, `NotConnected` if it is
    /// not connected.
    pub fn peer_addr<B: Backend>(self, lp: &Loop<B>) -> io::Result<SocketAddr> {
        let slot = lp.udps.get(self.0).ok_or_else(error::stale)?;
        slot.socket()?.peer_addr()?.as_socket().ok_or_else(no_address)
    }

    #[inline]
    fn open_slot<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<&mut UdpSlot<B>> {
        let slot = lp.udps.get_mut(self.0).ok_or_else(error::stale)?;
        if slot.base.is_closing() { Err(error::closing()) } else { Ok(slot) }
    }

    /// Makes a socket that can talk to `peer`, if there is none.
    fn bind_to_any<B: Backend>(
        self,
        lp: &mut Loop<B>,
        peer: SocketAddr,
        flags: UdpBind,
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

fn new_socket(domain: Domain) -> io::Result<Socket> {
    // Non-blocking from the start where the system can do that.
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
    io::Error::other("the socket's address is not one of the Internet")
}

impl<B: Backend> Loop<B> {
    /// Makes the handle active or not, as it is.
    fn update_udp_activity(&mut self, udp: Udp) {
        if let Some(slot) = self.udps.get_mut(udp.0)
            && !slot.base.is_closing()
        {
            match slot.receiving || slot.sends.count() > 0 {
                true => slot.base.start(&mut self.active_handles),
                false => slot.base.stop(&mut self.active_handles),
            }
        }
    }

    #[inline(never)]
    pub(crate) fn udp_ready(&mut self, udp: Udp, ready: Ready) {
        if ready.contains(Ready::ERROR) {
            self.tell_udp_reports(udp);
        }
        if ready.contains(Ready::READ) {
            self.receive_datagrams(udp);
        }
        if ready.contains(Ready::WRITE) {
            self.send_queued(udp);
        }
    }

    /// Closing: the registration and the socket go at once, but for a socket that an operation
    /// sends by; what was not sent is cancelled.
    pub(crate) fn stop_udp(&mut self, udp: Udp) {
        self.flush_sends(udp);
        let Some(slot) = self.udps.get_mut(udp.0) else { return };
        let (source, socket) = (slot.source.take(), slot.socket.take());
        slot.receiving = false;
        slot.armed = Ready::NONE;
        slot.sends.leave(&mut self.backend);
        if let Some(flight) = &mut slot.input {
            flight.cancel(&mut self.backend);
        }
        let callback = slot.callback.take();
        let held = std::mem::take(&mut slot.held);
        let socket = match slot.sends.is_in_flight() {
            true => {
                slot.leaving = socket;
                None
            }
            false => socket,
        };
        if let Some(source) = source {
            self.unwatch(source);
        }
        // Not before the backend has let go of it.
        drop((socket, held));
        self.tell_sends_later(udp);
        // Last: dropping what it captured may be anything.
        drop(callback);
    }
}
