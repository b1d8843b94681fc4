//! Receiving datagrams.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use poll_core::{Backend, Ready};

use super::{Ecn, Udp, UdpBind};
use crate::callback::{Argument, Lending};
use crate::sys::code;
use crate::sys::datagrams::{self, BATCH, Datagrams, Incoming, Report};
use crate::{Loop, error};

/// Datagrams, or reports, of one readiness event, so that a flood does not starve the rest.
const PER_EVENT: usize = 4 * BATCH;

/// A datagram, lent for the time of the callback.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Datagram<'a> {
    /// What it says. May be empty: so was the datagram.
    pub data: &'a [u8],
    /// Who has sent it.
    pub from: SocketAddr,
    /// It was longer, and its end is lost: see [`Udp::set_largest_datagram`].
    pub truncated: bool,
    /// Whether the network is congested, if that was [asked for](Udp::set_receive_ecn).
    pub ecn: Option<Ecn>,
    /// If the kernel has [put datagrams together](Udp::set_coalescing), how long each of
    /// them was: [`segments`](Datagram::segments) takes them apart.
    pub segment_size: Option<usize>,
}

impl<'a> Datagram<'a> {
    #[inline]
    pub(super) fn new(incoming: Incoming<'a>) -> Datagram<'a> {
        let Incoming { data, from, truncated, ecn, segment_size } = incoming;
        Datagram { data, from, truncated, ecn: ecn.map(Ecn::from_bits), segment_size }
    }

    /// The datagrams that were [put together](Udp::set_coalescing) to this one; itself alone
    /// if none were.
    ///
    /// ```
    /// # if cfg!(not(target_os = "linux")) { return Ok(()); }
    /// use uv_core::{Handle, Loop, RunMode, Udp, UdpBind};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (sender, receiver) = (Udp::new(&mut lp), Udp::new(&mut lp));
    /// sender.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBind::empty())?;
    /// sender.set_segment_size(&mut lp, 4)?;
    /// receiver.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBind::empty())?;
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
        // No chunk would be left of an empty datagram.
        let empty = self.data.is_empty().then_some(self.data);
        empty.into_iter().chain(self.data.chunks(size))
    }
}

/// Why there is no datagram.
///
/// ```
/// # if cfg!(not(target_os = "linux")) { return Ok(()); }
/// use std::io::ErrorKind;
/// use uv_core::{Handle, Loop, RunMode, Udp, UdpBind};
///
/// // Nobody is there any more.
/// let nobody = std::net::UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
///
/// let mut lp = Loop::with_default_backend()?;
/// let udp = Udp::new(&mut lp);
/// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBind::REPORT_ERRORS)?;
/// udp.recv_start(&mut lp, move |lp, udp, datagram| {
///     let error = datagram.unwrap_err();
///     assert!(error.is_report());
///     assert_eq!(error.destination(), Some(nobody));
///     assert_eq!(error.offender(), Some(nobody.ip()));
///     assert_eq!(error.io_error().kind(), ErrorKind::ConnectionRefused);
///     udp.close(lp).unwrap();
/// })?;
/// udp.try_send(&mut lp, b"is anybody there?", nobody)?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct UdpError {
    error: io::Error,
    report: Option<(Option<SocketAddr>, Option<IpAddr>)>,
}

impl UdpError {
    /// What went wrong.
    pub fn io_error(&self) -> &io::Error {
        &self.error
    }

    /// True if the network says so about a datagram that was sent before: what
    /// [`UdpBind::REPORT_ERRORS`] asks for.
    pub fn is_report(&self) -> bool {
        self.report.is_some()
    }

    /// Where that datagram was sent to.
    pub fn destination(&self) -> Option<SocketAddr> {
        self.report.and_then(|(destination, _)| destination)
    }

    /// The router or host that says so.
    pub fn offender(&self) -> Option<IpAddr> {
        self.report.and_then(|(_, offender)| offender)
    }
}

