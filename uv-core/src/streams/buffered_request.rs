//! A buffer and the callback that gets it back, stored together in place.
//!
//! Three words of buffer and three of captures fit into the request, so that a write of a `Vec`
//! needs no allocation. A larger value is boxed, and the box is stored there.

#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use poll_core::{Backend, Token};

use crate::Loop;
use crate::storage::{self, IoBuf, IoBufMut, contain};

/// The inline storage of a buffer and a callback: six words.
type InlineStorage = storage::InlineStorage<[usize; 6]>;

/// The functions of a type-erased buffer and its callback in inline storage.
struct VTable<B: Backend> {
    pieces: unsafe fn(*const InlineStorage) -> usize,
    piece: unsafe fn(*const InlineStorage, usize) -> *const [u8],
    memory: unsafe fn(*mut InlineStorage) -> *mut [u8],
    complete: unsafe fn(*mut InlineStorage, &mut Loop<B>, Token, io::Result<usize>),
    drop: unsafe fn(*mut InlineStorage),
}

/// A buffer and its callback.
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
    /// Calls back with the stream, the result and the buffer.
    fn complete(self, lp: &mut Loop<B>, stream: Token, result: io::Result<usize>);
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

    fn complete(self, lp: &mut Loop<B>, stream: Token, result: io::Result<usize>) {
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

    fn complete(self, lp: &mut Loop<B>, stream: Token, result: io::Result<usize>) {
        self.1(lp, stream, result, self.0);
    }
}

/// # Safety
///
/// `storage` holds a `C`, which is not changed while the result is borrowed.
unsafe fn content<'a, B: Backend, C: Content<B>>(storage: *const InlineStorage) -> &'a C {
    // SAFETY: the caller guarantees that a `C` is stored.
    let content = unsafe { InlineStorage::locate::<C>(storage.cast_mut()) };
    // SAFETY: the caller guarantees that it is not changed meanwhile.
    unsafe { &*content }
}

/// # Safety
///
/// As for [`content`], during the call.
unsafe fn stored_pieces<B: Backend, C: Content<B>>(storage: *const InlineStorage) -> usize {
    // SAFETY: guaranteed by the caller.
    unsafe { content::<B, C>(storage) }.pieces()
}

/// # Safety
///
/// As for [`content`], while the result is used.
unsafe fn stored_piece<B: Backend, C: Content<B>>(
    storage: *const InlineStorage,
    index: usize,
) -> *const [u8] {
    // SAFETY: guaranteed by the caller.
    unsafe { content::<B, C>(storage) }.piece(index)
}

/// # Safety
///
/// `storage` holds a `C`, which nothing else uses while the result is used.
unsafe fn stored_memory<B: Backend, C: Content<B>>(storage: *mut InlineStorage) -> *mut [u8] {
    // SAFETY: the caller guarantees that a `C` is stored.
    let content = unsafe { InlineStorage::locate::<C>(storage) };
    // SAFETY: the caller guarantees that nothing else uses it.
    unsafe { &mut *content }.memory()
}

/// # Safety
///
/// `storage` holds a `C`, which is neither used nor dropped afterwards.
unsafe fn complete_stored<B: Backend, C: Content<B>>(
    storage: *mut InlineStorage,
    lp: &mut Loop<B>,
    stream: Token,
    result: io::Result<usize>,
) {
    // SAFETY: guaranteed by the caller.
    let content = unsafe { InlineStorage::take::<C>(storage) };
    content.complete(lp, stream, result);
}

/// A buffer and its callback.
pub(crate) struct BufferedRequest<B: Backend> {
    storage: InlineStorage,
    vtable: &'static VTable<B>,
    /// The erased value may not be `Send`, so neither is this.
    not_send: PhantomData<*mut ()>,
}

impl<B: Backend> BufferedRequest<B> {
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
        BufferedRequest {
            storage: InlineStorage::new(content),
            vtable: const {
                &VTable {
                    pieces: stored_pieces::<B, C>,
                    piece: stored_piece::<B, C>,
                    memory: stored_memory::<B, C>,
                    complete: complete_stored::<B, C>,
                    drop: InlineStorage::drop_value::<C>,
                }
            },
            not_send: PhantomData,
        }
    }

    /// The number of pieces to write.
    pub(crate) fn pieces(&self) -> usize {
        // SAFETY: `new` has stored the type that the vtable was made for, here and below.
        unsafe { (self.vtable.pieces)(&self.storage) }
    }

    /// A piece to write.
    pub(crate) fn piece(&self, index: usize) -> &[u8] {
        // SAFETY: as above, and `self` is borrowed.
        let piece = unsafe { (self.vtable.piece)(&self.storage, index) };
        // SAFETY: borrowed from the content, which `self` keeps for as long.
        unsafe { &*piece }
    }

    /// The memory to fill.
    pub(crate) fn memory(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `self` is borrowed.
        let memory = unsafe { (self.vtable.memory)(&mut self.storage) };
        // SAFETY: borrowed from the content, which `self` borrows exclusively for as long.
        unsafe { &mut *memory }
    }

    /// Calls back, and returns the buffer by that.
    pub(crate) fn complete(self, lp: &mut Loop<B>, stream: Token, result: io::Result<usize>) {
        let mut this = ManuallyDrop::new(self);
        let complete = this.vtable.complete;
        // SAFETY: as above; `this` is neither used again nor dropped.
        unsafe { complete(&mut this.storage, lp, stream, result) }
    }
}

impl<B: Backend> Drop for BufferedRequest<B> {
    fn drop(&mut self) {
        // SAFETY: the storage still holds its content: `complete` never drops `self`.
        contain(|| unsafe { (self.vtable.drop)(&mut self.storage) });
    }
}

impl<B: Backend> fmt::Debug for BufferedRequest<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BufferedRequest")
    }
}
