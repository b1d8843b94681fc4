//! Provided buffers: memory that operations pick from as data arrives.
//!
//! Where the kernel can (6.12), a group that streams receive into is consumed incrementally: what
//! arrives takes as much of a buffer as it needs, and the next takes from where it ended. So
//! buffers can be large, for those who have much to say, and many who say little share one.
//! Messages take a buffer each, as the rest of another might be too short for them.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use poll_core::Lent;

use crate::ring::{Completion, Ring};

/// The largest ring of buffers that the kernel takes.
const MAX_COUNT: u16 = 1 << 15;
/// `IOU_PBUF_RING_INC`.
const INCREMENTAL: u16 = 2;

/// What takes buffers of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// Streams, which take any number of bytes.
    Streams,
    /// Messages, each of which wants a whole buffer.
    Messages,
}

/// All groups, by number.
#[derive(Debug, Default)]
pub(crate) struct Groups(Vec<Option<Group>>);

impl Groups {
    /// Notes a new group. The kernel has it when an operation first takes buffers of it.
    ///
    /// # Safety
    ///
    /// `size` bytes times `count` from `memory` on are the kernel's, while it has them,
    /// until they are withdrawn or the ring is closed.
    pub(crate) unsafe fn provide(
        &mut self,
        number: u16,
        memory: NonNull<u8>,
        size: u32,
        count: u16,
    ) -> io::Result<()> {
        if !count.is_power_of_two() || count > MAX_COUNT || size == 0 {
            let why = "a group has a power of two of buffers, 32,768 at the most, none empty";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let index = usize::from(number);
        if self.0.get(index).is_some_and(Option::is_some) {
            let why = "this buffer group is provided already";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        let group = Group::new(memory, size, count)?;
        if index >= self.0.len() {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(group);
        Ok(())
    }

    /// Makes sure that the kernel has the group, in the way that suits who takes from it.
    ///
    /// A group that is not there is the kernel's to complain about.
    pub(crate) fn prepare(&mut self, ring: &Ring, number: u16, taker: Taker) -> io::Result<()> {
        let Some(group) = self.group(number) else { return Ok(()) };
        match group.taker {
            None => group.share(ring, number, taker),
            Some(before) if before == taker => Ok(()),
            Some(_) => {
                let why = "a buffer group serves streams or messages: provide another";
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
        }
    }

    /// Takes a group back from the kernel.
    pub(crate) fn withdraw(&mut self, ring: &Ring, number: u16) -> io::Result<()> {
        let Some(group) = self.group(number) else {
            let why = "no such buffer group is provided";
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        };
        if group.taker.is_some() {
            ring.unregister_buffers(number)?;
        }
        self.0[usize::from(number)] = None;
        Ok(())
    }

    /// Shares every group with a new ring; what is lent stays lent.
    pub(crate) fn share(&mut self, ring: &Ring) -> io::Result<()> {
        for (number, group) in self.0.iter_mut().enumerate() {
            if let Some(group) = group
                && let Some(taker) = group.taker
            {
                group.share(ring, number as u16, taker)?;
            }
        }
        Ok(())
    }

    /// Notes what the kernel has filled.
    pub(crate) fn lend(&mut self, group: u16, done: &Completion) -> Option<Lent> {
        let buffer = done.buffer()?;
        let filled = usize::try_from(done.result).unwrap_or(0);
        self.group(group)?.lend(group, buffer, filled, done.buffer_goes_on())
    }

    /// Gives a piece back; with the last of a buffer, the buffer.
    pub(crate) fn recycle(&mut self, lent: Lent) {
        if let Some(group) = self.group(lent.group) {
            group.recycle(lent);
        }
    }

    fn group(&mut self, number: u16) -> Option<&mut Group> {
        self.0.get_mut(usize::from(number))?.as_mut()
    }
}

/// Where a buffer stands.
#[derive(Clone, Copy, Debug, Default)]
struct Buffer {
    /// The kernel puts more into it, from here on.
    next: Option<u32>,
    /// Pieces that are the caller's at the moment.
    lent: u32,
}

/// A ring of buffers that the kernel takes from and this backend adds to.
#[derive(Debug)]
struct Group {
    /// `count` entries on pages of their own, which the kernel pins.
    entries: NonNull<BufRingEntry>,
    count: u16,
    /// How many buffers were ever added, modulo 2¹⁶.
    tail: u16,
    memory: NonNull<u8>,
    size: u32,
    /// Who takes from it; `None` until then.
    taker: Option<Taker>,
    buffers: Vec<Buffer>,
}

// SAFETY: the pointers are to memory that is the group's or lent to it, on any thread.
unsafe impl Send for Group {}

impl Group {
    fn new(memory: NonNull<u8>, size: u32, count: u16) -> io::Result<Group> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, of zeros and at an address of the kernel's choice.
        let entries = unsafe {
            libc::mmap(ptr::null_mut(), bytes_of_entries(count), protection, flags, -1, 0)
        };
        if entries == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let entries = NonNull::new(entries.cast()).expect("the kernel maps nothing at 0 unasked");
        let buffers = vec![Buffer::default(); usize::from(count)];
        Ok(Group { entries, count, tail: 0, memory, size, taker: None, buffers })
    }

    /// Fills the ring with all buffers that are not lent and registers it.
    fn share(&mut self, ring: &Ring, number: u16, taker: Taker) -> io::Result<()> {
        self.tail = 0;
        for buffer in 0..self.count {
            self.buffers[usize::from(buffer)].next = None;
            if self.buffers[usize::from(buffer)].lent == 0 {
                self.add(buffer);
            }
        }
        self.publish();
        let entries = self.entries.as_ptr() as u64;
        let flags = if taker == Taker::Streams { INCREMENTAL } else { 0 };
        // SAFETY: the pages are unmapped only when this group is dropped, after its ring.
        let shared = match unsafe { ring.register_buffers(entries, self.count, number, flags) } {
            // Before 6.12.
            Err(error) if flags != 0 && error.raw_os_error() == Some(libc::EINVAL) => {
                // SAFETY: as above.
                unsafe { ring.register_buffers(entries, self.count, number, 0) }
            }
            other => other,
        };
        self.taker = shared.is_ok().then_some(taker);
        shared
    }

    fn lend(&mut self, group: u16, number: u16, filled: usize, goes_on: bool) -> Option<Lent> {
        let buffer = self.buffers.get_mut(usize::from(number))?;
        let offset = buffer.next?;
        buffer.next = goes_on.then_some(offset.saturating_add(filled as u32));
        buffer.lent += 1;
        Some(Lent { group, buffer: number, offset })
    }

    fn recycle(&mut self, lent: Lent) {
        let Some(buffer) = self.buffers.get_mut(usize::from(lent.buffer)) else { return };
        // Not lent?
        if buffer.lent == 0 || buffer.next.is_some_and(|next| lent.offset >= next) {
            return;
        }
        buffer.lent -= 1;
        if buffer.lent == 0 && buffer.next.is_none() {
            self.add(lent.buffer);
            self.publish();
        }
    }

    /// Adds a buffer behind the tail.
    fn add(&mut self, buffer: u16) {
        let slot = usize::from(self.tail & (self.count - 1));
        // SAFETY: `slot < count`, and that many entries are mapped.
        let mut entry = unsafe { self.entries.add(slot) };
        // SAFETY: nobody else looks at the entry before the tail has moved past it.
        let entry = unsafe { entry.as_mut() };
        entry.set_addr(self.memory.as_ptr() as u64 + u64::from(buffer) * u64::from(self.size));
        entry.set_len(self.size);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
        self.buffers[usize::from(buffer)].next = Some(0);
    }

    /// Lets the kernel see what was added.
    fn publish(&mut self) {
        // SAFETY: `entries` is the start of the ring, whose first entry has the tail.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: aligned and mapped; shared with the kernel, hence atomic.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length. The ring is closed: nothing that is
        // in flight takes buffers, and the kernel has pinned the pages that it may read.
        unsafe { libc::munmap(self.entries.as_ptr().cast(), bytes_of_entries(self.count)) };
    }
}

fn bytes_of_entries(count: u16) -> usize {
    usize::from(count) * size_of::<BufRingEntry>()
}
