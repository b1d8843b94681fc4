//! Files.
//!
//! Each operation is a [`Way`]: how a thread does it, and the operation by which a backend
//! does the same.

mod attributes;
mod copy;
mod files;
mod names;
mod space;
mod stat;
mod transfer;

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use poll_core::{At, RawPath, RawSource};

pub(crate) use crate::fs::Way;
pub(crate) use attributes::*;
pub(crate) use copy::COPYFILE;
pub(crate) use files::*;
pub(crate) use names::*;
pub(crate) use space::STATFS;
pub(crate) use stat::*;
pub(crate) use transfer::*;

/// A path as the kernel takes it.
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

    /// The name, from the current directory.
    fn at(&self) -> At {
        At { dir: None, path: self.raw() }
    }
}

pub(crate) fn source(file: &std::fs::File) -> RawSource {
    RawSource::of(file)
}

/// A path of bytes of which some were a path's.
pub(crate) fn path_from(bytes: Vec<u8>) -> io::Result<OsString> {
    Ok(OsString::from_vec(bytes))
}

/// Calls until it is not interrupted. `-1` is a failure.
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

/// An operation was interrupted before it did anything.
pub(crate) fn is_interrupted(code: i32) -> bool {
    code == libc::EINTR
}

/// The kernel performs no such operation on this kind of file.
pub(crate) fn is_unsupported(code: i32) -> bool {
    code == libc::EOPNOTSUPP
}

fn fd(file: &crate::fs::File) -> libc::c_int {
    file.0.as_raw_fd()
}
