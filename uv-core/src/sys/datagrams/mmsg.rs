//! `recvmmsg` and `sendmmsg`.

#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::ptr;

use socket2::{SockAddr, Socket};

use super::names::{address, name_v4, name_v6};
use super::{BATCH, Incoming, LARGEST, Outgoing, PIECES, send};
use crate::sys::control::{Control, Message, integer, messages};

/// From one datagram's memory to the next: the beginnings, which all datagrams use, must
/// not compete for the same few lines of a cache. Memory that no datagram has reached is
/// not there yet.
const STRIDE: usize = LARGEST + 4096 + 64;
/// Room for the traffic class and the segment size of one datagram.
const CONTROL: usize = 96;

/// Where a datagram without a sender comes from.
const UNKNOWN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// A batch of datagrams that were received, and the memory for the next.
pub(crate) struct Datagrams {
    memory: Box<[u8]>,
    vectors: [libc::iovec; BATCH],
    names: [libc::sockaddr_storage; BATCH],
    controls: [Control<CONTROL>; BATCH],
    headers: [libc::mmsghdr; BATCH],
}

impl fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagrams").finish_non_exhaustive()
    }
}

impl Datagrams {
    /// Whether fewer than the limit means that there are no more now.
    pub(crate) const FILLS: bool = true;

    pub(crate) fn new() -> Box<Datagrams> {
        Box::new(Datagrams {
            memory: vec![0; BATCH * STRIDE].into_boxed_slice(),
            // SAFETY: all zeros are null pointers and no lengths.
            vectors: unsafe { std::mem::zeroed() },
            // SAFETY: all zeros are an address of no family.
            names: unsafe { std::mem::zeroed() },
            controls: [Control([0; CONTROL]); BATCH],
            // SAFETY: all zeros are null pointers and no lengths.
            headers: unsafe { std::mem::zeroed() },
        })
    }

    /// Receives up to `limit` datagrams of up to `size` bytes, with their control messages
    /// if `controlled`.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        socket: &Socket,
        limit: usize,
        size: usize,
        controlled: bool,
    ) -> io::Result<usize> {
        let (limit, size) = (limit.min(BATCH), size.min(LARGEST));
        let memory = self.memory.chunks_exact_mut(STRIDE);
        let parts = memory.zip(&mut self.vectors).zip(&mut self.names).zip(&mut self.controls);
        for (header, (((memory, vector), name), control)) in
            self.headers[..limit].iter_mut().zip(parts)
        {
            *vector = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: size };
            name.ss_family = libc::AF_UNSPEC as libc::sa_family_t;
            let header = &mut header.msg_hdr;
            header.msg_name = ptr::from_mut(name).cast();
            header.msg_namelen = size_of_val(name) as libc::socklen_t;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_control = control.0.as_mut_ptr().cast();
            header.msg_controllen = if controlled { CONTROL as _ } else { 0 };
            header.msg_flags = 0;
        }
        // SAFETY: that many headers name memory of this batch, which is borrowed for the call.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                limit as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        if count < 0 { Err(io::Error::last_os_error()) } else { Ok(count as usize) }
    }

    /// Receives a datagram of up to `size` bytes, with its control messages if `controlled`.
    #[inline(always)] // It is told of where it is received.
    pub(crate) fn receive_one(
        &mut self,
        socket: &Socket,
        size: usize,
        controlled: bool,
    ) -> io::Result<Incoming<'_>> {
        if controlled {
            self.receive(socket, 1, size, true)?;
            return Ok(self.get(0));
        }
        let size = size.min(LARGEST);
        let (name, memory) = (&mut self.names[0], &mut self.memory[..size]);
        name.ss_family = libc::AF_UNSPEC as libc::sa_family_t;
        let mut length = size_of_val(name) as libc::socklen_t;
        // SAFETY: the kernel writes to memory of this batch, up to the lengths given.
        let received = unsafe {
            libc::recvfrom(
                socket.as_raw_fd(),
                memory.as_mut_ptr().cast(),
                memory.len(),
                // Asks for the length that the datagram had before it was truncated.
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                ptr::from_mut(name).cast(),
                &mut length,
            )
        };
        if received < 0 {
            return Err(io::Error::last_os_error());
        }
        let received = received as usize;
        Ok(Incoming {
            data: &memory[..received.min(size)],
            from: address(name).unwrap_or(UNKNOWN),
            truncated: received > size,
            ecn: None,
            segment_size: None,
        })
    }

    /// One of those that the last call has received.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Incoming<'_> {
        let header = &self.headers[index];
        let mut incoming = Incoming {
            data: &self.memory[index * STRIDE..][..header.msg_len as usize],
            from: address(&self.names[index]).unwrap_or(UNKNOWN),
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            ecn: None,
            segment_size: None,
        };
        if header.msg_hdr.msg_controllen > 0 {
            // SAFETY: filled by the last call; the control memory is this batch's.
            for message in unsafe { messages(&header.msg_hdr) } {
                note(&mut incoming, message);
            }
        }
        incoming
    }
}

