//! File operations.
//!
//! Each operation is a [`Way`]: the blocking call for a thread of the pool, and the equivalent
//! backend operation, if there is one.

mod attributes;
mod copy;
mod files;
mod path_ops;
mod read_write;
mod stat;
mod statfs;

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use poll_core::{At, RawPath, RawSource};

pub(crate) use crate::fs::Way;
pub(crate) use attributes::*;
pub(crate) use copy::COPYFILE;
pub(crate) use files::*;
pub(crate) use path_ops::*;
pub(crate) use read_write::*;
pub(crate) use stat::*;
pub(crate) use statfs::STATFS;

/// A path in the form that the kernel takes: NUL-terminated.
#[derive(Clone, Debug)]
pub struct Name(CString);

impl Name {
    pub(crate) fn new(path: &Path) -> io::Result<Name> {
        CString::new(path.as_os_str().as_bytes()).map(Name).map_err(|_| {
            io::Error::new(io::ErrorKind::InvalidInput, "a path must not contain a NUL")
        })
    }

    pub(crate) fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.0.to_bytes()))
    }

    fn as_ptr(&self) -> *const libc::c_char {
        self.0.as_ptr()
    }

    fn raw(&self) -> RawPath {
        RawPath::of(&self.0)
    }

    /// The path relative to the working directory.
    fn at(&self) -> At {
        At { dir: None, path: self.raw() }
    }
}

pub(crate) fn source(file: &std::fs::File) -> RawSource {
    RawSource::of(file)
}

/// The descriptor as a file that is never closed.
///
/// # Safety
///
/// The descriptor stays open as long as the file is used.
pub(crate) unsafe fn borrow(source: RawSource) -> io::Result<ManuallyDrop<std::fs::File>> {
    match source.fd() {
        // No file has this number, and `std` reserves it.
        -1 => Err(io::Error::from_raw_os_error(libc::EBADF)),
        // SAFETY: open by the caller's contract; `ManuallyDrop` leaves it to its owner.
        fd => Ok(ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(fd) })),
    }
}

/// Another file with the number of a borrowed one.
pub(crate) fn copy_number(file: &ManuallyDrop<std::fs::File>) -> ManuallyDrop<std::fs::File> {
    // SAFETY: the caller of `File::borrow_raw` keeps the descriptor open for the clones too.
    ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(file.as_raw_fd()) })
}

/// The path of raw bytes. The bytes are those of a path with a changed part.
pub(crate) fn path_from(bytes: Vec<u8>) -> io::Result<OsString> {
    Ok(OsString::from_vec(bytes))
}

/// Repeats a call while it is interrupted. The result -1 is a failure.
fn retried<N: From<i8> + PartialEq>(mut call: impl FnMut() -> N) -> io::Result<N> {
    loop {
        let result = call();
        if result != N::from(-1) {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// True if an operation was interrupted before it had an effect.
pub(crate) fn is_interrupted(code: i32) -> bool {
    code == libc::EINTR
}

/// True if the kernel does not support the operation on this kind of file.
pub(crate) fn is_unsupported(code: i32) -> bool {
    code == libc::EOPNOTSUPP
}

fn fd(file: &crate::fs::File) -> libc::c_int {
    file.std().as_raw_fd()
}
