//! The trait that every backend implements.

use std::io;
use std::ptr::NonNull;
use std::time::Duration;

use crate::{BufferLease, Event, Interest, Mode, Op, OpKind, RawSource, Token, Wake};

/// A source of readiness events and, optionally, of completed operations.
///
/// Every backend reports readiness: five methods are required, and a backend with these
/// is complete. Completion is optional, operation by operation;
/// [`supports`](Backend::supports) returns which operations a backend performs.
///
/// The [contract](crate::contract) lists the guarantees of each method, by number.
///
/// # Safety
///
/// Callers free memory and take ownership of descriptors because a backend's events allow it, so
/// an implementation guarantees the following. The rest of the contract is about correctness: a
/// backend that breaks it makes a program wrong, but not unsound.
///
/// - **New sources.** The `Ok` result of [`Op::Accept`], [`Op::AcceptMulti`] and [`Op::OpenAt`] is
///   a source that is open, that no other code owns, and that the backend neither uses nor closes
///   after it has reported it. The caller owns it from that event on.
/// - **Operations.** After a successful [`submit`](Backend::submit), exactly one [`Event::Done`]
///   with `more: false` carries the token. Neither the kernel nor the backend accesses the memory
///   or the source of the operation after that event, after a `submit` that failed, or after the
///   backend is dropped: its destructor ends every operation first. Until the final event the
///   backend writes only to memory that the operation is to fill, and the count in a result covers
///   bytes that were written.
/// - **Buffer groups.** A [`BufferLease`] piece lies, with the length that its event reports, within the
///   buffer that it names, of a group that is provided. All its bytes are initialized, no other
///   piece overlaps it, and it is not written to until [`release_buffer`](Backend::release_buffer). After a
///   successful [`unregister_buffers`](Backend::unregister_buffers), and after the backend is dropped, the group's
///   memory is not accessed.
/// - **Registrations.** After [`deregister`](Backend::deregister) returns, with or without an
///   error, and after the backend is dropped, neither the kernel nor the backend refers to the
///   source on behalf of the token: the number may be closed and reused. The backend never closes
///   a registered source, and closes a submitted one only for [`Op::Close`].
/// - **Descriptor.** The source that [`raw_source`](Backend::raw_source) returns stays open as long as the
///   backend, unless [`after_fork`](Backend::after_fork) replaces it.
/// - **Panics.** All of this holds if a method panics.
///
/// For a backend without operations and buffer groups only the last three points apply. A backend
/// that wraps another and forwards its events unchanged keeps them all.
///
/// Without the keyword a backend does not compile:
///
/// ```compile_fail,E0200
/// use std::{io, time::Duration};
/// use poll_core::{Backend, Event, Interest, Mode, Op, OpKind, RawSource, Token, Wake};
///
/// #[derive(Clone)]
/// struct NoWaker;
/// impl Wake for NoWaker {
///     fn wake(&self) -> io::Result<()> { Ok(()) }
/// }
///
/// /// Reports that it has accepted descriptor 0, which it does not own.
/// struct Forger(Option<Token>);
/// impl Backend for Forger {
///     type Waker = NoWaker;
///     fn waker(&self) -> NoWaker { NoWaker }
///     unsafe fn register(&mut self, _: Token, _: RawSource, _: Interest, _: Mode)
///         -> io::Result<()> { Ok(()) }
///     fn modify(&mut self, _: Token, _: Interest, _: Mode) -> io::Result<()> { Ok(()) }
///     fn deregister(&mut self, _: Token) -> io::Result<()> { Ok(()) }
///     fn wait(&mut self, _: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
///         let accepted = |token| Event::Done { token, result: Ok(0), more: false, lease: None };
///         events.extend(self.0.take().map(accepted));
///         Ok(())
///     }
///     fn supports(&self, kind: OpKind) -> bool { kind == OpKind::Accept }
///     unsafe fn submit(&mut self, token: Token, _: Op) -> io::Result<()> {
///         self.0 = Some(token);
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a backend",
    label = "this is not a `Backend`",
    note = "a constructor returns a `Result`: pass its value, as in `Loop::new(Epoll::new()?)`",
    note = "a function that works on every backend has the bound `B: Backend`",
    note = "a backend of your own is `unsafe impl Backend for {Self}`, with five methods: begin with a copy of `poll-core/docs/minimal.rs`"
)]
pub unsafe trait Backend: Send + 'static {
    /// The type of the handle that interrupts [`wait`](Backend::wait).
    type Waker: Wake;

    /// The name of the backend, for messages and reports: `epoll`, `uring`. By default it is the
    /// name of the type.
    ///
    /// ```
    /// fn report<B: poll_core::Backend>(backend: &B) -> String {
    ///     format!("running on {}", backend.name())
    /// }
    /// ```
    fn name(&self) -> &'static str {
        std::any::type_name::<Self>()
    }

    /// Returns a handle that interrupts [`wait`](Backend::wait) from another thread.
    fn waker(&self) -> Self::Waker;

    /// Starts watching `source`.
    ///
    /// The registration reaches the kernel no later than the next wait. An `interest` of
    /// [`Interest::NONE`] reserves the token and the source without watching any condition.
    ///
    /// # Errors
    ///
    /// Nothing is registered after an error.
    /// - `AlreadyExists`: the token's index, or the source, is registered.
    /// - `Unsupported`: this backend has no [`Mode::Edge`], or cannot report
    ///   [`Interest::PRIORITY`] or [`Interest::DISCONNECT`].
    /// - The kernel's own (`EBADF`, `EPERM` for a regular file, `ENOMEM`…), from
    ///   backends that register immediately. The others report
    ///   [`Readiness::ERROR`](crate::Readiness::ERROR) later.
    ///
    /// # Safety
    ///
    /// `source` must stay open until [`deregister`](Backend::deregister) returns
    /// or the backend is dropped.
    unsafe fn register(
        &mut self,
        token: Token,
        source: RawSource,
        interest: Interest,
        mode: Mode,
    ) -> io::Result<()>;

    /// Replaces interest and mode, and re-arms a [`Mode::Oneshot`] registration that has fired.
    ///
    /// A condition that holds already is reported again, in every mode. Several
    /// changes to one source between two waits cost at most one system call.
    ///
    /// # Errors
    ///
    /// Nothing is changed after an error.
    /// - `NotFound`: the token is unknown or stale.
    /// - `Unsupported`: as for [`register`](Backend::register).
    fn modify(&mut self, token: Token, interest: Interest, mode: Mode) -> io::Result<()>;

    /// Stops watching a source: no later wait reports the token, and the source
    /// may be closed as soon as this returns.
    ///
    /// # Errors
    ///
    /// `NotFound`: the token is unknown or stale.
    fn deregister(&mut self, token: Token) -> io::Result<()>;

    /// Flushes changes to the kernel, waits for events until `timeout` has fully passed, and
    /// appends the events to `events`.
    ///
    /// `None` waits for ever, zero does not block. Without an event it returns before the
    /// timeout only after a wake or a signal.
    ///
    /// # Errors
    ///
    /// Only failures of the backend as a whole. A source that fails is reported by
    /// [`Readiness::ERROR`](crate::Readiness::ERROR), an operation that fails by [`Event::Done`].
    fn wait(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()>;

    /// True if [`submit`](Backend::submit) performs operations of this kind on this kernel.
    fn supports(&self, _kind: OpKind) -> bool {
        false
    }

    /// Starts an operation. It never completes inline: exactly one
    /// [`Event::Done`] with `more: false` follows, also if it fails or is cancelled.
    ///
    /// # Errors
    ///
    /// Nothing was started after an error, and no event follows.
    /// - `Unsupported`: [`supports`](Backend::supports) returns false for the operation.
    /// - `AlreadyExists`: an operation with this token is in flight.
    ///
    /// # Safety
    ///
    /// All memory that `op` names must stay valid until that event. No other code may access
    /// memory that the operation fills, or write to memory that it reads. The source must stay
    /// open, except for [`Op::Close`].
    unsafe fn submit(&mut self, _token: Token, op: Op) -> io::Result<()> {
        let why = format!("this backend does not perform {:?}: use readiness instead", op.kind());
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// Requests that an operation end early. Its last [`Event::Done`] still follows, with
    /// `ECANCELED` (`ERROR_OPERATION_ABORTED`), or with the result if it completed first.
    ///
    /// A listener whose accept was cancelled may be closed as soon as this returns, and its
    /// address is free then.
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
    /// - `AlreadyExists`: the group is registered already.
    /// - `InvalidInput`: the kernel does not accept this `count` or `size`.
    ///
    /// # Safety
    ///
    /// The memory must stay valid until [`unregister_buffers`](Backend::unregister_buffers) returns
    /// or the backend is dropped. A buffer may be read only between the [`Event::Done`] that lends
    /// it and its [`release_buffer`](Backend::release_buffer).
    unsafe fn register_buffers(
        &mut self,
        _group: u16,
        _memory: NonNull<u8>,
        _size: u32,
        _count: u16,
    ) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this backend takes no buffer groups"))
    }

    /// Returns a leased piece of a buffer. A piece that is not leased is ignored.
    fn release_buffer(&mut self, _lease: BufferLease) {}

    /// Ends the lending of a group's memory: only the caller accesses it from then on, and the
    /// group can be registered again.
    ///
    /// # Errors
    ///
    /// - `NotFound`: no such group is provided.
    /// - `ResourceBusy`: operations that may take its buffers are in flight.
    fn unregister_buffers(&mut self, _group: u16) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::NotFound, "no such buffer group is registered"))
    }

    /// Returns the monotonic time, which never goes backwards.
    ///
    /// A loop takes all its time from here, so that a simulated backend can provide it. By
    /// default this is the clock of [`Instant`](std::time::Instant), counted from the kernel's
    /// own origin: `CLOCK_MONOTONIC` on Unix, `QueryPerformanceCounter` on Windows. So all
    /// backends and programs on one machine agree on it.
    #[inline]
    fn now(&self) -> Duration {
        crate::clock::monotonic()
    }

    /// Returns a descriptor that another poller can watch for [`Interest::READ`]: it is readable
    /// when a wait has events to report or was woken.
    ///
    /// Changes reach the kernel at a wait, so wait with a zero timeout while
    /// [`has_unflushed_changes`](Backend::has_unflushed_changes), then block on the descriptor.
    /// `None` where the facility has no descriptor.
    fn raw_source(&self) -> Option<RawSource> {
        None
    }

    /// True if changes wait to be flushed to the kernel by the next wait.
    ///
    /// Until then [`raw_source`](Backend::raw_source) may not become readable for any event. A
    /// change is a registration, modification, submission or cancellation, and a registration
    /// that an event left to be armed again. A backend without a descriptor may return false.
    fn has_unflushed_changes(&self) -> bool {
        false
    }

    /// Makes the backend work again in a child of `fork`.
    ///
    /// The child then has its own kernel objects, with the same registrations and
    /// the same wakers; the parent is not affected. Operations that were in flight
    /// continue in the parent only; in the child they end with `ECANCELED`.
    ///
    /// The typical mistake is a waker whose eventfd or pipe is left as it was: a fork duplicates the
    /// descriptor, and both processes signal and drain one counter. A wake of the child then ends a
    /// wait of the parent, which drains it, and the child sleeps on. Create a new one here, and give
    /// it the old descriptor number by `dup2`, for the wakers that were cloned before the fork:
    /// [`SocketWaker::after_fork`](crate::SocketWaker::after_fork) does. An epoll instance and a ring
    /// are shared in the same way.
    ///
    /// # Errors
    ///
    /// As for creating a new backend. Call it again, or drop the backend.
    fn after_fork(&mut self) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "this backend does not survive a fork"))
    }
}
