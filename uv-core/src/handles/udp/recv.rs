//! Delivery of datagrams and ICMP reports to the receive callback.

use std::io;
use std::net::Ipv4Addr;

use poll_core::{Backend, Interest};

use super::datagram::{Datagram, Held, UdpError};
use super::{Udp, UdpBindFlags, Udps, arm, recv_into, recv_request, send};
use crate::event_loop::exchange;
use crate::handles::error_path;
use crate::storage::{Argument, InlineFnMutRef};
use crate::sys::code;
use crate::sys::datagrams::{self, BATCH, Datagrams};
use crate::{Loop, error};

/// The limit of datagrams or reports per readiness event, so that a flood does not starve other
/// handles.
const PER_EVENT: usize = 4 * BATCH;

/// The argument of the receive callback. `None` for a reader that allocates memory and receives
/// into it itself, on a readable socket.
pub(crate) struct Input;

impl Argument for Input {
    type For<'a> = (Udp, Option<Result<Datagram<'a>, UdpError>>);
}

impl Udp {
    /// Calls `callback` for each received datagram and each error.
    ///
    /// The bytes are in a buffer of the loop, lent for the call. Where the system supports it,
    /// one system call receives many datagrams. If the callback stops receiving, the rest of
    /// these is held and delivered when the handle starts again. Errors do not stop receiving.
    /// Windows reports to an unconnected socket that an earlier datagram did not arrive, without
    /// naming it; these errors are ignored unless the socket is [connected](Udp::connect).
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `EALREADY` if it
    /// receives or [requests](Udp::recv) are queued, and the errors of [`bind`](Udp::bind).
    #[doc(alias = "uv_udp_recv_start")]
    pub fn recv_start<B: Backend>(
        self,
        lp: &mut Loop<B>,
        mut callback: impl FnMut(&mut Loop<B>, Udp, Result<Datagram<'_>, UdpError>) + 'static,
    ) -> io::Result<()> {
        self.start_receiver(lp, false, move |lp: &mut Loop<B>, udp, input| {
            // Only a receiver that allocates gets no datagram.
            if let Some(result) = input {
                callback(lp, udp, result);
            }
        })
    }

    /// As [`recv_start`](Udp::recv_start), with one path for errors: those of receiving, and those
    /// that the callback returns, go to the handler of [`Loop::on_error`]. The handle stays open and
    /// goes on receiving, because an error concerns one datagram: to end it, close it.
    ///
    /// ```
    /// use std::io::{Error, ErrorKind};
    /// use uv_core::{Handle, Loop, RunMode, Udp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.on_error(|_, _, error| assert_eq!(error.kind(), ErrorKind::InvalidData));
    /// let udp = Udp::bind_to(&mut lp, "127.0.0.1:0")?;
    /// udp.on_recv(&mut lp, |lp, udp, datagram| {
    ///     let text = str::from_utf8(datagram.data);
    ///     let text = text.map_err(|_| Error::from(ErrorKind::InvalidData))?;
    ///     println!("{text:?} from {}", datagram.from);
    ///     udp.close(lp)
    /// })?;
    /// let to = udp.local_addr(&lp)?;
    /// udp.send_to(&mut lp, b"\xff", to); // An error that is reported.
    /// udp.send_to(&mut lp, "text", to);
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`recv_start`](Udp::recv_start).
    #[doc(alias = "uv_udp_recv_start")]
    pub fn on_recv<B: Backend>(
        self,
        lp: &mut Loop<B>,
        mut callback: impl FnMut(&mut Loop<B>, Udp, Datagram<'_>) -> io::Result<()> + 'static,
    ) -> io::Result<()> {
        self.recv_start(lp, move |lp, udp, datagram| {
            let datagram = datagram.map_err(io::Error::from);
            if let Err(error) = datagram.and_then(|datagram| callback(lp, udp, datagram)) {
                error_path::report_later(lp, udp.into(), error, None);
            }
        })
    }

    /// Starts receiving, by a receiver that allocates memory or one that is lent datagrams.
    pub(super) fn start_receiver<B: Backend>(
        self,
        lp: &mut Loop<B>,
        allocates: bool,
        mut receiver: impl FnMut(&mut Loop<B>, Udp, Option<Result<Datagram<'_>, UdpError>>) + 'static,
    ) -> io::Result<()> {
        if self.open_slot(lp)?.wants_input() {
            return Err(error::already());
        }
        self.bind_to_receive(lp)?;
        let slot = self.open_slot(lp)?;
        (slot.receiving, slot.allocates) = (true, allocates);
        if let Err(error) = arm::update(lp, self) {
            self.open_slot(lp)?.receiving = false;
            return Err(error);
        }
        let slot = self.open_slot(lp)?;
        slot.callback = Some(InlineFnMutRef::new(
            move |lp: &mut Loop<B>, (udp, input): <Input as Argument>::For<'_>| {
                receiver(lp, udp, input);
            },
        ));
        if !slot.held.is_empty() {
            lp.defer(move |lp| deliver_held(lp, self));
        }
        lp.udps.update_active(&mut lp.active_handles, self);
        Ok(())
    }

    /// Binds a handle without a socket to any address.
    pub(super) fn bind_to_receive<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        self.bind_to_any(lp, (Ipv4Addr::UNSPECIFIED, 0).into(), UdpBindFlags::empty())
    }

