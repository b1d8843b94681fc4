//! The process title: the title of the console window.

use std::io;

use windows_sys::Win32::System::Console::{GetConsoleTitleW, SetConsoleTitleW};

use super::{text, wide};

pub(crate) fn get(_kept: Option<&str>) -> io::Result<String> {
    let mut title = [0_u16; 8192];
    // SAFETY: the call writes at most the length of the local buffer.
    match unsafe { GetConsoleTitleW(title.as_mut_ptr(), title.len() as u32) } {
        // Zero is an empty title or an error.
        0 => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(0) => Ok(String::new()),
            error => Err(error),
        },
        _ => Ok(text(&title)),
    }
}

pub(crate) fn set(title: &str) -> io::Result<()> {
    let title = wide(title);
    // SAFETY: the string ends with NUL and lives across the call.
    match unsafe { SetConsoleTitleW(title.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
