//! File system watchers and their events.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use uv_core::{FsEvent, FsEventFlags, FsEventKind};

use super::files::Directory;
use super::streams::{run_a_moment, run_until};
use crate::{Loop, Skip};

/// An owned copy of an event of a watcher.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WatchEvent {
    Renamed(PathBuf),
    Changed(PathBuf),
    Lost,
    Failed(io::ErrorKind),
}

/// An entry was created, removed or renamed.
pub(crate) fn renamed(path: impl AsRef<Path>) -> WatchEvent {
    WatchEvent::Renamed(path.as_ref().to_owned())
}

/// An entry was modified.
pub(crate) fn changed(path: impl AsRef<Path>) -> WatchEvent {
    WatchEvent::Changed(path.as_ref().to_owned())
}

/// A started handle and its events.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) handle: FsEvent,
    events: Rc<RefCell<Vec<WatchEvent>>>,
}

impl Watch {
    /// Watches a file, or a directory without its subdirectories.
    pub(crate) fn new(lp: &mut Loop, path: impl AsRef<Path>) -> Watch {
        Watch::with(lp, path, FsEventFlags::empty())
    }

    /// Watches a directory recursively.
    pub(crate) fn tree(lp: &mut Loop, path: impl AsRef<Path>) -> Watch {
        Watch::with(lp, path, FsEventFlags::RECURSIVE)
    }

    fn with(lp: &mut Loop, path: impl AsRef<Path>, flags: FsEventFlags) -> Watch {
        let watch = Watch { handle: FsEvent::new(lp), events: Rc::default() };
        watch.start(lp, path.as_ref(), flags).expect("a handle that watches");
        watch
    }

    /// Starts the handle, also after a stop.
    pub(crate) fn start(&self, lp: &mut Loop, path: &Path, flags: FsEventFlags) -> io::Result<()> {
        let events = Rc::clone(&self.events);
        self.handle.start(lp, path, flags, move |_, _, event| {
            events.borrow_mut().push(match event {
                Ok(FsEventKind::Rename(path)) => WatchEvent::Renamed(path.to_owned()),
                Ok(FsEventKind::Change(path)) => WatchEvent::Changed(path.to_owned()),
                Ok(FsEventKind::Overflow) => WatchEvent::Lost,
                Err(error) => WatchEvent::Failed(error.kind()),
            });
        })
    }

    /// True if `event` was reported.
    pub(crate) fn has(&self, event: &WatchEvent) -> bool {
        self.events.borrow().contains(event)
    }

    /// All events since [`Watch::clear`].
    pub(crate) fn events(&self) -> Vec<WatchEvent> {
        self.events.borrow().clone()
    }

    /// Discards the recorded events.
    pub(crate) fn clear(&self) {
        self.events.take();
    }

    /// Runs the loop until this event was reported, among others.
    #[track_caller]
    pub(crate) fn expect(&self, lp: &mut Loop, expected: WatchEvent) {
        let what = format!("{expected:?}");
        run_until(lp, &what, |_| self.events().contains(&expected));
    }

    /// Runs the loop for a short time, in which no event may be reported.
    #[track_caller]
    pub(crate) fn expect_nothing(&self, lp: &mut Loop, why: &str) {
        run_a_moment(lp);
        let events = self.events();
        assert!(events.is_empty(), "{why}, but {events:?} was reported");
    }

    /// Runs the loop until no more events arrive, and discards them.
    pub(crate) fn drain(&self, lp: &mut Loop) {
        loop {
            run_a_moment(lp);
            if self.events().is_empty() {
                return;
            }
            self.clear();
        }
    }
}

/// Skips cases that need the names of changed entries.
pub(crate) fn needs_names_of_entries() -> Result<(), Skip> {
    if cfg!(any(target_os = "linux", target_os = "android", target_os = "macos", windows)) {
        return Ok(());
    }
    Err(Skip::because("kqueue does not report which entry of a directory has changed"))
}

/// Skips cases that need recursive watching.
pub(crate) fn needs_trees() -> Result<(), Skip> {
    if cfg!(any(target_os = "linux", target_os = "android", target_os = "macos", windows)) {
        return Ok(());
    }
    Err(Skip::because("kqueue does not watch recursively"))
}

impl Directory {
    /// Creates a directory and its parents.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(&path).expect("a directory");
        path
    }

    /// The directory's own path.
    pub(crate) fn root(&self) -> PathBuf {
        self.path("")
    }
}
