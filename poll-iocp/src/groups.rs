//! Provided buffers: memory that receives take from when there is something to receive.

use std::io;
use std::ptr::NonNull;

use poll_core::Lent;

/// All groups, by number.
#[derive(Debug, Default)]
pub(crate) struct Groups(Vec<Option<Group>>);

/// Buffers of one size, one after the other.
#[derive(Debug)]
struct Group {
    memory: NonNull<u8>,
    size: u32,
    /// The buffers that nobody has.
    free: Vec<u16>,
    /// The buffers that are the caller's at the moment.
    lent: Vec<bool>,
}

// SAFETY: the memory was lent to the backend, on any thread.
unsafe impl Send for Group {}

impl Groups {
    /// Adds a group. Its memory is used while a receive has one of its buffers.
    pub(crate) fn provide(
        &mut self,
        number: u16,
        memory: NonNull<u8>,
        size: u32,
        count: u16,
    ) -> io::Result<()> {
        if size == 0 || count == 0 {
            let why = "a group has at least one buffer, and none of its buffers is empty";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let index = usize::from(number);
        if self.0.get(index).is_some_and(Option::is_some) {
            let why = "this buffer group is provided already";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        if index >= self.0.len() {
            self.0.resize_with(index + 1, || None);
        }
        let (free, lent) = ((0..count).rev().collect(), vec![false; usize::from(count)]);
        self.0[index] = Some(Group { memory, size, free, lent });
        Ok(())
    }

    /// Takes a buffer out: its number, where it is and its size. `None` if there is none.
    pub(crate) fn take(&mut self, number: u16) -> Option<(u16, NonNull<u8>, u32)> {
        let group = self.get(number)?;
        let buffer = group.free.pop()?;
        Some((buffer, group.address(buffer), group.size))
    }

    /// Where a buffer is.
    pub(crate) fn address(&mut self, number: u16, buffer: u16) -> Option<NonNull<u8>> {
        self.get(number).map(|group| group.address(buffer))
    }

    /// Puts a buffer back that was taken and not lent.
    pub(crate) fn put_back(&mut self, number: u16, buffer: u16) {
        if let Some(group) = self.get(number) {
            group.free.push(buffer);
        }
    }

    /// Lends a buffer that was taken.
    pub(crate) fn lend(&mut self, number: u16, buffer: u16) -> Option<Lent> {
        self.get(number)?.lent[usize::from(buffer)] = true;
        Some(Lent { group: number, buffer, offset: 0 })
    }

    /// The caller gives a buffer back, if it was lent.
    pub(crate) fn recycle(&mut self, lent: Lent) {
        if let Some(group) = self.get(lent.group)
            && let Some(is_lent) = group.lent.get_mut(usize::from(lent.buffer))
            && std::mem::take(is_lent)
        {
            group.free.push(lent.buffer);
        }
    }

    /// Forgets a group. False if there is none.
    pub(crate) fn withdraw(&mut self, number: u16) -> bool {
        self.0.get_mut(usize::from(number)).and_then(Option::take).is_some()
    }

    fn get(&mut self, number: u16) -> Option<&mut Group> {
        self.0.get_mut(usize::from(number))?.as_mut()
    }
}

impl Group {
    fn address(&self, buffer: u16) -> NonNull<u8> {
        // SAFETY: the caller of `provide` vouches for `count` buffers of this size.
        unsafe { self.memory.add(usize::from(buffer) * self.size as usize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_go_round_and_strangers_are_ignored() {
        let mut memory = [0u8; 64];
        let start = NonNull::from(&mut memory[..]).cast();
        let mut groups = Groups::default();
        groups.provide(3, start, 32, 2).unwrap();
        let (first, address, size) = groups.take(3).unwrap();
        assert_eq!((first, address, size), (0, start, 32));
        let lent = groups.lend(3, first).unwrap();
        let (second, ..) = groups.take(3).unwrap();
        assert_eq!(groups.take(3), None);
        assert_eq!(groups.take(4), None);
        groups.recycle(Lent { buffer: second, ..lent }); // Taken, not lent.
        groups.recycle(Lent { buffer: 9, ..lent });
        assert_eq!(groups.take(3), None);
        groups.recycle(lent);
        groups.recycle(lent);
        assert_eq!(groups.take(3).map(|(buffer, ..)| buffer), Some(first));
        assert_eq!(groups.take(3), None, "recycled once");
        groups.put_back(3, second);
        assert_eq!(groups.take(3).map(|(buffer, ..)| buffer), Some(second));
    }
}
