//! The queue of file events that have not been delivered.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;

use poll_core::Token;

/// One start of a handle, until it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Watcher {
    pub(crate) key: Token,
    pub(crate) started: u64,
}

/// The event to deliver.
#[derive(Debug)]
pub(crate) enum What {
    Renamed,
    Changed,
    #[cfg_attr(
        not(any(test, target_os = "linux", target_os = "android", target_os = "macos", windows)),
        expect(dead_code, reason = "kqueue loses no events, because it does not identify entries")
    )]
    Lost,
    Failed(io::Error),
}

#[derive(Debug)]
pub(crate) struct Notice {
    pub(crate) watcher: Watcher,
    pub(crate) what: What,
    pub(crate) path: PathBuf,
}

/// Notices in order. The allocations of their paths are reused.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    due: VecDeque<Notice>,
    spare: Vec<PathBuf>,
}

impl Notices {
    /// The limit of allocations that are kept for reuse.
    const SPARE: usize = 1024;

    /// Adds a notice about `name` in `folder`, either of which may be empty.
    pub(crate) fn push(&mut self, watcher: Watcher, what: What, folder: &OsStr, name: &OsStr) {
        let mut path = self.spare.pop().unwrap_or_default();
        path.as_mut_os_string().push(folder);
        if !name.is_empty() {
            path.push(name);
        }
        self.due.push_back(Notice { watcher, what, path });
    }

    pub(crate) fn pop(&mut self) -> Option<Notice> {
        self.due.pop_front()
    }

    /// Returns the path of a delivered notice for reuse.
    pub(crate) fn reuse(&mut self, mut path: PathBuf) {
        if self.spare.len() < Self::SPARE {
            path.as_mut_os_string().clear();
            self.spare.push(path);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.due.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.due.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.due.clear();
    }
}
