//! Provided buffers: groups of buffers from which the kernel picks one when data arrives.
//!
//! Where the kernel can (6.12), streams consume a group incrementally: each receive takes as many
//! bytes of a buffer as it needs, and the next receive continues behind them. So buffers can be
//! large, for connections with high throughput, and many small receives share one. Messages take a
//! whole buffer each, as the rest of a buffer might be too short for them.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use poll_core::BufferLease;

use crate::ring::{Completion, Ring};

/// The most buffers in a group that the kernel accepts.
const MAX_COUNT: u16 = 1 << 15;
/// `IOU_PBUF_RING_INC`: buffers are consumed incrementally.
const INCREMENTAL: u16 = 2;

/// The kind of operation that consumes the buffers of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consumer {
    /// Receives of streams, which can use a part of a buffer.
    Streams,
    /// Receives of messages, each of which needs a whole buffer.
    Messages,
}

/// The groups, by number.
#[derive(Debug, Default)]
pub(crate) struct Groups(Vec<Option<Group>>);

impl Groups {
    /// Adds a group. It is registered with the kernel when an operation first uses it.
    ///
    /// # Safety
    ///
    /// `size` times `count` bytes from `memory` on must stay valid, and the caller accesses only
    /// buffers that are lent to it, until the group is unregistered or the ring is closed.
    pub(crate) unsafe fn register_buffers(
        &mut self,
        number: u16,
        memory: NonNull<u8>,
        size: u32,
        count: u16,
    ) -> io::Result<()> {
        if !count.is_power_of_two() || count > MAX_COUNT || size == 0 {
            let why =
                "the number of buffers must be a power of two up to 32,768, their size non-zero";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let index = usize::from(number);
        if self.0.get(index).is_some_and(Option::is_some) {
            let why = "this buffer group is registered already: unregister it first";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        let group = Group::new(memory, size, count)?;
        if index >= self.0.len() {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(group);
        Ok(())
    }

    /// Registers a group with the kernel, if that is not done yet.
    ///
    /// A group that does not exist is not an error here: the operation fails with `ENOBUFS`.
    pub(crate) fn prepare(
        &mut self,
        ring: &Ring,
        number: u16,
        consumer: Consumer,
    ) -> io::Result<()> {
        let Some(group) = self.group(number) else { return Ok(()) };
        match group.consumer {
            None => group.register(ring, number, consumer),
            Some(before) if before == consumer => Ok(()),
            Some(_) => {
                let why =
                    "this buffer group serves streams or messages, not both: register another";
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
        }
    }

    /// Removes a group, also from the kernel.
    pub(crate) fn unregister_buffers(&mut self, ring: &Ring, number: u16) -> io::Result<()> {
        let Some(group) = self.group(number) else {
            let why = "no such buffer group is registered";
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        };
        if group.consumer.is_some() {
            ring.unregister_buffers(number)?;
        }
        self.0[usize::from(number)] = None;
        Ok(())
    }

    /// Registers every group with a new ring. Buffers that are lent stay lent.
    pub(crate) fn register_all(&mut self, ring: &Ring) -> io::Result<()> {
        for (number, group) in self.0.iter_mut().enumerate() {
            if let Some(group) = group
                && let Some(consumer) = group.consumer
            {
                group.register(ring, number as u16, consumer)?;
            }
        }
        Ok(())
    }

    /// The piece of a buffer that the kernel has filled, which is now lent to the caller.
    pub(crate) fn lend(&mut self, group: u16, done: &Completion) -> Option<BufferLease> {
        let buffer = done.buffer()?;
        let filled = usize::try_from(done.result).unwrap_or(0);
        self.group(group)?.lend(group, buffer, filled, done.buffer_more())
    }

    /// Gives a piece back. The last piece of a buffer gives the buffer back to the kernel.
    pub(crate) fn release_buffer(&mut self, lease: BufferLease) {
        if let Some(group) = self.group(lease.group) {
            group.release_buffer(lease);
        }
    }

    fn group(&mut self, number: u16) -> Option<&mut Group> {
        self.0.get_mut(usize::from(number))?.as_mut()
    }
}

/// The state of a buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    /// The offset of the next byte that the kernel fills. `None` if the kernel has used it up.
    next: Option<u32>,
    /// The number of pieces that are lent to the caller.
    lease: u32,
}

/// A ring of buffers: the backend adds buffers, and the kernel consumes them.
#[derive(Debug)]
struct Group {
    /// `count` entries, in a mapping of their own, as the kernel pins whole pages.
    entries: NonNull<BufRingEntry>,
    count: u16,
    /// The number of buffers ever added, modulo 2¹⁶.
    tail: u16,
    memory: NonNull<u8>,
    size: u32,
    /// The way in which it is consumed. `None` until it is registered.
    consumer: Option<Consumer>,
    buffers: Vec<Buffer>,
}

// SAFETY: the group owns the mapping of `entries`, and only computes addresses from `memory`; both
// are valid on every thread.
unsafe impl Send for Group {}

impl Group {
    fn new(memory: NonNull<u8>, size: u32, count: u16) -> io::Result<Group> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping at an address that the kernel chooses overlaps no other.
        let entries =
            unsafe { libc::mmap(ptr::null_mut(), entries_len(count), protection, flags, -1, 0) };
        if entries == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let entries = NonNull::new(entries.cast()).expect("only MAP_FIXED maps address 0");
        let buffers = vec![Buffer::default(); usize::from(count)];
        Ok(Group { entries, count, tail: 0, memory, size, consumer: None, buffers })
    }

    /// Fills the ring with all buffers that are not lent, and registers it.
    fn register(&mut self, ring: &Ring, number: u16, consumer: Consumer) -> io::Result<()> {
        self.tail = 0;
        for buffer in 0..self.count {
            self.buffers[usize::from(buffer)].next = None;
            if self.buffers[usize::from(buffer)].lease == 0 {
                self.add(buffer);
            }
        }
        self.publish();
        let entries = self.entries.as_ptr() as u64;
        let flags = if consumer == Consumer::Streams { INCREMENTAL } else { 0 };
        // SAFETY: `Group::drop` unmaps the pages, and `Uring` drops its ring before its groups.
        let registered = match unsafe { ring.register_buffers(entries, self.count, number, flags) }
        {
            // Before 6.12 there is no incremental consumption.
            Err(error) if flags != 0 && error.raw_os_error() == Some(libc::EINVAL) => {
                // SAFETY: `Group::drop` unmaps the pages, and `Uring` drops its ring before that.
                unsafe { ring.register_buffers(entries, self.count, number, 0) }
            }
            other => other,
        };
        self.consumer = registered.is_ok().then_some(consumer);
        registered
    }

    fn lend(
        &mut self,
        group: u16,
        number: u16,
        filled: usize,
        has_more: bool,
    ) -> Option<BufferLease> {
        let buffer = self.buffers.get_mut(usize::from(number))?;
        let offset = buffer.next?;
        buffer.next = has_more.then_some(offset.saturating_add(filled as u32));
        buffer.lease += 1;
        Some(BufferLease { group, buffer: number, offset })
    }

    fn release_buffer(&mut self, lease: BufferLease) {
        let Some(buffer) = self.buffers.get_mut(usize::from(lease.buffer)) else { return };
        // The piece is not lent: `Backend::release_buffer` ignores it.
        if buffer.lease == 0 || buffer.next.is_some_and(|next| lease.offset >= next) {
            return;
        }
        buffer.lease -= 1;
        if buffer.lease == 0 && buffer.next.is_none() {
            self.add(lease.buffer);
            self.publish();
        }
    }

    /// Adds a buffer at the tail. The kernel sees it after [`publish`](Group::publish).
    fn add(&mut self, buffer: u16) {
        let slot = usize::from(self.tail & (self.count - 1));
        // SAFETY: `slot < count`, and that many entries are mapped.
        let mut entry = unsafe { self.entries.add(slot) };
        // SAFETY: the kernel reads the entry only after `publish`, and `self` is borrowed mutably.
        let entry = unsafe { entry.as_mut() };
        entry.set_addr(self.memory.as_ptr() as u64 + u64::from(buffer) * u64::from(self.size));
        entry.set_len(self.size);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        self.buffers[usize::from(buffer)].next = Some(0);
    }

    /// Publishes the tail to the kernel.
    fn publish(&mut self) {
        // SAFETY: `entries` is the start of the ring, and the first entry contains the tail.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: the tail is aligned and mapped while the group lives. The kernel only reads it.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: `Group::new` has mapped it with this length. `Uring` closes its ring first, so no
        // operation consumes buffers, and the kernel has pinned the pages that it may still read.
        unsafe { libc::munmap(self.entries.as_ptr().cast(), entries_len(self.count)) };
    }
}

fn entries_len(count: u16) -> usize {
    usize::from(count) * size_of::<BufRingEntry>()
}
