//! A decorator that hides operations of a backend.

use std::io;
use std::ptr::NonNull;

use crate::{Backend, Op, OpKind, Token, delegate_backend};

/// A backend that performs only a subset of the operations of the inner backend.
///
/// A loop does the others by readiness. This serves tests of older kernels' behaviour, and
/// programs that use readiness only.
///
/// ```
/// use poll_core::{Backend, MaskOps, OpKind};
///
/// fn readiness_only<B: Backend>(backend: B) -> MaskOps<B> {
///     let backend = MaskOps::to_readiness(backend);
///     assert!(OpKind::ALL.iter().all(|&kind| !backend.supports(kind)));
///     backend
/// }
/// # let _ = readiness_only::<MaskOps<MaskOps<NoBackend>>>;
/// # struct NoBackend;
/// # #[derive(Clone)]
/// # struct NoWaker;
/// # impl poll_core::Wake for NoWaker {
/// #     fn wake(&self) -> std::io::Result<()> { Ok(()) }
/// # }
/// # use poll_core::{Event, Mode, RawSource, Interest, Token};
/// # use std::{io, time::Duration};
/// # // SAFETY: it reports nothing.
/// # unsafe impl Backend for NoBackend {
/// #     type Waker = NoWaker;
/// #     fn waker(&self) -> NoWaker { NoWaker }
/// #     unsafe fn register(&mut self, _: Token, _: RawSource, _: Interest, _: Mode)
/// #         -> io::Result<()> { Ok(()) }
/// #     fn modify(&mut self, _: Token, _: Interest, _: Mode) -> io::Result<()> { Ok(()) }
/// #     fn deregister(&mut self, _: Token) -> io::Result<()> { Ok(()) }
/// #     fn wait(&mut self, _: Option<Duration>, _: &mut Vec<Event>) -> io::Result<()> { Ok(()) }
/// # }
/// ```
#[derive(Debug)]
pub struct MaskOps<B> {
    backend: B,
    performs: fn(OpKind) -> bool,
}

impl<B: Backend> MaskOps<B> {
    /// Keeps the operations of `backend` for whose kind `performs` returns true.
    #[must_use = "this takes the backend"]
    pub fn new(backend: B, performs: fn(OpKind) -> bool) -> MaskOps<B> {
        MaskOps { backend, performs }
    }

    /// Hides every operation: the backend reports readiness only.
    #[must_use = "this takes the backend"]
    pub fn to_readiness(backend: B) -> MaskOps<B> {
        MaskOps::new(backend, |_| false)
    }

    /// Returns the inner backend.
    pub fn into_inner(self) -> B {
        self.backend
    }

    fn takes_groups(&self) -> bool {
        self.supports(OpKind::RecvMulti) || self.supports(OpKind::RecvMsgMulti)
    }
}

// SAFETY: calls and events are those of `backend`, which keeps the guarantees; a masked operation
// fails and is not submitted.
unsafe impl<B: Backend> Backend for MaskOps<B> {
    delegate_backend! {
        self => self.backend, Waker = B::Waker, except { supports, submit, register_buffers }
    }

    fn supports(&self, kind: OpKind) -> bool {
        (self.performs)(kind) && self.backend.supports(kind)
    }

    unsafe fn submit(&mut self, token: Token, op: Op) -> io::Result<()> {
        if !(self.performs)(op.kind()) {
            let why = format!("{:?} is masked here: use readiness instead", op.kind());
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        // SAFETY: the caller keeps the conditions of the inner call.
        unsafe { self.backend.submit(token, op) }
    }

    unsafe fn register_buffers(
        &mut self,
        group: u16,
        memory: NonNull<u8>,
        size: u32,
        count: u16,
    ) -> io::Result<()> {
        if !self.takes_groups() {
            let why = "operations with buffer groups are masked here: use readiness instead";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        // SAFETY: the caller keeps the conditions of the inner call.
        unsafe { self.backend.register_buffers(group, memory, size, count) }
    }
}
