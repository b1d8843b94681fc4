//! The memory of overlapped calls: an `OVERLAPPED` each, in slots that are used again.
//!
//! From the call until its packet has been dequeued the kernel may write to a slot, so
//! it neither moves nor is it anybody else's until then, whatever becomes of the
//! operation:
//!
//! ```text
//!            take()               spend()
//!     Free ──────────▶ Busy(token) ──────▶ Spent: the result is known, not yet dequeued
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

/// The slots of the first chunk. Each chunk has twice as many as the one before, so
/// that there are few to search for the owner of an address.
const FIRST: usize = 64;

/// What a call names by address.
#[repr(C)]
pub(crate) struct Memory {
    /// The first field: its address is the slot's, and what packets carry.
    pub(crate) overlapped: OVERLAPPED,
    /// A single buffer, or the payload of `message`.
    pub(crate) buffer: WSABUF,
    /// The header of a message that goes to a buffer of a group.
    pub(crate) message: WSAMSG,
    /// `MSG_*` flags, in and out.
    pub(crate) flags: u32,
}

/// The documentation tells.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Memory>() == 112);

/// Names a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(usize);

/// Who waits for a slot's packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Busy(Token),
    Spent,
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

/// A leaked `Box`: not a `Box`, as the kernel writes to it behind Rust's back.
#[derive(Debug)]
struct Chunk(NonNull<[MaybeUninit<Memory>]>);

// SAFETY: the memory is owned by the chunk and bound to no thread.
unsafe impl Send for Chunk {}

impl Slots {
    /// A slot for a call of the operation `token`.
    pub(crate) fn take(&mut self, token: Token) -> Slot {
        let index = match self.free.pop() {
            Some(index) => index,
            None => self.grow(),
        };
        // So that an end shows, see `status`.
        let overlapped = OVERLAPPED { Internal: STATUS_PENDING as usize, ..Default::default() };
        let memory =
            Memory { overlapped, buffer: WSABUF::default(), message: WSAMSG::default(), flags: 0 };
        // SAFETY: the slot was free, so the memory is ours alone.
        unsafe { self.memory(Slot(index)).write(memory) };
        self.states[index] = State::Busy(token);
        self.busy += 1;
        Slot(index)
    }

    /// Adds a chunk, and gives one of its slots.
    fn grow(&mut self) -> usize {
        let (first, count) = (self.states.len(), FIRST << self.chunks.len());
        let memory = Box::leak(Box::<[Memory]>::new_uninit_slice(count));
        self.chunks.push(Chunk(NonNull::from(memory)));
        self.states.resize(first + count, State::Free);
        self.free.extend((first + 1..first + count).rev());
        first
    }

    /// Where the kernel finds the slot.
    pub(crate) fn memory(&self, slot: Slot) -> NonNull<Memory> {
        let chunk = (slot.0 / FIRST + 1).ilog2() as usize;
        let first: NonNull<Memory> = self.chunks[chunk].0.cast();
        // SAFETY: chunk `n` begins with slot `FIRST * (2ⁿ - 1)`, which is how it was found.
        unsafe { first.add(slot.0 - FIRST * ((1 << chunk) - 1)) }
    }

    /// The slot at the address that a packet carries. `None` if it is not the address of
    /// a slot in use: then the packet is somebody else's.
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

    /// Who waits for the slot's packet.
    pub(crate) fn state(&self, slot: Slot) -> State {
        self.states[slot.0]
    }

    /// The slot's packet was dequeued, or none comes.
    pub(crate) fn release(&mut self, slot: Slot) {
        if let State::Busy(_) = self.states[slot.0] {
            self.busy -= 1;
        }
        self.states[slot.0] = State::Free;
        self.free.push(slot.0);
    }

    /// The result is known. The packet that comes is for nobody.
    pub(crate) fn spend(&mut self, slot: Slot) {
        self.states[slot.0] = State::Spent;
        self.busy -= 1;
    }

    /// How many calls the kernel still performs.
    pub(crate) fn busy(&self) -> usize {
        self.busy
    }

    /// How the call stands: `STATUS_PENDING`, or how it has ended; and its count.
    pub(crate) fn status(&self, slot: Slot) -> (NTSTATUS, usize) {
        status(self.memory(slot))
    }

    /// All slots there are.
    pub(crate) fn all(&self) -> impl Iterator<Item = Slot> + use<> {
        (0..self.states.len()).map(Slot)
    }

    /// True if the kernel has ended the call that the slot is busy with.
    pub(crate) fn has_ended(&self, slot: Slot) -> bool {
        matches!(self.states[slot.0], State::Busy(_)) && self.status(slot).0 != STATUS_PENDING
    }
}

/// How the call stands that was given this memory, and its count.
pub(crate) fn status(memory: NonNull<Memory>) -> (NTSTATUS, usize) {
    // SAFETY: the field lies within the memory.
    let overlapped = unsafe { &raw const (*memory.as_ptr()).overlapped };
    // SAFETY: initialized by `take`. The kernel may write at this moment, hence volatile;
    // whoever sees the end of a call finds a count that does not change any more.
    let OVERLAPPED { Internal, InternalHigh, .. } = unsafe { ptr::read_volatile(overlapped) };
    (Internal as NTSTATUS, InternalHigh)
}

impl Drop for Slots {
    fn drop(&mut self) {
        // The kernel would write to the memory of a call that has not ended. If one does
        // not end, to leak everything is all that is left.
        if self.busy == 0 {
            for Chunk(memory) in self.chunks.drain(..) {
                // SAFETY: it was a `Box`, and nobody writes to it any more.
                drop(unsafe { Box::from_raw(memory.as_ptr()) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_find_their_slots() {
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
        slots.busy = 0; // Nothing was given to the kernel.
    }

    #[test]
    fn slots_are_used_again() {
        let mut slots = Slots::default();
        let first = slots.take(Token::new(0, 0));
        let address = slots.memory(first).addr().get();
        slots.spend(first);
        assert_eq!((slots.busy(), slots.find(address)), (0, Some(first)));
        assert_eq!(slots.state(first), State::Spent);
        assert_ne!(slots.take(Token::new(1, 0)), first, "its packet has not come");
        slots.release(first);
        assert_eq!(slots.find(address), None);
        assert_eq!(slots.take(Token::new(2, 0)), first);
        assert_eq!(slots.busy(), 2);
        slots.busy = 0; // Nothing was given to the kernel.
    }
}
