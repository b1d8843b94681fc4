//! I/O buffers that a request owns until its callback runs.

#![allow(unsafe_code)]

use std::rc::Rc;
use std::sync::Arc;

/// A buffer that a write can own: one piece of bytes or several, written in order.
///
/// `Vec<u8>`, `Box<[u8]>`, `Arc<[u8]>`, `Rc<[u8]>`, `String`, `&'static [u8]` and
/// `&'static str` are one piece each, and so are `Arc<Vec<u8>>`, `Box<[u8; N]>` and, by the feature
/// `bytes`, `bytes::{Bytes, BytesMut}`. An array of bytes is none, because its bytes move with it, but
/// a write takes it all the same: see [`IntoIoBuf`]. A `Vec`, an array or a boxed slice of buffers
/// is written as if its pieces were one, by a single system call if the kernel takes that many.
///
/// An implementation:
///
/// ```
/// use std::sync::Arc;
/// use uv_core::{Handle, IoBuf, Loop, RunMode, Stream, Tcp};
///
/// /// A part of a page that many connections send.
/// struct Part(Arc<[u8]>, std::ops::Range<usize>);
///
/// // SAFETY: the bytes of an `Arc` neither move nor change.
/// unsafe impl IoBuf for Part {
///     const ONE_PIECE: bool = true;
///
///     fn piece(&self, index: usize) -> &[u8] {
///         if index == 0 { &self.0[self.1.clone()] } else { &[] }
///     }
/// }
///
/// let page: Arc<[u8]> = b"hello, world".as_slice().into();
/// let mut lp = Loop::with_default_backend()?;
/// let (one, other) = Tcp::pair(&mut lp)?;
/// one.write(&mut lp, Part(page.clone(), 7..12), |lp, one, _, _| one.close(lp).unwrap())?;
/// other.read(&mut lp, vec![0; 16], |lp, other, count, bytes| {
///     assert_eq!(&bytes[..count.unwrap()], b"world");
///     other.close(lp).unwrap();
/// })?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Safety
///
/// The count of the pieces and each piece's address, length and bytes stay the same until
/// the value is changed or dropped, even if it is moved: a backend may lend the memory to the
/// kernel until then.
#[doc(alias = "uv_buf_t")]
#[doc(alias = "uv_buf_init")]
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a buffer that a request can own",
    note = "a request keeps its buffer until its callback: pass a `Vec<u8>`, a `String`, a `&'static str`, an `Arc<Vec<u8>>`, or a list of such"
)]
pub unsafe trait IoBuf: 'static {
    /// True if there is always exactly one piece: a list of such buffers finds a piece in constant
    /// time.
    const ONE_PIECE: bool = false;

    /// The number of pieces.
    ///
    /// ```
    /// use uv_core::IoBuf;
    ///
    /// assert_eq!("hello".pieces(), 1);
    /// let list = vec!["hello", ", ", "world"];
    /// assert_eq!((list.pieces(), list.piece(2)), (3, b"world".as_slice()));
    /// ```
    fn pieces(&self) -> usize {
        1
    }

    /// The piece at `index`, empty beyond the last piece.
    fn piece(&self, index: usize) -> &[u8];
}

/// Values that can be written: every [`IoBuf`], and an array of bytes, which is put into a box.
///
/// ```
/// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
///
/// let mut lp = Loop::with_default_backend()?;
/// let (one, other) = Tcp::pair(&mut lp)?;
/// let length = 5_u32;
/// one.send(&mut lp, length.to_be_bytes()); // A `[u8; 4]`.
/// one.write(&mut lp, *b"hello", |lp, one, result, buffer: Box<[u8; 5]>| {
///     result.unwrap();
///     assert_eq!(&buffer[..], b"hello");
///     one.finish(lp);
/// })?;
/// other.on_read(&mut lp, |lp, other, bytes| {
///     lp.state::<Vec<u8>>().extend_from_slice(bytes);
///     if bytes.is_empty() { other.close(lp) } else { Ok(()) }
/// })?;
/// lp.run(RunMode::Default)?;
/// assert_eq!(lp.state::<Vec<u8>>(), b"\0\0\0\x05hello");
/// # std::io::Result::Ok(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a buffer that a request can own",
    note = "a request keeps its buffer until its callback: pass a `Vec<u8>`, a `String`, a `&'static str`, a `[u8; N]`, an `Arc<Vec<u8>>`, or a list of such"
)]
pub trait IntoIoBuf {
    /// The buffer that the request owns, and that its callback gets back.
    type Buf: IoBuf;

    /// Makes the buffer.
    ///
    /// ```
    /// use uv_core::{IntoIoBuf, IoBuf};
    ///
    /// let boxed: Box<[u8; 2]> = [1_u8, 2].into_io_buf();
    /// assert_eq!(boxed.piece(0), [1, 2]);
    /// assert_eq!(vec![1, 2].into_io_buf().pieces(), 1);
    /// ```
    fn into_io_buf(self) -> Self::Buf;
}