impl fmt::Display for UdpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.destination(), self.offender()) {
            (Some(to), Some(by)) => write!(f, "to {to}, says {by}: {}", self.error),
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

/// What the callback gets.
pub(crate) struct Received;

impl Argument for Received {
    type For<'a> = (Udp, Result<Datagram<'a>, UdpError>);
}

/// A datagram that waits for receiving to start again.
#[derive(Debug)]
pub(super) struct Held {
    data: Box<[u8]>,
    from: SocketAddr,
    truncated: bool,
    ecn: Option<u8>,
    segment_size: Option<usize>,
}

impl Held {
    pub(super) fn new(incoming: Incoming<'_>) -> Held {
        let Incoming { data, from, truncated, ecn, segment_size } = incoming;
        Held { data: data.into(), from, truncated, ecn, segment_size }
    }

    fn incoming(&self) -> Incoming<'_> {
        let Held { ref data, from, truncated, ecn, segment_size } = *self;
        Incoming { data, from, truncated, ecn, segment_size }
    }
}

impl Udp {
    /// Calls `callback` for each datagram that comes, and for each error.
    ///
    /// The bytes are the loop's, lent for the call. Where the system can, many datagrams are
    /// received by one system call. None gets lost if the callback stops receiving: the rest
    /// is told of when it starts again. Errors do not end receiving; on Windows those that
    /// only say that an earlier datagram did not arrive are left out unless the socket is
    /// [connected](Udp::connect).
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `EALREADY` if it
    /// receives, and those of [`bind`](Udp::bind).
    pub fn recv_start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        mut callback: impl FnMut(&mut Loop<B>, Udp, Result<Datagram<'_>, UdpError>) + 'static,
    ) -> io::Result<()> {
        if self.open_slot(lp)?.receiving {
            return Err(io::Error::from_raw_os_error(code::EALREADY));
        }
        self.bind_to_any(lp, (Ipv4Addr::UNSPECIFIED, 0).into(), UdpBind::empty())?;
        self.open_slot(lp)?.receiving = true;
        if let Err(error) = lp.arm_udp(self) {
            self.open_slot(lp)?.receiving = false;
            return Err(error);
        }
        let slot = self.open_slot(lp)?;
        slot.callback = Some(Lending::new(
            move |lp: &mut Loop<B>, (udp, result): (Udp, Result<Datagram<'_>, UdpError>)| {
                callback(lp, udp, result);
            },
        ));
        if !slot.held.is_empty() {
            lp.defer(move |lp| lp.tell_held(self));
        }
        lp.update_udp_activity(self);
        Ok(())
    }

    /// Stops receiving, at once, and drops the callback. A socket that does not receive
    /// stays so.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Udp, UdpBind};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBind::empty())?;
    /// udp.recv_start(&mut lp, |lp, udp, datagram| {
    ///     assert_eq!(datagram.unwrap().data, b"one"); // The other is kept until it is wanted.
    ///     udp.recv_stop(lp).unwrap();
    /// })?;
    /// let to = udp.local_addr(&lp)?;
    /// udp.try_send_many(&mut lp, &[(b"one", Some(to)), (b"two", Some(to))])?;
    /// lp.run(RunMode::Default)?;
    /// assert!(!udp.is_active(&lp));
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    pub fn recv_stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.udps.get_mut(self.0).ok_or_else(error::stale)?;
        slot.receiving = false;
        let callback = slot.callback.take();
        let armed = lp.arm_udp(self);
        lp.update_udp_activity(self);
        // Last: dropping what it captured may be anything.
        drop(callback);
        armed
    }

    /// Truncates datagrams that are longer than this; at first none is.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Udp, UdpBind};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBind::empty())?;
    /// udp.set_largest_datagram(&mut lp, 4)?;
    /// udp.recv_start(&mut lp, |lp, udp, datagram| {
    ///     let datagram = datagram.unwrap();
    ///     assert_eq!((datagram.data, datagram.truncated), (&b"hell"[..], true));
    ///     udp.close(lp).unwrap();
    /// })?;
    /// let to = udp.local_addr(&lp)?;
    /// udp.try_send(&mut lp, b"hello", to)?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing.
    pub fn set_largest_datagram<B: Backend>(
        self,
        lp: &mut Loop<B>,
        bytes: usize,
    ) -> io::Result<()> {
        self.open_slot(lp)?.largest = bytes.clamp(1, datagrams::LARGEST);
        Ok(())
    }
}

