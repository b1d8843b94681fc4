//! Sending datagrams.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use poll_core::Backend;

use super::queue::{Ended, Sends, Unsent};
use super::{Udp, UdpBind};
use crate::buffers::IoBuf;
use crate::streams::Stored;
use crate::sys::code;
use crate::sys::datagrams;
use crate::{Loop, error};

/// Batches of one readiness event, so that a long queue does not starve the rest.
pub(super) const BATCHES: usize = 4;

impl Udp {
    /// Sends a datagram: to an address, or, on a [connected](Udp::connect) socket, to the
    /// peer (`None`). `callback` gets the buffer back when the kernel has taken or refused
    /// the datagram, never before this returns.
    ///
    /// Sends are tried at once unless others wait, and go out in order. Where the backend sends
    /// by itself, those of callbacks leave together when the loop next waits. An error is that
    /// of one datagram: the next is tried all the same. If the handle is closed first, those
    /// that wait get `ECANCELED`, before the close callback. The loop stays alive meanwhile.
    ///
    /// A buffer of many pieces (see [`IoBuf`]) makes one datagram.
    ///
    /// # Errors
    ///
    /// The buffer and the callback are dropped then. `NotFound` for a stale key,
    /// `InvalidInput` if the handle is closing, `EISCONN` with an address on a connected
    /// socket, `EDESTADDRREQ` without one otherwise, and those of [`bind`](Udp::bind).
    pub fn send<B: Backend, T: IoBuf>(
        self,
        lp: &mut Loop<B>,
        buffer: T,
        to: impl Into<Option<SocketAddr>>,
        callback: impl FnOnce(&mut Loop<B>, Udp, io::Result<()>, T) + 'static,
    ) -> io::Result<()> {
        let to = to.into();
        self.prepare_to_send(lp, to)?;
        let length = (0..buffer.pieces()).map(|index| buffer.piece(index).len()).sum();
        let stored = Stored::writing(buffer, move |lp: &mut Loop<B>, key, result, buffer| {
            callback(lp, Udp(key), result, buffer);
        });
        let send = Unsent { stored, to, length };
        let running = lp.is_running();
        let slot = lp.udps.get_mut(self.0).ok_or_else(error::stale)?;
        let later = running && slot.sends_by_wait(&lp.operations);
        let result = match later || slot.sends.any_unsent() || slot.sends.is_corked {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => retry(|| datagrams::send(slot.socket()?, &send)),
        };
        slot.sends.size += length;
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                slot.sends.unsent.push_back(send);
                if let Err(error) = lp.arm_udp(self) {
                    // Nothing will say when the kernel takes more.
                    let slot = self.open_slot(lp)?;
                    slot.sends.size -= length;
                    drop(slot.sends.unsent.pop_back());
                    return Err(error);
                }
            }
            result => {
                slot.sends.end(send, result);
                lp.tell_sends_later(self);
            }
        }
        lp.active_requests += 1;
        lp.update_udp_activity(self);
        Ok(())
    }

    /// Sends a datagram now or not at all, without a callback.
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
    /// `WouldBlock` if the kernel takes none now, or if [sends](Udp::send) wait; else as for
    /// [`send`](Udp::send), and what the kernel says.
    pub fn try_send<B: Backend>(
        self,
        lp: &mut Loop<B>,
        data: &[u8],
        to: impl Into<Option<SocketAddr>>,
    ) -> io::Result<usize> {
        let to = to.into();
        let mut slot = self.open_slot(lp)?;
        // A look at what is usual spares three.
        let usual = slot.socket.is_some() && to.is_none() == slot.is_connected;
        if !usual || slot.sends.any_unsent() {
            self.prepare_to_send(lp, to)?;
            lp.flush_sends(self);
            slot = self.open_slot(lp)?;
            if slot.sends.any_unsent() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
        }
        let socket = slot.socket()?;
        retry(|| datagrams::send_piece(socket, data, &to))
    }

    /// Sends many datagrams now, as far as the kernel takes them, by few system calls where
    /// it has such; returns how many it took, which are the first ones.
    ///
    /// ```
    /// use uv_core::{Loop, Udp, UdpBind};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (sender, receiver) = (Udp::new(&mut lp), Udp::new(&mut lp));
    /// receiver.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBind::empty())?;
    /// let to = Some(receiver.local_addr(&lp)?);
    /// let sent = sender.try_send_many(&mut lp, &[(b"one", to), (b"two", to)])?;
    /// assert_eq!(sent, 2);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// If not even the first was sent: as for [`try_send`](Udp::try_send).
    pub fn try_send_many<B: Backend>(
        self,
        lp: &mut Loop<B>,
        datagrams: &[(&[u8], Option<SocketAddr>)],
    ) -> io::Result<usize> {
        for &(_, to) in datagrams {
            self.prepare_to_send(lp, to)?;
        }
        lp.flush_sends(self);
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

    /// How many bytes are in sends that have not called back; zero for a stale key.
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
    pub fn send_queue_size<B: Backend>(self, lp: &Loop<B>) -> usize {
        lp.udps.get(self.0).map_or(0, |slot| slot.sends.size)
    }

    /// How many sends have not called back; zero for a stale key.
    pub fn send_queue_count<B: Backend>(self, lp: &Loop<B>) -> usize {
        lp.udps.get(self.0).map_or(0, |slot| slot.sends.count())
    }

    /// Checks that a datagram can go there, and that there is a socket to send it.
    fn prepare_to_send<B: Backend>(
        self,
        lp: &mut Loop<B>,
        to: Option<SocketAddr>,
    ) -> io::Result<()> {
        let slot = self.open_slot(lp)?;
        let wrong = match (to, slot.is_connected) {
            (Some(_), true) => code::EISCONN,
            (None, false) => code::EDESTADDRREQ,
            _ if slot.socket.is_some() => return Ok(()),
            _ => {
                let to = to.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into());
                return self.bind_to_any(lp, to, UdpBind::empty());
            }
        };
        Err(io::Error::from_raw_os_error(wrong))
    }
}

