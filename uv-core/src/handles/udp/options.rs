//! Options of a UDP socket: reach, multicast, and what kernels can do for QUIC and the like.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use poll_core::Backend;
use socket2::Socket;

use super::{Udp, UdpBind};
use crate::sys::{self, datagrams};
use crate::{Loop, error};

/// What a datagram's header says about congestion (RFC 3168).
///
/// ```
/// # if cfg!(not(target_os = "linux")) { return Ok(()); }
/// use uv_core::{Ecn, Handle, Loop, RunMode, Udp, UdpBind};
///
/// let mut lp = Loop::with_default_backend()?;
/// let udp = Udp::new(&mut lp);
/// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBind::empty())?;
/// udp.set_ecn(&mut lp, Ecn::Capable0)?;
/// udp.set_receive_ecn(&mut lp, true)?;
/// udp.recv_start(&mut lp, |lp, udp, datagram| {
///     match datagram.unwrap().ecn {
///         Some(Ecn::Congested) => println!("slow down"),
///         other => assert_eq!(other, Some(Ecn::Capable0)),
///     }
///     udp.close(lp).unwrap();
/// })?;
/// let to = udp.local_addr(&lp)?;
/// udp.try_send(&mut lp, b"hello", to)?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Ecn {
    /// The sender does not listen.
    #[default]
    NotCapable = 0,
    /// The sender listens; the second of the two ways to say so.
    Capable1 = 1,
    /// The sender listens.
    Capable0 = 2,
    /// A router was congested.
    Congested = 3,
}

impl Ecn {
    pub(super) fn from_bits(bits: u8) -> Ecn {
        match bits & 3 {
            0 => Ecn::NotCapable,
            1 => Ecn::Capable1,
            2 => Ecn::Capable0,
            _ => Ecn::Congested,
        }
    }
}