impl<B: Backend> Loop<B> {
    /// Receives what has come, and tells: one datagram while they come one by one, and all, up
    /// to a limit, when [many](crate::crowd) come at a time.
    #[inline]
    pub(super) fn receive_datagrams(&mut self, udp: Udp) {
        let turn = self.turn;
        // Does the socket still wait for them? A callback of the same batch may have changed that.
        let slot = self.udps.get_mut(udp.0).filter(|slot| slot.armed.contains(Ready::READ));
        let Some(slot) = slot else { return };
        let looks = slot.crowd.is_to_look(turn);
        if !slot.held.is_empty() {
            self.tell_held(udp);
        }
        match looks {
            true => self.receive_many(udp),
            false => self.receive_datagram(udp),
        }
    }

    #[inline(never)]
    fn receive_many(&mut self, udp: Udp) {
        let Some(slot) = self.udps.get(udp.0) else { return };
        let (mut asked, mut received) = (slot.batch, 0);
        let memory = self.datagrams.take().unwrap_or_else(Datagrams::new);
        let mut batch = Batch { lp: self, udp, memory: Some(memory), next: 0, count: 0 };
        while received < PER_EVENT && batch.receive(asked) {
            received += batch.count;
            let drained = Datagrams::FILLS && batch.count < asked;
            batch.tell_all();
            if drained {
                break;
            }
            asked = (asked * 2).min(BATCH);
        }
        batch.has_found(received);
    }

    /// Receives one datagram, if there is one, and tells.
    #[inline]
    fn receive_datagram(&mut self, udp: Udp) {
        let slot = self.udps.get_mut(udp.0).filter(|slot| slot.receiving);
        let Some(slot) = slot else { return };
        let Some(socket) = &slot.socket else { return };
        // A panic loses it, and the next datagram makes another.
        let mut memory = self.datagrams.take().unwrap_or_else(Datagrams::new);
        match memory.receive_one(socket, slot.largest, slot.is_controlled) {
            Ok(incoming) => {
                if let Some(callback) = slot.callback.take() {
                    self.tell_by(callback, udp, Ok(Datagram::new(incoming)));
                }
            }
            Err(error) => drop(self.receiving_failed(udp, error)),
        }
        self.datagrams = Some(memory);
    }

    /// Tells of an error, if it is one to be told; returns false if there is no more to do.
    pub(super) fn receiving_failed(&mut self, udp: Udp, error: io::Error) -> bool {
        let Some(slot) = self.udps.get(udp.0) else { return false };
        match error {
            error if error.kind() == io::ErrorKind::Interrupted => return true,
            error if is_about_earlier(&error) && !slot.is_connected => return true,
            // What failed may be in the queue of reports, with more about it.
            _ if slot.reports_errors && self.tell_udp_reports(udp) => {}
            error if error.kind() == io::ErrorKind::WouldBlock => {}
            error => self.tell_received(udp, Err(error.into())),
        }
        false
    }

    /// Tells of the datagrams that a callback did not want before.
    #[cold]
    pub(super) fn tell_held(&mut self, udp: Udp) {
        while let Some(slot) = self.udps.get_mut(udp.0)
            && slot.receiving
            && let Some(held) = slot.held.pop_front()
        {
            self.tell_received(udp, Ok(Datagram::new(held.incoming())));
        }
    }

    /// Tells of what the network has said about datagrams that were sent. Whether or not
    /// somebody listens: the socket counts as failed until all of it is read.
    pub(super) fn tell_udp_reports(&mut self, udp: Udp) -> bool {
        let mut any = false;
        for _ in 0..PER_EVENT {
            let Some(slot) = self.udps.get_mut(udp.0) else { break };
            let Some(socket) = slot.socket.as_ref().filter(|_| slot.reports_errors) else { break };
            let Some(report) = datagrams::next_report(socket) else { break };
            any = true;
            self.tell_received(udp, Err(report.into()));
        }
        any
    }

