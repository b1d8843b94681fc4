//! Temporary files that are removed when a case ends.

use std::ffi::CString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A temporary directory, removed with its content on drop.
#[derive(Debug)]
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Directory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("conformance-{}-{count}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match std::fs::create_dir(&path) {
                Ok(()) => return Directory(path),
                // Left behind by a killed process with the same pid.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("a temporary directory: {error}"),
            }
        }
    }

    /// The path of an entry, which may not exist.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Creates a file with this content.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).expect("a temporary file");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A path as a C string.
pub(crate) fn c_path(path: &Path) -> CString {
    CString::new(path.to_str().expect("a temporary path in UTF-8")).expect("a path without NUL")
}

/// A file from another descriptor that can be read or written, such as the end of a pipe.
#[cfg(unix)]
pub(crate) fn file_of(owner: impl Into<std::os::fd::OwnedFd>) -> uv_core::fs::File {
    std::fs::File::from(owner.into()).into()
}

/// A file from another handle that can be read or written, such as the end of a pipe.
#[cfg(windows)]
pub(crate) fn file_of(owner: impl Into<std::os::windows::io::OwnedHandle>) -> uv_core::fs::File {
    std::fs::File::from(owner.into()).into()
}
