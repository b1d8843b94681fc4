//! Hand-written io_uring: one multishot accept, one multishot receive per connection, and provided
//! buffers, from which answers are sent.
//!
//! Compared with registered files, bundles and fixed buffers (`cargo run --release -p bench --example
//! ring_variants`): none is faster in every cell, see DESIGN.md.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::squeue::Entry;
use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::readiness::set_nodelay;
use super::{Handler, READ_SIZE, Service, connection_ended};

const ENTRIES: u32 = 4_096;
/// The number of buffers: a power of two, as the kernel requires, and small enough for the cache.
const BUFFERS: u16 = 256;
const GROUP: u16 = 0;

/// The kind of an operation; its user data is the kind and a descriptor.
const ACCEPT: u64 = 0;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
const CLOSE: u64 = 3;

#[derive(Default)]
struct Connection {
    /// Filled buffers and their lengths, in order. The first is being sent.
    filled: VecDeque<(u16, u32)>,
    /// The number of bytes of the first buffer that were sent.
    sent: u32,
    is_open: bool,
    is_receiving: bool,
    /// The handler of a service that does not just echo or discard.
    handler: Option<Handler>,
}

struct Server {
    ring: IoUring,
    buffers: Buffers,
    service: Service,
    connections: Vec<Connection>,
    /// Connections whose receive found no free buffer.
    starved: Vec<RawFd>,
}

pub(super) fn serve(listener: TcpListener, service: Service) -> io::Result<()> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_coop_taskrun()
        .setup_defer_taskrun()
        .setup_cqsize(4 * ENTRIES)
        .build(ENTRIES)?;
    let buffers = Buffers::new(&ring)?;
    let (connections, starved) = (Vec::new(), Vec::new());
    let mut server = Server { ring, buffers, service, connections, starved };
    let listening = listener.as_raw_fd();
    server.accept(listening)?;
    let mut done = Vec::new();
    loop {
        match server.ring.submit_and_wait(1) {
            // A signal, or a full completion queue, which is drained below.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY)) => {}
            result => drop(result?),
        }
        done.extend(
            server
                .ring
                .completion()
                .map(|entry| (entry.user_data(), entry.result(), entry.flags())),
        );
        for (data, result, flags) in done.drain(..) {
            let fd = (data >> 8) as RawFd;
            match data & 0xff {
                ACCEPT => server.accepted(listening, result, flags)?,
                RECEIVE => server.received(fd, result, flags)?,
                SEND => server.sent(fd, result)?,
                _ => {}
            }
        }
        for fd in std::mem::take(&mut server.starved) {
            server.receive(fd)?;
        }
    }
}

