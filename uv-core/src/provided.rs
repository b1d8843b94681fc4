//! Memory that is provided to the backend, for what arrives to be put into.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;

use poll_core::{Backend, Lent};

use crate::Loop;

/// The group that streams receive into.
pub(crate) const STREAMS: u16 = 0;

/// The size of a buffer of streams, and how many there are: a megabyte in all, which stays in
/// a cache, in pieces large enough for what a busy connection has to say at once.
const STREAM_BUFFER: u32 = 64 * 1024;
const STREAM_BUFFERS: u16 = 16;

/// The memory of a group. The kernel writes to it at any time, except to what is lent.
#[derive(Debug)]
struct Memory(Box<[UnsafeCell<u8>]>);

impl Memory {
    fn new(len: usize) -> Memory {
        // Zeroed by the system, which gives pages when they are first used.
        let zeros = vec![0_u8; len].into_boxed_slice();
        let zeros: *mut [u8] = Box::into_raw(zeros);
        // SAFETY: a cell of a byte is laid out as a byte, and the box was just let go of.
        Memory(unsafe { Box::from_raw(zeros as *mut [UnsafeCell<u8>]) })
    }

    fn start(&self) -> NonNull<u8> {
        NonNull::from(&self.0[..]).cast()
    }
}

/// A group of buffers that the backend has.
#[derive(Debug)]
pub(crate) struct Provided {
    memory: Rc<Memory>,
    group: u16,
    size: u32,
}

impl Provided {
    fn new(backend: &mut impl Backend, group: u16, size: u32, count: u16) -> io::Result<Provided> {
        let memory = Rc::new(Memory::new(size as usize * usize::from(count)));
        // SAFETY: the memory is read where it is lent only, and freed after the backend has
        // given it back, or is gone.
        unsafe { backend.provide(group, memory.start(), size, count) }?;
        Ok(Provided { memory, group, size })
    }

    /// What was lent, for as long as this is kept: it must not be recycled before.
    pub(crate) fn piece(&self, lent: Lent, len: usize) -> Piece {
        let start = usize::from(lent.buffer) * self.size as usize + lent.offset as usize;
        assert!(lent.group == self.group && start + len <= self.memory.0.len());
        Piece { memory: Rc::clone(&self.memory), start, len, lent }
    }

    /// Takes the memory back, or leaves it to a backend that would still use it.
    pub(crate) fn withdraw(self, backend: &mut impl Backend) {
        if backend.withdraw(self.group).is_err() {
            std::mem::forget(self.memory);
        }
    }
}

/// What arrived, in memory that is lent until [`Loop::recycle`].
#[derive(Debug)]
pub(crate) struct Piece {
    /// Kept here, as a callback that is lent this may drop the loop.
    memory: Rc<Memory>,
    start: usize,
    len: usize,
    lent: Lent,
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.memory.0[self.start..][..self.len].as_ptr().cast();
        // SAFETY: within the memory, by the line above, and nobody writes there until it is
        // recycled, which takes this value away.
        unsafe { std::slice::from_raw_parts(bytes, self.len) }
    }
}

impl<B: Backend> Loop<B> {
    /// True if there is memory for streams to receive into, now at the latest.
    pub(crate) fn provides_for_streams(&mut self) -> bool {
        if self.provided.is_none() {
            let backend = &mut self.backend;
            self.provided = Provided::new(backend, STREAMS, STREAM_BUFFER, STREAM_BUFFERS).ok();
        }
        self.provided.is_some()
    }

    /// Gives what was lent back.
    pub(crate) fn recycle(&mut self, piece: Piece) {
        let ours = self.provided.as_ref().is_some_and(|it| Rc::ptr_eq(&it.memory, &piece.memory));
        if ours {
            self.backend.recycle(piece.lent);
        }
    }
}
