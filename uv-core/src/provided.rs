//! Memory that is provided to the backend, for what arrives to be put into.

#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;

use poll_core::{Backend, Lent};

use crate::Loop;
use crate::sys::datagrams::lent;

/// What is received into the buffers of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Group {
    Streams,
    Datagrams,
}

/// How many groups there are.
const GROUPS: usize = 2;

impl Group {
    /// Its number for the backend.
    pub(crate) fn number(self) -> u16 {
        self as u16
    }

    /// The size of a buffer, and how many there are.
    fn extent(self) -> (u32, u16) {
        match self {
            // All of it is used in turn, so it is as large together as what stays near the
            // processor. Each takes what a stream has to say at once, if that is not much; before
            // Linux 6.12 there is one for each piece, however small.
            Group::Streams => (16 * 1024, 16),
            // Each takes any datagram, and mostly uses its first page only.
            Group::Datagrams => (lent::ROOM as u32, 64),
        }
    }
}

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
struct Provided {
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
    fn piece(&self, lent: Lent, len: usize) -> Piece {
        let start = usize::from(lent.buffer) * self.size as usize + lent.offset as usize;
        assert!(lent.group == self.group && start + len <= self.memory.0.len());
        Piece { memory: Rc::clone(&self.memory), start, len, lent }
    }

    /// Takes the memory back, or leaves it to a backend that would still use it.
    fn withdraw(self, backend: &mut impl Backend) {
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

/// The groups that the backend has been given, by number.
#[derive(Debug, Default)]
pub(crate) struct Groups([Option<Provided>; GROUPS]);

impl Groups {
    /// What was lent of a group, which was filled so far.
    pub(crate) fn piece(&self, lent: Lent, len: usize) -> Option<Piece> {
        self.0.get(usize::from(lent.group))?.as_ref().map(|provided| provided.piece(lent, len))
    }

    /// Takes all memory back.
    pub(crate) fn withdraw(&mut self, backend: &mut impl Backend) {
        self.0.iter_mut().filter_map(Option::take).for_each(|provided| provided.withdraw(backend));
    }
}

impl<B: Backend> Loop<B> {
    /// True if there is memory to receive into, now at the latest.
    pub(crate) fn provides(&mut self, group: Group) -> bool {
        let provided = &mut self.provided.0[usize::from(group.number())];
        if provided.is_none() {
            let (size, count) = group.extent();
            *provided = Provided::new(&mut self.backend, group.number(), size, count).ok();
        }
        provided.is_some()
    }

    /// Gives what was lent back.
    #[inline]
    pub(crate) fn recycle(&mut self, piece: Piece) {
        let provided = self.provided.0[usize::from(piece.lent.group)].as_ref();
        if provided.is_some_and(|it| Rc::ptr_eq(&it.memory, &piece.memory)) {
            self.backend.recycle(piece.lent);
        }
    }

    /// Lends a piece to `call`, and gives it back when that has returned, or panicked.
    #[inline]
    pub(crate) fn lend(&mut self, piece: Piece, call: impl FnOnce(&mut Loop<B>, &[u8])) {
        let mut lending = Recycling { lp: self, piece: Some(piece) };
        let Recycling { lp, piece } = &mut lending;
        call(lp, piece.as_deref().unwrap_or_default());
    }
}

struct Recycling<'a, B: Backend> {
    lp: &'a mut Loop<B>,
    piece: Option<Piece>,
}

impl<B: Backend> Drop for Recycling<'_, B> {
    fn drop(&mut self) {
        if let Some(piece) = self.piece.take() {
            self.lp.recycle(piece);
        }
    }
}
