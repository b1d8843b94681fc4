//! File operations.
//!
//! Each operation is a [`Way`]. A pool thread performs it: no Windows backend does.

mod attributes;
mod copy;
mod files;
mod path_ops;
mod read_write;
mod stat;
mod symlink;

use std::ffi::OsString;
use std::io;
use std::mem::ManuallyDrop;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::io::{AsRawHandle, FromRawHandle};
use std::path::{Path, PathBuf};

use poll_core::RawSource;
use windows_sys::Win32::Foundation::{ERROR_INVALID_HANDLE, INVALID_HANDLE_VALUE};

pub(crate) use crate::fs::Way;
pub(crate) use attributes::*;
pub(crate) use copy::COPYFILE;
pub(crate) use files::*;
pub(crate) use path_ops::*;
pub(crate) use read_write::*;
pub(crate) use stat::*;
pub(crate) use symlink::{READLINK, REALPATH, SYMLINK};

/// A path.
#[derive(Clone, Debug)]
pub struct Name(PathBuf);

impl Name {
    pub(crate) fn new(path: &Path) -> io::Result<Name> {
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            let why = "a path must not contain NUL";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Name(path.to_path_buf()))
    }

    pub(crate) fn as_path(&self) -> &Path {
        &self.0
    }

    /// The path as NUL-terminated UTF-16.
    fn wide(&self) -> Vec<u16> {
        wide(&self.0)
    }
}

fn wide(path: &Path) -> Vec<u16> {
    path.as_os_str().encode_wide().chain([0]).collect()
}

pub(crate) fn source(file: &std::fs::File) -> RawSource {
    RawSource::of_handle(file)
}

/// The handle as a file that is never closed.
///
/// # Safety
///
/// The handle stays open as long as the file is used.
pub(crate) unsafe fn borrow(source: RawSource) -> io::Result<ManuallyDrop<std::fs::File>> {
    match source.handle() {
        INVALID_HANDLE_VALUE => Err(io::Error::from_raw_os_error(ERROR_INVALID_HANDLE as i32)),
        // SAFETY: open by the caller's contract; `ManuallyDrop` leaves it to its owner.
        handle => Ok(ManuallyDrop::new(unsafe { std::fs::File::from_raw_handle(handle) })),
    }
}

/// Another file with the handle of a borrowed one.
pub(crate) fn copy_number(file: &ManuallyDrop<std::fs::File>) -> ManuallyDrop<std::fs::File> {
    // SAFETY: the caller of `File::borrow_raw` keeps the handle open for the clones too.
    ManuallyDrop::new(unsafe { std::fs::File::from_raw_handle(file.as_raw_handle()) })
}

/// Converts the bytes of a template to a path.
pub(crate) fn path_from(bytes: Vec<u8>) -> io::Result<OsString> {
    String::from_utf8(bytes).map(OsString::from).map_err(|_| {
        let why = "a template must be valid UTF-8";
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })
}

/// Removes the prefix `\\?\`, which disables the parsing of a path.
fn without_prefix(path: PathBuf) -> PathBuf {
    let units: Vec<u16> = path.as_os_str().encode_wide().collect();
    let starts = |with: &str| with.encode_utf16().eq(units.iter().copied().take(with.len()));
    if starts(r"\\?\UNC\") {
        let mut plain: Vec<u16> = r"\\".encode_utf16().collect();
        plain.extend(&units[r"\\?\UNC\".len()..]);
        return OsString::from_wide(&plain).into();
    }
    let drive = units.get(5) == Some(&u16::from(b':'));
    if starts(r"\\?\") && drive {
        return OsString::from_wide(&units[r"\\?\".len()..]).into();
    }
    path
}

/// Converts the result of a call: zero is a failure.
fn check(result: windows_sys::core::BOOL) -> io::Result<()> {
    match result {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Windows interrupts no system call.
pub(crate) fn is_interrupted(_code: i32) -> bool {
    false
}

/// No Windows backend performs file operations.
pub(crate) fn is_unsupported(_code: i32) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_go_where_the_path_means_the_same_without() {
        for (with, without) in [
            (r"\\?\C:\a", r"C:\a"),
            (r"\\?\UNC\server\share", r"\\server\share"),
            (r"\\?\Volume{1}\a", r"\\?\Volume{1}\a"),
            (r"C:\a", r"C:\a"),
            ("a", "a"),
        ] {
            assert_eq!(without_prefix(with.into()), PathBuf::from(without));
        }
    }
}
