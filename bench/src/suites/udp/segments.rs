//! A flood with segmentation offload: the kernel splits each send into datagrams (`UDP_SEGMENT`,
//! Linux 4.18), and joins those that it delivers (`UDP_GRO`, Linux 5.0).

use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use poll_core::Backend;

use super::core::Flow;
use crate::backends::{self, OnBackend, Which};
use crate::pollers::{Epoll, Mio, Poller};
use crate::suite::{ContestantId, Count, Entrants, Figure, Sample, Scenario, Unit};

/// The size of a datagram: what a QUIC packet has.
const SIZE: usize = 1_200;
/// The datagrams of one send, which must be below 64 KiB.
const SEGMENTS: usize = 40;
/// The number of sends in flight: a socket's usual memory holds so many.
const AT_ONCE: usize = 2;

static BATCH: [u8; SIZE * SEGMENTS] = [0x5a; SIZE * SEGMENTS];

pub(super) fn scenario(window: Duration) -> Scenario {
    let mut entrants = Entrants::default();
    match refusal() {
        None => {
            backends::enter(&mut entrants, Which::All, ContestantId::Core, &Segments { window });
            entrants.enter(ContestantId::Hand("epoll"), move || by_hand(Epoll::new()?, window));
            entrants.enter(ContestantId::Peer("mio"), move || by_hand(Mio::new()?, window));
        }
        Some(error) => {
            for name in backends::NAMES {
                let why = format!("the kernel has no UDP segmentation offload: {error}");
                entrants.skip(ContestantId::Core(name), why);
            }
        }
    }
    let why = "in GSO, GRO: it has no control messages, so that a receiver cannot tell the size of \
               joined datagrams";
    entrants.skip(ContestantId::Peer("libuv"), why);
    let rate =
        |name, about| Figure { name, about, unit: Unit::PerCpuSecond, count: Count::AtLeast(1) };
    Scenario {
        name: "GSO, GRO".into(),
        parameter: None,
        figures: vec![
            rate(
                "segments received",
                "one socket sends 40 datagrams of 1,200 bytes in each call without a limit, \
                 another receives what the kernel does not drop, joined: datagrams received",
            ),
            rate("segments sent", "the same: datagrams that the kernel accepted"),
        ],
        entrants,
    }
}

/// Why this kernel cannot.
fn refusal() -> Option<io::Error> {
    let tried = UdpSocket::bind("127.0.0.1:0").and_then(|socket| offload(&socket, &socket));
    tried.err()
}

/// Switches the offloads on.
fn offload(sender: &UdpSocket, receiver: &UdpSocket) -> io::Result<()> {
    set(sender.as_raw_fd(), libc::UDP_SEGMENT, SIZE as i32)?;
    set(receiver.as_raw_fd(), libc::UDP_GRO, 1)
}

fn set(fd: RawFd, option: i32, value: i32) -> io::Result<()> {
    let size = size_of::<i32>() as u32;
    // SAFETY: the value is valid for reads of its size.
    let failed =
        unsafe { libc::setsockopt(fd, libc::SOL_UDP, option, (&raw const value).cast(), size) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The number of right datagrams in what was received at once.
fn count(joined: &[u8], size: usize) -> u64 {
    let right = |piece: &&[u8]| **piece == BATCH[..SIZE];
    joined.chunks(size.max(1)).filter(right).count() as u64
}

fn by_hand<P: Poller>(poller: P, window: Duration) -> io::Result<Sample> {
    let mut incoming = Incoming::new();
    let send = |sender: &UdpSocket| {
        for _ in 0..AT_ONCE {
            sender.send(&BATCH)?;
        }
        Ok((AT_ONCE * SEGMENTS) as u64)
    };
    let receive = |receiver: &UdpSocket| {
        let mut received = 0;
        // Drained completely, because mio is edge-triggered, and there are few at a time.
        loop {
            match incoming.receive(receiver.as_raw_fd()) {
                Ok(count) => received += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(received),
                Err(error) => return Err(error),
            }
        }
    };
    super::flood::flood(poller, offload, window, send, receive)
}

/// Memory for joined datagrams and the control message with their size.
struct Incoming {
    bytes: Box<[u8]>,
    /// Larger than `CMSG_SPACE` of an integer, and aligned for its header.
    control: [u64; 8],
}

impl Incoming {
    fn new() -> Incoming {
        Incoming { bytes: vec![0; 1 << 16].into(), control: [0; 8] }
    }

    fn receive(&mut self, fd: RawFd) -> io::Result<u64> {
        let mut piece =
            libc::iovec { iov_base: self.bytes.as_mut_ptr().cast(), iov_len: self.bytes.len() };
        // SAFETY: plain data; all zeros are a header without address, buffers and control data.
        let mut header = unsafe { std::mem::zeroed::<libc::msghdr>() };
        header.msg_iov = &mut piece;
        header.msg_iovlen = 1;
        header.msg_control = self.control.as_mut_ptr().cast();
        header.msg_controllen = size_of_val(&self.control) as _;
        // SAFETY: the header refers to memory of this value, which outlives the call.
        let length = unsafe { libc::recvmsg(fd, &mut header, libc::MSG_DONTWAIT) };
        let Ok(length) = usize::try_from(length) else { return Err(io::Error::last_os_error()) };
        let size = segment_size(&header).unwrap_or(length);
        Ok(count(&self.bytes[..length], size))
    }
}

/// The size of joined datagrams; `None` for a single one.
fn segment_size(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel has written the header and its control data, which are valid.
    let first = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: null, or a header within the control data.
    let message = unsafe { first.as_ref() }?;
    if (message.cmsg_level, message.cmsg_type) != (libc::SOL_UDP, libc::UDP_GRO) {
        return None;
    }
    // SAFETY: the message is in the control data.
    let value = unsafe { libc::CMSG_DATA(first) };
    // SAFETY: a message of this type holds an integer, which need not be aligned.
    let size = unsafe { value.cast::<i32>().read_unaligned() };
    usize::try_from(size).ok()
}

#[derive(Clone)]
struct Segments {
    window: Duration,
}

impl OnBackend for Segments {
    fn run<B: Backend>(&self, make: fn() -> io::Result<B>) -> io::Result<Sample> {
        let flow = Flow { batch: &BATCH, segment: Some(SIZE as u16), at_once: AT_ONCE };
        super::core::flood(make()?, self.window, flow)
    }
}
