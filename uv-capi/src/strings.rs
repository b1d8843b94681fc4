//! Strings of the caller.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    CStr::from_ptr(text).to_bytes()
}

pub(crate) unsafe fn os<'a>(text: *const c_char) -> &'a OsStr {
    OsStr::from_bytes(bytes(text))
}

pub(crate) unsafe fn path<'a>(text: *const c_char) -> &'a Path {
    Path::new(os(text))
}

/// True if a buffer and its size can take a string.
pub(crate) unsafe fn is_buffer(buffer: *mut c_char, size: *const usize) -> bool {
    !buffer.is_null() && !size.is_null() && *size > 0
}

/// Copies a string into a buffer: `size` is its size before and the length after. If it is too
/// small, `size` becomes what is needed and the result is `UV_ENOBUFS`.
pub(crate) unsafe fn write_string(text: &[u8], buffer: *mut c_char, size: *mut usize) -> c_int {
    if !is_buffer(buffer, size) {
        return -libc::EINVAL;
    }
    if text.len() >= *size {
        *size = text.len() + 1;
        return -libc::ENOBUFS;
    }
    std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), text.len());
    *buffer.add(text.len()) = 0;
    *size = text.len();
    0
}

/// Copies as much of a string as fits, with a final NUL.
pub(crate) unsafe fn write_truncated(text: &[u8], buffer: *mut c_char, size: usize) {
    if size > 0 {
        let length = text.len().min(size - 1);
        std::ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), length);
        *buffer.add(length) = 0;
    }
}
