//! Sends of datagrams, and the callbacks of completed sends.

use std::io::{self, IoSlice};
use std::net::SocketAddr;

use poll_core::Backend;
use socket2::Socket;

use super::send_queue::{CompletedSend, Sends, Unsent};
use super::{Destination, Udp, UdpBindFlags, Udps, arm};
use crate::event_loop::{Operations, exchange};
use crate::handles::{Handle, error_path};
use crate::storage::{IntoIoBuf, IoBuf};
use crate::streams::BufferedRequest;
use crate::sys::code;
use crate::sys::datagrams::{self, Address, Outgoing, Target};
use crate::{Loop, error};

/// The limit of batches per readiness event, so that a long queue does not starve other handles.
pub(super) const BATCHES: usize = 4;

impl Udp {
    /// Sends a datagram to an address, to the peer of a [connected](Udp::connect) socket (`None`),
    /// or to a Unix datagram socket, see [`Destination`].
    ///
    /// `callback` runs after the kernel has accepted or rejected the datagram, never before this
    /// method returns, and gets the buffer back. The loop stays alive until then.
    ///
    /// Datagrams are sent in order. Each is tried immediately unless earlier ones are queued; on
    /// a backend that performs sends, those of callbacks leave together before the next poll. An
    /// error concerns one datagram; the next is tried anyway. Closing the handle fails queued
    /// sends with `ECANCELED`, before the close callback runs.
    ///
    /// A buffer of many pieces (see [`IoBuf`]) makes one datagram.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, `EISCONN` with an
    /// address on a connected socket, `EDESTADDRREQ` without one on an unconnected socket, and
    /// the errors of [`bind`](Udp::bind). The buffer and the callback are dropped then: see
    /// [`send_with`](Udp::send_with).
    #[doc(alias = "uv_udp_send")]
    pub fn send<B: Backend, T: IntoIoBuf>(
        self,
        lp: &mut Loop<B>,
        buffer: T,
        to: impl Into<Destination>,
        callback: impl FnOnce(&mut Loop<B>, Udp, io::Result<()>, T::Buf) + 'static,
    ) -> io::Result<()> {
        let Destination(to) = to.into();
        self.prepare_to_send(lp, to.target())?;
        self.queue_send(lp, buffer.into_io_buf(), to, callback);
        Ok(())
    }

    /// As [`send`](Udp::send), but the callback gets every error, and always the buffer.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Udp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.send_with(&mut lp, "hello", None, |lp, udp, result, buffer| {
    ///     assert!(result.is_err(), "there is no peer");
    ///     println!("{buffer:?} is back");
    ///     udp.close_if_open(lp);
    /// });
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_udp_send")]
    pub fn send_with<B: Backend, T: IntoIoBuf>(
        self,
        lp: &mut Loop<B>,
        buffer: T,
        to: impl Into<Destination>,
        callback: impl FnOnce(&mut Loop<B>, Udp, io::Result<()>, T::Buf) + 'static,
    ) {
        let (Destination(to), buffer) = (to.into(), buffer.into_io_buf());
        match self.prepare_to_send(lp, to.target()) {
            Ok(()) => self.queue_send(lp, buffer, to, callback),
            Err(error) => lp.defer(move |lp| callback(lp, self, Err(error), buffer)),
        }
    }

    /// Sends a datagram; an error goes to the handler of [`Loop::on_error`]. Does nothing if the
    /// handle is closing or closed.
    ///
    /// Unlike an error of [`Stream::send`](crate::Stream::send) it does not close the handle,
    /// because it concerns one datagram: who asks from an address that cannot be answered must not
    /// end a server. Sends that a close cancels report nothing.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Udp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.on_error(|_, handle, error| eprintln!("{handle}: {error}"));
    /// let server = Udp::bind_to(&mut lp, "127.0.0.1:0")?;
    /// server.on_recv(&mut lp, |lp, server, datagram| {
    ///     server.send_to(lp, datagram.data.to_ascii_uppercase(), datagram.from);
    ///     Ok(())
    /// })?;
    /// let (client, to) = (Udp::new(&mut lp), server.local_addr(&lp)?);
    /// client.send_to(&mut lp, "hello", to);
    /// client.on_recv(&mut lp, move |lp, client, datagram| {
    ///     assert_eq!(datagram.data, b"HELLO");
    ///     server.close(lp)?;
    ///     client.close(lp)
    /// })?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_udp_send")]
    pub fn send_to<B: Backend>(
        self,
        lp: &mut Loop<B>,
        buffer: impl IntoIoBuf,
        to: impl Into<Destination>,
    ) {
        if self.is_closing(lp) {
            return;
        }
        self.send_with(lp, buffer, to, |lp, udp, result, _| match result {
            Err(error) if !udp.is_closing(lp) => {
                error_path::report_later(lp, udp.into(), error, None)
            }
            _ => {}
        });
    }