    /// Stops what [`recv_start`](Udp::recv_start) or [`recv_start_with`](Udp::recv_start_with) has
    /// started, immediately, and drops the callback. Does nothing to a socket that does not
    /// receive.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Udp, UdpBindFlags};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
    /// udp.recv_start(&mut lp, |lp, udp, datagram| {
    ///     assert_eq!(datagram.unwrap().data, b"one"); // The other datagram is held.
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
    #[doc(alias = "uv_udp_recv_stop")]
    pub fn recv_stop<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        let slot = lp.udps.slots.get_mut(self.0).ok_or_else(error::stale)?;
        (slot.receiving, slot.allocates) = (false, false);
        let callback = (slot.callback.take(), slot.on_ready.take());
        let armed = arm::update(lp, self);
        lp.udps.update_active(&mut lp.active_handles, self);
        // Last: destructors of the captured values may do anything.
        drop(callback);
        armed
    }

    /// Sets the size from which datagrams are truncated. By default none is.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Udp, UdpBindFlags};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
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
        self.open_slot(lp)?.largest = bytes.clamp(1, datagrams::MAX_DATAGRAM);
        Ok(())
    }
}

impl<B: Backend> Udps<B> {
    /// The buffers of the loop for datagrams, to be put back.
    #[inline]
    pub(super) fn take_datagrams(&mut self) -> Box<Datagrams> {
        self.datagrams.take().unwrap_or_else(Datagrams::new)
    }
}

/// Receives and delivers datagrams on a readable socket: one per event, or batches if the
/// [policy](crate::storage) has found that several arrive per iteration.
#[inline]
pub(super) fn receive_ready<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    let iteration = lp.iteration;
    // A callback of the same batch of events may have stopped the handle.
    let slot = lp.udps.slots.get_mut(udp.0).filter(|slot| slot.armed.contains(Interest::READ));
    let Some(slot) = slot else { return };
    let should_batch = slot.batch_policy.should_batch(iteration);
    if !slot.held.is_empty() {
        deliver_held(lp, udp);
    }
    let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return };
    if slot.allocates || !slot.receiving {
        return receive_into_memory_of_the_caller(lp, udp, should_batch);
    }
    match should_batch {
        true => receive_batches(lp, udp),
        false => receive_datagram(lp, udp),
    }
}

/// Receives for a receiver that allocates, or for queued requests.
fn receive_into_memory_of_the_caller<B: Backend>(lp: &mut Loop<B>, udp: Udp, should_batch: bool) {
    let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return };
    if slot.allocates {
        return recv_into::receive_allocating(lp, udp, should_batch);
    }
    let count = recv_request::receive_all(lp, udp, if should_batch { PER_EVENT } else { 1 });
    if should_batch && let Some(slot) = lp.udps.slots.get_mut(udp.0) {
        slot.batch_policy.found(count);
    }
}

