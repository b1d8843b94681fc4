//! Datagrams where the system has no calls for many.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use socket2::{MaybeUninitSlice, Socket};

use super::{BATCH, Incoming, LARGEST, Outgoing, reachable, send};

/// Where a datagram without a sender comes from.
const UNKNOWN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// A datagram that was received, and the memory for the next.
#[derive(Debug)]
pub(crate) struct Datagrams {
    memory: Box<[u8]>,
    length: usize,
    from: SocketAddr,
    truncated: bool,
}

impl Datagrams {
    /// Whether fewer than the limit means that there are no more now.
    pub(crate) const FILLS: bool = false;

    pub(crate) fn new() -> Box<Datagrams> {
        Box::new(Datagrams {
            memory: vec![0; LARGEST].into_boxed_slice(),
            length: 0,
            from: UNKNOWN,
            truncated: false,
        })
    }

    /// Receives a datagram of up to `size` bytes.
    pub(crate) fn receive(
        &mut self,
        socket: &Socket,
        _limit: usize,
        size: usize,
        _controlled: bool,
    ) -> io::Result<usize> {
        let size = size.min(LARGEST);
        let memory = std::ptr::from_mut(&mut self.memory[..size]);
        // SAFETY: the two have one layout, and a socket writes initialised bytes only.
        let memory = unsafe { &mut *(memory as *mut [MaybeUninit<u8>]) };
        let memory = &mut [MaybeUninitSlice::new(memory)];
        let (length, flags, from) = socket.recv_from_vectored(memory)?;
        self.truncated = flags.is_truncated();
        // Windows does not count what was truncated: it filled the memory.
        self.length = if self.truncated { size } else { length };
        self.from = from.as_socket().unwrap_or(UNKNOWN);
        Ok(1)
    }

    /// Receives a datagram of up to `size` bytes.
    pub(crate) fn receive_one(
        &mut self,
        socket: &Socket,
        size: usize,
        controlled: bool,
    ) -> io::Result<Incoming<'_>> {
        self.receive(socket, 1, size, controlled)?;
        Ok(self.get(0))
    }

    /// The one that the last call has received.
    pub(crate) fn get(&self, _index: usize) -> Incoming<'_> {
        Incoming {
            data: &self.memory[..self.length],
            from: self.from,
            truncated: self.truncated,
            ecn: None,
            segment_size: None,
        }
    }
}

/// Sends a datagram of one piece.
pub(crate) fn send_piece(
    socket: &Socket,
    piece: &[u8],
    to: &Option<SocketAddr>,
) -> io::Result<usize> {
    match *to {
        Some(to) => socket.send_to(piece, &reachable(to).into()),
        None => socket.send(piece),
    }
}

/// Sends datagrams until one does not go, and says how many went. An error means that none
/// did, and is that of the first.
pub(crate) fn send_batch<'a, M: Outgoing + 'a>(
    socket: &Socket,
    datagrams: impl Iterator<Item = &'a M>,
) -> io::Result<usize> {
    let mut sent = 0;
    for datagram in datagrams.take(BATCH) {
        match send(socket, datagram) {
            Ok(_) => sent += 1,
            Err(error) if sent == 0 => return Err(error),
            Err(_) => break,
        }
    }
    Ok(sent)
}
