//! Files for the time of a benchmark.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, io};

/// A file of known content, removed at the end.
#[derive(Debug)]
pub(crate) struct Temporary(io::Result<PathBuf>);

impl Temporary {
    /// A file that nobody else has. `purpose` is a part of its name.
    pub(crate) fn new(purpose: &str, content: &[u8]) -> Temporary {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("bench-{purpose}-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        Temporary(fs::write(&path, content).map(|()| path))
    }

    /// Where it is, or why it could not be made.
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