/// All of these want a socket: [bind](Udp::bind) first.
///
/// ```
/// use std::net::{Ipv4Addr, Ipv6Addr};
/// use uv_core::{Loop, Udp, UdpBind};
///
/// let mut lp = Loop::with_default_backend()?;
/// let udp = Udp::new(&mut lp);
/// assert!(udp.set_ttl(&mut lp, 64).is_err(), "it has no socket yet");
/// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBind::empty())?;
/// udp.set_ttl(&mut lp, 64)?;
/// udp.set_broadcast(&mut lp, true)?;
///
/// // To groups of this network, by one interface, and not to this machine.
/// udp.set_multicast_ttl(&mut lp, 1)?;
/// udp.set_multicast_interface_v4(&mut lp, Ipv4Addr::LOCALHOST)?;
/// udp.set_multicast_loop(&mut lp, false)?;
///
/// // The same with IPv6, where there is such.
/// let udp = Udp::new(&mut lp);
/// if udp.bind(&mut lp, (Ipv6Addr::LOCALHOST, 0).into(), UdpBind::IPV6_ONLY).is_ok() {
///     udp.set_multicast_interface_v6(&mut lp, 0)?;
/// }
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `NotFound` for a stale key, `EBADF` if there is no socket, `InvalidInput` for a value
/// that is out of range, `Unsupported` where the system does not have it, and else what the
/// system says.
impl Udp {
    /// Lets datagrams go to broadcast addresses.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn set_broadcast<B: Backend>(self, lp: &mut Loop<B>, on: bool) -> io::Result<()> {
        self.socket(lp)?.0.set_broadcast(on)
    }

    /// How many routers a datagram may pass, 1 to 255.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn set_ttl<B: Backend>(self, lp: &mut Loop<B>, ttl: u8) -> io::Result<()> {
        let (socket, is_v6) = self.socket(lp)?;
        if ttl == 0 {
            let why = "a datagram that may not live is not sent: the range is 1 to 255";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        match is_v6 {
            true => socket.set_unicast_hops_v6(ttl.into()),
            false => socket.set_ttl_v4(ttl.into()),
        }
    }

    /// How many routers a multicast datagram may pass: 0 keeps it on this machine, 1, which
    /// is how it begins, in this network.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn set_multicast_ttl<B: Backend>(self, lp: &mut Loop<B>, ttl: u8) -> io::Result<()> {
        match self.socket(lp)? {
            (socket, true) => socket.set_multicast_hops_v6(ttl.into()),
            (socket, false) => socket.set_multicast_ttl_v4(ttl.into()),
        }
    }

    /// Whether this machine gets what it sends to groups that it is in; at first it does.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn set_multicast_loop<B: Backend>(self, lp: &mut Loop<B>, on: bool) -> io::Result<()> {
        match self.socket(lp)? {
            (socket, true) => socket.set_multicast_loop_v6(on),
            (socket, false) => socket.set_multicast_loop_v4(on),
        }
    }

    /// By which interface multicast goes out, named by an address of it.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn set_multicast_interface_v4<B: Backend>(
        self,
        lp: &mut Loop<B>,
        interface: Ipv4Addr,
    ) -> io::Result<()> {
        self.socket(lp)?.0.set_multicast_if_v4(&interface)
    }

    /// By which interface multicast of IPv6 goes out, named by its number; 0 lets the system
    /// choose.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn set_multicast_interface_v6<B: Backend>(
        self,
        lp: &mut Loop<B>,
        interface: u32,
    ) -> io::Result<()> {
        self.socket(lp)?.0.set_multicast_if_v6(interface)
    }

    /// Gets what is sent to a group, on the interface with this address, or, if that is
    /// unspecified, on one of the system's choice. Binds a handle without a socket, to a
    /// port of the system's choice.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use uv_core::{Loop, Udp, UdpBind};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.bind(&mut lp, "0.0.0.0:0".parse().unwrap(), UdpBind::REUSE_ADDRESS)?;
    /// let group = Ipv4Addr::new(239, 255, 0, 1);
    /// if udp.join_multicast_v4(&mut lp, group, Ipv4Addr::LOCALHOST).is_ok() {
    ///     udp.leave_multicast_v4(&mut lp, group, Ipv4Addr::LOCALHOST)?;
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn join_multicast_v4<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv4Addr,
        interface: Ipv4Addr,
    ) -> io::Result<()> {
        self.bind_to_any(lp, (Ipv4Addr::UNSPECIFIED, 0).into(), UdpBind::REUSE_ADDRESS)?;
        self.socket(lp)?.0.join_multicast_v4(&group, &interface)
    }

    /// Undoes [`join_multicast_v4`](Udp::join_multicast_v4).
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn leave_multicast_v4<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv4Addr,
        interface: Ipv4Addr,
    ) -> io::Result<()> {
        self.socket(lp)?.0.leave_multicast_v4(&group, &interface)
    }

    /// Gets what is sent to a group of IPv6, on the interface with this number, or, if that
    /// is 0, on one of the system's choice. Binds a handle without a socket.
    ///
    /// ```
    /// use uv_core::{Loop, Udp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (udp, group) = (Udp::new(&mut lp), "ff02::1234".parse().unwrap());
    /// match udp.join_multicast_v6(&mut lp, group, 0) {
    ///     Ok(()) => udp.leave_multicast_v6(&mut lp, group, 0)?,
    ///     Err(error) => println!("there is no IPv6 here: {error}"),
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn join_multicast_v6<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv6Addr,
        interface: u32,
    ) -> io::Result<()> {
        self.bind_to_any(lp, (Ipv6Addr::UNSPECIFIED, 0).into(), UdpBind::REUSE_ADDRESS)?;
        self.socket(lp)?.0.join_multicast_v6(&group, interface)
    }

    /// Undoes [`join_multicast_v6`](Udp::join_multicast_v6).
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn leave_multicast_v6<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv6Addr,
        interface: u32,
    ) -> io::Result<()> {
        self.socket(lp)?.0.leave_multicast_v6(&group, interface)
    }

    /// As [`join_multicast_v4`](Udp::join_multicast_v4), for what `source` sends only.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use uv_core::{Loop, Udp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (udp, group) = (Udp::new(&mut lp), Ipv4Addr::new(232, 1, 1, 1));
    /// let (source, interface) = (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
    /// match udp.join_source_v4(&mut lp, group, source, interface) {
    ///     Ok(()) => udp.leave_source_v4(&mut lp, group, source, interface)?,
    ///     Err(error) => println!("not on this interface: {error}"),
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn join_source_v4<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv4Addr,
        source: Ipv4Addr,
        interface: Ipv4Addr,
    ) -> io::Result<()> {
        self.bind_to_any(lp, (Ipv4Addr::UNSPECIFIED, 0).into(), UdpBind::REUSE_ADDRESS)?;
        sys::join_source_v4(self.socket(lp)?.0, group, source, interface)
    }

    /// Undoes [`join_source_v4`](Udp::join_source_v4).
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn leave_source_v4<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv4Addr,
        source: Ipv4Addr,
        interface: Ipv4Addr,
    ) -> io::Result<()> {
        sys::leave_source_v4(self.socket(lp)?.0, group, source, interface)
    }

    /// As [`join_multicast_v6`](Udp::join_multicast_v6), for what `source` sends only. Linux
    /// has it.
    ///
    /// ```
    /// use std::net::Ipv6Addr;
    /// use uv_core::{Loop, Udp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (udp, group) = (Udp::new(&mut lp), "ff35::1234".parse().unwrap());
    /// match udp.join_source_v6(&mut lp, group, Ipv6Addr::LOCALHOST, 0) {
    ///     Ok(()) => udp.leave_source_v6(&mut lp, group, Ipv6Addr::LOCALHOST, 0)?,
    ///     Err(error) => println!("not here: {error}"),
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn join_source_v6<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv6Addr,
        source: Ipv6Addr,
        interface: u32,
    ) -> io::Result<()> {
        self.bind_to_any(lp, (Ipv6Addr::UNSPECIFIED, 0).into(), UdpBind::REUSE_ADDRESS)?;
        datagrams::join_source_v6(self.socket(lp)?.0, group, source, interface)
    }

    /// Undoes [`join_source_v6`](Udp::join_source_v6).
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn leave_source_v6<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv6Addr,
        source: Ipv6Addr,
        interface: u32,
    ) -> io::Result<()> {
        datagrams::leave_source_v6(self.socket(lp)?.0, group, source, interface)
    }

    /// What datagrams say about congestion from now on. Linux has it.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn set_ecn<B: Backend>(self, lp: &mut Loop<B>, ecn: Ecn) -> io::Result<()> {
        let (socket, is_v6) = self.socket(lp)?;
        datagrams::set_ecn(socket, is_v6, ecn as u8)
    }

    /// Tells with each datagram what it [says about congestion](crate::Datagram::ecn). Linux has
    /// it.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    ///
    /// [`Datagram::ecn`]: crate::Datagram::ecn
    pub fn set_receive_ecn<B: Backend>(self, lp: &mut Loop<B>, on: bool) -> io::Result<()> {
        let (socket, is_v6) = self.socket(lp)?;
        datagrams::set_receive_ecn(socket, is_v6, on)?;
        self.open_slot(lp)?.is_controlled = true;
        Ok(())
    }

    /// Lets the kernel put datagrams of one sender and one length together to one, which is
    /// cheaper to receive (`UDP_GRO`): [`Datagram::segments`] takes them apart. Linux has it,
    /// since 5.0.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    ///
    /// [`Datagram::segments`]: crate::Datagram::segments
    pub fn set_coalescing<B: Backend>(self, lp: &mut Loop<B>, on: bool) -> io::Result<()> {
        datagrams::set_gro(self.socket(lp)?.0, on)?;
        self.open_slot(lp)?.is_controlled = true;
        Ok(())
    }

    /// Lets the kernel cut what is sent in datagrams of this size (`UDP_SEGMENT`), which is
    /// cheaper than to send them one by one; zero ends it. Linux has it, since 4.18.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn set_segment_size<B: Backend>(self, lp: &mut Loop<B>, bytes: u16) -> io::Result<()> {
        datagrams::set_segment_size(self.socket(lp)?.0, bytes)
    }

    /// The socket, and whether it is one of IPv6. What was sent before is on its way.
    fn socket<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<(&Socket, bool)> {
        lp.flush_sends(self);
        let slot = lp.udps.get(self.0).ok_or_else(error::stale)?;
        Ok((slot.socket()?, slot.is_v6))
    }
}
