//! Buffers of requests, which always come back.

#![allow(unsafe_code)]

use std::io;

use uv_core::poll_core::Backend;
use uv_core::{IoBuf, IoBufMut, Loop};

use crate::op::{Completer, Op, OrLost, lost};

/// A result, and the buffer that the operation has owned.
pub type BufResult<T, Buf> = (io::Result<T>, Buf);

/// The outcome of a request with a buffer.
pub(crate) struct Done<T, R = usize> {
    result: io::Result<R>,
    buf: Option<T>,
}

impl<T: 'static, R: 'static> OrLost for Done<T, R> {
    fn lost() -> Done<T, R> {
        Done { result: Err(lost()), buf: None }
    }
}

impl<T, R> Done<T, R> {
    pub(crate) fn into_result(self) -> BufResult<R, T> {
        // `Carried` leaves the buffer with every outcome.
        let buf = self.buf.expect("a request returns its buffer");
        (self.result, buf)
    }
}

impl<B: Backend, T: 'static, R: 'static> Op<B, Done<T, R>> {
    /// The result of a request that the loop has refused: it has dropped the [`Carried`] buffer,
    /// which is here therefore.
    pub(crate) fn refused(&mut self, error: io::Error) -> BufResult<R, T> {
        let done = self.take().expect("a refused request returns its buffer");
        (Err(error), done.into_result().1)
    }
}

/// A buffer that a request owns, without its first `skip` bytes. When the request calls back, or is
/// dropped without that, the buffer goes to the future.
///
/// Six words for a `Vec`, and the callback captures nothing: it needs no allocation.
pub(crate) struct Carried<B: Backend, T: 'static, R: 'static = usize> {
    buf: Option<T>,
    skip: usize,
    completer: Option<Completer<B, Done<T, R>>>,
}

impl<B: Backend, T: 'static, R: 'static> Carried<B, T, R> {
    pub(crate) fn new(buf: T, skip: usize, completer: Completer<B, Done<T, R>>) -> Self {
        Carried { buf: Some(buf), skip, completer: Some(completer) }
    }

    /// Completes the request. Returns the outcome if the future is gone.
    pub(crate) fn finish(
        mut self,
        lp: &mut Loop<B>,
        result: io::Result<R>,
    ) -> Option<BufResult<R, T>> {
        let (completer, buf) = (self.completer.take()?, self.buf.take());
        completer.complete(lp, Done { result, buf }).map(Done::into_result)
    }
}

impl<B: Backend, T: 'static, R: 'static> Drop for Carried<B, T, R> {
    fn drop(&mut self) {
        if let (Some(completer), Some(buf)) = (self.completer.take(), self.buf.take()) {
            completer.leave(Done { result: Err(lost()), buf: Some(buf) });
        }
    }
}

// SAFETY: the memory is that of the buffer inside, which nothing changes until it is taken out by
// `finish` or `drop`, and whose own implementation keeps it in place.
unsafe impl<B: Backend, T: IoBufMut, R: 'static> IoBufMut for Carried<B, T, R> {
    const ONE_PIECE: bool = T::ONE_PIECE;

    fn memory(&mut self) -> &mut [u8] {
        self.buf.as_mut().map_or(&mut [], T::memory)
    }

    fn pieces(&self) -> usize {
        self.buf.as_ref().map_or(0, T::pieces)
    }

    fn piece_mut(&mut self, index: usize) -> &mut [u8] {
        self.buf.as_mut().map_or(&mut [], |buf| buf.piece_mut(index))
    }
}

// SAFETY: as above; `skip` does not change.
unsafe impl<B: Backend, T: IoBuf, R: 'static> IoBuf for Carried<B, T, R> {
    const ONE_PIECE: bool = T::ONE_PIECE;

    fn pieces(&self) -> usize {
        self.buf.as_ref().map_or(0, T::pieces)
    }

    fn piece(&self, index: usize) -> &[u8] {
        let Some(buf) = &self.buf else { return &[] };
        let piece = buf.piece(index);
        if self.skip == 0 {
            return piece;
        }
        let before: usize = (0..index).map(|index| buf.piece(index).len()).sum();
        &piece[self.skip.saturating_sub(before).min(piece.len())..]
    }
}

/// The number of bytes of a buffer.
pub(crate) fn len_of(buf: &impl IoBuf) -> usize {
    (0..buf.pieces()).map(|index| buf.piece(index).len()).sum()
}
