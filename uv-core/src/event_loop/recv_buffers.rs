//! Buffer groups that the backend receives into.

#![allow(unsafe_code)]

use std::cell::{RefCell, UnsafeCell};
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;

use poll_core::{Backend, BufferLease};

use crate::Loop;
use crate::event_loop::exchange;
use crate::sys::datagrams::recvmsg_layout;

/// A buffer group, by the kind of data that is received into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Group {
    Streams,
    Datagrams,
}

/// The number of groups.
const GROUPS: usize = 2;

impl Group {
    /// The number of the group in the backend.
    pub(crate) fn number(self) -> u16 {
        self as u16
    }

    /// The size of a buffer, and how many there are.
    fn extent(self) -> (u32, u16) {
        match self {
            // The kernel cycles through the buffers, so all of them together should fit in a near
            // cache. Before Linux 6.12 each read uses a whole buffer, even for few bytes.
            Group::Streams => (16 * 1024, 16),
            // A buffer fits any datagram; most datagrams touch its first page only.
            Group::Datagrams => (recvmsg_layout::MAX_LEN as u32, 64),
        }
    }
}

/// The memory of a group. The kernel may write to it at any time, except to leased pieces.
#[derive(Debug)]
struct Memory {
    bytes: Box<[UnsafeCell<u8>]>,
    /// Leases whose loop was exchanged for another one during the callback. The loop that owns this
    /// memory releases them later.
    late: RefCell<Vec<BufferLease>>,
}

impl Memory {
    fn new(len: usize) -> Memory {
        // Zeroed lazily: the system provides a page when it is first used.
        let zeros = vec![0_u8; len].into_boxed_slice();
        let zeros: *mut [u8] = Box::into_raw(zeros);
        // SAFETY: `UnsafeCell<u8>` has the layout of `u8`, and `zeros` comes from `into_raw` above.
        let bytes = unsafe { Box::from_raw(zeros as *mut [UnsafeCell<u8>]) };
        Memory { bytes, late: RefCell::default() }
    }

    fn start(&self) -> NonNull<u8> {
        NonNull::from(&self.bytes[..]).cast()
    }
}

/// A buffer group that is registered with the backend.
#[derive(Debug)]
struct Provided {
    memory: Rc<Memory>,
    group: u16,
    size: u32,
}

impl Provided {
    fn new(backend: &mut impl Backend, group: u16, size: u32, count: u16) -> io::Result<Provided> {
        let memory = Rc::new(Memory::new(size as usize * usize::from(count)));
        // SAFETY: a `Piece` reads leased memory only. The memory outlives the registration:
        // `unregister_buffers` frees it only if the backend has unregistered the group, and a loop
        // drops its backend before its `Groups`.
        unsafe { backend.register_buffers(group, memory.start(), size, count) }?;
        Ok(Provided { memory, group, size })
    }

    /// The leased bytes.
    #[inline]
    fn piece(&self, lease: BufferLease, len: usize) -> Piece {
        let start = usize::from(lease.buffer) * self.size as usize + lease.offset as usize;
        assert!(lease.group == self.group && start + len <= self.memory.bytes.len());
        Piece { memory: Rc::clone(&self.memory), start, len, lease }
    }

    /// Unregisters the group and frees its memory; leaks the memory if the backend still uses it.
    fn unregister_buffers(self, backend: &mut impl Backend) {
        if backend.unregister_buffers(self.group).is_err() {
            std::mem::forget(self.memory);
        }
    }
}

/// Received bytes, in memory that is leased until [`Groups::release`].
#[derive(Debug)]
pub(crate) struct Piece {
    /// Keeps the memory alive: the callback that reads the piece may drop the loop.
    memory: Rc<Memory>,
    start: usize,
    len: usize,
    lease: BufferLease,
}

impl Deref for Piece {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let bytes = self.memory.bytes[self.start..][..self.len].as_ptr().cast();
        // SAFETY: the slicing above checks the bounds. The kernel does not write to a leased piece
        // until `Groups::release`, which consumes this value.
        unsafe { std::slice::from_raw_parts(bytes, self.len) }
    }
}

/// The buffer groups that are registered with the backend, by number.
#[derive(Debug, Default)]
pub(crate) struct Groups([Option<Provided>; GROUPS]);

impl Groups {
    /// The first `len` bytes of a lease; `None` if its group is not registered.
    #[inline]
    pub(crate) fn piece(&self, lease: BufferLease, len: usize) -> Option<Piece> {
        self.0.get(usize::from(lease.group))?.as_ref().map(|provided| provided.piece(lease, len))
    }

    /// Unregisters all groups.
    pub(crate) fn unregister_buffers(&mut self, backend: &mut impl Backend) {
        self.0
            .iter_mut()
            .filter_map(Option::take)
            .for_each(|provided| provided.unregister_buffers(backend));
    }
}

impl Groups {
    /// Registers the group unless it is registered. Returns whether it is.
    pub(crate) fn ensure(&mut self, backend: &mut impl Backend, group: Group) -> bool {
        let provided = &mut self.0[usize::from(group.number())];
        if provided.is_none() {
            let (size, count) = group.extent();
            *provided = Provided::new(backend, group.number(), size, count).ok();
        }
        provided.is_some()
    }

    /// Returns a leased piece to the backend.
    #[inline]
    pub(crate) fn release(&mut self, backend: &mut impl Backend, piece: Piece) {
        let provided = self.0[usize::from(piece.lease.group)].as_ref();
        if provided.is_some_and(|it| Rc::ptr_eq(&it.memory, &piece.memory)) {
            backend.release_buffer(piece.lease);
        } else {
            // The piece belongs to another loop, which releases it later, or its group is
            // unregistered.
            piece.memory.late.borrow_mut().push(piece.lease);
            exchange::note();
        }
    }

    /// Releases the pieces that other loops could not release.
    pub(crate) fn release_late(&mut self, backend: &mut impl Backend) {
        for provided in self.0.iter().flatten() {
            let late = provided.memory.late.take();
            late.into_iter().for_each(|lease| backend.release_buffer(lease));
        }
    }
}

impl<B: Backend> Loop<B> {
    /// Lends a piece to `call`, and releases it when `call` has returned or panicked.
    #[inline]
    pub(crate) fn lend(&mut self, piece: Piece, call: impl FnOnce(&mut Loop<B>, &[u8])) {
        let release = |lp: &mut Loop<B>, piece: Piece| lp.provided.release(&mut lp.backend, piece);
        self.finally(piece, release, |lp, piece| call(lp, piece));
    }
}
