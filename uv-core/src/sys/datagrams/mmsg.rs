//! Batches of datagrams by `recvmmsg` and `sendmmsg`.

#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::AsRawFd;
use std::ptr;

use socket2::{SockAddr, Socket};

use super::sockaddr::{address, name_v4, name_v6, path};
use super::{BATCH, Incoming, MAX_DATAGRAM, MAX_PIECES, Outgoing, Target, send};
use crate::sys::cmsg::{Control, Message, integer, messages, written};

/// The distance between the buffers of two datagrams. The extra bytes spread their first lines,
/// which every datagram uses, over different sets of the cache. Pages that no datagram has reached
/// are not resident.
const STRIDE: usize = MAX_DATAGRAM + 4096 + 64;
/// Control space for the traffic class and the segment size of one datagram.
const CONTROL: usize = 96;

/// The sender of a datagram without an Internet address.
const UNKNOWN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));

/// The last batch of received datagrams, and the buffers for the next.
pub(crate) struct Datagrams {
    memory: Box<[u8]>,
    messages: Messages,
}

/// The headers of a batch, and the memory that they point to besides the payloads.
struct Messages {
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
    /// True if a batch shorter than the limit means that the socket has no more datagrams.
    pub(crate) const SHORT_BATCH_MEANS_DRAINED: bool = true;

    pub(crate) fn new() -> Box<Datagrams> {
        let messages = Messages {
            // SAFETY: C structures of an integer and a raw pointer; zero is valid for both.
            vectors: unsafe { std::mem::zeroed() },
            // SAFETY: address structures of integers; zero is valid for each.
            names: unsafe { std::mem::zeroed() },
            controls: [Control([0; CONTROL]); BATCH],
            // SAFETY: C structures of integers and raw pointers; zero is valid for each field.
            headers: unsafe { std::mem::zeroed() },
        };
        Box::new(Datagrams { memory: vec![0; BATCH * STRIDE].into_boxed_slice(), messages })
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
        let (limit, size) = (limit.min(BATCH), size.min(MAX_DATAGRAM));
        let memory = self.memory.chunks_exact_mut(STRIDE).take(limit);
        self.messages.receive(socket, memory.map(|memory| &mut memory[..size]), controlled)
    }

    /// Receives into the caller's memory: a datagram into each part of `chunk` bytes, or one into
    /// all of it if it is shorter than two. Calls `each` with the offset of each datagram.
    pub(crate) fn receive_into(
        &mut self,
        socket: &Socket,
        memory: &mut [u8],
        chunk: usize,
        controlled: bool,
        mut each: impl FnMut(usize, Incoming<'_>),
    ) -> io::Result<()> {
        let chunk = if memory.len() / 2 < chunk { memory.len() } else { chunk };
        let parts = (memory.len() / chunk.max(1)).clamp(1, BATCH);
        let count = match parts {
            1 => self.messages.receive(socket, [&mut *memory].into_iter(), controlled),
            _ => {
                let chunks = memory.chunks_exact_mut(chunk).take(parts);
                self.messages.receive(socket, chunks, controlled)
            }
        }?;
        for index in 0..count {
            each(index * chunk, self.messages.get(index, &memory[index * chunk..]));
        }
        Ok(())
    }

    /// Receives a datagram of up to `size` bytes, with its control messages if `controlled`.
    #[inline(always)] // The caller delivers the fields directly: they stay in registers.
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
        let size = size.min(MAX_DATAGRAM);
        let (name, memory) = (&mut self.messages.names[0], &mut self.memory[..size]);
        name.ss_family = libc::AF_UNSPEC as libc::sa_family_t;
        let mut length = size_of_val(name) as libc::socklen_t;
        // SAFETY: both pointers come from fields that `&mut self` borrows exclusively, and the
        // kernel writes no more than the length passed with each.
        let received = unsafe {
            libc::recvfrom(
                socket.as_raw_fd(),
                memory.as_mut_ptr().cast(),
                memory.len(),
                // `MSG_TRUNC` returns the datagram's length before truncation.
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
            from_path: path(name, length),
            truncated: received > size,
            ecn: None,
            segment_size: None,
        })
    }

    /// A datagram of the last batch.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Incoming<'_> {
        self.messages.get(index, &self.memory[index * STRIDE..])
    }
}