    /// Sends a datagram, or queues it, of a socket that is [prepared](Udp::prepare_to_send).
    fn queue_send<B: Backend, T: IoBuf>(
        self,
        lp: &mut Loop<B>,
        buffer: T,
        to: Address,
        callback: impl FnOnce(&mut Loop<B>, Udp, io::Result<()>, T) + 'static,
    ) {
        let length = (0..buffer.pieces()).map(|index| buffer.piece(index).len()).sum();
        let stored =
            BufferedRequest::writing(buffer, move |lp: &mut Loop<B>, key, result, buffer| {
                callback(lp, Udp(key), result, buffer);
            });
        let send = Unsent { stored, to, length };
        let running = lp.is_running();
        let Some(slot) = lp.udps.slots.get_mut(self.0) else { return };
        let by_operation = running && slot.sends_by_operation(&lp.operations);
        let result = match by_operation || slot.sends.any_unsent() || slot.sends.is_corked {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => retry(|| datagrams::send(slot.socket()?, &send)),
        };
        slot.sends.size += length;
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                slot.sends.unsent.push_back(send);
                if let Err(error) = arm::update(lp, self) {
                    // No event would report when the kernel accepts more.
                    lp.udps.fail_last_send(self, error);
                    schedule_callbacks(lp, self);
                }
            }
            result => {
                slot.sends.complete(send, result);
                schedule_callbacks(lp, self);
            }
        }
        lp.active_requests += 1;
        lp.udps.update_active(&mut lp.active_handles, self);
    }

    /// Sends a datagram immediately or not at all, without a callback.
    ///
    /// ```
    /// use uv_core::{Loop, Udp};
    ///
    /// let peer = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// assert_eq!(udp.try_send(&mut lp, b"hello", peer.local_addr()?)?, 5);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the kernel accepts no datagram now, or if [sends](Udp::send) are queued;
    /// the errors of [`send`](Udp::send), and the kernel's.
    #[doc(alias = "uv_udp_try_send")]
    pub fn try_send<B: Backend>(
        self,
        lp: &mut Loop<B>,
        data: &[u8],
        to: impl Into<Destination>,
    ) -> io::Result<usize> {
        let Destination(to) = to.into();
        let to = to.target();
        let socket = self.socket_to_send(lp, to)?;
        retry(|| datagrams::send_piece(socket, data, to))
    }

    /// As [`try_send`](Udp::try_send), of a datagram in several pieces.
    ///
    /// ```
    /// use std::io::IoSlice;
    /// use uv_core::{Loop, Udp};
    ///
    /// let peer = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// let pieces = [IoSlice::new(b"one "), IoSlice::new(b"datagram")];
    /// assert_eq!(udp.try_send_vectored(&mut lp, &pieces, peer.local_addr()?)?, 12);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for `try_send`.
    #[doc(alias = "uv_udp_try_send")]
    pub fn try_send_vectored<B: Backend>(
        self,
        lp: &mut Loop<B>,
        pieces: &[IoSlice<'_>],
        to: impl Into<Destination>,
    ) -> io::Result<usize> {
        let Destination(to) = to.into();
        let to = to.target();
        let socket = self.socket_to_send(lp, to)?;
        retry(|| datagrams::send(socket, &(pieces, to)))
    }

    /// The socket, if a datagram may be sent by a call now.
    #[inline]
    fn socket_to_send<'a, B: Backend>(
        self,
        lp: &'a mut Loop<B>,
        to: Target<'_>,
    ) -> io::Result<&'a Socket> {
        let slot = self.open_slot(lp)?;
        // One check instead of three: over 5 % of udp-try-send/epoll (`bench count`).
        let ready = slot.socket.is_some() && to.is_peer() == slot.is_connected;
        if !ready || slot.sends.any_unsent() {
            self.prepare_to_send(lp, to)?;
            flush(lp, self);
            if self.open_slot(lp)?.sends.any_unsent() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        self.open_slot(lp)?.socket()
    }

    /// Sends datagrams immediately until the kernel accepts no more, and returns how many it
    /// accepted. Uses batch system calls where the kernel has them (`sendmmsg`).
    ///
    /// ```
    /// use uv_core::{Loop, Udp, UdpBindFlags};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (sender, receiver) = (Udp::new(&mut lp), Udp::new(&mut lp));
    /// receiver.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
    /// let to = Some(receiver.local_addr(&lp)?);
    /// let sent = sender.try_send_many(&mut lp, &[(b"one", to), (b"two", to)])?;
    /// assert_eq!(sent, 2);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`try_send`](Udp::try_send), if the first datagram was not sent.
    #[doc(alias = "uv_udp_try_send2")]
    pub fn try_send_many<B: Backend>(
        self,
        lp: &mut Loop<B>,
        datagrams: &[(&[u8], Option<SocketAddr>)],
    ) -> io::Result<usize> {
        self.try_send_all(lp, datagrams)
    }

    /// As [`try_send_many`](Udp::try_send_many), of datagrams in several pieces each.
    ///
    /// ```
    /// use std::io::IoSlice;
    /// use uv_core::{Loop, Udp, UdpBindFlags};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (sender, receiver) = (Udp::new(&mut lp), Udp::new(&mut lp));
    /// receiver.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
    /// let to = Some(receiver.local_addr(&lp)?);
    /// let (one, two) = ([IoSlice::new(b"o"), IoSlice::new(b"ne")], [IoSlice::new(b"two")]);
    /// let sent = sender.try_send_many_vectored(&mut lp, &[(&one, to), (&two, to)])?;
    /// assert_eq!(sent, 2);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for `try_send_many`.
    #[doc(alias = "uv_udp_try_send2")]
    pub fn try_send_many_vectored<B: Backend>(
        self,
        lp: &mut Loop<B>,
        datagrams: &[(&[IoSlice<'_>], Option<SocketAddr>)],
    ) -> io::Result<usize> {
        self.try_send_all(lp, datagrams)
    }

    fn try_send_all<B: Backend>(
        self,
        lp: &mut Loop<B>,
        datagrams: &[impl Outgoing],
    ) -> io::Result<usize> {
        for datagram in datagrams {
            self.prepare_to_send(lp, datagram.to())?;
        }
        flush(lp, self);
        let slot = self.open_slot(lp)?;
        if slot.sends.any_unsent() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut sent = 0;
        while sent < datagrams.len() {
            let rest = &datagrams[sent..];
            match retry(|| datagrams::send_batch(slot.socket()?, rest.iter())) {
                Ok(0) => break,
                Ok(count) => sent += count,
                Err(error) if sent == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(sent)
    }

    /// The number of bytes in sends whose callbacks have not run; zero for a stale key.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Udp};
    ///
    /// let peer = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.send(&mut lp, "hello", peer.local_addr()?, |lp, udp, _, _| udp.close(lp).unwrap())?;
    /// assert_eq!((udp.send_queue_count(&lp), udp.send_queue_size(&lp)), (1, 5));
    /// lp.run(RunMode::Default)?;
    /// assert_eq!((udp.send_queue_count(&lp), udp.send_queue_size(&lp)), (0, 0));
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_udp_get_send_queue_size")]
    pub fn send_queue_size<B: Backend>(self, lp: &Loop<B>) -> usize {
        lp.udps.slots.get(self.0).map_or(0, |slot| slot.sends.size)
    }

    /// The number of sends whose callbacks have not run; zero for a stale key.
    #[doc(alias = "uv_udp_get_send_queue_count")]
    pub fn send_queue_count<B: Backend>(self, lp: &Loop<B>) -> usize {
        lp.udps.slots.get(self.0).map_or(0, |slot| slot.sends.count())
    }

    /// Checks the destination against the connection state, and binds a handle without a socket.
    fn prepare_to_send<B: Backend>(self, lp: &mut Loop<B>, to: Target<'_>) -> io::Result<()> {
        let slot = self.open_slot(lp)?;
        match (to, slot.is_connected) {
            (Target::Inet(_) | Target::Unix(_), true) => Err(error::is_connected()),
            (Target::Peer, false) => Err(io::Error::from_raw_os_error(code::EDESTADDRREQ)),
            _ if slot.socket.is_some() => Ok(()),
            (Target::Inet(to), _) => self.bind_to_any(lp, to, UdpBindFlags::empty()),
            _ => {
                let why = "open a Unix datagram socket first: a new socket is an Internet socket";
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
        }
    }
}

/// Retries a call that a signal has interrupted. Maps `ENOBUFS` to `WouldBlock`: the kernel will
/// have buffers later.
#[inline]
fn retry<T>(attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match attempt() {
        Err(error) => retry_after(error, attempt),
        result => result,
    }
}

#[cold]
fn retry_after<T>(mut error: io::Error, attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
    loop {
        if error.raw_os_error() == Some(code::ENOBUFS) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
        match attempt() {
            Err(another) => error = another,
            result => return result,
        }
    }
}

impl<B: Backend> Udps<B> {
    /// Completes the datagram that was queued last, unless an operation uses its buffer.
    #[cold]
    fn fail_last_send(&mut self, udp: Udp, error: io::Error) {
        let Some(slot) = self.slots.get_mut(udp.0) else { return };
        let in_flight = slot.sends.is_in_flight() && slot.sends.unsent_count() == 1;
        if !in_flight && let Some(send) = slot.sends.unsent.pop_back() {
            slot.sends.complete(send, Err(error));
        }
    }

    /// Sends queued datagrams by at most `batches` calls, until the kernel accepts no more. Sends
    /// nothing while the first is in flight.
    #[inline]
    pub(super) fn send_unsent(&mut self, udp: Udp, batches: usize) {
        let Some(slot) = self.slots.get_mut(udp.0) else { return };
        let Some(socket) = &slot.socket else { return };
        for _ in 0..batches {
            if !slot.sends.any_unsent() || slot.sends.is_in_flight() {
                break;
            }
            match retry(|| datagrams::send_batch(socket, slot.sends.unsent.iter())) {
                Ok(count) => slot.sends.complete_sent(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The error concerns this datagram only.
                Err(error) => slot.sends.complete_first(Err(error)),
            }
        }
    }

    /// Queues the sends of this socket until [`uncork`], to send them as a batch.
    #[inline]
    pub(super) fn cork_sends(&mut self, operations: &Operations<B>, udp: Udp) {
        if let Some(slot) = self.slots.get_mut(udp.0) {
            // Sends by operations are queued until the next poll anyway.
            slot.sends.is_corked = !slot.sends_by_operation(operations);
        }
    }

    /// Returns true if the caller must schedule the callbacks of completed sends: there are some,
    /// and none of them is being run or scheduled. Marks them as scheduled.
    #[inline]
    fn claim_send_callbacks(&mut self, udp: Udp) -> bool {
        let Some(slot) = self.slots.get_mut(udp.0) else { return false };
        let Sends { completed, completion_scheduled, completing, .. } = &mut slot.sends;
        !completed.is_empty() && !*completing && !std::mem::replace(completion_scheduled, true)
    }
}

/// Sends queued datagrams on a writable socket, and runs the callbacks of completed sends.
#[inline]
pub(super) fn send_queued<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    lp.udps.send_unsent(udp, BATCHES);
    // If this fails, the socket reports writability that is not needed.
    let _ = arm::update(lp, udp);
    run_callbacks(lp, udp);
}

/// Sends the datagrams that were queued since [`Udps::cork_sends`].
#[inline]
pub(super) fn uncork<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    flush(lp, udp);
    let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return };
    if std::mem::take(&mut slot.sends.is_corked) {
        // If this fails, no event reports when the kernel accepts more: the rest waits for
        // another send or the close.
        let _ = arm::update(lp, udp);
    }
}

/// Sends datagrams that are only queued to form a batch: the caller is about to change the
/// socket, which must not affect them.
#[inline]
pub(super) fn flush<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    let Some(slot) = lp.udps.slots.get(udp.0) else { return };
    let Sends { is_corked, in_flush_queue, .. } = slot.sends;
    if (is_corked || in_flush_queue) && slot.sends.any_unsent() {
        lp.udps.send_unsent(udp, usize::MAX);
        schedule_callbacks(lp, udp);
    }
}

/// Runs the callbacks of completed sends in the next pending phase.
#[inline]
pub(super) fn schedule_callbacks<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    if lp.udps.claim_send_callbacks(udp) {
        lp.defer(move |lp| run_scheduled_callbacks(lp, udp));
    }
}

/// As [`schedule_callbacks`], but in the next iteration: a socket whose send
/// callbacks send again must not starve other handles, such as the receiver.
fn schedule_callbacks_next_iteration<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    if lp.udps.claim_send_callbacks(udp) {
        lp.defer_to_next_iteration(move |lp| run_scheduled_callbacks(lp, udp));
    }
}

