//! Terminals.

use std::io;

use poll_core::{Backend, Token};

use crate::streams::{Flags, Kind, Stream, StreamKey};
use crate::sys::{self, AsDescriptor, Terminal};
use crate::{Loop, error};

/// A terminal, to read or to write. A [`Stream`].
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
///         tty.close(lp).unwrap(); // The terminal is as it was before.
///     }
/// })?;
/// # tty.close(&mut lp)?;
/// lp.run(RunMode::Default)?;
/// # std::io::Result::Ok(())
/// ```
///
/// On Unix the terminal is opened anew, so that the descriptor that it was made from stays as
/// it is: others who have it, such as the shell, are not disturbed. Where that is not possible
/// (the master of a pseudo-terminal, a terminal of another user), the stream's own calls wait,
/// as if [`set_blocking`](Stream::set_blocking) had been called.
///
/// On Windows a console is read by a thread, and written at once by the thread of the loop;
/// both speak UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tty(pub(crate) Token);

/// How a terminal treats what is typed and shown: see [`Tty::set_mode`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TtyMode {
    /// As it was when the handle was made: usually, line by line with an echo.
    #[default]
    Normal,
    /// Keys come as they are typed, without an echo; Ctrl-C and its like are keys. Lines that
    /// are written still begin at the left.
    Raw,
    /// Nothing is interpreted either way, for a terminal that is used as a wire. As
    /// [`Raw`](TtyMode::Raw) on Windows.
    Io,
    /// As [`Raw`](TtyMode::Raw); on Windows also keys that are no characters come, as the
    /// escape sequences that Unix terminals send for them.
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
pub struct WindowSize {
    /// How many fit side by side.
    pub columns: u16,
    /// How many lines there are.
    pub rows: u16,
}

impl StreamKey for Tty {
    fn stream_key(self) -> Token {
        self.0
    }

    fn from_stream_key(key: Token) -> Tty {
        Tty(key)
    }

    fn prepare_listen<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<()> {
        lp.streams.open(self.0)?;
        let why = "nobody connects to a terminal";
        Err(io::Error::new(io::ErrorKind::InvalidInput, why))
    }
}

impl Stream for Tty {}

impl Tty {
    /// A handle for a terminal that is open: standard input or output, usually. It can be read
    /// or written if that can.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if it is no terminal ([`guess_handle`] says what it is), and the
    /// kernel's.
    pub fn new<B: Backend>(lp: &mut Loop<B>, terminal: &impl AsDescriptor) -> io::Result<Tty> {
        let Terminal { transport, readable, writable, blocking } = Terminal::open(terminal)?;
        let key = lp.new_stream(Kind::Tty, None);
        let slot = lp.streams.open(key)?;
        slot.flags.set(Flags::READABLE, readable);
        slot.flags.set(Flags::WRITABLE, writable);
        slot.flags.set(Flags::BLOCKING, blocking);
        slot.socket = Some(transport);
        Ok(Tty(key))
    }

    /// Changes how the terminal treats what is typed and shown, for all who use it.
    ///
    /// Closing the handle changes it back, and so does dropping the loop, and `exit` on Unix.
    /// Where neither happens, [`reset_mode`](Tty::reset_mode) does it.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, and the system's.
    pub fn set_mode<B: Backend>(self, lp: &mut Loop<B>, mode: TtyMode) -> io::Result<()> {
        let slot = lp.streams.open(self.0)?;
        slot.socket.as_mut().ok_or_else(error::not_connected)?.set_mode(mode)
    }

    /// The size of the window. [`Signal`](crate::Signal) tells of changes, as `SIGWINCH`.
    ///
    /// # Errors
    ///
    /// `NotFound` for a stale key, `InvalidInput` if the handle is closing, and the system's;
    /// on Windows for a handle of the input.
    pub fn window_size<B: Backend>(self, lp: &mut Loop<B>) -> io::Result<WindowSize> {
        let slot = lp.streams.open(self.0)?;
        slot.socket.as_ref().ok_or_else(error::not_connected)?.window_size()
    }

    /// Makes all terminals whose mode this process has changed as they were before.
    ///
    /// For panic hooks and signal handlers that end the program: it takes no memory, and may
    /// be called by any thread at any time.
    ///
    /// ```
    /// use uv_core::Tty;
    ///
    /// let print = std::panic::take_hook();
    /// std::panic::set_hook(Box::new(move |info| {
    ///     let _ = Tty::reset_mode(); // So that the message can be read.
    ///     print(info);
    /// }));
    /// ```
    ///
    /// # Errors
    ///
    /// The last of those that the system reports for a terminal; the others are restored.
    pub fn reset_mode() -> io::Result<()> {
        sys::reset_mode()
    }
}

/// What a descriptor or handle is good for: see [`guess_handle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Guess {
    /// A terminal: [`Tty`].
    Tty,
    /// A TCP socket: [`Tcp`](crate::Tcp).
    Tcp,
    /// A UDP socket: [`Udp`](crate::Udp).
    Udp,
    /// A pipe, a FIFO or a Unix domain socket.
    Pipe,
    /// A file, or a device that is no terminal, such as `/dev/null`.
    File,
    /// Something else.
    Unknown,
}

/// Looks at what a descriptor (a handle on Windows) is, to know what to make of it. Mostly for
/// standard input and output, which are whatever they were redirected to.
///
/// ```
/// use uv_core::{Guess, guess_handle};
///
/// match guess_handle(&std::io::stdout()) {
///     Guess::Tty => println!("somebody may be looking"),
///     other => println!("going to a {other:?}"),
/// }
/// ```
pub fn guess_handle(descriptor: &impl AsDescriptor) -> Guess {
    sys::guess(descriptor)
}
