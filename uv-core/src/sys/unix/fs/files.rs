//! Opening, closing, and what concerns an open file as a whole.

use std::fs::File as Std;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, RawFd};
use std::path::Path;

use libc::c_int;
use poll_core::Op;

use super::{Name, Way, retried};
use crate::fs::{File, OpenOptions};

/// What opening takes.
#[derive(Debug)]
pub struct Opening {
    name: Name,
    flags: c_int,
    mode: u32,
}

impl Opening {
    pub(crate) fn new(path: &Path, options: OpenOptions) -> io::Result<Opening> {
        let name = Name::new(path)?;
        options.check()?;
        Ok(Opening { name, flags: flags(options), mode: options.mode })
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

pub(crate) const OPEN: Way<Opening, File> = Way {
    perform: |Opening { name, flags, mode }| {
        let (flags, mode) = (*flags | libc::O_CLOEXEC, *mode as libc::c_uint);
        // SAFETY: the path ends with a NUL and lives across the call.
        retried(|| unsafe { libc::open(name.as_ptr(), flags, mode) }).map(opened)
    },
    op: Some(|Opening { name, flags, mode }| Op::OpenAt {
        at: name.at(),
        flags: *flags,
        mode: *mode,
    }),
    value: |_, fd| Ok(opened(fd as RawFd)),
};

/// A descriptor that the kernel has just made.
fn opened(fd: RawFd) -> File {
    // SAFETY: it was made for the caller, and nobody else knows of it.
    File::from(unsafe { Std::from_raw_fd(fd) })
}

pub(crate) fn close(file: Std) -> io::Result<()> {
    // SAFETY: the descriptor was given up for this.
    match unsafe { libc::close(file.into_raw_fd()) } {
        -1 => {
            let error = io::Error::last_os_error();
            // Interrupted, it is closed all the same.
            match error.raw_os_error() {
                Some(libc::EINTR | libc::EINPROGRESS) => Ok(()),
                _ => Err(error),
            }
        }
        _ => Ok(()),
    }
}

/// Somebody else closes it.
pub(crate) fn forget(file: Std) {
    let _ = file.into_raw_fd();
}

pub(crate) const FSYNC: Way<File, ()> = Way::either(
    |file| file.0.sync_all(),
    |file| Op::Fsync { source: file.source(), data_only: false },
);

pub(crate) const FDATASYNC: Way<File, ()> = Way::either(
    |file| file.0.sync_data(),
    |file| Op::Fsync { source: file.source(), data_only: true },
);

pub(crate) const FTRUNCATE: Way<(File, u64), ()> = Way::either(
    |(file, len)| file.0.set_len(*len),
    |(file, len)| Op::Ftruncate { source: file.source(), len: *len },
);
