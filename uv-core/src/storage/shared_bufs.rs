//! Buffers that several requests share, and buffers of other crates.

#![allow(unsafe_code)]

use std::rc::Rc;
use std::sync::Arc;

use super::IoBuf;
#[cfg(feature = "bytes")]
use super::IoBufMut;

macro_rules! shared {
    ($($type:ty $(, const $n:ident)?;)*) => {$(
        // SAFETY: the bytes are on the heap and are not changed while they are shared: a change
        // needs an exclusive borrow of this value. Moving the value does not move them.
        unsafe impl $(<const $n: usize>)? IoBuf for $type {
            const ONE_PIECE: bool = true;

            fn piece(&self, index: usize) -> &[u8] {
                if index == 0 { &self[..] } else { &[] }
            }
        }
    )*};
}

shared! {
    Arc<Vec<u8>>;
    Rc<Vec<u8>>;
    Box<[u8; N]>, const N;
    Arc<[u8; N]>, const N;
    Rc<[u8; N]>, const N;
}

// SAFETY: the bytes are static or on the heap, immutable, and shared by reference: moving the value
// does not move them.
#[cfg(feature = "bytes")]
unsafe impl IoBuf for bytes::Bytes {
    const ONE_PIECE: bool = true;

    fn piece(&self, index: usize) -> &[u8] {
        if index == 0 { self } else { &[] }
    }
}

// SAFETY: the bytes are on the heap; moving the value does not move them, and changing them needs an
// exclusive borrow of it.
#[cfg(feature = "bytes")]
unsafe impl IoBuf for bytes::BytesMut {
    const ONE_PIECE: bool = true;

    fn piece(&self, index: usize) -> &[u8] {
        if index == 0 { self } else { &[] }
    }
}

// SAFETY: as above; the memory is that of the value's length, and no other handle can reach it.
#[cfg(feature = "bytes")]
unsafe impl IoBufMut for bytes::BytesMut {
    const ONE_PIECE: bool = true;

    fn memory(&mut self) -> &mut [u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(buf: impl IoBuf) -> Vec<u8> {
        assert_eq!((buf.pieces(), buf.piece(1)), (1, &b""[..]));
        buf.piece(0).to_vec()
    }

    #[test]
    fn shared_buffers_are_one_piece() {
        assert_eq!(bytes_of(Arc::new(vec![1, 2])), [1, 2]);
        assert_eq!(bytes_of(Rc::new(vec![1, 2])), [1, 2]);
        assert_eq!(bytes_of(Box::new([1, 2])), [1, 2]);
        assert_eq!(bytes_of(Arc::new([1, 2])), [1, 2]);
        assert_eq!(bytes_of(Rc::new([1, 2])), [1, 2]);
        let list = vec![Arc::new(vec![1]), Arc::new(vec![2, 3])];
        assert_eq!((list.pieces(), list.piece(1)), (2, &[2, 3][..]));
    }

    #[cfg(feature = "bytes")]
    #[test]
    fn bytes_are_one_piece() {
        assert_eq!(bytes_of(bytes::Bytes::from_static(b"ab")), b"ab");
        assert_eq!(bytes_of(bytes::Bytes::from(vec![1, 2, 3]).slice(1..)), [2, 3]);
        let mut memory = bytes::BytesMut::zeroed(4);
        let rest = memory.split_off(3);
        memory.memory().fill(7);
        assert_eq!((bytes_of(memory), bytes_of(rest)), (vec![7; 3], vec![0]));
    }
}
