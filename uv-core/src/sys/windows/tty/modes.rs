//! Console modes and their restoration.

use std::io;
use std::os::windows::io::{AsRawHandle, OwnedHandle, RawHandle};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use windows_sys::Win32::System::Console::{
    ENABLE_ECHO_INPUT, ENABLE_LINE_INPUT, ENABLE_PROCESSED_INPUT, ENABLE_PROCESSED_OUTPUT,
    ENABLE_VIRTUAL_TERMINAL_INPUT, ENABLE_VIRTUAL_TERMINAL_PROCESSING, GetConsoleMode,
    SetConsoleMode,
};

use crate::handles::TtyMode;

/// The modes of consoles before streams changed them.
static CHANGED: Mutex<Vec<Changed>> = Mutex::new(Vec::new());

struct Changed {
    handle: Arc<OwnedHandle>,
    /// A process has one console input, whatever the handles, and may have several outputs.
    of_input: bool,
    before: u32,
}

/// The mode of a console, restored on drop.
#[derive(Debug)]
pub(super) struct Modes {
    handle: Arc<OwnedHandle>,
    of_input: bool,
    before: u32,
    /// The original mode is in the list.
    changed: bool,
}

fn changed() -> MutexGuard<'static, Vec<Changed>> {
    CHANGED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The mode of a console; `None` if the handle is no console.
pub(super) fn mode(handle: RawHandle) -> Option<u32> {
    let mut mode = 0;
    // SAFETY: an invalid handle is an error; the call writes one number.
    (unsafe { GetConsoleMode(handle, &raw mut mode) } != 0).then_some(mode)
}

fn set(handle: &OwnedHandle, mode: u32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    match unsafe { SetConsoleMode(handle.as_raw_handle(), mode) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

impl Modes {
    /// `mode` is the current mode of the console.
    pub(super) fn new(handle: &Arc<OwnedHandle>, mode: u32, of_input: bool) -> Modes {
        let changed = changed();
        let first = changed.iter().find(|it| it.of_input && of_input);
        let before = first.map_or(mode, |first| first.before);
        Modes { handle: Arc::clone(handle), of_input, before, changed: false }
    }

    pub(super) fn set(&mut self, mode: TtyMode) -> io::Result<()> {
        let cooked = ENABLE_ECHO_INPUT | ENABLE_LINE_INPUT | ENABLE_PROCESSED_INPUT;
        match mode {
            TtyMode::Normal => set(&self.handle, self.before),
            TtyMode::Raw | TtyMode::Io => self.change(self.before & !cooked),
            TtyMode::RawVt => self.change(self.before & !cooked | ENABLE_VIRTUAL_TERMINAL_INPUT),
        }
    }

    /// Enables escape sequences in the output, if the console supports them.
    pub(super) fn understand_escapes(&mut self) {
        let wanted = ENABLE_PROCESSED_OUTPUT | ENABLE_VIRTUAL_TERMINAL_PROCESSING;
        // Consoles before Windows 10 do not, and show the sequences as text.
        let _ = self.change(self.before | wanted);
    }

    fn change(&mut self, mode: u32) -> io::Result<()> {
        if !self.changed {
            let (handle, of_input, before) = (Arc::clone(&self.handle), self.of_input, self.before);
            changed().push(Changed { handle, of_input, before });
            self.changed = true;
        }
        set(&self.handle, mode)
    }
}

impl Drop for Modes {
    fn drop(&mut self) {
        if self.changed {
            let mut changed = changed();
            changed.retain(|it| !Arc::ptr_eq(&it.handle, &self.handle));
            if !changed.iter().any(|it| it.of_input && self.of_input) {
                // Fails only if the console is gone: then no mode is left to restore.
                let _ = set(&self.handle, self.before);
            }
        }
    }
}

/// Restores all consoles whose mode was changed.
pub(crate) fn reset_mode() -> io::Result<()> {
    let mut result = Ok(());
    // The first change of an output recorded its original mode: it is restored last.
    for Changed { handle, before, .. } in changed().iter().rev() {
        if let Err(error) = set(handle, *before) {
            result = Err(error);
        }
    }
    result
}
