//! What all handles have in common: being active, keeping the loop alive, closing.

use std::fmt;
use std::io;

use poll_core::{Backend, RawSource, Token};

use crate::callback::Once;
use crate::handles::sockets;
use crate::handles::{
    Async, Check, FsEvent, FsPoll, Idle, Pipe, Poll, Prepare, Process, Signal, Tcp, Timer, Tty, Udp,
};
use crate::{Loop, error};

/// The part of a handle's state that the loop itself looks at: when it was made, and
/// whether it is active, referenced and closing. Half a word, as there may be millions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base(u32);

const ACTIVE: u32 = 1;
const REFERENCED: u32 = 2;
const CLOSING: u32 = 4;
const FLAGS: u32 = ACTIVE | REFERENCED | CLOSING;
const BORN_SHIFT: u32 = FLAGS.count_ones();

impl Base {
    /// The largest number that a handle can have.
    pub(crate) const LAST_BORN: u32 = u32::MAX >> BORN_SHIFT;

    /// A new handle: referenced, not active.
    pub(crate) fn new(born: u32) -> Base {
        debug_assert!(born <= Base::LAST_BORN);
        Base(born << BORN_SHIFT | REFERENCED)
    }

    /// A part of another handle: not referenced, and of no number.
    pub(crate) fn internal() -> Base {
        Base(0)
    }

    /// True if it is a handle of its own.
    pub(crate) fn is_ones_own(self) -> bool {
        self.born() != 0
    }

    /// A number that is larger the later the handle was made.
    pub(crate) fn born(self) -> u32 {
        self.0 >> BORN_SHIFT
    }

