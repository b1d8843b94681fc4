//! Received datagrams: lent to a callback, held by the loop, or described after a receive into the
//! caller's memory.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use super::Ecn;
#[cfg(doc)]
use super::{Udp, UdpBindFlags};
use crate::sys::datagrams::{Incoming, Report};

/// A datagram, lent for the duration of the callback.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Datagram<'a> {
    /// The payload. Empty for an empty datagram.
    pub data: &'a [u8],
    /// The address of the sender; `0.0.0.0:0` if it has no Internet address.
    pub from: SocketAddr,
    /// The name of the sender on a Unix datagram socket, if it is bound: a path, or an abstract
    /// name with a leading NUL.
    pub from_path: Option<&'a Path>,
    /// The datagram was longer than the buffer, and its end is lost: see
    /// [`Udp::set_largest_datagram`].
    pub truncated: bool,
    /// The congestion mark, if [enabled](Udp::set_receive_ecn).
    pub ecn: Option<Ecn>,
    /// If the kernel has [coalesced](Udp::set_coalescing) datagrams, the length of each:
    /// [`segments`](Datagram::segments) splits them.
    pub segment_size: Option<usize>,
}

impl<'a> Datagram<'a> {
    #[inline]
    pub(crate) fn new(incoming: Incoming<'a>) -> Datagram<'a> {
        let Incoming { data, from, from_path, truncated, ecn, segment_size } = incoming;
        Datagram { data, from, from_path, truncated, ecn: ecn.map(Ecn::from_bits), segment_size }
    }

    /// The datagrams that the kernel has [coalesced](Udp::set_coalescing) into this one; the
    /// datagram itself if it was not coalesced.
    ///
    /// ```
    /// # if cfg!(not(target_os = "linux")) { return Ok(()); }
    /// use uv_core::{Handle, Loop, RunMode, Udp, UdpBindFlags};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (sender, receiver) = (Udp::new(&mut lp), Udp::new(&mut lp));
    /// sender.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
    /// sender.set_segment_size(&mut lp, 4)?;
    /// receiver.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
    /// receiver.set_coalescing(&mut lp, true)?;
    /// let to = receiver.local_addr(&lp)?;
    /// sender.try_send(&mut lp, b"one two end", to)?; // Three datagrams.
    ///
    /// let mut all = Vec::new();
    /// receiver.recv_start(&mut lp, move |lp, receiver, datagram| {
    ///     all.extend(datagram.unwrap().segments().map(<[u8]>::to_vec));
    ///     if all.len() == 3 {
    ///         assert_eq!(all, [b"one ".to_vec(), b"two ".to_vec(), b"end".to_vec()]);
    ///         receiver.close(lp).unwrap();
    ///     }
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn segments(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let size = self.segment_size.unwrap_or(self.data.len()).max(1);
        // `chunks` yields nothing for an empty datagram.
        let empty = self.data.is_empty().then_some(self.data);
        empty.into_iter().chain(self.data.chunks(size))
    }
}

/// A datagram that was received into memory of the caller, by [`Udp::recv`], [`Udp::try_recv`] or
/// [`Udp::recv_start_with`].
///
/// ```
/// use uv_core::{Loop, Received, Udp, UdpBindFlags};
///
/// let mut lp = Loop::with_default_backend()?;
/// let udp = Udp::new(&mut lp);
/// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
/// let to = udp.local_addr(&lp)?;
/// udp.try_send(&mut lp, b"hello", to)?;
///
/// let mut memory = [0; 4];
/// let received: Received = udp.try_recv(&mut lp, &mut memory)?;
/// assert_eq!((&memory[received.range()], received.from), (&b"hell"[..], to));
/// assert!(received.truncated);
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received {
    /// Where the payload begins in the memory.
    pub offset: usize,
    /// The length of the payload, without what did not fit.
    pub len: usize,
    /// The address of the sender; `0.0.0.0:0` if it has no Internet address.
    pub from: SocketAddr,
    /// The name of the sender on a Unix datagram socket, as in [`Datagram::from_path`].
    pub from_path: Option<PathBuf>,
    /// The datagram was longer than the memory, and its end is lost.
    pub truncated: bool,
    /// The congestion mark, if [enabled](Udp::set_receive_ecn).
    pub ecn: Option<Ecn>,
    /// If the kernel has [coalesced](Udp::set_coalescing) datagrams, the length of each.
    pub segment_size: Option<usize>,
}

impl Received {
    /// A datagram that is at this offset already.
    pub(super) fn at(offset: usize, incoming: Incoming<'_>) -> Received {
        let Incoming { data, from, from_path, truncated, ecn, segment_size } = incoming;
        let (len, ecn) = (data.len(), ecn.map(Ecn::from_bits));
        let from_path = from_path.map(Path::to_path_buf);
        Received { offset, len, from, from_path, truncated, ecn, segment_size }
    }

