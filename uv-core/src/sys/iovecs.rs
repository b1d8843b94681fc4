//! Scatter/gather lists: the memory that a file operation reads or fills.

#![allow(unsafe_code)]

use std::ptr;

use crate::storage::{IoBuf, IoBufMut};

#[cfg(unix)]
pub(crate) type Slice = libc::iovec;

/// An address and a length, with the field names of `iovec`.
#[cfg(windows)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) iov_base: *mut std::ffi::c_void,
    pub(crate) iov_len: usize,
}

/// Pieces in inline storage. Most requests have no more and allocate nothing.
const INLINE: usize = 4;

/// The pieces of a buffer, and the progress of the transfer through them.
///
/// The list borrows no memory: the request keeps the buffer next to the list, and [`IoBuf`] and
/// [`IoBufMut`] guarantee that the pieces do not move while the request owns the buffer.
#[derive(Debug)]
pub(crate) struct Slices {
    inline: [Slice; INLINE],
    /// Replaces `inline` if the buffer has more pieces.
    heap: Option<Box<[Slice]>>,
    /// Index of the first piece with bytes left, and the number of pieces in `inline`.
    first: u32,
    end: u32,
}

// SAFETY: only the pointers keep this from being `Send`. The requests of `fs` own the list together
// with the buffer that it points into, and require that buffer to be `Send`: both move to the other
// thread, and only the owner of the request uses the addresses.
unsafe impl Send for Slices {}

impl Slices {
    #[inline]
    fn collect(count: usize, mut slice: impl FnMut(usize) -> Slice) -> Slices {
        let none = Slice { iov_base: ptr::null_mut(), iov_len: 0 };
        let mut slices = Slices { inline: [none; INLINE], heap: None, first: 0, end: 0 };
        if count > INLINE {
            slices.heap = Some((0..count).map(slice).collect());
            return slices;
        }
        slices.end = count as u32;
        for (index, place) in slices.inline.iter_mut().enumerate().take(count) {
            *place = slice(index);
        }
        slices
    }

    /// The pieces of a buffer that a write takes its bytes from.
    pub(crate) fn for_write(buf: &impl IoBuf) -> Slices {
        Slices::collect(buf.pieces(), |index| {
            let piece = buf.piece(index);
            Slice { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() }
        })
    }

    /// The pieces of a buffer that a read fills.
    pub(crate) fn for_read(buf: &mut impl IoBufMut) -> Slices {
        Slices::collect(buf.pieces(), |index| {
            let piece = buf.piece_mut(index);
            Slice { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() }
        })
    }

    /// The pieces that are not transferred yet.
    #[inline]
    pub(crate) fn remaining(&self) -> &[Slice] {
        match &self.heap {
            None => &self.inline[self.first as usize..self.end as usize],
            Some(heap) => &heap[self.first as usize..],
        }
    }

    fn remaining_mut(&mut self) -> &mut [Slice] {
        match &mut self.heap {
            None => &mut self.inline[self.first as usize..self.end as usize],
            Some(heap) => &mut heap[self.first as usize..],
        }
    }

    /// The number of bytes that are not transferred yet.
    pub(crate) fn bytes(&self) -> usize {
        self.remaining().iter().map(|slice| slice.iov_len).sum()
    }

    /// Skips `count` bytes, and empty pieces after them. True if bytes remain.
    pub(crate) fn advance(&mut self, mut count: usize) -> bool {
        while let Some(slice) = self.remaining_mut().first_mut() {
            if count < slice.iov_len {
                slice.iov_base = slice.iov_base.cast::<u8>().wrapping_add(count).cast();
                slice.iov_len -= count;
                return true;
            }
            count -= slice.iov_len;
            self.first += 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(slices: &Slices) -> Vec<usize> {
        slices.remaining().iter().map(|slice| slice.iov_len).collect()
    }

    #[test]
    fn inline_and_heap_lists_advance_byte_by_byte() {
        for count in [1_usize, 4, 5, 9] {
            let buf: Vec<Vec<u8>> = (0..count).map(|len| vec![0; len + 1]).collect();
            let mut slices = Slices::for_write(&buf);
            let total: usize = lengths(&slices).iter().sum();
            for done in 1..=total {
                assert_eq!(slices.advance(1), done < total);
                assert_eq!(lengths(&slices).iter().sum::<usize>(), total - done);
            }
            assert!(slices.remaining().is_empty());
        }
    }

    #[test]
    fn empty_pieces_are_skipped() {
        let mut slices = Slices::for_write(&["", "", "ab", "", "c", ""]);
        assert!(slices.advance(0));
        assert_eq!(lengths(&slices)[0], 2);
        assert!(slices.advance(2));
        assert_eq!(lengths(&slices), [1, 0]);
        assert!(!slices.advance(1));
    }
}
