//! Receiving into memory that a callback allocates.

use std::io;

use poll_core::Backend;

use super::datagram::{Received, UdpError};
use super::{Udp, recv, recv_request};
use crate::Loop;
use crate::storage::IoBufMut;
use crate::sys::code;
use crate::sys::datagrams::{BATCH, Datagrams, MAX_DATAGRAM};

impl Udp {
    /// As [`recv_start`](Udp::recv_start), into memory that `alloc` provides when the socket is
    /// readable. The argument of `alloc` is the suggested size: 64 KiB, which no datagram exceeds.
    ///
    /// Each call of `alloc` is followed by exactly one call of `callback`, with the buffer and the
    /// datagrams that are in it. One system call fills it: a datagram goes into each part of
    /// `chunk` bytes, where one call receives several (Linux); elsewhere, and in a buffer
    /// shorter than two parts, there is one. The list is empty if none had arrived. `ENOBUFS` is
    /// the result for a buffer without memory. Errors do not stop receiving.
    ///
    /// Such a socket waits for readiness, also on a backend that performs operations.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Udp, UdpBindFlags};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
    /// let alloc = |_: &mut Loop, _, _| vec![0; 4 * 1500];
    /// udp.recv_start_with(&mut lp, 1500, alloc, |lp, udp, result, memory| {
    ///     for datagram in result.unwrap() {
    ///         println!("{:?} from {}", &memory[datagram.range()], datagram.from);
    ///         udp.close(lp).unwrap_or(()); // An error after the first.
    ///     }
    /// })?;
    /// let to = udp.local_addr(&lp)?;
    /// udp.try_send(&mut lp, b"hello", to)?;
    /// lp.run(RunMode::Default)?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for `recv_start`, and `InvalidInput` for a chunk of 0 bytes.
    #[doc(alias = "uv_udp_recv_start")]
    #[doc(alias = "UV_UDP_RECVMMSG")]
    pub fn recv_start_with<B: Backend, T: IoBufMut>(
        self,
        lp: &mut Loop<B>,
        chunk: usize,
        mut alloc: impl FnMut(&mut Loop<B>, Udp, usize) -> T + 'static,
        mut callback: impl FnMut(&mut Loop<B>, Udp, Result<&[Received], UdpError>, T) + 'static,
    ) -> io::Result<()> {
        if chunk == 0 {
            let why = "a part of the buffer for each datagram has at least one byte";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut list = Vec::new();
        self.start_receiver(lp, true, move |lp: &mut Loop<B>, udp, input| {
            let mut buffer = alloc(lp, udp, MAX_DATAGRAM);
            let memory = buffer.memory();
            list.clear();
            let result = match input {
                Some(Err(error)) => Err(error),
                _ if memory.is_empty() => Err(io::Error::from_raw_os_error(code::ENOBUFS).into()),
                // A datagram that an operation has received before.
                Some(Ok(datagram)) => {
                    list.push(Received::copy(&datagram, memory));
                    Ok(())
                }
                None => receive_allocated(lp, udp, memory, chunk, &mut list),
            };
            callback(lp, udp, result.map(|()| &list[..]), buffer);
        })
    }
}

/// Receives into allocated memory. No datagram is no error.
fn receive_allocated<B: Backend>(
    lp: &mut Loop<B>,
    udp: Udp,
    memory: &mut [u8],
    chunk: usize,
    list: &mut Vec<Received>,
) -> Result<(), UdpError> {
    let parts = (memory.len() / chunk).clamp(1, BATCH);
    let result = recv_request::receive_into(lp, udp, memory, chunk, |one| list.push(one));
    if let Some(slot) = lp.udps.slots.get_mut(udp.0) {
        let drained = list.len() < if Datagrams::SHORT_BATCH_MEANS_DRAINED { parts } else { 1 };
        slot.allocated = Allocated { received: list.len(), drained };
    }
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        result => result.map_err(UdpError::from),
    }
}

/// Calls the receiver that allocates, on a readable socket: once, or until the socket is
/// drained.
pub(super) fn receive_allocating<B: Backend>(lp: &mut Loop<B>, udp: Udp, should_batch: bool) {
    let mut total = 0;
    for _ in 0..if should_batch { BATCH } else { 1 } {
        let slot = lp.udps.slots.get_mut(udp.0).filter(|slot| slot.receiving);
        let Some(slot) = slot else { break };
        slot.allocated = Allocated { received: 0, drained: true };
        match slot.callback.take() {
            Some(callback) => recv::deliver_to(lp, callback, udp, None),
            // An exchange of loops has lost the callback.
            None => drop(udp.recv_stop(lp)),
        }
        let Some(slot) = lp.udps.slots.get_mut(udp.0) else { return };
        total += slot.allocated.received;
        if slot.allocated.drained {
            break;
        }
    }
    if should_batch && let Some(slot) = lp.udps.slots.get_mut(udp.0) {
        slot.batch_policy.found(total);
    }
}

/// The result of the last call of a receiver that allocates.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allocated {
    received: usize,
    /// No more datagrams are left.
    drained: bool,
}
