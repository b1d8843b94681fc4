//! Random bytes from the system.

use std::io;
use std::ptr;

use windows_sys::Win32::Security::Cryptography::{
    BCRYPT_USE_SYSTEM_PREFERRED_RNG, BCryptGenRandom,
};

/// Fills all of `buffer`.
pub(crate) fn fill(buffer: &mut [u8]) -> io::Result<()> {
    let (memory, length) = (buffer.as_mut_ptr(), buffer.len() as u32);
    // SAFETY: the call writes exactly the length of `buffer`, which the caller limits to `u32`.
    let status = unsafe {
        BCryptGenRandom(ptr::null_mut(), memory, length, BCRYPT_USE_SYSTEM_PREFERRED_RNG)
    };
    if status != 0 {
        return Err(io::Error::other(format!("BCryptGenRandom failed with {status:#x}")));
    }
    Ok(())
}
