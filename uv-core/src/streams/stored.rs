//! A buffer and the callback that gets it back, stored together in place.
//!
//! Three words of buffer and three of capture live inside the request, so that a write of a
//! `Vec` allocates nothing of its own; what is larger is boxed, and then the box lives there.

#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};

use poll_core::{Backend, Token};

use crate::Loop;
use crate::buffers::{IoBuf, IoBufMut};

/// Where a buffer and a callback live: six words.
type Room = MaybeUninit<[usize; 6]>;

/// What can be done with the buffer and the callback in a room, whose types are forgotten.
struct Deeds<B: Backend> {
    pieces: unsafe fn(*const Room) -> usize,
    piece: unsafe fn(*const Room, usize) -> *const [u8],
    memory: unsafe fn(*mut Room) -> *mut [u8],
    tell: unsafe fn(*mut Room, &mut Loop<B>, Token, io::Result<usize>),
    drop: unsafe fn(*mut Room),
}

/// What a request has in its room.
trait Content<B: Backend>: 'static {
    fn pieces(&self) -> usize {
        0
    }
    fn piece(&self, _index: usize) -> &[u8] {
        &[]
    }
    fn memory(&mut self) -> &mut [u8] {
        &mut []
    }
    /// Calls back: for which stream, and how it went.
    fn tell(self, lp: &mut Loop<B>, stream: Token, result: io::Result<usize>);
}

struct Writing<T, F>(T, F);

impl<B, T, F> Content<B> for Writing<T, F>
where
    B: Backend,
    T: IoBuf,
    F: FnOnce(&mut Loop<B>, Token, io::Result<()>, T) + 'static,
{
    fn pieces(&self) -> usize {
        self.0.pieces()
    }

    fn piece(&self, index: usize) -> &[u8] {
        self.0.piece(index)
    }

    fn tell(self, lp: &mut Loop<B>, stream: Token, result: io::Result<usize>) {
        self.1(lp, stream, result.map(drop), self.0);
    }
}

struct Reading<T, F>(T, F);

impl<B, T, F> Content<B> for Reading<T, F>
where
    B: Backend,
    T: IoBufMut,
    F: FnOnce(&mut Loop<B>, Token, io::Result<usize>, T) + 'static,
{
    fn memory(&mut self) -> &mut [u8] {
        self.0.memory()
    }

    fn tell(self, lp: &mut Loop<B>, stream: Token, result: io::Result<usize>) {
        self.1(lp, stream, result, self.0);
    }
}

impl<B: Backend, C: Content<B>> Content<B> for Box<C> {
    fn pieces(&self) -> usize {
        (**self).pieces()
    }

    fn piece(&self, index: usize) -> &[u8] {
        (**self).piece(index)
    }

    fn memory(&mut self) -> &mut [u8] {
        (**self).memory()
    }

    fn tell(self, lp: &mut Loop<B>, stream: Token, result: io::Result<usize>) {
        (*self).tell(lp, stream, result);
    }
}

/// # Safety
///
/// The room holds a `C`. So for all of these.
unsafe fn pieces_in_room<B: Backend, C: Content<B>>(room: *const Room) -> usize {
    // SAFETY: the caller's promise.
    unsafe { &*room.cast::<C>() }.pieces()
}

/// # Safety
///
/// Besides, nobody changes it meanwhile.
unsafe fn piece_in_room<B: Backend, C: Content<B>>(room: *const Room, index: usize) -> *const [u8] {
    // SAFETY: the caller's promise.
    unsafe { &*room.cast::<C>() }.piece(index)
}

/// # Safety
///
/// Besides, nobody else uses it meanwhile.
unsafe fn memory_in_room<B: Backend, C: Content<B>>(room: *mut Room) -> *mut [u8] {
    // SAFETY: the caller's promise.
    unsafe { &mut *room.cast::<C>() }.memory()
}