    pub(super) fn tell_received(&mut self, udp: Udp, received: Result<Datagram<'_>, UdpError>) {
        let Some(slot) = self.udps.get_mut(udp.0).filter(|slot| slot.receiving) else { return };
        if let Some(callback) = slot.callback.take() {
            self.tell_by(callback, udp, received);
        }
    }

    /// Calls back, and puts the callback back if it is still wanted.
    #[inline(always)] // What it tells is then written once, where the callback finds it.
    fn tell_by(
        &mut self,
        mut callback: Lending<B, Received>,
        udp: Udp,
        received: Result<Datagram<'_>, UdpError>,
    ) {
        self.call_with(&mut callback, (udp, received), udp, |lp, udp| drop(udp.recv_stop(lp)));
        if let Some(slot) = self.udps.get_mut(udp.0)
            && slot.receiving
            && slot.callback.is_none()
        {
            slot.callback = Some(callback);
        }
    }
}

/// The datagrams of one system call. Those that are not told of are kept for later, even if
/// a callback panics.
struct Batch<'a, B: Backend> {
    lp: &'a mut Loop<B>,
    udp: Udp,
    /// The loop's, which gets it back.
    memory: Option<Box<Datagrams>>,
    next: usize,
    count: usize,
}

impl<B: Backend> Batch<'_, B> {
    /// Receives up to so many; returns false if there is no more to do.
    #[inline]
    fn receive(&mut self, asked: usize) -> bool {
        let slot = self.lp.udps.get_mut(self.udp.0).filter(|slot| slot.receiving);
        let (Some(slot), Some(memory)) = (slot, &mut self.memory) else { return false };
        let Some(socket) = &slot.socket else { return false };
        (self.next, self.count) = (0, 0);
        match memory.receive(socket, asked, slot.largest, slot.is_controlled) {
            Ok(count) => {
                self.count = count;
                true
            }
            Err(error) => self.lp.receiving_failed(self.udp, error),
        }
    }

    /// An event that looked for more than one has found so many.
    fn has_found(&mut self, count: usize) {
        // Who stops in the middle of many is better off with one at a time.
        let count = if self.next < self.count { 1 } else { count };
        if let Some(slot) = self.lp.udps.get_mut(self.udp.0) {
            slot.crowd.found(count);
            // As many at first as there were, and one more to see that there are no others.
            slot.batch = (count + 1).next_power_of_two().clamp(2, BATCH);
        }
    }

    /// Tells of one, if there is one.
    fn tell_next(&mut self) {
        if self.next < self.count
            && let Some(memory) = &self.memory
        {
            let incoming = memory.get(self.next);
            self.next += 1;
            self.lp.tell_received(self.udp, Ok(Datagram::new(incoming)));
        }
    }

    fn tell_all(&mut self) {
        // Answers to many are sent together.
        if self.count > 1 {
            self.lp.cork_sends(self.udp);
        }
        while self.next < self.count
            && self.lp.udps.get(self.udp.0).is_some_and(|slot| slot.receiving)
        {
            self.tell_next();
        }
        if self.count > 1 {
            self.lp.uncork_sends(self.udp);
        }
    }
}

impl<B: Backend> Drop for Batch<'_, B> {
    fn drop(&mut self) {
        if self.next < self.count
            && let Some(memory) = &self.memory
            && let Some(slot) = self.lp.udps.get_mut(self.udp.0)
            && !slot.base.is_closing()
        {
            slot.held.extend((self.next..self.count).map(|index| Held::new(memory.get(index))));
        }
        self.lp.datagrams = self.memory.take();
        if self.count > 1 {
            // A panic may have left them waiting.
            self.lp.uncork_sends(self.udp);
        }
    }
}

/// True for errors that Windows reports to a receiver because a datagram it has sent before
/// did not arrive, though nobody can know which.
fn is_about_earlier(error: &io::Error) -> bool {
    cfg!(windows) && matches!(error.raw_os_error(), Some(code::ECONNRESET | code::ENETRESET))
}
