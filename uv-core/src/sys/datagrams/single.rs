//! Datagrams one call each, for systems without `recvmmsg` and `sendmmsg`.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;

use socket2::{MaybeUninitSlice, SockAddr, Socket};

use super::{BATCH, Incoming, MAX_DATAGRAM, Outgoing, Target, send};

/// The sender of a datagram without an Internet address.
const UNKNOWN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// The last received datagram, and the buffer for the next.
#[derive(Debug)]
pub(crate) struct Datagrams {
    memory: Box<[u8]>,
    length: usize,
    from: Sender,
    truncated: bool,
}

/// The sender of a datagram.
#[derive(Debug)]
struct Sender {
    address: SocketAddr,
    /// The name of a Unix domain socket.
    path: Option<PathBuf>,
}

impl Sender {
    fn of(address: &SockAddr) -> Sender {
        #[cfg(unix)]
        let path = address.as_pathname().map(std::path::Path::to_path_buf);
        #[cfg(windows)]
        let path = None;
        Sender { address: address.as_socket().unwrap_or(UNKNOWN), path }
    }
}

impl Datagrams {
    /// True if a batch shorter than the limit means that the socket has no more datagrams. Every
    /// batch here has one.
    pub(crate) const SHORT_BATCH_MEANS_DRAINED: bool = false;

    pub(crate) fn new() -> Box<Datagrams> {
        Box::new(Datagrams {
            memory: vec![0; MAX_DATAGRAM].into_boxed_slice(),
            length: 0,
            from: Sender { address: UNKNOWN, path: None },
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
        let size = size.min(MAX_DATAGRAM);
        (self.length, self.truncated, self.from) = receive(socket, &mut self.memory[..size])?;
        Ok(1)
    }

    /// Receives a datagram into the caller's memory, and calls `each` with its offset, which is 0.
    pub(crate) fn receive_into(
        &mut self,
        socket: &Socket,
        memory: &mut [u8],
        _chunk: usize,
        _controlled: bool,
        mut each: impl FnMut(usize, Incoming<'_>),
    ) -> io::Result<()> {
        let (length, truncated, from) = receive(socket, memory)?;
        let (data, from_path) = (&memory[..length], from.path.as_deref());
        let from = from.address;
        each(0, Incoming { data, from, from_path, truncated, ecn: None, segment_size: None });
        Ok(())
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

    /// The datagram of the last receive.
    pub(crate) fn get(&self, _index: usize) -> Incoming<'_> {
        Incoming {
            data: &self.memory[..self.length],
            from: self.from.address,
            from_path: self.from.path.as_deref(),
            truncated: self.truncated,
            ecn: None,
            segment_size: None,
        }
    }
}

/// Receives a datagram: its length, whether it was truncated, and its sender.
fn receive(socket: &Socket, memory: &mut [u8]) -> io::Result<(usize, bool, Sender)> {
    let size = memory.len();
    let memory = std::ptr::from_mut(memory);
    // SAFETY: `MaybeUninit<u8>` has the layout of `u8`, and the caller's memory stays borrowed for
    // as long as the slice is used. `recv_from_vectored` never writes uninitialised bytes.
    let memory = unsafe { &mut *(memory as *mut [MaybeUninit<u8>]) };
    let memory = &mut [MaybeUninitSlice::new(memory)];
    let (length, flags, from) = socket.recv_from_vectored(memory)?;
    let truncated = flags.is_truncated();
    // Windows returns no length for a truncated datagram, which has filled the buffer.
    Ok((if truncated { size } else { length }, truncated, Sender::of(&from)))
}

/// Sends a datagram of one piece.
pub(crate) fn send_piece(socket: &Socket, piece: &[u8], to: Target<'_>) -> io::Result<usize> {
    match to.to_sockaddr() {
        Some(to) => socket.send_to(piece, &to),
        None => socket.send(piece),
    }
}

/// Sends datagrams until one fails, and returns how many were sent. An error is the first
/// datagram's: none was sent.
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
