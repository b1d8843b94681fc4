//! Changes that were seen and have not been told.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;

use poll_core::Token;

/// A handle that was started, until it is stopped: each start is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Watcher {
    pub(crate) key: Token,
    pub(crate) started: u64,
}

/// What is to be told.
#[derive(Debug)]
pub(crate) enum What {
    Renamed,
    Changed,
    #[cfg_attr(
        not(any(test, target_os = "linux", target_os = "android", target_os = "macos", windows)),
        expect(dead_code, reason = "kqueue loses nothing: it tells that, and not what")
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

/// Notices in order. The memory of their paths is used again.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    due: VecDeque<Notice>,
    spare: Vec<PathBuf>,
}

impl Notices {
    /// As many paths as are kept for use.
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

    /// Takes a path back that was told.
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