/// Tries again after a signal. A kernel that is out of buffers will have some later.
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

impl<B: Backend> Loop<B> {
    /// Sends what waits, as far as the kernel takes it, and tells.
    pub(super) fn send_queued(&mut self, udp: Udp) {
        self.send_unsent(udp, BATCHES);
        // If it fails, the socket is told of more often than needed.
        let _ = self.arm_udp(udp);
        self.tell_sends(udp);
    }

    /// Sends what waits, as far as the kernel takes it, in so many batches; nothing if an operation
    /// has the first of it.
    pub(super) fn send_unsent(&mut self, udp: Udp, batches: usize) {
        let Some(slot) = self.udps.get_mut(udp.0) else { return };
        let Some(socket) = &slot.socket else { return };
        for _ in 0..batches {
            if !slot.sends.any_unsent() || slot.sends.is_in_flight() {
                break;
            }
            match retry(|| datagrams::send_batch(socket, slot.sends.unsent.iter())) {
                Ok(count) => slot.sends.end_sent(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The others may fare better.
                Err(error) => slot.sends.end_first(Err(error)),
            }
        }
    }

    /// Makes sends of this socket wait for each other, until [`Loop::uncork_sends`].
    pub(super) fn cork_sends(&mut self, udp: Udp) {
        if let Some(slot) = self.udps.get_mut(udp.0) {
            // Those that go before the wait do so anyway.
            slot.sends.is_corked = !slot.sends_by_wait(&self.operations);
        }
    }

    pub(super) fn uncork_sends(&mut self, udp: Udp) {
        self.flush_sends(udp);
        let Some(slot) = self.udps.get_mut(udp.0) else { return };
        if std::mem::take(&mut slot.sends.is_corked) {
            // If it fails there is no way to know when the kernel takes more: then they wait
            // until another is sent, or the handle is closed.
            let _ = self.arm_udp(udp);
        }
    }

    /// Sends what waits for others to be sent with: they must not be affected by what the
    /// caller is about to do to the socket.
    pub(super) fn flush_sends(&mut self, udp: Udp) {
        let Some(slot) = self.udps.get(udp.0) else { return };
        let Sends { is_corked, in_outbox, .. } = slot.sends;
        if (is_corked || in_outbox) && slot.sends.any_unsent() {
            self.send_unsent(udp, usize::MAX);
            self.tell_sends_later(udp);
        }
    }

    /// Tells of the sends that have ended in the next pending phase.
    pub(super) fn tell_sends_later(&mut self, udp: Udp) {
        if self.are_sends_to_be_told(udp) {
            self.defer(move |lp| lp.tell_sends_now(udp));
        }
    }

    /// As above, but in the next turn: a socket that sends on in the callbacks of its sends is
    /// to let others have their turn, who receive what it sends, say.
    fn tell_sends_in_next_turn(&mut self, udp: Udp) {
        if self.are_sends_to_be_told(udp) {
            self.defer_to_next_turn(move |lp| lp.tell_sends_now(udp));
        }
    }

    /// True if somebody has to see to it that sends are told of, which is taken for granted
    /// then.
    fn are_sends_to_be_told(&mut self, udp: Udp) -> bool {
        let Some(slot) = self.udps.get_mut(udp.0) else { return false };
        let Sends { ended, is_pending, is_telling, .. } = &mut slot.sends;
        !ended.is_empty() && !*is_telling && !std::mem::replace(is_pending, true)
    }

    fn tell_sends_now(&mut self, udp: Udp) {
        if let Some(slot) = self.udps.get_mut(udp.0) {
            slot.sends.is_pending = false;
            self.tell_sends(udp);
        }
    }

    /// Tells of the sends that have ended by now.
    pub(crate) fn tell_sends(&mut self, udp: Udp) {
        let Some(slot) = self.udps.get_mut(udp.0) else { return };
        let ended = slot.sends.ended.len();
        slot.sends.is_telling = true;
        let rest = TellRest { lp: self, udp, corked: ended > 1 };
        if rest.corked {
            rest.lp.cork_sends(udp);
        }
        for _ in 0..ended {
            let Some(slot) = rest.lp.udps.get_mut(udp.0) else { break };
            let Some(Ended { stored, length, result }) = slot.sends.ended.pop_front() else {
                break;
            };
            slot.sends.size -= length;
            rest.lp.active_requests -= 1;
            rest.lp.update_udp_activity(udp);
            stored.tell(&mut *rest.lp, udp.0, result);
        }
    }
}

/// Those that a callback has added, or that a panic has left, are told of in the next turn.
struct TellRest<'a, B: Backend> {
    lp: &'a mut Loop<B>,
    udp: Udp,
    corked: bool,
}

impl<B: Backend> Drop for TellRest<'_, B> {
    fn drop(&mut self) {
        if self.corked {
            self.lp.uncork_sends(self.udp);
        }
        if let Some(slot) = self.lp.udps.get_mut(self.udp.0) {
            slot.sends.is_telling = false;
        }
        self.lp.tell_sends_in_next_turn(self.udp);
    }
}