impl<T: IoBuf> IntoIoBuf for T {
    type Buf = T;

    fn into_io_buf(self) -> T {
        self
    }
}

impl<const N: usize> IntoIoBuf for [u8; N] {
    type Buf = Box<[u8; N]>;

    fn into_io_buf(self) -> Box<[u8; N]> {
        Box::new(self)
    }
}

/// A buffer that a read can own and fill: `Vec<u8>` up to its length, `Box<[u8]>`, by the feature
/// `bytes` a `bytes::BytesMut` up to its length, or a `Vec`, an array or a boxed slice of these.
///
/// A read of a file fills the pieces of such a list in order; a read of a stream fills the first
/// piece that is not empty.
///
/// An implementation:
///
/// ```
/// use uv_core::{Handle, IoBufMut, Loop, RunMode, Stream, Tcp};
///
/// /// A page of memory with its fill level.
/// struct Page {
///     memory: Box<[u8; 4096]>,
///     filled: usize,
/// }
///
/// // SAFETY: the memory of a box does not move, and `filled` changes only between reads.
/// unsafe impl IoBufMut for Page {
///     fn memory(&mut self) -> &mut [u8] {
///         &mut self.memory[self.filled..]
///     }
/// }
///
/// let mut lp = Loop::with_default_backend()?;
/// let (one, other) = Tcp::pair(&mut lp)?;
/// one.write(&mut lp, "hello", |lp, one, _, _| one.close(lp).unwrap())?;
/// let page = Page { memory: Box::new([0; 4096]), filled: 0 };
/// other.read(&mut lp, page, |lp, other, count, mut page| {
///     page.filled += count.unwrap();
///     assert_eq!(&page.memory[..page.filled], b"hello");
///     other.close(lp).unwrap();
/// })?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Safety
///
/// As for [`IoBuf`]: the address and the length of the memory stay the same until the value
/// is changed or dropped, even if it is moved.
#[doc(alias = "uv_buf_t")]
#[doc(alias = "uv_buf_init")]
pub unsafe trait IoBufMut: 'static {
    /// True if there is always exactly one piece, as for [`IoBuf::ONE_PIECE`]: a list of such
    /// buffers finds a piece in constant time.
    const ONE_PIECE: bool = false;

    /// The memory to fill.
    fn memory(&mut self) -> &mut [u8];

    /// The number of pieces.
    fn pieces(&self) -> usize {
        1
    }

    /// The piece at `index`, empty beyond the last piece.
    ///
    /// ```
    /// use uv_core::IoBufMut;
    ///
    /// let mut list = [vec![0; 4], vec![0; 8]];
    /// assert_eq!((list.pieces(), list.piece_mut(1).len()), (2, 8));
    /// assert!(list.piece_mut(2).is_empty());
    /// ```
    fn piece_mut(&mut self, index: usize) -> &mut [u8] {
        if index == 0 { self.memory() } else { &mut [] }
    }
}

macro_rules! one_piece {
    ($($type:ty: $bytes:expr;)*) => {$(
        // SAFETY: the bytes are on the heap or static: moving the value does not move them.
        unsafe impl IoBuf for $type {
            const ONE_PIECE: bool = true;

            fn piece(&self, index: usize) -> &[u8] {
                let bytes: for<'a> fn(&'a $type) -> &'a [u8] = $bytes;
                if index == 0 { bytes(self) } else { &[] }
            }
        }
    )*};
}

one_piece! {
    Vec<u8>: |buf| buf;
    Box<[u8]>: |buf| buf;
    Arc<[u8]>: |buf| buf;
    Rc<[u8]>: |buf| buf;
    &'static [u8]: |buf| buf;
    String: |buf| buf.as_bytes();
    &'static str: |buf| buf.as_bytes();
}

// SAFETY: the bytes are static.
unsafe impl<const N: usize> IoBuf for &'static [u8; N] {
    const ONE_PIECE: bool = true;

    fn piece(&self, index: usize) -> &[u8] {
        if index == 0 { &self[..] } else { &[] }
    }
}

/// The piece at `index` of a list of buffers, each of which may be a list itself.
fn piece_of<T: IoBuf>(bufs: &[T], mut index: usize) -> &[u8] {
    if T::ONE_PIECE {
        return bufs.get(index).map_or(&[], |buf| buf.piece(0));
    }
    for buf in bufs {
        let pieces = buf.pieces();
        if index < pieces {
            return buf.piece(index);
        }
        index -= pieces;
    }
    &[]
}

macro_rules! many_pieces {
    ($($type:ty $(, const $n:ident)?;)*) => {$(
        // SAFETY: the pieces belong to the inner buffers, whose own implementations keep them in
        // place.
        unsafe impl<T: IoBuf $(, const $n: usize)?> IoBuf for $type {
            fn pieces(&self) -> usize {
                if T::ONE_PIECE { self.len() } else { self.iter().map(T::pieces).sum() }
            }

            fn piece(&self, index: usize) -> &[u8] {
                piece_of(self, index)
            }
        }
    )*};
}

