//! Asking the kernel by name.

use std::ffi::CStr;
use std::io;
use std::ptr;

/// Fills `answer` with what the kernel says under `name`; returns how many bytes that are.
pub(super) fn bytes(name: &CStr, answer: &mut [u8]) -> io::Result<usize> {
    let mut length = answer.len();
    let (to, nothing) = (answer.as_mut_ptr().cast(), ptr::null_mut());
    // SAFETY: the name ends with NUL; writes no more than the length given.
    match unsafe { libc::sysctlbyname(name.as_ptr(), to, &mut length, nothing, 0) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(length),
    }
}

/// A number of either size.
pub(super) fn number(name: &CStr) -> io::Result<u64> {
    let mut answer = [0; 8];
    match bytes(name, &mut answer)? {
        4 => Ok(u32::from_ne_bytes([answer[0], answer[1], answer[2], answer[3]]).into()),
        _ => Ok(u64::from_ne_bytes(answer)),
    }
}

/// A text; empty if there is none.
pub(super) fn text(name: &CStr) -> String {
    let mut answer = [0; 256];
    let length = bytes(name, &mut answer).unwrap_or(0);
    super::text(&answer[..length])
}

/// The size of a page of memory.
pub(super) fn page_size() -> u64 {
    // SAFETY: no memory is passed.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as u64
}
