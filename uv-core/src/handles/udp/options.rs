//! Options of a UDP socket: TTL, broadcast, multicast, ECN, and segmentation offload (GSO, GRO).

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};

use poll_core::Backend;
use socket2::Socket;

use super::{Udp, UdpBindFlags, send};
use crate::sys::{self, datagrams};
use crate::{Loop, error};

/// The congestion mark in a datagram's IP header: Explicit Congestion Notification, RFC 3168.
///
/// ```
/// # if cfg!(not(target_os = "linux")) { return Ok(()); }
/// use uv_core::{Ecn, Handle, Loop, RunMode, Udp, UdpBindFlags};
///
/// let mut lp = Loop::with_default_backend()?;
/// let udp = Udp::new(&mut lp);
/// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
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
// Exhaustive: the field has two bits.
pub enum Ecn {
    /// Not-ECT: the sender does not react to congestion marks.
    #[default]
    NotCapable = 0,
    /// ECT(1): the sender reacts to congestion marks.
    Capable1 = 1,
    /// ECT(0): the sender reacts to congestion marks.
    Capable0 = 2,
    /// CE: a router was congested.
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

/// Options of the socket: [bind](Udp::bind) first.
///
/// ```
/// use std::net::{Ipv4Addr, Ipv6Addr};
/// use uv_core::{Loop, Udp, UdpBindFlags};
///
/// let mut lp = Loop::with_default_backend()?;
/// let udp = Udp::new(&mut lp);
/// assert!(udp.set_ttl(&mut lp, 64).is_err(), "it has no socket yet");
/// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
/// udp.set_ttl(&mut lp, 64)?;
/// udp.set_broadcast(&mut lp, true)?;
///
/// // Multicast within this network, by one interface, and not to this machine.
/// udp.set_multicast_ttl(&mut lp, 1)?;
/// udp.set_multicast_interface_v4(&mut lp, Ipv4Addr::LOCALHOST)?;
/// udp.set_multicast_loop(&mut lp, false)?;
///
/// // The same with IPv6, if the system has it.
/// let udp = Udp::new(&mut lp);
/// if udp.bind(&mut lp, (Ipv6Addr::LOCALHOST, 0).into(), UdpBindFlags::IPV6_ONLY).is_ok() {
///     udp.set_multicast_interface_v6(&mut lp, 0)?;
/// }
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `NotFound` for a stale key, `EBADF` if there is no socket, `InvalidInput` for a value
/// out of range, `Unsupported` where the system lacks the option, and the system's errors.
impl Udp {
    /// Permits sends to broadcast addresses.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    #[doc(alias = "uv_udp_set_broadcast")]
    pub fn set_broadcast<B: Backend>(self, lp: &mut Loop<B>, on: bool) -> io::Result<()> {
        self.socket(lp)?.0.set_broadcast(on)
    }

