//! Pulled receives: each request gets one datagram, in the memory that it owns.
//!
//! Requests are queued in the slot, and a datagram goes to the first of them when it is delivered.
//! No request is bound to an operation of the backend, so a datagram that arrives after a cancel
//! goes to the next request, or is held, in order.

use std::io;

use poll_core::Backend;

use super::datagram::{Datagram, Received, UdpError};
use super::{Udp, UdpSlot, arm, recv};
use crate::storage::IoBufMut;
use crate::streams::BufferedRequest;
use crate::sys::datagrams::Incoming;
use crate::{Loop, error};

/// A [receive](Udp::recv) that has not called back: the key to [cancel](RecvRequest::cancel) it.
///
/// ```
/// use uv_core::{Handle, Loop, RecvRequest, RunMode, Udp, UdpBindFlags, is_cancelled};
///
/// let mut lp = Loop::with_default_backend()?;
/// let udp = Udp::new(&mut lp);
/// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
/// let request: RecvRequest = udp.recv(&mut lp, vec![0; 1500], |lp, udp, result, memory| {
///     assert!(is_cancelled(result.unwrap_err().io_error()) && memory.len() == 1500);
///     udp.close(lp).unwrap();
/// })?;
/// request.cancel(&mut lp)?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecvRequest {
    udp: Udp,
    number: u64,
}

impl RecvRequest {
    /// Cancels the receive. Its callback still runs, in the pending phase, with `ECANCELED` and the
    /// memory. No datagram is lost: the next receive gets it.
    ///
    /// # Errors
    ///
    /// `NotFound` if the callback has run or is pending, or for a stale key.
    #[doc(alias = "uv_cancel")]
    pub fn cancel<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.udps.slots.get_mut(self.udp.0).ok_or_else(error::stale)?;
        let at = slot.requests.iter().position(|request| request.number == self.number);
        let request = at.and_then(|at| slot.requests.remove(at));
        slot.cancelled_requests.push_back(request.ok_or_else(error::stale_request)?);
        // If this fails, the socket reports readability that is not needed.
        let _ = arm::update(lp, self.udp);
        lp.defer(move |lp| run_cancelled(lp, self.udp));
        Ok(())
    }
}

/// A queued receive.
#[derive(Debug)]
pub(crate) struct QueuedRecv<B: Backend> {
    number: u64,
    stored: BufferedRequest<B>,
}

impl Udp {
    /// Receives one datagram into a buffer. The callback gets the buffer back; what does not fit
    /// into its memory is lost. The loop stays alive until then.
    ///
    /// Several requests are served in order. The callback never runs inside this call. Closing the
    /// handle fails them with `ECANCELED`, before the close callback runs.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Udp, UdpBindFlags};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
    /// let to = udp.local_addr(&lp)?;
    /// udp.recv(&mut lp, vec![0; 1500], move |lp, udp, result, memory| {
    ///     let received = result.unwrap();
    ///     assert_eq!((&memory[received.range()], received.from), (&b"hello"[..], to));
    ///     udp.close(lp).unwrap();
    /// })?;
    /// udp.try_send(&mut lp, b"hello", to)?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `EALREADY` after
    /// [`recv_start`](Udp::recv_start), and the errors of [`bind`](Udp::bind). The buffer and the
    /// callback are dropped then: see [`recv_with`](Udp::recv_with).
    #[doc(alias = "uv_udp_recv_start")]
    pub fn recv<B: Backend, T: IoBufMut>(
        self,
        lp: &mut Loop<B>,
        buffer: T,
        callback: impl FnOnce(&mut Loop<B>, Udp, Result<Received, UdpError>, T) + 'static,
    ) -> io::Result<RecvRequest> {
        let stored = stored(buffer, callback);
        self.queue_recv(lp, stored).map_err(|(error, _)| error)
    }