    pub(crate) fn set_born(&mut self, born: u32) {
        debug_assert!(born <= Base::LAST_BORN);
        self.0 = born << BORN_SHIFT | self.0 & FLAGS;
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

    /// Makes the handle active; `alive` counts those that are active and referenced.
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
    pub(crate) callback: Option<Once<B, AnyHandle>>,
}

/// Only this crate has handles.
pub(crate) mod sealed {
    pub trait Sealed {
        fn from_any(any: super::AnyHandle) -> Self;
    }
}
pub(crate) use sealed::Sealed;

macro_rules! handles {
    ($($(#[$doc:meta])* $kind:ident $name:literal;)*) => {
        /// A handle of any kind: what [`Loop::walk`] gives.
        ///
        /// ```
        /// use uv_core::{AnyHandle, Handle, Loop, Timer};
        ///
        /// let mut lp = Loop::with_default_backend()?;
        /// let timer = Timer::new(&mut lp);
        /// let any: AnyHandle = timer.into();
        /// assert_eq!(any.kind(), "timer");
        /// assert!(any.has_ref(&lp));
        /// any.close(&mut lp)?;
        /// assert!(timer.is_closing(&lp));
        /// # std::io::Result::Ok(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum AnyHandle {
            $( $(#[$doc])* $kind($kind), )*
        }

        impl AnyHandle {
            /// What kind of handle this is, in one word.
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
                        other => unreachable!("a {} is no {}", other.kind(), $name),
                    }
                }
            }

            impl Handle for $kind {}
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
    /// An [`Async`], or the one inside a channel.
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

/// What every handle can do.
///
/// Handles are small keys: copy them freely. Their state lives in the loop, and a key
/// whose handle is gone is an error (`NotFound`) wherever it is used, never a crash.
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
/// timer.unreference(&mut lp)?; // The loop does not wait for it any more.
/// assert!(!lp.run(RunMode::Default)?);
/// timer.reference(&mut lp)?; // And now it would.
/// assert!(lp.alive());
///
/// timer.close_with(&mut lp, |_, _| println!("closed"))?;
/// assert!(timer.is_closing(&lp));
/// lp.run(RunMode::Default)?;
/// assert!(timer.stop(&mut lp).is_err(), "the key is stale now");
/// # std::io::Result::Ok(())
/// ```
pub trait Handle: Copy + Into<AnyHandle> + Sealed + 'static {
    /// True while the handle does something: a timer or watcher that is started, a
    /// poll that is started, an async until it is closed. False for a stale key.
    fn is_active<B: Backend>(self, lp: &Loop<B>) -> bool {
        lp.base(self.into()).is_some_and(|base| base.is_active())
    }

    /// True once the handle was closed: until its close callback has run, and for a
    /// stale key too.
    fn is_closing<B: Backend>(self, lp: &Loop<B>) -> bool {
        lp.base(self.into()).is_none_or(|base| base.is_closing())
    }

    /// Makes the handle keep the loop alive while it is active, which is how it begins.
    /// Doing it twice changes nothing.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    fn reference<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        set_referenced(self.into(), lp, true)
    }

    /// Lets the loop end while the handle is active. Doing it twice changes nothing.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key.
    fn unreference<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        set_referenced(self.into(), lp, false)
    }

    /// True if the handle keeps the loop alive while it is active.
    fn has_ref<B: Backend>(self, lp: &Loop<B>) -> bool {
        lp.base(self.into()).is_some_and(|base| base.is_referenced())
    }

    /// The descriptor or socket behind the handle, to look at it or to set options that this
    /// crate has no words for. It stays the handle's.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, Tcp, Timer};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let (one, _other) = Tcp::pair(&mut lp)?;
    /// println!("{:?}", one.descriptor(&lp)?);
    /// assert!(Tcp::new(&mut lp).descriptor(&lp).is_err(), "it has none yet");
    /// assert!(Timer::new(&mut lp).descriptor(&lp).is_err(), "it has none at all");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` for kinds of handles that have none, `EBADF`
    /// (`WSAEBADF`) if this one has none, not yet or not any more.
    #[doc(alias = "uv_fileno")]
    fn descriptor<B: Backend>(self, lp: &Loop<B>) -> io::Result<RawSource> {
        sockets::descriptor(self.into(), lp)
    }

    /// How much the kernel keeps for the socket of what was not sent yet, in bytes.
    ///
    /// # Errors
    ///
    /// As [`descriptor`](Handle::descriptor), but `Unsupported` for whatever has no socket.
    #[doc(alias = "uv_send_buffer_size")]
    fn send_buffer_size<B: Backend>(self, lp: &Loop<B>) -> io::Result<usize> {
        sockets::of(self.into(), lp)?.send_buffer_size()
    }

    /// Changes how much the kernel keeps of what was not sent yet. It may have limits, and ideas
    /// of its own: Linux takes twice as much.
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
    fn set_send_buffer_size<B: Backend>(self, lp: &mut Loop<B>, bytes: usize) -> io::Result<()> {
        let socket = sockets::of(self.into(), lp)?;
        socket.set_send_buffer_size(sockets::some(bytes)?)
    }

    /// How much the kernel keeps for the socket of what was not read yet, in bytes.
    ///
    /// # Errors
    ///
    /// As [`send_buffer_size`](Handle::send_buffer_size).
    #[doc(alias = "uv_recv_buffer_size")]
    fn recv_buffer_size<B: Backend>(self, lp: &Loop<B>) -> io::Result<usize> {
        sockets::of(self.into(), lp)?.recv_buffer_size()
    }

    /// Changes how much the kernel keeps of what was not read yet, as
    /// [`set_send_buffer_size`](Handle::set_send_buffer_size) does for the other direction.
    ///
    /// ```
    /// use uv_core::{Handle, Loop, Udp, UdpBind};
    ///
    /// let mut lp = Loop::with_default_backend()?;
    /// let udp = Udp::new(&mut lp);
    /// udp.bind(&mut lp, "127.0.0.1:0".parse().unwrap(), UdpBind::empty())?;
    /// udp.set_recv_buffer_size(&mut lp, 64 * 1024)?; // For more datagrams at once.
    /// assert!(udp.recv_buffer_size(&lp)? >= 64 * 1024);
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`set_send_buffer_size`](Handle::set_send_buffer_size).
    fn set_recv_buffer_size<B: Backend>(self, lp: &mut Loop<B>, bytes: usize) -> io::Result<()> {
        let socket = sockets::of(self.into(), lp)?;
        socket.set_recv_buffer_size(sockets::some(bytes)?)
    }

    /// Stops the handle at once and frees it in the closing phase.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if it is closing already.
    fn close<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        close(self.into(), lp, None)
    }

    /// As [`close`](Handle::close); then calls `callback`, never before this returns.
    ///
    /// Close callbacks of one iteration run in reverse order of closing; a handle that
    /// is closed by one of them is told of in the next iteration. A stream or a UDP socket
    /// that has operations in flight is told of when the last of them has ended.
    ///
    /// # Errors
    ///
    /// As [`close`](Handle::close); the callback is dropped then.
    fn close_with<B: Backend>(
        self,
        lp: &mut Loop<B>,
        callback: impl FnOnce(&mut Loop<B>, Self) + 'static,
    ) -> io::Result<()> {
        let callback = Once::new(move |lp: &mut Loop<B>, any| callback(lp, Self::from_any(any)));
        close(self.into(), lp, Some(callback))
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
    callback: Option<Once<B, AnyHandle>>,
) -> io::Result<()> {
    let (base, _) = lp.base_mut(handle).ok_or_else(error::stale)?;
    if base.is_closing() {
        return Err(error::closing());
    }
    lp.stop_handle(handle);
    if let Some((base, alive)) = lp.base_mut(handle) {
        base.stop(alive);
        base.set_closing();
    }
    lp.schedule_close(Closing { handle, callback });
    Ok(())
}