/// Notes what a control message says about a datagram.
fn note(incoming: &mut Incoming<'_>, (level, kind, data): Message<'_>) {
    match (level, kind) {
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            // One byte for IP version 4, an integer that small for version 6.
            let class = integer(data).or_else(|| data.first().map(|&tos| tos.into()));
            incoming.ecn = class.map(|class| class as u8 & 0b11);
        }
        (libc::SOL_UDP, libc::UDP_GRO) => {
            incoming.segment_size = integer(data).map(|size| size as usize);
        }
        _ => {}
    }
}

/// Notes what the first `length` bytes of control messages say about a datagram.
pub(super) fn note_controls(incoming: &mut Incoming<'_>, bytes: &[u8], length: usize) {
    // Where they are they need not be aligned.
    let mut control = Control([0; CONTROL]);
    let length = length.min(bytes.len()).min(CONTROL);
    control.0[..length].copy_from_slice(&bytes[..length]);
    // SAFETY: all zeros are null pointers and no lengths.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = length as _;
    // SAFETY: the kernel has written these bytes, and the copy is in this frame.
    for message in unsafe { messages(&header) } {
        note(incoming, message);
    }
}

/// Sends a datagram of one piece.
#[inline]
pub(crate) fn send_piece(
    socket: &Socket,
    piece: &[u8],
    to: &Option<SocketAddr>,
) -> io::Result<usize> {
    match to {
        None => send_raw(socket, piece, ptr::null(), 0),
        Some(SocketAddr::V4(v4)) => {
            let name = name_v4(v4);
            send_raw(socket, piece, (&raw const name).cast(), size_of_val(&name))
        }
        Some(SocketAddr::V6(v6)) => {
            let name = name_v6(v6);
            send_raw(socket, piece, (&raw const name).cast(), size_of_val(&name))
        }
    }
}

#[inline]
fn send_raw(
    socket: &Socket,
    piece: &[u8],
    name: *const libc::sockaddr,
    length: usize,
) -> io::Result<usize> {
    let (fd, bytes) = (socket.as_raw_fd(), piece.as_ptr().cast());
    // SAFETY: the kernel reads the piece and the name, which is so long, during the call only.
    let sent = unsafe { libc::sendto(fd, bytes, piece.len(), 0, name, length as libc::socklen_t) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Sends datagrams until one does not go, and says how many went. An error means that none
/// did, and is that of the first.
pub(crate) fn send_batch<'a, M: Outgoing + 'a>(
    socket: &Socket,
    datagrams: impl Iterator<Item = &'a M>,
) -> io::Result<usize> {
    let mut datagrams = datagrams.take(BATCH).peekable();
    let Some(first) = datagrams.next() else { return Ok(0) };
    if datagrams.peek().is_none() || first.pieces() > PIECES {
        return send(socket, first).map(|_| 1);
    }
    let mut names: [Option<SockAddr>; BATCH] = [const { None }; BATCH];
    // SAFETY: all zeros are null pointers and no lengths.
    let mut vectors: [libc::iovec; BATCH + PIECES] = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut headers: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    let (mut count, mut left) = (0, &mut vectors[..]);
    for datagram in std::iter::once(first).chain(datagrams) {
        let Some((pieces, rest)) = left.split_at_mut_checked(datagram.pieces()) else { break };
        left = rest;
        for (index, vector) in pieces.iter_mut().enumerate() {
            let piece = datagram.piece(index);
            vector.iov_base = piece.as_ptr().cast_mut().cast();
            vector.iov_len = piece.len();
        }
        let header = &mut headers[count].msg_hdr;
        if let Some(to) = datagram.to() {
            let name = names[count].insert(to.into());
            header.msg_name = name.as_ptr().cast_mut().cast();
            header.msg_namelen = name.len();
        }
        header.msg_iov = pieces.as_mut_ptr();
        header.msg_iovlen = pieces.len() as _;
        count += 1;
    }
    let (fd, headers) = (socket.as_raw_fd(), headers.as_mut_ptr());
    // SAFETY: that many headers name memory that is borrowed for the call; the kernel does
    // not write to what it sends.
    match unsafe { libc::sendmmsg(fd, headers, count as libc::c_uint, 0) } {
        -1 => Err(io::Error::last_os_error()),
        sent => Ok(sent as usize),
    }
}
