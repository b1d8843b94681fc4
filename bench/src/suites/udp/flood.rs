//! Hand-written floods: with `sendmmsg` and `recvmmsg`, and with mio, one datagram per call.

use std::time::Duration;

use crate::suite::{ContestantId, Entrants};

#[cfg(not(target_os = "linux"))]
pub(super) fn enter(entrants: &mut Entrants, _: Duration) {
    entrants.skip(ContestantId::Hand("epoll"), "needs Linux");
    entrants.skip(ContestantId::Peer("mio"), "is measured on Linux only");
}

#[cfg(target_os = "linux")]
pub(super) fn enter(entrants: &mut Entrants, window: Duration) {
    entrants.enter(ContestantId::Hand("epoll"), move || linux::batches(window));
    entrants.enter(ContestantId::Peer("mio"), move || linux::one_by_one(window));
}

#[cfg(target_os = "linux")]
pub(super) use linux::flood;

#[cfg(target_os = "linux")]
mod linux {
    use std::io;
    use std::net::UdpSocket;
    use std::os::fd::{AsRawFd, RawFd};
    use std::ptr;
    use std::time::{Duration, Instant};

    use poll_core::RawSource;

    use super::super::pingpong::socket;
    use super::super::{AT_ONCE, SIZE, flooded};
    use crate::clock::Stopwatch;
    use crate::pollers::{Epoll, Mio, Poller};
    use crate::suite::Sample;

    /// Sends batches until the deadline, and receives whenever the socket is readable.
    pub(in super::super) fn flood<P: Poller>(
        mut poller: P,
        set_up: impl Fn(&UdpSocket, &UdpSocket) -> io::Result<()>,
        window: Duration,
        mut send: impl FnMut(&UdpSocket) -> io::Result<u64>,
        mut receive: impl FnMut(&UdpSocket) -> io::Result<u64>,
    ) -> io::Result<Sample> {
        let (sender, receiver) = (socket()?, socket()?);
        sender.connect(receiver.local_addr()?)?;
        set_up(&sender, &receiver)?;
        poller.add(0, RawSource::of(&receiver))?;
        let (mut ready, mut sent, mut received) = (Vec::new(), 0, 0);
        let (watch, begun) = (Stopwatch::start(), Instant::now());
        while begun.elapsed() < window || received == 0 {
            sent += send(&sender)?;
            ready.clear();
            poller.wait(Some(Duration::ZERO), &mut ready)?;
            if !ready.is_empty() {
                received += receive(&receiver)?;
            }
        }
        let spent = watch.spent();
        poller.remove(0, RawSource::of(&receiver))?;
        Ok(flooded(received, sent, spent))
    }

    pub(super) fn one_by_one(window: Duration) -> io::Result<Sample> {
        let (datagram, mut buffer) = ([0x5a; SIZE], [0; SIZE + 1]);
        let send = |sender: &UdpSocket| {
            for _ in 0..AT_ONCE {
                sender.send(&datagram)?;
            }
            Ok(AT_ONCE as u64)
        };
        let receive = |receiver: &UdpSocket| {
            let mut received = 0;
            // Drained completely, because mio is edge-triggered.
            loop {
                match receiver.recv(&mut buffer) {
                    Ok(length) => received += u64::from(buffer[..length] == datagram),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(received),
                    Err(error) => return Err(error),
                }
            }
        };
        flood(Mio::new()?, |_, _| Ok(()), window, send, receive)
    }

    pub(super) fn batches(window: Duration) -> io::Result<Sample> {
        let (mut outgoing, mut incoming) = (Batch::new(SIZE), Batch::new(SIZE + 1));
        outgoing.bytes.fill(0x5a);
        let send = |sender: &UdpSocket| outgoing.send(sender.as_raw_fd());
        let receive = |receiver: &UdpSocket| incoming.receive(receiver.as_raw_fd());
        flood(Epoll::new()?, |_, _| Ok(()), window, send, receive)
    }

    /// The datagrams of one system call, each with its own buffer.
    struct Batch {
        size: usize,
        bytes: Box<[u8]>,
        pieces: Box<[libc::iovec]>,
        headers: Box<[libc::mmsghdr]>,
    }

    impl Batch {
        fn new(size: usize) -> Batch {
            let mut bytes = vec![0; size * AT_ONCE].into_boxed_slice();
            let start = bytes.as_mut_ptr();
            let piece = |index| libc::iovec {
                iov_base: start.wrapping_add(index * size).cast(),
                iov_len: size,
            };
            let mut pieces: Box<[_]> = (0..AT_ONCE).map(piece).collect();
            let first = pieces.as_mut_ptr();
            // SAFETY: plain data; all zeros are a header without address, buffers and control data.
            let empty = unsafe { std::mem::zeroed::<libc::mmsghdr>() };
            let mut headers = vec![empty; AT_ONCE].into_boxed_slice();
            for (index, header) in headers.iter_mut().enumerate() {
                header.msg_hdr.msg_iov = first.wrapping_add(index);
                header.msg_hdr.msg_iovlen = 1;
            }
            Batch { size, bytes, pieces, headers }
        }

        fn send(&mut self, fd: RawFd) -> io::Result<u64> {
            debug_assert_eq!(self.pieces.len(), self.headers.len());
            let (headers, count) = (self.headers.as_mut_ptr(), AT_ONCE as u32);
            // SAFETY: the headers refer to buffers of this batch, which outlive the call.
            let sent = unsafe { libc::sendmmsg(fd, headers, count, 0) };
            if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as u64) }
        }

        fn receive(&mut self, fd: RawFd) -> io::Result<u64> {
            let (headers, count) = (self.headers.as_mut_ptr(), AT_ONCE as u32);
            // SAFETY: the headers refer to buffers of this batch, which outlive the call.
            let received = unsafe { libc::recvmmsg(fd, headers, count, 0, ptr::null_mut()) };
            if received < 0 {
                return Err(io::Error::last_os_error());
            }
            let datagrams = self.bytes.chunks(self.size).zip(&self.headers);
            let right = |(bytes, header): &(&[u8], &libc::mmsghdr)| {
                header.msg_len as usize == SIZE && bytes[..SIZE] == [0x5a; SIZE]
            };
            Ok(datagrams.take(received as usize).filter(right).count() as u64)
        }
    }
}
