//! An arena of `OVERLAPPED` structures, one slot for each overlapped call in flight.
//!
//! The kernel may write to a slot from the call until its packet is queued. So a slot does not
//! move, and is not reused before its packet is dequeued, even if its operation has ended:
//!
//! ```text
//!            take()               detach()
//!     Free ──────────▶ Busy(token) ──────▶ Detached: completed, packet not yet dequeued
//!      ▲                    │                │
//!      │     release()      │                │
//!      └────────────────────┴────────────────┘
//! ```

use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use poll_core::Token;
use windows_sys::Win32::Foundation::{NTSTATUS, STATUS_PENDING};
use windows_sys::Win32::Networking::WinSock::{WSABUF, WSAMSG};
use windows_sys::Win32::System::IO::OVERLAPPED;

/// The number of slots in the first chunk. Each chunk has twice as many as the one before, so
/// that `find` searches few chunks.
const FIRST: usize = 64;

/// The memory that a call refers to by address.
#[repr(C)]
pub(crate) struct Memory {
    /// The first field: packets carry its address, which is also the slot's.
    pub(crate) overlapped: OVERLAPPED,
    /// A single buffer, or the payload of `message`.
    pub(crate) buffer: WSABUF,
    /// The header of a message that is received into a buffer of a group.
    pub(crate) message: WSAMSG,
    /// `MSG_*` flags, in and out.
    pub(crate) flags: u32,
}

/// The crate's documentation states this size.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Memory>() == 112);

/// The index of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Busy(Token),
    Detached,
}

/// All slots.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    /// Chunk `n` has `FIRST << n` slots.
    chunks: Vec<Chunk>,
    states: Vec<State>,
    free: Vec<usize>,
    busy: usize,
}

/// A leaked `Box`. A `Box` would claim exclusive access, but the kernel writes to it.
#[derive(Debug)]
struct Chunk(NonNull<[MaybeUninit<Memory>]>);

// SAFETY: the chunk owns the memory, which is not bound to a thread.
unsafe impl Send for Chunk {}

impl Slots {
    /// Takes a free slot for a call of the operation `token`.
    pub(crate) fn take(&mut self, token: Token) -> Slot {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow(),
        };
        // `status` compares with this value.
        let overlapped = OVERLAPPED { Internal: STATUS_PENDING as usize, ..Default::default() };
        let memory =
            Memory { overlapped, buffer: WSABUF::default(), message: WSAMSG::default(), flags: 0 };
        // SAFETY: the slot is free, so the kernel does not use its memory.
        unsafe { self.memory(Slot(index)).write(memory) };
        self.states[index] = State::Busy(token);
        self.busy += 1;
        Slot(index)
    }

    /// Adds a chunk, and returns one of its slots.
    fn grow(&mut self) -> usize {
        let (first, count) = (self.states.len(), FIRST << self.chunks.len());
        let memory = Box::leak(Box::<[Memory]>::new_uninit_slice(count));
        self.chunks.push(Chunk(NonNull::from(memory)));
        self.states.resize(first + count, State::Free);
        self.free.extend((first + 1..first + count).rev());
        first
    }

    /// Returns the address of the slot.
    pub(crate) fn memory(&self, slot: Slot) -> NonNull<Memory> {
        let chunk = (slot.0 / FIRST + 1).ilog2() as usize;
        let first: NonNull<Memory> = self.chunks[chunk].0.cast();
        // SAFETY: chunk `n` has the `FIRST << n` slots from `FIRST * (2ⁿ - 1)` on, so the
        // difference is in bounds.
        unsafe { first.add(slot.0 - FIRST * ((1 << chunk) - 1)) }
    }

    /// Returns the slot at the address that a packet carries. `None` if no slot in use has this
    /// address: then the packet was queued by other code.
    pub(crate) fn find(&self, address: usize) -> Option<Slot> {
        for (number, chunk) in self.chunks.iter().enumerate().rev() {
            let start = chunk.0.cast::<Memory>().addr().get();
            let Some(offset) = address.checked_sub(start) else { continue };
            if offset < size_of::<Memory>() * chunk.0.len() {
                let slot = FIRST * ((1 << number) - 1) + offset / size_of::<Memory>();
                let exact = offset % size_of::<Memory>() == 0;
                return (exact && self.states[slot] != State::Free).then_some(Slot(slot));
            }
        }
        None
    }

    /// Returns the state of a slot.
    pub(crate) fn state(&self, slot: Slot) -> State {
        self.states[slot.0]
    }

    /// Frees a slot whose packet was dequeued or will not be queued.
    pub(crate) fn release(&mut self, slot: Slot) {
        if let State::Busy(_) = self.states[slot.0] {
            self.busy -= 1;
        }
        self.states[slot.0] = State::Free;
        self.free.push(slot.0);
    }

    /// Detaches a slot whose call has completed: its packet will be ignored.
    pub(crate) fn detach(&mut self, slot: Slot) {
        self.states[slot.0] = State::Detached;
        self.busy -= 1;
    }

    /// Returns the number of busy slots: calls in flight.
    pub(crate) fn busy(&self) -> usize {
        self.busy
    }

    /// Returns the status of the call, `STATUS_PENDING` while it is in flight, and its count.
    pub(crate) fn status(&self, slot: Slot) -> (NTSTATUS, usize) {
        status(self.memory(slot))
    }

    /// Returns all slots, free ones included.
    pub(crate) fn all(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..self.states.len()).map(Slot)
    }

    /// True if the slot is busy with a call that has ended.
    pub(crate) fn has_ended(&self, slot: Slot) -> bool {
        matches!(self.states[slot.0], State::Busy(_)) && self.status(slot).0 != STATUS_PENDING
    }
}

