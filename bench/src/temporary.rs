//! Temporary files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, io};

/// A file of known content, removed on drop.
#[derive(Debug)]
pub(crate) struct Temporary(io::Result<PathBuf>);

impl Temporary {
    /// Creates a file with a unique name that contains `purpose`.
    pub(crate) fn new(purpose: &str, content: &[u8]) -> Temporary {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench-{purpose}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        Temporary(fs::write(&path, content).map(|()| path))
    }

    /// The path, or the error of its creation.
    pub(crate) fn path(&self) -> io::Result<&Path> {
        match &self.0 {
            Ok(path) => Ok(path),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Ok(path) = &self.0 {
            let _ = fs::remove_file(path);
        }
    }
}
