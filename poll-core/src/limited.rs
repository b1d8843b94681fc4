//! A backend with some of its operations hidden.

use std::io;
use std::ptr::NonNull;
use std::time::Duration;

use crate::{Backend, Event, Lent, Mode, Op, OpKind, RawSource, Ready, Token};

/// A backend that performs only some of the operations of the one inside.
///
/// A loop then does the rest by readiness, as it does everywhere else. This is for tests of
/// what happens on older kernels, and for programs that want no operations at all.
///
/// ```
/// use poll_core::{Backend, Limited, OpKind};
///
/// fn readiness_only<B: Backend>(backend: B) -> Limited<B> {
///     let backend = Limited::to_readiness(backend);
///     assert!(OpKind::ALL.iter().all(|&kind| !backend.supports(kind)));
///     backend
/// }
/// # let _ = readiness_only::<Limited<Limited<NoBackend>>>;
/// # struct NoBackend;
/// # #[derive(Clone)]
/// # struct NoWaker;
/// # impl poll_core::Wake for NoWaker {
/// #     fn wake(&self) -> std::io::Result<()> { Ok(()) }
/// # }
/// # use poll_core::{Event, Mode, RawSource, Ready, Token};
/// # use std::{io, time::Duration};
/// # impl Backend for NoBackend {
/// #     type Waker = NoWaker;
/// #     fn waker(&self) -> NoWaker { NoWaker }
/// #     unsafe fn register(&mut self, _: Token, _: RawSource, _: Ready, _: Mode)
/// #         -> io::Result<()> { Ok(()) }
/// #     fn modify(&mut self, _: Token, _: Ready, _: Mode) -> io::Result<()> { Ok(()) }
/// #     fn deregister(&mut self, _: Token) -> io::Result<()> { Ok(()) }
/// #     fn wait(&mut self, _: Option<Duration>, _: &mut Vec<Event>) -> io::Result<()> { Ok(()) }
/// # }
/// ```
#[derive(Debug)]
pub struct Limited<B> {
    backend: B,
    performs: fn(OpKind) -> bool,
}

impl<B: Backend> Limited<B> {
    /// Performs what `backend` does, of the kinds for which `performs` is true.
    pub fn new(backend: B, performs: fn(OpKind) -> bool) -> Limited<B> {
        Limited { backend, performs }
    }

    /// Performs nothing: sources are watched, and that is all.
    pub fn to_readiness(backend: B) -> Limited<B> {
        Limited::new(backend, |_| false)
    }

    /// The backend inside.
    pub fn into_inner(self) -> B {
        self.backend
    }

    fn takes_groups(&self) -> bool {
        self.supports(OpKind::RecvMulti) || self.supports(OpKind::RecvMsgMulti)
    }
}

impl<B: Backend> Backend for Limited<B> {
    type Waker = B::Waker;

    fn waker(&self) -> B::Waker {
        self.backend.waker()
    }

    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Ready,
        mode: Mode,
    ) -> io::Result<()> {
        // SAFETY: the caller's promise is handed on.
        unsafe { self.backend.register(token, source, interest, mode) }
    }

    fn modify(&mut self, token: Token, interest: Ready, mode: Mode) -> io::Result<()> {
        self.backend.modify(token, interest, mode)
    }

    fn deregister(&mut self, token: Token) -> io::Result<()> {
        self.backend.deregister(token)
    }

    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.backend.wait(timeout, events)
    }

    fn supports(&self, kind: OpKind) -> bool {
        (self.performs)(kind) && self.backend.supports(kind)
    }

    unsafe fn submit(&mut self, token: Token, op: Op) -> io::Result<()> {
        if !(self.performs)(op.kind()) {
            let why = format!("{:?} is masked here: use readiness instead", op.kind());
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        // SAFETY: the caller's promise is handed on.
        unsafe { self.backend.submit(token, op) }
    }

    fn cancel(&mut self, token: Token) -> io::Result<()> {
        self.backend.cancel(token)
    }

    unsafe fn provide(
        &mut self,
        group: u16,
        memory: NonNull<u8>,
        size: u32,
        count: u16,
    ) -> io::Result<()> {
        if !self.takes_groups() {
            let why = "what takes buffer groups is masked here";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        // SAFETY: the caller's promise is handed on.
        unsafe { self.backend.provide(group, memory, size, count) }
    }

    fn recycle(&mut self, lent: Lent) {
        self.backend.recycle(lent);
    }

    fn withdraw(&mut self, group: u16) -> io::Result<()> {
        self.backend.withdraw(group)
    }

    fn now(&self) -> Duration {
        self.backend.now()
    }

    fn raw_fd(&self) -> Option<RawSource> {
        self.backend.raw_fd()
    }

    fn has_changes(&self) -> bool {
        self.backend.has_changes()
    }

    fn after_fork(&mut self) -> io::Result<()> {
        self.backend.after_fork()
    }
}
