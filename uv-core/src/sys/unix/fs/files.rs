//! Opening, closing, syncing and truncating files.

use std::fs::File as Std;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, RawFd};
use std::path::Path;

use libc::c_int;
use poll_core::Op;

use super::{Name, Way, retried};
use crate::fs::{File, OpenOptions};

/// The arguments of an open.
#[derive(Debug)]
pub struct OpenRequest {
    name: Name,
    flags: c_int,
    mode: u32,
}

impl OpenRequest {
    pub(crate) fn new(path: &Path, options: OpenOptions) -> io::Result<OpenRequest> {
        let name = Name::new(path)?;
        options.check()?;
        Ok(OpenRequest { name, flags: flags(options), mode: options.mode })
    }
}

fn flags(options: OpenOptions) -> c_int {
    let access = match (options.read, options.write || options.append) {
        (true, true) => libc::O_RDWR,
        (false, true) => libc::O_WRONLY,
        _ => libc::O_RDONLY,
    };
    let mut flags = access | (options.custom & !libc::O_ACCMODE);
    for (wanted, flag) in [
        (options.append, libc::O_APPEND),
        (options.truncate, libc::O_TRUNC),
        (options.create || options.create_new, libc::O_CREAT),
        (options.create_new, libc::O_EXCL),
    ] {
        if wanted {
            flags |= flag;
        }
    }
    flags
}

pub(crate) const OPEN: Way<OpenRequest, File> = Way {
    perform: |OpenRequest { name, flags, mode }| {
        let (flags, mode) = (*flags | libc::O_CLOEXEC, *mode as libc::c_uint);
        // SAFETY: reads a NUL-terminated path, which `name` owns.
        let fd = retried(|| unsafe { libc::open(name.as_ptr(), flags, mode) })?;
        // SAFETY: `open` has returned a new descriptor, which nothing else owns.
        Ok(unsafe { opened(fd) })
    },
    op: Some(|OpenRequest { name, flags, mode }| Op::OpenAt {
        at: name.at(),
        flags: *flags,
        mode: *mode,
    }),
    // SAFETY: the loop passes the result of a successful `Op::OpenAt`: a new descriptor, which
    // nothing else owns.
    value: |_, fd| Ok(unsafe { opened(fd as RawFd) }),
};

/// Takes ownership of a new descriptor.
///
/// # Safety
///
/// `fd` is open, and nothing else owns it.
unsafe fn opened(fd: RawFd) -> File {
    // SAFETY: an open descriptor without another owner, by the caller's contract.
    File::from(unsafe { Std::from_raw_fd(fd) })
}

pub(crate) fn close(file: Std) -> io::Result<()> {
    // SAFETY: takes no pointer. `into_raw_fd` has given up the ownership, so only this closes it.
    match unsafe { libc::close(file.into_raw_fd()) } {
        -1 => {
            let error = io::Error::last_os_error();
            // An interrupted close has released the descriptor nevertheless.
            match error.raw_os_error() {
                Some(libc::EINTR | libc::EINPROGRESS) => Ok(()),
                _ => Err(error),
            }
        }
        _ => Ok(()),
    }
}

/// Gives up the descriptor, which a backend operation closes.
pub(crate) fn forget(file: Std) {
    let _ = file.into_raw_fd();
}

pub(crate) const FSYNC: Way<File, ()> = Way::either(
    |file| file.std().sync_all(),
    |file| Op::Fsync { source: file.source(), data_only: false },
);

pub(crate) const FDATASYNC: Way<File, ()> = Way::either(
    |file| file.std().sync_data(),
    |file| Op::Fsync { source: file.source(), data_only: true },
);

pub(crate) const FTRUNCATE: Way<(File, u64), ()> = Way::either(
    |(file, len)| file.std().set_len(*len),
    |(file, len)| Op::Ftruncate { source: file.source(), len: *len },
);
