//! Files.
//!
//! Each operation is a [`Way`]. No backend performs them here: a thread does.

mod attributes;
mod copy;
mod files;
mod names;
mod stat;
mod symlink;
mod transfer;

use std::ffi::OsString;
use std::io;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use poll_core::RawSource;

pub(crate) use crate::fs::Way;
pub(crate) use attributes::*;
pub(crate) use copy::COPYFILE;
pub(crate) use files::*;
pub(crate) use names::*;
pub(crate) use stat::*;
pub(crate) use symlink::{READLINK, REALPATH, SYMLINK};
pub(crate) use transfer::*;

/// A path.
#[derive(Clone, Debug)]
pub struct Name(PathBuf);

impl Name {
    pub(crate) fn new(path: &Path) -> io::Result<Name> {
        if path.as_os_str().as_encoded_bytes().contains(&0) {
            let why = "a path must not contain a NUL";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Ok(Name(path.to_path_buf()))
    }

    pub(crate) fn as_path(&self) -> &Path {
        &self.0
    }

    /// As the system takes it, with a NUL at the end.
    fn wide(&self) -> Vec<u16> {
        wide(&self.0)
    }
}

fn wide(path: &Path) -> Vec<u16> {
    path.as_os_str().encode_wide().chain([0]).collect()
}

pub(crate) fn source(file: &std::fs::File) -> RawSource {
    RawSource::of_handle(file)
}

/// A path of bytes of which some were a path's.
pub(crate) fn path_from(bytes: Vec<u8>) -> io::Result<OsString> {
    String::from_utf8(bytes).map(OsString::from).map_err(|_| {
        let why = "a template must be of Unicode characters";
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })
}

/// Without the prefix that turns off the interpretation of a path.
fn without_prefix(path: PathBuf) -> PathBuf {
    let units: Vec<u16> = path.as_os_str().encode_wide().collect();
    let starts = |with: &str| with.encode_utf16().eq(units.iter().copied().take(with.len()));
    if starts(r"\\?\UNC\") {
        let mut plain: Vec<u16> = r"\\".encode_utf16().collect();
        plain.extend(&units[r"\\?\UNC\".len()..]);
        return OsString::from_wide(&plain).into();
    }
    let drive = units.get(5) == Some(&u16::from(b':'));
    if starts(r"\\?\") && drive {
        return OsString::from_wide(&units[r"\\?\".len()..]).into();
    }
    path
}

/// What a call returned: zero is a failure.
fn check(result: windows_sys::core::BOOL) -> io::Result<()> {
    match result {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Nothing is interrupted here.
pub(crate) fn is_interrupted(_code: i32) -> bool {
    false
}

/// No backend is asked.
pub(crate) fn is_unsupported(_code: i32) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_go_where_the_path_means_the_same_without() {
        for (with, without) in [
            (r"\\?\C:\a", r"C:\a"),
            (r"\\?\UNC\server\share", r"\\server\share"),
            (r"\\?\Volume{1}\a", r"\\?\Volume{1}\a"),
            (r"C:\a", r"C:\a"),
            ("a", "a"),
        ] {
            assert_eq!(without_prefix(with.into()), PathBuf::from(without));
        }
    }
}