/// Returns the status and the count of the call that uses this memory.
pub(crate) fn status(memory: NonNull<Memory>) -> (NTSTATUS, usize) {
    // SAFETY: `memory` is that of a slot, so the field is in bounds.
    let overlapped = unsafe { &raw const (*memory.as_ptr()).overlapped };
    // SAFETY: `take` has initialized the field. The kernel may write to it concurrently, so the
    // read is volatile; the kernel writes the count before the final status.
    let OVERLAPPED { Internal, InternalHigh, .. } = unsafe { ptr::read_volatile(overlapped) };
    (Internal as NTSTATUS, InternalHigh)
}

impl Drop for Slots {
    fn drop(&mut self) {
        // The kernel may write to the memory of a call that has not ended: all is leaked then.
        if self.busy == 0 {
            for Chunk(memory) in self.chunks.drain(..) {
                // SAFETY: `grow` has leaked the `Box`; no call is in flight, so the kernel does
                // not use the memory any more.
                drop(unsafe { Box::from_raw(memory.as_ptr()) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_maps_each_address_to_its_slot() {
        let mut slots = Slots::default();
        let taken: Vec<Slot> = (0..1000).map(|index| slots.take(Token::new(index, 0))).collect();
        assert_eq!(slots.busy(), 1000);
        for (index, slot) in taken.iter().enumerate() {
            let address = slots.memory(*slot).addr().get();
            assert_eq!(slots.find(address), Some(*slot));
            assert_eq!(slots.state(*slot), State::Busy(Token::new(index as u32, 0)));
            assert_eq!(slots.find(address + 8), None, "within a slot");
        }
        assert_eq!(slots.find(8), None);
        assert_eq!(slots.status(taken[7]), (STATUS_PENDING, 0));
        slots.busy = 0; // No call was made, so the memory can be freed.
    }

    #[test]
    fn a_detached_slot_is_reused_after_its_release() {
        let mut slots = Slots::default();
        let first = slots.take(Token::new(0, 0));
        let address = slots.memory(first).addr().get();
        slots.detach(first);
        assert_eq!((slots.busy(), slots.find(address)), (0, Some(first)));
        assert_eq!(slots.state(first), State::Detached);
        assert_ne!(slots.take(Token::new(1, 0)), first, "its packet was not dequeued");
        slots.release(first);
        assert_eq!(slots.find(address), None);
        assert_eq!(slots.take(Token::new(2, 0)), first);
        assert_eq!(slots.busy(), 2);
        slots.busy = 0; // No call was made, so the memory can be freed.
    }
}
