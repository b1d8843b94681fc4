//! The kernel's random bytes.

use std::fs::File;
use std::io::{self, Read as _};

/// Fills all of `buffer`.
pub(crate) fn fill(buffer: &mut [u8]) -> io::Result<()> {
    match by_system_call(buffer) {
        // A kernel without the call, or a sandbox that refuses it.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            by_device(buffer)
        }
        result => result,
    }
}

/// Reads `/dev/urandom`, which every Unix has.
fn by_device(buffer: &mut [u8]) -> io::Result<()> {
    File::open("/dev/urandom")?.read_exact(buffer)
}

cfg_if::cfg_if! {
    if #[cfg(any(
        target_os = "linux", target_os = "android", target_os = "freebsd",
        target_os = "dragonfly", target_os = "netbsd",
    ))] {
        fn by_system_call(buffer: &mut [u8]) -> io::Result<()> {
            let mut rest = buffer;
            while !rest.is_empty() {
                // SAFETY: writes at most `rest.len()` bytes, to memory borrowed exclusively.
                let count = unsafe { getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
                match count {
                    -1 => {
                        let error = io::Error::last_os_error();
                        if error.kind() != io::ErrorKind::Interrupted {
                            return Err(error);
                        }
                    }
                    count => rest = &mut rest[count as usize..],
                }
            }
            Ok(())
        }

        cfg_if::cfg_if! {
            if #[cfg(any(target_os = "linux", target_os = "android"))] {
                /// `getrandom(2)`. C libraries before glibc 2.25 have no function for it.
                ///
                /// # Safety
                ///
                /// `to` points to `length` bytes that may be written.
                unsafe fn getrandom(to: *mut libc::c_void, length: usize, flags: u32) -> isize {
                    // SAFETY: the kernel writes at most `length` bytes, which the caller provides.
                    unsafe { libc::syscall(libc::SYS_getrandom, to, length, flags) as isize }
                }
            } else {
                use libc::getrandom;
            }
        }
    } else {
        fn by_system_call(buffer: &mut [u8]) -> io::Result<()> {
            /// The most bytes that `getentropy` returns.
            const MAX_REQUEST: usize = 256;
            for piece in buffer.chunks_mut(MAX_REQUEST) {
                // SAFETY: writes `piece.len()` bytes, to memory borrowed exclusively.
                if unsafe { libc::getentropy(piece.as_mut_ptr().cast(), piece.len()) } == -1 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_call_and_device_fill_the_whole_buffer() {
        for way in [by_system_call, by_device] {
            let mut bytes = vec![0; 10_000];
            way(&mut bytes).unwrap();
            // 32 random bytes are all zero with a probability of 2^-256.
            assert_ne!(bytes[9_968..], [0; 32]);
            way(&mut []).unwrap();
        }
    }
}
