//! Terminal handles.

use std::io;

use poll_core::{Backend, Token};

use crate::streams::{self, Flags, Kind, Stream, StreamKey};
use crate::sys::{self, AsDescriptor, Terminal};
use crate::{Loop, error};

/// A terminal that is read or written as a [`Stream`].
///
/// ```
/// use uv_core::{Handle, Loop, RunMode, Stream, Tty, TtyMode};
///
/// let mut lp = Loop::with_default_backend()?;
/// let Ok(tty) = Tty::new(&mut lp, &std::io::stdin()) else {
///     return Ok(()); // Standard input is a file or a pipe.
/// };
/// tty.set_mode(&mut lp, TtyMode::Raw)?;
/// tty.read_start(&mut lp, |lp, tty, keys| {
///     println!("{keys:?}\r");
///     if keys.map_or(true, |keys| keys.is_empty() || keys == b"q") {
///         tty.close(lp).unwrap(); // Restores the mode of the terminal.
///     }
/// })?;
/// # tty.close(&mut lp)?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
///
/// On Unix the terminal is reopened by name, so that the given descriptor stays blocking for the
/// processes that share it, such as the shell. Where that is not possible (the master of a
/// pseudo-terminal, a terminal of another user), the stream uses blocking calls, as after
/// [`set_blocking`](Stream::set_blocking).
///
/// On Windows a thread reads the console, and the thread of the loop writes to it synchronously;
/// both use UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "uv_tty_t")]
pub struct Tty(pub(crate) Token);

/// The line discipline of a terminal: see [`Tty::set_mode`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "uv_tty_mode_t")]
pub enum TtyMode {
    /// The mode at the creation of the handle: usually line by line with echo.
    #[default]
    Normal,
    /// Each key is input immediately, without echo; Ctrl-C and similar keys raise no signal. A
    /// newline in the output still returns the carriage.
    Raw,
    /// Binary transfer: neither input nor output is processed. As [`Raw`](TtyMode::Raw) on
    /// Windows.
    Io,
    /// As [`Raw`](TtyMode::Raw); on Windows, keys that are not characters are input as the escape
    /// sequences of Unix terminals.
    RawVt,
}

/// The size of a terminal's window, in characters.
///
/// ```
/// use uv_core::{Loop, Signal, Tty, WindowSize, signum};
///
/// let mut lp = Loop::with_default_backend()?;
/// let Ok(tty) = Tty::new(&mut lp, &std::io::stdout()) else {
///     return Ok(()); // Standard output is a file or a pipe.
/// };
/// let WindowSize { columns, rows } = tty.window_size(&mut lp)?;
/// println!("{columns} by {rows}");
///
/// let resized = Signal::new(&mut lp);
/// resized.start(&mut lp, signum::SIGWINCH, move |lp, _, _| {
///     println!("and now {:?}", tty.window_size(lp));
/// })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
// Exhaustive: a plain pair, which programs construct and compare.
pub struct WindowSize {
    /// The width.
    pub columns: u16,
    /// The height.
    pub rows: u16,
}

impl StreamKey for Tty {
    fn stream_key(self) -> Token {
        self.0
    }

    fn from_stream_key<B: Backend>(_lp: &Loop<B>, key: Token) -> Tty {
        Tty(key)
    }
}

impl Stream for Tty {}

impl Tty {
    /// A handle for an open terminal, usually standard input or output. It is readable and
    /// writable as far as the descriptor is.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the descriptor is not a terminal (see [`guess_handle`]), and the kernel's
    /// errors.
    #[doc(alias = "uv_tty_init")]
    #[cfg_attr(feature = "origins", track_caller)]
    pub fn new<B: Backend>(lp: &mut Loop<B>, terminal: &impl AsDescriptor) -> io::Result<Tty> {
        let Terminal { transport, readable, writable, blocking } = Terminal::open(terminal)?;
        let key = streams::new_stream(lp, Kind::Tty, None);
        let slot = lp.streams.open(key)?;
        slot.flags.set(Flags::READABLE, readable);
        slot.flags.set(Flags::WRITABLE, writable);
        slot.flags.set(Flags::BLOCKING, blocking);
        slot.socket = Some(transport);
        Ok(Tty(key))
    }

    /// Sets the mode of the terminal, for all processes that use it.
    ///
    /// The previous mode is restored when the handle is closed, when the loop is dropped, and on
    /// Unix by `exit`. In other cases call [`reset_mode`](Tty::reset_mode).
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, and the system's
    /// errors.
    #[doc(alias = "uv_tty_set_mode")]
    pub fn set_mode<B: Backend>(self, lp: &mut Loop<B>, mode: TtyMode) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        slot.socket.as_mut().ok_or_else(error::no_socket)?.set_mode(mode)
    }

    /// The size of the window. A [`Signal`](crate::Signal) of `SIGWINCH` reports changes.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, and the system's
    /// errors; on Windows also for a handle of the console's input.
    #[doc(alias = "uv_tty_get_winsize")]
    pub fn window_size<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<WindowSize> {
        let slot = lp.streams.open(self.0)?;
        slot.socket.as_ref().ok_or_else(error::no_socket)?.window_size()
    }

    /// Restores the mode of all terminals that this process has changed.
    ///
    /// For panic hooks and signal handlers that end the program: it is async-signal-safe,
    /// allocates nothing, and may be called by any thread.
    ///
    /// ```
    /// use uv_core::Tty;
    ///
    /// let print = std::panic::take_hook();
    /// std::panic::set_hook(Box::new(move |info| {
    ///     let _ = Tty::reset_mode(); // Raw mode would garble the message.
    ///     print(info);
    /// }));
    /// ```
    ///
    /// # Errors
    ///
    /// The last error that the system reports for a terminal; the other terminals are restored.
    #[doc(alias = "uv_tty_reset_mode")]
    pub fn reset_mode() -> io::Result<()> {
        sys::reset_mode()
    }
}

/// The kind of handle that fits a descriptor: see [`guess_handle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "uv_handle_type")]
pub enum HandleKind {
    /// A terminal: [`Tty`].
    Tty,
    /// A TCP socket: [`Tcp`](crate::Tcp).
    Tcp,
    /// A UDP socket: [`Udp`](crate::Udp).
    Udp,
    /// A pipe, a FIFO or a Unix domain socket.
    Pipe,
    /// A file, or a device that is not a terminal, such as `/dev/null`.
    File,
    /// Any other kind.
    Unknown,
}

/// Determines which kind of handle fits a descriptor (on Windows, a handle). Useful for the
/// standard streams, which may be redirected.
///
/// ```
/// use uv_core::{HandleKind, guess_handle};
///
/// match guess_handle(&std::io::stdout()) {
///     HandleKind::Tty => println!("interactive"),
///     other => println!("redirected to a {other:?}"),
/// }
/// ```
#[doc(alias = "uv_guess_handle")]
pub fn guess_handle(descriptor: &impl AsDescriptor) -> HandleKind {
    sys::guess(descriptor)
}