    /// Copies a datagram to the beginning of the memory.
    pub(super) fn copy(datagram: &Datagram<'_>, memory: &mut [u8]) -> Received {
        let Datagram { data, from, from_path, truncated, ecn, segment_size } = *datagram;
        let len = data.len().min(memory.len());
        memory[..len].copy_from_slice(&data[..len]);
        let (truncated, from_path) =
            (truncated || len < data.len(), from_path.map(Path::to_path_buf));
        Received { offset: 0, len, from, from_path, truncated, ecn, segment_size }
    }

    /// Where the payload is in the memory.
    ///
    /// ```
    /// # use uv_core::{Loop, Udp, UdpBindFlags};
    /// # let mut lp = Loop::with_default_backend()?;
    /// # let udp = Udp::new(&mut lp);
    /// # udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
    /// # let to = udp.local_addr(&lp)?;
    /// # udp.try_send(&mut lp, b"hello", to)?;
    /// let mut memory = [0; 1500];
    /// let received = udp.try_recv(&mut lp, &mut memory)?;
    /// assert_eq!(&memory[received.range()], b"hello");
    /// # std::io::Result::Ok(())
    /// ```
    pub fn range(&self) -> std::ops::Range<usize> {
        self.offset..self.offset + self.len
    }
}

/// An error of receiving, or an ICMP report about a datagram that was sent.
///
/// ```
/// # if cfg!(not(target_os = "linux")) { return Ok(()); }
/// use std::io::ErrorKind;
/// use uv_core::{Handle, Loop, RunMode, Udp, UdpBindFlags};
///
/// // The port was free a moment ago, and no socket is bound to it.
/// let unused = std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
///
/// let mut lp = Loop::with_default_backend()?;
/// let udp = Udp::new(&mut lp);
/// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::REPORT_ERRORS)?;
/// udp.recv_start(&mut lp, move |lp, udp, datagram| {
///     let error = datagram.unwrap_err();
///     assert!(error.is_report());
///     assert_eq!(error.destination(), Some(unused));
///     assert_eq!(error.offender(), Some(unused.ip()));
///     assert_eq!(error.io_error().kind(), ErrorKind::ConnectionRefused);
///     udp.close(lp).unwrap();
/// })?;
/// udp.try_send(&mut lp, b"ping", unused)?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct UdpError {
    error: io::Error,
    report: Option<(Option<SocketAddr>, Option<IpAddr>)>,
}

impl UdpError {
    /// The system's error.
    pub fn io_error(&self) -> &io::Error {
        &self.error
    }

    /// True for an ICMP report about a datagram that was sent before, which
    /// [`UdpBindFlags::REPORT_ERRORS`] enables.
    pub fn is_report(&self) -> bool {
        self.report.is_some()
    }

    /// The destination of that datagram.
    pub fn destination(&self) -> Option<SocketAddr> {
        self.report.and_then(|(destination, _)| destination)
    }

    /// The router or host that sent the report.
    pub fn offender(&self) -> Option<IpAddr> {
        self.report.and_then(|(_, offender)| offender)
    }
}

impl fmt::Display for UdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.destination(), self.offender()) {
            (Some(to), Some(by)) => write!(f, "to {to}, reported by {by}: {}", self.error),
            (Some(to), None) => write!(f, "to {to}: {}", self.error),
            _ => self.error.fmt(f),
        }
    }
}

impl std::error::Error for UdpError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<UdpError> for io::Error {
    fn from(error: UdpError) -> io::Error {
        error.error
    }
}

impl From<io::Error> for UdpError {
    fn from(error: io::Error) -> UdpError {
        UdpError { error, report: None }
    }
}

impl From<Report> for UdpError {
    fn from(report: Report) -> UdpError {
        let Report { error, destination, offender } = report;
        UdpError { error, report: Some((destination, offender)) }
    }
}

/// A copy of a datagram, held until the handle receives again.
#[derive(Debug)]
pub(super) struct Held {
    data: Box<[u8]>,
    from: SocketAddr,
    from_path: Option<PathBuf>,
    truncated: bool,
    ecn: Option<u8>,
    segment_size: Option<usize>,
}

impl Held {
    pub(super) fn new(incoming: Incoming<'_>) -> Held {
        let Incoming { data, from, from_path, truncated, ecn, segment_size } = incoming;
        let from_path = from_path.map(Path::to_path_buf);
        Held { data: data.into(), from, from_path, truncated, ecn, segment_size }
    }

    pub(super) fn incoming(&self) -> Incoming<'_> {
        let Held { ref data, from, ref from_path, truncated, ecn, segment_size } = *self;
        let from_path = from_path.as_deref();
        Incoming { data, from, from_path, truncated, ecn, segment_size }
    }
}
