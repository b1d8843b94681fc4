//! Consoles.
//!
//! They cannot be polled: a thread reads one while its stream wants to be read, and passes on
//! what it gets by a socket, which every backend can poll. Writing waits for the console.

mod modes;
mod reader;
mod text;

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::ptr;
use std::sync::Arc;

use socket2::Domain;
use windows_sys::Win32::Storage::FileSystem::{
    FILE_TYPE_CHAR, FILE_TYPE_DISK, FILE_TYPE_PIPE, GetFileType,
};
use windows_sys::Win32::System::Console::{
    CONSOLE_SCREEN_BUFFER_INFO, GetConsoleScreenBufferInfo, GetNumberOfConsoleInputEvents,
    WriteConsoleW,
};

use super::{Transport, socket_pair, stream_socket};
use crate::handles::{Guess, TtyMode, WindowSize};

use modes::Modes;
use reader::Reader;
use text::ToUtf16;

pub(crate) use modes::reset_mode;
/// What has a handle: [`Tty::new`](crate::Tty::new) takes one.
pub(crate) use std::os::windows::io::AsHandle as AsDescriptor;

/// A console that was opened for a stream.
#[derive(Debug)]
pub(crate) struct Terminal {
    pub(crate) transport: Transport,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// Its socket does not block, and its writing always does.
    pub(crate) blocking: bool,
}

/// The side of a console, input or output, that a stream is for.
#[derive(Debug)]
pub(super) struct Console {
    /// Ends when dropped; only of the input.
    reader: Option<Reader>,
    /// Restores the mode when dropped.
    modes: Modes,
    handle: Arc<OwnedHandle>,
    /// Characters that were written in part.
    unwritten: RefCell<ToUtf16>,
}

impl Terminal {
    /// Takes a handle of its own of the console behind `descriptor`.
    pub(crate) fn open(descriptor: &impl AsDescriptor) -> io::Result<Terminal> {
        let Some(mode) = modes::mode(descriptor.as_handle().as_raw_handle()) else {
            let why = "not a console: files, pipes and sockets have handles of their own, \
                       and guess_handle() says which";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        let handle = Arc::new(descriptor.as_handle().try_clone_to_owned()?);
        let mut events = 0;
        // SAFETY: a wrong handle is an error; writes one number.
        let of_input =
            unsafe { GetNumberOfConsoleInputEvents(handle.as_raw_handle(), &raw mut events) } != 0;
        let mut modes = Modes::new(&handle, mode, of_input);
        let (socket, reader) = if of_input {
            let (near, far) = socket_pair()?;
            (near, Some(Reader::new(&handle, far)?))
        } else {
            modes.understand_escapes();
            // Never used: what is written goes to the console.
            (stream_socket(Domain::IPV4)?, None)
        };
        let unwritten = RefCell::default();
        let console = Console { reader, modes, handle, unwritten };
        let transport = Transport::of_console(console, socket);
        Ok(Terminal { transport, readable: of_input, writable: !of_input, blocking: false })
    }
}

impl Console {
    /// The stream begins to wait for input, or ceases to.
    pub(super) fn wait_to_read(&self, waits: bool) {
        if let Some(reader) = &self.reader {
            reader.wants(waits);
        }
    }

    /// Writes all of it.
    pub(super) fn write(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut unwritten = self.unwritten.borrow_mut();
        let mut total = 0;
        for buf in bufs {
            unwritten.convert(buf, |text| write_all(&self.handle, text))?;
            total += buf.len();
        }
        Ok(total)
    }
}

fn write_all(handle: &OwnedHandle, mut text: &[u16]) -> io::Result<()> {
    while !text.is_empty() {
        let (start, length, mut written) = (text.as_ptr(), text.len() as u32, 0);
        let console = handle.as_raw_handle();
        // SAFETY: reads `length` units of `text` and writes one number.
        let done =
            unsafe { WriteConsoleW(console, start.cast(), length, &raw mut written, ptr::null()) };
        if done == 0 {
            return Err(io::Error::last_os_error());
        }
        text = &text[(written as usize).min(text.len())..];
    }
    Ok(())
}

impl Transport {
    /// Sets the mode of a console.
    pub(crate) fn set_mode(&mut self, mode: TtyMode) -> io::Result<()> {
        let console = self.console.as_mut().ok_or_else(|| io::Error::from(NOT_A_CONSOLE))?;
        console.modes.set(mode)?;
        if let Some(reader) = &console.reader {
            // A line that is being typed would keep the old mode.
            reader.begin_anew();
        }
        Ok(())
    }

    /// The size of the console's window, in characters.
    pub(crate) fn window_size(&self) -> io::Result<WindowSize> {
        let console = self.console.as_ref().ok_or_else(|| io::Error::from(NOT_A_CONSOLE))?;
        let mut info = MaybeUninit::<CONSOLE_SCREEN_BUFFER_INFO>::uninit();
        let handle = console.handle.as_raw_handle();
        // SAFETY: a wrong handle is an error; the structure is written otherwise.
        if unsafe { GetConsoleScreenBufferInfo(handle, info.as_mut_ptr()) } == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: written by the call.
        let window = unsafe { info.assume_init() }.srWindow;
        let span = |from: i16, to: i16| u16::try_from(i32::from(to) - i32::from(from) + 1);
        let columns = span(window.Left, window.Right).unwrap_or(0);
        Ok(WindowSize { columns, rows: span(window.Top, window.Bottom).unwrap_or(0) })
    }
}

const NOT_A_CONSOLE: io::ErrorKind = io::ErrorKind::InvalidInput;

/// What a handle is.
pub(crate) fn guess(descriptor: &impl AsDescriptor) -> Guess {
    let handle = descriptor.as_handle().as_raw_handle();
    // SAFETY: a wrong handle is of an unknown type.
    match unsafe { GetFileType(handle) } {
        FILE_TYPE_CHAR if modes::mode(handle).is_some() => Guess::Tty,
        FILE_TYPE_CHAR | FILE_TYPE_DISK => Guess::File,
        FILE_TYPE_PIPE => Guess::Pipe,
        _ => Guess::Unknown,
    }
}
