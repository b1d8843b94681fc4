//! `sysctlbyname(3)`.

use std::ffi::CStr;
use std::io;
use std::ptr;

/// Reads the value of `name` into `answer`; returns its length.
pub(super) fn bytes(name: &CStr, answer: &mut [u8]) -> io::Result<usize> {
    let mut length = answer.len();
    let (to, nothing) = (answer.as_mut_ptr().cast(), ptr::null_mut());
    // SAFETY: the name is NUL-terminated (`CStr`), and the kernel writes at most `length` bytes,
    // the size of `answer`.
    match unsafe { libc::sysctlbyname(name.as_ptr(), to, &mut length, nothing, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(length),
    }
}

/// An integer of 32 or 64 bits.
pub(super) fn number(name: &CStr) -> io::Result<u64> {
    let mut answer = [0; 8];
    match bytes(name, &mut answer)? {
        4 => Ok(u32::from_ne_bytes([answer[0], answer[1], answer[2], answer[3]]).into()),
        _ => Ok(u64::from_ne_bytes(answer)),
    }
}

/// A string; empty if the name does not exist.
pub(super) fn text(name: &CStr) -> String {
    let mut answer = [0; 256];
    let length = bytes(name, &mut answer).unwrap_or(0);
    super::text(&answer[..length])
}

/// The size of a page of memory.
pub(super) fn page_size() -> u64 {
    // SAFETY: takes no pointer.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as u64
}
