//! Lists of memory that a file operation reads or fills.

#![allow(unsafe_code)]

use std::ptr;

use crate::buffers::{IoBuf, IoBufMut};

#[cfg(unix)]
pub(crate) type Slice = libc::iovec;

/// A piece of memory, by address.
#[cfg(windows)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    pub(crate) iov_base: *mut std::ffi::c_void,
    pub(crate) iov_len: usize,
}

/// As many as most requests have: they need no list on the heap.
const FEW: usize = 4;

/// The memory of a buffer, piece by piece, and how much of it is done with.
///
/// The addresses are those of a buffer that is kept beside this, and that stays in place as
/// [`IoBuf`] and [`IoBufMut`] promise.
#[derive(Debug)]
pub(crate) struct Slices {
    few: [Slice; FEW],
    /// Used instead, if there are more.
    many: Option<Box<[Slice]>>,
    /// The first that is not done with, and how many of `few` there are.
    first: u32,
    end: u32,
}

// SAFETY: whoever has the list has the buffer too, which is `Send`.
unsafe impl Send for Slices {}

impl Slices {
    #[inline]
    fn collect(count: usize, mut slice: impl FnMut(usize) -> Slice) -> Slices {
        let none = Slice { iov_base: ptr::null_mut(), iov_len: 0 };
        let mut slices = Slices { few: [none; FEW], many: None, first: 0, end: 0 };
        if count > FEW {
            slices.many = Some((0..count).map(slice).collect());
            return slices;
        }
        slices.end = count as u32;
        for (index, place) in slices.few.iter_mut().enumerate().take(count) {
            *place = slice(index);
        }
        slices
    }

    /// The pieces of a buffer that is to be written.
    pub(crate) fn to_write(buf: &impl IoBuf) -> Slices {
        Slices::collect(buf.pieces(), |index| {
            let piece = buf.piece(index);
            Slice { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() }
        })
    }

    /// The pieces of a buffer that is to be filled.
    pub(crate) fn to_fill(buf: &mut impl IoBufMut) -> Slices {
        Slices::collect(buf.pieces(), |index| {
            let piece = buf.piece_mut(index);
            Slice { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() }
        })
    }

    /// What is not done with.
    #[inline]
    pub(crate) fn left(&self) -> &[Slice] {
        match &self.many {
            None => &self.few[self.first as usize..self.end as usize],
            Some(many) => &many[self.first as usize..],
        }
    }

    fn left_mut(&mut self) -> &mut [Slice] {
        match &mut self.many {
            None => &mut self.few[self.first as usize..self.end as usize],
            Some(many) => &mut many[self.first as usize..],
        }
    }

    /// How many bytes are not done with.
    pub(crate) fn bytes(&self) -> usize {
        self.left().iter().map(|slice| slice.iov_len).sum()
    }

    /// Skips what is done with, and pieces without bytes. True if something is left.
    pub(crate) fn advance(&mut self, mut count: usize) -> bool {
        while let Some(slice) = self.left_mut().first_mut() {
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
        slices.left().iter().map(|slice| slice.iov_len).collect()
    }

    #[test]
    fn few_or_many_pieces_are_done_with_in_order() {
        for count in [1_usize, 4, 5, 9] {
            let buf: Vec<Vec<u8>> = (0..count).map(|len| vec![0; len + 1]).collect();
            let mut slices = Slices::to_write(&buf);
            let total: usize = lengths(&slices).iter().sum();
            for done in 1..=total {
                assert_eq!(slices.advance(1), done < total);
                assert_eq!(lengths(&slices).iter().sum::<usize>(), total - done);
            }
            assert!(slices.left().is_empty());
        }
    }

    #[test]
    fn empty_pieces_are_skipped() {
        let mut slices = Slices::to_write(&["", "", "ab", "", "c", ""]);
        assert!(slices.advance(0));
        assert_eq!(lengths(&slices)[0], 2);
        assert!(slices.advance(2));
        assert_eq!(lengths(&slices), [1, 0]);
        assert!(!slices.advance(1));
    }
}