impl Messages {
    /// Receives a datagram into each part of the memory, with control messages if `controlled`.
    #[inline]
    fn receive<'a>(
        &mut self,
        socket: &Socket,
        memory: impl Iterator<Item = &'a mut [u8]>,
        controlled: bool,
    ) -> io::Result<usize> {
        let mut limit = 0;
        let parts = memory.zip(&mut self.vectors).zip(&mut self.names).zip(&mut self.controls);
        for (header, (((memory, vector), name), control)) in self.headers.iter_mut().zip(parts) {
            *vector = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
            limit += 1;
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
        // SAFETY: the loop above has counted the headers that it has pointed to fields of `self` and
        // to the caller's memory, with their lengths. Both are borrowed exclusively for the call.
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

    /// A datagram of the last batch, whose payload begins with `memory`.
    #[inline]
    fn get<'a>(&'a self, index: usize, memory: &'a [u8]) -> Incoming<'a> {
        let (header, name) = (&self.headers[index], &self.names[index]);
        let mut incoming = Incoming {
            data: &memory[..header.msg_len as usize],
            from: address(name).unwrap_or(UNKNOWN),
            from_path: path(name, header.msg_hdr.msg_namelen),
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            ecn: None,
            segment_size: None,
        };
        if header.msg_hdr.msg_controllen > 0 {
            let controls = written(&self.controls[index].0, &header.msg_hdr);
            messages(controls).for_each(|message| apply_control(&mut incoming, message));
        }
        incoming
    }
}

/// Stores the content of a control message in the datagram.
fn apply_control(incoming: &mut Incoming<'_>, (level, kind, data): Message<'_>) {
    match (level, kind) {
        (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            // A byte for IPv4, an `int` for IPv6.
            let class = integer(data).or_else(|| data.first().map(|&tos| tos.into()));
            incoming.ecn = class.map(|class| class as u8 & 0b11);
        }
        (libc::SOL_UDP, libc::UDP_GRO) => {
            incoming.segment_size = integer(data).map(|size| size as usize);
        }
        _ => {}
    }
}

/// Stores the content of control messages, the first `length` of `bytes`, in the datagram.
pub(super) fn apply_controls(incoming: &mut Incoming<'_>, bytes: &[u8], length: usize) {
    let controls = &bytes[..length.min(bytes.len())];
    messages(controls).for_each(|message| apply_control(incoming, message));
}

/// Sends a datagram of one piece.
#[inline]
pub(crate) fn send_piece(socket: &Socket, piece: &[u8], to: Target<'_>) -> io::Result<usize> {
    match to {
        Target::Peer => send_raw(socket, piece, ptr::null(), 0),
        Target::Inet(SocketAddr::V4(v4)) => {
            let name = name_v4(&v4);
            send_raw(socket, piece, (&raw const name).cast(), size_of_val(&name))
        }
        Target::Inet(SocketAddr::V6(v6)) => {
            let name = name_v6(&v6);
            send_raw(socket, piece, (&raw const name).cast(), size_of_val(&name))
        }
        Target::Unix(name) => send_raw(socket, piece, name.as_ptr().cast(), name.len() as usize),
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
    // SAFETY: `piece` is borrowed; `send_piece` passes null and 0, or an address that it
    // borrows and its size. The
    // kernel only reads both, and only during the call.
    let sent = unsafe { libc::sendto(fd, bytes, piece.len(), 0, name, length as libc::socklen_t) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Sends datagrams until one fails, and returns how many were sent. An error is the first
/// datagram's: none was sent.
pub(crate) fn send_batch<'a, M: Outgoing + 'a>(
    socket: &Socket,
    datagrams: impl Iterator<Item = &'a M>,
) -> io::Result<usize> {
    let mut datagrams = datagrams.take(BATCH).peekable();
    let Some(first) = datagrams.next() else { return Ok(0) };
    if datagrams.peek().is_none() || first.pieces() > MAX_PIECES {
        return send(socket, first).map(|_| 1);
    }
    let mut names: [Option<SockAddr>; BATCH] = [const { None }; BATCH];
    // SAFETY: C structures of an integer and a raw pointer; zero is valid for both.
    let mut vectors: [libc::iovec; BATCH + MAX_PIECES] = unsafe { std::mem::zeroed() };
    // SAFETY: C structures of integers and raw pointers; zero is valid for each field.
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
        if let Some(to) = datagram.to().to_sockaddr() {
            let name = names[count].insert(to);
            header.msg_name = name.as_ptr().cast_mut().cast();
            header.msg_namelen = name.len();
        }
        header.msg_iov = pieces.as_mut_ptr();
        header.msg_iovlen = pieces.len() as _;
        count += 1;
    }
    let (fd, headers) = (socket.as_raw_fd(), headers.as_mut_ptr());
    // SAFETY: the loop above has filled the first `count` headers. They point to locals and to
    // datagrams borrowed for `'a`, all of which outlive the call; the kernel writes only `msg_len`
    // of the headers.
    match unsafe { libc::sendmmsg(fd, headers, count as libc::c_uint, 0) } {
        -1 => Err(io::Error::last_os_error()),
        sent => Ok(sent as usize),
    }
}