fn receive_batches<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    let Some(slot) = lp.udps.slots.get(udp.0) else { return };
    let (mut asked, mut received) = (slot.batch, 0);
    let memory = lp.udps.take_datagrams();
    let mut batch = Batch { lp, udp, memory: Some(memory), next: 0, count: 0 };
    while received < PER_EVENT && batch.receive(asked) {
        received += batch.count;
        let drained = Datagrams::SHORT_BATCH_MEANS_DRAINED && batch.count < asked;
        batch.deliver_all();
        if drained {
            break;
        }
        asked = (asked * 2).min(BATCH);
    }
    batch.record_count(received);
}

/// Receives and delivers one datagram, if there is one.
#[inline]
fn receive_datagram<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    let slot = lp.udps.slots.get_mut(udp.0).filter(|slot| slot.receiving);
    let Some(slot) = slot else { return };
    let Some(socket) = &slot.socket else { return };
    // If the callback panics, the buffer is dropped, and the next datagram allocates one.
    let mut memory = lp.udps.datagrams.take().unwrap_or_else(Datagrams::new);
    match memory.receive_one(socket, slot.largest, slot.has_control) {
        Ok(incoming) => {
            match slot.callback.take() {
                Some(callback) => {
                    deliver_to(lp, callback, udp, Some(Ok(Datagram::new(incoming))));
                }
                None => {
                    // An exchange of loops has lost the callback: the next one gets the
                    // datagram.
                    slot.held.push_back(Held::new(incoming));
                    drop(udp.recv_stop(lp));
                }
            }
        }
        Err(error) => drop(receiving_failed(lp, udp, error)),
    }
    lp.udps.datagrams = Some(memory);
}

/// Delivers an error unless it is to be ignored. Returns true if the caller should retry.
pub(super) fn receiving_failed<B: Backend>(lp: &mut Loop<B>, udp: Udp, error: io::Error) -> bool {
    let Some(slot) = lp.udps.slots.get(udp.0) else { return false };
    match error {
        error if is_ignored(&error, slot.is_connected) => return true,
        // The error queue may have the same error in more detail.
        _ if slot.reports_errors && deliver_reports(lp, udp) => {}
        error if error.kind() == io::ErrorKind::WouldBlock => {}
        error => deliver(lp, udp, Err(error.into())),
    }
    false
}

/// Delivers the datagrams that were held while the handle was stopped.
#[cold]
pub(super) fn deliver_held<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    while let Some(slot) = lp.udps.slots.get_mut(udp.0)
        && slot.wants_input()
        && let Some(held) = slot.held.pop_front()
    {
        deliver(lp, udp, Ok(Datagram::new(held.incoming())));
    }
}

/// Delivers the reports of the kernel's error queue, and returns whether there were any. The
/// queue is read even if the handle is stopped: the socket stays in error state until it is
/// empty.
pub(super) fn deliver_reports<B: Backend>(lp: &mut Loop<B>, udp: Udp) -> bool {
    let mut any = false;
    for _ in 0..PER_EVENT {
        let Some(slot) = lp.udps.slots.get_mut(udp.0) else { break };
        let Some(socket) = slot.socket.as_ref().filter(|_| slot.reports_errors) else { break };
        let Some(report) = datagrams::next_report(socket) else { break };
        any = true;
        deliver(lp, udp, Err(report.into()));
    }
    any
}

/// Calls the receive callback, if the handle receives, or that of the first request.
#[inline]
pub(super) fn deliver<B: Backend>(
    lp: &mut Loop<B>,
    udp: Udp,
    received: Result<Datagram<'_>, UdpError>,
) {
    let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return };
    if !slot.receiving {
        return recv_request::deliver(lp, udp, received);
    }
    match slot.callback.take() {
        Some(callback) => deliver_to(lp, callback, udp, Some(received)),
        // An exchange of loops has lost the callback.
        None => drop(udp.recv_stop(lp)),
    }
}