    /// Sets the number of hops that a datagram may travel, 1 to 255.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    #[doc(alias = "uv_udp_set_ttl")]
    pub fn set_ttl<B: Backend>(self, lp: &mut Loop<B>, ttl: u8) -> io::Result<()> {
        let (socket, is_v6) = self.socket(lp)?;
        if ttl == 0 {
            let why = "the TTL must be in the range 1 to 255";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        match is_v6 {
            true => socket.set_unicast_hops_v6(ttl.into()),
            false => socket.set_ttl_v4(ttl.into()),
        }
    }

    /// Sets the number of hops that a multicast datagram may travel: 0 keeps it on this machine,
    /// 1 (the default) in the local network.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    #[doc(alias = "uv_udp_set_multicast_ttl")]
    pub fn set_multicast_ttl<B: Backend>(self, lp: &mut Loop<B>, ttl: u8) -> io::Result<()> {
        match self.socket(lp)? {
            (socket, true) => socket.set_multicast_hops_v6(ttl.into()),
            (socket, false) => socket.set_multicast_ttl_v4(ttl.into()),
        }
    }

    /// Sets whether multicast datagrams are looped back to this machine; the default is yes.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    #[doc(alias = "uv_udp_set_multicast_loop")]
    pub fn set_multicast_loop<B: Backend>(self, lp: &mut Loop<B>, on: bool) -> io::Result<()> {
        match self.socket(lp)? {
            (socket, true) => socket.set_multicast_loop_v6(on),
            (socket, false) => socket.set_multicast_loop_v4(on),
        }
    }

    /// Sets the interface for outgoing IPv4 multicast, by one of its addresses.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    #[doc(alias = "uv_udp_set_multicast_interface")]
    pub fn set_multicast_interface_v4<B: Backend>(
        self,
        lp: &mut Loop<B>,
        interface: Ipv4Addr,
    ) -> io::Result<()> {
        self.socket(lp)?.0.set_multicast_if_v4(&interface)
    }

    /// Sets the interface for outgoing IPv6 multicast, by its index; 0 lets the system choose.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    #[doc(alias = "uv_udp_set_multicast_interface")]
    pub fn set_multicast_interface_v6<B: Backend>(
        self,
        lp: &mut Loop<B>,
        interface: u32,
    ) -> io::Result<()> {
        self.socket(lp)?.0.set_multicast_if_v6(interface)
    }

    /// Joins an IPv4 multicast group on the interface with this address; if that is unspecified,
    /// the system chooses one. Binds a handle without a socket to a port that the system chooses.
    ///
    /// ```
    /// use std::net::Ipv4Addr;
    /// use uv_core::{Loop, Udp, UdpBindFlags};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.bind(&mut lp, "0.0.0.0:0".parse().unwrap(), UdpBindFlags::REUSE_ADDRESS)?;
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
    #[doc(alias = "uv_udp_set_membership")]
    pub fn join_multicast_v4<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv4Addr,
        interface: Ipv4Addr,
    ) -> io::Result<()> {
        self.bind_to_any(lp, (Ipv4Addr::UNSPECIFIED, 0).into(), UdpBindFlags::REUSE_ADDRESS)?;
        self.socket(lp)?.0.join_multicast_v4(&group, &interface)
    }

    /// Leaves a group that [`join_multicast_v4`](Udp::join_multicast_v4) has joined.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    #[doc(alias = "uv_udp_set_membership")]
    pub fn leave_multicast_v4<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv4Addr,
        interface: Ipv4Addr,
    ) -> io::Result<()> {
        self.socket(lp)?.0.leave_multicast_v4(&group, &interface)
    }