    /// As [`recv`](Udp::recv), but the callback gets every error, and always the buffer.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Udp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::bind_to(&mut lp, "127.0.0.1:0")?;
    /// udp.on_recv(&mut lp, |_, _, _| Ok(()))?;
    /// udp.recv_with(&mut lp, vec![0; 1500], |lp, udp, result, memory| {
    ///     assert!(result.is_err() && memory.len() == 1500, "it is received by `on_recv`");
    ///     udp.close_if_open(lp);
    /// });
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_udp_recv_start")]
    pub fn recv_with<B: Backend, T: IoBufMut>(
        self,
        lp: &mut Loop<B>,
        buffer: T,
        callback: impl FnOnce(&mut Loop<B>, Udp, Result<Received, UdpError>, T) + 'static,
    ) {
        if let Err((error, stored)) = self.queue_recv(lp, stored(buffer, callback)) {
            lp.defer(move |lp| stored.complete(lp, self.0, Err(error)));
        }
    }

    /// Queues a receive; gives it back with the error.
    fn queue_recv<B: Backend>(
        self,
        lp: &mut Loop<B>,
        stored: BufferedRequest<B>,
    ) -> Result<RecvRequest, (io::Error, BufferedRequest<B>)> {
        if let Err(error) = self.prepare_to_recv(lp) {
            return Err((error, stored));
        }
        let Some(slot) = lp.udps.slots.get_mut(self.0) else {
            return Err((error::stale(), stored));
        };
        let number = slot.next_request;
        slot.next_request += 1;
        slot.requests.push_back(QueuedRecv { number, stored });
        let armed = arm::update(lp, self);
        let slot = lp.udps.slots.get_mut(self.0);
        if let Err(error) = armed
            && let Some(request) = slot.and_then(|slot| slot.requests.pop_back())
        {
            return Err((error, request.stored));
        }
        lp.active_requests += 1;
        if lp.udps.slots.get(self.0).is_some_and(|slot| !slot.held.is_empty()) {
            lp.defer(move |lp| recv::deliver_held(lp, self));
        }
        lp.udps.update_active(&mut lp.active_handles, self);
        Ok(RecvRequest { udp: self, number })
    }

    fn prepare_to_recv<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        if self.open_slot(lp)?.receiving {
            return Err(error::already());
        }
        self.bind_to_receive(lp)
    }

    /// Receives a datagram into `memory` if one has arrived. What does not fit is lost.
    ///
    /// ```
    /// use uv_core::{Loop, Udp, UdpBindFlags};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
    /// let mut memory = [0; 1500];
    /// let nothing = udp.try_recv(&mut lp, &mut memory).unwrap_err();
    /// assert_eq!(nothing.kind(), std::io::ErrorKind::WouldBlock);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `WouldBlock` if none has arrived, if [requests](Udp::recv) are queued, which are served
    /// first, or while the backend still receives for an earlier request: then call
    /// [`recv`](Udp::recv). `EALREADY` after [`recv_start`](Udp::recv_start), `EBADF` without a
    /// socket, `NotFound` for a stale key, `InvalidInput` if the handle is closing, and the
    /// system's errors.
    pub fn try_recv<B: Backend>(self, lp: &mut Loop<B>, memory: &mut [u8]) -> io::Result<Received> {
        let slot = self.open_slot(lp)?;
        if slot.receiving {
            return Err(error::already());
        }
        slot.socket()?;
        if !slot.requests.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if let Some(held) = slot.held.pop_front() {
            return Ok(Received::copy(&Datagram::new(held.incoming()), memory));
        }
        if slot.input.is_some() {
            // A datagram that the operation has received goes first.
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut received = None;
        receive_into(lp, self, memory, usize::MAX, |one| received = Some(one))?;
        received.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }
}

/// A receive: the buffer, and a callback that gets what was received from the slot.
fn stored<B: Backend, T: IoBufMut>(
    buffer: T,
    callback: impl FnOnce(&mut Loop<B>, Udp, Result<Received, UdpError>, T) + 'static,
) -> BufferedRequest<B> {
    BufferedRequest::reading(buffer, move |lp: &mut Loop<B>, key, result, buf| {
        let received = lp.udps.slots.get_mut(key).and_then(|slot| slot.received.take());
        let received = match (received, result) {
            (Some(received), _) => received,
            (None, Ok(_)) => Err(error::cancelled().into()),
            (None, Err(error)) => Err(error.into()),
        };
        callback(lp, Udp(key), received, buf);
    })
}

