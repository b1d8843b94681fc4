//! The trait that every poller implements.

use std::io;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::{Event, Lent, Mode, Op, OpKind, RawSource, Ready, Token, Wake};

/// A source of readiness events and, optionally, of completed operations.
///
/// Readiness is the floor that every backend gives: five methods are required,
/// and with them a backend is complete. Completion is offered on top of it by
/// the backends that have it, operation by operation; [`supports`](Backend::supports)
/// tells which.
///
/// What each method promises is the [contract](crate#the-contract), by number.
pub trait Backend: Send + 'static {
    /// What interrupts [`wait`](Backend::wait).
    type Waker: Wake;

    /// A handle that interrupts [`wait`](Backend::wait) from another thread.
    fn waker(&self) -> Self::Waker;

    /// Starts watching `source`.
    ///
    /// The kernel learns of it no later than the next wait. An `interest` of
    /// [`Ready::NONE`] reserves the token and the source and watches for nothing.
    ///
    /// # Errors
    ///
    /// Nothing is registered after an error.
    /// - `AlreadyExists`: the token's index, or the source, is registered.
    /// - `Unsupported`: this backend has no [`Mode::Edge`], or cannot see
    ///   [`Ready::PRIORITY`] or [`Ready::DISCONNECT`].
    /// - The kernel's own (`EBADF`, `EPERM` for a regular file, `ENOMEM`…), from
    ///   backends that ask it at once. The others report [`Ready::ERROR`] later.
    ///
    /// # Safety
    ///
    /// `source` must stay open until [`deregister`](Backend::deregister) returns
    /// or the backend is dropped.
    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Ready,
        mode: Mode,
    ) -> io::Result<()>;

    /// Replaces interest and mode, and re-arms a spent [`Mode::Oneshot`].
    ///
    /// A condition that holds already is reported again, in every mode. Several
    /// changes to one source between two waits cost at most one system call.
    ///
    /// # Errors
    ///
    /// Nothing is changed after an error.
    /// - `NotFound`: the token is unknown or stale.
    /// - `Unsupported`: as for [`register`](Backend::register).
    fn modify(&mut self, token: Token, interest: Ready, mode: Mode) -> io::Result<()>;

    /// Stops watching, at once: no later wait reports the token, and the source
    /// may be closed as soon as this returns.
    ///
    /// # Errors
    ///
    /// `NotFound`: the token is unknown or stale.
    fn deregister(&mut self, token: Token) -> io::Result<()>;

    /// Tells the kernel what has changed, waits until something happens or
    /// `timeout` has fully passed, and appends what happened to `events`.
    ///
    /// `None` waits for ever, zero does not wait. With nothing to report it
    /// returns before the timeout only after a wake or a signal.
    ///
    /// # Errors
    ///
    /// Only what concerns the backend as a whole. A failing source is
    /// [`Ready::ERROR`], a failing operation is a [`Event::Done`].
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()>;

    /// True if [`submit`](Backend::submit) performs operations of this kind, here and now.
    fn supports(&self, _kind: OpKind) -> bool {
        false
    }

    /// Starts an operation. It never completes inline: exactly one
    /// [`Event::Done`] with `more: false` follows, whatever happens.
    ///
    /// # Errors
    ///
    /// Nothing was started after an error, and no event follows.
    /// - `Unsupported`: [`supports`](Backend::supports) says no.
    /// - `AlreadyExists`: an operation with this token is in flight.
    ///
    /// # Safety
    ///
    /// All memory that `op` names must stay valid until that event, untouched by
    /// others if it is to be filled and unchanged if it is to be read; and its
    /// source must stay open, except for [`Op::Close`].
    unsafe fn submit(&mut self, _token: Token, op: Op) -> io::Result<()> {
        let why = format!("this backend does not perform {:?}: use readiness instead", op.kind());
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// Asks that an operation end early. Its last [`Event::Done`] still comes:
    /// `ECANCELED` (`ERROR_OPERATION_ABORTED`), or the result if it was faster.
    ///
    /// A listener whose accept was cancelled may be closed as soon as this returns, and gives
    /// its address up then.
    ///
    /// # Errors
    ///
    /// `NotFound`: no operation with this token is in flight.
    fn cancel(&mut self, _token: Token) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::NotFound, "no such operation in flight"))
    }

    /// Lends `count` buffers of `size` bytes each, from `memory` on, to operations
    /// that name `group`: [`Op::RecvMulti`], or [`Op::RecvMsgMulti`], but not both. A kernel
    /// may want `count` to be a power of two.
    ///
    /// # Errors
    ///
    /// - `Unsupported`: this backend has no operation that takes a group.
    /// - `AlreadyExists`: the group is provided already.
    /// - `InvalidInput`: no such `count` or `size`.
    ///
    /// # Safety
    ///
    /// The memory must stay until [`withdraw`](Backend::withdraw) or the end of the
    /// backend. A buffer may be read only between the
    /// [`Event::Done`] that lends it and its [`recycle`](Backend::recycle).
    unsafe fn provide(
        &mut self,
        _group: u16,
        _memory: NonNull<u8>,
        _size: u32,
        _count: u16,
    ) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this backend takes no buffer groups"))
    }

    /// Gives a lent piece back. A piece that was not lent is ignored.
    fn recycle(&mut self, _lent: Lent) {}

    /// Takes a group's memory back: it is the caller's alone from then on, and the
    /// group can be provided anew.
    ///
    /// # Errors
    ///
    /// - `NotFound`: no such group is provided.
    /// - `ResourceBusy`: operations are in flight, which may take buffers of it.
    fn withdraw(&mut self, _group: u16) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::NotFound, "no such buffer group is provided"))
    }

    /// The time since some fixed moment, never going backwards.
    ///
    /// A loop takes all its time from here, so that a simulated backend can own it.
    fn now(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }

    /// A descriptor that another poller can watch for [`Ready::READ`]: readable
    /// when a wait has something to report or was woken.
    ///
    /// Changes reach the kernel at a wait, so wait with a zero timeout as long as
    /// [`has_changes`](Backend::has_changes), then sleep on the descriptor. `None` where
    /// the facility has no descriptor.
    fn raw_fd(&self) -> Option<RawSource> {
        None
    }

    /// True if the kernel does not know all that it was asked for: the next wait tells it.
    ///
    /// Until then [`raw_fd`](Backend::raw_fd) may stay silent whatever happens. A change is
    /// what was registered, modified, submitted or cancelled, and also what an event leaves to
    /// be armed again. A backend without a descriptor need not tell.
    fn has_changes(&self) -> bool {
        false
    }

    /// Makes the backend work again in a child of `fork`.
    ///
    /// The child has its own kernel objects then, with the same registrations and
    /// the same wakers; the parent notices nothing. Operations that were in
    /// flight go on in the parent alone; here they end with `ECANCELED`.
    ///
    /// # Errors
    ///
    /// As for making a new backend. Call it again, or drop the backend.
    fn after_fork(&mut self) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this backend does not survive a fork"))
    }
}