/// # Safety
///
/// Besides, nobody uses or drops it afterwards.
unsafe fn tell_out_of_room<B: Backend, C: Content<B>>(
    room: *mut Room,
    lp: &mut Loop<B>,
    stream: Token,
    result: io::Result<usize>,
) {
    // SAFETY: the caller's promise.
    let content = unsafe { room.cast::<C>().read() };
    content.tell(lp, stream, result);
}

/// # Safety
///
/// Besides, nobody uses it afterwards.
unsafe fn drop_in_room<C>(room: *mut Room) {
    // SAFETY: the caller's promise.
    unsafe { room.cast::<C>().drop_in_place() }
}

/// A buffer and its callback.
pub(crate) struct Stored<B: Backend> {
    room: Room,
    deeds: &'static Deeds<B>,
    /// What is in there need not be `Send`, so neither is this.
    not_send: PhantomData<*mut ()>,
}

impl<B: Backend> Stored<B> {
    /// A buffer to write.
    pub(crate) fn writing<T, F>(buf: T, callback: F) -> Self
    where
        T: IoBuf,
        F: FnOnce(&mut Loop<B>, Token, io::Result<()>, T) + 'static,
    {
        Self::new(Writing(buf, callback))
    }

    /// A buffer to fill.
    pub(crate) fn reading<T, F>(buf: T, callback: F) -> Self
    where
        T: IoBufMut,
        F: FnOnce(&mut Loop<B>, Token, io::Result<usize>, T) + 'static,
    {
        Self::new(Reading(buf, callback))
    }

    fn new<C: Content<B>>(content: C) -> Self {
        let fits = size_of::<C>() <= size_of::<Room>() && align_of::<C>() <= align_of::<Room>();
        if fits { Self::in_place(content) } else { Self::in_place(Box::new(content)) }
    }

    fn in_place<C: Content<B>>(content: C) -> Self {
        assert!(size_of::<C>() <= size_of::<Room>() && align_of::<C>() <= align_of::<Room>());
        let mut room = Room::uninit();
        // SAFETY: a `C` fits, by the assertion.
        unsafe { room.as_mut_ptr().cast::<C>().write(content) };
        Stored {
            room,
            deeds: const {
                &Deeds {
                    pieces: pieces_in_room::<B, C>,
                    piece: piece_in_room::<B, C>,
                    memory: memory_in_room::<B, C>,
                    tell: tell_out_of_room::<B, C>,
                    drop: drop_in_room::<C>,
                }
            },
            not_send: PhantomData,
        }
    }

    /// How many pieces there are to write.
    pub(crate) fn pieces(&self) -> usize {
        // SAFETY: the room holds what `deeds` was made for; so in all of these.
        unsafe { (self.deeds.pieces)(&self.room) }
    }

    /// A piece to write.
    pub(crate) fn piece(&self, index: usize) -> &[u8] {
        // SAFETY: as above, and `self` is borrowed.
        let piece = unsafe { (self.deeds.piece)(&self.room, index) };
        // SAFETY: borrowed from the content, which `self` keeps for as long.
        unsafe { &*piece }
    }

    /// The memory to fill.
    pub(crate) fn memory(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed.
        let memory = unsafe { (self.deeds.memory)(&mut self.room) };
        // SAFETY: borrowed from the content, which `self` keeps for as long and for nobody else.
        unsafe { &mut *memory }
    }

    /// Calls back and hands the buffer back.
    pub(crate) fn tell(self, lp: &mut Loop<B>, stream: Token, result: io::Result<usize>) {
        let mut this = ManuallyDrop::new(self);
        let tell = this.deeds.tell;
        // SAFETY: as above; `this` is neither used again nor dropped.
        unsafe { tell(&mut this.room, lp, stream, result) }
    }
}

impl<B: Backend> Drop for Stored<B> {
    fn drop(&mut self) {
        // SAFETY: the room still holds its content: `tell` never drops `self`.
        unsafe { (self.deeds.drop)(&mut self.room) }
    }
}

impl<B: Backend> fmt::Debug for Stored<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stored")
    }
}
