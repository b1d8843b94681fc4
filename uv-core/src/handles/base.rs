//! The state and the methods common to all handles: active, referenced, closing.

use std::fmt;
use std::io;
#[cfg(unix)]
use std::os::fd::BorrowedFd;

use poll_core::{Backend, RawSource, Token};

use crate::handles::{
    Async, Check, FsEvent, FsPoll, Idle, Pipe, Poll, Prepare, Process, Signal, Tcp, Timer, Tty,
    Udp, error_path, lifecycle, on_close, raw,
};
use crate::storage::InlineFnOnce;
use crate::{Loop, error};

/// The common part of a handle's state: its creation number, and whether it is active, referenced
/// and closing. Packed into 32 bits because a loop may have millions of handles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base(u32);

const ACTIVE: u32 = 1;
const REFERENCED: u32 = 2;
const CLOSING: u32 = 4;
const FLAGS: u32 = ACTIVE | REFERENCED | CLOSING;
const ID_SHIFT: u32 = FLAGS.count_ones();

impl Base {
    /// The largest creation number.
    pub(crate) const LAST_ID: u32 = u32::MAX >> ID_SHIFT;

    /// A new handle: referenced, not active.
    pub(crate) fn new(id: u32) -> Base {
        debug_assert!(id <= Base::LAST_ID);
        Base(id << ID_SHIFT | REFERENCED)
    }

    /// The base of a slot that is part of another handle: unreferenced, with number 0.
    pub(crate) fn internal() -> Base {
        Base(0)
    }

    /// True if it is a handle by itself, not a part of another one.
    pub(crate) fn is_public(self) -> bool {
        self.id() != 0
    }

    /// The creation number: later handles have larger ones.
    pub(crate) fn id(self) -> u32 {
        self.0 >> ID_SHIFT
    }

    pub(crate) fn set_id(&mut self, id: u32) {
        debug_assert!(id <= Base::LAST_ID);
        self.0 = id << ID_SHIFT | self.0 & FLAGS;
    }

    pub(crate) fn is_active(self) -> bool {
        self.0 & ACTIVE != 0
    }

    pub(crate) fn is_referenced(self) -> bool {
        self.0 & REFERENCED != 0
    }

    pub(crate) fn is_closing(self) -> bool {
        self.0 & CLOSING != 0
    }

    /// Makes the handle active; `alive` counts the active and referenced handles.
    pub(crate) fn start(&mut self, alive: &mut usize) {
        if !self.is_active() {
            *alive += usize::from(self.is_referenced());
            self.0 |= ACTIVE;
        }
    }

    /// Makes the handle inactive.
    pub(crate) fn stop(&mut self, alive: &mut usize) {
        if self.is_active() {
            *alive -= usize::from(self.is_referenced());
            self.0 &= !ACTIVE;
        }
    }

    fn set_referenced(&mut self, referenced: bool, alive: &mut usize) {
        let active = self.is_active();
        self.stop(alive);
        self.0 = if referenced { self.0 | REFERENCED } else { self.0 & !REFERENCED };
        if active {
            self.start(alive);
        }
    }

    fn set_closing(&mut self) {
        self.0 |= CLOSING;
    }
}

/// A handle whose close callback is due.
#[derive(Debug)]
pub(crate) struct Closing<B: Backend> {
    pub(crate) handle: AnyHandle,
    pub(crate) callback: Option<InlineFnOnce<B, AnyHandle>>,
}

/// Marks the numbers of keys: none is 0.
const KEY: u64 = 1 << 63;

/// A key as a number.
pub(crate) const fn key_to_bits(key: Token) -> u64 {
    key.to_u64() | KEY
}

/// The key of a number. One that no key has becomes a key that no loop has.
pub(crate) const fn key_from_bits(bits: u64) -> Token {
    if bits & KEY == 0 { Token::new(u32::MAX, 0) } else { Token::from_u64(bits) }
}

/// Seals [`Handle`]: only this crate implements it.
pub(crate) mod sealed {
    pub trait Sealed {
        fn from_any(any: super::AnyHandle) -> Self;
    }
}
pub(crate) use sealed::Sealed;