many_pieces! {
    Vec<T>;
    Box<[T]>;
    [T; N], const N;
}

macro_rules! many_pieces_to_fill {
    ($($type:ty $(, const $n:ident)?;)*) => {$(
        // SAFETY: the pieces belong to the inner buffers, whose own implementations keep them in
        // place.
        unsafe impl<T: IoBufMut $(, const $n: usize)?> IoBufMut for $type {
            fn memory(&mut self) -> &mut [u8] {
                let mut memories = self.iter_mut().map(T::memory);
                memories.find(|memory| !memory.is_empty()).unwrap_or_default()
            }

            fn pieces(&self) -> usize {
                if T::ONE_PIECE { self.len() } else { self.iter().map(T::pieces).sum() }
            }

            fn piece_mut(&mut self, mut index: usize) -> &mut [u8] {
                if T::ONE_PIECE {
                    return self.get_mut(index).map_or(&mut [], |buf| buf.memory());
                }
                for buf in self.iter_mut() {
                    let pieces = buf.pieces();
                    if index < pieces {
                        return buf.piece_mut(index);
                    }
                    index -= pieces;
                }
                &mut []
            }
        }
    )*};
}

many_pieces_to_fill! {
    Vec<T>;
    Box<[T]>;
    [T; N], const N;
}

// SAFETY: the bytes are on the heap: moving the vector does not move them.
unsafe impl IoBufMut for Vec<u8> {
    const ONE_PIECE: bool = true;

    fn memory(&mut self) -> &mut [u8] {
        self
    }
}

// SAFETY: the bytes are on the heap: moving the box does not move them.
unsafe impl IoBufMut for Box<[u8]> {
    const ONE_PIECE: bool = true;

    fn memory(&mut self) -> &mut [u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(buf: &impl IoBuf) -> Vec<&[u8]> {
        (0..buf.pieces()).map(|index| buf.piece(index)).collect()
    }

    #[test]
    fn pieces_of_nested_lists_are_in_order() {
        assert_eq!(all(&vec![1_u8, 2]), [&[1, 2]]);
        assert_eq!(all(&"text"), [b"text"]);
        assert_eq!(all(&["a", "", "bc"]), [&b"a"[..], b"", b"bc"]);
        assert_eq!(all(&vec![["a", "b"], ["c", "d"]]), [b"a", b"b", b"c", b"d"]);
        assert_eq!("text".piece(1), b"");
        assert_eq!(all(&Vec::<&str>::new()), [] as [&[u8]; 0]);
    }

    /// A buffer of one piece that counts its calls.
    struct Counted(Vec<u8>, Rc<std::cell::Cell<usize>>);

    // SAFETY: the bytes are on the heap: moving the vector does not move them.
    unsafe impl IoBufMut for Counted {
        const ONE_PIECE: bool = true;

        fn memory(&mut self) -> &mut [u8] {
            self.1.set(self.1.get() + 1);
            &mut self.0
        }

        fn pieces(&self) -> usize {
            self.1.set(self.1.get() + 1);
            1
        }
    }

    /// The same for writes.
    struct CountedBytes(Vec<u8>, Rc<std::cell::Cell<usize>>);

    // SAFETY: the bytes are on the heap: moving the vector does not move them.
    unsafe impl IoBuf for CountedBytes {
        const ONE_PIECE: bool = true;

        fn pieces(&self) -> usize {
            self.1.set(self.1.get() + 1);
            1
        }

        fn piece(&self, index: usize) -> &[u8] {
            self.1.set(self.1.get() + 1);
            if index == 0 { &self.0 } else { &[] }
        }
    }

    #[test]
    fn writing_a_list_takes_linear_time() {
        const PIECES: usize = 1000;
        let calls = Rc::default();
        let list: Vec<_> =
            (0..PIECES).map(|at| CountedBytes(vec![at as u8; 2], Rc::clone(&calls))).collect();
        let written = all(&list);
        assert!(written.iter().zip(0..).all(|(piece, at)| **piece == [at as u8; 2]));
        assert_eq!((written.len(), calls.get()), (PIECES, PIECES), "one call per buffer");
    }

    #[test]
    fn filling_a_list_takes_linear_time() {
        const PIECES: usize = 1000;
        let calls = Rc::default();
        let mut list: Vec<_> =
            (0..PIECES).map(|_| Counted(vec![0; 2], Rc::clone(&calls))).collect();
        for index in 0..list.pieces() {
            list.piece_mut(index).fill(index as u8);
        }
        assert!(list.piece_mut(PIECES).is_empty());
        assert!(list.iter().zip(0..).all(|(buf, at)| buf.0 == [at as u8; 2]));
        assert_eq!(calls.get(), PIECES, "one call per buffer");
    }
}