    /// Joins an IPv6 multicast group on the interface with this index; for 0 the system chooses
    /// one. Binds a handle without a socket to a port that the system chooses.
    ///
    /// ```
    /// use uv_core::{Loop, Udp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (udp, group) = (Udp::new(&mut lp), "ff02::1234".parse().unwrap());
    /// match udp.join_multicast_v6(&mut lp, group, 0) {
    ///     Ok(()) => udp.leave_multicast_v6(&mut lp, group, 0)?,
    ///     Err(error) => println!("no IPv6 multicast: {error}"),
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    #[doc(alias = "uv_udp_set_membership")]
    pub fn join_multicast_v6<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv6Addr,
        interface: u32,
    ) -> io::Result<()> {
        self.bind_to_any(lp, (Ipv6Addr::UNSPECIFIED, 0).into(), UdpBindFlags::REUSE_ADDRESS)?;
        self.socket(lp)?.0.join_multicast_v6(&group, interface)
    }

    /// Leaves a group that [`join_multicast_v6`](Udp::join_multicast_v6) has joined.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    #[doc(alias = "uv_udp_set_membership")]
    pub fn leave_multicast_v6<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv6Addr,
        interface: u32,
    ) -> io::Result<()> {
        self.socket(lp)?.0.leave_multicast_v6(&group, interface)
    }

    /// As [`join_multicast_v4`](Udp::join_multicast_v4), for the datagrams of `source` only.
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
    #[doc(alias = "uv_udp_set_source_membership")]
    pub fn join_source_v4<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv4Addr,
        source: Ipv4Addr,
        interface: Ipv4Addr,
    ) -> io::Result<()> {
        self.bind_to_any(lp, (Ipv4Addr::UNSPECIFIED, 0).into(), UdpBindFlags::REUSE_ADDRESS)?;
        sys::join_source_v4(self.socket(lp)?.0, group, source, interface)
    }

    /// Leaves a group that [`join_source_v4`](Udp::join_source_v4) has joined.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    #[doc(alias = "uv_udp_set_source_membership")]
    pub fn leave_source_v4<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv4Addr,
        source: Ipv4Addr,
        interface: Ipv4Addr,
    ) -> io::Result<()> {
        sys::leave_source_v4(self.socket(lp)?.0, group, source, interface)
    }

    /// As [`join_multicast_v6`](Udp::join_multicast_v6), for the datagrams of `source` only.
    /// Linux only.
    ///
    /// ```
    /// use std::net::Ipv6Addr;
    /// use uv_core::{Loop, Udp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (udp, group) = (Udp::new(&mut lp), "ff35::1234".parse().unwrap());
    /// match udp.join_source_v6(&mut lp, group, Ipv6Addr::LOCALHOST, 0) {
    ///     Ok(()) => udp.leave_source_v6(&mut lp, group, Ipv6Addr::LOCALHOST, 0)?,
    ///     Err(error) => println!("not supported: {error}"),
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    #[doc(alias = "uv_udp_set_source_membership")]
    pub fn join_source_v6<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv6Addr,
        source: Ipv6Addr,
        interface: u32,
    ) -> io::Result<()> {
        self.bind_to_any(lp, (Ipv6Addr::UNSPECIFIED, 0).into(), UdpBindFlags::REUSE_ADDRESS)?;
        datagrams::join_source_v6(self.socket(lp)?.0, group, source, interface)
    }

    /// Leaves a group that [`join_source_v6`](Udp::join_source_v6) has joined.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    #[doc(alias = "uv_udp_set_source_membership")]
    pub fn leave_source_v6<B: Backend>(
        self,
        lp: &mut Loop<B>,
        group: Ipv6Addr,
        source: Ipv6Addr,
        interface: u32,
    ) -> io::Result<()> {
        datagrams::leave_source_v6(self.socket(lp)?.0, group, source, interface)
    }

    /// Sets the ECN mark of outgoing datagrams. Linux only.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn set_ecn<B: Backend>(self, lp: &mut Loop<B>, ecn: Ecn) -> io::Result<()> {
        let (socket, is_v6) = self.socket(lp)?;
        datagrams::set_ecn(socket, is_v6, ecn as u8)
    }

    /// Reports the [ECN mark](crate::Datagram::ecn) of each received datagram. Linux only.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn set_receive_ecn<B: Backend>(self, lp: &mut Loop<B>, on: bool) -> io::Result<()> {
        let (socket, is_v6) = self.socket(lp)?;
        datagrams::set_receive_ecn(socket, is_v6, on)?;
        self.open_slot(lp)?.has_control = true;
        Ok(())
    }

    /// Lets the kernel coalesce received datagrams of one sender and one length (`UDP_GRO`),
    /// which is cheaper; [`Datagram::segments`] splits them. Linux 5.0 and later.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    ///
    /// [`Datagram::segments`]: crate::Datagram::segments
    pub fn set_coalescing<B: Backend>(self, lp: &mut Loop<B>, on: bool) -> io::Result<()> {
        datagrams::set_gro(self.socket(lp)?.0, on)?;
        self.open_slot(lp)?.has_control = true;
        Ok(())
    }

    /// Lets the kernel split each send into datagrams of this size (`UDP_SEGMENT`), which is
    /// cheaper than one send per datagram; zero disables it. Linux 4.18 and later.
    ///
    /// # Errors
    ///
    /// See [above](#errors).
    pub fn set_segment_size<B: Backend>(self, lp: &mut Loop<B>, bytes: u16) -> io::Result<()> {
        datagrams::set_segment_size(self.socket(lp)?.0, bytes)
    }

    /// The socket and whether it is IPv6, after a flush: an option must not affect earlier sends.
    fn socket<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<(&Socket, bool)> {
        send::flush(lp, self);
        let slot = lp.udps.slots.get(self.0).ok_or_else(error::stale)?;
        Ok((slot.socket()?, slot.is_v6))
    }
}
