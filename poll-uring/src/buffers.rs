//! Provided buffers: memory that operations pick from as data arrives.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;
use poll_core::Lent;

use crate::ring::Ring;

/// The largest ring of buffers that the kernel takes.
const MAX_COUNT: u16 = 1 << 15;

/// All groups, by number.
#[derive(Debug, Default)]
pub(crate) struct Groups(Vec<Option<Group>>);

impl Groups {
    /// Shares a new group with the kernel.
    ///
    /// # Safety
    ///
    /// `size` bytes times `count` from `memory` on are the kernel's, while it has them,
    /// until `ring` is closed.
    pub(crate) unsafe fn provide(
        &mut self,
        ring: &Ring,
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
        let mut group = Group::new(memory, size, count)?;
        group.share(ring, number)?;
        if index >= self.0.len() {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = Some(group);
        Ok(())
    }

    /// Takes a group back from the kernel.
    pub(crate) fn withdraw(&mut self, ring: &Ring, number: u16) -> io::Result<()> {
        let Some(group) = self.0.get_mut(usize::from(number)).filter(|group| group.is_some())
        else {
            let why = "no such buffer group is provided";
            return Err(io::Error::new(io::ErrorKind::NotFound, why));
        };
        ring.unregister_buffers(number)?;
        *group = None;
        Ok(())
    }

    /// Shares every group with a new ring; what is lent stays lent.
    pub(crate) fn share(&mut self, ring: &Ring) -> io::Result<()> {
        for (number, group) in self.0.iter_mut().enumerate() {
            if let Some(group) = group {
                group.share(ring, number as u16)?;
            }
        }
        Ok(())
    }

    /// Notes that the kernel has filled a buffer.
    pub(crate) fn lend(&mut self, group: u16, buffer: u16) -> Option<Lent> {
        let lent =
            self.0.get_mut(usize::from(group))?.as_mut()?.lent.get_mut(usize::from(buffer))?;
        *lent = true;
        Some(Lent { group, buffer, offset: 0 })
    }

    /// Gives a buffer back to the kernel, if it was lent.
    pub(crate) fn recycle(&mut self, lent: Lent) {
        if let Some(Some(group)) = self.0.get_mut(usize::from(lent.group))
            && let Some(is_lent) = group.lent.get_mut(usize::from(lent.buffer))
            && std::mem::take(is_lent)
        {
            group.add(lent.buffer);
            group.publish();
        }
    }
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
    /// The buffers that are the caller's at the moment.
    lent: Vec<bool>,
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
        let lent = vec![false; usize::from(count)];
        Ok(Group { entries, count, tail: 0, memory, size, lent })
    }

    /// Fills the ring with all buffers that are not lent and registers it.
    fn share(&mut self, ring: &Ring, number: u16) -> io::Result<()> {
        self.tail = 0;
        for buffer in 0..self.count {
            if !self.lent[usize::from(buffer)] {
                self.add(buffer);
            }
        }
        self.publish();
        let entries = self.entries.as_ptr() as u64;
        // SAFETY: the pages are unmapped only when this group is dropped, after its ring.
        unsafe { ring.register_buffers(entries, self.count, number) }
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
