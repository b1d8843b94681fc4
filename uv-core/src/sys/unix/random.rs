//! The kernel's random bytes.

use std::fs::File;
use std::io::{self, Read as _};

/// Fills all of `buffer`.
pub(crate) fn fill(buffer: &mut [u8]) -> io::Result<()> {
    match by_system_call(buffer) {
        // A kernel, or a sandbox, that does not have the call.
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
            by_device(buffer)
        }
        result => result,
    }
}

/// The kernel's device, which every Unix has.
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
                // SAFETY: writes no more than the length given.
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
                /// The system call itself: old C libraries do not have a function for it.
                ///
                /// # Safety
                ///
                /// As of `getrandom(2)`.
                unsafe fn getrandom(to: *mut libc::c_void, length: usize, flags: u32) -> isize {
                    // SAFETY: the caller's promise.
                    unsafe { libc::syscall(libc::SYS_getrandom, to, length, flags) as isize }
                }
            } else {
                use libc::getrandom;
            }
        }
    } else {
        fn by_system_call(buffer: &mut [u8]) -> io::Result<()> {
            /// What `getentropy` gives at once.
            const MOST: usize = 256;
            for piece in buffer.chunks_mut(MOST) {
                // SAFETY: writes as much as the length given.
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
    fn both_ways_fill_all_of_it() {
        for way in [by_system_call, by_device] {
            let mut bytes = vec![0; 10_000];
            way(&mut bytes).unwrap();
            // So many zeros at the end come once in the life of a universe.
            assert_ne!(bytes[9_968..], [0; 32]);
            way(&mut []).unwrap();
        }
    }
}
