//! Bytes that the kernel sends from a file to a socket, if that does not wait for the disk.

#![allow(unsafe_code)]

use std::io;

use crate::fs::File;
use crate::sys::Transport;

/// The result of [`send_cached`].
#[derive(Debug)]
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux sends files itself"))]
pub(crate) enum SendCached {
    /// The number of bytes sent; 0 at the end of the file.
    Sent(usize),
    /// The call might wait for the disk.
    NotCached,
    /// The kernel does not send this file to this descriptor.
    Unsupported,
}

cfg_if::cfg_if! {
    if #[cfg(all(target_os = "linux", any(target_env = "gnu", target_env = "musl")))] {
        use std::mem::MaybeUninit;
        use std::os::fd::AsRawFd;

        use crate::sys::fs::is_cached;

        /// Sends bytes of a file that is in the page cache (`sendfile(2)`).
        ///
        /// The call has no flag that keeps it from reading the disk. So the first and the last byte
        /// are read before with `RWF_NOWAIT`: the kernel reads files ahead in order, so that mostly
        /// what is between them is cached as well. If it is not, the call waits for a page.
        pub(crate) fn send_cached(
            socket: &Transport,
            file: &File,
            offset: u64,
            len: usize,
        ) -> io::Result<SendCached> {
            let Ok(mut at) = libc::off_t::try_from(offset) else {
                return Ok(SendCached::Unsupported); // A read reports what is wrong with it.
            };
            let last = offset.saturating_add(len as u64 - 1);
            if !is_cached(file, offset) || !is_cached(file, last) {
                return Ok(SendCached::NotCached);
            }
            let (to, from) = (socket.as_raw_fd(), file.std().as_raw_fd());
            // SAFETY: reads and writes the offset, a local, and no other memory of this process.
            let sent = unsafe { libc::sendfile(to, from, &raw mut at, len) };
            if let Ok(sent) = usize::try_from(sent) {
                return Ok(SendCached::Sent(sent));
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINVAL | libc::ENOSYS | libc::ESPIPE | libc::EOVERFLOW) => {
                    Ok(SendCached::Unsupported)
                }
                _ => Err(error),
            }
        }

        /// True if the kernel may send files to sockets: `sendfile(2)` has no `MSG_NOSIGNAL`, so
        /// that the end of the peer raises `SIGPIPE`, unless the process ignores it. A program in
        /// Rust does, but this may be a library in another.
        pub(crate) fn sends_files() -> bool {
            let mut action = MaybeUninit::<libc::sigaction>::uninit();
            let none = std::ptr::null();
            // SAFETY: reads no action (null), and writes one to a local of that type.
            if unsafe { libc::sigaction(libc::SIGPIPE, none, action.as_mut_ptr()) } == -1 {
                return false;
            }
            // SAFETY: the call has written it.
            let action = unsafe { action.assume_init() };
            action.sa_sigaction == libc::SIG_IGN
        }
    } else {
        /// Only Linux reports whether a file is cached: the `sendfile` of the BSDs and
        /// `TransmitFile` of Windows read the disk in the calling thread. Threads of the pool read
        /// the file instead.
        pub(crate) fn send_cached(
            _: &Transport,
            _: &File,
            _: u64,
            _: usize,
        ) -> io::Result<SendCached> {
            Ok(SendCached::Unsupported)
        }

        /// See [`send_cached`].
        pub(crate) fn sends_files() -> bool {
            false
        }
    }
}