impl<B: Backend> UdpSlot<B> {
    /// True if a datagram would be delivered: to the receive callback or to a request.
    #[inline]
    pub(super) fn wants_input(&self) -> bool {
        self.receiving || !self.requests.is_empty()
    }

    /// Cancels the requests of a handle that is being closed.
    pub(super) fn cancel_requests(&mut self) {
        self.cancelled_requests.append(&mut self.requests);
    }
}

/// Receives into the caller's memory, as [`Datagrams::receive_into`]. Interrupted calls and
/// errors about earlier datagrams are retried.
///
/// [`Datagrams::receive_into`]: crate::sys::datagrams::Datagrams::receive_into
pub(super) fn receive_into<B: Backend>(
    lp: &mut Loop<B>,
    udp: Udp,
    memory: &mut [u8],
    chunk: usize,
    mut each: impl FnMut(Received),
) -> io::Result<()> {
    let slot = udp.open_slot(lp)?;
    let (controlled, connected) = (slot.has_control, slot.is_connected);
    let mut scratch = lp.udps.take_datagrams();
    let socket = udp.open_slot(lp).and_then(|slot| slot.socket());
    let result = socket.and_then(|socket| {
        loop {
            let each = |offset, incoming: Incoming<'_>| each(Received::at(offset, incoming));
            match scratch.receive_into(socket, memory, chunk, controlled, each) {
                Err(error) if super::recv::is_ignored(&error, connected) => {}
                result => return result,
            }
        }
    });
    lp.udps.datagrams = Some(scratch);
    result
}

/// Receives datagrams for queued requests on a readable socket, each directly into its memory.
pub(super) fn receive_all<B: Backend>(lp: &mut Loop<B>, udp: Udp, limit: usize) -> usize {
    for count in 0..limit {
        let Some(slot) = lp.udps.slots.get_mut(udp.0).filter(|slot| !slot.receiving) else {
            return count;
        };
        let Some(mut request) = slot.requests.pop_front() else { return count };
        let mut received = None;
        let memory = request.stored.memory();
        let result = receive_into(lp, udp, memory, usize::MAX, |one| received = Some(one));
        match (received, result) {
            (Some(received), Ok(())) => complete(lp, udp, request, Ok(received)),
            (_, result) => {
                if let Some(slot) = lp.udps.slots.get_mut(udp.0) {
                    slot.requests.push_front(request);
                }
                if let Err(error) = result {
                    recv::receiving_failed(lp, udp, error);
                }
                return count;
            }
        }
    }
    limit
}

/// Copies a datagram into the memory of the first request, or passes an error to it.
pub(super) fn deliver<B: Backend>(
    lp: &mut Loop<B>,
    udp: Udp,
    received: Result<Datagram<'_>, UdpError>,
) {
    let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return };
    let Some(mut request) = slot.requests.pop_front() else { return };
    let memory = request.stored.memory();
    let received = received.map(|datagram| Received::copy(&datagram, memory));
    complete(lp, udp, request, received);
}

fn complete<B: Backend>(
    lp: &mut Loop<B>,
    udp: Udp,
    request: QueuedRecv<B>,
    received: Result<Received, UdpError>,
) {
    lp.active_requests -= 1;
    let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return };
    slot.received = Some(received);
    let last = slot.requests.is_empty();
    lp.udps.update_active(&mut lp.active_handles, udp);
    request.stored.complete(lp, udp.0, Ok(0));
    if last {
        // The callback may have queued the next. If arming fails, readability is reported that
        // is not needed.
        let _ = arm::update(lp, udp);
    }
}

/// Runs the callbacks of cancelled requests.
pub(crate) fn run_cancelled<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    while let Some(slot) = lp.udps.slots.get_mut(udp.0)
        && let Some(request) = slot.cancelled_requests.pop_front()
    {
        lp.active_requests -= 1;
        lp.udps.update_active(&mut lp.active_handles, udp);
        request.stored.complete(lp, udp.0, Err(error::cancelled()));
    }
}
