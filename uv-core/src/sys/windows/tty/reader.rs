//! The thread that reads a console.
//!
//! It reads only while the stream reads: other input belongs to other readers of the console.
//! Windows cannot cancel a pending line read; so the stream injects a Return key that ends the
//! line, and the thread discards the result.

use std::io::{self, Write};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle, RawHandle};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use socket2::Socket;
use windows_sys::Win32::Foundation::WAIT_OBJECT_0;
use windows_sys::Win32::System::Console::{
    ENABLE_LINE_INPUT, INPUT_RECORD, INPUT_RECORD_0, KEY_EVENT, KEY_EVENT_RECORD,
    KEY_EVENT_RECORD_0, PeekConsoleInputW, ReadConsoleInputW, ReadConsoleW, WriteConsoleInputW,
};
use windows_sys::Win32::System::Threading::{
    CreateEventW, INFINITE, SetEvent, WaitForMultipleObjects,
};
use windows_sys::Win32::UI::Input::KeyboardAndMouse::VK_RETURN;

use super::modes;
use super::text::ToUtf8;

/// The maximum number of UTF-16 units of one read.
const UNITS: usize = 4096;

/// The handle of the reader thread, which exits when this is dropped.
#[derive(Debug)]
pub(super) struct Reader(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    console: Arc<OwnedHandle>,
    /// Signalled when `state` has changed.
    changed: OwnedHandle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    wanted: bool,
    ended: bool,
    /// The thread is blocked in a line read.
    in_line: bool,
    /// The result of the line read is discarded.
    discarded: bool,
}

impl Reader {
    /// Starts the thread, which forwards the input to `stream`.
    pub(super) fn new(console: &Arc<OwnedHandle>, stream: Socket) -> io::Result<Reader> {
        stream.set_nonblocking(false)?;
        // SAFETY: no memory is passed: an unnamed auto-reset event.
        let changed = unsafe { CreateEventW(ptr::null(), 0, 0, ptr::null()) };
        if changed.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call created the handle, and no other code owns it.
        let changed = unsafe { OwnedHandle::from_raw_handle(changed) };
        let (console, state) = (Arc::clone(console), Mutex::default());
        let shared = Arc::new(Shared { console, changed, state });
        let thread = Arc::clone(&shared);
        thread::Builder::new().name("uv-console".into()).spawn(move || thread.run(stream))?;
        Ok(Reader(shared))
    }

    /// Starts or stops reading.
    pub(super) fn set_wanted(&self, wanted: bool) {
        self.0.lock().wanted = wanted;
        self.0.notify();
    }

    /// Discards a pending line read.
    pub(super) fn discard_line(&self) {
        self.0.discard_pending_line(&mut self.0.lock());
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.ended = true;
        self.0.discard_pending_line(&mut state);
        drop(state);
        self.0.notify();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self) {
        // SAFETY: `self` keeps the event open.
        unsafe { SetEvent(self.changed.as_raw_handle()) };
    }

    fn discard_pending_line(&self, state: &mut State) {
        if state.in_line && !state.discarded {
            state.discarded = true;
            press_return(&self.console);
        }
    }

    fn run(&self, mut stream: Socket) {
        let (mut converter, mut text) = (ToUtf8::default(), String::new());
        let mut units = vec![0; UNITS];
        while self.wait() {
            let count = match self.read(&mut units) {
                Ok(count) => count,
                Err(_) => return, // The console is gone: the stream reads the end of file.
            };
            text.clear();
            converter.convert(&units[..count], &mut text);
            // Blocks while the socket buffer is full; fails when the stream is closed.
            if stream.write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    }

    /// Waits until input is available and the stream reads. False if the thread must exit.
    fn wait(&self) -> bool {
        loop {
            let wanted = {
                let state = self.lock();
                if state.ended {
                    return false;
                }
                state.wanted
            };
            let handles = [self.changed.as_raw_handle(), self.console.as_raw_handle()];
            let count = if wanted { 2 } else { 1 };
            // SAFETY: the call reads `count` handles, which `self` keeps open.
            let woken = unsafe { WaitForMultipleObjects(count, handles.as_ptr(), 0, INFINITE) };
            match woken.wrapping_sub(WAIT_OBJECT_0) {
                0 => {}
                1 if has_characters(self.console.as_raw_handle()) => return true,
                1 => {}
                _ => return false,
            }
        }
    }

    /// Reads the available input, or a line in line mode. Zero units if the line was discarded.
    fn read(&self, units: &mut [u16]) -> io::Result<usize> {
        let console = self.console.as_raw_handle();
        {
            let mut state = self.lock();
            if state.ended {
                return Ok(0);
            }
            let lines = modes::mode(console).is_some_and(|mode| mode & ENABLE_LINE_INPUT != 0);
            (state.in_line, state.discarded) = (lines, false);
        }
        let (start, capacity, mut count) = (units.as_mut_ptr(), units.len() as u32, 0);
        // SAFETY: the call writes at most `capacity` units to `units`, and one number.
        let read =
            unsafe { ReadConsoleW(console, start.cast(), capacity, &raw mut count, ptr::null()) };
        let error = io::Error::last_os_error();
        let mut state = self.lock();
        state.in_line = false;
        match read {
            0 => Err(error),
            _ if state.discarded => Ok(0),
            _ => Ok(count as usize),
        }
    }
}

/// True if a character is available. Removes other input events, which signal the console handle
/// although a read would block.
fn has_characters(console: RawHandle) -> bool {
    loop {
        let mut record = INPUT_RECORD::default();
        let mut count = 0;
        // SAFETY: the call writes one record and one number, both local.
        let peeked = unsafe { PeekConsoleInputW(console, &raw mut record, 1, &raw mut count) };
        if peeked == 0 {
            return true; // The read will return the error.
        }
        if count == 0 {
            return false;
        }
        if is_character(&record) {
            return true;
        }
        // SAFETY: the call writes one record and one number, both local.
        unsafe { ReadConsoleInputW(console, &raw mut record, 1, &raw mut count) };
    }
}

fn is_character(record: &INPUT_RECORD) -> bool {
    if u32::from(record.EventType) != KEY_EVENT {
        return false;
    }
    // SAFETY: the event type is `KEY_EVENT`, so this member of the union is valid.
    let key = unsafe { record.Event.KeyEvent };
    // SAFETY: both members of the union are plain numbers.
    let character = unsafe { key.uChar.UnicodeChar };
    // A character composed with Alt and digits arrives when Alt is released.
    character != 0 && (key.bKeyDown != 0 || key.wVirtualKeyCode == VK_MENU)
}

/// The Alt key, which composes characters.
const VK_MENU: u16 = windows_sys::Win32::UI::Input::KeyboardAndMouse::VK_MENU;

/// Injects a Return key, which ends a pending line read.
fn press_return(console: &OwnedHandle) {
    let key = KEY_EVENT_RECORD {
        bKeyDown: 1,
        wRepeatCount: 1,
        wVirtualKeyCode: VK_RETURN,
        wVirtualScanCode: 0,
        uChar: KEY_EVENT_RECORD_0 { UnicodeChar: u16::from(b'\r') },
        dwControlKeyState: 0,
    };
    let record =
        INPUT_RECORD { EventType: KEY_EVENT as u16, Event: INPUT_RECORD_0 { KeyEvent: key } };
    let mut written = 0;
    // SAFETY: the call reads one record and writes one number, both local.
    unsafe { WriteConsoleInputW(console.as_raw_handle(), &raw const record, 1, &raw mut written) };
}