fn run_scheduled_callbacks<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    if let Some(slot) = lp.udps.slots.get_mut(udp.0) {
        slot.sends.completion_scheduled = false;
        run_callbacks(lp, udp);
    }
}

/// Runs the callbacks of the sends that have completed so far.
#[inline]
pub(crate) fn run_callbacks<B: Backend>(lp: &mut Loop<B>, udp: Udp) {
    let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return };
    let count = slot.sends.completed.len();
    slot.sends.completing = true;
    let end = |lp: &mut Loop<B>, udp| end_callbacks(lp, udp, count > 1);
    lp.finally(udp, end, |lp, _| {
        if count > 1 {
            lp.udps.cork_sends(&lp.operations, udp);
        }
        for _ in 0..count {
            let Some(slot) = lp.udps.slots.get_mut(udp.0) else { break };
            let Some(send) = slot.sends.completed.pop_front() else { break };
            let CompletedSend { stored, length, result } = send;
            slot.sends.size -= length;
            lp.active_requests -= 1;
            lp.udps.update_active(&mut lp.active_handles, udp);
            stored.complete(lp, udp.0, result);
        }
    });
}

/// Ends [`run_callbacks`], also after a panic: schedules the
/// completions that are left, or that callbacks have added, for the next iteration.
fn end_callbacks<B: Backend>(lp: &mut Loop<B>, udp: Udp, corked: bool) {
    if corked {
        uncork(lp, udp);
    }
    match lp.udps.slots.get_mut(udp.0) {
        Some(slot) => slot.sends.completing = false,
        None => exchange::note(),
    }
    schedule_callbacks_next_iteration(lp, udp);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_full_queue_of_the_device_is_a_socket_that_would_block() {
        let full = retry::<()>(|| Err(io::Error::from_raw_os_error(code::ENOBUFS)));
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let other = retry::<()>(|| Err(io::Error::from_raw_os_error(code::EDESTADDRREQ)));
        assert_eq!(other.unwrap_err().raw_os_error(), Some(code::EDESTADDRREQ));
    }

    #[test]
    fn an_interrupted_send_is_repeated() {
        let left = Cell::new(3);
        let attempt = |end: io::Result<usize>| {
            left.set(left.get() - 1);
            if left.get() > 0 { Err(io::ErrorKind::Interrupted.into()) } else { end }
        };
        assert_eq!(retry(|| attempt(Ok(5))).unwrap(), 5);
        left.set(3);
        let full = || Err(io::Error::from_raw_os_error(code::ENOBUFS));
        let end = retry(|| attempt(full())).unwrap_err();
        assert_eq!((end.kind(), left.get()), (io::ErrorKind::WouldBlock, 0));
    }
}
