//! Handles that watch, and what they are told.

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use poll_core::Backend;
use uv_core::{FsEvent, FsEventFlags, FsNews, Loop};

use super::files::Directory;
use super::streams::{run_a_moment, run_until};
use crate::Skip;

/// What a handle was told, without its lifetime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Renamed(PathBuf),
    Changed(PathBuf),
    Lost,
    Failed(io::ErrorKind),
}

/// An entry has come, gone or been renamed.
pub(crate) fn renamed(path: impl AsRef<Path>) -> Told {
    Told::Renamed(path.as_ref().to_owned())
}

/// An entry has changed.
pub(crate) fn changed(path: impl AsRef<Path>) -> Told {
    Told::Changed(path.as_ref().to_owned())
}

/// A started handle, and all that it was told.
#[derive(Clone, Debug)]
pub(crate) struct Watch {
    pub(crate) handle: FsEvent,
    told: Rc<RefCell<Vec<Told>>>,
}

impl Watch {
    /// Watches a file, or a directory alone.
    pub(crate) fn new<T: Backend>(lp: &mut Loop<T>, path: impl AsRef<Path>) -> Watch {
        Watch::with(lp, path, FsEventFlags::empty())
    }

    /// Watches a directory and all that is below it.
    pub(crate) fn tree<T: Backend>(lp: &mut Loop<T>, path: impl AsRef<Path>) -> Watch {
        Watch::with(lp, path, FsEventFlags::RECURSIVE)
    }

    fn with<T: Backend>(lp: &mut Loop<T>, path: impl AsRef<Path>, flags: FsEventFlags) -> Watch {
        let watch = Watch { handle: FsEvent::new(lp), told: Rc::default() };
        watch.start(lp, path.as_ref(), flags).expect("a handle that watches");
        watch
    }

    /// Starts the handle: again, if it was stopped.
    pub(crate) fn start<T: Backend>(
        &self,
        lp: &mut Loop<T>,
        path: &Path,
        flags: FsEventFlags,
    ) -> io::Result<()> {
        let told = Rc::clone(&self.told);
        self.handle.start(lp, path, flags, move |_, _, news| {
            told.borrow_mut().push(match news {
                Ok(FsNews::Renamed(path)) => Told::Renamed(path.to_owned()),
                Ok(FsNews::Changed(path)) => Told::Changed(path.to_owned()),
                Ok(FsNews::Lost) => Told::Lost,
                Err(error) => Told::Failed(error.kind()),
            });
        })
    }

    /// All that it was told since [`Watch::forget`].
    pub(crate) fn told(&self) -> Vec<Told> {
        self.told.borrow().clone()
    }

    /// Starts afresh with what was told.
    pub(crate) fn forget(&self) {
        self.told.take();
    }

    /// Runs the loop until the handle is told this, among other things.
    #[track_caller]
    pub(crate) fn expect<T: Backend>(&self, lp: &mut Loop<T>, expected: Told) {
        let what = format!("{expected:?}");
        run_until(lp, &what, |_| self.told().contains(&expected));
    }

    /// Runs the loop for a moment, in which the handle is told nothing.
    #[track_caller]
    pub(crate) fn expect_nothing<T: Backend>(&self, lp: &mut Loop<T>, why: &str) {
        run_a_moment(lp);
        let told = self.told();
        assert!(told.is_empty(), "{why}, but it was told {told:?}");
    }

    /// Runs the loop until nothing more comes, then forgets it all.
    pub(crate) fn settle<T: Backend>(&self, lp: &mut Loop<T>) {
        loop {
            run_a_moment(lp);
            if self.told().is_empty() {
                return;
            }
            self.forget();
        }
    }
}

/// For cases about which entry it was.
pub(crate) fn needs_names_of_entries() -> Result<(), Skip> {
    if cfg!(any(target_os = "linux", target_os = "android", target_os = "macos", windows)) {
        return Ok(());
    }
    Err(Skip::because("kqueue does not say which entry of a directory has changed"))
}

/// For cases about directories below.
pub(crate) fn needs_trees() -> Result<(), Skip> {
    if cfg!(any(target_os = "linux", target_os = "android", target_os = "macos", windows)) {
        return Ok(());
    }
    Err(Skip::because("kqueue does not watch recursively"))
}

impl Directory {
    /// A new directory, and those that it is in.
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
