//! Buffer groups: memory that receives use only while data is pending.

use std::io;
use std::ptr::NonNull;

use poll_core::BufferLease;

/// All buffer groups, by number.
#[derive(Debug, Default)]
pub(crate) struct BufferGroups(Vec<Option<BufferGroup>>);

/// Contiguous buffers of one size.
#[derive(Debug)]
struct BufferGroup {
    memory: NonNull<u8>,
    size: u32,
    /// The buffers that are neither taken nor lent.
    free: Vec<u16>,
    /// True for each buffer that is lent to the caller.
    lease: Vec<bool>,
}

// SAFETY: the caller of `register_buffers` keeps the memory valid for the backend on any thread.
unsafe impl Send for BufferGroup {}

impl BufferGroups {
    /// Adds a group. A buffer is written to only while a receive has taken it.
    pub(crate) fn register_buffers(
        &mut self,
        number: u16,
        memory: NonNull<u8>,
        size: u32,
        count: u16,
    ) -> io::Result<()> {
        if size == 0 || count == 0 {
            let why = "buffer size and buffer count must be non-zero";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let index = usize::from(number);
        if self.0.get(index).is_some_and(Option::is_some) {
            let why = "this buffer group is registered already: unregister it first";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        if index >= self.0.len() {
            self.0.resize_with(index + 1, || None);
        }
        let (free, lease) = ((0..count).rev().collect(), vec![false; usize::from(count)]);
        self.0[index] = Some(BufferGroup { memory, size, free, lease });
        Ok(())
    }

    /// Takes a free buffer: its number, address and size. `None` if none is free.
    pub(crate) fn take(&mut self, number: u16) -> Option<(u16, NonNull<u8>, u32)> {
        let group = self.get(number)?;
        let buffer = group.free.pop()?;
        Some((buffer, group.address(buffer), group.size))
    }

    /// Returns the address of a buffer.
    pub(crate) fn address(&mut self, number: u16, buffer: u16) -> Option<NonNull<u8>> {
        self.get(number).map(|group| group.address(buffer))
    }

    /// Frees a buffer that was taken and not lent.
    pub(crate) fn put_back(&mut self, number: u16, buffer: u16) {
        if let Some(group) = self.get(number) {
            group.free.push(buffer);
        }
    }

    /// Lends a taken buffer to the caller.
    pub(crate) fn lend(&mut self, number: u16, buffer: u16) -> Option<BufferLease> {
        self.get(number)?.lease[usize::from(buffer)] = true;
        Some(BufferLease { group: number, buffer, offset: 0 })
    }

    /// Frees a lent buffer. A buffer that is not lent is ignored.
    pub(crate) fn release_buffer(&mut self, lease: BufferLease) {
        if let Some(group) = self.get(lease.group)
            && let Some(is_lent) = group.lease.get_mut(usize::from(lease.buffer))
            && std::mem::take(is_lent)
        {
            group.free.push(lease.buffer);
        }
    }

    /// Removes a group. False if it does not exist.
    pub(crate) fn unregister_buffers(&mut self, number: u16) -> bool {
        self.0.get_mut(usize::from(number)).and_then(Option::take).is_some()
    }

    fn get(&mut self, number: u16) -> Option<&mut BufferGroup> {
        self.0.get_mut(usize::from(number))?.as_mut()
    }
}

impl BufferGroup {
    fn address(&self, buffer: u16) -> NonNull<u8> {
        // SAFETY: the caller of `register_buffers` keeps `count` buffers of this size valid, and
        // `buffer` is one of them: it comes from `free`, which has the numbers below `count`.
        unsafe { self.memory.add(usize::from(buffer) * self.size as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lent_buffers_are_recycled_and_only_once() {
        let mut memory = [0u8; 64];
        let start = NonNull::from(&mut memory[..]).cast();
        let mut groups = BufferGroups::default();
        groups.register_buffers(3, start, 32, 2).unwrap();
        let (first, address, size) = groups.take(3).unwrap();
        assert_eq!((first, address, size), (0, start, 32));
        let lease = groups.lend(3, first).unwrap();
        let (second, ..) = groups.take(3).unwrap();
        assert_eq!(groups.take(3), None);
        assert_eq!(groups.take(4), None);
        groups.release_buffer(BufferLease { buffer: second, ..lease }); // Taken, not lease.
        groups.release_buffer(BufferLease { buffer: 9, ..lease });
        assert_eq!(groups.take(3), None);
        groups.release_buffer(lease);
        groups.release_buffer(lease);
        assert_eq!(groups.take(3).map(|(buffer, ..)| buffer), Some(first));
        assert_eq!(groups.take(3), None, "a buffer is recycled once");
        groups.put_back(3, second);
        assert_eq!(groups.take(3).map(|(buffer, ..)| buffer), Some(second));
    }
}
