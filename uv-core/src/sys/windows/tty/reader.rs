//! The thread that reads a console.
//!
//! It reads only while the stream wants it to: what is typed otherwise is for others. A line
//! that is being typed cannot be given up, as far as Windows goes; so the thread is sent the
//! key that ends it, and drops what it gets.

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

/// Units that are read at once.
const UNITS: usize = 4096;

/// The stream's side of the thread, which ends when this is dropped.
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
    /// The thread waits for a line to end.
    in_line: bool,
    /// That line is for nobody.
    dropped: bool,
}

impl Reader {
    /// Starts the thread, which passes what it reads to `stream`.
    pub(super) fn new(console: &Arc<OwnedHandle>, stream: Socket) -> io::Result<Reader> {
        stream.set_nonblocking(false)?;
        // SAFETY: no memory is passed: an event without a name that resets by itself.
        let changed = unsafe { CreateEventW(ptr::null(), 0, 0, ptr::null()) };
        if changed.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was just made, and is nobody else's.
        let changed = unsafe { OwnedHandle::from_raw_handle(changed) };
        let (console, state) = (Arc::clone(console), Mutex::default());
        let shared = Arc::new(Shared { console, changed, state });
        let thread = Arc::clone(&shared);
        thread::Builder::new().name("uv-console".into()).spawn(move || thread.run(stream))?;
        Ok(Reader(shared))
    }

    /// Whether there is anybody to read for.
    pub(super) fn wants(&self, wanted: bool) {
        self.0.lock().wanted = wanted;
        self.0.tell();
    }

    /// A line that is being typed is dropped.
    pub(super) fn begin_anew(&self) {
        self.0.drop_line(&mut self.0.lock());
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.ended = true;
        self.0.drop_line(&mut state);
        drop(state);
        self.0.tell();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        // SAFETY: the event is open.
        unsafe { SetEvent(self.changed.as_raw_handle()) };
    }

    fn drop_line(&self, state: &mut State) {
        if state.in_line && !state.dropped {
            state.dropped = true;
            press_return(&self.console);
        }
    }

    fn run(&self, mut stream: Socket) {
        let (mut converter, mut text) = (ToUtf8::default(), String::new());
        let mut units = vec![0; UNITS];
        while self.wait() {
            let count = match self.read(&mut units) {
                Ok(count) => count,
                Err(_) => return, // The console is gone: the stream sees its end.
            };
            text.clear();
            converter.convert(&units[..count], &mut text);
            // Waits while the stream is full; fails when it is gone.
            if stream.write_all(text.as_bytes()).is_err() {
                return;
            }
        }
    }

    /// Waits until there is something to read and somebody who wants it. False at the end.
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
            // SAFETY: reads `count` handles, which are open.
            let woken = unsafe { WaitForMultipleObjects(count, handles.as_ptr(), 0, INFINITE) };
            match woken.wrapping_sub(WAIT_OBJECT_0) {
                0 => {}
                1 if characters_wait(self.console.as_raw_handle()) => return true,
                1 => {}
                _ => return false,
            }
        }
    }

    /// Reads what there is, or the line that is being typed. Nothing if that was dropped.
    fn read(&self, units: &mut [u16]) -> io::Result<usize> {
        let console = self.console.as_raw_handle();
        {
            let mut state = self.lock();
            if state.ended {
                return Ok(0);
            }
            let lines = modes::mode(console).is_some_and(|mode| mode & ENABLE_LINE_INPUT != 0);
            (state.in_line, state.dropped) = (lines, false);
        }
        let (place, room, mut count) = (units.as_mut_ptr(), units.len() as u32, 0);
        // SAFETY: writes no more than `room` units, and one number.
        let read =
            unsafe { ReadConsoleW(console, place.cast(), room, &raw mut count, ptr::null()) };
        let error = io::Error::last_os_error();
        let mut state = self.lock();
        state.in_line = false;
        match read {
            0 => Err(error),
            _ if state.dropped => Ok(0),
            _ => Ok(count as usize),
        }
    }
}

/// True if a read would find a character. Takes events that are no characters out of its way:
/// a read would wait though they are there.
fn characters_wait(console: RawHandle) -> bool {
    loop {
        let mut record = INPUT_RECORD::default();
        let mut count = 0;
        // SAFETY: writes one record and one number.
        let peeked = unsafe { PeekConsoleInputW(console, &raw mut record, 1, &raw mut count) };
        if peeked == 0 {
            return true; // The read will say what is wrong.
        }
        if count == 0 {
            return false;
        }
        if is_character(&record) {
            return true;
        }
        // SAFETY: writes one record and one number; there is one to read.
        unsafe { ReadConsoleInputW(console, &raw mut record, 1, &raw mut count) };
    }
}

fn is_character(record: &INPUT_RECORD) -> bool {
    if u32::from(record.EventType) != KEY_EVENT {
        return false;
    }
    // SAFETY: the record is of a key, as its type says.
    let key = unsafe { record.Event.KeyEvent };
    // SAFETY: a character in either encoding is a number.
    let character = unsafe { key.uChar.UnicodeChar };
    // One that is composed of digits comes when the last key is released.
    character != 0 && (key.bKeyDown != 0 || key.wVirtualKeyCode == VK_MENU)
}

/// `Alt`, which composes characters.
const VK_MENU: u16 = windows_sys::Win32::UI::Input::KeyboardAndMouse::VK_MENU;

/// Ends the line that is being typed.
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
    // SAFETY: reads one record and writes one number.
    unsafe { WriteConsoleInputW(console.as_raw_handle(), &raw const record, 1, &raw mut written) };
}