macro_rules! handles {
    ($($(#[$doc:meta])* $kind:ident $name:literal;)*) => {
        /// A handle of any kind, as returned by [`Loop::walk`].
        ///
        /// ```
        /// use uv_core::{AnyHandle, Handle, Loop, Timer};
        ///
        /// let mut lp = Loop::with_default_backend()?;
        /// let timer = Timer::new(&mut lp);
        /// let any: AnyHandle = timer.into();
        /// assert_eq!(any.kind(), "timer");
        /// assert!(any.is_referenced(&lp));
        /// any.close(&mut lp)?;
        /// assert!(timer.is_closing(&lp));
        /// # std::io::Result::Ok(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[doc(alias = "uv_handle_t")]
        #[doc(alias = "uv_handle_get_type")]
        pub enum AnyHandle {
            $( $(#[$doc])* $kind($kind), )*
        }

        impl AnyHandle {
            /// The name of the handle's kind, such as `"timer"`.
            #[doc(alias = "uv_handle_type_name")]
            pub fn kind(self) -> &'static str {
                match self { $( AnyHandle::$kind(_) => $name, )* }
            }

            pub(crate) fn key(self) -> Token {
                match self { $( AnyHandle::$kind(handle) => handle.0, )* }
            }
        }

        $(
            impl From<$kind> for AnyHandle {
                fn from(handle: $kind) -> AnyHandle {
                    AnyHandle::$kind(handle)
                }
            }

            impl Sealed for $kind {
                fn from_any(any: AnyHandle) -> $kind {
                    match any {
                        AnyHandle::$kind(handle) => handle,
                        other => unreachable!("a {} is not a {}", other.kind(), $name),
                    }
                }
            }

            impl Handle for $kind {}

            impl $kind {
                /// The key as a number, to store it where only numbers fit, as in C structures. It is
                /// never 0.
                ///
                /// ```
                /// use uv_core::{Handle, Loop, Timer};
                ///
                /// let mut lp = Loop::with_default_backend()?;
                /// let timer = Timer::new(&mut lp);
                /// let bits = timer.to_bits();
                /// assert_eq!(Timer::from_bits(bits), timer);
                /// assert!(Timer::from_bits(bits + 1).stop(&mut lp).is_err(), "no such timer");
                /// # std::io::Result::Ok(())
                /// ```
                pub const fn to_bits(self) -> u64 {
                    key_to_bits(self.0)
                }

                /// Reverses [`to_bits`](Self::to_bits). Any number is a key; one that names no
                /// handle of this kind in the loop that it is used with is stale: `NotFound`.
                ///
                /// ```
                /// use uv_core::{Handle, Loop, Timer};
                ///
                /// let mut lp = Loop::with_default_backend()?;
                /// let unknown = Timer::from_bits(12345).stop(&mut lp).unwrap_err();
                /// assert_eq!(unknown.kind(), std::io::ErrorKind::NotFound);
                /// # std::io::Result::Ok(())
                /// ```
                pub const fn from_bits(bits: u64) -> $kind {
                    $kind(key_from_bits(bits))
                }
            }
        )*
    };
}

handles! {
    /// A [`Timer`].
    Timer "timer";
    /// An [`Idle`].
    Idle "idle";
    /// A [`Prepare`].
    Prepare "prepare";
    /// A [`Check`].
    Check "check";
    /// An [`Async`], or the one that a channel contains.
    Async "async";
    /// A [`Poll`].
    Poll "poll";
    /// A [`Signal`].
    Signal "signal";
    /// A [`Tcp`].
    Tcp "tcp";
    /// A [`Pipe`].
    Pipe "pipe";
    /// A [`Udp`].
    Udp "udp";
    /// An [`FsEvent`].
    FsEvent "fs_event";
    /// A [`Tty`].
    Tty "tty";
    /// A [`Process`].
    Process "process";
    /// An [`FsPoll`].
    FsPoll "fs_poll";
}

impl Sealed for AnyHandle {
    fn from_any(any: AnyHandle) -> AnyHandle {
        any
    }
}

impl Handle for AnyHandle {}

impl fmt::Display for AnyHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.key().index())
    }
}