/// Calls `callback`, and restores it unless it was stopped or replaced.
#[inline(always)] // The argument is then written once, where the callback reads it.
pub(super) fn deliver_to<B: Backend>(
    lp: &mut Loop<B>,
    mut callback: InlineFnMutRef<B, Input>,
    udp: Udp,
    received: Option<Result<Datagram<'_>, UdpError>>,
) {
    lp.call_with(&mut callback, (udp, received), udp, |lp, udp| drop(udp.recv_stop(lp)));
    match lp.udps.slots.get_mut(udp.0) {
        Some(slot) if slot.receiving && slot.callback.is_none() => {
            slot.callback = Some(callback);
        }
        Some(_) => {}
        None => exchange::note(),
    }
}

/// The datagrams of one system call. Those that are not delivered are held, even if a callback
/// panics.
struct Batch<'a, B: Backend> {
    lp: &'a mut Loop<B>,
    udp: Udp,
    /// Taken from the loop, and returned on drop.
    memory: Option<Box<Datagrams>>,
    next: usize,
    count: usize,
}

impl<B: Backend> Batch<'_, B> {
    /// Receives up to `asked` datagrams; returns false if there is nothing more to receive.
    #[inline]
    fn receive(&mut self, asked: usize) -> bool {
        let slot = self.lp.udps.slots.get_mut(self.udp.0).filter(|slot| slot.receiving);
        let (Some(slot), Some(memory)) = (slot, &mut self.memory) else { return false };
        let Some(socket) = &slot.socket else { return false };
        (self.next, self.count) = (0, 0);
        match memory.receive(socket, asked, slot.largest, slot.has_control) {
            Ok(count) => {
                self.count = count;
                true
            }
            Err(error) => receiving_failed(self.lp, self.udp, error),
        }
    }

    /// Records how many datagrams a batched event has received.
    fn record_count(&mut self, count: usize) {
        // A handle that stops within a batch is better served one datagram per event.
        let count = if self.next < self.count { 1 } else { count };
        if let Some(slot) = self.lp.udps.slots.get_mut(self.udp.0) {
            slot.batch_policy.found(count);
            // The next batch has space for as many, and one more to detect that the queue is empty.
            slot.batch = (count + 1).next_power_of_two().clamp(2, BATCH);
        }
    }

    /// Delivers the next datagram, if there is one.
    fn deliver_next(&mut self) {
        if self.next < self.count
            && let Some(memory) = &self.memory
        {
            let incoming = memory.get(self.next);
            self.next += 1;
            deliver(self.lp, self.udp, Ok(Datagram::new(incoming)));
        }
    }

    fn deliver_all(&mut self) {
        // Replies to a batch leave as a batch.
        if self.count > 1 {
            self.lp.udps.cork_sends(&self.lp.operations, self.udp);
        }
        while self.next < self.count
            && self.lp.udps.slots.get(self.udp.0).is_some_and(|slot| slot.wants_input())
        {
            self.deliver_next();
        }
        if self.count > 1 {
            send::uncork(self.lp, self.udp);
        }
    }
}

impl<B: Backend> Drop for Batch<'_, B> {
    fn drop(&mut self) {
        if self.next < self.count
            && let Some(memory) = &self.memory
            && let Some(slot) = self.lp.udps.slots.get_mut(self.udp.0)
            && !slot.base.is_closing()
        {
            slot.held.extend((self.next..self.count).map(|index| Held::new(memory.get(index))));
        }
        self.lp.udps.datagrams = self.memory.take();
        if self.count > 1 {
            // After a panic the sends are still corked.
            send::uncork(self.lp, self.udp);
        }
    }
}

/// True if a receive is to be retried: it was interrupted, or the error is about an earlier
/// datagram of a socket that is not connected.
pub(super) fn is_ignored(error: &io::Error, is_connected: bool) -> bool {
    error.kind() == io::ErrorKind::Interrupted || (is_about_earlier(error) && !is_connected)
}

/// True for errors that Windows reports to a receiver because an earlier datagram did not
/// arrive. The error does not identify that datagram.
fn is_about_earlier(error: &io::Error) -> bool {
    cfg!(windows) && matches!(error.raw_os_error(), Some(code::ECONNRESET | code::ENETRESET))
}