impl Server {
    fn push(&mut self, entry: Entry, what: u64, fd: RawFd) -> io::Result<()> {
        let entry = entry.user_data(what | (fd as u64) << 8);
        loop {
            // SAFETY: the memory of the operations belongs to the server, which outlives them.
            let pushed: Result<(), squeue::PushError> =
                unsafe { self.ring.submission().push(&entry) };
            if pushed.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }

    fn accept(&mut self, listening: RawFd) -> io::Result<()> {
        let entry = opcode::AcceptMulti::new(Fd(listening)).flags(libc::SOCK_CLOEXEC).build();
        self.push(entry, ACCEPT, listening)
    }

    fn accepted(&mut self, listening: RawFd, result: i32, flags: u32) -> io::Result<()> {
        if !cqueue::more(flags) {
            self.accept(listening)?;
        }
        if result < 0 {
            return Ok(());
        }
        set_nodelay(result);
        let number = result as usize;
        self.connections.resize_with(self.connections.len().max(number + 1), Connection::default);
        self.connections[number].is_open = true;
        if !matches!(self.service, Service::Echo | Service::Sink) {
            self.connections[number].handler = Some(Handler::new(self.service));
        }
        self.receive(result)
    }

    fn receive(&mut self, fd: RawFd) -> io::Result<()> {
        self.connections[fd as usize].is_receiving = true;
        self.push(opcode::RecvMulti::new(Fd(fd), GROUP).build(), RECEIVE, fd)
    }

    fn received(&mut self, fd: RawFd, result: i32, flags: u32) -> io::Result<()> {
        let connection = &mut self.connections[fd as usize];
        connection.is_receiving = cqueue::more(flags);
        if let (Some(buffer), 1..) = (cqueue::buffer_select(flags), result) {
            let length = match &mut connection.handler {
                Some(handler) => self.buffers.answer(handler, buffer, result as usize),
                None if self.service == Service::Sink => Some(0),
                None => Some(result as u32),
            };
            match length {
                Some(length @ 1..) => {
                    connection.filled.push_back((buffer, length));
                    if connection.filled.len() == 1 {
                        self.send(fd)?;
                    }
                }
                none => {
                    connection.is_open &= none.is_some();
                    self.buffers.give_back(buffer);
                }
            }
            let connection = &self.connections[fd as usize];
            if !connection.is_open && cqueue::more(flags) {
                // A malformed request: the receive ends with the shutdown.
                // SAFETY: no memory is passed.
                unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
                return Ok(());
            }
            if !cqueue::more(flags) {
                self.receive(fd)?;
            }
        } else if result == -libc::ENOBUFS {
            self.starved.push(fd);
        } else if !cqueue::more(flags) {
            connection.is_open = false;
        }
        self.close_if_over(fd)
    }

    fn send(&mut self, fd: RawFd) -> io::Result<()> {
        let connection = &self.connections[fd as usize];
        let Some((buffer, length)) = connection.filled.front() else { return Ok(()) };
        let start = self.buffers.start(*buffer).wrapping_add(connection.sent as usize);
        let entry = opcode::Send::new(Fd(fd), start, length - connection.sent).build();
        self.push(entry, SEND, fd)
    }

    fn sent(&mut self, fd: RawFd, result: i32) -> io::Result<()> {
        let connection = &mut self.connections[fd as usize];
        if result < 0 {
            // The peer has closed: discard the answers to it.
            connection.is_open = false;
            connection.sent = 0;
            for (buffer, _) in connection.filled.drain(..) {
                self.buffers.give_back(buffer);
            }
            return self.close_if_over(fd);
        }
        connection.sent += result as u32;
        if let Some((buffer, length)) = connection.filled.front()
            && connection.sent == *length
        {
            self.buffers.give_back(*buffer);
            connection.filled.pop_front();
            connection.sent = 0;
        }
        self.send(fd)?;
        self.close_if_over(fd)
    }

    /// Closes an ended connection once no operation of it is in flight.
    fn close_if_over(&mut self, fd: RawFd) -> io::Result<()> {
        let connection = &self.connections[fd as usize];
        let in_flight = connection.is_receiving || !connection.filled.is_empty();
        if connection.is_open || in_flight || self.starved.contains(&fd) {
            return Ok(());
        }
        self.connections[fd as usize] = Connection::default();
        connection_ended();
        self.push(opcode::Close::new(Fd(fd)).build(), CLOSE, fd)
    }
}

/// The provided buffers.
struct Buffers {
    entries: *mut BufRingEntry,
    memory: *mut u8,
    tail: u16,
}

impl Buffers {
    fn new(ring: &IoUring) -> io::Result<Buffers> {
        let entries = map(usize::from(BUFFERS) * size_of::<BufRingEntry>())?;
        let memory = map(usize::from(BUFFERS) * READ_SIZE)?;
        let mut buffers = Buffers { entries: entries.cast(), memory: memory.cast(), tail: 0 };
        for buffer in 0..BUFFERS {
            buffers.give_back(buffer);
        }
        // SAFETY: the entries are never unmapped.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(entries as u64, BUFFERS, GROUP, 0)
        }?;
        Ok(buffers)
    }

    fn start(&self, buffer: u16) -> *const u8 {
        self.memory.wrapping_add(usize::from(buffer) * READ_SIZE)
    }

    /// Replaces the requests in a buffer with the answer to them; returns its length, or `None` if
    /// they are malformed or the answer does not fit.
    fn answer(&mut self, handler: &mut Handler, buffer: u16, length: usize) -> Option<u32> {
        let start = self.start(buffer).cast_mut();
        // SAFETY: the kernel has filled this number of bytes, and does not use the buffer until it
        // is given back.
        let memory = unsafe { std::slice::from_raw_parts_mut(start, READ_SIZE) };
        let (bytes, place) = (memory.as_ptr(), memory.as_mut_ptr());
        let answer = handler.answer(&memory[..length]).ok()?;
        let size = answer.len();
        if answer.as_ptr() != bytes {
            if size > READ_SIZE {
                return None;
            }
            // SAFETY: the answer is in the handler's own memory, and fits.
            unsafe { ptr::copy_nonoverlapping(answer.as_ptr(), place, size) };
        }
        Some(size as u32)
    }

    fn give_back(&mut self, buffer: u16) {
        let address = self.start(buffer) as u64;
        let place = usize::from(self.tail & (BUFFERS - 1));
        let entry = self.entries.wrapping_add(place);
        // SAFETY: the entry is within the mapping, and the kernel does not read it before the tail
        // has passed it.
        let entry = unsafe { &mut *entry };
        entry.set_addr(address);
        entry.set_len(READ_SIZE as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the entries are the start of the ring.
        let tail = unsafe { BufRingEntry::tail(self.entries) };
        // SAFETY: aligned and mapped; shared with the kernel, hence atomic.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

/// Maps zeroed pages, which are never unmapped.
fn map(bytes: usize) -> io::Result<*mut libc::c_void> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new anonymous mapping; the kernel chooses its address.
    let pages = unsafe { libc::mmap(ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if pages == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(pages) }
}