/// The methods of all handles.
///
/// A handle is a small `Copy` key; its state lives in the loop. A key whose handle was closed is
/// stale, and using it is an error (`NotFound`).
///
/// ```
/// use std::time::Duration;
/// use uv_core::{Handle, Loop, RunMode, Timer};
///
/// let mut lp = Loop::with_default_backend()?;
/// let timer = Timer::new(&mut lp);
/// timer.start(&mut lp, Duration::from_secs(3600), Duration::ZERO, |_, _| {})?;
/// assert!(timer.is_active(&lp));
///
/// timer.unreference(&mut lp)?; // The loop does not wait for it.
/// assert!(!lp.run(RunMode::Default)?);
/// timer.reference(&mut lp)?; // Now it would.
/// assert!(lp.is_alive());
///
/// timer.close_with(&mut lp, |_, _| println!("closed"))?;
/// assert!(timer.is_closing(&lp));
/// lp.run(RunMode::Default)?;
/// assert!(timer.stop(&mut lp).is_err(), "the key is stale now");
/// # std::io::Result::Ok(())
/// ```
pub trait Handle: Copy + Into<AnyHandle> + Sealed + 'static {
    /// True while the handle is active: a timer, watcher or poll while it is started, a stream
    /// while it reads or listens, an async until it is closed. False for a stale key.
    #[doc(alias = "uv_is_active")]
    fn is_active<B: Backend>(self, lp: &Loop<B>) -> bool {
        lp.base(self.into()).is_some_and(|base| base.is_active())
    }

    /// True from the call of [`close`](Handle::close) on, and for a stale key.
    #[doc(alias = "uv_is_closing")]
    fn is_closing<B: Backend>(self, lp: &Loop<B>) -> bool {
        lp.base(self.into()).is_none_or(|base| base.is_closing())
    }

    /// Makes the handle keep the loop alive while it is active, which is the default. Idempotent.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    #[doc(alias = "uv_ref")]
    fn reference<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        set_referenced(self.into(), lp, true)
    }

    /// Lets [`Loop::run`] return while the handle is active. Idempotent.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    #[doc(alias = "uv_unref")]
    fn unreference<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        set_referenced(self.into(), lp, false)
    }

    /// True if the handle keeps the loop alive while it is active.
    #[doc(alias = "uv_has_ref")]
    fn is_referenced<B: Backend>(self, lp: &Loop<B>) -> bool {
        lp.base(self.into()).is_some_and(|base| base.is_referenced())
    }

    /// The descriptor or socket of the handle, for options that this crate does not wrap. The
    /// handle keeps ownership.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, Tcp, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, _other) = Tcp::pair(&mut lp)?;
    /// println!("{:?}", one.raw_source(&lp)?);
    /// assert!(Tcp::new(&mut lp).raw_source(&lp).is_err(), "it has none yet");
    /// assert!(Timer::new(&mut lp).raw_source(&lp).is_err(), "it has none at all");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` for kinds of handles without a descriptor,
    /// `EBADF` (`WSAEBADF`) if this handle has none yet or is closing.
    #[doc(alias = "uv_fileno")]
    fn raw_source<B: Backend>(self, lp: &Loop<B>) -> io::Result<RawSource> {
        raw::descriptor(self.into(), lp)
    }

    /// The descriptor of the handle, borrowed from the loop: no handle is closed meanwhile.
    ///
    /// ```
    /// use std::os::fd::AsRawFd;
    /// use uv_core::{Handle, Loop, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, _other) = Tcp::pair(&mut lp)?;
    /// let socket = socket2::SockRef::from(&one.borrow_fd(&lp)?).recv_buffer_size()?;
    /// println!("descriptor {} has a buffer of {socket} bytes", one.borrow_fd(&lp)?.as_raw_fd());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`raw_source`](Handle::raw_source); `InvalidInput` for a [`Poll`], whose descriptor
    /// belongs to the program.
    #[cfg(unix)]
    #[doc(alias = "uv_fileno")]
    fn borrow_fd<B: Backend>(self, lp: &Loop<B>) -> io::Result<BorrowedFd<'_>> {
        raw::borrowed(self.into(), lp)
    }

    /// The size of the kernel's send buffer, in bytes (`SO_SNDBUF`).
    ///
    /// # Errors
    ///
    /// As [`raw_source`](Handle::raw_source), but `Unsupported` for handles that are not sockets.
    #[doc(alias = "uv_send_buffer_size")]
    fn send_buffer_size<B: Backend>(self, lp: &Loop<B>) -> io::Result<usize> {
        raw::of(self.into(), lp)?.send_buffer_size()
    }

    /// Sets the size of the kernel's send buffer, in bytes (`SO_SNDBUF`). The kernel may adjust
    /// it: Linux doubles it.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, Tcp};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, _other) = Tcp::pair(&mut lp)?;
    /// one.set_send_buffer_size(&mut lp, 16 * 1024)?;
    /// assert!(one.send_buffer_size(&lp)? >= 16 * 1024);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`send_buffer_size`](Handle::send_buffer_size), `InvalidInput` for 0, and the
    /// kernel's.
    #[doc(alias = "uv_send_buffer_size")]
    fn set_send_buffer_size<B: Backend>(self, lp: &mut Loop<B>, bytes: usize) -> io::Result<()> {
        let socket = raw::of(self.into(), lp)?;
        socket.set_send_buffer_size(raw::nonzero(bytes)?)
    }

    /// The size of the kernel's receive buffer, in bytes (`SO_RCVBUF`).
    ///
    /// # Errors
    ///
    /// As [`send_buffer_size`](Handle::send_buffer_size).
    #[doc(alias = "uv_recv_buffer_size")]
    fn recv_buffer_size<B: Backend>(self, lp: &Loop<B>) -> io::Result<usize> {
        raw::of(self.into(), lp)?.recv_buffer_size()
    }

    /// Sets the size of the kernel's receive buffer, in bytes (`SO_RCVBUF`). The kernel may adjust
    /// it: Linux doubles it.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, Udp, UdpBindFlags};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBindFlags::empty())?;
    /// udp.set_recv_buffer_size(&mut lp, 64 * 1024)?;
    /// assert!(udp.recv_buffer_size(&lp)? >= 64 * 1024);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set_send_buffer_size`](Handle::set_send_buffer_size).
    #[doc(alias = "uv_recv_buffer_size")]
    fn set_recv_buffer_size<B: Backend>(self, lp: &mut Loop<B>, bytes: usize) -> io::Result<()> {
        let socket = raw::of(self.into(), lp)?;
        socket.set_recv_buffer_size(raw::nonzero(bytes)?)
    }

    /// Stops the handle immediately and frees it in the closing phase. Requests of it are cancelled:
    /// to send what a stream has queued, [`finish`](crate::Stream::finish) it.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if it is closing.
    #[doc(alias = "uv_close")]
    fn close<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        close(self.into(), lp, None)
    }

    /// As [`close`](Handle::close), and calls `callback` when the handle is closed, never before
    /// this method returns.
    ///
    /// Close callbacks of one iteration run in reverse order of the calls of `close`. A handle
    /// that is closed by a close callback calls back in the next iteration; a stream or UDP
    /// socket with operations in flight, after the last of them has completed.
    ///
    /// # Errors
    ///
    /// As [`close`](Handle::close); the callback is dropped then.
    #[doc(alias = "uv_close")]
    fn close_with<B: Backend>(
        self,
        lp: &mut Loop<B>,
        callback: impl FnOnce(&mut Loop<B>, Self) + 'static,
    ) -> io::Result<()> {
        let callback =
            InlineFnOnce::new(move |lp: &mut Loop<B>, any| callback(lp, Self::from_any(any)));
        close(self.into(), lp, Some(callback))
    }

    /// Calls `callback` when the handle is closed, for any reason: the program, an error, a
    /// [`finish`](crate::Stream::finish) that ends. So there is one place to forget a connection.
    ///
    /// It runs once, in the closing phase, after the callbacks of requests that the close has
    /// cancelled and before that of [`close_with`](Handle::close_with). The key is valid in it, and
    /// stale afterwards. A later call replaces the callback. A loop that is dropped drops it.
    ///
    /// ```
    /// use std::collections::HashSet;
    /// use uv_core::{Handle, Loop, RunMode, Stream, Tcp};
    ///
    /// #[derive(Default)]
    /// struct Open(HashSet<Tcp>);
    ///
    /// fn serve(lp: &mut Loop, peer: Tcp) -> std::io::Result<()> {
    ///     lp.state::<Open>().0.insert(peer);
    ///     peer.on_close(lp, |lp, peer| {
    ///         lp.state::<Open>().0.remove(&peer); // However it has ended.
    ///     })?;
    ///     peer.on_read(lp, |lp, peer, bytes| match bytes {
    ///         [] => Ok(peer.finish(lp)),
    ///         _ => Err(std::io::Error::other("it should be silent")),
    ///     })
    /// }
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let ((one, far_one), (two, far_two)) = (Tcp::pair(&mut lp)?, Tcp::pair(&mut lp)?);
    /// serve(&mut lp, one)?;
    /// serve(&mut lp, two)?;
    /// far_one.finish(&mut lp);
    /// far_two.send(&mut lp, "hello");
    /// # far_two.on_read(&mut lp, |lp, far, _| far.close(lp))?;
    /// lp.run(RunMode::Default)?;
    /// assert!(lp.state::<Open>().0.is_empty());
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if it is closing; the callback is dropped then.
    #[doc(alias = "uv_close")]
    fn on_close<B: Backend>(
        self,
        lp: &mut Loop<B>,
        callback: impl FnOnce(&mut Loop<B>, Self) + 'static,
    ) -> io::Result<()> {
        // With this key, not that of the close: a key of a number may have another kind.
        let callback = InlineFnOnce::new(move |lp: &mut Loop<B>, _| callback(lp, self));
        on_close::set(self.into(), lp, callback)
    }

    /// Closes the handle unless it is closing or closed.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, RunMode, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let timer = Timer::new(&mut lp);
    /// timer.close_if_open(&mut lp);
    /// timer.close_if_open(&mut lp); // It is closing.
    /// lp.run(RunMode::Default)?;
    /// timer.close_if_open(&mut lp); // It is closed.
    /// # std::io::Result::Ok(())
    /// ```
    #[doc(alias = "uv_close")]
    fn close_if_open<B: Backend>(self, lp: &mut Loop<B>) {
        let _ = self.close(lp);
    }

    /// Closes the handle, if it is open, because of an error, which the handler of
    /// [`Loop::on_error`] gets in the pending phase. The handler gets it also if the handle was
    /// closed before.
    ///
    /// ```
    /// use std::io::ErrorKind;
    /// use uv_core::{Handle, Loop, RunMode, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.on_error(|_, _, error| assert_eq!(error.kind(), ErrorKind::TimedOut));
    /// let timer = Timer::new(&mut lp);
    /// timer.fail(&mut lp, ErrorKind::TimedOut.into());
    /// lp.run(RunMode::Default)?;
    /// assert!(lp.walk().is_empty());
    /// # std::io::Result::Ok(())
    /// ```
    fn fail<B: Backend>(self, lp: &mut Loop<B>, error: io::Error) {
        let peer = error_path::peer_of(lp, self.into());
        self.close_if_open(lp);
        error_path::report_later(lp, self.into(), error, peer);
    }

    /// Calls `f`, in which `?` can be used; its error closes the handle, as
    /// [`fail`](Handle::fail) does.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uv_core::{Handle, Loop, RunMode, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// lp.on_error(|_, handle, error| eprintln!("{handle}: {error}"));
    /// let (timer, tick) = (Timer::new(&mut lp), Duration::from_millis(1));
    /// timer.start(&mut lp, tick, tick, |lp, timer| {
    ///     timer.attempt(lp, |_| {
    ///         let text = std::fs::read_to_string("/no/such/file")?;
    ///         println!("{text}");
    ///         Ok(())
    ///     });
    /// })?;
    /// lp.run(RunMode::Default)?; // Returns: the error has closed the timer.
    /// # std::io::Result::Ok(())
    /// ```
    fn attempt<B: Backend>(self, lp: &mut Loop<B>, f: impl FnOnce(&mut Loop<B>) -> io::Result<()>) {
        if let Err(error) = f(lp) {
            self.fail(lp, error);
        }
    }
}

fn set_referenced<B: Backend>(
    handle: AnyHandle,
    lp: &mut Loop<B>,
    referenced: bool,
) -> io::Result<()> {
    let (base, alive) = lp.base_mut(handle).ok_or_else(error::stale)?;
    base.set_referenced(referenced, alive);
    Ok(())
}

fn close<B: Backend>(
    handle: AnyHandle,
    lp: &mut Loop<B>,
    callback: Option<InlineFnOnce<B, AnyHandle>>,
) -> io::Result<()> {
    let (base, _) = lp.base_mut(handle).ok_or_else(error::stale)?;
    if base.is_closing() {
        return Err(error::closing());
    }
    lifecycle::stop(lp, handle);
    if let Some((base, alive)) = lp.base_mut(handle) {
        base.stop(alive);
        base.set_closing();
    }
    lifecycle::schedule_close(lp, Closing { handle, callback });
    Ok(())
}
