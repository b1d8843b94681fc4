//! The memory that requests own while they are under way.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Bytes that a request takes, keeps while it is under way, and hands back when it calls
/// back: `Vec<u8>`, `Box<[u8]>`, `Arc<[u8]>`, `String`, `&'static [u8]`, `&'static str`,
/// and whatever else gives bytes inside an [`Other`].
///
/// Taking them and handing them back moves a few words: nothing is copied or allocated,
/// and the bytes stay where they are.
pub trait IoBuf: sealed::Sealed {}

/// Bytes of any other type that gives them. Costs one allocation.
///
/// ```
/// use uv_core::{IoBuf, Other};
///
/// fn takes(_: impl IoBuf) {}
/// takes(Other([1, 2, 3]));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Other<T>(pub T);

/// Bytes whose owner's type is forgotten, and can be remembered.
pub(crate) struct Bytes(Owner);

enum Owner {
    Vec(Vec<u8>),
    Boxed(Box<[u8]>),
    Shared(Arc<[u8]>),
    String(String),
    Static(&'static [u8]),
    StaticStr(&'static str),
    Other(Box<dyn AnyBytes>),
}

trait AnyBytes {
    fn bytes(&self) -> &[u8];
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: AsRef<[u8]> + 'static> AnyBytes for Other<T> {
    fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Bytes {
    pub(crate) fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Owner::Vec(bytes) => bytes,
            Owner::Boxed(bytes) => bytes,
            Owner::Shared(bytes) => bytes,
            Owner::String(text) => text.as_bytes(),
            Owner::Static(bytes) => bytes,
            Owner::StaticStr(text) => text.as_bytes(),
            Owner::Other(other) => other.bytes(),
        }
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.as_slice().len())
    }
}

/// Only the types above: the kernel may read the bytes while they move with their request,
/// so they must not lie inside of what is moved.
mod sealed {
    pub trait Sealed: 'static {
        #[expect(private_interfaces, reason = "only this crate calls it")]
        fn into_bytes(self) -> super::Bytes;

        /// The owner of bytes that came from one of this type.
        #[expect(private_interfaces, reason = "only this crate calls it")]
        fn from_bytes(bytes: super::Bytes) -> Self;
    }
}
pub(crate) use sealed::Sealed as Convert;

macro_rules! io_bufs {
    ($($owner:ident $kind:ty;)*) => { $(
        impl IoBuf for $kind {}

        impl Convert for $kind {
            #[expect(private_interfaces, reason = "only this crate calls it")]
            fn into_bytes(self) -> Bytes {
                Bytes(Owner::$owner(self))
            }

            #[expect(private_interfaces, reason = "only this crate calls it")]
            fn from_bytes(bytes: Bytes) -> Self {
                match bytes.0 {
                    Owner::$owner(owner) => owner,
                    _ => unreachable!("a request hands back the type that it took"),
                }
            }
        }
    )* };
}

io_bufs! {
    Vec Vec<u8>;
    Boxed Box<[u8]>;
    Shared Arc<[u8]>;
    String String;
    Static &'static [u8];
    StaticStr &'static str;
}

impl<T: AsRef<[u8]> + 'static> IoBuf for Other<T> {}

impl<T: AsRef<[u8]> + 'static> Convert for Other<T> {
    #[expect(private_interfaces, reason = "only this crate calls it")]
    fn into_bytes(self) -> Bytes {
        Bytes(Owner::Other(Box::new(self)))
    }

    #[expect(private_interfaces, reason = "only this crate calls it")]
    fn from_bytes(bytes: Bytes) -> Self {
        let Owner::Other(other) = bytes.0 else {
            unreachable!("a request hands back the type that it took")
        };
        match other.into_any().downcast::<Other<T>>() {
            Ok(other) => *other,
            Err(_) => unreachable!("a request hands back the type that it took"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through<T: IoBuf>(buffer: T, wanted: &[u8]) -> T {
        let bytes = buffer.into_bytes();
        assert_eq!(bytes.as_slice(), wanted);
        T::from_bytes(bytes)
    }

    #[test]
    fn every_type_is_handed_back_as_it_was() {
        assert_eq!(through(vec![1, 2], &[1, 2]), [1, 2]);
        assert_eq!(*through(Box::<[u8]>::from([3]), &[3]), [3]);
        assert_eq!(*through(Arc::<[u8]>::from([4]), &[4]), [4]);
        assert_eq!(through(String::from("five"), b"five"), "five");
        assert_eq!(through(&b"six"[..], b"six"), b"six");
        assert_eq!(through("seven", b"seven"), "seven");
        assert_eq!(through(Other([8; 8]), &[8; 8]), Other([8; 8]));
    }

    #[test]
    fn forgetting_the_type_costs_one_word() {
        assert_eq!(size_of::<Bytes>(), size_of::<Vec<u8>>() + size_of::<usize>());
    }
}
