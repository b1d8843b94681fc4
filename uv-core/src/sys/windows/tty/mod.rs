//! Consoles.
//!
//! They cannot be polled: a thread reads the console while its stream reads, and forwards the input
//! through a socket pair, which every backend can poll. Writes block.

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
use crate::handles::{HandleKind, TtyMode, WindowSize};

use modes::Modes;
use reader::Reader;
use text::ToUtf16;

pub(crate) use modes::reset_mode;
/// The argument of [`Tty::new`](crate::Tty::new): an object with a handle.
pub(crate) use std::os::windows::io::AsHandle as AsDescriptor;

/// A console opened for a stream.
#[derive(Debug)]
pub(crate) struct Terminal {
    pub(crate) transport: Transport,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// False: the socket is non-blocking, though writes to the console block.
    pub(crate) blocking: bool,
}

/// The input or the output of a console.
#[derive(Debug)]
pub(super) struct Console {
    /// The reader thread of an input; it exits when this is dropped.
    reader: Option<Reader>,
    /// Restores the mode when dropped.
    modes: Modes,
    handle: Arc<OwnedHandle>,
    /// The bytes of an incomplete character.
    unwritten: RefCell<ToUtf16>,
}

impl Terminal {
    /// Duplicates the handle of the console behind `descriptor`.
    pub(crate) fn open(descriptor: &impl AsDescriptor) -> io::Result<Terminal> {
        let Some(mode) = modes::mode(descriptor.as_handle().as_raw_handle()) else {
            let why = "not a console: use the handle type that guess_handle() returns, \
                       for files, pipes and sockets";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        let handle = Arc::new(descriptor.as_handle().try_clone_to_owned()?);
        let mut events = 0;
        // SAFETY: an invalid handle is an error; the call writes one number.
        let of_input =
            unsafe { GetNumberOfConsoleInputEvents(handle.as_raw_handle(), &raw mut events) } != 0;
        let mut modes = Modes::new(&handle, mode, of_input);
        let (socket, reader) = if of_input {
            let (near, far) = socket_pair()?;
            (near, Some(Reader::new(&handle, far)?))
        } else {
            modes.understand_escapes();
            // A placeholder: writes go to the console.
            (stream_socket(Domain::IPV4)?, None)
        };
        let unwritten = RefCell::default();
        let console = Console { reader, modes, handle, unwritten };
        let transport = Transport::of_console(console, socket);
        Ok(Terminal { transport, readable: of_input, writable: !of_input, blocking: false })
    }
}

impl Console {
    /// Starts or stops the reader thread's reads.
    pub(super) fn wait_to_read(&self, waits: bool) {
        if let Some(reader) = &self.reader {
            reader.set_wanted(waits);
        }
    }

    /// Writes all buffers.
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
        // SAFETY: the call reads `length` units of `text` and writes one number.
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
            // A pending line read would continue in the old mode.
            reader.discard_line();
        }
        Ok(())
    }

    /// The size of the console's window, in characters.
    pub(crate) fn window_size(&self) -> io::Result<WindowSize> {
        let console = self.console.as_ref().ok_or_else(|| io::Error::from(NOT_A_CONSOLE))?;
        let mut info = MaybeUninit::<CONSOLE_SCREEN_BUFFER_INFO>::uninit();
        let handle = console.handle.as_raw_handle();
        // SAFETY: an invalid handle is an error; the call writes only the structure.
        if unsafe { GetConsoleScreenBufferInfo(handle, info.as_mut_ptr()) } == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the successful call has written the structure.
        let window = unsafe { info.assume_init() }.srWindow;
        let span = |from: i16, to: i16| u16::try_from(i32::from(to) - i32::from(from) + 1);
        let columns = span(window.Left, window.Right).unwrap_or(0);
        Ok(WindowSize { columns, rows: span(window.Top, window.Bottom).unwrap_or(0) })
    }
}

const NOT_A_CONSOLE: io::ErrorKind = io::ErrorKind::InvalidInput;

/// The kind of a handle.
pub(crate) fn guess(descriptor: &impl AsDescriptor) -> HandleKind {
    let handle = descriptor.as_handle().as_raw_handle();
    // SAFETY: no memory is passed; an invalid handle has the type unknown.
    match unsafe { GetFileType(handle) } {
        FILE_TYPE_CHAR if modes::mode(handle).is_some() => HandleKind::Tty,
        FILE_TYPE_CHAR | FILE_TYPE_DISK => HandleKind::File,
        FILE_TYPE_PIPE => HandleKind::Pipe,
        _ => HandleKind::Unknown,
    }
}
